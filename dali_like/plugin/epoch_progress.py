"""How far an epoch is that ends after a number of samples, and what becomes of its last batch: counting, no more."""

from __future__ import annotations

import math
import sys
from enum import Enum

__all__ = ["LastBatchPolicy", "EpochProgress"]


class LastBatchPolicy(Enum):
    """What becomes of the last batch of an epoch whose size is no multiple of the batch size.

    The iterator only ever leaves samples out. It makes none up: a batch that its source has made shorter stays so.
    """

    #: It is delivered whole, with samples of the next epoch, which is so much shorter unless `last_batch_padded`.
    FILL = 0
    #: It is not delivered. Neither is any other batch that is not full.
    DROP = 1
    #: It is delivered without the samples beyond the size.
    PARTIAL = 2


class EpochProgress:
    """How far an epoch is that ends after a number of samples.

    Args:
        size: samples in an epoch; -1: it does not end by their number.
        policy: what becomes of the last batch.
        padded: whether samples of the last batch beyond the size are padding.
        step: samples in a full batch of all pipelines.
    """

    def __init__(self, size: int, policy: LastBatchPolicy, padded: bool, step: int) -> None:
        self._size = size
        self._drops = policy is LastBatchPolicy.DROP
        self._cuts = policy is LastBatchPolicy.PARTIAL
        self._carries_over = policy is LastBatchPolicy.FILL and not padded
        self._step = step
        self._first = 0  # samples that the epoch before has taken of this one
        self._count = 0

    @property
    def is_complete(self) -> bool:
        """Whether the epoch has had all of its batches."""
        return 0 < self._size < self._count + (self._step if self._drops else 1)

    @property
    def drops_one(self) -> bool:
        """Whether what is left of a complete epoch is a batch to be dropped."""
        return self._count < self._size

    @property
    def left(self) -> int:
        """How many samples are still to come."""
        return self._size - self._count if self._size > 0 else sys.maxsize

    @property
    def room(self) -> int:
        """How many samples of the next batch are to be delivered, at most."""
        return self.left if self._cuts else sys.maxsize

    def add(self, samples: int) -> None:
        """Note what has been taken."""
        self._count += samples

    @property
    def position(self) -> tuple[int, int]:
        """How many samples the epoch before has taken of this one; how many have been taken altogether."""
        return self._first, self._count

    @position.setter
    def position(self, position: tuple[int, int]) -> None:
        self._first, self._count = position

    def begin_next(self) -> None:
        """Begin the next epoch, after a complete one."""
        self._first = self._count = self._carried

    def begin_anew(self) -> None:
        """Begin the next epoch with nothing carried over."""
        self._first = self._count = 0

    def num_batches(self, of_next: bool) -> int:
        """How many batches this epoch has, or the next one."""
        if self._drops:
            return self._size // self._step
        return math.ceil((self._size - (self._carried if of_next else self._first)) / self._step)

    @property
    def _carried(self) -> int:
        return self._count % self._size if self._carries_over and self.is_complete else 0
