"""Parse ``tf.train.Example``, the protocol buffer in the records of TFRecord files.

The messages, with the numbers of their fields::

    Example {features = 1}
    Features {map<string, Feature> feature = 1}    # an entry of a map is a message {key = 1, value = 2}
    Feature {oneof: BytesList = 1, FloatList = 2, Int64List = 3}
    BytesList, FloatList, Int64List {repeated value = 1}

See https://protobuf.dev/programming-guides/encoding. Unknown fields are skipped. Numbers may be packed or not.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Numbers of the fields of a Feature.
BYTES, FLOATS, INTEGERS = 1, 2, 3
#: Numbers of the fields of an entry of a map.
_KEY, _VALUE = 1, 2
#: Wire types.
_VARINT, _EIGHT_BYTES, _MESSAGE, _FOUR_BYTES = 0, 1, 2, 5
_SIZES = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_MOST_VARINT_BYTES = 10


class Span(NamedTuple):
    """Some bytes of a message, from `begin` to `end`."""

    begin: int
    end: int


#: A field of a message: its number, its wire type, and the begin and end of its value. A plain tuple: there are many.
Field: TypeAlias = tuple[int, int, int, int]


def parse_example(data: NDArray[np.uint8], wanted: Container[bytes]) -> dict[bytes, list[Span]]:
    """Return the features with the wanted names.

    A feature may be stored in several parts. The result has a list of the parts.

    Raises:
        ValueError: the data is not an Example, or is damaged.
    """
    found: dict[bytes, list[Span]] = {}
    view = data.data
    for features in _messages(view, Span(0, len(data))):
        for entry in _messages(view, features):
            name, value = b"", []
            for number, _, begin, end in fields(view, entry):
                if number == _VALUE:
                    value.append(Span(begin, end))
                elif number == _KEY:
                    name = view[begin:end].tobytes()
                    if name not in wanted:
                        break
            if name in wanted:
                found[name] = value
    return found


def values_of(data: NDArray[np.uint8], feature: list[Span]) -> tuple[int, Any]:
    """Return the values of a feature.

    Returns:
        BYTES and a list of arrays of uint8; FLOATS and an array of float32; INTEGERS and an array of int64; or 0 and None,
        if the feature is empty. Arrays of bytes are views of `data`.

    Raises:
        ValueError: the feature is damaged.
    """
    view = data.data
    kind = 0
    parts: list[Any] = []
    for span in feature:
        for number, wire_type, begin, end in fields(view, span):
            if number not in _DECODERS or wire_type != _MESSAGE:
                continue
            if number != kind:  # the last kind wins, as in protocol buffers
                kind, parts = number, []
            parts += [_DECODERS[kind](data, value) for value in fields(view, Span(begin, end)) if value[0] == 1]
    if kind in (0, BYTES):
        return kind, parts or None
    empty = np.empty(0, np.float32 if kind == FLOATS else np.int64)
    return kind, parts[0] if len(parts) == 1 else np.concatenate([empty, *parts])


def fields(view: Any, span: Span) -> Iterator[Field]:
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
        if wire_type == _MESSAGE:
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


def _messages(view: Any, span: Span) -> Iterator[Span]:
    """Yield the messages in the field number 1."""
    for number, wire_type, begin, end in fields(view, span):
        if number == 1 and wire_type == _MESSAGE:
            yield Span(begin, end)


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


def _bytes(data: NDArray[np.uint8], value: Field) -> NDArray[np.uint8]:
    _, wire_type, begin, end = value
    if wire_type != _MESSAGE:
        raise ValueError(f"a string has the wire type {wire_type}")
    return data[begin:end]


def _floats(data: NDArray[np.uint8], value: Field) -> NDArray[np.float32]:
    _, wire_type, begin, end = value
    if wire_type not in (_MESSAGE, _FOUR_BYTES) or (end - begin) % 4:
        raise ValueError(f"{end - begin} bytes of wire type {wire_type} are not a list of floats")
    return data[begin:end].view("<f4").astype(np.float32, copy=False)


def _integers(data: NDArray[np.uint8], value: Field) -> NDArray[np.int64]:
    _, wire_type, begin, end = value
    if wire_type not in (_MESSAGE, _VARINT):
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


_DECODERS: dict[int, Any] = {BYTES: _bytes, FLOATS: _floats, INTEGERS: _integers}
