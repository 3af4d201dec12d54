"""Costs of elements that are known without reading them: an array, a column of a table, or the sizes in an index of files.

`costs_by_position` evaluates a copy of a description, in which each source yields costs and functions are left out. Each
stage keeps its place, so the order is that of the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.sources.composed.cache_stage import Cache
from dali_like.sources.composed.chunk_shuffle import ChunkShuffle
from dali_like.sources.composed.chunked_files import ChunkedFiles
from dali_like.sources.composed.elementwise import Elementwise
from dali_like.sources.composed.inputs import Indexed
from dali_like.sources.composed.mixing import Mix
from dali_like.sources.composed.stage import Place, RandomAccess, SingleInputStage, Stage

if TYPE_CHECKING:
    from dali_like.sources.composed.dataset import ComposedDataset

__all__ = ["costs_by_position", "source_lengths"]


def costs_by_position(stage: Stage, seed: int, costs: Any) -> Callable[[int], float]:
    """Return a function from the position of an element, over all epochs, to its cost. Nothing is read by it.

    The cost of a window, or of a tuple of `zip`, is the sum of the costs of its elements.

    Args:
        stage: with random access.
        seed: of the dataset.
        costs: for a dataset with one source, an array with a number for each of its elements; or the name of a column; or
            None: bytes. For several sources, a mapping from their names to arrays or names of columns.

    Raises:
        ArgumentError, ArgumentTypeError: the costs do not fit.
        ArgumentClashError: a source does not tell them.
    """
    sources = dict(_sources_of(stage, ""))
    given = dict.fromkeys(sources, costs)
    if isinstance(costs, Mapping):
        _check_names(list(sources), list(costs))
        given = dict(costs)
    elif len(sources) > 1 and costs is not None and not isinstance(costs, str):
        raise ArgumentTypeError(
            f"costs should be a mapping from the names of the sources to arrays, because there are {len(sources)} of them: "
            f"{', '.join(map(repr, sources))}"
        )
    known = {name: _numbers_of(source, given[name]) for name, source in sources.items()}
    evaluator = _priced(stage, known, "").evaluator(Place(seed, 1))
    assert isinstance(evaluator, RandomAccess)
    at = evaluator.at
    return lambda position: _total(at(position))


def source_lengths(dataset: ComposedDataset) -> dict[str, int]:
    """Return the length of each source of a dataset with random access, by its name."""
    return {name: source.length for name, source in _sources_of(dataset._stage, "")}


def _check_names(names: Sequence[str], given: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            raise ArgumentError(f"costs: there is no source {name!r}; the sources are {', '.join(map(repr, names))}")
    if missing := [name for name in names if name not in given]:
        raise ArgumentError(f"costs: those of source {missing[0]!r} are missing")


def _sources_of(stage: Stage, name: str) -> Iterator[tuple[str, Indexed]]:
    """Yield the names and sources of a description, as `dali_like.sources.origins.Origin` names them."""
    if isinstance(stage, Indexed):
        yield name, stage
    for own, each in _named_inputs(stage, name):
        yield from _sources_of(each, own)


def _named_inputs(stage: Stage, name: str) -> list[tuple[str, Stage]]:
    """Return the inputs of a stage, with the names of the sources in them."""
    if len(stage.inputs) == 1:
        return [(name, stage.inputs[0])]
    own = stage.names if isinstance(stage, Mix) else [f"input {number}" for number in range(len(stage.inputs))]
    return [(f"{name} / {each}" if name else each, part) for each, part in zip(own, stage.inputs, strict=True)]


def _numbers_of(stage: Indexed, costs: Any) -> NDArray[np.float64]:
    """Return the costs of the elements of a source, by index."""
    source = stage.source
    if costs is None:
        sizes = getattr(source, "record_bytes", None)
        if sizes is None:
            raise ArgumentClashError(
                f"{stage.text} has no index with the sizes of its elements: pass costs=, an array with a number for each of "
                "them, or the name of a column"
            )
        found = sizes()
    elif isinstance(costs, str):
        found = _column_of(stage, costs)
    else:
        found = costs
    try:
        numbers = np.asarray(found, np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"costs of {stage.text} should be numbers: {error}") from error
    if numbers.shape != (stage.length,):
        raise ArgumentError(
            f"costs of {stage.text} should be an array of shape ({stage.length},), with a number for each element, but it "
            f"has the shape {numbers.shape}"
        )
    if not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise ArgumentError(f"costs of {stage.text} should be finite numbers from 0 on")
    return numbers


def _column_of(stage: Indexed, name: str) -> Any:
    source = stage.source
    if isinstance(source, ChunkedFiles):
        column = getattr(source, "column", None)
        if column is None:
            raise ArgumentClashError(f"{stage.text} has no columns: pass costs= as an array")
        return column(name)
    try:  # a table, such as a dataset of Hugging Face
        return source[name]
    except Exception as error:  # a user's class may raise anything
        raise ArgumentClashError(f"{stage.text} has no column {name!r}: pass costs= as an array") from error


def _priced(stage: Stage, known: Mapping[str, NDArray[np.float64]], name: str) -> Stage:
    """Return a copy of a stage with costs as elements."""
    if isinstance(stage, Indexed):
        costs = known[name]
        return replace(
            stage, source=_Prices(costs, stage.source) if isinstance(stage.source, ChunkedFiles) else costs.tolist()
        )
    inputs = [_priced(each, known, own) for own, each in _named_inputs(stage, name)]
    if isinstance(stage, Cache):
        return inputs[0]
    if isinstance(stage, Elementwise):
        return _Unchanged(inputs[0])
    if isinstance(stage, ChunkShuffle) or len(inputs) == 1:
        return replace(stage, input=inputs[0])  # type: ignore[call-arg]
    return replace(stage, all_inputs=tuple(inputs))  # type: ignore[call-arg]


@dataclass(frozen=True)
class _Unchanged(SingleInputStage):
    """The elements of its input, in the place of a stage that calls a function."""

    @property
    def length(self) -> int | None:
        return self.input.length

    @property
    def text(self) -> str:
        return self.input.text

    def evaluator(self, place: Place) -> Any:
        return self.input.evaluator(place.input(0))


class _Prices(ChunkedFiles):
    """The costs of records of files, in the same chunks. No file is opened."""

    is_remote = False
    has_single_records = True
    most_ahead = 0

    def __init__(self, costs: NDArray[np.float64], files: ChunkedFiles) -> None:
        self._costs: list[float] = costs.tolist()
        self.chunk_ends, self.mean_chunk_bytes = files.chunk_ends, files.mean_chunk_bytes

    def reader(self, *args: Any, **options: Any) -> Any:
        return self

    def __getitem__(self, index: int) -> float:
        return self._costs[index]

    def expect(self, chunks: Any) -> None:
        """See `dali_like.sources.composed.chunked_files.ChunkReader.expect`."""

    async def read(self, first: int, last: int) -> Sequence[float]:
        return self._costs[first:last]

    def decode(self, record: Any, index: int) -> Any:
        return record


def _total(costs: Any) -> float:
    """Return the sum of the costs in a nest of lists and tuples."""
    return costs if isinstance(costs, float) else sum(map(_total, costs), 0.0)
