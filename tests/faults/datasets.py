"""Datasets with known batches, ways to load them, and events that disturb the workers.

Spawned workers import this module, because its classes travel by name. So it needs nothing of pytest.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dali_like.data import DataLoader, IterableDataset, get_worker_info
from tests.faults.streams import happens

BATCH_SIZE = 4
#: The samples on which `Raising` raises.
NOTE = "look it up"


def nothing(index: int) -> None:
    """The default event before a sample: none."""


@dataclass(frozen=True)
class Samples:
    """Samples that depend on their index and, unless they are `plain`, on the global generators.

    Attributes:
        event: called with the index before each sample.
    """

    event: Callable[[int], Any] = nothing
    plain: bool = False
    length: int = 48

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.event(index)
        noise = (0.0, 0.0) if self.plain else (random.random(), np.random.rand())
        return index, np.full((2, 3), index), *noise


class SamplesTogether(Samples):
    """The same, whole batches at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Walk(Samples, IterableDataset[Any]):
    """The same as an iterable. With two workers, each has every other sample."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for index in range(self.length) if info is None else range(info.id, self.length, info.num_workers):
            yield self[index]


def stacked(samples: list[Any]) -> Any:
    """A collate function that the library does not know, so one worker calls it."""
    return [np.stack(column) for column in zip(*samples, strict=True)]


#: Ways to load: the class of the dataset, its arguments, and the arguments of the loader.
KINDS: dict[str, tuple[type[Samples], dict[str, Any], dict[str, Any]]] = {
    "sample by sample": (Samples, {}, {}),
    "batch by batch": (Samples, {}, {"collate_fn": stacked}),
    "__getitems__": (SamplesTogether, {}, {}),
    "iterable": (Walk, {}, {}),
    # A replaced worker begins its random numbers anew: they depend on its earlier samples.
    "seeded as in PyTorch": (Samples, {"plain": True}, {"worker_seeding": "torch"}),
}


def make_loader(kind: str, way: str = "fork", event: Callable[[int], Any] = nothing, **options: Any) -> DataLoader[Any]:
    """A loader of 12 batches."""
    dataset, of_dataset, of_loader = KINDS[kind]
    given = {"batch_size": BATCH_SIZE, "num_workers": 2, "generator": 7, **of_loader, **options}
    if given["num_workers"]:
        given["multiprocessing_context"] = way
    return DataLoader(dataset(event, **of_dataset), **given)


def digest(batch: Any) -> str:
    """A checksum of a batch."""
    checksum = hashlib.sha256()
    for part in batch:
        checksum.update(f"{part.shape} {part.dtype};".encode())
        checksum.update(part.tobytes())
    return checksum.hexdigest()


def indices_of(batch: Any) -> list[int]:
    """Which samples a batch has."""
    indices: list[int] = batch[0].tolist()
    assert [array[0, 0] for array in batch[1]] == indices
    return indices


def outcomes(batches: Iterator[Any], most: int = 100, read: Callable[[Any], Any] = indices_of) -> list[Any]:
    """Read each of the next batches up to the end, or the exception in its place."""
    seen: list[Any] = []
    while len(seen) < most:
        try:
            seen.append(read(next(batches)))
        except StopIteration:
            break
        except Exception as error:
            seen.append(error)
    return seen


@dataclass(frozen=True)
class Happening:
    """An event: a disturbance of the worker before certain samples, a number of times for each.

    Attributes:
        at: their indices.
        what: the kind of event.
        folder: remembers the events that have happened.
        times: how often; 0: always.
    """

    at: Collection[int]
    what: Callable[[], Any]
    folder: Path
    times: int = 1

    def __call__(self, index: int) -> None:
        if index in self.at and (not self.times or happens(self.folder / str(index), self.times)):
            self.what()


@dataclass(frozen=True)
class Raising:
    """An event: an exception, with a note."""

    at: Collection[int]
    make: Callable[[], Exception]

    def __call__(self, index: int) -> None:
        if index in self.at:
            error = self.make()
            error.add_note(NOTE)
            raise error


@dataclass(frozen=True)
class Counting:
    """An event that leaves a file for each sample, for `faults.streams.times_made`."""

    folder: Path

    def __call__(self, index: int) -> None:
        happens(self.folder / str(index), times=1000)
