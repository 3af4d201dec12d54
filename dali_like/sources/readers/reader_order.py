"""The order in which a reader delivers samples: a function of the position in its stream.

The stream of a reader has no end. Without shuffling, its order is that of ``nvidia.dali`` 1.53: shard s of n begins at
sample ``size * s // n``. Epoch e of a reader delivers the shard ``(s + e) % n``, or always s with `stick_to_shard`. With
`pad_last_batch`, the last sample of each shard is repeated, so that all shards have equally many full batches.

With shuffling, the order is random in each epoch. A generator shared by all ranks divides the samples of an epoch among the
shards, so together the ranks deliver each sample once per epoch, whatever their seeds are. With `shuffle_after_epoch`, that
is the order of the samples: it depends on the epoch, the number of samples and `shuffle_after_epoch_seed` only, so readers
of corresponding files deliver pairs, also in several pipelines. Readers of files with many samples shuffle the files, whose
samples stay together. With `random_shuffle`, each rank then shuffles its shard with its own seed. DALI shuffles within a
buffer of `initial_fill` samples instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.sources.caching.cached_callback import Key
from dali_like.sources.permutation import Permutation
from dali_like.sources.sharding import part_begins

#: Default seed of the order of `shuffle_after_epoch`, and of the division among shards: the same in all ranks and readers.
_COMMON_SEED = 0x5A4D
#: Epochs whose permutations are kept: tasks of two epochs may alternate at their border.
_MOST_EPOCHS = 3


@dataclass(frozen=True, kw_only=True)
class ReaderOptions:
    """Arguments of all readers that change the order of samples. The names follow ``nvidia.dali.fn.readers``.

    Attributes:
        random_shuffle: deliver the samples in a random order, another one in each epoch.
        shuffle_after_epoch: the same, but the order has a seed of its own, and each epoch reads the same shard of it.
        shuffle_after_epoch_seed: of the order of `shuffle_after_epoch`; None: a fixed one.
        shard_id: the shard to read, from 0 on.
        num_shards: the number of shards.
        stick_to_shard: read the same shard in each epoch. Otherwise the next epoch reads the next shard.
        pad_last_batch: repeat the last sample of the shard, so that epochs of all shards have equally many full batches.
        seed: of the order of `random_shuffle`; negative: the seed of the pipeline.
        shuffles_files: whether `shuffle_after_epoch` is about files with many samples each, so that `random_shuffle` may be
            given, too.

    Raises:
        ArgumentError: a value is out of range.
        ArgumentClashError: two arguments contradict each other.
    """

    random_shuffle: bool = False
    shuffle_after_epoch: bool = False
    shuffle_after_epoch_seed: int | None = None
    shard_id: int = 0
    num_shards: int = 1
    stick_to_shard: bool = False
    pad_last_batch: bool = False
    seed: int = -1
    shuffles_files: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.shard_id < self.num_shards:
            raise ArgumentError(
                f"num_shards needs to be greater than shard_id, which counts from 0: got num_shards={self.num_shards} and "
                f"shard_id={self.shard_id}"
            )
        for name in ("random_shuffle", "stick_to_shard")[self.shuffles_files :]:
            if self.shuffle_after_epoch and getattr(self, name):
                raise ArgumentClashError(f"shuffle_after_epoch and {name} cannot be both true: leave {name} out")

    @property
    def shuffles(self) -> bool:
        """Whether the order is random."""
        return self.random_shuffle or self.shuffle_after_epoch

    @property
    def sticks(self) -> bool:
        """Whether each epoch reads the same shard."""
        return self.stick_to_shard or self.shuffle_after_epoch

    def check_size(self, size: int) -> None:
        """Refuse a dataset that is too small for the shards.

        Raises:
            ArgumentError: there are fewer samples than shards.
        """
        if size < self.num_shards:
            raise ArgumentError(
                f"The number of input samples: {size}, needs to be at least equal to the requested number of shards: "
                f"{self.num_shards}"
            )

    def meta(self, size: int) -> dict[str, int]:
        """Return the result of `Pipeline.reader_meta` for a dataset of `size` samples."""
        padded = math.ceil(size / self.num_shards) * self.num_shards if self.pad_last_batch else size
        return {
            "epoch_size": size,
            "epoch_size_padded": padded,
            "number_of_shards": self.num_shards,
            "shard_id": self.shard_id,
            "pad_last_batch": int(self.pad_last_batch),
            "stick_to_shard": int(self.sticks),
        }

    def batches_per_epoch(self, size: int, batch_size: int) -> int:
        """Return the number of batches that deliver the largest shard."""
        largest = math.ceil(size / self.num_shards)
        return math.ceil(largest / batch_size)


class ReaderOrder:
    """Samples of a reader by their position in its stream. Any thread may ask.

    Args:
        size: samples in the dataset.
        batch_size: samples in a batch.
        options: of the reader.
        seed: of the order, not negative.
        file_sizes: samples in each file, if `shuffle_after_epoch` shuffles files; else None.
    """

    def __init__(
        self, size: int, batch_size: int, options: ReaderOptions, seed: int, file_sizes: Sequence[int] | None = None
    ) -> None:
        self._size = size
        self._options = options
        self._seed = seed
        chosen = options.shuffle_after_epoch_seed if options.shuffle_after_epoch else None
        self._common_seed = _COMMON_SEED if chosen is None else chosen % (1 << 64)  # DALI's may be negative
        self._padded_size = options.batches_per_epoch(size, batch_size) * batch_size
        self._begins = begins = part_begins(size, options.num_shards)
        self._first = begins[options.shard_id]
        self._stuck_size = begins[options.shard_id + 1] - self._first
        self._permutations: dict[Any, Permutation | _FileOrder] = {}
        self._file_sizes = file_sizes if options.shuffle_after_epoch else None

    def index(self, position: int) -> int:
        """Return the number of the sample at a position of the stream."""
        options = self._options
        num_shards, begins = options.num_shards, self._begins
        if options.pad_last_batch:
            epoch, offset = divmod(position, self._padded_size)
            shard = options.shard_id if options.sticks else (options.shard_id + epoch) % num_shards
            offset = min(offset, begins[shard + 1] - begins[shard] - 1)
        elif options.sticks:
            epoch, offset = divmod(position, self._stuck_size)
            shard = options.shard_id
        else:  # shard after shard, so the stream goes through the dataset again and again
            turn, place = divmod(self._first + position, self._size)
            if not options.shuffles:
                return place
            shard = self._shard_of(place)
            epoch = turn * num_shards + shard - options.shard_id
            offset = place - begins[shard]
        begin = begins[shard]
        if not options.shuffles:
            return begin + offset
        if options.random_shuffle:
            offset = self._permutation(begins[shard + 1] - begin, self._seed, epoch)[offset]
            if num_shards == 1:
                return offset
        # All ranks read epoch e of their streams at the same time.
        return self._common_permutation(epoch)[begin + offset]

    def key_of(self, info: Any) -> Key:
        """Return the number of a sample, and the epoch of its position, for a sample cache."""
        return self.index(info.idx_in_epoch), info.idx_in_epoch // max(self._padded_size, 1)

    def _shard_of(self, place: int) -> int:
        """Return the shard of a sample in the order of the dataset."""
        shard = place * self._options.num_shards // self._size
        return shard + (place >= self._begins[shard + 1])

    def _permutation(self, length: int, seed: int, epoch: int) -> Permutation | _FileOrder:
        return self._kept((length, seed, epoch), lambda: Permutation(length, seed, epoch))

    def _common_permutation(self, epoch: int) -> Permutation | _FileOrder:
        sizes, seed = self._file_sizes, self._common_seed
        if sizes is None:
            return self._permutation(self._size, seed, epoch)
        return self._kept(("files", epoch), lambda: _FileOrder(sizes, Permutation(len(sizes), seed, epoch)))

    def _kept(self, key: Any, make: Callable[[], Permutation | _FileOrder]) -> Permutation | _FileOrder:
        permutation = self._permutations.get(key)
        if permutation is None:
            for oldest in list(self._permutations)[: 1 - 2 * _MOST_EPOCHS]:
                self._permutations.pop(oldest, None)
            permutation = self._permutations[key] = make()
        return permutation


class _FileOrder:
    """The samples of files in another order of the files.

    Args:
        sizes: samples in each file.
        order: of the files.
    """

    def __init__(self, sizes: Sequence[int], order: Permutation) -> None:
        files = order[np.arange(len(sizes))]
        own_begins = np.cumsum([0, *sizes])
        self._begins = np.cumsum([0, *np.asarray(sizes, np.int64)[files]])  # of each file in this order
        self._shifts = own_begins[files] - self._begins[:-1]

    def __getitem__(self, place: int) -> int:
        return place + int(self._shifts[np.searchsorted(self._begins, place, "right") - 1])
