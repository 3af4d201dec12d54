"""Requests of a loader's iterators to its workers, and the answers. Pickled; see `dali_like.engine.worker.requests`.

Those of composed datasets in logical shards are in `dali_like.feed.shards`.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.feed.shards import PositionsRequest

if TYPE_CHECKING:
    from dali_like.sources.composed.stage import WeightChanges


class SamplesRequest(NamedTuple):
    """Requests samples of a map-style dataset.

    Attributes:
        seed: of the epoch; None: leave the global generators alone.
        number: of the batch in the epoch.
        keys: of the samples; without batches, the single key.
        as_batch: whether the answer is the batch, made by the collation. Otherwise it is samples.
        changes: of the weights of mixtures in a composed dataset; None: there have never been any.
    """

    seed: int | None
    number: int
    keys: Any
    as_batch: bool
    changes: WeightChanges | None = None


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


_CLASSES: tuple[type[SamplesRequest] | type[ItemsRequest] | type[PositionsRequest], ...] = (
    SamplesRequest,
    ItemsRequest,
    PositionsRequest,
)
#: The number of each class in a request.
NUMBERS = {each: number for number, each in enumerate(_CLASSES)}


def unpack_request(text: bytes) -> SamplesRequest | ItemsRequest | PositionsRequest:
    """Return a request from its number and its fields, which were pickled as a plain tuple.

    In a pickled named tuple, looking up the class would take as long as a hundred indices, in each process.
    """
    number, *fields = pickle.loads(text)
    request: SamplesRequest | ItemsRequest | PositionsRequest = _CLASSES[number](*fields)
    return request
