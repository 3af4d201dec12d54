"""Packs: elements of different lengths, such as tokenized documents, combined to arrays of one length.

`ConcatPack` puts elements one after another and splits them at the end of a pack. `FitPack` keeps elements whole: a packer
distributes each block of inputs, see `dali_like.sources.composed.packers`. `PackLayout` builds the arrays of a pack.
`GroupPack` distributes elements of any structure in the same way, by their costs, to lists.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.common.checks import one_of, positive
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    CheckpointError,
    EmptyFilterError,
    SampleError,
    SampleTypeError,
)
from dali_like.sources.composed.blocks import Grouping, LeavingStage
from dali_like.sources.composed.costs import Budget, Cost, Measured, WithinBudget, budget_of
from dali_like.sources.composed.packers import PACKERS, OwnPacker, Packer, Task
from dali_like.sources.composed.stage import (
    Place,
    Sharded,
    ShardWalk,
    Stage,
    is_anything,
    is_count,
    is_list_of,
    note_place,
    state_parts,
)
from dali_like.sources.composed.yielding import Admission, FlatMap, ShardedInputStage

__all__ = [
    "ConcatPack",
    "FitPack",
    "Fits",
    "GroupPack",
    "PackArguments",
    "PackLayout",
    "PackStage",
    "Pieces",
    "group_stage",
    "pack_layout",
    "pack_stage",
]

#: The field of packs of plain arrays.
PLAIN_FIELD = "tokens"

#: Limit of elements in a row without an entry, for `ConcatPack`.
_MOST_EMPTY = 1_000_000

#: The arrays of one element or of a part of it, one for each field.
Parts = tuple[NDArray[Any], ...]

#: Kinds of dtypes that packs may have: booleans and numbers.
_NUMBERS = "biufc"


@dataclass(frozen=True)
class PackLayout:
    """The fields of a pack.

    Attributes:
        names: of the fields.
        lengths: of the arrays of a pack.
        pads: values behind the last element.
        most_segments: limit of elements in a pack; None: no limit.
        is_plain: whether an element is an array, not a mapping with these fields.
    """

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    pads: tuple[Any, ...]
    most_segments: int | None
    is_plain: bool

    @property
    def text(self) -> str:
        fields = zip(self.names, self.lengths, self.pads, strict=True)
        return ", ".join([f"{name}: {length} pad {pad}" for name, length, pad in fields] + [f"max {self.most_segments}"])

    def parts(self, element: Any) -> Parts:
        """Return the arrays of an element.

        Raises:
            SampleError: it has other fields.
            SampleTypeError: it is not a mapping, or a field is not an array of numbers with a dimension.
        """
        values = (element,) if self.is_plain else [self._field(element, name) for name in self.names]
        parts = tuple(map(np.asarray, values))
        for name, part in zip(self.names, parts, strict=True):
            if not part.ndim or part.dtype.kind not in _NUMBERS:
                raise SampleTypeError(
                    f"{name} of an element should be an array of numbers with at least one dimension, but it has "
                    f"type {type(element if self.is_plain else element[name]).__qualname__}, dtype {part.dtype} and shape "
                    f"{part.shape}. Convert it: map(...) before pack"
                )
        return parts

    def _field(self, element: Any, name: str) -> Any:
        if not isinstance(element, Mapping):
            raise SampleTypeError(
                f"an element should be a mapping with the fields {', '.join(self.names)}, but it is "
                f"{kind_of(element)}. For elements that are arrays, pass one length: pack({self.lengths[0]})"
            )
        if name not in element:
            raise SampleError(f"an element has no field {name!r}; it has {', '.join(map(str, element))}")
        return element[name]

    def whole_parts(self, element: Any) -> Parts:
        """Return the arrays of an element that must fit into a pack.

        Raises:
            SampleError: it does not. See also `parts`.
        """
        parts = self.parts(element)
        for name, part, length in zip(self.names, parts, self.lengths, strict=True):
            if len(part) > length:
                raise SampleError(
                    f"{name} of an element has the length {len(part)}, and a pack has {length}. Pass a larger length; or "
                    'too_long="split", too_long="drop", or method="concat"'
                )
        return parts

    def pack(self, segments: Sequence[Parts]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a pack of some elements, at least one."""
        pack = {}
        for field, (name, length, pad) in enumerate(zip(self.names, self.lengths, self.pads, strict=True)):
            parts = [segment[field] for segment in segments]
            sizes = np.array([*map(len, parts), 0])
            ends = np.cumsum(sizes, dtype=np.int32)
            used = int(ends[-1])
            pack[name] = _joined(name, parts, length, used, pad)
            sizes[-1] = length - used  # of the padding, which has the number and all positions 0
            numbers = np.arange(1, len(sizes) + 1, dtype=np.int32)
            numbers[-1] = 0
            pack[f"{name}_segment_ids"] = np.repeat(numbers, sizes)
            positions = np.repeat(ends - sizes.astype(np.int32), sizes)
            np.subtract(np.arange(length, dtype=np.int32), positions, out=positions)
            positions[used:] = 0
            pack[f"{name}_positions"] = positions
            # Boundaries are in front of each segment and of the padding, and at the end.
            num_boundaries = (sum(self.lengths) if self.most_segments is None else self.most_segments) + 2
            boundaries = np.full(num_boundaries, length, np.int32)
            boundaries[0], boundaries[1 : len(sizes)] = 0, ends[:-1]
            pack["cu_seqlens" if field == 0 else f"{name}_cu_seqlens"] = boundaries
        return pack


def _joined(name: str, parts: list[NDArray[Any]], length: int, used: int, pad: Any) -> NDArray[Any]:
    """Return the arrays of a field one after another, padded.

    Raises:
        SampleError: they do not fit together.
    """
    filled = [part for part in parts if len(part)] or parts  # an empty list has become an array of floats
    joined: NDArray[Any] = np.empty((length, *filled[0].shape[1:]), np.result_type(*{part.dtype for part in filled}))
    try:
        np.concatenate(filled, out=joined[:used])
        _check_range(pad, joined.dtype)
        joined[used:] = pad
    except (ValueError, TypeError, OverflowError) as error:
        raise SampleError(
            f"{name} of a pack cannot be combined: {error}. The elements of a pack should have the same dimensions, except "
            f"for the first one, and a dtype that can represent pad={pad!r}"
        ) from error
    return joined


def _check_range(number: Any, dtype: np.dtype[Any]) -> None:
    """Raise OverflowError for an integer that a dtype cannot represent. NumPy 1 would warn and change it."""
    if isinstance(number, int) and dtype.kind in "iu" and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise OverflowError(f"{number} is out of bounds for {dtype}")


@dataclass(frozen=True)
class Fits:
    """Returns the arrays of an element that is short enough for a pack: a function for `Admission`."""

    layout: PackLayout

    def __call__(self, element: Any) -> Parts | None:
        parts = self.layout.parts(element)
        fits = all(len(part) <= length for part, length in zip(parts, self.layout.lengths, strict=True))
        return parts if fits else None


# The name is in the texts of states, which compare it: a loader refuses states of other names.
@dataclass(frozen=True)
class Pieces:
    """Splits an element into pieces that are short enough for a pack: a function for `flat_map`."""

    layout: PackLayout

    def __call__(self, element: Any) -> Iterator[Any]:
        layout = self.layout
        fields = list(zip(layout.parts(element), layout.lengths, strict=True))
        for i in range(max(-(-len(part) // length) for part, length in fields)):
            pieces = [part[i * length : (i + 1) * length] for part, length in fields]
            yield pieces[0] if layout.is_plain else dict(zip(layout.names, pieces, strict=True))


# Whole elements


@dataclass(frozen=True)
class PackStage(LeavingStage):
    """Packs of whole elements, distributed by a packer.

    Attributes:
        drop_rest: whether to drop the last pack of a shard, if it is not full.
    """

    packer: Packer | OwnPacker
    most: int | None
    drop_rest: bool

    @property
    @abc.abstractmethod
    def limits(self) -> tuple[float, ...] | None:
        """Limits of the costs of a pack."""

    @abc.abstractmethod
    def names(self, elements: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the names of the costs of admitted elements; None: there is one, without a name."""

    @abc.abstractmethod
    def costs(self, element: Any) -> Sequence[float] | None:
        """Return the costs of an admitted element; None: it is left out of all packs."""

    @property
    def leaves(self) -> bool:
        return self.packer.leaves

    def block_size(self, place: Place, numbers: tuple[int, int, int]) -> int:
        """The first blocks of the shards differ in size. So shards do not read blocks all at once, and at any time, half of
        the elements of their blocks are in memory.
        """
        _, shard, number = numbers
        return self.block if number else max(self.block * (shard + 1) // place.num_shards, 1)

    def grouping(
        self, elements: list[Any], num_left: int, is_last: bool, place: Place, numbers: tuple[int, ...]
    ) -> Grouping:
        measured = [(i, costs) for i, costs in enumerate(map(self.costs, elements)) if costs is not None]
        if not measured:
            return Grouping([], [])
        names = self.names(elements)
        costs = np.array([costs for _, costs in measured], float)
        task = Task(costs, self.limits, self.most, num_left, is_last, names)
        generator = np.random.Generator(np.random.PCG64(place.seed_of(*numbers)))
        groups = self.packer.groups(task, generator)
        left = set(range(len(measured))).difference(*groups)
        if self.drop_rest and is_last and groups:
            groups = self._without_rest(groups, costs)
        if self.packer.is_random:
            groups = [groups[i] for i in generator.permutation(len(groups)).tolist()]
        return Grouping(
            [[elements[measured[item][0]] for item in group] for group in groups],
            [measured[item][0] for item in sorted(left)],
        )

    def _without_rest(self, groups: list[list[int]], costs: NDArray[np.float64]) -> list[list[int]]:
        """Return the packs without the last one, unless it is full."""
        assert self.limits is not None
        return groups[:-1] if costs[groups[-1]].sum() < sum(self.limits) else groups


@dataclass(frozen=True)
class FitPack(PackStage):
    """Packs of arrays."""

    layout: PackLayout
    #: Whether the input has the arrays of elements already, see `Fits`.
    is_measured: bool = False

    @property
    def text(self) -> str:
        rest = "drop" if self.drop_rest else "pad"
        return f"pack({self.layout.text}, method={self.packer.text}, block={self.block}, rest={rest})"

    @property
    def limits(self) -> tuple[float, ...]:
        return self.layout.lengths

    def names(self, elements: Sequence[Parts]) -> tuple[str, ...] | None:
        return None if self.layout.is_plain else self.layout.names

    def admitted(self, element: Any) -> Parts:
        return element if self.is_measured else self.layout.whole_parts(element)

    def costs(self, element: Parts) -> Sequence[float] | None:
        sizes = tuple(map(len, element))
        return sizes if any(sizes) else None

    def finished(self, draft: list[Parts]) -> dict[str, NDArray[Any]]:
        return self.layout.pack(draft)


@dataclass(frozen=True)
class GroupPack(PackStage):
    """Packs of elements of any structure, by their costs: lists."""

    cost: Cost
    budget: Budget | None
    is_measured: bool = False

    @property
    def text(self) -> str:
        budget = "no budget" if self.budget is None else self.budget.text
        rest = ", rest=drop" if self.drop_rest else ""
        return f"pack({self.cost.text}: {budget}, max {self.most}, method={self.packer.text}, block={self.block}{rest})"

    @property
    def limits(self) -> tuple[float, ...] | None:
        return None if self.budget is None else self.budget.limits

    def names(self, elements: Sequence[Measured]) -> tuple[Any, ...] | None:
        """Without a budget, each element of a block needs the same ones."""
        if self.budget is not None:
            return self.cost.names
        first, *others = [tuple(costs) if isinstance(costs, dict) else None for _, costs in elements]
        for other in others:
            if other != first:
                raise SampleError(
                    f"{self.cost.text} should return the same names for all elements of a block, but it returned {first} "
                    f"and {other}"
                )
        return first

    def admitted(self, element: Any) -> Measured:
        if self.is_measured:
            measured: Measured = element
            return measured
        if self.budget is None:
            return element, self.cost.any_numbers(element)
        return self.budget.admitted(element, "a pack", 'too_long="drop"')

    def costs(self, element: Measured) -> Sequence[float]:
        costs = element[1]
        return tuple(costs.values()) if isinstance(costs, dict) else costs

    def finished(self, draft: list[Measured]) -> list[Any]:
        return [element for element, _ in draft]


# Concatenation


@dataclass(frozen=True)
class ConcatPack(ShardedInputStage):
    """Packs of consecutive elements. An element that does not fit is split, and continues in the next pack."""

    layout: PackLayout
    may_split: bool
    drop_rest: bool
    is_measured: bool = False

    @property
    def text(self) -> str:
        split, rest = "" if self.may_split else ", too_long=error", "drop" if self.drop_rest else "pad"
        return f"pack({self.layout.text}, method=concat, rest={rest}{split})"

    def parts(self, element: Any) -> Parts:
        if self.is_measured:
            parts: Parts = element
            return parts
        return self.layout.parts(element) if self.may_split else self.layout.whole_parts(element)

    def evaluator(self, place: Place) -> Sharded:
        return _ConcatPackSharded(self, self.source(place))


class _ConcatPackSharded(Sharded):
    def __init__(self, stage: ConcatPack, source: Sharded) -> None:
        self._stage, self._source = stage, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        none = [0] * len(self._stage.layout.names)
        source_state, offsets, raised = state_parts(
            state, (None, none, 0), is_anything, lambda value: is_list_of(value, *[is_count] * len(none)), is_count
        )
        return _ConcatPackWalk(self._stage, self._source.open(shard, epoch, source_state), shard, offsets, raised)


class _ConcatPackWalk(ShardWalk):
    """The state is that of the input before the first element of the next pack, the numbers of tokens of this element that
    earlier packs have, and the number of exceptions that the inputs of the next pack have raised.
    """

    def __init__(self, stage: ConcatPack, source: ShardWalk, shard: int, offsets: Sequence[int], raised: int) -> None:
        self._stage, self._source, self._shard = stage, source, shard
        self._none = [0] * len(stage.layout.names)
        #: The state of the input before the first element of the next pack.
        self._before = source.state()
        #: The state of the input before the latest element.
        self._latest = self._before
        self._offsets = list(offsets)
        #: The first element of the next pack, if an earlier pack has the beginning of it.
        self._split: Parts | None = None
        self._segments: list[Parts] = []
        self._num_empty = 0
        self._free = list(stage.layout.lengths)
        self._raised = self._to_ignore = raised

    def __next__(self) -> Any:
        return self._stage.layout.pack(self._gather())

    def skip(self) -> None:
        self._gather()

    def _gather(self) -> list[Parts]:
        """Return the parts of elements in the next pack."""
        most = self._stage.layout.most_segments
        while True:
            parts = self._next_element()
            if parts is None:
                return self._end()
            # An element at the beginning of a pack may continue behind its offsets.
            offsets = self._none if self._segments else self._offsets
            if any(offset > len(part) for part, offset in zip(parts, offsets, strict=True)):
                raise CheckpointError(
                    f"Invalid state_dict: stage {self._stage.text} in shard {self._shard} should continue at {offsets} of "
                    f"an element with {[len(part) for part in parts]} tokens"
                )
            taken = [min(len(part) - offset, free) for part, offset, free in zip(parts, offsets, self._free, strict=True)]
            ends = [offset + count for offset, count in zip(offsets, taken, strict=True)]
            self._segments.append(tuple(part[begin:end] for part, begin, end in zip(parts, offsets, ends, strict=True)))
            self._free = [free - count for free, count in zip(self._free, taken, strict=True)]
            if any(end < len(part) for end, part in zip(ends, parts, strict=True)):
                self._split = parts
                return self._close(self._latest, ends)
            if len(self._segments) == most or not all(self._free):
                return self._close(self._source.state(), self._none)

    def _next_element(self) -> Parts | None:
        if self._split is not None:
            parts, self._split = self._split, None
            return parts
        while True:
            self._latest = self._source.state()
            try:
                filled = self._filled_parts(next(self._source))
            except StopIteration:
                return None
            except Exception:
                if not self._to_ignore:
                    self._raised += 1
                    raise
                self._to_ignore -= 1
            else:
                if filled is not None:
                    return filled

    def _filled_parts(self, element: Any) -> Parts | None:
        """Return the arrays of an element; None if they are empty."""
        try:
            parts = self._stage.parts(element)
        except Exception as error:  # a user's class may raise anything
            note_place(error, self._stage, f"the input before {self._source.state()} in shard {self._shard}")
            raise
        if any(map(len, parts)):
            self._num_empty = 0
            return parts
        self._num_empty += 1
        if self._num_empty == _MOST_EMPTY:
            self._num_empty = 0
            raise EmptyFilterError(
                f"{_MOST_EMPTY} elements in a row in shard {self._shard} have no entries. Check the functions of the stages "
                f"before {self._stage.text}"
            )
        return None

    def _close(self, before: Any, offsets: list[int]) -> list[Parts]:
        segments, self._segments = self._segments, []
        self._free = list(self._stage.layout.lengths)
        self._before, self._offsets, self._raised, self._to_ignore = before, offsets, 0, 0
        return segments

    def _end(self) -> list[Parts]:
        if not self._segments or self._stage.drop_rest:
            raise StopIteration
        return self._close(self._source.state(), self._none)

    def state(self) -> list[Any]:
        return [self._before, self._offsets, self._raised]


# Arguments


class PackArguments(NamedTuple):
    """Arguments of `ComposedDataset.pack`, for arrays and for groups."""

    method: str | Callable[..., Any]
    block: int
    rest: str | None
    too_long: str | None
    most_segments: int | None
    most_rejected: int

    def packer(self) -> Packer | OwnPacker:
        """Return the packer for whole elements."""
        if callable(self.method):
            return OwnPacker(self.method)
        return PACKERS[one_of("method", self.method, tuple(PACKERS))]

    def drops_rest(self, *choices: str) -> bool:
        """Return whether the last pack of a shard is dropped. The first choice is the default."""
        is_dropped = one_of("rest", self.rest or choices[0], choices) == "drop"
        if is_dropped and (callable(self.method) or self.method == "balanced"):
            raise ArgumentClashError(f'rest="drop" is for methods that fill one pack after another, not for {self.method!r}')
        return is_dropped


def pack_stage(stage: Stage, length: int | Mapping[str, int], pad: Any, arguments: PackArguments) -> Stage:
    """Return the stages of `ComposedDataset.pack` for arrays.

    Raises:
        ArgumentError: an argument has an unknown value.
    """
    layout = pack_layout(length, pad, arguments.most_segments)
    if not callable(arguments.method):
        one_of("method", arguments.method, ("concat", *PACKERS))
    is_concat = arguments.method == "concat"
    drop_rest = arguments.drops_rest("pad", "drop")
    too_long = arguments.too_long or ("split" if is_concat else "error")
    is_dropped = one_of("too_long", too_long, ("error", "drop", "split")) == "drop"
    if is_dropped:
        stage = Admission(stage, Fits(layout), arguments.most_rejected)
    if is_concat:
        return ConcatPack(stage, layout, too_long == "split", drop_rest, is_dropped)
    if too_long == "split":
        stage = FlatMap(stage, Pieces(layout))
    return FitPack(
        stage, arguments.block, arguments.packer(), arguments.most_segments, drop_rest, layout, is_measured=is_dropped
    )


def group_stage(
    stage: Stage, cost: Callable[[Any], Any], budget: float | Mapping[str, float] | None, arguments: PackArguments
) -> Stage:
    """Return the stages of `ComposedDataset.pack` for elements of any structure.

    Raises:
        ArgumentError: an argument has an unknown value.
        ArgumentClashError: there is no budget, and the method needs one.
    """
    if arguments.method == "concat" or arguments.too_long == "split":
        raise ArgumentClashError(
            "elements with a cost= cannot be split. Pass length= to split arrays; or one of the methods "
            f"{', '.join(map(repr, PACKERS))}"
        )
    packer = arguments.packer()
    if budget is None and isinstance(packer, Packer):
        raise ArgumentClashError("cost= needs budget=, the limit of a pack")
    limits = None if budget is None else budget_of(budget, cost)
    is_dropped = one_of("too_long", arguments.too_long or "error", ("error", "drop")) == "drop"
    if is_dropped and limits is not None:
        stage = Admission(stage, WithinBudget(limits), arguments.most_rejected)
    return GroupPack(
        stage,
        arguments.block,
        packer,
        arguments.most_segments,
        arguments.drops_rest("keep", "drop"),
        Cost(cost) if limits is None else limits.cost,
        limits,
        is_measured=is_dropped and limits is not None,
    )


def pack_layout(length: int | Mapping[str, int], pad: Any, most_segments: int | None) -> PackLayout:
    """Return the layout for the arguments of `ComposedDataset.pack`.

    Raises:
        ArgumentError: there is no field, or `pad` has others.
    """
    lengths = dict(length) if isinstance(length, Mapping) else {PLAIN_FIELD: length}
    if not lengths:
        raise ArgumentError('length has no fields: pass a mapping from field to length, such as {"tokens": 8192}')
    pads = pad if isinstance(pad, Mapping) else dict.fromkeys(lengths, pad)
    if set(pads) != set(lengths):
        raise ArgumentError(f"pad should have the fields of length, {', '.join(lengths)}, but it has {', '.join(pads)}")
    return PackLayout(
        names=tuple(lengths),
        lengths=tuple(positive("length", each) for each in lengths.values()),
        pads=tuple(pads[name] for name in lengths),
        most_segments=most_segments,
        is_plain=not isinstance(length, Mapping),
    )
