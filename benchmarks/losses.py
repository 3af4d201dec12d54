"""Ordinary loaders beside PyTorch's: the cases where this library has been slower, or might become so.

    python -m benchmarks.losses [--cases strings,floats] [--workers 0,2] [--repeats 7]

Each case is one dataset and the arguments of a `DataLoader`. The loaders of both libraries take turns in one process, an
epoch each, and their batches are compared once. Prints medians of the time of an epoch, and the ratio: above 1, PyTorch is
faster. Workers are kept between epochs, except in the cases of short epochs. Requires PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.data

from benchmarks.turns import names
from dali_like.plugin.pytorch import DataLoader

LIBRARIES = (torch.utils.data.DataLoader, DataLoader)


class Items(torch.utils.data.Dataset):  # type: ignore[misc]
    """A dataset that holds its samples."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Holding(Items):
    """A dataset that holds many other objects."""

    def __init__(self, items: Sequence[Any], held: Any) -> None:
        super().__init__(items)
        self.held = held


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A stream with a state of 5,000 keys."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> StreamIterator:
        return StreamIterator(self.length)


class StreamIterator(Iterator[int]):
    """The iterator of a `Stream`, which `torchdata` could resume."""

    def __init__(self, length: int) -> None:
        self.position, self.length = 0, length
        self.keys = [f"key {i}" for i in range(5000)]

    def __next__(self) -> int:
        if self.position == self.length:
            raise StopIteration
        self.position += 1
        return self.position

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "keys": self.keys}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position, self.keys = state["position"], state["keys"]


class Case(NamedTuple):
    """A dataset and the arguments of its loaders.

    Attributes:
        workers: the numbers of workers that it makes sense for.
        keeps: whether workers are kept between epochs.
    """

    dataset: Any
    options: dict[str, Any]
    workers: tuple[int, ...] = (0, 2)
    keeps: bool = True


def only(batch: list[Any]) -> Any:
    """Return the only sample of a batch."""
    return batch[0]


def columns(batch: list[Any]) -> list[Any]:
    """Return a list of the parts of all samples."""
    return list(zip(*batch, strict=True))


def small(count: int, *shape: int) -> list[torch.Tensor]:
    """Return separate tensors."""
    return [torch.full(shape, float(i)) for i in range(count)]


_LENGTHS = np.random.default_rng(0).integers(5, 60, 1000).tolist()
_DIGITS = torch.arange(28 * 28 * 5120).reshape(5120, 28, 28).to(torch.uint8)
_LABELS = torch.arange(5120)


def _images(count: int) -> list[torch.Tensor]:
    return [torch.zeros(3, 20 + length, 30, dtype=torch.uint8) for length in _LENGTHS[:count]]


CASES: dict[str, Callable[[], Case]] = {
    # Kept workers whose dataset holds much: the begin of an epoch.
    "holds tensors": lambda: Case(Holding(range(64), small(30_000, 2)), {"batch_size": 16}, (2,)),
    "holds encoded images": lambda: Case(
        Holding(range(64), [bytes(100_000) for _ in range(1000)]), {"batch_size": 16}, (2,)
    ),
    "holds strings": lambda: Case(Holding(range(64), [f"path {i}" for i in range(500_000)]), {"batch_size": 16}, (2,)),
    "holds pairs": lambda: Case(Holding(range(64), [(f"{i}", i) for i in range(200_000)]), {"batch_size": 16}, (2,)),
    "stream with a state": lambda: Case(Stream(2000), {"batch_size": 8}),
    "texts": lambda: Case(Items([f"some text {i}" for i in range(4096)]), {"batch_size": 64}),
    "long texts": lambda: Case(Items([f"x{i}" * 500 for i in range(2048)]), {"batch_size": 64}),
    "floats": lambda: Case(Items([float(i) for i in range(4096)]), {"batch_size": 64}),
    "changing lengths": lambda: Case(Items([torch.zeros(length) for length in _LENGTHS]), {"batch_size": 1}),
    "changing images": lambda: Case(Items(_images(300)), {"batch_size": 1}),
    "changing images, names": lambda: Case(Items([(x, i, f"n{i}") for i, x in enumerate(_images(300))]), {"batch_size": 1}),
    "mixed dtypes": lambda: Case(
        Items([torch.zeros(4).to((torch.float32, torch.int64)[i % 2]) for i in range(512)]), {"batch_size": 1}
    ),
    "single numbers": lambda: Case(range(2000), {"batch_size": None}),
    "bool masks": lambda: Case(Items([torch.zeros(64, 64, dtype=torch.bool) for _ in range(512)]), {"batch_size": 8}),
    "dicts of 50 tensors": lambda: Case(
        Items([{f"{i}": x for i, x in enumerate(small(50, 2))} for _ in range(256)]), {"batch_size": 16}
    ),
    "own collation, one object": lambda: Case(Items(small(500, 100)), {"batch_size": 1, "collate_fn": only}),
    "own collation, columns": lambda: Case(
        Items(list(zip(small(2000, 3), small(2000, 2), strict=True))), {"batch_size": 16, "collate_fn": columns}
    ),
    "own collation, list": lambda: Case(
        Items(list(zip(small(2560, 4), small(2560, 2), strict=True))), {"batch_size": 256, "collate_fn": list}
    ),
    # Samples of tensors, and datasets that are only tensors.
    "digits": lambda: Case(Items(list(zip(_DIGITS, range(5120), strict=True))), {"batch_size": 256}),
    "digits in dicts": lambda: Case(Items([{"x": x, "y": i} for i, x in enumerate(_DIGITS)]), {"batch_size": 256}),
    "TensorDataset": lambda: Case(torch.utils.data.TensorDataset(_DIGITS, _LABELS), {"batch_size": 256}),
    "Subset": lambda: Case(
        torch.utils.data.Subset(torch.utils.data.TensorDataset(_DIGITS, _LABELS), list(range(0, 5120, 2))),
        {"batch_size": 256},
    ),
    "StackDataset": lambda: Case(torch.utils.data.StackDataset(x=_DIGITS, y=_LABELS), {"batch_size": 256}),
    "ConcatDataset": lambda: Case(
        torch.utils.data.ConcatDataset([torch.utils.data.TensorDataset(_DIGITS, _LABELS)] * 2), {"batch_size": 256}
    ),
    # Short epochs.
    "16 numbers": lambda: Case(range(16), {"batch_size": 4}, (0,)),
    "16 numbers, new workers": lambda: Case(range(16), {"batch_size": 4}, (1, 2), keeps=False),
}


def are_equal(theirs: Any, ours: Any) -> bool:
    """Return whether two batches are equal."""
    if type(theirs) is not type(ours):
        return False
    if isinstance(theirs, torch.Tensor):
        return theirs.dtype == ours.dtype and bool(torch.equal(theirs, ours))
    if isinstance(theirs, dict):
        return list(theirs) == list(ours) and all(are_equal(part, ours[key]) for key, part in theirs.items())
    if isinstance(theirs, (list, tuple)):
        return len(theirs) == len(ours) and all(map(are_equal, theirs, ours))
    return bool(theirs == ours)


def seconds_of(loader: Any) -> float:
    """Return the time of one epoch."""
    begin_s = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - begin_s


def measured(case: Case, num_workers: int, repeats: int) -> tuple[float, float]:
    """Return the median seconds of an epoch, in PyTorch and in this library.

    Raises:
        AssertionError: their batches differ.
    """
    options = {**case.options, "num_workers": num_workers, "persistent_workers": case.keeps and num_workers > 0}
    loaders = [library(case.dataset, **options) for library in LIBRARIES]
    theirs, ours = (list(loader) for loader in loaders)
    assert are_equal(theirs, ours), "the batches differ"
    del theirs, ours
    turns = [[seconds_of(loader) for loader in loaders] for _ in range(repeats)]
    their_s, our_s = map(statistics.median, zip(*turns, strict=True))
    return their_s, our_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure ordinary loaders beside PyTorch's.")
    parser.add_argument("--cases", type=names(CASES), default=list(CASES), help="cases, separated by commas")
    parser.add_argument(
        "--workers", type=names(("0", "1", "2")), default=["0", "1", "2"], help="numbers of workers, separated by commas"
    )
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # PyTorch's, about the number of workers
    print(f"{'case':28}{'workers':>8}{'PyTorch ms':>12}{'ms':>9}{'ratio':>8}")
    for name in arguments.cases:
        case = CASES[name]()
        for num_workers in case.workers:
            if str(num_workers) in arguments.workers:
                their_s, our_s = measured(case, num_workers, arguments.repeats)
                row = f"{name:28}{num_workers:8}{their_s * 1e3:12.1f}{our_s * 1e3:9.1f}{our_s / their_s:8.2f}"
                print(row, flush=True)


if __name__ == "__main__":
    main()
