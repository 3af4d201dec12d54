"""Count the samples of an iterator's epoch, and apply its policy for the last batch. Runs in the main process."""

from __future__ import annotations

import math
import sys
from enum import Enum

__all__ = ["LastBatchPolicy", "EpochProgress"]


class LastBatchPolicy(Enum):
    """Treatment of the last batch of an epoch whose size is not a multiple of the batch size.

    Iterators only leave samples out. They never pad a short batch of a source. Follows
    ``nvidia.dali.plugin.base_iterator.LastBatchPolicy`` 1.53.
    """

    #: Deliver the batch with samples of the next epoch. That epoch gets shorter by them, unless `last_batch_padded` is set.
    FILL = 0
    #: Leave the batch out, and any other batch that is not full.
    DROP = 1
    #: Deliver the batch without the samples beyond the size.
    PARTIAL = 2


class EpochProgress:
    """Number of samples taken in an epoch of fixed size.

    Args:
        size: samples in an epoch; -1: their number does not end an epoch.
        policy: the treatment of the last batch.
        padded: whether the samples of the last batch beyond the size are padding.
        step: samples in the full batches of all pipelines.
    """

    def __init__(self, size: int, policy: LastBatchPolicy, padded: bool, step: int) -> None:
        self._size = size
        self._drops = policy is LastBatchPolicy.DROP
        self._cuts = policy is LastBatchPolicy.PARTIAL
        self._carries_over = policy is LastBatchPolicy.FILL and not padded
        self._step = step
        self._first = 0  # samples of this epoch that the previous one has taken
        self._count = 0

    @property
    def is_complete(self) -> bool:
        """Whether all batches of the epoch have been taken."""
        return 0 < self._size < self._count + (self._step if self._drops else 1)

    @property
    def must_drop(self) -> bool:
        """Whether a complete epoch still has samples in the stream, in a batch that DROP leaves out."""
        return self._count < self._size

    @property
    def samples_left(self) -> int:
        """Number of samples until the end of the epoch."""
        return self._size - self._count if self._size > 0 else sys.maxsize

    @property
    def deliverable(self) -> int:
        """Maximum number of samples to deliver from the next batch."""
        return self.samples_left if self._cuts else sys.maxsize

    def add(self, samples: int) -> None:
        """Count samples taken from the pipelines."""
        self._count += samples

    @property
    def position(self) -> tuple[int, int]:
        """Number of samples of this epoch that the previous one has taken, and number taken in total."""
        return self._first, self._count

    @position.setter
    def position(self, position: tuple[int, int]) -> None:
        self._first, self._count = position

    def begin_next(self) -> None:
        """Begin the next epoch after a complete one, with the samples carried over."""
        self._first = self._count = self._carried

    def restart(self) -> None:
        """Begin the next epoch without samples carried over."""
        self._first = self._count = 0

    def num_batches(self, of_next: bool) -> int:
        """Return the number of batches in this epoch, or in the next one."""
        if self._drops:
            return self._size // self._step
        return math.ceil((self._size - (self._carried if of_next else self._first)) / self._step)

    @property
    def _carried(self) -> int:
        return self._count % self._size if self._carries_over and self.is_complete else 0
