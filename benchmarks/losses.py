"""Ordinary loaders beside PyTorch's: the cases where this library has been slower, or might become so.

    python -m benchmarks.losses [--cases texts,floats] [--workers 0,1,2,8] [--methods fork,spawn] [--repeats 7]

Each case is one dataset and the arguments of a `DataLoader`. The loaders of both libraries take turns in one process, an
epoch each, and their batches are compared once. Prints medians of the time of an epoch, and ratios to PyTorch's: of the
time, of the CPU time of all processes, and of the memory of the workers. Above 1, PyTorch is better. The last column is
this library's CPU time, divided by that of a bare loop, which gets the samples and collates them in this process without a
loader. Workers are kept between epochs, except in the cases of short epochs. A row in which a library fails has the error.
Requires PyTorch.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil
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


class Made(Items):
    """A dataset that makes its samples, by a function of the index."""

    def __init__(self, make: Callable[[int], Any], length: int) -> None:
        super().__init__(range(length))
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(self.items[index])


def segmented(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an image and the class of each pixel."""
    return torch.full((3, 96, 96), index / 1000), torch.full((96, 96), index % 21)


def detected(index: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return an image and some boxes."""
    count = _LENGTHS[index % 1000] % 8 + 1
    return torch.full((3, 64, 64), float(index)), {"boxes": torch.zeros(count, 4), "labels": torch.arange(count)}


def in_columns(batch: list[Any]) -> tuple[Any, ...]:
    """Collate as torchvision's references for detection do."""
    return tuple(zip(*batch, strict=True))


def spoken(index: int) -> tuple[torch.Tensor, int, str]:
    """Return a waveform, its sampling rate and its text."""
    return torch.zeros(1, 400 * _LENGTHS[index % 1000]), 16000, f"text {index}"


def padded(batch: list[Any]) -> tuple[Any, ...]:
    """Pad waveforms."""
    waves, _, texts = zip(*batch, strict=True)
    lengths = torch.tensor([wave.shape[1] for wave in waves])
    return torch.nn.utils.rnn.pad_sequence([wave[0] for wave in waves], batch_first=True), lengths, list(texts)


def retrieved(index: int) -> dict[str, Any]:
    """Return a query with a document that answers it, and others."""
    return {"query": f"query {index}", "positive": f"document {index} " * 20, "negatives": [f"other {index} " * 20] * 4}


def graph(index: int) -> dict[str, torch.Tensor]:
    """Return a graph."""
    nodes = _LENGTHS[index % 1000]
    return {"x": torch.zeros(nodes, 9), "edges": torch.zeros(2, 2 * nodes, dtype=torch.int64), "y": torch.tensor([index])}


def joined(batch: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Join graphs into one."""
    joined = {key: torch.cat([part[key] for part in batch], 1 if key == "edges" else 0) for key in batch[0]}
    return {**joined, "batch": torch.cat([torch.full((len(part["x"]),), i) for i, part in enumerate(batch)])}


def row(index: int) -> dict[str, Any]:
    """Return a row of a table."""
    return {**{f"number {i}": float(index + i) for i in range(12)}, **{f"category {i}": index % (i + 2) for i in range(6)}}


def transition(index: int) -> tuple[Any, ...]:
    """Return a transition of a replay buffer: two observations, an action, a reward, and whether the episode has ended."""
    return np.full(17, index, np.float32), np.zeros(6, np.float32), float(index), np.full(17, index, np.float32), False


def tokens(index: int) -> dict[str, torch.Tensor]:
    """Return a block of tokens."""
    block = torch.arange(index, index + 513)
    return {"input_ids": block[:-1], "labels": block[1:]}


def photograph(index: int) -> tuple[torch.Tensor, int]:
    """Return an image of the size of ImageNet's, as for validation."""
    return torch.full((3, 224, 224), float(index)), index


class Case(NamedTuple):
    """A dataset and the arguments of its loaders.

    Attributes:
        workers: the numbers of workers that it makes sense for.
        keeps: whether workers are kept between epochs.
    """

    dataset: Any
    options: dict[str, Any]
    workers: tuple[int, ...] = (0, 1, 2, 8)
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
    "holds tensors": lambda: Case(Holding(range(64), small(30_000, 2)), {"batch_size": 16}, (1, 2, 8)),
    "holds encoded images": lambda: Case(
        Holding(range(64), [bytes(100_000) for _ in range(1000)]), {"batch_size": 16}, (1, 2, 8)
    ),
    "holds strings": lambda: Case(Holding(range(64), [f"path {i}" for i in range(500_000)]), {"batch_size": 16}, (1, 2, 8)),
    "holds pairs": lambda: Case(Holding(range(64), [(f"{i}", i) for i in range(200_000)]), {"batch_size": 16}, (1, 2, 8)),
    "stream with a state": lambda: Case(Stream(2000), {"batch_size": 8}),
    "texts": lambda: Case(Items([f"some text {i}" for i in range(4096)]), {"batch_size": 64}),
    "long texts": lambda: Case(Items([f"x{i}" * 500 for i in range(2048)]), {"batch_size": 64}),
    "floats": lambda: Case(Items([float(i) for i in range(4096)]), {"batch_size": 64}),
    "changing lengths": lambda: Case(Items([torch.zeros(length) for length in _LENGTHS]), {"batch_size": 1}),
    "changing images": lambda: Case(Items(_images(300)), {"batch_size": 1}),
    "changing images with names": lambda: Case(
        Items([(x, i, f"n{i}") for i, x in enumerate(_images(300))]), {"batch_size": 1}
    ),
    "mixed dtypes": lambda: Case(
        Items([torch.zeros(4).to((torch.float32, torch.int64)[i % 2]) for i in range(512)]), {"batch_size": 1}
    ),
    "single numbers": lambda: Case(range(2000), {"batch_size": None}),
    "bool masks": lambda: Case(Items([torch.zeros(64, 64, dtype=torch.bool) for _ in range(512)]), {"batch_size": 8}),
    "dicts of 50 tensors": lambda: Case(
        Items([{f"{i}": x for i, x in enumerate(small(50, 2))} for _ in range(256)]), {"batch_size": 16}
    ),
    "collation of one object": lambda: Case(Items(small(500, 100)), {"batch_size": 1, "collate_fn": only}),
    "collation of columns": lambda: Case(
        Items(list(zip(small(2000, 3), small(2000, 2), strict=True))), {"batch_size": 16, "collate_fn": columns}
    ),
    "collation to a list": lambda: Case(
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
    # Imports of users' programs.
    "segmentation": lambda: Case(Made(segmented, 512), {"batch_size": 16, "shuffle": True}),
    "detection": lambda: Case(Made(detected, 512), {"batch_size": 8, "shuffle": True, "collate_fn": in_columns}),
    "speech": lambda: Case(Made(spoken, 512), {"batch_size": 16, "shuffle": True, "collate_fn": padded}),
    "retrieval": lambda: Case(Made(retrieved, 2048), {"batch_size": 32, "shuffle": True}),
    "graphs": lambda: Case(Made(graph, 2048), {"batch_size": 64, "shuffle": True, "collate_fn": joined}),
    "tabular": lambda: Case(Made(row, 4096), {"batch_size": 256, "shuffle": True}),
    "reinforcement learning": lambda: Case(Made(transition, 8192), {"batch_size": 256, "shuffle": True}),
    "language model": lambda: Case(Made(tokens, 2048), {"batch_size": 16, "shuffle": True}),
    "validation": lambda: Case(Made(photograph, 64), {"batch_size": 8}, keeps=False),
    "notebook": lambda: Case(Made(photograph, 8), {"batch_size": 4}, keeps=False),
    # Short epochs.
    "16 numbers": lambda: Case(range(16), {"batch_size": 4}, (0,)),
    "new workers for 16 numbers": lambda: Case(range(16), {"batch_size": 4}, (1, 2, 8), keeps=False),
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


class Cost(NamedTuple):
    """The costs of an epoch in one library: time, CPU time of all processes, and memory of the workers in bytes."""

    seconds: float
    cpu_s: float
    worker_bytes: int


def descendants() -> list[psutil.Process]:
    """Return the processes that this one and its children have started."""
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def cpu_s() -> float:
    """Return the CPU time of this process and of all that it has started."""
    return time.process_time() + others_cpu_s()


def others_cpu_s() -> float:
    """Return the CPU time of all processes that this one has started. Finding them takes milliseconds."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total_s = ended.ru_utime + ended.ru_stime
    for process in descendants():
        try:
            total_s += _own_cpu_s(process.pid) + sum(process.cpu_times()[2:4])  # with that of its ended children
        except (OSError, psutil.Error):  # it has just ended
            continue
    return total_s


def _own_cpu_s(pid: int) -> float:
    """Return the CPU time of another process: its clock, as of clock_getcpuclockid(3). /proc counts in steps of 10 ms."""
    return time.clock_gettime(~pid << 3 | 2)


class BareLoop:
    """Gets the samples of a loader of PyTorch and collates them, in this process and without a loader: a lower bound."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        loader, collate, dataset = self._loader, self._loader.collate_fn, self._loader.dataset
        if isinstance(dataset, torch.utils.data.IterableDataset):
            items = iter(dataset)
            while batch := list(itertools.islice(items, loader.batch_size)):
                yield collate(batch)
        elif loader.batch_sampler is None:
            yield from (collate(dataset[index]) for index in loader.sampler)
        else:
            for indices in loader.batch_sampler:
                yield collate([dataset[index] for index in indices])


def first_epoch(loader: Any) -> tuple[list[Any], int]:
    """Return the batches of an epoch, and the proportional memory of the loader's workers after the first batch."""
    before = {process.pid for process in descendants()}
    batches: list[Any] = []
    worker_bytes = 0
    for batch in loader:
        if not batches:
            for process in descendants():
                try:
                    worker_bytes += 0 if process.pid in before else process.memory_full_info().pss
                except psutil.Error:  # it has just ended
                    continue
        batches.append(batch)
    return batches, worker_bytes


def seconds_of(loader: Any) -> tuple[float, float]:
    """Return the time and the CPU time of one epoch."""
    begin_others_s, begin_s, begin_own_s = others_cpu_s(), time.perf_counter(), time.process_time()
    for _ in loader:
        pass
    own_s, seconds = time.process_time() - begin_own_s, time.perf_counter() - begin_s
    return seconds, own_s + others_cpu_s() - begin_others_s


def measured(case: Case, num_workers: int, repeats: int, method: str = "fork") -> tuple[Cost, Cost, Cost]:
    """Return the costs of an epoch, in PyTorch, in this library and in a bare loop: median times, and mean CPU times.

    Raises:
        AssertionError: their batches differ.
    """
    options = {**case.options, "num_workers": num_workers, "persistent_workers": case.keeps and num_workers > 0}
    if num_workers:
        options["multiprocessing_context"] = method
    loaders = [library(case.dataset, generator=torch.Generator().manual_seed(0), **options) for library in LIBRARIES]
    (theirs, their_bytes), (ours, our_bytes) = map(first_epoch, loaders)
    assert are_equal(theirs, ours), "the batches differ"
    del theirs, ours
    own_generator = {"generator": torch.Generator().manual_seed(0)}
    loaders.append(BareLoop(torch.utils.data.DataLoader(case.dataset, **case.options, **own_generator)))
    turns = [[seconds_of(loader) for loader in loaders] for _ in range(repeats)]
    their_cost, our_cost, bare_cost = (
        Cost(statistics.median(s for s, _ in epochs), statistics.fmean(cpu for _, cpu in epochs), nbytes)
        for epochs, nbytes in zip(zip(*turns, strict=True), (their_bytes, our_bytes, 0), strict=True)
    )
    return their_cost, our_cost, bare_cost


def ratio_text(ours: float, theirs: float) -> str:
    """Return a ratio for the table; "" if there is nothing to compare."""
    return f"{ours / theirs:.2f}" if theirs > 0 else ""


def line_of(name: str, method: str, num_workers: int, their_cost: Cost, our_cost: Cost, bare_cost: Cost) -> str:
    """Return a line of the table, in Markdown."""
    ratios = [ratio_text(ours, theirs) for ours, theirs in zip(our_cost, their_cost, strict=True)]
    times = [f"{cost.seconds * 1e3:.1f}" for cost in (their_cost, our_cost)]
    cells = (name, method, num_workers, *times, *ratios, ratio_text(our_cost.cpu_s, bare_cost.cpu_s))
    return f"| {' | '.join(map(str, cells))} |"


def row_of(name: str, method: str, num_workers: int, repeats: int) -> str:
    """Measure a case, and return the line of the table."""
    # The dataset is made anew: PyTorch moves its tensors to shared memory for spawned workers, with a descriptor for each.
    case = CASES[name]()
    try:
        return line_of(name, method, num_workers, *measured(case, num_workers, repeats, method))
    except (OSError, RuntimeError) as error:  # no descriptors are left
        return f"| {name} | {method} | {num_workers} | {type(error).__name__}: {str(error).splitlines()[0]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure ordinary loaders beside PyTorch's.")
    parser.add_argument("--cases", type=names(CASES), default=list(CASES), help="cases, separated by commas")
    parser.add_argument(
        "--workers", type=names(("0", "1", "2", "8")), default=["0", "2"], help="numbers of workers, separated by commas"
    )
    parser.add_argument("--methods", type=names(("fork", "spawn")), default=["fork"], help="start methods of workers")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # PyTorch's, about the number of workers
    print("| case | start | workers | PyTorch ms | ms | time | CPU time | memory of workers | times a bare loop |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in arguments.cases:
        for num_workers in CASES[name]().workers:
            if str(num_workers) in arguments.workers:
                for method in arguments.methods if num_workers else ["-"]:
                    print(row_of(name, method, num_workers, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
