"""Arithmetic of positions, logical shards and ranks.

Output k of logical shard s of L has the position ``k * L + s``. Rank r of R delivers the positions p with ``p % R == r``.
So with shards, it owns the shards ``s % R == r``, and R must divide L. A step takes the next ``R * batch_size`` positions of
the stream; the batch of a rank has its own positions among them, ascending::

    positions  0  1  2  3 | 4  5  6  7 | 8 ..      two ranks, batches of 2
    rank       0  1  0  1   0  1  0  1   0
    step      `---- 0 ---´ `---- 1 ---´

The state of a stream is the number of positions that all ranks together have passed. It is independent of the number of
ranks and of the batch size. (The batches of pipelines' sharded sources are blocks of consecutive positions instead; see
`dali_like.sources.sharding`.)

Arguments may be NumPy arrays, except in messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dali_like.engine.memory.batch_key import Sizes
from dali_like.errors import ArgumentError
from dali_like.sources.sharding import Rest, Shard

__all__ = ["Steps", "check_ranks", "num_delivered", "owned_shards", "step_positions"]

#: Default number of logical shards: divisible by 1 to 6, 10, 12, 15, 20 and 30 ranks.
DEFAULT_SHARDS = 60


def num_delivered(position: Any, shard: Any, num_shards: int) -> Any:
    """Return how many outputs of a shard lie before a position.

    >>> [num_delivered(5, shard, 3) for shard in range(3)]
    [2, 2, 1]
    """
    return (position - shard + num_shards - 1) // num_shards


def step_positions(begin: int, batch_size: int, rank: Shard) -> range:
    """Return the positions of a rank's batch in the step that begins at a position.

    >>> list(step_positions(0, 4, Shard(0, 2))), list(step_positions(15, 1, Shard(0, 4)))
    ([0, 2, 4, 6], [16])
    """
    first = begin + (rank.id - begin) % rank.count
    return range(first, begin + batch_size * rank.count, rank.count)


def owned_shards(num_shards: int, rank: Shard) -> range:
    """Return the logical shards of a rank.

    Raises:
        ArgumentError: the number of ranks does not divide the number of shards.
    """
    check_ranks(num_shards, rank.count)
    return range(rank.id, num_shards, rank.count)


def check_ranks(num_shards: int, num_ranks: int) -> None:
    """Check that the ranks can share out the shards evenly.

    Raises:
        ArgumentError: the number of ranks does not divide the number of shards.
    """
    if num_shards % num_ranks == 0:
        return
    fewer = next(count for count in range(min(num_ranks, num_shards), 0, -1) if num_shards % count == 0)
    more = next((count for count in range(num_ranks + 1, num_shards + 1) if num_shards % count == 0), None)
    ranks = f"{fewer} ranks" if more is None else f"{fewer} or {more} ranks"
    below, above = num_shards // num_ranks * num_ranks, (num_shards // num_ranks + 1) * num_ranks
    shards = " or ".join(f"shards={count}" for count in (below, above) if count)
    raise ArgumentError(
        f"{num_ranks} ranks cannot share out {num_shards} logical shards evenly. Use {ranks}; or describe the dataset with "
        f"{shards}, which starts another stream"
    )


class Steps(NamedTuple):
    """The steps of a rank through an epoch with random access.

    Attributes:
        length: elements in an epoch; None if the stream is endless.
        batch_size: positions in a batch of one rank.
        rank: the rank.
        rest: the treatment of elements at the end that do not fill a step.
    """

    length: int | None
    batch_size: int
    rank: Shard
    rest: Rest

    @property
    def size(self) -> int:
        """Positions in a step, of all ranks together."""
        return self.batch_size * self.rank.count

    def first(self, begin: int) -> int:
        """Return the rank's first position in the step that begins at a position."""
        return step_positions(begin, self.batch_size, self.rank).start

    def count(self, begin: int) -> int:
        """Return the size of the rank's batch in the step that begins at a position; 0 without a batch."""
        if self.length is None or begin + self.size <= self.length:
            return self.batch_size
        if begin >= self.length or self.rest is Rest.DROP:
            return 0
        if self.rest is Rest.PAD:
            return self.batch_size
        return len(range(self.first(begin), self.length, self.rank.count))

    def sizes(self) -> Sizes | None:
        """Return the number of the rank's batches in an epoch, and the size of the last one; None: the epoch is endless."""
        if self.length is None:
            return None
        full = self.length // self.size
        last = self.count(full * self.size)
        return Sizes(full + 1, last) if last else Sizes(full, self.batch_size)
