"""Samples that take very different times: how close loaders come to the least possible time of an epoch.

    python -m benchmarks.tails [--patterns fifth,hundredth,log-normal] [--batches 1,4,8,32] [--workers 4] [--repeats 3]

Samples sleep, so that a busy machine does not distort the result, and return how long they slept. The *bound* of an epoch is
the sum of these times divided by the number of workers, or the longest sample if that takes longer. Loaders of this library
and of PyTorch take turns in one process, an epoch each, with kept workers and the same number of batches in flight.

Prints two tables in Markdown: the time of an epoch in order, divided by its bound, with the queue depth and the memory of
the batches in flight; and, for batches that may overtake others, the samples per second and the 99th percentile of the waits
for a batch. Requires PyTorch.
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

#: The usual time of a sample.
_UNIT_S = 0.001
#: Bytes of a sample.
_SAMPLE_BYTES = 8192
#: Samples in flight, at least. While a sample takes 100 units, other workers compute so many.
_SAMPLES_IN_FLIGHT = 512


def _fifth(count: int) -> list[float]:
    return [10.0 if index % 5 == 0 else 1.0 for index in range(count)]


def _hundredth(count: int) -> list[float]:
    slow = np.random.default_rng(0).permutation(count)[: count // 100]
    units = np.ones(count)
    units[slow] = 100
    return [float(unit) for unit in units]


def _log_normal(count: int) -> list[float]:
    return [float(unit) for unit in np.random.default_rng(0).lognormal(0, 1, count)]


#: The times of samples, in units.
PATTERNS: dict[str, Callable[[int], list[float]]] = {
    "fifth": _fifth,
    "hundredth": _hundredth,
    "log-normal": _log_normal,
}


class Sleeping(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples that sleep. Each is an array, and the time that it took."""

    def __init__(self, units: Sequence[float], unit_s: float = _UNIT_S) -> None:
        self.times_s = [unit_s * unit for unit in units]

    def __len__(self) -> int:
        return len(self.times_s)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        begin_s = time.perf_counter()
        sample = torch.full((_SAMPLE_BYTES // 8,), float(index), dtype=torch.float64)
        time.sleep(self.times_s[index])
        return sample, time.perf_counter() - begin_s


class Epoch(NamedTuple):
    """Measurements of an epoch.

    Attributes:
        seconds: its time.
        bound_s: the least possible time.
        waits_s: of each batch.
    """

    seconds: float
    bound_s: float
    waits_s: list[float]

    @property
    def ratio(self) -> float:
        """The time, divided by the least possible time."""
        return self.seconds / self.bound_s


def measure(loader: Any, num_workers: int) -> Epoch:
    """Measure an epoch."""
    waits_s, sum_s, longest_s = [], 0.0, 0.0
    begin_s = last_s = time.perf_counter()
    for _, times in loader:
        now_s = time.perf_counter()
        waits_s.append(now_s - last_s)
        sum_s += float(times.sum())
        longest_s = max(longest_s, float(times.max()))
        last_s = time.perf_counter()
    return Epoch(last_s - begin_s, max(sum_s / num_workers, longest_s), waits_s)


def prefetch_factor(batch_size: int, num_workers: int) -> int:
    """Return the batches ahead for each worker."""
    return max(2, -(-_SAMPLES_IN_FLIGHT // (batch_size * num_workers)))


def epochs_of(loaders: Sequence[Any], num_workers: int, repeats: int) -> list[list[Epoch]]:
    """Return the epochs of several loaders, which take turns. The first epoch starts the workers, and does not count."""
    for loader in loaders:
        measure(loader, num_workers)
    turns = [[measure(loader, num_workers) for loader in loaders] for _ in range(repeats)]
    return [list(epochs) for epochs in zip(*turns, strict=True)]


def loaders_of(dataset: Any, batch_size: int, num_workers: int, *, ours: Any, theirs: Any) -> list[Any]:
    """Return a loader of each library, with own arguments."""
    common: dict[str, Any] = {
        "batch_size": batch_size,
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor(batch_size, num_workers),
        "persistent_workers": True,
        "multiprocessing_context": "fork",
    }
    return [DataLoader(dataset, **common, **ours), torch.utils.data.DataLoader(dataset, **common, **theirs)]


def in_order(dataset: Any, batch_size: int, num_workers: int, repeats: int) -> list[str]:
    """Return the cells of the first table for a dataset and a batch size."""
    loaders = loaders_of(dataset, batch_size, num_workers, ours={}, theirs={})
    ours, theirs = (
        statistics.median(epoch.ratio for epoch in epochs) for epochs in epochs_of(loaders, num_workers, repeats)
    )
    depth = prefetch_factor(batch_size, num_workers) * num_workers
    return [f"{ours:.2f}", f"{theirs:.2f}", str(depth), f"{depth * batch_size * _SAMPLE_BYTES / (1 << 20):.1f} MiB"]


def overtaking(dataset: Any, batch_size: int, num_workers: int, repeats: int) -> list[str]:
    """Return the cells of the second table for a dataset and a batch size."""
    window = prefetch_factor(batch_size, num_workers) * num_workers
    loaders = loaders_of(dataset, batch_size, num_workers, ours={"reorder_window": window}, theirs={"in_order": False})
    cells = []
    for epochs in epochs_of(loaders, num_workers, repeats):
        rate = statistics.median(len(dataset) / epoch.seconds for epoch in epochs)
        wait_s = statistics.median(float(np.quantile(epoch.waits_s, 0.99)) for epoch in epochs)
        cells += [f"{rate:.0f}", f"{1000 * wait_s:.1f} ms"]
    return cells


def rows(options: argparse.Namespace, measured: Callable[..., list[str]]) -> Iterator[str]:
    """Yield the rows of a table."""
    for pattern in options.patterns:
        dataset = Sleeping(PATTERNS[pattern](options.samples), options.unit_ms / 1000)
        for batch_size in options.batches:
            cells = measured(dataset, batch_size, options.workers, options.repeats)
            yield f"| {' | '.join([pattern, str(batch_size), *cells])} |"


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser("python -m benchmarks.tails", description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=names(PATTERNS), default=list(PATTERNS), metavar="A,B", help=", ".join(PATTERNS))
    parser.add_argument("--batches", type=_numbers, default=[1, 4, 8, 32], metavar="N,M")
    parser.add_argument("--workers", type=int, default=4, metavar="N")
    parser.add_argument("--samples", type=int, default=4096, metavar="N", help="samples of an epoch")
    parser.add_argument("--unit-ms", type=float, default=1000 * _UNIT_S, metavar="MS", help="the usual time of a sample")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    print("| times of samples | batch size | dali_like, time / bound | PyTorch | batches in flight | their memory |")
    print("|---|--:|--:|--:|--:|--:|")
    for row in rows(options, in_order):
        print(row, flush=True)
    print(
        "\n| times of samples | batch size | reorder_window, samples/s | wait p99 | in_order=False, samples/s | wait p99 |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for row in rows(options, overtaking):
        print(row, flush=True)


if __name__ == "__main__":
    main()
