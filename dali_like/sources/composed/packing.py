"""Packs: elements of different lengths, such as tokenized documents, combined to arrays of one length.

`ConcatPack` puts elements one after another and splits them at the end of a pack. `FitPack` keeps elements whole: each block
of inputs is distributed to packs by first fit or best fit. `PackLayout` builds the arrays of a pack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import one_of, positive
from dali_like.errors import ArgumentError, CheckpointError, EmptyFilterError, SampleError, SampleTypeError
from dali_like.sources.composed.blocks import RegroupingStage, in_random_order
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
from dali_like.sources.composed.yielding import Filter, FlatMap, ShardedInputStage

__all__ = ["ConcatPack", "FitPack", "Fits", "PackLayout", "Pieces", "fit", "pack_layout", "pack_stage"]

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
                f"an element should be a mapping with the fields {', '.join(self.names)}, but it is a "
                f"{type(element).__qualname__}. For elements that are arrays, pass one length: pack({self.lengths[0]})"
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
    """Whether an element is short enough for a pack: a function for `filter`."""

    layout: PackLayout

    def __call__(self, element: Any) -> bool:
        parts = self.layout.parts(element)
        return all(len(part) <= length for part, length in zip(parts, self.layout.lengths, strict=True))


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


# Fitting


def fit(sizes: NDArray[Any], capacities: Sequence[float], most: int | None = None, best: bool = False) -> list[list[int]]:
    """Distribute items to bins, the largest first. An item that fits into no bin opens another one.

    Args:
        sizes: of shape ``(items, dimensions)``, none larger than the capacities.
        capacities: of a bin in each dimension.
        most: limit of items in a bin.
        best: take the bin with the least free space, in all dimensions together, not the first one.

    Returns:
        The items of each bin, ascending.

    >>> fit(np.array([[3], [6], [5], [4], [2]]), [10])
    [[1, 3], [0, 2, 4]]
    """
    bins: list[list[int]] = []
    rooms = [np.full(len(sizes), capacity, float) for capacity in capacities]
    order = np.argsort(-(sizes / capacities).sum(axis=1), kind="stable")
    for item, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        number = _bin_for(size, [room[: len(bins) + 1] for room in rooms], best)
        if number == len(bins):
            bins.append([])
        bins[number].append(item)
        for room, needed in zip(rooms, size, strict=True):
            room[number] -= needed
        if len(bins[number]) == most:
            rooms[0][number] = -1
    return [sorted(items) for items in bins]


def _bin_for(size: list[float], rooms: list[NDArray[Any]], best: bool) -> int:
    """Return the bin for an item. `rooms` is the free space of the bins by dimension; the last bin is empty."""
    fits = rooms[0] >= size[0]
    for room, needed in zip(rooms[1:], size[1:], strict=True):
        fits &= room >= needed
    return int((np.where(fits, -sum(rooms), -np.inf) if best else fits).argmax())


@dataclass(frozen=True)
class FitPack(RegroupingStage):
    """Packs of whole elements, distributed by `fit`. The packs of a block come in random order."""

    layout: PackLayout
    best: bool
    drop_rest: bool

    @property
    def text(self) -> str:
        method, rest = "best_fit" if self.best else "first_fit", "drop" if self.drop_rest else "pad"
        return f"pack({self.layout.text}, method={method}, block={self.block}, rest={rest})"

    def admitted(self, element: Any) -> Parts:
        return self.layout.whole_parts(element)

    def block_size(self, place: Place, numbers: tuple[int, int, int]) -> int:
        """The first blocks of the shards differ in size. So shards do not read blocks all at once, and at any time, half of
        the elements of their blocks are in memory.
        """
        _, shard, number = numbers
        return self.block if number else max(self.block * (shard + 1) // place.num_shards, 1)

    def drafts(self, elements: list[Parts], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        layout = self.layout
        filled = [parts for parts in elements if any(map(len, parts))]
        sizes = np.array([list(map(len, parts)) for parts in filled]).reshape(-1, len(layout.names))
        bins = fit(sizes, layout.lengths, layout.most_segments, self.best)
        is_last = len(elements) < self.block_size(place, numbers)  # type: ignore[arg-type]
        if self.drop_rest and is_last and bins and sizes[bins[-1]].sum() < sum(layout.lengths):
            bins.pop()
        return in_random_order([[filled[item] for item in items] for items in bins], place, numbers)

    def finished(self, draft: list[Parts]) -> dict[str, NDArray[Any]]:
        return self.layout.pack(draft)


# Concatenation


@dataclass(frozen=True)
class ConcatPack(ShardedInputStage):
    """Packs of consecutive elements. An element that does not fit is split, and continues in the next pack."""

    layout: PackLayout
    may_split: bool
    drop_rest: bool

    @property
    def text(self) -> str:
        split, rest = "" if self.may_split else ", too_long=error", "drop" if self.drop_rest else "pad"
        return f"pack({self.layout.text}, method=concat, rest={rest}{split})"

    def parts(self, element: Any) -> Parts:
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


def pack_stage(
    stage: Stage,
    length: int | Mapping[str, int],
    *,
    method: str,
    block: int,
    rest: str,
    pad: Any,
    too_long: str | None,
    most_segments: int | None,
    most_rejected: int,
) -> Stage:
    """Return the stages of `ComposedDataset.pack`, with its arguments.

    Args:
        most_rejected: of `Filter`.

    Raises:
        ArgumentError: an argument has an unknown value.
    """
    layout = pack_layout(length, pad, most_segments)
    is_concat = one_of("method", method, ("concat", "first_fit", "best_fit")) == "concat"
    drop_rest = one_of("rest", rest, ("pad", "drop")) == "drop"
    too_long = one_of("too_long", too_long or ("split" if is_concat else "error"), ("error", "drop", "split"))
    if too_long == "drop":
        stage = Filter(stage, Fits(layout), most_rejected)
    if is_concat:
        return ConcatPack(stage, layout, too_long == "split", drop_rest)
    if too_long == "split":
        stage = FlatMap(stage, Pieces(layout))
    return FitPack(stage, block, layout, method == "best_fit", drop_rest)


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
