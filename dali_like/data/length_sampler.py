"""Batches of samples of similar length, for one rank or several."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dali_like.common.checks import positive
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.data.sharded_sampler import ShardedBatches, ShardedBatchSampler
from dali_like.errors import ArgumentError
from dali_like.sources.permutation import Permutation

__all__ = ["LengthBatchSampler"]


class LengthBatchSampler(ShardedBatchSampler):
    """Lists of indices of samples of similar length: a loader's ``batch_sampler`` for data that is padded.

    The epoch is shuffled and cut into windows. A window is sorted by length, cut into batches, and these come in random
    order. So a batch has little padding, and the order of lengths is random. With several ranks, the batches of an iteration
    have similar lengths on all ranks. The last samples, which do not fill a batch on each rank, are not sorted, so that no
    length is dropped more often than another.

    Its iterators have states, as those of `ShardedBatchSampler`: a loader resumes exactly, also on another number of ranks
    if all ranks together have as many samples per iteration.

    Args:
        lengths: one number for each sample of the dataset, such as its tokens, seconds or pixels.
        batch_size: samples in a batch of one rank.
        shuffle: whether the order is random. Otherwise windows follow the order of the dataset, and
            the batches of a window become longer and longer.
        seed: must be the same on all ranks.
        window: iterations that are sorted together. More of them have less padding, and a less random order.
        options: see `ShardedBatchSampler`: `shard_id`, `num_shards`, `shard_rest`, `mesh`, `mesh_dims`.

    Raises:
        ArgumentError, ArgumentTypeError: an argument has a wrong value or type.

    >>> list(LengthBatchSampler([5, 90, 7, 80], batch_size=2, shuffle=False))
    [[0, 2], [3, 1]]
    """

    def __init__(
        self,
        lengths: ArrayLike,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        *,
        window: int = 64,
        **options: Any,
    ) -> None:
        numbers = np.asarray(lengths)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
            raise ArgumentError(
                f"lengths should have one number for each sample, but got an array of {numbers.dtype}, shape {numbers.shape}"
            )
        super().__init__(numbers, batch_size, shuffle, seed, **options)
        self.lengths = numbers
        self.window = positive("window", window)

    def __iter__(self) -> SamplerIterator[list[int]]:
        return ShardedBatches(self._division, self._order, self.seed, self.epoch, window=self.window)

    def _order(self, seed: int, epoch: int) -> Any:
        shuffled = super()._order(seed, epoch)
        return _LengthOrder(self.lengths, shuffled, int(self.shard.count), self.batch_size, self.window, (seed, epoch))


class _LengthOrder:
    """The indices of an epoch, sorted in windows.

    Args:
        shuffled: the order of the epoch before; None for the order of the dataset.
        entropy: numbers that the order of batches depends on.
    """

    def __init__(
        self,
        lengths: NDArray[Any],
        shuffled: Permutation | None,
        num_shards: int,
        batch_size: int,
        window: int,
        entropy: Sequence[int],
    ) -> None:
        self._lengths = lengths
        self._shuffled = shuffled
        self._shards, self._size = num_shards, batch_size
        step = num_shards * batch_size
        self._window = window * step
        self._end = len(lengths) // step * step
        self._entropy = entropy
        #: The indices of a window. A batch is in one window, or, with padding at the end, in two.
        self._sorted = functools.lru_cache(2)(self._sort)

    def __getitem__(self, position: NDArray[Any], /) -> NDArray[np.int64]:
        indices = self._before(position)
        for number in np.unique(position[position < self._end] // self._window).tolist():
            inside = (position < self._end) & (position // self._window == number)
            indices[inside] = self._sorted(number)[position[inside] - number * self._window]
        return indices

    def _before(self, positions: NDArray[Any]) -> NDArray[np.int64]:
        return positions.astype(np.int64) if self._shuffled is None else self._shuffled[positions]

    def _sort(self, number: int) -> NDArray[np.int64]:
        """Return the indices of a window: its iterations in random order, the samples of each dealt to the ranks."""
        begin = number * self._window
        indices = self._before(np.arange(begin, min(begin + self._window, self._end)))
        steps = indices[np.argsort(self._lengths[indices], kind="stable")].reshape(-1, self._size, self._shards)
        steps[:, 1::2] = steps[:, 1::2, ::-1]  # there and back: no rank has always the longer ones
        if self._shuffled is not None:
            (seed,) = np.random.SeedSequence([*self._entropy, number]).generate_state(1, np.uint64).tolist()
            steps = steps[Permutation(len(steps), seed)[np.arange(len(steps))]]
        return steps.transpose(0, 2, 1).ravel()
