"""Datasets: what samples there are, with the names, arguments and errors of ``torch.utils.data``.

A map-style dataset gives the sample of a key (``__getitem__``), usually of an index below its length, and may give the
samples of a list of keys at once (``__getitems__``). An iterable one is walked through. A dataset is copied to every worker
process that loads from it.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dali_like.common.notices import warn
from dali_like.data.generators import NumpyRandomness, as_generator, randomness_of
from dali_like.errors import ArgumentError, ArgumentTypeError, DatasetError, MissingMethodError, SampleIndexError

__all__ = [
    "ArrayDataset",
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "random_split",
]

T_co = TypeVar("T_co", covariant=True)


class _Indexed(Protocol[T_co]):
    def __getitem__(self, index: Any, /) -> T_co: ...


#: To type checkers, what loaders and subsets take: samples by their keys, or one after the other. Programs need not say it.
Samples = _Indexed[T_co] | Iterable[T_co]


class Dataset(Generic[T_co]):
    """Base class of map-style datasets. They have a ``__getitem__``, and a ``__len__`` unless a sampler brings the keys.

    A ``__getitems__`` that takes a list of keys and returns a list of samples is used where there is one.

    >>> class Squares(Dataset[int]):
    ...     def __getitem__(self, index): return index**2
    ...     def __len__(self): return 3
    >>> both = Squares() + Squares()
    >>> [both[index] for index in range(len(both))]
    [0, 1, 4, 0, 1, 4]
    """

    def __getitem__(self, index: Any) -> T_co:
        raise MissingMethodError(f"Subclasses of Dataset should implement __getitem__. {type(self).__qualname__} does not.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Base class of datasets that are walked through. They have an ``__iter__``.

    Each worker walks through a copy of its own. `dali_like.get_worker_info` says which worker one is in, and how many there
    are, so that each can take its part.

    >>> class Lines(IterableDataset[str]):
    ...     def __init__(self, text): self.text = text
    ...     def __iter__(self): return iter(self.text.splitlines())
    >>> list(Lines("a") + Lines("b"))
    ['a', 'b']
    """

    def __add__(self, other: Dataset[Any]) -> ChainDataset[Any]:
        return ChainDataset([self, other])


class ArrayDataset(Dataset[tuple[Any, ...]]):
    """The rows of arrays: a sample is a tuple of one row of each. For arrays what ``TensorDataset`` is for tensors.

    Args:
        arrays: arrays with the same number of rows, kept as they are: memory maps, tensors, or anything else that has a
            ``shape`` and can be indexed. What has no shape, such as a list, becomes an array.

    Raises:
        DatasetError: there is no array, one has no dimensions, or their numbers of rows differ.

    >>> dataset = ArrayDataset(np.arange(6).reshape(3, 2), [[7], [8], [9]])
    >>> dataset[1], len(dataset)
    ((array([2, 3]), array([8])), 3)
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple(array if hasattr(array, "shape") else np.asarray(array) for array in arrays)
        if not arrays:
            raise DatasetError("ArrayDataset needs at least one array")
        if not all(len(array.shape) for array in self.arrays):
            raise DatasetError("ArrayDataset takes the rows of its arrays as samples, and one of them has no dimensions")
        rows = [array.shape[0] for array in self.arrays]
        if len(set(rows)) > 1:
            raise DatasetError(f"Size mismatch between tensors: the arrays have {', '.join(map(str, rows))} rows")

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(array[index] for array in self.arrays)

    def __len__(self) -> int:
        return int(self.arrays[0].shape[0])


class StackDataset(Dataset[Any]):
    """Several datasets side by side: a sample is a tuple, or a dict, of one sample of each.

    Args:
        args: datasets of the same length, whose samples become tuples.
        kwargs: or such datasets by name, whose samples become dicts.

    Raises:
        ArgumentError: there are no datasets, both kinds of them, or their lengths differ.

    >>> StackDataset(image="ab", label=[3, 4])[1]
    {'image': 'b', 'label': 4}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ArgumentError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, "
                "but both types are given."
            )
        if not (args or kwargs):
            raise ArgumentError("At least one dataset should be passed")
        self.datasets: tuple[Any, ...] | dict[str, Any] = args or kwargs
        lengths = [len(dataset) for dataset in self._columns()]
        if len(set(lengths)) > 1:
            raise ArgumentError(f"Size mismatch between datasets: their lengths are {', '.join(map(str, lengths))}")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        return self._sample([dataset[index] for dataset in self._columns()])

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """The samples of several keys, by the ``__getitems__`` of the datasets that have one.

        Raises:
            ArgumentError: one of them returned too few or too many.
        """
        columns = [_samples(dataset, indices) for dataset in self._columns()]
        for column in columns:
            if len(column) != len(indices):
                raise ArgumentError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}")
        return [self._sample(parts) for parts in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length

    def _columns(self) -> Iterable[Any]:
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def _sample(self, parts: Iterable[Any]) -> tuple[Any, ...] | dict[str, Any]:
        return dict(zip(self.datasets, parts, strict=True)) if isinstance(self.datasets, dict) else tuple(parts)


class ConcatDataset(Dataset[T_co]):
    """Several map-style datasets one after the other.

    Args:
        datasets: an iterable of them.

    Raises:
        DatasetError: there are none, or one is an IterableDataset.

    >>> dataset = ConcatDataset(["ab", "cde"])
    >>> dataset[2], dataset[-1], len(dataset), dataset.cumulative_sizes
    ('c', 'e', 5, [2, 5])
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise DatasetError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise DatasetError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, idx: int) -> T_co:
        """The sample of an index; negative ones count from the end.

        Raises:
            ArgumentError: a negative index is before the first sample.
            SampleIndexError: an index is behind the last one.
        """
        length = len(self)
        if idx < -length:
            raise ArgumentError(f"absolute value of index should not exceed dataset length, but got {idx} for {length}")
        if idx >= length:
            raise SampleIndexError(f"there is no sample {idx} in a dataset of {length}")
        position = idx + length if idx < 0 else idx
        number = bisect.bisect_right(self.cumulative_sizes, position)
        before = self.cumulative_sizes[number - 1] if number else 0
        sample: T_co = self.datasets[number][position - before]
        return sample

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[T_co]):
    """Several iterable datasets one after the other. Each is begun when the one before has ended.

    Args:
        datasets: an iterable of them. An iterator is used up by the first pass.

    Raises, while it is walked through or measured:
        DatasetError: one is no IterableDataset.
    """

    def __init__(self, datasets: Iterable[IterableDataset[T_co] | Dataset[T_co]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[T_co]:
        return itertools.chain.from_iterable(self._checked())

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise DatasetError("ChainDataset only supports IterableDataset")
            yield dataset


class Subset(Dataset[T_co]):
    """Chosen samples of a map-style dataset.

    Args:
        dataset: the whole one.
        indices: the keys of the chosen samples.

    Raises:
        MissingMethodError: a subclass has a ``__getitem__`` of its own and no ``__getitems__``, which would go past it.

    >>> dataset = Subset("abcde", [4, 0])
    >>> dataset[0], dataset.__getitems__([1, 0]), len(dataset)
    ('e', ['a', 'e'], 2)
    """

    def __init__(self, dataset: Samples[T_co], indices: Sequence[Any]) -> None:
        own = type(self)
        if own.__getitem__ is not Subset.__getitem__ and own.__getitems__ is Subset.__getitems__:
            raise MissingMethodError(
                f"{own.__name__} overrides __getitem__ but not __getitems__. When subclassing Subset and overriding "
                "__getitem__, you must also override __getitems__ to ensure DataLoader works correctly with your custom "
                "logic. A simple implementation:\n\n"
                "def __getitems__(self, indices):\n"
                "    return [self.__getitem__(idx) for idx in indices]"
            )
        self.dataset: Any = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> T_co:
        """The sample at a position of `indices`, or what the dataset has for a list of keys, given a list of positions."""
        sample: T_co = self.dataset[self._keys(idx) if isinstance(idx, list) else self.indices[idx]]
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[T_co]:
        """The samples at several positions, by the ``__getitems__`` of the dataset if it has one."""
        samples: list[T_co] = _samples(self.dataset, self._keys(indices))
        return samples

    def __len__(self) -> int:
        return len(self.indices)

    def _keys(self, positions: Iterable[int]) -> list[Any]:
        return [self.indices[position] for position in positions]


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Any = None) -> list[Subset[Any]]:
    """Divide a dataset at random into subsets that have no sample in common.

    Args:
        dataset: a map-style dataset.
        lengths: how many samples each subset has. Or fractions whose sum is 1: rounded down, and what is left goes to the
            first ones, one to each.
        generator: a `numpy.random.Generator`, a seed for one, or a ``torch.Generator``, which gives the subsets that
            PyTorch makes of it. None: a new one, seeded from NumPy's global state.

    Raises:
        ArgumentError: the lengths are not that of the dataset together, one is negative, or a fraction is not from 0 to 1.
        ArgumentTypeError: a length is not an integer, or `generator` neither a generator nor a seed.

    It warns of fractions that leave a subset without samples.

    >>> [len(subset) for subset in random_split("abcde", [0.5, 0.5])]
    [3, 2]
    """
    total = sum(lengths)
    if math.isclose(total, 1) and total <= 1:
        lengths = _lengths_of_fractions(lengths, dataset)
    elif total != len(dataset):
        raise ArgumentError("Sum of input lengths does not equal the length of the input dataset!")
    if not all(isinstance(length, (int, np.integer)) for length in lengths):
        raise ArgumentTypeError(f"lengths should be integers, or fractions that sum up to 1, but got {list(lengths)}")
    if min(lengths, default=0) < 0:
        raise ArgumentError(f"lengths should not be negative, but got {list(lengths)}")
    generator = as_generator(generator)
    source = NumpyRandomness.fresh() if generator is None else randomness_of(generator)
    indices = iter(source.permutation(len(dataset)).tolist())
    return [Subset(dataset, list(itertools.islice(indices, int(length)))) for length in lengths]


def _lengths_of_fractions(fractions: Sequence[float], dataset: Sized) -> list[int]:
    for index, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ArgumentError(f"Fraction at index {index} is not between 0 and 1")
    lengths = [math.floor(len(dataset) * fraction) for fraction in fractions]
    for number in range(len(dataset) - sum(lengths)):
        lengths[number % len(lengths)] += 1
    for index, length in enumerate(lengths):
        if not length:
            warn(f"Length of split at index {index} is 0. This might result in an empty dataset.", UserWarning)
    return lengths


def _samples(dataset: Any, keys: Sequence[Any]) -> list[Any]:
    """The samples of several keys, at once if the dataset can do that."""
    getitems = getattr(dataset, "__getitems__", None)
    samples: list[Any] = getitems(keys) if callable(getitems) else [dataset[key] for key in keys]
    return samples
