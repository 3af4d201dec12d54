"""Datasets for the tests of loaders, and comparisons of batches. Spawned workers import this module."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dali_like.data import DataLoader, IterableDataset, get_worker_info

#: There are more workers than CPUs on purpose.
MANY_WORKERS = "ignore:This DataLoader will create"


class Squares:
    """A map-style dataset of arrays and labels."""

    def __init__(self, length: int = 20, shape: tuple[int, ...] = (3,)) -> None:
        self.length = length
        self.shape = shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return np.full(self.shape, index**2, np.float32), index


class Made(Squares):
    """The result of a function for each index."""

    def __init__(self, make: Callable[[int], Any], length: int = 20) -> None:
        super().__init__(length)
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Dice(Squares):
    """Draws from the global generators for each sample."""

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), float(np.random.rand())


class Stream(IterableDataset[Any]):
    """Numbers, divided among the workers."""

    def __init__(self, length: int = 20) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return map(self.sample, range(first, self.length, step))

    def sample(self, number: int) -> Any:
        return number


class DiceStream(Stream):
    """Draws from the global generators, at the beginning and for each item."""

    def __iter__(self) -> Iterator[Any]:
        numbers, at_first = super().__iter__(), float(np.random.rand())
        return ((number, at_first, random.random(), float(np.random.rand())) for number in numbers)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Box:
    corner: Any
    label: Any


def loader_of(dataset: Any, workers: int = 0, method: Any = "fork", **options: Any) -> DataLoader[Any]:
    """Return a loader with a number of workers and a start method."""
    if workers:
        options["multiprocessing_context"] = method
    return DataLoader(dataset, num_workers=workers, **options)


def plain(value: Any) -> Any:
    """Convert a batch for `==`, including all types, dtypes and shapes."""
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value).__name__, value.dtype.str, value.shape, value.tolist()
    if isinstance(value, Mapping):
        return type(value).__name__, {key: plain(part) for key, part in value.items()}
    if dataclasses.is_dataclass(value):
        return type(value).__name__, plain(vars(value))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(part) for part in value]
    return type(value).__name__, value


def all_of(loader: Any) -> list[Any]:
    """Return all batches of an epoch, for `==`."""
    return [plain(batch) for batch in loader]


def labels_of(loader: Any) -> list[list[int]]:
    """Return the labels in all batches of an epoch."""
    return [batch[1].tolist() for batch in loader]
