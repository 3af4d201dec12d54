"""Count the samples of an iterator's epoch, and apply its policy for the last batch. Runs in the main process."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
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

    Attributes:
        size: samples in an epoch; -1: their number does not end an epoch.

    Args:
        size: samples in an epoch; -1: their number does not end an epoch.
        policy: the treatment of the last batch.
        padded: whether the samples of the last batch beyond the size are padding.
        step: samples in the full batches of all pipelines.
    """

    def __init__(self, size: int, policy: LastBatchPolicy, padded: bool, step: int) -> None:
        self.size = size
        self._drops = policy is LastBatchPolicy.DROP
        self._cuts = policy is LastBatchPolicy.PARTIAL
        self._carries_over = policy is LastBatchPolicy.FILL and not padded
        self._step = step
        self._first = 0  # samples of this epoch that the previous one has taken
        self._count = 0

    @property
    def is_complete(self) -> bool:
        """Whether all batches of the epoch have been taken."""
        return 0 < self.size < self._count + (self._step if self._drops else 1)

    @property
    def must_drop(self) -> bool:
        """Whether a complete epoch still has samples in the stream, in a batch that DROP leaves out."""
        return self._count < self.size

    def within(self, lengths: Sequence[int]) -> list[int]:
        """Return how many samples of the next batches, of the given lengths, belong to the epoch."""
        left = self.size - self._count if self.size > 0 else sys.maxsize
        counts = []
        for length in lengths:
            counts.append(max(0, min(length, left)))
            left -= length
        return counts

    def take(self, lengths: Sequence[int]) -> list[int]:
        """Count the next batch of each pipeline. Return how many samples of each to deliver.

        With PARTIAL, the last batch of an epoch may lack the last pipelines.
        """
        counts = self.within(lengths) if self._cuts else list(lengths)
        self._count += sum(lengths)
        while len(counts) > 1 and not counts[-1] and lengths[len(counts) - 1]:
            counts.pop()
        return counts

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

    def num_batches(self, *, of_next: bool) -> int:
        """Return the number of batches in this epoch, or in the next one."""
        if self._drops:
            return self.size // self._step
        return math.ceil((self.size - (self._carried if of_next else self._first)) / self._step)

    @property
    def _carried(self) -> int:
        return self._count % self.size if self._carries_over and self.is_complete else 0
