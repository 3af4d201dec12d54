"""Shards: the parts of an epoch that several processes deliver.

For all ranks an epoch is the same sequence of positions, cut into steps. A step has R times the batch size positions, and
each of the R ranks takes its batch of them, in one of two ways. The batches of sources are *blocks*: rank r takes the
batches r, R + r, 2 R + r and so on. The batches of all ranks in one iteration, the *global batch*, are consecutive::

    positions   0 .. 3 | 4 .. 7 | 8 .. 11 | 12 .. 15 | 16 .. 19 | 20 .. 23      batches of 4, two ranks
    rank           0        1        0          1          0          1
    iteration  `------ 0 ------´ `------- 1 --------´ `------- 2 --------´

The batches of composed datasets and of `DistributedSampler` are *stripes*: rank r takes the positions p with ``p % R == r``,
so that its logical shards stay the same when the batch size changes::

    positions   0  1  2  3 | 4  5  6  7 | 8 ..      two ranks, batches of 2
    rank        0  1  0  1   0  1  0  1   0
    step       `---- 0 ---´ `---- 1 ---´

The beginning of a step depends only on R times the batch size. A program that resumes with another number of ranks, and
keeps that product, sees the same global batches in the same order. Readers divide an epoch into R *consecutive parts*, as
those of DALI do: `part_begins`.

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

__all__ = ["ALONE", "Division", "Padded", "Rest", "Shard", "part_begins"]


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

    def stripe(self, begin: int, size: int) -> range:
        """Return the positions of this shard's stripe in the step that begins at a position, `size` of them.

        >>> list(Shard(0, 2).stripe(0, 4)), list(Shard(0, 4).stripe(15, 1))
        ([0, 2, 4, 6], [16])
        """
        first = begin + (self.id - begin) % self.count
        return range(first, begin + size * self.count, self.count)


#: The whole epoch.
ALONE = Shard()


def part_begins(length: int, count: int) -> list[int]:
    """Return where the consecutive parts of an epoch begin, and the end of the last one.

    >>> part_begins(10, 3)
    [0, 3, 6, 10]
    """
    return [length * shard // count for shard in range(count + 1)]


class Division(NamedTuple):
    """One shard's part of an epoch, step by step.

    Attributes:
        length: items in the epoch, of all shards together: samples, or whole batches; None if it is endless.
        size: items in a batch of one shard; 1 if items are batches.
        shard: the shard.
        rest: the treatment of the last items.
        is_striped: whether a batch is a stripe of its step; otherwise it is a block.
    """

    length: int | None
    size: int
    shard: Shard
    rest: Rest
    is_striped: bool = False

    @property
    def step(self) -> int:
        """Items in a step, of all shards together."""
        return self.size * self.shard.count

    def first(self, begin: int) -> int:
        """Return the position of the shard's first item in the step that begins at a position."""
        return self.shard.stripe(begin, self.size).start if self.is_striped else begin + int(self.shard.id) * self.size

    def count(self, begin: int) -> int:
        """Return the size of the shard's batch in the step that begins at a position; 0 without a batch."""
        length, size = self.length, self.size
        if length is None or begin + self.step <= length:
            return size
        if begin >= length or self.rest is Rest.DROP:
            return 0
        if self.rest is Rest.PAD:
            return size
        left = length - self.first(begin)
        return max(-(-left // self.shard.count) if self.is_striped else min(left, size), 0)

    def sizes(self) -> Sizes:
        """Return the number of batches of the shard, and the number of items in the last one. The epoch must have an end."""
        assert self.length is not None
        full = self.length // self.step
        last = self.count(full * self.step)
        return Sizes(full + 1, last) if last else Sizes(full, self.size)

    def item(self, position: Any) -> Any:
        """Return the item at a position; with PAD, the first items are repeated beyond the end."""
        return position % self.length if self.rest is Rest.PAD else position


class Padded:
    """Calls a callback for the first items again, in place of items beyond the end of the epoch."""

    def __init__(self, callback: Callable[[Any], Any], division: Division) -> None:
        assert division.length is not None
        self._callback = callback
        self._item = division.item
        self._length = division.length

    def __call__(self, info: Any) -> Any:
        if isinstance(info, SampleInfo):
            if info.idx_in_epoch >= self._length:
                info = info._replace(idx_in_epoch=self._item(info.idx_in_epoch))
        elif isinstance(info, BatchInfo) and info.iteration >= self._length:
            info = info._replace(iteration=self._item(info.iteration))
        return self._callback(info)
