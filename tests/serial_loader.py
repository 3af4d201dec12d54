"""DataLoaders without workers, for the benchmarks to measure: they need neither PyTorch nor other processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from dali_like.data import default_collate


class SerialLoader:
    """Makes batches in order, when they are asked for."""

    def __init__(
        self, dataset: Any, *, batch_size: int, collate_fn: Callable[[list[Any]], Any] = default_collate, **_rest: Any
    ) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        self._collate = collate_fn

    def __iter__(self) -> Iterator[Any]:
        for start in self.starts():
            yield self._collate([self._dataset[index] for index in range(start, start + self._batch_size)])

    def starts(self) -> range:
        """The first indices of the batches."""
        return range(0, len(self._dataset), self._batch_size)


class CopyingLoader(SerialLoader):
    """Takes a copy of the dataset."""

    def __init__(self, dataset: Any, **rest: Any) -> None:
        super().__init__(copy.deepcopy(dataset), **rest)


class ShiftedLoader(SerialLoader):
    """Leaves out the first sample."""

    def starts(self) -> range:
        return range(1, len(self._dataset) - 1, self._batch_size)


class ForgetfulLoader(SerialLoader):
    """Leaves out the last batch."""

    def starts(self) -> range:
        return super().starts()[:-1]
