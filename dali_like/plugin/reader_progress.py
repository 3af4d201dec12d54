"""Count the batches of an iterator's epoch by the shards of a reader, as ``nvidia.dali`` 1.53 does. Main process only.

The readers of all pipelines, and of all ranks, read different shards of one dataset. All of them have equally many batches
in an epoch, as many as the largest shard needs, or with DROP the smallest.

With FILL and without padding, the last batch takes samples of the next epoch. Each shard then has a part of that epoch
already. Since shards differ by a sample, these parts may differ by a batch.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence

from dali_like.errors import IteratorArgumentError
from dali_like.plugin.epoch_progress import LastBatchPolicy
from dali_like.sources.sharding import part_begins


class ReaderProgress:
    """Number of samples taken from each shard in an epoch of a reader; see `EpochProgress` for the methods.

    Args:
        metas: the result of `Pipeline.reader_meta` for each pipeline.
        policy: the treatment of the last batch.
        batch_size: samples in a batch of one pipeline.

    Raises:
        IteratorArgumentError: the readers have datasets of different sizes, or other differences than the shard.
    """

    def __init__(self, metas: Sequence[Mapping[str, int]], policy: LastBatchPolicy, batch_size: int) -> None:
        for name, what in (
            ("epoch_size", "size of the dataset"),
            ("number_of_shards", "num_shards"),
            ("pad_last_batch", "pad_last_batch"),
            ("stick_to_shard", "stick_to_shard"),
        ):
            if len({meta[name] for meta in metas}) > 1:
                raise IteratorArgumentError(
                    f"the readers of all pipelines must have the same {what}; these have {[meta[name] for meta in metas]}"
                )
        meta = metas[0]
        size, num_shards = meta["epoch_size"], meta["number_of_shards"]
        self._policy = policy
        self._batch_size = batch_size
        self._sticks = bool(meta["stick_to_shard"])
        self._carries_over = policy is LastBatchPolicy.FILL and not meta["pad_last_batch"]
        self._sizes = [end - begin for begin, end in itertools.pairwise(part_begins(size, num_shards))]
        self._first_shards = [meta["shard_id"] for meta in metas]
        if policy is LastBatchPolicy.DROP:
            self._first_size = size // num_shards
        elif meta["pad_last_batch"]:
            self._first_size = meta["epoch_size_padded"] // num_shards
        else:
            self._first_size = self._whole_batches(math.ceil(size / num_shards))
        self._begin()

    def _begin(self) -> None:
        #: Finished epochs, and batches of this one.
        self._epoch = self._num_batches = 0
        self._shards = list(self._first_shards)
        #: The samples of each shard in this epoch, in the order of ranks; and how many of them the epoch before has taken.
        self._left = list(self._sizes)
        self._taken_before = [0] * len(self._sizes)
        self._count = 0
        self.size = self._first_size

    def _whole_batches(self, samples: int) -> int:
        return math.ceil(samples / self._batch_size) * self._batch_size

    @property
    def is_complete(self) -> bool:
        """Whether all batches of the epoch have been taken."""
        return self._count >= self.size or self._must_end

    @property
    def _must_end(self) -> bool:
        """Whether DROP leaves out the next batch, because a shard cannot fill it."""
        return self._policy is LastBatchPolicy.DROP and self._count + self._batch_size > min(self._sizes)

    @property
    def must_drop(self) -> bool:
        """Whether a complete epoch still has samples in the stream, in a batch that DROP leaves out."""
        return self._must_end and self._count < self.size

    def within(self, lengths: Sequence[int]) -> list[int]:
        """Return how many samples of the next batches, of the given lengths, belong to the epoch."""
        return [
            max(0, min(length, self._sizes[shard] - self._count))
            for length, shard in zip(lengths, self._shards, strict=True)
        ]

    def take(self, lengths: Sequence[int]) -> list[int]:
        """Count the next batch of each pipeline. Return how many samples of each to deliver."""
        counts = self.within(lengths) if self._policy is LastBatchPolicy.PARTIAL else list(lengths)
        self._count += self._batch_size
        self._num_batches += 1
        return counts

    @property
    def _state(self) -> tuple[object, ...]:
        """The state at the beginning of an epoch."""
        return self.size, self._count, *self._shards, *self._left, *self._taken_before

    @property
    def position(self) -> tuple[int, int]:
        """Number of finished epochs, and of batches taken in this one."""
        return self._epoch, self._num_batches

    @position.setter
    def position(self, position: tuple[int, int]) -> None:
        self._begin()
        epoch, num_batches = position
        met = {self._state: 0}
        while self._epoch < epoch:
            self._count += self.num_batches(of_next=False) * self._batch_size
            self.begin_next()
            period = self._epoch - met.setdefault(self._state, self._epoch)
            if period:  # epochs repeat from here on, so skip the bulk of a large number
                self._epoch += (epoch - self._epoch) // period * period
                met.clear()
        self._num_batches = num_batches
        self._count += num_batches * self._batch_size

    def begin_next(self) -> None:
        """Begin the next epoch after a complete one. Follows ``_DaliBaseIterator.reset`` of DALI."""
        self._epoch += 1
        self._num_batches = 0
        if not self._sticks:
            self._shards = [(shard + 1) % len(self._sizes) for shard in self._shards]
        if not self._carries_over:
            self._count = 0
            return
        taken = self._count - min(self._taken_before)
        self._taken_before = [before + taken - left for before, left in zip(self._taken_before, self._left, strict=True)]
        self._count = min(self._taken_before)
        if not self._sticks:
            self._roll()
        self.size = self._whole_batches(
            max(left - before for left, before in zip(self._left, self._taken_before, strict=True))
        )
        if not self.size:  # the epoch before has taken all of this one
            self._taken_before = [0] * len(self._sizes)
            self._count = 0
            self._roll()
            self.size = self._whole_batches(max(self._left))

    def _roll(self) -> None:
        self._left = [self._left[-1], *self._left[:-1]]

    def restart(self) -> None:
        """Forget all progress."""
        self._begin()

    def num_batches(self, *, of_next: bool) -> int:
        """Return the number of batches in this epoch, or in the next one."""
        if of_next:
            following = copy.deepcopy(self)
            following.begin_next()
            return following.num_batches(of_next=False)
        if self._policy is LastBatchPolicy.DROP:
            return min(self._sizes) // self._batch_size
        return math.ceil(self.size / self._batch_size)
