"""``fn.experimental.readers.fits``: images in FITS files."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.common.checks import positive
from dali_like.common.extras import optional
from dali_like.common.saved_arguments import SavedText, SavedTexts
from dali_like.errors import ArgumentError, BrokenFileError
from dali_like.sources.readers.file_reader import check_sources, find_files, listed, name_filter, why_none_found
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, joined, shown
from dali_like.types import DALIDataType, SampleInfo

#: Exceptions of gzip and astropy for damaged files.
_DAMAGE = (ArithmeticError, EOFError, LookupError, OSError, TypeError, ValueError, Warning, zlib.error)
_GZIP = b"\x1f\x8b"
_DTYPES = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FLOAT16", "FLOAT", "FLOAT64")


@reader(path="experimental.readers.fits")
class FitsReader(Reader):
    """Reads images in FITS files with astropy. Images and files may be compressed.

    Args:
        file_root: folder of the files. Those in it come first, sorted by name, then those in each of its folders. With
            `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        file_list: path of a text file with a name per line. Relative names in it begin from `file_root`, or else from the
            folder of this file.
        file_filter: shell pattern of file names below `file_root`. Upper and lower case are distinguished.
        hdu_indices: numbers of the HDUs to read, from 1 on. Each is an output.
        dtypes: a data type for each output. As in DALI, it has no effect, because the files determine the data types.
        max_file_bytes: largest size of a decompressed file, and of a decompressed image in it. A small file can be one of
            many GiB.

    Returns:
        The image of each HDU, in the order of axes of NumPy: the last axis of the header comes first. Scaled integers have
        the dtype FLOAT or FLOAT64, those with an offset are unsigned, or INT8. Pixels that a header calls `BLANK` are NaN.
    """

    def __init__(
        self,
        *,
        file_root: SavedText | None = None,
        files: SavedTexts | None = None,
        file_list: SavedText | None = None,
        file_filter: SavedText = "*.fits",
        hdu_indices: tuple[int, ...] = (2,),
        dtypes: tuple[int, ...] | None = None,
        max_file_bytes: int = 1 << 30,
    ) -> None:
        check_sources(file_root, files, file_list)
        if not hdu_indices or min(hdu_indices) < 1:
            raise ArgumentError(f"hdu_indices must be numbers from 1 on, not {list(hdu_indices)}")
        if dtypes is not None and len(dtypes) != len(hdu_indices):
            raise ArgumentError(f"dtypes has {len(dtypes)} data types, but hdu_indices has {len(hdu_indices)} numbers")
        for dtype in dtypes or ():
            if DALIDataType(dtype).name not in _DTYPES:
                raise ArgumentError(f"dtypes cannot contain {DALIDataType(dtype).name}, but only {', '.join(_DTYPES)}")
        self._root = file_root or ""
        self._given = listed(files)
        self._list = file_list
        self._filter = file_filter
        self._accepts = name_filter("file_filter", file_filter, case_sensitive=True)
        self._names = FileNames(())
        self._numbers = hdu_indices
        self._most_bytes = positive("max_file_bytes", max_file_bytes)
        self.num_outputs = len(hdu_indices) if len(hdu_indices) > 1 else None

    def prepare(self) -> None:
        _fits()
        self._root, names = find_files(self.files, self._root, self._given, self._list, self._accepts)
        self._names = FileNames(names)

    def __len__(self) -> int:
        return len(self._names)

    def why_empty(self) -> str:
        return why_none_found(self._root, self._list, self._filter)

    async def read(self, index: int, info: SampleInfo) -> Any:
        path = joined(self._root, self._names[index])
        data = await self.files.read(path)
        fits = _fits()
        try:
            content = self._decompressed(data) if data[:2].tobytes() == _GZIP else data.data
            with fits.open(io.BytesIO(content), memmap=False) as hdus:
                images = tuple(self._image(hdus, number, output, info) for output, number in enumerate(self._numbers))
        except (*_DAMAGE, fits.VerifyError) as error:
            raise BrokenFileError(
                f"{shown(path)} of {len(data)} bytes, HDU {' or '.join(map(str, self._numbers))}: {error}", path, len(data)
            ) from error
        return images if len(images) > 1 else images[0]

    def _decompressed(self, data: NDArray[np.uint8]) -> bytes:
        with gzip.GzipFile(fileobj=io.BytesIO(data.data)) as file:
            content = file.read(self._most_bytes + 1)
        if len(content) > self._most_bytes:
            raise ValueError(self._too_large("the decompressed file"))
        return content

    def _image(self, hdus: Any, number: int, output: int, info: SampleInfo) -> NDArray[Any]:
        try:
            hdu = hdus[number - 1]
        except IndexError:
            raise ValueError(f"the file has only {len(hdus)} HDUs") from None
        if not hdu.is_image:
            raise ValueError(f"HDU {number} is not an image, but {kind_of(hdu)}")
        if math.prod(hdu.shape) * abs(int(hdu.header.get("BITPIX", 8))) // 8 > self._most_bytes:
            raise ValueError(self._too_large(f"HDU {number} of shape {hdu.shape}"))
        pixels = hdu.data
        if pixels is None:
            raise ValueError(f"HDU {number} has no data: pass other hdu_indices")
        image: NDArray[Any] = info.empty(pixels.shape, pixels.dtype.newbyteorder("="), output)
        image[...] = pixels
        return image

    def _too_large(self, what: str) -> str:
        limit = f"max_file_bytes={self._most_bytes}"
        return f"{what} is larger than {limit}. If it is not an attack, pass a larger max_file_bytes"


def _fits() -> Any:
    return optional("astropy.io.fits", "fn.experimental.readers.fits", "fits")
