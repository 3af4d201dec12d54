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


#: The first fields of a `BatchKey` are words in the header of its slot.
NUM_KEY_WORDS = 5

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
        parts: for a batch whose tasks are not ranges of samples: the number of its parts. An error names one of them.
        owners: the worker of each task, if they differ. The request then says which samples are in a task.
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
    owners: tuple[int, ...] = ()

    @property
    def stop(self) -> int:
        """The end of the range of sample numbers, or of part numbers."""
        return max(self.size, self.parts)

    def worker_of(self, task: int) -> int:
        """Return the only worker that can compute a task, or ANY_WORKER."""
        return self.owners[task] if self.owners else self.worker

    def num_tasks(self, task_size: int) -> int:
        """Return the number of tasks, with so many samples in each of them."""
        return len(self.owners) or -(-self.size // task_size)
