"""The start of loaders whose dataset holds many small objects, with spawned workers, beside PyTorch.

    python -m benchmarks.held [--mib 16,128] [--workers 1,8] [--repeats 3]

The dataset holds pairs of a path and a number, 128 bytes of Python objects each. Measured until each worker of PyTorch has
had its turn, two batches for each: the time, the CPU time of all processes, imports included, and the proportional memory
of all processes that the loader has started. Each start is in a fresh process, and the libraries take turns. Prints
medians, and ratios to PyTorch's, in Markdown. On a busy machine, only CPU time and memory mean something. Requires PyTorch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Sequence

import torch.utils.data

from benchmarks.losses import cpu_s, descendants
from benchmarks.turns import last_line_of

_PAIR_BYTES = 128
_DEADLINE_S = 600.0
_FIGURES = ("seconds", "cpu_s", "worker_bytes")


class Pairs(torch.utils.data.Dataset):  # type: ignore[misc]
    """A dataset that holds pairs."""

    def __init__(self, mib: int) -> None:
        self.pairs = [(f"path/of/sample/{i:012d}.jpg", i) for i in range((mib << 20) // _PAIR_BYTES)]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> int:
        return self.pairs[index][1]


def measure(library: str, mib: int, num_workers: int) -> dict[str, float]:
    """Start a loader in this process. Return the figures of its first batches."""
    if library == "torch":
        from torch.utils.data import DataLoader  # one library in each process
    else:
        from dali_like.plugin.pytorch import DataLoader

    dataset = Pairs(mib)
    loader = DataLoader(dataset, 32, num_workers=num_workers, multiprocessing_context="spawn", persistent_workers=True)
    begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
    iterator = iter(loader)
    for _ in range(2 * num_workers):
        next(iterator)
    seconds, used_cpu_s = time.perf_counter() - begin_s, cpu_s() - begin_cpu_s
    worker_bytes = sum(process.memory_full_info().pss for process in descendants())
    return dict(zip(_FIGURES, (seconds, used_cpu_s, worker_bytes), strict=True))


def medians(runs: Sequence[dict[str, float]]) -> list[float]:
    """Return the medians of the figures of some runs."""
    return [statistics.median(run[figure] for run in runs) for figure in _FIGURES]


def row(mib: int, num_workers: int, repeats: int) -> str:
    """Return a row of the table."""
    runs: dict[str, list[dict[str, float]]] = {"torch": [], "dali_like": []}
    for _ in range(repeats):
        for library, measured in runs.items():
            line = last_line_of("benchmarks.held", ["--one", library, str(mib), str(num_workers)], deadline_s=_DEADLINE_S)
            measured.append(json.loads(line))
    theirs, ours = map(medians, runs.values())
    ratios = [f"{our / their:.2f}" for our, their in zip(ours, theirs, strict=True)]
    cells = [mib, num_workers, f"{theirs[1]:.2f}", f"{ours[1]:.2f}", ratios[1], ratios[0]]
    cells += [f"{theirs[2] / (1 << 20):.0f}", f"{ours[2] / (1 << 20):.0f}", ratios[2]]
    return f"| {' | '.join(map(str, cells))} |"


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser("python -m benchmarks.held", description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=_numbers, default=[16, 128], metavar="N,M", help="memory of the objects")
    parser.add_argument("--workers", type=_numbers, default=[1, 8], metavar="N,M")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    if options.one:
        library, mib, num_workers = options.one
        print(json.dumps(measure(library, int(mib), int(num_workers))))
        return
    print("| MiB | workers | PyTorch, CPU s | dali_like | ratio | ratio of times | PyTorch, used MiB | dali_like | ratio |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for mib in options.mib:
        for num_workers in options.workers:
            print(row(mib, num_workers, options.repeats), flush=True)


if __name__ == "__main__":
    main()
