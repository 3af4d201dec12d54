"""Traces elements of a composed dataset to their sources: the same stream, with the origin of each element.

`traced` returns a copy of a description whose inputs yield `Traced` elements. The functions of the user get the elements
alone. Seeds and states do not change: each stage keeps its place. So a state of one fits the other.

With random access, the origin follows from the position. Then no element is computed (``values=False``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from dali_like.errors import ArgumentError
from dali_like.sources.composed.blocks import BlockShuffle, Shuffle
from dali_like.sources.composed.bucketing import Bucket, BudgetBatches
from dali_like.sources.composed.cache_stage import Cache
from dali_like.sources.composed.chunk_shuffle import ChunkShuffle
from dali_like.sources.composed.chunked_files import ChunkedSource
from dali_like.sources.composed.columnar import (
    BatchRows,
    ColumnFilter,
    ColumnShuffle,
    ColumnSlice,
    Gathered,
    RecordBatchParts,
    RowGroupShuffle,
)
from dali_like.sources.composed.costs import Budget, Cost
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.elementwise import Enumerate, Map, is_coroutine_function
from dali_like.sources.composed.inputs import Indexed, Part, Parts
from dali_like.sources.composed.mixing import Mix
from dali_like.sources.composed.packing import ConcatPack, FitPack, Fits, GroupPack, PackLayout
from dali_like.sources.composed.selection import Concat, Repeat, ShardOut, Slice, Window, Zip
from dali_like.sources.composed.stage import Place, RandomAccess, Sharded, ShardWalk, SingleInputStage, Stage
from dali_like.sources.composed.yielding import Admission, Filter, FlatMap
from dali_like.sources.origins import Origin, Origins, file_of, flat

__all__ = ["RULES", "Traced", "traced", "traced_dataset"]


class Traced(NamedTuple):
    """An element and its origin."""

    value: Any
    origins: Origins


def traced(stage: Stage, values: bool = True, source: str = "") -> Stage:
    """Return a stage whose outputs are `Traced`.

    Args:
        values: whether to compute the elements. False: their values are None, which is enough with random access.
        source: the names of the inputs on the way to it.
    """
    return RULES[type(stage)](stage, lambda each, name="": traced(each, values, _joined(source, name)), values, source)


def traced_dataset(dataset: ComposedDataset, *, values: bool = True) -> ComposedDataset:
    """Return a composed dataset with `Traced` elements; see `traced`."""
    twin = copy.copy(dataset)
    vars(twin).update(_stage=traced(dataset._stage, values), _elements=None)
    return twin


def _joined(*names: str) -> str:
    return " / ".join(filter(None, names))


#: Returns the part of a description with origins, given the part, how to trace an input (with its name, if it has one),
#: whether to compute values, and the name of the source.
_Rule = Callable[[Any, Callable[..., Stage], bool, str], Stage]


# Inputs


class _SourceWithOrigins:
    """A source with an index, with the origins of its elements."""

    def __init__(self, source: Any, paths: Sequence[str], name: str, values: bool) -> None:
        self._source, self._paths, self._name, self._values = source, tuple(paths), name, values
        self._ends: list[int] = []
        if len(paths) > 1:
            self._ends = np.asarray(source.file_ends).tolist()

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Traced:
        return Traced(self._source[index] if self._values else None, self.origin_of(index))

    def origin_of(self, index: int) -> Origin:
        """Return the origin of an element: for files, the file and the number of the record in it."""
        if not self._paths:
            return Origin(index, file_of(self._source, index), self._name)
        number = int(np.searchsorted(self._ends, index, "right")) if self._ends else 0
        first = self._ends[number - 1] if number else 0
        return Origin(index - first, self._paths[number], self._name)


class _TracedFiles(_SourceWithOrigins, ChunkedSource):
    """Files that are read in chunks, with the origins of their records."""

    def __init__(self, source: ChunkedSource, paths: Sequence[str], name: str, values: bool) -> None:
        super().__init__(source, paths, name, values)
        self.chunk_ends = source.chunk_ends

    def reader(self, *args: Any, **options: Any) -> Any:
        return _TracedReader(self, self._source.reader(*args, **options) if self._values else None)


class _TracedReader:
    """A reader of files, or without one only the numbers of their records."""

    most_ahead = 0

    def __init__(self, files: _TracedFiles, reader: Any) -> None:
        self._files, self._reader = files, reader
        if reader is not None:
            self.most_ahead = reader.most_ahead

    def __getitem__(self, index: int) -> Traced:
        return Traced(None if self._reader is None else self._reader[index], self._files.origin_of(index))

    def expect(self, chunks: Iterable[int]) -> None:
        """See `dali_like.sources.composed.chunked_files.ChunkReader.expect`."""
        if self._reader is not None:
            self._reader.expect(chunks)


def _indexed(stage: Indexed, _: Callable[..., Stage], values: bool, name: str) -> Indexed:
    kind = _TracedFiles if isinstance(stage.source, ChunkedSource) else _SourceWithOrigins
    return replace(stage, source=kind(stage.source, stage.paths, name, values))


@dataclass(frozen=True)
class _TracedPart:
    """A part of a source that is read in order, with the origins of its records."""

    part: Part
    source: str

    @property
    def path(self) -> str | None:
        return getattr(self.part, "path", None)

    def open(self, record: int) -> Iterator[Traced]:
        return self._records(iter(self.part.open(record)), record)

    def _records(self, records: Iterator[Any], first: int) -> Iterator[Traced]:
        file, source = self.path or "", self.source if self.path else _joined(self.source, str(self.part))
        try:
            for number, value in enumerate(records, first):
                yield Traced(value, Origin(number, file, source))
        finally:
            close = getattr(records, "close", None)
            if close is not None:
                close()

    def __str__(self) -> str:
        return str(self.part)


def _parts(stage: Parts, _: Callable[..., Stage], values: bool, name: str) -> Parts:
    return replace(stage, parts=tuple(_TracedPart(part, name) for part in stage.parts))


# Stages that pass elements on as they are


def _with_input(stage: Any, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return replace(stage, input=trace(stage.input))  # type: ignore[no-any-return]


def _concat(stage: Concat, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return replace(stage, all_inputs=tuple(trace(each, f"input {i}") for i, each in enumerate(stage.inputs)))


def _mix(stage: Mix, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return replace(stage, all_inputs=tuple(map(trace, stage.inputs, stage.names)))


# Stages that call functions of the user


class _OfValue:
    """Calls a function with the value of an element. The result has no origin."""

    def __init__(self, function: Callable[..., Any]) -> None:
        #: Descriptions name a stage by it.
        self.func = getattr(function, "func", function)
        self.function = function

    def __call__(self, element: Traced, *args: Any) -> Any:
        return self.function(element.value, *args)


class _Mapped(_OfValue):
    """Calls a function with the value of an element. The result has the origin of the element."""

    def __call__(self, element: Traced, *args: Any) -> Any:
        return Traced(self.function(element.value, *args), element.origins)


class _MappedLater(_OfValue):
    """The same for a coroutine function."""

    async def __call__(self, element: Traced, *args: Any) -> Any:
        return Traced(await self.function(element.value, *args), element.origins)


class _Items(_OfValue):
    """Yields the items that a function returns for the value of an element. They have its origin."""

    def __call__(self, element: Traced, *args: Any) -> Any:
        return (Traced(item, element.origins) for item in self.function(element.value))


def _unchanged(element: Any) -> Any:
    return element


def _map(stage: Map, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    source = trace(stage.input)
    if not values:  # the stage stays: places below it are counted from it
        return replace(stage, input=source, function=_unchanged, rng=False, num_reads=1)
    kind = _MappedLater if is_coroutine_function(stage.function) else _Mapped
    return replace(stage, input=source, function=kind(stage.function))


def _filter(stage: Filter, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return replace(stage, input=trace(stage.input), function=_OfValue(stage.function))


def _flat_map(stage: FlatMap, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return replace(stage, input=trace(stage.input), function=_Items(stage.function))


# Stages that join elements


@dataclass(frozen=True)
class _Applied(SingleInputStage):
    """Applies a function of this module to each output of a stage. It has no place in the description."""

    function: Callable[[Any], Traced]
    has_line = False

    @property
    def is_random(self) -> bool:
        return self.input.is_random

    @property
    def count_varies(self) -> bool:
        return self.input.count_varies

    @property
    def length(self) -> int | None:
        return self.input.length

    @property
    def text(self) -> str:
        return self.input.text

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        return [(epoch, end)]

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        source = self.input.evaluator(place)
        if isinstance(source, RandomAccess):
            return _AppliedAccess(source, self.function)
        return _AppliedSharded(source, self.function)


class _AppliedAccess(RandomAccess):
    def __init__(self, source: RandomAccess, function: Callable[[Any], Traced]) -> None:
        self._source, self._function = source, function
        self.length = source.length

    def at(self, position: int) -> Traced:
        return self._function(self._source.at(position))


class _AppliedSharded(Sharded):
    def __init__(self, source: Sharded, function: Callable[[Any], Traced]) -> None:
        self._source, self._function = source, function

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        return _AppliedWalk(self._source.open(shard, epoch, state), self._function)


class _AppliedWalk(ShardWalk):
    """The state is that of the input."""

    def __init__(self, source: ShardWalk, function: Callable[[Any], Traced]) -> None:
        self._source, self._function = source, function

    def begin(self) -> None:
        self._source.begin()

    def __next__(self) -> Traced:
        return self._function(next(self._source))

    def skip(self) -> None:
        self._source.skip()

    def state(self) -> Any:
        return self._source.state()


def _joined_tuple(elements: Sequence[Traced]) -> Traced:
    return Traced(tuple(each.value for each in elements), flat(each.origins for each in elements))


def _joined_list(elements: Sequence[Traced]) -> Traced:
    return Traced([each.value for each in elements], flat(each.origins for each in elements))


def _numbered(element: tuple[int, Traced]) -> Traced:
    number, inner = element
    return Traced((number, inner.value), inner.origins)


def _zip(stage: Zip, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return _Applied(replace(stage, all_inputs=tuple(map(trace, stage.inputs))), _joined_tuple)


def _window(stage: Window, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return _Applied(replace(stage, input=trace(stage.input)), _joined_list)


def _enumerate(stage: Enumerate, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return _Applied(replace(stage, input=trace(stage.input)), _numbered)


def _cost(cost: Cost) -> Cost:
    return replace(cost, function=_OfValue(cost.function))


def _limits(budget: Budget) -> Budget:
    return replace(budget, cost=_cost(budget.cost))


def _bucket(stage: Bucket, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return _Applied(replace(stage, input=trace(stage.input), length_of=_cost(stage.length_of)), _joined_list)


def _budget(stage: BudgetBatches, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return _Applied(replace(stage, input=trace(stage.input), budget=_limits(stage.budget)), _joined_list)


def _groups(stage: GroupPack, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    budget = None if stage.budget is None else _limits(stage.budget)
    copied = replace(stage, input=trace(stage.input), cost=_cost(stage.cost), budget=budget)
    return _Applied(copied, _joined_list)


def _admission(stage: Admission, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    """The function gets `Traced` elements. Only the next stage gets its results."""
    function: Any = stage.function
    if isinstance(function, Fits):
        changed: Any = replace(function, layout=_TracedLayout.of(function.layout))
    else:
        changed = replace(function, budget=_limits(function.budget))
    return replace(stage, input=trace(stage.input), function=changed)


class _Marked(np.ndarray[Any, Any]):
    """An array of an element that goes into packs. Its slices have the origin of the element, too."""

    origins: Origins

    def __array_finalize__(self, whole: Any) -> None:
        self.origins = getattr(whole, "origins", ())


@dataclass(frozen=True)
class _TracedLayout(PackLayout):
    """Makes packs with the origins of their segments."""

    @classmethod
    def of(cls, layout: PackLayout) -> Self:
        """Return the layout of packs with origins."""
        return cls(**vars(layout))

    def parts(self, element: Any) -> tuple[Any, ...]:
        marked = []
        for part in super().parts(element.value):
            array = part.view(_Marked)
            array.origins = element.origins
            marked.append(array)
        return tuple(marked)

    def pack(self, segments: Sequence[Any]) -> Any:
        plain = [tuple(part.view(np.ndarray) for part in segment) for segment in segments]
        return Traced(super().pack(plain), flat(segment[0].origins for segment in segments))


def _pack(stage: FitPack | ConcatPack, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    return replace(stage, input=trace(stage.input), layout=_TracedLayout.of(stage.layout))


# Caches, which store elements without their origins


@dataclass(frozen=True)
class _TracedCache(SingleInputStage):
    """The elements of a cache, and their origins by position."""

    origins: Stage
    has_line = False

    @property
    def length(self) -> int | None:
        return self.input.length

    @property
    def text(self) -> str:
        return self.input.text

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        return [(epoch, end)]

    def evaluator(self, place: Place) -> RandomAccess:
        values, origins = self.input.evaluator(place), self.origins.evaluator(place)
        assert isinstance(values, RandomAccess)
        assert isinstance(origins, RandomAccess)
        return _TracedCacheAccess(values, origins)


class _TracedCacheAccess(RandomAccess):
    def __init__(self, values: RandomAccess, origins: RandomAccess) -> None:
        self._values, self._origins = values, origins
        self.length = values.length

    def at(self, position: int) -> Traced:
        return Traced(self._values.at(position), self._origins.at(position).origins)


def _cache(stage: Cache, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    origins = traced(stage.input, False, name)
    return _TracedCache(stage, origins) if values else origins


def _columnar(stage: Stage, trace: Callable[..., Stage], values: bool, name: str) -> Stage:
    raise ArgumentError(
        f"{stage.text}: the origins of rows are unknown in streams that are read in columns. Read single rows"
    )


#: How to trace each stage of descriptions.
RULES: dict[type[Stage], _Rule] = {
    Admission: _admission,
    BlockShuffle: _with_input,
    BatchRows: _columnar,
    Bucket: _bucket,
    BudgetBatches: _budget,
    Cache: _cache,
    ChunkShuffle: _with_input,
    ColumnFilter: _columnar,
    ColumnShuffle: _columnar,
    ColumnSlice: _columnar,
    Concat: _concat,
    ConcatPack: _pack,
    Enumerate: _enumerate,
    Filter: _filter,
    FitPack: _pack,
    FlatMap: _flat_map,
    Gathered: _columnar,
    GroupPack: _groups,
    Indexed: _indexed,
    Map: _map,
    Mix: _mix,
    Parts: _parts,
    RecordBatchParts: _columnar,
    Repeat: _with_input,
    RowGroupShuffle: _columnar,
    ShardOut: _with_input,
    Shuffle: _with_input,
    Slice: _with_input,
    Window: _window,
    Zip: _zip,
}
