"""Remote files for coroutine functions as sources: in an object store, on an HTTP server, or on any file system.

fsspec reads the files, tenacity schedules retries, and diskcache caches the contents, all in the process that reads: the
workers. A `RemoteFiles` describes the store and travels to the workers. Each process opens its own connections at its first
read; they belong to its event loop and end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import positive
from dali_like.common.extras import optional
from dali_like.common.foreign_errors import add_note
from dali_like.engine.worker.coroutines import EventLoop
from dali_like.errors import ArgumentError, IncompleteReadError, MissingExtraError

__all__ = ["RemoteFiles", "is_transient"]

T = TypeVar("T")

logger = logging.getLogger("dali_like.remote")  # its documented name

#: Upper bound of the random wait before the second attempt; it doubles with each attempt.
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 20.0
#: Request timeout, too early, too many requests; and the answers of overloaded or restarting servers.
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}
#: Subclasses of OSError that concern the file rather than the connection. HTTP servers use the status instead.
_LASTING_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
#: Connection errors that are not built-in exceptions, by the module that defines them.
_CONNECTION_ERRORS = {
    "aiohttp": ("ClientConnectionError", "ClientPayloadError"),
    "botocore.exceptions": ("ConnectionError", "HTTPClientError", "IncompleteReadError", "ResponseStreamingError"),
}


class RemoteFiles:
    """The files below a URL, for a coroutine function that is a source::

        files = RemoteFiles("s3://bucket/train", cache_dir="/local/cache", cache_bytes=200 << 30)
        names = files.names("*.jpg")

        async def source(info):
            return await files.read(names[info.idx_in_epoch])

    Reads that fail because of a lost connection or a busy server are retried after random, increasing waits ("full jitter",
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/); see `is_transient`.

    The cache is a directory that all processes of this machine may share, including other programs. It keeps the first files
    until it is full, and evicts none: in epochs larger than the cache, eviction would remove files that the next epoch needs
    as much. Cached contents are never compared with the store: change the name of a file when its contents change.

    Args:
        url: URL of the folder for fsspec: ``s3://bucket/folder``, ``https://host/folder``, ``/folder``, ...
        storage_options: options of fsspec's file system, such as credentials and endpoints.
        attempts: number of attempts, at least 1.
        timeout_s: time limit of one attempt, in seconds.
        cache_dir: directory of the cache; None: no cache. It must belong to the user, and nobody else may enter it (mode
            700). A missing one is created.
        cache_bytes: size limit of the cache. Each process may exceed it by the file that it is writing.

    Raises:
        MissingExtraError: fsspec, tenacity, diskcache or the package that fsspec needs for the URL is not installed.
        ArgumentError: an argument is out of range, fsspec does not know the protocol, only one argument of the cache is
            given, the cache is damaged, or its folder belongs to others or is open to them.
    """

    def __init__(
        self,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        attempts: int = 6,
        timeout_s: float = 60.0,
        cache_dir: str | Path | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        if not timeout_s > 0:
            raise ArgumentError(f"timeout_s must be a positive number of seconds, not {timeout_s!r}")
        if (cache_dir is None) != (cache_bytes is None):
            raise ArgumentError("cache_dir and cache_bytes go together: pass both, or neither")
        optional("tenacity", "RemoteFiles", "remote")
        self.url = url.rstrip("/")
        self._options = dict(storage_options or {})
        self._attempts = positive("attempts", attempts)
        self._timeout_s = timeout_s
        self._kind = _kind_of(url)
        self._cache = None if cache_dir is None else _open_cache(Path(cache_dir))
        self._cache_bytes = None if cache_bytes is None else positive("cache_bytes", cache_bytes)
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}

    async def read(self, name: str, start: int | None = None, stop: int | None = None) -> NDArray[np.uint8]:
        """Return a file, or a part of it.

        Args:
            name: name of the file, below the URL.
            start, stop: range of bytes, from 0 on; None: the beginning, or the end.

        Returns:
            The bytes, of shape (number of bytes,) and dtype uint8, read-only.

        Raises:
            IncompleteReadError: the file has fewer bytes, or the server does not serve parts.
            Exception: an exception of the file system, such as FileNotFoundError; a transient one only after the last
                attempt.
        """
        return await self._read_url(f"{self.url}/{name}", start, stop)

    async def _read_url(self, url: str, start: int | None, stop: int | None) -> NDArray[np.uint8]:
        """Return a file of the same store, or a part of it; see `read`."""
        session = self._session()
        key = url + ("" if start is None and stop is None else f"[{start}:{stop}]")
        data = await session.cached(key)
        if data is None:
            data = await self._insist(lambda: session.read(url, start, stop), key)
            await session.keep(key, data, self._cache_bytes)
        return np.frombuffer(data, np.uint8)

    def names(self, pattern: str = "*") -> list[str]:
        """Return the sorted names of the files below the URL. For the main program, not for coroutines.

        Args:
            pattern: a shell pattern; ``**/*.jpg`` includes subfolders.
        """
        loop = EventLoop()
        try:
            found: list[str] = loop.finish(self._names(pattern))
        finally:
            loop.close()
        return found

    async def _names(self, pattern: str) -> list[str]:
        session = self._session()
        found: list[str] = await self._insist(lambda: session.names(self.url, pattern), f"{self.url}/{pattern}")
        return found

    async def _size_of(self, url: str) -> int:
        """Return the size of a file of the same store, in bytes."""
        session = self._session()
        size: int = await self._insist(lambda: session.size(url), url)
        return size

    async def _insist(self, attempt: Any, what: str) -> Any:
        """Retry an operation until it succeeds or fails for good."""
        import tenacity

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_random_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S),
            retry=tenacity.retry_if_exception(is_transient),
            before_sleep=tenacity.before_sleep_log(logger, logging.INFO),
            reraise=True,
        )

        async def limited() -> Any:
            async with asyncio.timeout(self._timeout_s):
                return await attempt()

        try:
            return await retrying(limited)
        except Exception as error:
            add_note(error, f"raised by attempt {retrying.statistics['attempt_number']} of {self._attempts} to read {what}")
            raise

    def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = _Session(self._kind, self._options, self._cache, self._sessions)
        return self._sessions[loop]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sessions": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._cache is not None:
            self._cache.close()  # unpickling opens its database, in a thread that will not use it


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: the connection is lost or late, or the server is busy.

    Missing files, missing permissions, other refusals of a server and wrong arguments are not transient.
    """
    transient: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError, *_connection_errors())
    for each in _causes(error):
        if isinstance(each, transient):
            return True
        if isinstance(each, _LASTING_ERRORS):
            return False
        if (status := _status_of(each)) is not None:
            return status in _TRANSIENT_STATUSES
    return False


class _Session:
    """The connections of an event loop, and its thread for the cache.

    It ends with the loop, which closes the asynchronous generator behind it.
    """

    def __init__(self, kind: Any, options: dict[str, Any], cache: Any, sessions: dict[Any, _Session]) -> None:
        self._kind = kind
        self._options = options
        self._cache = cache
        self._sessions = sessions
        self._thread = ThreadPoolExecutor(1, "dali_like_cache") if cache is not None else None
        self._has_warned = False
        self._lock = asyncio.Lock()
        self._opened: tuple[Any, AsyncGenerator[Any, None]] | None = None

    async def read(self, url: str, start: int | None, stop: int | None) -> bytes:
        """Return a file, or a part of it, from the store."""
        system = await self._system()
        data: bytes = await system._cat_file(self._path_of(url), start=start, end=stop)
        if stop is not None and len(data) != stop - (start or 0):
            raise IncompleteReadError(f"{url}: asked for bytes {start or 0} to {stop}, the store sent {len(data)} bytes")
        return data

    async def names(self, url: str, pattern: str) -> list[str]:
        """Return the names of files."""
        system = await self._system()
        root = self._path_of(url)
        found = await system._glob(f"{root}/{pattern}", detail=True)
        return sorted(name[len(root) + 1 :] for name, about in found.items() if about["type"] == "file")

    async def size(self, url: str) -> int:
        """Return the size of a file in the store, in bytes."""
        system = await self._system()
        about = await system._info(self._path_of(url))
        return int(about["size"])

    def _path_of(self, url: str) -> str:
        """Return the path in the store, by its own class: fsspec's wrapper for local files keeps ``file://`` before 2025."""
        path: str = self._kind._strip_protocol(url)
        return path

    async def cached(self, key: str) -> bytes | None:
        """Return the cached contents of a file; None if missing or damaged, for example by a power failure."""
        data, checksum = await self._ask(lambda: self._cache.get(key, tag=True), (None, None))
        return data if data is not None and zlib.crc32(data) == checksum else None

    async def keep(self, key: str, data: bytes, most_bytes: int | None) -> None:
        """Store a file in the cache, if there is room for it."""

        def keep() -> None:
            if self._cache.volume() + len(data) <= most_bytes:
                self._cache.set(key, data, tag=zlib.crc32(data))

        await self._ask(keep, None)

    async def _ask(self, question: Any, otherwise: T) -> T:
        """Use the cache. Return `otherwise` if it is locked for too long or damaged, or the disk is full."""
        if self._thread is None:
            return otherwise
        import sqlite3

        import diskcache

        loop = asyncio.get_running_loop()
        await self._system()  # so that the thread ends with the loop
        try:
            answer: T = await loop.run_in_executor(self._thread, question)
        except (diskcache.Timeout, sqlite3.Error, OSError) as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("reading without the cache in %s: %r", self._cache.directory, error)
            return otherwise
        return answer

    async def _system(self) -> Any:
        """Return fsspec's file system, with open connections."""
        async with self._lock:
            if self._opened is None:
                opening = self._open()
                self._opened = await anext(opening), opening
        return self._opened[0]

    async def _open(self) -> AsyncGenerator[Any, None]:
        system = _make_system(self._kind, self._options)
        connections: Any = None
        try:
            if hasattr(system, "set_session"):
                connections = await system.set_session()
            yield system
        finally:
            self._sessions.pop(asyncio.get_running_loop(), None)
            if hasattr(connections, "close"):
                await connections.close()
            if self._thread is not None:
                self._thread.submit(self._cache.close)
                self._thread.shutdown()


def _kind_of(url: str) -> type:
    """Return fsspec's class for a URL.

    Raises:
        MissingExtraError: the package for the protocol is not installed.
        ArgumentError: fsspec does not know the protocol.
    """
    fsspec = optional("fsspec", "RemoteFiles", "remote")
    protocol = fsspec.core.split_protocol(url)[0] or "file"
    try:
        kind: type = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise MissingExtraError(f"RemoteFiles({url!r}): {error}") from error
    except ValueError as error:
        raise ArgumentError(f"RemoteFiles({url!r}): {error}") from error
    return kind


def _make_system(kind: Any, options: dict[str, Any]) -> Any:
    """Return a file system for the running loop alone, not one of fsspec's cached instances."""
    if not kind.async_impl:
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        return AsyncFileSystemWrapper(kind(**options, skip_instance_cache=True), asynchronous=True)
    system = kind(**options, asynchronous=True, skip_instance_cache=True)
    if hasattr(system, "retries"):
        system.retries = 1  # RemoteFiles retries already
    return system


def _open_cache(directory: Path) -> Any:
    optional("diskcache", "RemoteFiles(cache_dir=...)", "remote")
    from dali_like.sources.remote_cache import open_cache  # imports diskcache

    return open_cache(directory)


def _status_of(error: Any) -> int | None:
    """Return the HTTP status of an exception of aiohttp, botocore, requests or gcsfs; None if it has none."""
    with contextlib.suppress(AttributeError, TypeError, KeyError):
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    for owner, name in ((error, "status"), (getattr(error, "response", None), "status_code"), (error, "code")):
        status = getattr(owner, name, None)
        if isinstance(status, int):
            return status
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _connection_errors() -> tuple[type[BaseException], ...]:
    """Return the connection errors of imported modules. Other modules cannot have raised any."""
    loaded: list[tuple[Any, tuple[str, ...]]]
    loaded = [(sys.modules[module], names) for module, names in _CONNECTION_ERRORS.items() if module in sys.modules]
    return tuple(getattr(module, name) for module, names in loaded for name in names if hasattr(module, name))
