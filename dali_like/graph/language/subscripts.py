"""Indices in brackets after a data node: ``node[0, 2:5, other]``, as in DALI.

There is one index for each dimension, from the first one on:

- an integer, which removes the dimension; negative ones count from the end
- a slice, with Python's semantics
- either of these with data nodes, which hold one integer for each sample
- ``newaxis``
- ``...``, which DALI does not have

The layout loses the letters of removed dimensions. A new axis without a name removes the whole layout.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.ring import SampleList
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    DefinitionError,
    SampleError,
    SampleTypeError,
)
from dali_like.graph.language.batch_calls import BatchCall
from dali_like.graph.language.expressions import Expression, NewAxis
from dali_like.graph.language.nodes import DataNode, OperatorNode, output_nodes
from dali_like.graph.language.operator_interface import Array, OperatorCall


class Ref(NamedTuple):
    """The value of an input, counted from the first input after the data."""

    number: int


Bound: TypeAlias = int | Ref | None


class IndexRange(NamedTuple):
    """A slice."""

    start: Bound
    stop: Bound
    step: Bound


class New(NamedTuple):
    """A new axis and its name."""

    name: str | None


#: One index. References replace the nodes.
Part: TypeAlias = int | Ref | IndexRange | New | EllipsisType


@dataclass(frozen=True)
class Subscription:
    """Takes parts of samples; a `dali_like.graph.language.operator_interface.Operator`.

    Attributes:
        parts: the indices; the nodes among them are the inputs after the first.
        layouts: of the result.
    """

    parts: tuple[Part, ...]
    layouts: tuple[str]
    name: str = "DataNode.__getitem__"
    seed: int | None = None
    per_sample: bool = True

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"parts": [_to_plain(part) for part in self.parts]}

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        return not any(isinstance(bound, Ref) for part in self.parts for bound in _bounds(part))

    @property
    def has_kernel(self) -> bool:
        return len(self.parts) == 1 and not any(
            isinstance(bound, (Ref, New, EllipsisType)) for bound in _bounds(self.parts[0])
        )

    @property
    def kernel_is_compiled(self) -> bool:
        return False

    @property
    def kernel_for_large(self) -> bool:
        return False

    def compute_batch(self, call: BatchCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return parts of the first dimension of samples of different shapes, which lie in the samples."""
        data, index = inputs[0], self.parts[0]
        if not isinstance(data, SampleList) or not data.ndim or isinstance(index, (Ref, New, EllipsisType)):
            return None
        lengths, extents = data.shapes[:, 0], data.shapes.copy()
        if isinstance(index, IndexRange):
            if index.step not in (None, 1) or isinstance(index.start, Ref) or isinstance(index.stop, Ref):
                return None
            begins = _placed(0 if index.start is None else index.start, lengths)
            ends = lengths if index.stop is None else _placed(index.stop, lengths)
            extents[:, 0] = np.maximum(ends - begins, 0)
        else:
            begins = lengths + index if index < 0 else np.full_like(lengths, index)
            if (begins < 0).any() or (begins >= lengths).any():
                return None
            extents = extents[:, 1:]
        row_bytes = np.multiply.reduce(data.shapes[:, 1:], axis=1) * data.dtype.itemsize
        return (call.part(data.viewed(extents, skipped=begins * row_bytes)),)

    def compute(self, call: OperatorCall, inputs: Sequence[Array], arguments: Mapping[str, Any]) -> Sequence[Array]:
        data, *values = inputs
        numbers = [_integer(value) for value in values]
        indices = tuple([_index(part, numbers) for part in self.parts])
        if _num_taken(self.parts) > data.ndim - call.lead:
            raise SampleError(f"Too many indices ({_num_taken(self.parts)}) for a {data.ndim}-D tensor")
        if call.lead:
            indices = (slice(None), *indices)
        try:
            # With an ellipsis the result is an array even if no dimension is left.
            part = data[indices if Ellipsis in self.parts else (*indices, Ellipsis)]
        except (IndexError, ValueError) as error:
            raise SampleError(f"{error}; the sample has the shape {data.shape}") from None
        names = [new.name for new in self.parts if isinstance(new, New)]
        if any(names) and part.ndim - call.lead > len(names) and not call.layout:
            raise SampleError(
                f"newaxis({names[0]!r}) names a dimension, but the input has no layout, so the other dimensions have no "
                "names. Use newaxis without a name, or give the input a layout"
            )
        return (call.part(part),)


def _placed(bound: int, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of a bound of a slice in dimensions of these lengths."""
    placed: NDArray[np.int64] = np.clip(lengths + bound if bound < 0 else bound, 0, lengths)
    return placed


def subscribe(data: DataNode, subscripts: Sequence[Any]) -> DataNode:
    """Add a subscription to the graph.

    Args:
        data: the node.
        subscripts: the indices.

    Raises:
        ArgumentTypeError: an index has an unsupported type.
        ArgumentError: there are more indices than the layout has dimensions, or they contradict each other.
    """
    values: list[DataNode] = []
    return _subscribe(data, values, tuple([_part(subscript, values) for subscript in subscripts]))


def subscribe_again(data: DataNode, *values: DataNode, parts: Sequence[Any]) -> DataNode:
    """Add a subscription to the graph, given `Subscription.arguments` and the nodes among the indices."""
    return _subscribe(data, values, tuple([_from_plain(part) for part in parts]))


def subscription(layout: str, subscripts: Sequence[Any]) -> Subscription:
    """Return the operator for indices without nodes.

    Args:
        layout: of the data; "" if it has none.
        subscripts: the indices; a `Ref` for each that differs from sample to sample.

    Raises:
        ArgumentTypeError: an index has an unsupported type.
        ArgumentError: there are more indices than the layout has dimensions, or they contradict each other.
    """
    parts = tuple([_part(subscript, []) for subscript in subscripts])
    _check_new_axes(parts)
    return _adapted(parts, [layout])


def _subscribe(data: DataNode, values: Sequence[DataNode], parts: tuple[Part, ...]) -> DataNode:
    _check_new_axes(parts)
    adapt = functools.partial(_adapted, parts)
    operation = adapt([data.producer.layouts[data.output]])
    node = OperatorNode(operation, (data, *values), adapt=adapt, device=data.device)
    return DataNode(operation.name, data.device, node)


def _check_new_axes(parts: tuple[Part, ...]) -> None:
    if parts.count(Ellipsis) > 1:
        raise ArgumentError("there may be only one ellipsis (...) in the indices of a DataNode")
    names = [part.name for part in parts if isinstance(part, New)]
    if None in names and any(names):
        raise ArgumentError("New axis name must be specified for all axes or none.")


def _adapted(parts: tuple[Part, ...], layouts: Sequence[str]) -> Subscription:
    return Subscription(parts, (_layouts(layouts[0].split(), parts),))


def _part(subscript: Any, values: list[DataNode]) -> Part:
    if isinstance(subscript, NewAxis):
        return New(subscript.name)
    if isinstance(subscript, slice):
        span = IndexRange(*[_bound(bound, values) for bound in (subscript.start, subscript.stop, subscript.step)])
        if span.step == 0:
            raise ArgumentClashError("Step cannot be zero in an index of a DataNode")
        return span
    if isinstance(subscript, EllipsisType):
        return subscript
    if (bound := _bound(subscript, values)) is None:
        raise ArgumentTypeError("None is not an index of a DataNode: `newaxis` adds a dimension, `:` keeps a whole one")
    return bound


def _bound(value: Any, values: list[DataNode]) -> Bound:
    if isinstance(value, Expression):
        values += output_nodes([value])
        return Ref(len(values) - 1)
    if isinstance(value, Ref):
        return value
    try:
        return None if value is None else operator.index(_no_flag(value))
    except TypeError:
        raise ArgumentTypeError(
            f"an index of a DataNode is an integer, a slice, a DataNode of integers, `newaxis` or an ellipsis, not {value!r}"
        ) from None


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError
    return value


def _layouts(words: Sequence[str], parts: Sequence[Part]) -> str:
    taken = _num_taken(parts)
    if not words:  # without a layout, only the new dimensions have names
        return "".join(part.name or "" for part in parts if isinstance(part, New))
    if all(len(word) < taken for word in words):
        raise ArgumentClashError(f"Too many indices ({taken}) for the layout {' '.join(words)!r}")
    results = [_layout(word, parts) for word in words if len(word) >= taken]
    return " ".join(dict.fromkeys(filter(None, results)))


def _layout(word: str, parts: Sequence[Part]) -> str:
    if New(None) in parts:
        return ""
    letters, rest = [], word
    for part in parts if Ellipsis in parts else (*parts, Ellipsis):
        if isinstance(part, New):
            letters.append(part.name)
        elif part is Ellipsis:
            skipped = len(word) - _num_taken(parts)
            letters.append(rest[:skipped])
            rest = rest[skipped:]
        else:
            letters.append(rest[:1] if isinstance(part, IndexRange) else "")
            rest = rest[1:]
    return "".join(map(str, letters))


def _bounds(part: Part) -> Sequence[Any]:
    return part if isinstance(part, IndexRange) else (part,)


def _num_taken(parts: Sequence[Part]) -> int:
    """Return how many dimensions the indices refer to."""
    return sum(not isinstance(part, (New, EllipsisType)) for part in parts)


def _integer(value: Array) -> int:
    if value.dtype.kind not in "iu":
        raise SampleTypeError(f"Array index must be of integral type. Got: {value.dtype}")
    if value.ndim:
        raise SampleError(f"Array indices must be scalar (0D). Got {value.ndim}D tensor.")
    return int(value)


def _index(part: Part, numbers: Sequence[int]) -> Any:
    if isinstance(part, New):
        return None
    if isinstance(part, IndexRange):
        return slice(*[numbers[bound.number] if isinstance(bound, Ref) else bound for bound in part])
    return numbers[part.number] if isinstance(part, Ref) else part


# The form for saving: numbers, strings and lists. A node is "$0", a slice a list of three, a new axis a list of one.


def _to_plain(part: Any) -> Any:
    if isinstance(part, Ref):
        return f"${part.number}"
    if isinstance(part, (IndexRange, New)):
        return [_to_plain(value) for value in part]
    return "..." if part is Ellipsis else part


def _from_plain(part: Any) -> Part:
    if isinstance(part, list) and len(part) == len(IndexRange._fields):
        return IndexRange(*map(_from_plain_bound, part))
    if isinstance(part, list) and len(part) == 1 and isinstance(part[0], str | None):
        return New(*part)
    if part == "...":
        return Ellipsis
    if (bound := _from_plain_bound(part)) is not None:
        return bound
    raise DefinitionError(f"{part!r} is not a saved index of a DataNode")


def _from_plain_bound(bound: Any) -> Bound:
    if isinstance(bound, str) and bound.startswith("$") and bound[1:].isdecimal():
        return Ref(int(bound[1:]))
    if bound is None or (isinstance(bound, int) and not isinstance(bound, bool)):
        return bound
    raise DefinitionError(f"{bound!r} is not a saved index of a DataNode")
