"""Headers of files that ``numpy.save`` writes. The format is that of ``numpy.lib.format``, versions 1.0 to 3.0."""

from __future__ import annotations

import functools
import io
import math
import tokenize
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from dali_like.engine.memory.protocol import MAX_NDIM
from dali_like.types import to_dali_type

#: Upper bound for the header of a .npy file.
NPY_HEADER_BYTES = 1 << 16
#: Longer headers are parsed each time.
_MOST_KEPT_BYTES = 256


class NpyHeader(NamedTuple):
    """The array, as the header describes it.

    Attributes:
        offset: of the first element in the file, in bytes.
        dtype: of the elements, maybe of another byte order.
        shape: of the array.
        fortran_order: whether the first index varies fastest.
    """

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool

    @property
    def nbytes(self) -> int:
        """Size of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize  # np.prod would overflow


def parse_npy_header(start: bytes) -> NpyHeader:
    """Return the header at the start of a file.

    Args:
        start: at least the header.

    Raises:
        ValueError: these are not the first bytes of a numeric array, or they end within the header.
    """
    # All files of a dataset often have the same header, and parsing it takes longer than copying a small array. Only version
    # 1.0 tells the size here; other headers, and short ones, are parsed each time.
    size = 10 + int.from_bytes(start[8:10], "little") if start[6:8] == b"\1\0" and len(start) >= 10 else len(start)
    return _parsed(start[:size]) if size <= _MOST_KEPT_BYTES else _parse(start)


def _parse(start: bytes) -> NpyHeader:
    file = io.BytesIO(start)
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        shape, fortran_order, dtype = read_header(file)
    except (SyntaxError, TypeError, tokenize.TokenError) as error:  # NumPy lets these through
        raise ValueError(f"the header cannot be parsed: {error}") from None
    to_dali_type(dtype)
    if len(shape) > MAX_NDIM or any(extent < 0 for extent in shape):
        raise ValueError(f"its shape {shape!r:.100} should have at most {MAX_NDIM} extents from 0 on")
    return NpyHeader(file.tell(), dtype, shape, fortran_order)


_parsed = functools.lru_cache(256)(_parse)
