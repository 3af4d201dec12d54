"""The encoding of protocol buffers: fields of messages, and their values.

See https://protobuf.dev/programming-guides/encoding. Numbers may be packed or not. Readers parse their messages with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Wire types.
_VARINT, _EIGHT_BYTES, MESSAGE, _FOUR_BYTES = 0, 1, 2, 5
_SIZES = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_MOST_VARINT_BYTES = 10


class ByteSpan(NamedTuple):
    """Some bytes of a message, from `begin` to `end`."""

    begin: int
    end: int


#: A field of a message: its number, its wire type, and the begin and end of its value. A plain tuple: there are many.
Field: TypeAlias = tuple[int, int, int, int]


def fields(view: Any, span: ByteSpan) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        ValueError: the message is damaged.
    """
    position, end = span
    while position < end:
        tag = view[position]
        position += 1
        if tag >= 0x80:
            tag, position = _varint(view, position - 1, end)
        wire_type = tag & 7
        if wire_type == MESSAGE:
            length, position = _varint(view, position, end)
            stop = position + length
        elif wire_type == _VARINT:
            _, stop = _varint(view, position, end)
        elif wire_type in _SIZES:
            stop = position + _SIZES[wire_type]
        else:
            raise ValueError(f"unknown wire type {wire_type} before byte {position}")
        if stop > end:
            raise ValueError(f"the field at byte {position} ends at byte {stop}, behind its message, which ends at {end}")
        yield tag >> 3, wire_type, position, stop
        position = stop


def _varint(view: Any, position: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it."""
    if position < end and view[position] < 0x80:
        return view[position], position + 1
    value = shift = 0
    for place in range(position, min(end, position + _MOST_VARINT_BYTES)):
        byte = view[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError(f"the number at byte {position} does not end")


def bytes_of(data: NDArray[np.uint8], value: Field) -> NDArray[np.uint8]:
    """Return the bytes of a field: a view of the data.

    Raises:
        ValueError: the field has another type, or is damaged.
    """
    _, wire_type, begin, end = value
    if wire_type != MESSAGE:
        raise ValueError(f"a string has the wire type {wire_type}")
    return data[begin:end]


def floats_of(data: NDArray[np.uint8], value: Field) -> NDArray[np.float32]:
    """Return the numbers in a field of floats.

    Raises:
        ValueError: the field has another type, or is damaged.
    """
    _, wire_type, begin, end = value
    if wire_type not in (MESSAGE, _FOUR_BYTES) or (end - begin) % 4:
        raise ValueError(f"{end - begin} bytes of wire type {wire_type} are not a list of floats")
    return data[begin:end].view("<f4").astype(np.float32, copy=False)


def integers_of(data: NDArray[np.uint8], value: Field) -> NDArray[np.int64]:
    """Return the numbers in a field of integers of any size.

    Raises:
        ValueError: the field has another type, or is damaged.
    """
    _, wire_type, begin, end = value
    if wire_type not in (MESSAGE, _VARINT):
        raise ValueError(f"wire type {wire_type} is not a list of integers")
    encoded = data[begin:end]
    if not len(encoded):
        return np.empty(0, np.int64)
    last = encoded < 0x80  # the last byte of each number
    if not last[-1]:
        raise ValueError(f"the number before byte {end} does not end")
    ends = np.flatnonzero(last) + 1
    begins = np.concatenate([[0], ends[:-1]])
    lengths = ends - begins
    if lengths.max() > _MOST_VARINT_BYTES:
        raise ValueError(f"a number in the list at byte {begin} does not end")
    shifts = (np.arange(len(encoded)) - np.repeat(begins, lengths)) * 7
    parts = (encoded & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    return np.add.reduceat(parts, begins).view(np.int64)
