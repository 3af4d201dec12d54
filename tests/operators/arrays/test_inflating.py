"""Decompression of LZ4."""

from __future__ import annotations

import numpy as np
import pytest

block = pytest.importorskip("lz4.block")
frame = pytest.importorskip("lz4.frame")

from dali_like import fn, types  # noqa: E402
from dali_like.errors import DecodeError, SampleError, SampleTypeError  # noqa: E402
from tests.operators.running import WAYS, batches, run  # noqa: E402

ARRAYS = [(np.arange(60) % 7).astype(np.int16).reshape(5, 4, 3) + i for i in range(3)]


def squeezed(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(block.compress(array.tobytes(), store_size=False), np.uint8)


def in_chunks(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compress each element by itself. Return all of them, and their sizes."""
    chunks = [squeezed(part) for part in array]
    return np.concatenate(chunks), np.int32([chunk.size for chunk in chunks])


@pytest.mark.parametrize("way", WAYS)
def test_whole_arrays(way):
    frames = [np.frombuffer(frame.compress(array.tobytes()), np.uint8) for array in ARRAYS]

    def define(blocks, frames, shapes):
        inflate = fn.experimental.inflate
        return [
            inflate(blocks, shape=[5, 4, 3], dtype=types.INT16, layout="HWC"),
            inflate(frames, shape=shapes, dtype=types.INT16),
        ]

    shapes = [np.int32([60]), np.int32([60]), np.int32([60])]
    (outputs,) = batches(define, [*map(squeezed, ARRAYS)], frames, shapes, way=way)

    assert [output.layout() for output in outputs] == ["HWC", ""]
    for i, array in enumerate(ARRAYS):
        np.testing.assert_array_equal(np.array(outputs[0].at(i)), array, strict=True)
        np.testing.assert_array_equal(np.array(outputs[1].at(i)), array.reshape(-1), strict=True)


@pytest.mark.parametrize("way", WAYS)
def test_chunks(way):
    films = [array[: 3 + i] for i, array in enumerate(ARRAYS)]
    data, sizes = zip(*map(in_chunks, films), strict=True)
    offsets = [np.cumsum([0, *size[:-1]]).astype(np.int32) for size in sizes]

    def define(data, sizes, offsets, last):
        options = {"shape": [4, 3], "dtype": types.INT16, "layout": "HW"}
        inflate = fn.experimental.inflate
        return [
            inflate(data, chunk_sizes=sizes, **options),
            inflate(data, chunk_offsets=offsets, **options),
            inflate(data, chunk_sizes=sizes, chunk_offsets=offsets, sequence_axis_name="D", **options),
            inflate(data, chunk_offsets=last, **options),
        ]

    (outputs,) = batches(define, data, sizes, offsets, [offset[-1:] for offset in offsets], way=way)

    assert [output.layout() for output in outputs] == ["FHW", "FHW", "DHW", "FHW"]
    for i, film in enumerate(films):
        for output, expected in zip(outputs, (film, film, film, film[-1:]), strict=True):
            np.testing.assert_array_equal(np.array(output.at(i)), expected, strict=True)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shape": [61]}, DecodeError, "has 60 bytes after decompression; shape and dtype say 61"),
        ({"shape": [59]}, DecodeError, "chunk 0 of .* cannot be decompressed to 59"),
        ({"shape": [60], "chunk_sizes": [3]}, DecodeError, "chunk 0 of 3 bytes cannot be decompressed to 60"),
        ({"shape": [60], "chunk_sizes": [3, 9999]}, SampleError, "chunk 1 is from byte 3 to 10002, but the input has"),
        ({"shape": [60], "chunk_offsets": [5, 3]}, SampleError, "chunk 0 is from byte 5 to 3"),
        ({"shape": [60], "chunk_offsets": [0], "chunk_sizes": [1, 2]}, SampleError, "has 1 elements, but chunk_sizes has 2"),
    ],
)
def test_wrong_sizes(arguments, error, message):
    data = squeezed(np.arange(60, dtype=np.uint8))
    with pytest.raises(error, match=message):
        run(lambda data: fn.experimental.inflate(data, **arguments), [data])


def test_other_data():
    with pytest.raises(SampleTypeError, match="must be one-dimensional arrays of uint8, not of int32"):
        run(lambda data: fn.experimental.inflate(data, shape=3), [np.zeros(3, np.int32)])
    with pytest.raises(DecodeError, match="cannot be decompressed"):
        run(lambda data: fn.experimental.inflate(data, shape=3), [np.zeros(0, np.uint8)])
