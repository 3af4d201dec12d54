"""Where the samples of a loader's batch come from: `BaseDataLoader.origins_of`, and the column of ``origins=True``.

Runs in the main process, and only if the program asks. The indices of a batch are in its request, so the origins of a
map-style dataset, or of a composed one with random access, cost the workers nothing. In logical shards, elements travel with
their origins; see `dali_like.sources.composed.traced`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dali_like.data.messages import SamplesRequest, unpack_request
from dali_like.data.options import LoaderOptions
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.errors import ArgumentClashError, OriginError
from dali_like.sources.composed import is_composed
from dali_like.sources.origins import UNKNOWN, Origin, Origins, origin_at

if TYPE_CHECKING:
    from dali_like.data.base_loader import BaseDataLoader
    from dali_like.data.position_sampler import PositionSampler
    from dali_like.feed.shards import PositionsRequest
    from dali_like.sources.composed.dataset import ComposedDataset
    from dali_like.sources.composed.stage import WeightChange, WeightChanges
    from dali_like.sources.composed.stream import Elements

#: The name of the column in batches that are dicts.
COLUMN = "origins"

#: The attribute of a loader with its `_Tracing`.
_KEPT = "_dali_like_tracing"


def origins_of(loader: BaseDataLoader[Any], batch: Any) -> list[Origins]:
    """Return where the samples of a batch come from; see `BaseDataLoader.origins_of`."""
    recent = loader._dali_like_factory.counters.recent
    found = next((entry for entry in reversed(recent) if entry[0] == id(batch)), None)
    if found is None:
        raise OriginError(
            f"this is not one of the last {recent.maxlen} batches of the loader: pass a batch as the loader has yielded it"
        )
    _, key = found
    options = LoaderOptions.of(loader)
    if options.is_sharded:
        tracing = _tracing_of(loader, loader.dataset)
        return tracing.of_positions(_made_of(key), has_replacements=options.own["on_error"] != "raise")
    if options.is_iterable:
        raise OriginError(
            "the samples of an iterable dataset have no indices: let it yield them, or describe it with "
            "ComposedDataset.from_iterables"
        )
    return origins_of_keys(options, _made_of(key), loader)


def _made_of(key: Any) -> Any:
    """Return the keys or the request of a batch, given its entry in `LoaderCounters.recent`."""
    if type(key) is not BatchKey:
        return key
    request = unpack_request(key.request)
    return request.keys if isinstance(request, SamplesRequest) else request


def origins_of_keys(options: LoaderOptions, keys: Any, keeper: Any = None) -> list[Origins]:
    """Return the origins of the samples with some keys, or without batches with one key.

    Args:
        options: of the loader. Its dataset is a map-style one, or has random access.
        keeper: keeps the evaluator for the next keys.
    """
    dataset, listed = options.dataset, list(keys) if options.batched else [keys]
    numbers = [key.item() if hasattr(key, "item") and getattr(key, "ndim", 1) == 0 else key for key in listed]
    if is_composed(dataset):
        return _tracing_of(_TracingKeeper() if keeper is None else keeper, dataset).at(
            numbers, cast("PositionSampler", options.index_sampler).changes
        )
    return [origin_at(dataset, number) for number in numbers]


class _Tracing:
    """The composed dataset of a loader with the origins of its elements.

    Args:
        dataset: as the program has composed it.

    Attributes:
        dataset: as given.
        with_origins: the same stream, of traced elements. None with random access, where the position tells the origin.
    """

    def __init__(self, dataset: ComposedDataset) -> None:
        self.dataset = dataset
        self._changes: tuple[WeightChange, ...] = ()
        self._elements: Elements | None = None
        self.with_origins: ComposedDataset | None = None
        if dataset.shards is not None:
            self.with_origins = _traced(dataset)

    def at(self, positions: Sequence[int], changes: WeightChanges | None) -> list[Origins]:
        """Return the origins of the elements at positions, with random access."""
        self._follow(changes)
        if self._elements is None:
            self._elements = _traced(self.dataset, values=False).elements(self._changes)
        return [self._elements.at(0, position).origins for position in positions]

    def _follow(self, changes: WeightChanges | None) -> None:
        if changes is not None and changes.items != self._changes:
            self._changes, self._elements = changes.items, None

    def of_positions(self, request: PositionsRequest, *, has_replacements: bool) -> list[Origins]:
        """Return the origins of a batch in logical shards: compute its elements again, from the states in the request.

        Args:
            has_replacements: whether `on_error` has replaced elements that fail.
        """
        from dali_like.feed.shards import unpacked
        from dali_like.sources.composed.stream import ShardEndedError

        self._follow(request.changes)
        if self._elements is None:
            assert self.with_origins is not None
            self._elements = self.with_origins.elements(self._changes)
        found: dict[int, Origins] = {}
        for text in request.parts:
            part = unpacked(text)
            for place in part.places:
                try:
                    found[place] = self._elements.at(request.epoch, request.positions[place], part.states).origins
                except ShardEndedError:
                    continue  # the batch has no such row
                except Exception:
                    if not has_replacements:
                        raise
                    found[place] = UNKNOWN
        return [found[place] for place in sorted(found)]


def _traced(dataset: ComposedDataset, *, values: bool = True) -> ComposedDataset:
    from dali_like.sources.composed.traced import traced_dataset  # few programs need it

    return traced_dataset(dataset, values=values)


def _tracing_of(kept: Any, dataset: ComposedDataset) -> _Tracing:
    """Return the tracing of a loader's dataset, which the loader keeps: walks go on, and workers see one object."""
    found: _Tracing | None = vars(kept).get(_KEPT)
    if found is None or found.dataset is not dataset:
        found = vars(kept)[_KEPT] = _Tracing(dataset)
    return found


# The column


class CollationWithOrigins:
    """Collates traced elements, and adds a column with their origins.

    Args:
        collate_fn: of the loader.
        is_batched: whether it makes batches; otherwise it converts single elements.
    """

    def __init__(self, collate_fn: Callable[[Any], Any], is_batched: bool) -> None:
        self.collate_fn = collate_fn
        self._is_batched = is_batched

    def __call__(self, found: Any) -> Any:
        if not self._is_batched:
            value, origins = _parts_of(found)
            return with_column(self.collate_fn(value), origins)
        values, rows = zip(*map(_parts_of, found), strict=True)
        return with_column(self.collate_fn(list(values)), list(rows))


def _parts_of(element: Any) -> tuple[Any, Origins]:
    from dali_like.sources.composed.traced import Traced

    return (element.value, element.origins) if type(element) is Traced else (element, UNKNOWN)


class Traceable(NamedTuple):
    """The dataset and the collation of a loader, for an iterator that yields the column of ``origins=True``."""

    dataset: Any
    collate_fn: Callable[[Any], Any]


def traceable(loader: Any) -> Traceable:
    """Return the dataset and the collation of a loader with ``origins=True``."""
    dataset, collate_fn = loader.dataset, loader.collate_fn
    if not is_composed(dataset) or dataset.shards is None:
        return Traceable(dataset, collate_fn)
    tracing = _tracing_of(loader, dataset)
    kept: CollationWithOrigins | None = vars(tracing).get("collation")
    if kept is None or kept.collate_fn is not collate_fn:
        kept = vars(tracing)["collation"] = CollationWithOrigins(collate_fn, loader._auto_collation)
    return Traceable(tracing.with_origins, kept)


def column_for(options: LoaderOptions) -> Callable[[Any, Any], Any] | None:
    """Return a function that adds the column to a batch, given its key; None if the batch has it, or needs none."""
    if not options.own["origins"] or options.is_sharded:
        return None
    keeper = _TracingKeeper()
    return lambda batch, key: with_column_for(options, batch, _made_of(key), keeper)


def with_column_for(options: LoaderOptions, batch: Any, keys: Any, keeper: Any = None) -> Any:
    """Return the batch with some keys, with the column if the loader has ``origins=True``; see `origins_of_keys`."""
    if not options.own["origins"]:
        return batch
    rows = origins_of_keys(options, keys, keeper)
    indices = [] if is_composed(options.dataset) else [row.index for row in rows if isinstance(row, Origin)]
    column: Any = rows
    if len(indices) == len(rows) and all(type(index) is int for index in indices):
        column = options.array_backend.indices(indices)
    return with_column(batch, column if options.batched else column[0])


class _TracingKeeper:
    """Keeps the tracing of an iterator."""


def with_column(batch: Any, column: Any) -> Any:
    """Return a batch with a further column.

    Raises:
        ArgumentClashError: it is a dict that has this column.
    """
    kind = type(batch)
    if kind is list:
        return [*batch, column]
    if kind is tuple:
        return (*batch, column)
    if kind is dict:
        if COLUMN in batch:
            raise ArgumentClashError(f'the samples have a field "{COLUMN}": rename it, or leave origins=True out')
        return {**batch, COLUMN: column}
    return batch, column
