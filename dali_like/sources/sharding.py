"""Shards: which part of an epoch each of several processes has.

To all ranks an epoch is the same sequence of positions, cut into batches. Of these, rank r of R takes the numbers r, R + r,
2 R + r and so on. So what all ranks take in one iteration, the *global batch*, lies side by side::

    positions   0 .. 3 | 4 .. 7 | 8 .. 11 | 12 .. 15 | 16 .. 19 | 20 .. 23      batches of 4, two ranks
    rank           0        1        0          1          0          1
    iteration  `------ 0 ------´ `------- 1 --------´ `------- 2 --------´

Where a global batch begins depends on R times the batch size alone. So a program that goes on with another number of ranks,
and keeps that product, sees the same global batches in the same order.

What is here is arithmetic. Numbers of iterations and ranks may also be NumPy's arrays, which is how a simulation of
thousands of ranks runs through the code that pipelines run through.
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
    """What becomes of the samples at the end of an epoch that make no whole global batch."""

    DROP = "drop"  #: they are left out: all ranks have as many full batches
    PAD = "pad"  #: the first samples come again until it is full: all ranks have as many full batches
    UNEVEN = "uneven"  #: they are delivered as they are: some ranks have a smaller batch than others there, or none


@dataclass(frozen=True)
class Shard:
    """One of the parts that an epoch is divided into.

    Attributes:
        id: which one, from 0 on.
        count: how many there are.
    """

    id: Any = 0
    count: int = 1

    def batch(self, iteration: Any) -> Any:
        """The number, among the batches of all shards, of the one that this shard takes in an iteration."""
        return iteration * self.count + self.id

    def first(self, iteration: Any, size: int) -> Any:
        """The position of the first sample of that batch, if batches have `size` samples."""
        return self.batch(iteration) * size


#: There is no other.
ALONE = Shard()


class Division(NamedTuple):
    """What a shard has of an epoch.

    Attributes:
        length: how many items the epoch has, of all shards together: samples, or whole batches.
        size: items in a batch of one shard; where items are batches, 1.
        shard: which part it is.
        rest: what becomes of the last items.
    """

    length: int
    size: int
    shard: Shard
    rest: Rest

    def sizes(self) -> Sizes:
        """The batches of the shard: how many, and how many items the last one has."""
        full, left = divmod(self.length, self.size * self.shard.count)
        if self.rest is Rest.UNEVEN:
            mine = min(left - self.shard.first(0, self.size), self.size)
            return Sizes(full + 1, mine) if mine > 0 else Sizes(full, self.size)
        return Sizes(full + (self.rest is Rest.PAD and left > 0), self.size)

    def item(self, position: Any) -> Any:
        """The item that stands at a position; beyond the end, the first ones come again."""
        return position % self.length if self.rest is Rest.PAD else position


class Padded:
    """A callable that is asked for the first items again, where it would be asked for some beyond the end."""

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
