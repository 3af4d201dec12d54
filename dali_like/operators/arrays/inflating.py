"""Decompression of arrays, as in ``nvidia.dali.fn.experimental.inflate``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np

from dali_like.common.extras import optional
from dali_like.common.saved_arguments import SavedText
from dali_like.errors import DecodeError, SampleError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import Ints, PerSample, at_least

_UINT8 = np.dtype(np.uint8)
#: A block cannot begin with these bytes: they would repeat what precedes its beginning.
_FRAME = b"\x04\x22\x4d\x18"


def _inflated_layout(_: str, given: Mapping[str, Any]) -> str:
    """Return the layout of a single chunk, and of several. The number of dimensions chooses."""
    layout = given["layout"]
    return f"{layout} {given['sequence_axis_name']}{layout}" if layout else ""


@operator(module="experimental", output_layout=_inflated_layout)
def inflate(
    call: OperatorCall,
    input: Array,
    *,
    shape: PerSample[Annotated[Ints, at_least(0)]],
    dtype: np.dtype[Any] = _UINT8,
    chunk_sizes: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    chunk_offsets: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    algorithm: Literal["LZ4"] = "LZ4",
    layout: SavedText = "",
    sequence_axis_name: SavedText = "F",
) -> Array:
    """Decompress arrays that were compressed with LZ4, as a whole or in chunks. Requires the package lz4.

    Args:
        input: one-dimensional uint8 arrays of compressed data: LZ4 blocks, or frames, which DALI does not accept.
        shape: shape of the decompressed array, or of each chunk of it.
        dtype: data type of the decompressed array.
        chunk_sizes: sizes of the chunks, in bytes. Default: each chunk ends where the next one begins.
        chunk_offsets: positions of the chunks, in bytes. Default: each chunk begins where the one before ends.
        algorithm: the method of compression.
        layout: layout of the decompressed array, or of each chunk of it.
        sequence_axis_name: letter of the dimension that counts the chunks; used if there is a `layout`.

    Returns:
        The decompressed array. With `chunk_sizes` or `chunk_offsets` its first dimension counts the chunks.
    """
    if input.ndim != 1 or input.dtype != np.uint8:
        raise SampleTypeError(
            f"compressed data must be one-dimensional arrays of uint8, not of {input.dtype} and shape {input.shape}"
        )
    spans = _spans(input.size, chunk_offsets, chunk_sizes)
    is_sequence = chunk_offsets is not None or chunk_sizes is not None
    out = call.empty((len(spans), *shape) if is_sequence else shape, dtype)
    chunk_bytes = math.prod(shape) * dtype.itemsize
    rows = out.reshape(-1).view(np.uint8).reshape(len(spans), chunk_bytes)
    for i, (begin, end) in enumerate(spans):
        rows[i] = np.frombuffer(_inflated(input[begin:end], chunk_bytes, i), np.uint8)
    return out


def _spans(size: int, offsets: Ints | None, sizes: Ints | None) -> list[tuple[int, int]]:
    """Return begin and end of each chunk.

    Raises:
        SampleError: there are other numbers of offsets than of sizes, or a chunk exceeds the data.
    """
    if offsets is None and sizes is None:
        return [(0, size)]
    if offsets is None:
        assert sizes is not None
        ends = np.cumsum(sizes).tolist()
        offsets = (0, *ends[:-1])[: len(sizes)]
    if sizes is None:
        sizes = tuple(end - begin for begin, end in zip(offsets, (*offsets[1:], size), strict=True))
    if len(offsets) != len(sizes):
        raise SampleError(f"chunk_offsets has {len(offsets)} elements, but chunk_sizes has {len(sizes)}")
    spans = [(offset, offset + length) for offset, length in zip(offsets, sizes, strict=True)]
    for i, (begin, end) in enumerate(spans):
        if not begin <= end <= size:
            raise SampleError(f"chunk {i} is from byte {begin} to {end}, but the input has {size} bytes")
    return spans


def _inflated(chunk: Array, size: int, number: int) -> bytes:
    """Return the decompressed bytes of a chunk.

    Raises:
        DecodeError: the chunk is damaged, or has another size.
    """
    data, block = chunk.tobytes(), optional("lz4.block", "fn.experimental.inflate", "lz4")
    is_complete = True
    try:
        if data.startswith(_FRAME):
            frame = optional("lz4.frame", "fn.experimental.inflate", "lz4").LZ4FrameDecompressor()
            # A byte more than expected tells that the frame is larger, however large it is.
            inflated: bytes = frame.decompress(data, max_length=size + 1)
            is_complete = frame.eof or len(inflated) > size
        else:
            inflated = block.decompress(data, uncompressed_size=size)
    except (block.LZ4BlockError, RuntimeError, ValueError, EOFError) as error:
        raise DecodeError(f"chunk {number} of {len(data)} bytes cannot be decompressed to {size}: {error}") from None
    if not is_complete:
        raise DecodeError(f"chunk {number} of {len(data)} bytes cannot be decompressed to {size}: the frame is truncated")
    if len(inflated) != size:
        more = "more than " if len(inflated) > size else ""
        found = f"{more}{min(size, len(inflated))}"
        raise DecodeError(f"chunk {number} has {found} bytes after decompression; shape and dtype say {size}")
    return inflated
