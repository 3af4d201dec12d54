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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Numbers of the fields of a Feature.
BYTES, FLOATS, INTEGERS = 1, 2, 3
_VARINT, _EIGHT_BYTES, _MESSAGE, _FOUR_BYTES = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


class Span(NamedTuple):
    """Some bytes of a message, from `begin` to `end`."""

    begin: int
    end: int


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: of the field.
        wire_type: encoding of the value.
        span: of the value.
    """

    number: int
    wire_type: int
    span: Span


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
            for field in fields(view, entry):
                if field.number == 1:
                    name = bytes(view[field.span.begin : field.span.end])
                elif field.number == 2 and name in wanted:
                    value.append(field.span)
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
        for each in fields(view, span):
            if each.number not in (BYTES, FLOATS, INTEGERS) or each.wire_type != _MESSAGE:
                continue
            if each.number != kind:  # the last kind wins, as in protocol buffers
                kind, parts = each.number, []
            for value in fields(view, each.span):
                if value.number == 1:
                    parts.append(_DECODERS[kind](data, value))
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
        tag, position = _varint(view, position, end)
        wire_type = tag & 7
        if wire_type == _MESSAGE:
            length, position = _varint(view, position, end)
            stop = position + length
        elif wire_type == _VARINT:
            _, stop = _varint(view, position, end)
        elif wire_type in (_FOUR_BYTES, _EIGHT_BYTES):
            stop = position + (4 if wire_type == _FOUR_BYTES else 8)
        else:
            raise ValueError(f"unknown wire type {wire_type} before byte {position}")
        if stop > end:
            raise ValueError(f"the field at byte {position} ends at byte {stop}, behind its message, which ends at {end}")
        yield Field(tag >> 3, wire_type, Span(position, stop))
        position = stop


def _messages(view: Any, span: Span) -> Iterator[Span]:
    """Yield the messages in the field number 1."""
    for field in fields(view, span):
        if field.number == 1 and field.wire_type == _MESSAGE:
            yield field.span


def _varint(view: Any, position: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it."""
    value = shift = 0
    for place in range(position, min(end, position + _MOST_VARINT_BYTES)):
        byte = view[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError(f"the number at byte {position} does not end")


def _bytes(data: NDArray[np.uint8], value: Field) -> NDArray[np.uint8]:
    if value.wire_type != _MESSAGE:
        raise ValueError(f"a string has the wire type {value.wire_type}")
    return data[value.span.begin : value.span.end]


def _floats(data: NDArray[np.uint8], value: Field) -> NDArray[np.float32]:
    size = value.span.end - value.span.begin
    if value.wire_type not in (_MESSAGE, _FOUR_BYTES) or size % 4:
        raise ValueError(f"{size} bytes of wire type {value.wire_type} are not a list of floats")
    return np.frombuffer(data, "<f4", size // 4, value.span.begin).astype(np.float32, copy=False)


def _integers(data: NDArray[np.uint8], value: Field) -> NDArray[np.int64]:
    if value.wire_type not in (_MESSAGE, _VARINT):
        raise ValueError(f"wire type {value.wire_type} is not a list of integers")
    encoded = data[value.span.begin : value.span.end]
    if not len(encoded):
        return np.empty(0, np.int64)
    last = encoded < 0x80  # the last byte of each number
    if not last[-1]:
        raise ValueError(f"the number before byte {value.span.end} does not end")
    ends = np.flatnonzero(last) + 1
    begins = np.concatenate([[0], ends[:-1]])
    lengths = ends - begins
    if lengths.max() > _MOST_VARINT_BYTES:
        raise ValueError(f"a number in the list at byte {value.span.begin} does not end")
    shifts = (np.arange(len(encoded)) - np.repeat(begins, lengths)) * 7
    parts = (encoded & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    return np.add.reduceat(parts, begins).view(np.int64)


_DECODERS: dict[int, Any] = {BYTES: _bytes, FLOATS: _floats, INTEGERS: _integers}
