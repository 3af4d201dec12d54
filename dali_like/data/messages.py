"""Requests of a loader's iterators to its workers, and the answers. Pickled; see `dali_like.engine.worker.requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dali_like.sources.composed.stream import ShardState


class SamplesRequest(NamedTuple):
    """Requests samples of a map-style dataset.

    Attributes:
        seed: of the epoch; None: leave the global generators alone.
        number: of the batch in the epoch.
        keys: of the samples; without batches, the single key.
        as_batch: whether the answer is the batch, made by the collation. Otherwise it is samples.
    """

    seed: int | None
    number: int
    keys: Any
    as_batch: bool


class ItemsRequest(NamedTuple):
    """Requests the next items of an iterable dataset from one worker, as a batch.

    Attributes:
        seed: of the epoch; None: leave the global generators alone.
        iterator: number of the loader iterator.
        worker: number of the worker whose part of the dataset it is.
        number: number of the worker's earlier requests in this epoch.
        size: number of items; None: one, which is not collated to a batch.
        drop_last: whether to drop a batch that is smaller.
        shared_seed: see `dali_like.data.array_backends.ArrayBackend.draw_shared_seed`.
        state: the last reported state of the worker's iterator, pickled; see `dali_like.data.iterable_walk`.
        wants_state: whether the answer must have the state behind the batch: the program asks for states.
    """

    seed: int | None
    iterator: int
    worker: int
    number: int
    size: int | None
    drop_last: bool
    shared_seed: int | None
    state: bytes | None
    wants_state: bool


class PositionsRequest(NamedTuple):
    """Requests a batch of a composed dataset that runs in logical shards, from the workers of these shards.

    Attributes:
        seed: of the epoch; None: leave the global generators alone.
        number: of the batch in the epoch.
        epoch: of the dataset.
        positions: in the epoch; the row of each is its place in this list.
        fills_rows: whether elements of the expected schema go to rows.
        parts: for each task a pickled `PositionsPart`.
    """

    seed: int | None
    number: int
    epoch: int
    positions: list[int]
    fills_rows: bool = False
    parts: tuple[bytes, ...] = ()


class PositionsPart(NamedTuple):
    """The part of a `PositionsRequest` for one worker.

    Attributes:
        places: of its positions in the request, ascending.
        states: the latest known states of their shards.
    """

    places: list[int]
    states: dict[int, ShardState]


class PositionsAnswer(NamedTuple):
    """The elements of a `PositionsPart`.

    Attributes:
        found: the places of the positions that are not empty.
        texts: the texts of the elements in rows: one list for each text of the schema.
        others: all elements from the first one on that is not in its row, unless they are collated.
        states: of the shards behind these positions.
        ended: the shards at their end.
        collated: the batch, if the worker has collated it.
    """

    found: list[int]
    texts: list[list[Any]]
    others: list[Any]
    states: dict[int, ShardState]
    ended: list[int]
    collated: tuple[Any, ...] = ()

    @property
    def in_rows(self) -> list[int]:
        """The places of the elements in rows."""
        return self.found[: len(self.found) - len(self.others)]


class SamplesAnswer(NamedTuple):
    """The samples of a task that are not completely in their rows.

    Attributes:
        texts: the texts of the samples in rows: one list for each text of the schema.
        others: all samples from the first one on that does not fit the schema.
    """

    texts: list[list[Any]]
    others: list[Any]


class BatchAnswer(NamedTuple):
    """A batch; for iterable datasets also the state of the worker's iterator behind it, now and then or on request."""

    batch: Any
    state: dict[str, Any] | None = None
