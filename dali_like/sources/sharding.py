"""Shards: the parts of an epoch that several processes deliver.

For all ranks an epoch is the same sequence of positions, cut into batches. Rank r of R takes the batches r, R + r, 2 R + r
and so on. The batches of all ranks in one iteration, the *global batch*, are consecutive::

    positions   0 .. 3 | 4 .. 7 | 8 .. 11 | 12 .. 15 | 16 .. 19 | 20 .. 23      batches of 4, two ranks
    rank           0        1        0          1          0          1
    iteration  `------ 0 ------´ `------- 1 --------´ `------- 2 --------´

The beginning of a global batch depends only on R times the batch size. A program that resumes with another number of ranks,
and keeps that product, sees the same global batches in the same order.

This module is arithmetic. Numbers of iterations and ranks may also be NumPy arrays: a simulation of thousands of ranks uses
the same code as pipelines.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dali_like.engine.memory.batch_key import Sizes
from dali_like.types import BatchInfo, SampleInfo

__all__ = ["ALONE", "Division", "Padded", "Rest", "Shard"]


class Rest(enum.Enum):
    """Treatment of the samples at the end of an epoch that do not fill a global batch."""

    DROP = "drop"  #: they are left out: all ranks have equally many full batches
    PAD = "pad"  #: the first samples are repeated until it is full: all ranks have equally many full batches
    UNEVEN = "uneven"  #: they are delivered: some ranks have a smaller last batch than others, or none


@dataclass(frozen=True)
class Shard:
    """One of the parts that an epoch is divided into.

    Attributes:
        id: its number, from 0 on.
        count: the number of shards.
    """

    id: Any = 0
    count: int = 1

    def batch(self, iteration: Any) -> Any:
        """Return the number of this shard's batch in an iteration, among the batches of all shards."""
        return iteration * self.count + self.id

    def first(self, iteration: Any, size: int) -> Any:
        """Return the position of the first sample of that batch, if batches have `size` samples."""
        return self.batch(iteration) * size


#: The whole epoch.
ALONE = Shard()


class Division(NamedTuple):
    """One shard's part of an epoch.

    Attributes:
        length: items in the epoch, of all shards together: samples, or whole batches.
        size: items in a batch of one shard; 1 if items are batches.
        shard: the shard.
        rest: the treatment of the last items.
    """

    length: int
    size: int
    shard: Shard
    rest: Rest

    def sizes(self) -> Sizes:
        """Return the number of batches of the shard, and the number of items in the last one."""
        full, left = divmod(self.length, self.size * self.shard.count)
        if self.rest is Rest.UNEVEN:
            mine = min(left - self.shard.first(0, self.size), self.size)
            return Sizes(full + 1, mine) if mine > 0 else Sizes(full, self.size)
        return Sizes(full + (self.rest is Rest.PAD and left > 0), self.size)

    def item(self, position: Any) -> Any:
        """Return the item at a position; with PAD, the first items are repeated beyond the end."""
        return position % self.length if self.rest is Rest.PAD else position


class Padded:
    """Calls a callback for the first items again, in place of items beyond the end of the epoch."""

    def __init__(self, callback: Callable[[Any], Any], division: Division) -> None:
        self._callback = callback
        self._division = division

    def __call__(self, info: Any) -> Any:
        if isinstance(info, SampleInfo):
            if info.idx_in_epoch >= self._division.length:
                info = info._replace(idx_in_epoch=self._division.item(info.idx_in_epoch))
        elif isinstance(info, BatchInfo) and info.iteration >= self._division.length:
            info = info._replace(iteration=self._division.item(info.iteration))
        return self._callback(info)
