"""Samplers: the order of the samples of a dataset, with the names, arguments and errors of ``torch.utils.data``.

A sampler is an iterable of indices, or of lists of indices. Its iterators can be stored and resumed (see
`dali_like.data.sampler_iterators`); they draw random numbers only when they need them.

Random samplers take a ``generator``: a `numpy.random.Generator`; a seed for one; or a ``torch.Generator``, from which they
draw the same indices as PyTorch's samplers. Successive epochs continue with the same generator. Without one, each iterator
makes its own, with a seed from NumPy's global generator; ``numpy.random.seed`` makes that reproducible.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.common.suggestions import suggest_arguments
from dali_like.data.generators import NumpyRandomness, Randomness, as_generator
from dali_like.data.index_iterators import (
    BatchIterator,
    DrawingIterator,
    Draws,
    EpochIterator,
    ItemIterator,
    SequenceIterator,
)
from dali_like.data.sampler_iterators import resumable
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, MissingMethodError
from dali_like.sources.sharding import Division, Rest, Shard

__all__ = [
    "BatchSampler",
    "DistributedSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

T_co = TypeVar("T_co", covariant=True)

#: With replacement, blocks of this many numbers are drawn, as in PyTorch: an abandoned iterator wastes few.
_BLOCK = 32


class Sampler(Generic[T_co]):
    """Base class of samplers. They have ``__iter__``, and usually ``__len__``.

    A loader can resume a sampler exactly if the iterators have ``state_dict`` and ``load_state_dict``, or if ``__iter__``
    yields the same indices in each process.

    >>> class EvenSampler(Sampler[int]):
    ...     def __init__(self, data_source): self.data_source = data_source
    ...     def __iter__(self): return iter(range(0, len(self.data_source), 2))
    >>> list(EvenSampler("abcde"))
    [0, 2, 4]
    """

    #: The random numbers of samplers without a generator, and of `DistributedSampler`. With `TorchRandomness`, a subclass
    #: yields the indices of PyTorch's sampler.
    randomness: ClassVar[type[Randomness]] = NumpyRandomness

    def __iter__(self) -> Iterator[T_co]:
        raise MissingMethodError(f"Subclasses of Sampler should implement __iter__. {type(self).__qualname__} does not.")


class SequentialSampler(Sampler[int]):
    """All indices in order.

    Args:
        data_source: an object with a length.

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    @suggest_arguments
    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> SequenceIterator:
        return SequenceIterator(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order.

    Args:
        data_source: an object with a length.
        replacement: whether to draw with replacement.
        num_samples: number of indices per epoch; None: the length of the data source. Without replacement, larger numbers
            are made of several permutations.
        generator: see `dali_like.data.samplers`.

    Raises:
        ArgumentTypeError: `replacement` is not a bool, or `generator` is neither a generator nor a seed.
        ArgumentError: `num_samples` is not a positive integer, or the data source is empty.

    >>> sorted(RandomSampler("abcde"))
    [0, 1, 2, 3, 4]
    >>> list(RandomSampler("abcde", generator=1)) == list(RandomSampler("abcde", generator=1))
    True
    """

    @suggest_arguments
    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = as_generator(generator)
        if not isinstance(replacement, bool):
            raise ArgumentTypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        check_total(len(data_source), num_samples, self.num_samples)

    @property
    def num_samples(self) -> int:
        """The argument, or the current length of the data source."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> DrawingIterator:
        length, total = len(self.data_source), self.num_samples
        check_total(length, self._num_samples, total)
        return random_indices(length, total, self.replacement, self.generator, self.randomness)

    def __len__(self) -> int:
        return self.num_samples


def random_indices(
    length: int, total: int, replacement: bool, generator: Any, randomness: type[Randomness]
) -> DrawingIterator:
    """Begin an iterator over random indices, as that of a `RandomSampler`.

    Args:
        length: of the data source.
        total: number of indices.
        randomness: makes a generator in place of None.
    """
    if replacement:
        draws = Draws(total, _BLOCK, total // _BLOCK + 1, lambda source, count: source.integers(length, count))
    else:
        # The last permutation is drawn even if unused, as in PyTorch: the next epoch depends on it.
        draws = Draws(total, length, total // length + 1, lambda source, count: source.permutation(length)[:count])
    return DrawingIterator(draws, generator, randomness)


def check_total(length: int, num_samples: int | None, total: int) -> None:
    """Check how many indices are drawn from a data source of some length.

    Raises:
        ArgumentError: the number is not a positive integer, or the data source is empty.
    """
    if num_samples is None and not length:
        error = ArgumentError("num_samples should be a positive integer value, but got num_samples=0")
        error.add_note("the dataset is empty. Check what it reads")
        raise error
    _check_positive("num_samples", total)
    if not length:
        raise ArgumentError(f"num_samples={total} cannot be drawn from an empty data source")


class SubsetRandomSampler(Sampler[T_co]):
    """Given indices in random order, each once.

    Args:
        indices: the indices.
        generator: see `dali_like.data.samplers`.

    >>> sorted(SubsetRandomSampler([3, 5, 8]))
    [3, 5, 8]
    """

    @suggest_arguments
    def __init__(self, indices: Sequence[T_co], generator: Any = None) -> None:
        self.indices = indices
        self.generator = as_generator(generator)

    def __iter__(self) -> ItemIterator[T_co]:
        length = len(self.indices)
        draws = Draws(length, length, 1, lambda source, count: source.permutation(count))
        return ItemIterator(self.indices, DrawingIterator(draws, self.generator, self.randomness))

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices with probabilities proportional to weights.

    Args:
        weights: a number for each sample; they need not sum to 1.
        num_samples: number of indices per epoch.
        replacement: whether to draw with replacement.
        generator: see `dali_like.data.samplers`.

    Raises:
        ArgumentError: `num_samples` is not a positive integer, `replacement` is not a bool, or the weights are not a 1d
            sequence.
        ArgumentTypeError: `generator` is neither a generator nor a seed.
        ArgumentClashError: a weight is negative or not finite; no weight is positive; or, without replacement, fewer than
            `num_samples` weights are positive. PyTorch raises these errors in the first epoch, and the last one not always.

    >>> list(WeightedRandomSampler([0, 0.5, 0], 3))
    [1, 1, 1]
    """

    @suggest_arguments
    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None) -> None:
        _check_positive("num_samples", num_samples)
        _check_bool("replacement", replacement)
        self.weights: NDArray[np.float64] = np.ascontiguousarray(weights, dtype=np.float64)
        if np.ndim(weights) != 1:
            raise ArgumentError(f"weights should be a 1d sequence but given weights have shape {tuple(np.shape(weights))}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = as_generator(generator)
        self._check_weights()

    def __iter__(self) -> DrawingIterator:
        self._check_weights()  # the array is mutable
        draws = Draws(self.num_samples, self.num_samples, 1, self._draw)
        return DrawingIterator(draws, self.generator, self.randomness)

    def __len__(self) -> int:
        return self.num_samples

    def _draw(self, source: Randomness, count: int) -> NDArray[np.int64]:
        return source.weighted(self.weights, count, self.replacement)

    def _check_weights(self) -> None:
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise ArgumentClashError("probability tensor contains either `inf`, `nan` or element < 0: check the weights")
        possible = int(np.count_nonzero(self.weights))
        if not possible:
            raise ArgumentClashError("invalid multinomial distribution (sum of probabilities <= 0): no weight is positive")
        if not self.replacement and self.num_samples > possible:
            raise ArgumentClashError(
                f"cannot sample n_sample > prob_dist.size(-1) samples without replacement: num_samples={self.num_samples}, "
                f"and {possible} of {len(self.weights)} weights are positive"
            )


class BatchSampler(Sampler[list[T_co]]):
    """Lists of indices from another sampler.

    Args:
        sampler: an iterable of indices.
        batch_size: number of indices per batch.
        drop_last: whether to drop a last batch that is smaller.

    Raises:
        ArgumentError: `batch_size` is not a positive integer, or `drop_last` is not a bool.

    >>> list(BatchSampler(SequentialSampler("abcde"), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    @suggest_arguments
    def __init__(self, sampler: Iterable[T_co], batch_size: int, drop_last: bool) -> None:
        check_batches(batch_size, drop_last)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> BatchIterator[T_co]:
        return BatchIterator(lambda: resumable(self.sampler), self.batch_size, self.drop_last)

    def __len__(self) -> int:
        """Return the number of batches.

        Raises:
            TypeError: the sampler has no length.
        """
        length = len(self.sampler)  # type: ignore[arg-type]
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def check_batches(batch_size: Any, drop_last: Any) -> None:
    """Check the arguments of a `BatchSampler`.

    Raises:
        ArgumentError: `batch_size` is not a positive integer, or `drop_last` is not a bool.
    """
    _check_positive("batch_size", batch_size)
    _check_bool("drop_last", drop_last)


class DistributedSampler(Sampler[int]):
    """The part of one process in the indices of a dataset. All processes have equally many.

    Process `rank` takes every `num_replicas`-th index, beginning at position `rank`. If the length is not divisible, the
    first indices are repeated at the end, or with `drop_last` the last ones are dropped.

    The order depends only on the seed and the epoch. Call `set_epoch` before each epoch, or all epochs have the same order.
    An iterator keeps the epoch of its beginning.

    Args:
        dataset: an object with a length, which may grow between epochs.
        num_replicas: number of processes. None: the world size of ``torch.distributed``, which must be initialized.
        rank: number of this process. None: its rank in ``torch.distributed``.
        shuffle: whether the order is random.
        seed: must be the same in all processes.
        drop_last: whether to drop indices instead of repeating some.

    Raises:
        ArgumentError: `rank` is not below `num_replicas`, or is negative.
        ArgumentClashError: an argument is None, and ``torch.distributed`` is not imported or not initialized.

    >>> [list(DistributedSampler(range(5), num_replicas=2, rank=rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    @suggest_arguments
    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = int(_process_group("num_replicas").get_world_size())
        if rank is None:
            rank = int(_process_group("rank").get_rank())
        if not 0 <= rank < num_replicas:
            raise ArgumentError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last

    @property
    def num_samples(self) -> int:
        """Number of indices of each process."""
        return self._division.sizes().num_batches

    @property
    def _division(self) -> Division:
        rest = Rest.DROP if self.drop_last else Rest.PAD
        return Division(len(self.dataset), 1, Shard(self.rank, self.num_replicas), rest)

    @property
    def total_size(self) -> int:
        """Number of indices of all processes together."""
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterator."""
        self.epoch = epoch

    def __iter__(self) -> EpochIterator:
        return EpochIterator(self._indices_of, int(self.seed), int(self.epoch))

    def __len__(self) -> int:
        return self.num_samples

    def _indices_of(self, seed: int, epoch: int) -> NDArray[np.int64]:
        division = self._division
        positions: NDArray[np.int64] = division.item(division.shard.batch(np.arange(division.sizes().num_batches)))
        return self.randomness.of_epoch(seed, epoch).permutation(len(self.dataset))[positions] if self.shuffle else positions


def _process_group(argument: str) -> Any:
    """Return ``torch.distributed``. It is not imported here: a program that uses it has imported it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        raise ArgumentClashError(f"Requires distributed package to be available, or {argument} to be given")
    if not distributed.is_initialized():
        raise ArgumentClashError(
            "Default process group has not been initialized, please make sure to call init_process_group. "
            f"Or give {argument}."
        )
    return distributed


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ArgumentError(f"{name} should be a positive integer value, but got {name}={value}")


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} should be a boolean value, but got {name}={value}")
