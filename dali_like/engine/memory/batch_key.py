"""Identity of a batch: which source, epoch and samples, and which worker computes it."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """The batches of an epoch of known length.

    Attributes:
        num_batches: how many there are.
        last: samples in the last of them.
    """

    num_batches: int
    last: int


#: In the place of a worker's number: whoever is free.
ANY_WORKER = -1


class BatchKey(NamedTuple):
    """Which batch: everything that its samples depend on, who is to make it, and when it is needed.

    Attributes:
        source: by number.
        epoch, iteration: for the callback.
        first_sample: idx_in_epoch of its first sample.
        size: how many samples it has, or how many at most.
        worker: the one that must make it, or ANY_WORKER.
        turn: batches with lower numbers are needed earlier.
        request: what is sent along to a source that wants to be told what to make.
        parts: how many parts a batch of size 1 is made of that one task makes as a whole; a task may fail at any of them.
    """

    source: int
    epoch: int
    iteration: int
    first_sample: int
    size: int
    worker: int = ANY_WORKER
    turn: int = 0
    request: bytes = b""
    parts: int = 1

    @property
    def stop(self) -> int:
        """The first number that no sample has, or no part."""
        return max(self.size, self.parts)

    @property
    def words(self) -> tuple[int, ...]:
        """What the header of its slot says."""
        return self[:5]
