"""Files of readers: local ones, and files of stores and servers. Readers list, open and read files only with `StoredFiles`.

A path with ``://`` is a URL for fsspec; see `dali_like.sources.remote_files` for retries and the cache. Names that are not
UTF-8 keep their bytes, as `os.fsdecode` returns them. The main process lists files. Workers read them.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.worker.coroutines import EventLoop
from dali_like.errors import (
    ArgumentError,
    ArgumentTypeError,
    BrokenFileError,
    DaliLikeError,
    FileReadError,
    MissingFileError,
)
from dali_like.sources.remote_files import RemoteFiles

__all__ = ["FileNames", "SeekableFile", "StoredFiles", "is_url", "joined", "shown"]

#: Files that a process keeps open for reading parts of them, by default.
_MOST_OPEN = 32
#: Characters that make a path a pattern. In URLs, "?" begins a query.
_WILDCARDS = re.compile(r"[*?[]")
_WILDCARDS_OF_URLS = re.compile(r"[*[]")


def is_url(path: str) -> bool:
    """Return whether a path is a URL for fsspec."""
    return "://" in path


def joined(root: str, name: str) -> str:
    """Return the path of a name below a folder. Absolute paths and URLs stay as they are."""
    if not root or is_url(name) or os.path.isabs(name):
        return name
    return f"{root}{name}" if root.endswith("/") else f"{root}/{name}"


class SeekableFile(io.RawIOBase):
    """A raw file for reading. Subclasses have ``readinto``, which reads from `position` on and moves it.

    Args:
        size: of the file in bytes.

    Attributes:
        position: of the next byte.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        return self.position


class StoredFiles:
    """Lists and reads the files of one reader.

    Coroutines use `read`. Other methods wait; for URLs each call then opens connections of its own.

    Args:
        options: arguments of `RemoteFiles` for URLs, but for the URL: ``storage_options``, ``cache_dir`` and so on.
        most_open: number of local files that a process keeps open for reading parts of them.
        stores_indexes: whether the indexes that readers build of these files are stored, for later runs.

    Raises:
        ArgumentError: an option is unknown, or out of range. The latter is raised at the first use of a URL.
    """

    def __init__(
        self, options: Mapping[str, Any] | None = None, *, most_open: int = _MOST_OPEN, stores_indexes: bool = True
    ) -> None:
        self.stores_indexes = stores_indexes
        self._options = _checked(options)
        self._stores: dict[str, RemoteFiles] = {}
        self._most_open = most_open
        self._open = _OpenFiles(most_open)

    async def read(
        self, path: str, start: int = 0, stop: int | None = None, empty: Callable[[int], NDArray[np.uint8]] | None = None
    ) -> NDArray[np.uint8]:
        """Return a file, or a part of it.

        Of local files, the coroutine never suspends.

        Args:
            path: path or URL.
            start, stop: range of bytes; default: the whole file.
            empty: returns the memory to read into, given the number of bytes, such as ``info.empty``. Default: new memory.

        Returns:
            The bytes, of shape (number of bytes,) and dtype uint8. They may be read-only.

        Raises:
            MissingFileError: the file does not exist.
            BrokenFileError: the file ends before `stop`.
            FileReadError: the file cannot be read for another reason.
        """
        if not is_url(path):
            return self._read_local(path, start, stop, empty)
        whole = not start and stop is None
        with _errors_of(path):
            return await self._store_of(path)._read_url(path, None if whole else start, stop)

    def read_now(
        self, path: str, start: int = 0, stop: int | None = None, empty: Callable[[int], NDArray[np.uint8]] | None = None
    ) -> NDArray[np.uint8]:
        """Return a file, or a part of it; see `read`. For code that is not a coroutine."""
        if not is_url(path):
            return self._read_local(path, start, stop, empty)
        data: NDArray[np.uint8] = _finished(self.read(path, start, stop))
        return data

    def open(self, path: str) -> BinaryIO:
        """Open a file for a library that reads file objects. A remote file is read as a whole."""
        if is_url(path):
            return io.BytesIO(self.read_now(path).tobytes())
        with _errors_of(path):
            return open(path, "rb")

    def text_lines(self, path: str) -> list[str]:
        """Return the lines of a text file, without their ends. Bytes that are not UTF-8 stay as `os.fsdecode` has them."""
        text = os.fsdecode(self.read_now(path).tobytes())
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        with _errors_of(path):
            return _finished(self._store_of(path)._size_of(path)) if is_url(path) else os.stat(path).st_size

    def version(self, path: str) -> str:
        """Return a text that changes with a file: its size and time of change; of a URL, its size."""
        if is_url(path):
            return str(self.size(path))
        with _errors_of(path):
            status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}"

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted by their bytes.

        Raises:
            MissingFileError: the folder does not exist.
        """
        if is_url(folder):
            return _by_bytes(self._remote_names(folder, "*"))
        with _errors_of(folder), os.scandir(folder) as entries:
            return _by_bytes(entry.name for entry in entries if entry.is_file())

    def matches(self, pattern: str) -> list[str]:
        """Return the sorted paths of the files that match a shell pattern; a path without wildcards is returned as it is.

        Args:
            pattern: path or URL; ``**`` includes subfolders.

        Raises:
            MissingFileError: no file matches.
        """
        wildcard = (_WILDCARDS_OF_URLS if is_url(pattern) else _WILDCARDS).search(pattern)
        if wildcard is None or (not is_url(pattern) and os.path.exists(pattern)):
            return [pattern]
        if is_url(pattern):
            folder, _, _ = pattern[: wildcard.start()].rpartition("/")
            found = [joined(folder, name) for name in self._remote_names(folder, pattern[len(folder) + 1 :])]
        else:
            found = [path for path in glob.iglob(pattern, recursive=True) if os.path.isfile(path)]
        if not found:
            raise MissingFileError(f"no file matches {shown(pattern)}. Check the pattern", pattern)
        return _by_bytes(found)

    def names_in_folders(self, root: str) -> dict[str, list[str]]:
        """Return the names of the files in each folder of a folder, all sorted by their bytes.

        Object stores have no empty folders, so the result lacks these.

        Raises:
            MissingFileError: the folder does not exist.
        """
        if is_url(root):
            found: dict[str, list[str]] = {}
            for path in self._remote_names(root, "*/*"):
                folder, _, name = path.rpartition("/")
                found.setdefault(folder, []).append(name)
            return {folder: _by_bytes(found[folder]) for folder in _by_bytes(found)}
        with _errors_of(root), os.scandir(root) as entries:
            folders = _by_bytes(entry.name for entry in entries if entry.is_dir())
        return {folder: self.names(joined(root, folder)) for folder in folders}

    def _remote_names(self, folder: str, pattern: str) -> list[str]:
        with _errors_of(folder):
            return RemoteFiles(folder, **self._options).names(pattern)

    def _store_of(self, url: str) -> RemoteFiles:
        """Return the store of a URL. The instances with equal protocol and host share their connections."""
        place = "/".join(url.split("/", 3)[:3])
        store = self._stores.get(place)
        if store is None:
            store = self._stores[place] = RemoteFiles(place, **self._options)
        return store

    def _read_local(
        self, path: str, start: int, stop: int | None, empty: Callable[[int], NDArray[np.uint8]] | None
    ) -> NDArray[np.uint8]:
        with _errors_of(path):
            if start or stop is not None:
                file = self._open.file(path)  # the reference keeps it open
                return _read_open(file.descriptor, path, start, stop, empty)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_open(descriptor, path, start, stop, empty)
            finally:
                os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open = _OpenFiles(self._most_open)


def _read_open(
    descriptor: int, path: str, start: int, stop: int | None, empty: Callable[[int], NDArray[np.uint8]] | None
) -> NDArray[np.uint8]:
    size = os.fstat(descriptor).st_size
    stop = size if stop is None else stop
    if max(start, stop) > size:
        raise _truncated(path, max(start, stop), size)
    if stop < start:
        raise BrokenFileError(f"{shown(path)}: bytes {start} to {stop} are not in it. Its index is damaged", path, start)
    data = np.empty(stop - start, np.uint8) if empty is None else empty(stop - start)
    done = 0
    while done < len(data):
        count = os.preadv(descriptor, [data[done:].data], start + done)
        if not count:
            raise _truncated(path, stop, start + done)
        done += count
    return data


class _OpenFile:
    """A file that is open for reading. It is closed when nothing refers to it."""

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class _OpenFiles:
    """The files that this process has read parts of most recently. Any thread may use it.

    Descriptors are read at given offsets, so a fork can share them.
    """

    def __init__(self, most: int) -> None:
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._most = most
        self._lock = threading.Lock()

    def file(self, path: str) -> _OpenFile:
        """Return a file, opening it if need be. It stays open as long as the caller holds it."""
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = _OpenFile(path)
                while len(self._files) > self._most:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(path)
            return file


class FileNames(Sequence[str]):
    """Many names in two arrays.

    A fork shares them: reading a list of strings would write reference counts, and so copy the memory. Spawned workers map
    the arrays instead of unpickling strings.

    Args:
        names: names of files; a string is a single name.

    Attributes:
        have_urls: whether any name is a URL.

    >>> names = FileNames(["a/1.jpg", "b/2.jpg"])
    >>> len(names), names[1]
    (2, 'b/2.jpg')
    """

    def __init__(self, names: str | Iterable[str]) -> None:
        names = [names] if isinstance(names, str) else names
        encoded = [os.fsencode(name) for name in names]
        text = b"".join(encoded)
        self._text = np.frombuffer(text, np.uint8)
        self.have_urls = b"://" in text
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return os.fsdecode(self._text[self._ends[index] : self._ends[index + 1]].tobytes())


def _checked(options: Any) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentTypeError(
            f"remote_options must be a dict of arguments of dali_like.remote.RemoteFiles, or None, not {options!r}"
        )
    known = ("storage_options", "attempts", "timeout_s", "cache_dir", "cache_bytes")
    if unknown := sorted(set(options or ()) - set(known)):
        raise ArgumentError(f"remote_options has no {', '.join(map(str, unknown))}: it may have {', '.join(known)}")
    return dict(options or {})


def _finished(coroutine: Any) -> Any:
    loop = EventLoop()
    try:
        return loop.finish(coroutine)
    finally:
        loop.close()


def _by_bytes(names: Iterable[str]) -> list[str]:
    return sorted(names, key=os.fsencode)


def _truncated(path: str, stop: int, end: int) -> BrokenFileError:
    return BrokenFileError(
        f"{shown(path)}: the file ends at byte {end}, before byte {stop}. It is truncated, or another program is writing it",
        path,
        end,
    )


def shown(path: str) -> str:
    """Return a path for messages, in which bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """Turn the errors of a file system into errors of readers."""
    try:
        yield
    except FileReadError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(
            f"{shown(path)} does not exist. Check the path; if it was listed before, another program has removed it", path
        ) from error
    except OSError as error:
        raise FileReadError(f"{shown(path)} cannot be read: {error.strerror or error}", path) from error
    except DaliLikeError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and "\0" in path:
            raise FileReadError(f"{shown(path)!r} cannot be read: names of files have no NUL characters", path) from error
        if not is_url(path):
            raise
        # Each store has exceptions of its own.
        raise FileReadError(f"{shown(path)} cannot be read: {error or type(error).__name__}", path) from error
