"""Hypothesis strategies: samples of all kinds that loaders and pipelines accept, and random composed datasets.

They need the extra `testing`. Elements of random datasets are small, and everything about them follows from the description.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dali_like.common.extras import missing
from dali_like.sources.composed.array_files import ArrayFiles, layout_of
from dali_like.sources.composed.chunked_files import FileRecords
from dali_like.sources.composed.columnar import RecordBatchFiles, RecordBatchParts
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.readers.reader import Reader
from dali_like.types import SampleInfo

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise missing("hypothesis", "A strategy for samples or datasets", "testing") from error

__all__ = ["composed_datasets", "object_samples", "ragged_arrays"]

_DTYPES = ("bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64")
#: Inputs in a row that a filter of a random dataset may reject: few, so that an empty filter ends soon.
_MOST_REJECTED = 20


def ragged_arrays(
    *,
    dtypes: Sequence[Any] = _DTYPES,
    min_ndim: int = 0,
    max_ndim: int = 3,
    max_side: int = 5,
) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Return a strategy for arrays of various shapes and dtypes, with any bits: empty arrays, infinities and NaN included.

    Args:
        dtypes: of the arrays.
        min_ndim, max_ndim: numbers of dimensions.
        max_side: the largest length of a dimension; the smallest is 0.
    """
    shapes = st.lists(st.integers(0, max_side), min_size=min_ndim, max_size=max_ndim).map(tuple)
    return st.builds(
        _random_array, shapes, st.sampled_from([np.dtype(dtype) for dtype in dtypes]), st.integers(0, 2**32 - 1)
    )


def object_samples(arrays: st.SearchStrategy[Any] | None = None, *, max_leaves: int = 8) -> st.SearchStrategy[Any]:
    """Return a strategy for samples that are Python objects: nests of dicts, tuples and lists with arrays, text, numbers.

    Args:
        arrays: strategy for the arrays in the samples; default: `ragged_arrays`.
        max_leaves: about the largest number of values in a sample.
    """
    leaves = st.one_of(
        ragged_arrays(max_ndim=2, max_side=3) if arrays is None else arrays,
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.binary(max_size=8),
    )
    return st.recursive(
        leaves,
        lambda children: st.one_of(
            st.lists(children, max_size=3),
            st.lists(children, max_size=3).map(tuple),
            st.dictionaries(st.text(max_size=4), children, max_size=3),
        ),
        max_leaves=max_leaves,
    )


@st.composite
def composed_datasets(
    draw: st.DrawFn,
    *,
    min_stages: int = 2,
    max_stages: int = 8,
    shards: Sequence[int] = (60,),
    raising: bool = False,
    endless: bool = True,
) -> ComposedDataset:
    """Draw a composed dataset of random stages over small sources.

    Its elements are nests of integers, text and arrays. Dataset and elements can be pickled, and a failing one is printed by
    its description.

    Args:
        min_stages, max_stages: how many stages follow each other. Inputs of mixtures and the like come in addition.
        shards: numbers of logical shards.
        raising: whether some elements may be exceptions, of a function or of a filter that rejects everything.
        endless: whether the dataset may be endless.
    """
    num_shards = draw(st.sampled_from(tuple(shards)))
    context = _Context(draw, num_shards, raising, endless)
    dataset = context.source()
    kinds = draw(st.lists(st.sampled_from(sorted(STAGES)), min_size=min_stages, max_size=max_stages))
    for kind in kinds:
        dataset = STAGES[kind](context, dataset)
    return dataset.with_options(seed=draw(st.integers(0, 3)), shards=num_shards)


class _Context:
    """Draws the arguments of stages."""

    def __init__(self, draw: st.DrawFn, num_shards: int, raising: bool, endless: bool) -> None:
        self.draw, self.num_shards, self.raising = draw, num_shards, raising
        self.may_repeat = endless
        #: Behind an endless stage, a `flat_map` without any items would never end, and a pack that drops all elements would
        #: go on for minutes.
        self.is_endless = False
        #: Windows that may still follow: each multiplies the work for an element.
        self.num_windows = 2
        #: The factor by which a stage `shard` may still multiply the shards of its inputs.
        self.most_shares = 2

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choice(self, values: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(values))

    def source(self) -> ComposedDataset:
        """Return an input: with random access, of chunks, in columns, or of parts that are read in order."""
        size = self.number(1, 3 * self.num_shards)
        sources: Mapping[str, Callable[[], ComposedDataset]] = {
            "samples": lambda: ComposedDataset.source(Samples(size, self.number(0, 3))),
            "parts": lambda: ComposedDataset.from_parts([SamplePart(i, 3) for i in range(self._num_parts())]),
            "rows": lambda: ComposedDataset.source(np.arange(2 * size).reshape(size, 2), name="rows"),
            "tokens": lambda: ComposedDataset.from_tokens(__file__, self.number(1, 4), dtype="uint8").take(size),
            "reader": lambda: ComposedDataset.from_reader(SampleReader, count=size),
            "chunks": lambda: self._chunks(size),
            "columns": self._columns,
        }
        return sources[self.choice(("samples", "parts", *sources))]()

    def _num_parts(self) -> int:
        """Return a number of parts, enough for each logical shard."""
        return self.num_shards * self.most_shares + self.number(0, 3)

    def _columns(self) -> ComposedDataset:
        """Return an input that is read in columns, as ``from_parquet(as_batches=True)``."""
        num_parts, per_part = self._num_parts(), self.number(1, 2)
        source = RecordBatchFiles(SampleColumns(num_parts * per_part, self.number(1, 5)))
        parts = [FileRecords(source, range(i * per_part, (i + 1) * per_part), "memory") for i in range(num_parts)]
        rows = ComposedDataset(RecordBatchParts(tuple(parts), "columns", self.number(1, 2)))
        together = self.choice((None, 1, 3))
        return rows if together is None else rows.shuffle(together=together)

    def _chunks(self, size: int) -> ComposedDataset:
        """Return an input of rows that are read in chunks, and may be shuffled so."""
        window = self.choice((None, 2))
        rows = ComposedDataset.source(SampleArrays(size + 1, self.number(1, 7), window), name="chunks")
        together = self.choice((None, 1, 3))
        return rows if together is None else rows.shuffle(together=together, whole=self.choice((False, True)))

    def small(self) -> ComposedDataset:
        """Return another input of a stage that has several."""
        dataset = self.source()
        keep = KeepRows if dataset.is_columnar else Keep
        return dataset.filter(keep(3)) if self.choice((False, False, True)) else dataset


def _rows(dataset: ComposedDataset) -> ComposedDataset:
    """Return a dataset of single elements."""
    return dataset.as_rows() if dataset.is_columnar else dataset


def _map(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    if dataset.is_columnar:
        noisy = context.choice((False, True))
        divisor = context.number(2, 7) if context.raising and context.choice((False, True)) else 0
        return dataset.map(NoisyColumns(), rng=True) if noisy else dataset.map(SumColumns(divisor))
    if context.raising and context.choice((False, True)):
        return dataset.map(Fail(context.number(2, 7)))
    return dataset.map(Noise(), rng=True) if context.choice((False, True)) else dataset.map(CountUp(context.number(1, 3)))


def _filter(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    keep = KeepRows if dataset.is_columnar else Keep
    if context.raising:
        return dataset.filter(keep(context.number(1, 4)), most_rejected=_MOST_REJECTED)
    return dataset.enumerate() if context.is_endless else dataset.filter(keep(context.number(2, 4)))


def _flat_map(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    return dataset.flat_map(Spread(context.number(int(context.is_endless), 1), context.number(1, 3)))


def _repeat(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    if context.may_repeat and context.choice((False, False, True)):
        context.is_endless = True
        return dataset.repeat()
    return dataset.repeat(context.number(1, 3))


def _slice(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    start = context.number(0, context.num_shards)
    stop = context.choice((None, start + context.number(0, 4 * context.num_shards)))
    return dataset.slice(start, stop, 1 if dataset.shards else context.number(1, 3))


def _shard(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    if dataset.shards is None:
        count = context.number(1, 3)
    else:
        count, context.most_shares = context.most_shares, 1
    return dataset.shard(context.number(0, count - 1), count)


def _window(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    if not context.num_windows:
        return dataset.enumerate()
    context.num_windows -= 1
    return dataset.window(context.number(1, 3), context.number(1, 4), drop_remainder=context.choice((True, False)))


def _shuffle(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    seed = context.choice((None, 5))
    if dataset.length is not None and context.choice((False, True)):
        return dataset.shuffle(seed=seed)
    return dataset.shuffle(block=context.number(1, 5), seed=seed)


def _zip(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    return ComposedDataset.zip(*context.draw(st.permutations([dataset, context.small()])))


def _concat(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    return ComposedDataset.concat(context.small(), dataset)


def _mix(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    stop = context.choice(("first", "all", "never")) if context.may_repeat and dataset.length != 0 else "first"
    others = [context.small() for _ in range(context.number(1, 2))]
    context.is_endless |= stop == "never"
    weights = [context.number(1, 3) for _ in range(len(others) + 1)]
    schedule = [(0, weights), (context.number(1, 3 * context.num_shards), weights[::-1])]
    datasets = context.draw(st.permutations([dataset, *others]))
    if context.choice((False, True)):
        return ComposedDataset.mix(datasets, weights, block=context.number(9, 16), stop=stop)
    return ComposedDataset.mix(datasets, schedule=schedule, block=context.number(9, 16), stop=stop)


def _pack(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    rest, block, length = context.choice(("pad", "drop")), context.number(1, 6), context.number(3, 6)
    method = context.choice(("concat", "first_fit", "best_fit", "knapsack", "balanced", RandomGroups(1)))
    if method == "balanced" or callable(method):
        rest = "pad"
    if context.choice((False, True)):
        return _rows(dataset).map(Tokens(3)).pack(length, method=method, block=block, rest=rest, pad=-1)
    return _rows(dataset).map(Fields(3)).pack({"text": length, "image": 3}, method=method, block=block, rest=rest)


def _pack_by_cost(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    block = context.number(1, 6)
    if context.choice((False, False, True)):
        return dataset.pack(cost=Costs(4), method=RandomGroups(context.number(1, 2)), block=block)
    return dataset.pack(
        cost=Costs(4),
        budget={"tokens": context.number(4 if context.is_endless else 3, 9), "parts": context.number(2, 6)},
        method=context.choice(("first_fit", "best_fit", "knapsack", "balanced")),
        block=block,
        too_long="drop",
        most_segments=context.choice((None, 2)),
    )


def _bucket(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    sizes = [context.number(1, 3) for _ in range(3)]
    rest, block = context.choice(("keep", "drop")), context.number(1, 6)
    if context.choice((False, True)):
        return dataset.bucket(Costs(4), [2, 3], sizes, key="tokens", block=block, rest=rest)
    return _rows(dataset).map(Tokens(4)).bucket(len, [2, 3], sizes, block=block, rest=rest)


def _batch_by_budget(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    block, padded, most = context.number(1, 6), context.choice((False, True)), context.choice((None, 2))
    if context.choice((False, True)):
        budget = {"tokens": context.number(4, 9), "parts": context.number(2, 6)}
        return dataset.batch_by_budget(budget, Costs(4), block=block, padded=padded, most=most, too_large="drop")
    return _rows(dataset).map(Tokens(4)).batch_by_budget(context.number(4, 9), len, block=block, padded=padded, most=most)


def _batch(context: _Context, dataset: ComposedDataset) -> ComposedDataset:
    return _rows(dataset).map(Tokens(1)).batch(context.number(1, 3), drop_remainder=context.choice((False, True)))


#: Adds a stage of a kind to a dataset. Stages that work on special elements add a `map` that makes them.
STAGES: Mapping[str, Callable[[_Context, ComposedDataset], ComposedDataset]] = MappingProxyType(
    {
        "batch": _batch,
        "batch_by_budget": _batch_by_budget,
        "bucket": _bucket,
        "concat": _concat,
        "enumerate": lambda context, dataset: dataset.enumerate(context.number(0, 9)),
        "filter": _filter,
        "flat_map": _flat_map,
        "map": _map,
        "mix": _mix,
        "pack": _pack,
        "pack_by_cost": _pack_by_cost,
        "repeat": _repeat,
        "shard": _shard,
        "shuffle": _shuffle,
        "slice": _slice,
        "window": _window,
        "zip": _zip,
    }
)


@dataclass(frozen=True)
class Samples:
    """A source of `size` samples: numbers, text, arrays of various shapes, and nests of them."""

    size: int
    salt: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return _sample(1000 * self.salt + index)


class SampleReader(Reader):
    """A reader of `count` samples."""

    num_outputs = 2

    def __init__(self, *, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def read(self, index: int, info: SampleInfo) -> Any:
        found = info.empty((2,), np.int16)
        found[:] = index, info.rng().integers(100)
        return found, np.array([index % 3])


class SampleArrays(ArrayFiles):
    """Two arrays of `num_rows` rows, in chunks of `chunk` and of 4 rows."""

    is_remote = False

    def __init__(self, num_rows: int, chunk: int, window: int | None) -> None:
        self._sizes = num_rows, chunk
        super().__init__(["memory"], layout_of(("x", "y"), window, None if window is None else 1))

    def _opened_file(self, path: str) -> Any:
        num_rows, chunk = self._sizes
        return {"x": _Chunked(np.arange(3 * num_rows).reshape(num_rows, 3), chunk), "y": _Chunked(np.arange(num_rows), 4)}


@dataclass(frozen=True)
class _Chunked:
    """An array with chunks, as libraries have it."""

    values: np.ndarray[Any, Any]
    num_rows: int

    @property
    def shape(self) -> Any:
        return self.values.shape

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def chunks(self) -> tuple[int, ...]:
        return self.num_rows, *self.shape[1:]

    def __getitem__(self, rows: Any) -> Any:
        return self.values[rows]


class SampleColumns:
    """Rows in columns, in chunks of 1 to `most` rows, as the row groups of files; see `RecordBatchFiles`."""

    is_remote = False
    mean_chunk_bytes = 1

    def __init__(self, num_chunks: int, most: int) -> None:
        self.chunk_ends = np.cumsum([1 + i * i % most for i in range(num_chunks)])

    async def read(self, first: int, last: int) -> Any:
        """Return the rows of a chunk."""
        numbers = np.arange(first, last)
        return _Table({"x": numbers, "y": np.float32(numbers) / 3, "pair": np.stack([numbers, -numbers], axis=1)})


@dataclass(frozen=True)
class _Table:
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class SamplePart:
    """A part of a source that is read in order. Some parts have fewer samples than `size`."""

    number: int
    size: int

    def open(self, record: int) -> Iterator[Any]:
        """Return the samples from a number on."""
        return (_sample(10 * self.number + i) for i in range(record, self.size - self.number % 3 % 2))


def _sample(number: int) -> Any:
    kind = number % 5
    if kind == 0:
        return number
    if kind == 1:
        return np.arange(number % 4, dtype=np.uint8) + np.uint8(number % 200)
    if kind == 2:
        return {"x": np.float32(number) / 3, "name": f"sample {number}"}
    if kind == 3:
        return (number, np.full((number % 3, 2), number, np.int32))
    return f"text {number}"


def value_of(element: Any) -> int:
    """Return a number that depends on the whole element."""
    if isinstance(element, (int, np.integer)):
        return int(element)
    if isinstance(element, str):
        return zlib.crc32(element.encode())
    if isinstance(element, (float, np.ndarray, np.generic)):
        return zlib.crc32(np.asarray(element).tobytes())
    total = 17
    for item in element.values() if isinstance(element, dict) else element:
        total = (total * 31 + value_of(item)) % 1_000_003
    return total


@dataclass(frozen=True)
class CountUp:
    """Replaces an element by an array whose length and content depend on it."""

    most: int

    def __call__(self, element: Any) -> Any:
        value = value_of(element)
        return np.arange(value % (self.most + 1)) + value % 97


@dataclass(frozen=True)
class Tokens:
    """Replaces an element by an array of 1 to `most` integers."""

    most: int

    def __call__(self, element: Any) -> Any:
        value = value_of(element)
        return np.full(1 + value % self.most, value % 97, np.int32)


@dataclass(frozen=True)
class Fields:
    """Replaces an element by a mapping with two arrays of 1 to `most` integers."""

    most: int

    def __call__(self, element: Any) -> Any:
        return {"text": Tokens(self.most)(element), "image": Tokens(self.most)((element, 1))}


@dataclass(frozen=True)
class Costs:
    """Returns two costs of an element: 0 to `most` tokens, and 0 to 2 parts."""

    most: int

    def __call__(self, element: Any) -> Mapping[str, float]:
        value = value_of(element)
        return {"tokens": value % (self.most + 1), "parts": value % 3}


@dataclass(frozen=True)
class RandomGroups:
    """Makes packs of up to `most` elements, and leaves some elements out of a block by chance."""

    most: int

    def __call__(self, costs: Any, generator: np.random.Generator) -> Any:
        count = len(next(iter(costs.values())) if isinstance(costs, dict) else costs)
        order = generator.permutation(count)[: max(1, count - int(generator.integers(0, 3)))]
        return [order[begin : begin + self.most] for begin in range(0, len(order), self.most)]


@dataclass(frozen=True)
class Noise:
    """Adds a random number to an element."""

    def __call__(self, element: Any, generator: np.random.Generator) -> Any:
        return value_of(element) % 1000, generator.random()


@dataclass(frozen=True)
class Keep:
    """Accepts the elements whose number is not a multiple of `divisor`; none if that is 1."""

    divisor: int

    def __call__(self, element: Any) -> bool:
        return value_of(element) % self.divisor != 0


@dataclass(frozen=True)
class SumColumns:
    """Changes a column of numbers by the sum of all of them, which shows the bounds of the record batch.

    It raises an exception if the sum is a multiple of `divisor`, unless that is 0.
    """

    divisor: int

    def __call__(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        total = int(columns["x"].sum())
        if self.divisor and total % self.divisor == 0:
            raise ValueError(f"record batch {total}")
        return {**columns, "x": (columns["x"] * 31 + total) % 1_000_003}


@dataclass(frozen=True)
class NoisyColumns:
    """Replaces a column by random numbers."""

    def __call__(self, columns: Mapping[str, Any], generator: np.random.Generator) -> Mapping[str, Any]:
        return {**columns, "y": generator.random(len(columns["x"]), np.float32)}


@dataclass(frozen=True)
class KeepRows:
    """Accepts the rows whose number is not a multiple of `divisor`; none if that is 1."""

    divisor: int

    def __call__(self, columns: Mapping[str, Any]) -> Any:
        return columns["x"] % self.divisor != 0


@dataclass(frozen=True)
class Spread:
    """Replaces an element by `fewest` to ``fewest + more`` others."""

    fewest: int
    more: int

    def __call__(self, element: Any) -> Iterator[Any]:
        value = value_of(element)
        return ((value % 1000, i) for i in range(self.fewest + value % (self.more + 1)))


@dataclass(frozen=True)
class Fail:
    """Raises an exception for each element whose number is a multiple of `divisor`."""

    divisor: int

    def __call__(self, element: Any) -> Any:
        value = value_of(element)
        if value % self.divisor == 0:
            raise ValueError(f"element {value}")
        return value


def _random_array(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    if dtype.kind == "b":
        return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(size), dtype).reshape(shape).copy()
