"""Nested containers: the parts of samples and batches, and containers with other parts.

Mappings, sequences, named tuples and dataclasses are containers. Arrays, texts and all other values are leaves, even if
Python can iterate over them.

The loops over each sample of a dataset do not come here: `dali_like.data.sample_schema` examines one sample and makes a tree
of its nesting, and `dali_like.sources.caching.cached_elements` looks up exact classes. That is several times as fast, and
they leave all other classes to slower ways.
"""

from __future__ import annotations

import array
import copy
import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

__all__ = ["TYPED_SEQUENCES", "is_array_like", "is_named_tuple", "is_record", "leaves_of", "parts_of", "rebuilt"]

#: Mutable sequences that can only hold numbers: leaves, which become lists if their parts are replaced.
TYPED_SEQUENCES = (array.array, bytearray)


def parts_of(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the parts of a container, each with its key, field name or number; None for a leaf.

    >>> parts_of({"image": 1, "label": 2}), parts_of([3]), parts_of("text")
    ([('image', 1), ('label', 2)], [(0, 3)], None)
    """
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in value]
    if is_named_tuple(value):
        return list(zip(value._fields, value, strict=False))
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, *TYPED_SEQUENCES)):
        return list(enumerate(value))
    # An array comes before a dataclass: classes of arrays may be dataclasses.
    if is_record(value) and not is_array_like(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested value with their places.

    >>> list(leaves_of({"image": 1, "boxes": [{"left": 2}]}))
    [('image', 1), ('boxes[0].left', 2)]
    """
    if (parts := parts_of(value)) is None:
        yield path, value
        return
    has_names = isinstance(value, Mapping) or is_record(value)
    for key, part in parts:
        yield from leaves_of(part, (f"{path}.{key}" if path else str(key)) if has_names else f"{path}[{key}]")


def rebuilt(model: Any, parts: Sequence[Any]) -> Any:
    """Return a container like another one, with other parts in the same order.

    One that cannot be copied and filled becomes a dict, a list or a tuple.

    >>> rebuilt({"image": 1, "label": 2}, ["a", "b"])
    {'image': 'a', 'label': 'b'}
    """
    if isinstance(model, Mapping):
        return _rebuilt_mapping(model, dict(zip(model, parts, strict=True)))
    if is_named_tuple(model):
        return type(model)(*parts)
    return _rebuilt_sequence(model, parts) if isinstance(model, Sequence) else _rebuilt_dataclass(model, parts)


def _rebuilt_mapping(model: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    kind: Any = type(model)
    try:
        if not isinstance(model, MutableMapping):
            return kind(parts)
        clone = copy.copy(model)  # keeps other attributes
        clone.update(parts)
    except TypeError:
        return parts
    return clone


def _rebuilt_sequence(model: Sequence[Any], parts: Sequence[Any]) -> Any:
    kind: Any = type(model)
    if isinstance(model, TYPED_SEQUENCES):
        return list(parts)
    try:
        if not isinstance(model, MutableSequence):
            return kind(parts)
        clone = copy.copy(model)
        for position, part in enumerate(parts):
            clone[position] = part
    except TypeError:
        return tuple(parts) if isinstance(model, tuple) else list(parts)
    return clone


def _rebuilt_dataclass(model: Any, parts: Sequence[Any]) -> Any:
    clone = copy.copy(model)
    for field, part in zip(dataclasses.fields(model), parts, strict=True):
        object.__setattr__(clone, field.name, part)  # works for frozen classes, and does not run __post_init__
    return clone


def is_named_tuple(value: Any) -> bool:
    """Return whether a value is a named tuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_record(value: Any) -> bool:
    """Return whether the parts of a value are named fields: a named tuple, or an instance of a dataclass."""
    return is_named_tuple(value) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def is_array_like(value: Any) -> bool:
    """Return whether NumPy can read a value by the array interface."""
    return not isinstance(value, type) and (hasattr(value, "__array__") or hasattr(value, "__array_interface__"))
