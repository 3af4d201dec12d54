"""Datasets with the names, arguments and errors of ``torch.utils.data``.

A map-style dataset returns the sample of a key (``__getitem__``), usually an index below its length. It may return the
samples of a list of keys at once (``__getitems__``). An iterable dataset is iterated. Each worker process of a loader has a
copy of the dataset.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dali_like.common.notices import warn
from dali_like.common.suggestions import suggest_arguments
from dali_like.common.user_objects import method_of
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


class _MapStyle(Protocol[T_co]):
    def __getitem__(self, index: Any, /) -> T_co: ...


#: The type of datasets for loaders and subsets: indexed or iterable. They need not derive from `Dataset`.
Samples = _MapStyle[T_co] | Iterable[T_co]


class Dataset(Generic[T_co]):
    """Base class of map-style datasets. They have ``__getitem__``, and ``__len__`` unless a sampler provides the keys.

    If a dataset has ``__getitems__``, the loader calls it with a list of keys; it returns the list of samples.

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
    """Base class of iterable datasets. They have ``__iter__``.

    Each worker iterates over its own copy. To load only a part in each, call `dali_like.get_worker_info` in ``__iter__``: it
    returns the number of the worker and the number of workers.

    >>> class Lines(IterableDataset[str]):
    ...     def __init__(self, text): self.text = text
    ...     def __iter__(self): return iter(self.text.splitlines())
    >>> list(Lines("a") + Lines("b"))
    ['a', 'b']
    """

    def __add__(self, other: Dataset[Any]) -> ChainDataset[Any]:
        return ChainDataset([self, other])


class ArrayDataset(Dataset[tuple[Any, ...]]):
    """The rows of arrays: a sample is a tuple of one row of each. The counterpart of ``TensorDataset``.

    Args:
        arrays: arrays with the same number of rows: memory maps, tensors, or other objects with a ``shape`` and an index
            operator. They are not copied. Objects without a shape, such as lists, become arrays.

    Raises:
        DatasetError: there is no array, an array has no dimensions, or the numbers of rows differ.

    >>> dataset = ArrayDataset(np.arange(6).reshape(3, 2), [[7], [8], [9]])
    >>> dataset[1], len(dataset)
    ((array([2, 3]), array([8])), 3)
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple(array if hasattr(array, "shape") else np.asarray(array) for array in arrays)
        if not arrays:
            raise DatasetError("ArrayDataset needs at least one array")
        if not all(len(array.shape) for array in self.arrays):
            raise DatasetError("ArrayDataset takes the rows of arrays as samples, and an array has no dimensions")
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
        args: datasets of the same length; samples are tuples.
        kwargs: or datasets of the same length by name; samples are dicts.

    Raises:
        ArgumentError: there are no datasets, there are both kinds, or their lengths differ.

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
        """Return the samples of several keys, by ``__getitems__`` of each dataset that has it.

        Raises:
            ArgumentError: a dataset returned too few or too many samples.
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
        datasets: an iterable of datasets.

    Raises:
        DatasetError: there are no datasets, or one is an IterableDataset.

    >>> dataset = ConcatDataset(["ab", "cde"])
    >>> dataset[2], dataset[-1], len(dataset), dataset.cumulative_sizes
    ('c', 'e', 5, [2, 5])
    """

    @suggest_arguments
    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise DatasetError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise DatasetError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, idx: int) -> T_co:
        """Return the sample of an index; a negative one counts from the end.

        Raises:
            ArgumentError: a negative index is out of range.
            SampleIndexError: the index is not below the length.
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
    """Several iterable datasets one after the other. Each begins when the previous one has ended.

    Args:
        datasets: an iterable of datasets. An iterator is exhausted by the first epoch.

    Raises, in ``iter`` and ``len``:
        DatasetError: a dataset is not an IterableDataset.
    """

    @suggest_arguments
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
        dataset: the whole dataset.
        indices: the keys of the chosen samples.

    Raises:
        MissingMethodError: a subclass overrides ``__getitem__`` and not ``__getitems__``, which would bypass it.

    >>> dataset = Subset("abcde", [4, 0])
    >>> dataset[0], dataset.__getitems__([1, 0]), len(dataset)
    ('e', ['a', 'e'], 2)
    """

    @suggest_arguments
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
        """Return the sample at a position of `indices`. For a list of positions, index the dataset with a list of keys."""
        sample: T_co = self.dataset[self._keys(idx) if isinstance(idx, list) else self.indices[idx]]
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[T_co]:
        """Return the samples at several positions, by ``__getitems__`` of the dataset if it has it."""
        samples: list[T_co] = _samples(self.dataset, self._keys(indices))
        return samples

    def __len__(self) -> int:
        return len(self.indices)

    def _keys(self, positions: Iterable[int]) -> list[Any]:
        return [self.indices[position] for position in positions]


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Any = None) -> list[Subset[Any]]:
    """Divide a dataset at random into disjoint subsets.

    Args:
        dataset: a map-style dataset.
        lengths: the number of samples of each subset; or fractions with the sum 1. Their numbers of samples are rounded
            down, and the remaining samples go to the first subsets, one to each.
        generator: a `numpy.random.Generator`, a seed for one, or a ``torch.Generator``, which gives the same subsets as
            in PyTorch. None: a new one, seeded from NumPy's global state.

    Raises:
        ArgumentError: the sum of the lengths is not the length of the dataset, or a length or fraction is out of range.
        ArgumentTypeError: a length is not an integer, or `generator` is neither a generator nor a seed.

    Warns about fractions that leave a subset without samples.

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
    """Return the samples of several keys, by one call if the dataset supports it."""
    getitems = method_of(dataset, "__getitems__")
    samples: list[Any] = [dataset[key] for key in keys] if getitems is None else getitems(keys)
    return samples
