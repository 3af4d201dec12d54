"""Identity of a batch: its source, epoch and samples, and the worker that computes it."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """The batches of an epoch of known length.

    Attributes:
        num_batches: the number of batches.
        last: samples in the last batch.
    """

    num_batches: int
    last: int


#: In place of a worker's number: any worker.
ANY_WORKER = -1


class BatchKey(NamedTuple):
    """Identity of a batch: everything that its samples depend on, its worker, and its order.

    Attributes:
        source: number of the source.
        epoch, iteration: numbers for the callback.
        first_sample: idx_in_epoch of its first sample.
        size: number of samples; the last batch of an iterable may have fewer.
        worker: the only worker that can compute it, or ANY_WORKER.
        turn: order of need. Batches with lower numbers are needed earlier.
        request: bytes for a request source.
        parts: for a batch of size 1 that one task computes as a whole: number of its parts. An error names one of them.
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
        """The end of the range of sample numbers, or of part numbers."""
        return max(self.size, self.parts)

    @property
    def words(self) -> tuple[int, ...]:
        """The words for the header of its slot."""
        return self[:5]
