"""Kernels of operators that decode the files of a batch in one step. They need no compiled loops.

See `dali_like.graph.language.batch_calls`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.engine.memory.ring import SampleList
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.graph.language.operator_interface import Array
from dali_like.images.decode import decoded_shape
from dali_like.sources.readers.npy_header import parse_npy_header
from dali_like.types import ANY_DATA, RGB, DALIImageType

_INT64 = np.dtype(np.int64)
#: Longer headers of ``numpy.save`` are rare.
_NPY_HEADER_BYTES = 256


def _files_of(data: Samples) -> Sequence[Array] | None:
    """Return the bytes of each file; None if the samples are something else."""
    if data.dtype != np.uint8 or data.shapes.shape[1] != 1:
        return None
    return arrays_in(data.data)


def arrays_in(data: Any) -> Sequence[Array]:
    """Return each sample of a batch as an array."""
    if isinstance(data, SampleList):
        return data.arrays()
    arrays: Sequence[Array] = data
    return arrays


def peek_image_shape(
    call: BatchCall,
    data: Samples,
    *,
    image_type: DALIImageType = ANY_DATA,
    dtype: np.dtype[Any] = _INT64,
    adjust_orientation: bool = False,
) -> Any:
    """Serve ``fn.peek_image_shape`` for files with valid headers."""
    files = _files_of(data)
    if files is None:
        return None
    shapes = [decoded_shape(file, image_type, adjust_orientation) for file in files]
    if None in shapes:
        return None
    out = call.place((3,), dtype)
    out.data.reshape(call.count, 3)[:] = shapes
    return out.data


peek_shape_upright = functools.partial(peek_image_shape, image_type=RGB, adjust_orientation=True)


def decode_numpy(call: BatchCall, data: Samples, *, dtype: np.dtype[Any] | None = None) -> Any:
    """Serve ``fn.decoders.numpy`` for complete files with short headers."""
    files = _files_of(data)
    if files is None:
        return None
    try:
        headers = [parse_npy_header(file[:_NPY_HEADER_BYTES].tobytes()) for file in files]
    except ValueError:
        return None
    first = headers[0]
    if any(
        header.dtype != first.dtype or len(header.shape) != len(first.shape) or file.size < header.offset + header.nbytes
        for header, file in zip(headers, files, strict=True)
    ):
        return None
    shapes = np.array([header.shape for header in headers], np.int64).reshape(call.count, -1)
    made = call.lay_out(shapes, first.dtype.newbyteorder("=") if dtype is None else dtype)
    targets = made.reshape(-1, 1) if isinstance(made, np.ndarray) and made.ndim == 1 else arrays_in(made)

    def work(begin: int, stop: int) -> None:
        for i in range(begin, stop):
            header = headers[i]
            elements = files[i][header.offset : header.offset + header.nbytes].view(header.dtype)
            order: Any = "F" if header.fortran_order else "C"
            np.copyto(targets[i].reshape(header.shape), elements.reshape(header.shape, order=order), casting="unsafe")

    call.share(work)
    return made
