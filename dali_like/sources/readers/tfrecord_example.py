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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.sources.readers.protobuf import MESSAGE, ByteSpan, bytes_of, fields, floats_of, integers_of

#: Numbers of the fields of a Feature.
BYTES, FLOATS, INTEGERS = 1, 2, 3
#: Numbers of the fields of an entry of a map.
_KEY, _VALUE = 1, 2


def parse_example(data: NDArray[np.uint8], wanted: Container[bytes]) -> dict[bytes, list[ByteSpan]]:
    """Return the features with the wanted names.

    A feature may be stored in several parts. The result has a list of the parts.

    Raises:
        ValueError: the data is not an Example, or is damaged.
    """
    found: dict[bytes, list[ByteSpan]] = {}
    view = data.data
    for features in _messages(view, ByteSpan(0, len(data))):
        for entry in _messages(view, features):
            name, value = b"", []
            for number, _, begin, end in fields(view, entry):
                if number == _VALUE:
                    value.append(ByteSpan(begin, end))
                elif number == _KEY:
                    name = view[begin:end].tobytes()
                    if name not in wanted:
                        break
            if name in wanted:
                found[name] = value
    return found


def values_of(data: NDArray[np.uint8], feature: list[ByteSpan]) -> tuple[int, Any]:
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
            if number not in _DECODERS or wire_type != MESSAGE:
                continue
            if number != kind:  # the last kind wins, as in protocol buffers
                kind, parts = number, []
            parts += [_DECODERS[kind](data, value) for value in fields(view, ByteSpan(begin, end)) if value[0] == 1]
    if kind in (0, BYTES):
        return kind, parts or None
    empty = np.empty(0, np.float32 if kind == FLOATS else np.int64)
    return kind, parts[0] if len(parts) == 1 else np.concatenate([empty, *parts])


def _messages(view: Any, span: ByteSpan) -> Iterator[ByteSpan]:
    """Yield the messages in the field number 1."""
    for number, wire_type, begin, end in fields(view, span):
        if number == 1 and wire_type == MESSAGE:
            yield ByteSpan(begin, end)


_DECODERS: dict[int, Any] = {BYTES: bytes_of, FLOATS: floats_of, INTEGERS: integers_of}
