"""Arithmetic of positions, logical shards and ranks.

Output k of logical shard s of L has the position ``k * L + s``. Rank r of R delivers the positions p with ``p % R == r``:
its batches are stripes, see `dali_like.sources.sharding`. So with shards, it owns the shards ``s % R == r``, and R must
divide L.

The state of a stream is the number of positions that all ranks together have passed. It is independent of the number of
ranks and of the batch size.

Arguments may be NumPy arrays, except in messages.
"""

from __future__ import annotations

from typing import Any

from dali_like.errors import ArgumentError
from dali_like.sources.sharding import Shard

__all__ = ["check_ranks", "num_delivered", "owned_shards"]

#: Default number of logical shards: divisible by 1 to 6, 10, 12, 15, 20 and 30 ranks.
DEFAULT_SHARDS = 60


def num_delivered(position: Any, shard: Any, num_shards: int) -> Any:
    """Return how many outputs of a shard lie before a position.

    >>> [num_delivered(5, shard, 3) for shard in range(3)]
    [2, 2, 1]
    """
    return (position - shard + num_shards - 1) // num_shards


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
