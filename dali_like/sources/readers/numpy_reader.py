"""``fn.readers.numpy``: arrays in files that ``numpy.save`` has written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.saved_arguments import SavedText, SavedTexts
from dali_like.errors import ArgumentClashError, BrokenFileError
from dali_like.sources.readers.file_reader import check_sources, find_files, listed, name_filter, why_none_found
from dali_like.sources.readers.npy_header import NPY_HEADER_BYTES, NpyHeader, parse_npy_header
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, is_url, joined, shown
from dali_like.types import SampleInfo

#: Most headers are shorter.
_FIRST_BYTES = 256


@reader(path="readers.numpy")
class NumpyReader(Reader):
    """Reads arrays that ``numpy.save`` has written, of any shape and numeric dtype.

    Args:
        file_root: folder of the files. Those in it come first, sorted by name, then those in each of its folders. With
            `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        file_list: path of a text file with a name per line. Relative names in it begin from `file_root`, or else from the
            folder of this file.
        file_filter: shell pattern of file names below `file_root`. Upper and lower case are distinguished.
        cache_header_information: keep the headers, so that later epochs read only elements.
        dont_use_mmap: read whole files also if only a region is wanted. Otherwise local files are mapped for that.
        register_buffers, use_o_direct: without effect.

    Returns:
        The array, in C order and native byte order. With arguments for a region, that part of it.
    """

    behind = "readers.numpy.region"

    def __init__(
        self,
        *,
        file_root: SavedText | None = None,
        files: SavedTexts | None = None,
        file_list: SavedText | None = None,
        file_filter: SavedText = "*.npy",
        cache_header_information: bool = False,
        dont_use_mmap: bool = False,
        register_buffers: bool = True,
        use_o_direct: bool = False,
    ) -> None:
        check_sources(file_root, files, file_list)
        if use_o_direct and not dont_use_mmap:
            raise ArgumentClashError("Cannot use use_o_direct with dont_use_mmap=False: pass dont_use_mmap=True, too")
        self._root = file_root or ""
        self._given = listed(files)
        self._list = file_list
        self._filter = file_filter
        self._accepts = name_filter("file_filter", file_filter, case_sensitive=True)
        self._names = FileNames(())
        self._maps = not dont_use_mmap
        self._headers: dict[int, NpyHeader] | None = {} if cache_header_information else None

    def prepare(self) -> None:
        self._root, names = find_files(self.files, self._root, self._given, self._list, self._accepts)
        self._names = FileNames(names)

    def __len__(self) -> int:
        return len(self._names)

    def why_empty(self) -> str:
        return why_none_found(self._root, self._list, self._filter)

    async def read(self, index: int, info: SampleInfo) -> NDArray[Any]:
        path = joined(self._root, self._names[index])
        if is_url(path):  # a second request would take longer than reading the whole file
            data = await self.files.read(path)
            header = self._parsed(path, data[:NPY_HEADER_BYTES], len(data))
            if len(data) - header.offset < header.nbytes:
                raise _truncated(path, header, len(data))
            elements = data[header.offset : header.offset + header.nbytes]
            return _filled(header, elements.view(header.dtype), info)
        header = await self._header_of(index, path)
        if (size := self.files.size(path)) < header.offset + header.nbytes:  # before memory for the array is allocated
            raise _truncated(path, header, size)
        if self.has_operator_behind and self._maps and header.nbytes:
            order: Any = "F" if header.fortran_order else "C"
            return np.memmap(path, header.dtype, "r", header.offset, header.shape, order)
        return await self._elements(path, header, info)

    def source_info(self, index: int, output: int) -> str:
        name = self._names[index]
        is_found = self._given is None and self._list is None
        return f"./{name}" if is_found and "/" not in name else name  # as DALI does

    async def _elements(self, path: str, header: NpyHeader, info: SampleInfo) -> NDArray[Any]:
        """Read all elements, straight into the batch if they are stored as it holds them."""
        stop = header.offset + header.nbytes
        if header.fortran_order or not header.dtype.isnative:
            data = await self.files.read(path, header.offset, stop)
            return _filled(header, data.view(header.dtype), info)
        array = info.empty(header.shape, header.dtype)
        if not array.flags.c_contiguous:
            array = np.empty(header.shape, header.dtype)
        await self.files.read(path, header.offset, stop, lambda _: array.reshape(-1).view(np.uint8))
        return array

    async def _header_of(self, index: int, path: str) -> NpyHeader:
        if self._headers is not None and index in self._headers:
            return self._headers[index]
        size = self.files.size(path)
        try:
            header = self._parsed(path, await self.files.read(path, 0, min(_FIRST_BYTES, size)), size)
        except BrokenFileError:
            if size <= _FIRST_BYTES:
                raise
            header = self._parsed(path, await self.files.read(path, 0, min(NPY_HEADER_BYTES, size)), size)
        if self._headers is not None:
            self._headers[index] = header
        return header

    def _parsed(self, path: str, start: NDArray[np.uint8], size: int) -> NpyHeader:
        try:
            return parse_npy_header(start.tobytes())
        except ValueError as error:
            raise BrokenFileError(
                f"{shown(path)} of {size} bytes is not a numeric array written by numpy.save: {error}", path, 0
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_headers": None if self._headers is None else {}}


def _filled(header: NpyHeader, elements: NDArray[Any], info: SampleInfo) -> NDArray[Any]:
    out = info.empty(header.shape, header.dtype.newbyteorder("="))
    out[...] = elements.reshape(header.shape, order="F" if header.fortran_order else "C")
    return out


def _truncated(path: str, header: NpyHeader, size: int) -> BrokenFileError:
    return BrokenFileError(
        f"{shown(path)} is truncated: shape {header.shape} of {header.dtype} ends at byte {header.offset + header.nbytes}, "
        f"the file at byte {size}",
        path,
        size,
    )
