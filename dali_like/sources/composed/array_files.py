"""Rows of arrays that are stored in chunks along their first axis: HDF5 files and Zarr stores.

Libraries read and decompress a chunk as a whole, also for one row of it. So the rows of a chunk are read together: of the
array with the most bytes, its chunks; of the others, the same rows.
"""

from __future__ import annotations

import asyncio
import math
import os
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentClashError, ArgumentError, BrokenFileError, FileReadError, MissingFileError
from dali_like.sources.composed.block_file import open_in_blocks
from dali_like.sources.composed.chunked_files import CHUNK_BYTES, ChunkedFiles
from dali_like.sources.readers.stored_files import StoredFiles, is_url, shown

__all__ = ["ArrayFiles", "ArrayLayout", "Hdf5Files", "ZarrStores", "layout_of"]

#: Files or stores that a process keeps open for one source.
_MOST_OPEN = 2
#: An array with longer chunks than the largest one is read as a whole, up to this size. Labels often are one chunk.
_MOST_WHOLE_BYTES = 64 << 20


class ArrayLayout(NamedTuple):
    """How rows become elements.

    Attributes:
        fields: names of the arrays of an element; None: all arrays of a group, or the only one.
        is_single: whether an element is the row of the only field, and not a mapping.
        window: rows of an element; None: one, without an axis for it.
        shift: rows from one element to the next.
    """

    fields: tuple[str, ...] | None
    is_single: bool
    window: int | None
    shift: int

    @property
    def span(self) -> int:
        """The number of rows of an element."""
        return 1 if self.window is None else self.window

    def __str__(self) -> str:
        parts = [] if self.fields is None else [", ".join(self.fields)]
        if self.window is not None:
            parts.append(f"window={self.window}, shift={self.shift}")
        return ", ".join(parts)


class _ArrayFile(NamedTuple):
    """A file or store.

    Attributes:
        fields: names of its arrays.
        whole: names of the arrays that are read as wholes.
        num_elements: in it.
        chunk_ends: the number of elements up to the end of each chunk of rows.
        has_chunks: whether its largest array has chunks.
        chunk_bytes: about the size of the rows of a chunk.
    """

    fields: tuple[str, ...]
    whole: frozenset[str]
    num_elements: int
    chunk_ends: NDArray[np.int64]
    has_chunks: bool
    chunk_bytes: int


class ArrayFiles(ChunkedFiles):
    """Elements of one or several rows of arrays.

    Args:
        paths: of the files or stores.
        layout: of the elements.

    Raises:
        MissingExtraError: the library of the format is not installed.
        MissingFileError, BrokenFileError: a file does not exist, or is of another format.
        ArgumentError: a field does not exist, or the arrays have different numbers of rows.
    """

    #: For `dali_like.sources.travel.hazards`.
    opens_in_each_process = True

    def __init__(self, paths: Sequence[str], layout: ArrayLayout) -> None:
        self._paths, self._layout = list(paths), layout
        self._open: OrderedDict[str, Any] = OrderedDict()
        self._whole: dict[tuple[str, str], NDArray[Any]] = {}
        self._pid = os.getpid()
        self._files = [self._examined(path) for path in self._paths]
        self._open.clear()  # workers that are forked open files of their own
        #: The number of the first element of each file, and of the end.
        self._firsts = np.cumsum([0, *(each.num_elements for each in self._files)])
        ends = [first + each.chunk_ends for first, each in zip(self._firsts, self._files, strict=False)]
        self.chunk_ends = np.concatenate([np.zeros(0, np.int64), *ends])
        self.has_single_records = not any(each.has_chunks for each in self._files)
        self.mean_chunk_bytes = max((each.chunk_bytes for each in self._files), default=0)

    @abstractmethod
    def _opened_file(self, path: str) -> Any:
        """Open a file: return an array, or a mapping from names to arrays and groups.

        Raises:
            MissingFileError, BrokenFileError: it does not exist, or is of another format.
        """

    @property
    def file_ends(self) -> NDArray[np.int64]:
        """The number of elements up to the end of each file, of shape (number of files,)."""
        return self._firsts[1:]

    async def read(self, first: int, last: int) -> Sequence[Any]:
        if self.is_remote:
            return await asyncio.to_thread(self._read, first, last)
        return self._read(first, last)

    def decode(self, record: Any, index: int) -> Any:
        return record

    def _read(self, first: int, last: int) -> Sequence[Any]:
        number = int(np.searchsorted(self._firsts, first, "right")) - 1
        path, file, layout = self._paths[number], self._files[number], self._layout
        begin = (first - int(self._firsts[number])) * layout.shift
        end = begin + (last - first - 1) * layout.shift + layout.span
        opened = self._opened(path)
        try:
            parts = {name: self._rows(opened, path, name, name in file.whole, begin, end) for name in file.fields}
        except FileReadError:
            raise
        except Exception as error:  # the libraries and their codecs raise errors of many kinds
            raise BrokenFileError(
                f"{shown(path)}: rows {begin} to {end - 1} cannot be read: {error or type(error).__name__}", path
            ) from error
        return _RowElements(parts, layout, last - first)

    def _rows(self, opened: Any, path: str, name: str, is_whole: bool, begin: int, end: int) -> NDArray[Any]:
        if not is_whole:
            return np.asarray(_array(opened, name)[begin:end])
        whole = self._whole.get((path, name))
        if whole is None:
            whole = self._whole[path, name] = np.asarray(_array(opened, name)[:])
        return whole[begin:end]

    def _opened(self, path: str) -> Any:
        if self._pid != os.getpid():  # the files are open in the parent process
            self._open, self._pid = OrderedDict(), os.getpid()
        opened = self._open.pop(path, None)  # another thread may be here, too
        if opened is None:
            opened = self._opened_file(path)
        self._open[path] = opened
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        return opened

    def _examined(self, path: str) -> _ArrayFile:
        opened, layout = self._opened(path), self._layout
        fields = self._fields(opened, path)
        arrays = {name: _array(opened, name) for name in fields}
        lengths = {name: int(array.shape[0]) if array.shape else 0 for name, array in arrays.items()}
        if len(set(lengths.values())) > 1 or not all(array.shape for array in arrays.values()):
            raise ArgumentError(
                f"{shown(path)}: the arrays have different numbers of rows: {_listed(lengths)}. Name those that belong "
                "together: fields=[...]"
            )
        row_bytes = {name: _row_bytes(array) for name, array in arrays.items()}
        largest = max(fields, key=lambda name: row_bytes[name])
        num_rows, chunks = lengths[largest], arrays[largest].chunks
        rows = chunks[0] if chunks else max(1, CHUNK_BYTES // max(row_bytes[largest], 1))
        whole = frozenset(
            name
            for name in fields
            if (chunks_of := arrays[name].chunks) and chunks_of[0] > rows and num_rows * row_bytes[name] <= _MOST_WHOLE_BYTES
        )
        num_elements = max(0, (num_rows - layout.span) // layout.shift + 1)
        ends = np.minimum(-(-np.arange(rows, num_rows + rows, rows) // layout.shift), num_elements)
        return _ArrayFile(
            fields,
            whole,
            num_elements,
            np.unique(ends[ends > 0]).astype(np.int64),  # with a large shift, chunks without a beginning of an element
            bool(chunks),
            rows * sum(row_bytes.values()),
        )

    def _fields(self, opened: Any, path: str) -> tuple[str, ...]:
        """Return the names of the arrays of an element.

        Raises:
            ArgumentError: one does not exist, or the file has no arrays.
        """
        wanted = self._layout.fields
        if hasattr(opened, "shape"):
            if wanted is not None:
                raise ArgumentError(f"{shown(path)} is one array, without names: leave fields= out")
            return ("",)
        names = [name for name in opened if hasattr(opened[name], "shape")] if wanted is None else list(wanted)
        known = sorted(_names_in(opened))
        for name in names:
            if name not in opened or not hasattr(opened[name], "shape"):
                raise ArgumentError(f"{shown(path)} has no array {name!r}. It has {', '.join(known) or 'none'}")
        if not names:
            raise ArgumentError(
                f"{shown(path)} has no arrays at its top. Name some by their paths, as in fields=['group/array']: it has "
                f"{', '.join(known) or 'none'}"
            )
        return tuple(names)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": OrderedDict(), "_whole": {}}


class _RowElements(Sequence[Any]):
    """The elements of some rows."""

    def __init__(self, parts: Mapping[str, NDArray[Any]], layout: ArrayLayout, count: int) -> None:
        self._parts, self._layout, self._count = parts, layout, count
        self._is_single = layout.is_single or list(parts) == [""]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        found = {name: self._value(part, index) for name, part in self._parts.items()}
        return next(iter(found.values())) if self._is_single else found

    def _value(self, part: NDArray[Any], index: int) -> Any:
        layout = self._layout
        begin = index * layout.shift
        value = part[begin] if layout.window is None else part[begin : begin + layout.window]
        return value.copy() if isinstance(value, np.ndarray) else value  # a view would keep the whole chunk


class Hdf5Files(ArrayFiles):
    """Rows of the datasets of HDF5 files.

    Args:
        files: to read remote files with.
        paths, layout: see `ArrayFiles`.
    """

    is_remote = False  # the library waits for its file object, which reads blocks ahead

    def __init__(self, files: StoredFiles, paths: Sequence[str], layout: ArrayLayout) -> None:
        self._stored = files
        _h5py()
        super().__init__(paths, layout)

    def _opened_file(self, path: str) -> Any:
        if not is_url(path):
            self._stored.size(path)  # raises the errors of readers for missing files
        try:
            return _h5py().File(open_in_blocks(self._stored, path) if is_url(path) else path, "r")
        except OSError as error:
            if isinstance(error, FileReadError):
                raise
            raise BrokenFileError(f"{shown(path)} is not an HDF5 file, or is damaged: {error}", path) from error


class ZarrStores(ArrayFiles):
    """Rows of the arrays of Zarr stores.

    Args:
        paths, layout: see `ArrayFiles`.
        storage_options: of fsspec, for URLs.
    """

    def __init__(self, paths: Sequence[str], layout: ArrayLayout, storage_options: Mapping[str, Any] | None) -> None:
        _zarr()
        self._storage_options = None if storage_options is None else dict(storage_options)
        self.is_remote = any(map(is_url, paths))
        super().__init__(paths, layout)

    def _opened_file(self, path: str) -> Any:
        options = self._storage_options if is_url(path) else None
        try:
            return _zarr().open(path, mode="r", storage_options=options)
        except FileNotFoundError as error:
            raise MissingFileError(f"{shown(path)} is not a Zarr store, or does not exist: {error}", path) from error
        except Exception as error:  # of the library, of its store, or of fsspec
            raise BrokenFileError(f"{shown(path)} is not a Zarr store, or is damaged: {error}", path) from error


def layout_of(fields: str | Sequence[str] | None, window: int | None, shift: int | None) -> ArrayLayout:
    """Return the layout of elements.

    Raises:
        ArgumentClashError: there is a shift without a window.
        ArgumentError: there are no fields, or one is named twice.
    """
    if window is None and shift is not None:
        raise ArgumentClashError("shift is the distance of windows: pass window=, too; or slice(0, None, step) behind it")
    names = None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
    if names is not None and (not names or len(set(names)) < len(names)):
        raise ArgumentError(f"fields are names of arrays, each once, not {fields!r}")
    return ArrayLayout(names, isinstance(fields, str), window, (window or 1) if shift is None else shift)


def _array(opened: Any, name: str) -> Any:
    return opened[name] if name else opened


def _names_in(group: Any, prefix: str = "") -> Iterable[str]:
    """Yield the paths of all arrays of a group, and of the groups in it."""
    for name in group:
        member = group[name]
        if hasattr(member, "shape"):
            yield prefix + name
        else:
            yield from _names_in(member, f"{prefix}{name}/")


def _row_bytes(array: Any) -> int:
    return int(math.prod(array.shape[1:]) * np.dtype(array.dtype).itemsize)


def _listed(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name} has {length}" for name, length in lengths.items())


def _h5py() -> Any:
    return optional("h5py", "from_hdf5", "hdf5")


def _zarr() -> Any:
    return optional("zarr", "from_zarr", "zarr")
