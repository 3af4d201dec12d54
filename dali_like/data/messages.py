"""What passes over a loader ask whoever makes its batches for, and what these answer."""

from __future__ import annotations

from typing import Any, NamedTuple


class Keys(NamedTuple):
    """A request for the samples of a map-style dataset.

    Attributes:
        seed: of the epoch; None: the global generators are left alone.
        number: of the batch in the epoch.
        keys: of the samples, or where no batches are made, the key.
        whole: whether the batch is made as one, by the user's collation.
    """

    seed: int | None
    number: int
    keys: Any
    whole: bool


class Step(NamedTuple):
    """A request for the next samples of an iterable dataset.

    Attributes:
        seed: see `Keys`.
        walk: which walk through the dataset.
        worker: whose step it is.
        number: how many steps the worker has taken before.
        size: samples to be taken; None: one, which is not made a batch.
        drop_last: whether a batch that cannot be filled is dropped.
        shared_seed: see `dali_like.data.array_backends.ArrayBackend.draw_shared_seed`.
        told: what has been said last of the state of the worker's walk; see `dali_like.data.iterable_walk.told_by`.
    """

    seed: int | None
    walk: int
    worker: int
    number: int
    size: int | None
    drop_last: bool
    shared_seed: int | None
    told: dict[str, Any] | None


class MadeSamples(NamedTuple):
    """What a task has to say of the samples that it has made.

    Attributes:
        texts: the texts of those that are in their rows: a list for each text of the form.
        others: the samples from the first on that has another form.
    """

    texts: list[list[Any]]
    others: list[Any]


class Whole(NamedTuple):
    """A batch that is made; and behind it, what `dali_like.data.iterable_walk.told_by` says."""

    batch: Any
    told: dict[str, Any] | None = None
