"""Parse ``tf.train.Example``, the protocol buffer in the records of TFRecord files.

The messages, with the numbers of their fields::

    Example {features = 1}
    Features {map<string, Feature> feature = 1}    # an entry of a map is a message {key = 1, value = 2}
    Feature {oneof: BytesList = 1, FloatList = 2, Int64List = 3}
    BytesList, FloatList, Int64List {repeated value = 1}

Unknown fields are skipped.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.sources.readers.protobuf import MESSAGE, Span, bytes_of, fields, floats_of, integers_of

#: Numbers of the fields of a Feature.
BYTES, FLOATS, INTEGERS = 1, 2, 3


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
            if each.number not in (BYTES, FLOATS, INTEGERS) or each.wire_type != MESSAGE:
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


def _messages(view: Any, span: Span) -> Iterator[Span]:
    """Yield the messages in the field number 1."""
    for field in fields(view, span):
        if field.number == 1 and field.wire_type == MESSAGE:
            yield field.span


_DECODERS: dict[int, Any] = {BYTES: bytes_of, FLOATS: floats_of, INTEGERS: integers_of}
