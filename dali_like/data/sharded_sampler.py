"""Batches of one rank, in a common order of all ranks that needs no memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import flag, not_negative, positive
from dali_like.common.suggestions import suggest_arguments
from dali_like.data.sampler_iterators import SamplerIterator, count_in
from dali_like.data.samplers import Sampler
from dali_like.errors import CheckpointError
from dali_like.sources.permutation import Permutation
from dali_like.sources.ranks import choose_shard
from dali_like.sources.sharding import Division

__all__ = ["ShardedBatchSampler", "ShardedBatches"]


class ShardedBatchSampler(Sampler[list[int]]):
    """Lists of indices for one of several ranks: a loader's ``batch_sampler`` with the batches of sharded sources.

    In iteration i, rank r has batch ``i * num_shards + r`` of the epoch; see `dali_like.sources.sharding`. All ranks
    together have the same samples in an iteration as with a `DistributedSampler` of the same order. In contrast to it, each
    rank computes only its own indices, from the seed and the epoch, for any length. A state can be loaded with another
    number of ranks, if all ranks together have as many samples per iteration: the loader continues with the next batch.

    Args:
        dataset: an object with a length.
        batch_size: samples in a batch of one rank.
        shuffle: whether the order is random; see `Permutation`.
        seed: must be the same on all ranks.
        shard_id, num_shards: number of this rank, and number of ranks. None: see `dali_like.sources.ranks.detect_shard`.
        shard_rest: how to treat the last samples if they do not fill a batch on each rank: "drop", "pad" or "uneven", as for
            ``fn.external_source``.
        mesh, mesh_dims: instead of `shard_id` and `num_shards`; see `dali_like.data.DataLoader`.

    Raises:
        ArgumentError, ArgumentTypeError: an argument has a wrong value or type.

    >>> [list(ShardedBatchSampler("abcdef", 2, False, shard_id=i, num_shards=2, shard_rest="pad")) for i in range(2)]
    [[[0, 1], [4, 5]], [[2, 3], [0, 1]]]
    """

    @suggest_arguments
    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        *,
        shard_id: int | None = None,
        num_shards: int | None = None,
        shard_rest: str = "drop",
        mesh: Any = None,
        mesh_dims: str | int | Sequence[str | int] | None = None,
    ) -> None:
        auto = "auto" if shard_id is None and num_shards is None and mesh is None else None
        shard, rest = choose_shard(auto, shard_id, num_shards, shard_rest, mesh, mesh_dims)
        assert shard is not None
        self.dataset = dataset
        self.batch_size = positive("batch_size", batch_size)
        self.shuffle = flag("shuffle", shuffle)
        self.seed = not_negative("seed", seed)
        self.shard = shard
        self.rest = rest
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterator. An iterator keeps the epoch of its beginning."""
        self.epoch = not_negative("epoch", epoch)

    def __iter__(self) -> SamplerIterator[list[int]]:
        return ShardedBatches(self._division, self._order, self.seed, self.epoch)

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        return self._division.sizes().num_batches

    @property
    def _division(self) -> Division:
        return Division(len(self.dataset), self.batch_size, self.shard, self.rest)

    def _order(self, seed: int, epoch: int) -> Permutation | None:
        return Permutation(len(self.dataset), seed, epoch) if self.shuffle else None


class _EpochOrder(Protocol):
    def __getitem__(self, position: NDArray[Any], /) -> NDArray[np.int64]: ...


class ShardedBatches(SamplerIterator[list[int]]):
    """An iterator over the batches of a rank.

    Args:
        division: the rank's part of an epoch.
        order: returns the order of an epoch: the indices at an array of positions; None for the order of the dataset.
        seed, epoch: the arguments of `order`.
        options: other numbers that the order depends on. States with other ones are refused.
    """

    def __init__(
        self, division: Division, order: Callable[[int, int], _EpochOrder | None], seed: int, epoch: int, **options: int
    ) -> None:
        assert division.length is not None
        self._options = options
        self._division = division
        self._length = division.length
        self._num_batches, self._last = division.sizes()
        self._order_of = order
        self._taken = 0
        self._begin(seed, epoch)

    def _begin(self, seed: int, epoch: int) -> None:
        self._seed, self._epoch = seed, epoch
        self._order = self._order_of(seed, epoch)

    def __next__(self) -> list[int]:
        if self._taken >= self._num_batches:
            raise StopIteration
        division = self._division
        first = division.shard.first(self._taken, division.size)
        self._taken += 1
        size = self._last if self._taken == self._num_batches else division.size
        positions = division.item(np.arange(first, first + size))
        indices: list[int] = (positions if self._order is None else self._order[positions]).tolist()
        return indices

    def skip(self, count: int) -> None:
        # With "uneven", a state may be behind the last batch of this rank, and before that of another one.
        if self._taken + count > -(-self._length // self._division.step):
            raise StopIteration
        self._taken += count

    def state_dict(self) -> dict[str, Any]:
        """Return the position. It only depends on the samples per iteration of all ranks, not on their number."""
        return {
            "total": self._length,
            "global_batch": self._division.step,
            "seed": self._seed,
            "epoch": self._epoch,
            "taken": self._taken,
            **self._options,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        expected = {"total": self._length, "global_batch": self._division.step}
        for name, here in expected.items():
            if (there := count_in(state_dict, name)) != here:
                quantity = "samples in an epoch" if name == "total" else "samples per iteration of all ranks together"
                raise CheckpointError(f"Invalid state_dict: it is of a sampler with {there} {quantity}, and this has {here}")
        for name, here in self._options.items():
            if (there := count_in(state_dict, name)) != here:
                raise CheckpointError(
                    f"Invalid state_dict: it is of a sampler with {name}={there}, and this has {name}={here}"
                )
        taken = count_in(state_dict, "taken")
        self._begin(count_in(state_dict, "seed"), count_in(state_dict, "epoch"))
        self._taken = taken
