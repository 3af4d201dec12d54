"""Rows per second of Parquet files in columns, beside pyarrow's scanner: ``python -m benchmarks.columns [--rows N]``.

Synthetic rows of eight columns of numbers, in ten files. dali_like has two workers and ten logical shards, and delivers
batches of 8,192 rows as arrays. pyarrow's scanner has two threads, and its batches are converted to arrays, too. Both take
turns. CPU time counts all processes, and includes the start of workers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import processes
from benchmarks.report import markdown

__all__ = ["main", "ours", "scanned", "write_files"]

NUM_FILES = 10
BATCH_SIZE = 8_192


def write_files(folder: str, num_rows: int) -> str:
    """Write the files, and return their pattern."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    count = num_rows // NUM_FILES
    for number in range(NUM_FILES):
        columns: dict[str, Any] = {f"f{i}": rng.random(count, np.float32) for i in range(4)}
        columns |= {f"i{i}": rng.integers(0, 1 << 40, count) for i in range(3)}
        columns["row"] = np.arange(number * count, (number + 1) * count)
        pq.write_table(pa.table(columns), f"{folder}/{number}.parquet", row_group_size=count)
    return f"{folder}/*.parquet"


def ours(pattern: str) -> Iterator[dict[str, Any]]:
    """Yield the batches of a loader with two workers."""
    from dali_like.data import ComposedDataset, DataLoader

    dataset = ComposedDataset.from_parquet(pattern, as_batches=True).with_options(shards=NUM_FILES)
    return iter(DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2))


def scanned(pattern: str) -> Iterator[dict[str, Any]]:
    """Yield the batches of pyarrow's scanner with two threads."""
    import pyarrow as pa
    from pyarrow import dataset

    pa.set_cpu_count(2)
    scanner = dataset.dataset(os.path.dirname(pattern), format="parquet").scanner(batch_size=BATCH_SIZE, use_threads=True)
    for batch in scanner.to_batches():
        yield {name: batch.column(i).to_numpy(zero_copy_only=False) for i, name in enumerate(batch.schema.names)}


class Epoch(NamedTuple):
    """The rows of an epoch, its seconds, and the CPU seconds of all processes."""

    rows: int
    wall_s: float
    cpu_s: float


def measured(batches: Callable[[str], Iterator[dict[str, Any]]], pattern: str) -> Epoch:
    """Measure an epoch.

    Raises:
        AssertionError: rows are missing, or come twice.
    """
    began, before = time.perf_counter(), time.process_time()
    rows = total = 0
    children: frozenset[int] = frozenset()
    children_s = 0.0
    for number, batch in enumerate(batches(pattern)):
        rows += len(batch["row"])
        total += int(batch["row"].sum())
        if not number:
            children = processes.descendants(os.getpid())  # all workers have computed a part of it
        if number % 16 == 0:  # they end with the last batch
            with contextlib.suppress(ProcessLookupError):
                children_s = processes.cpu_s(children)
    if total != rows * (rows - 1) // 2:
        raise AssertionError(f"the {rows} rows are not those of the files")
    return Epoch(rows, time.perf_counter() - began, time.process_time() - before + children_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both in turns, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.columns", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=25_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    systems = {"dali_like": ours, "pyarrow": scanned}
    runs: dict[str, list[Epoch]] = {name: [] for name in systems}
    with tempfile.TemporaryDirectory() as folder:
        pattern = write_files(folder, options.rows)
        for _ in range(options.repeats):
            for name, batches in systems.items():
                runs[name].append(measured(batches, pattern))
    table = [
        [
            name,
            f"{statistics.median(epoch.rows / epoch.wall_s for epoch in found) / 1e6:.1f}",
            f"{statistics.median(1e9 * epoch.cpu_s / epoch.rows for epoch in found):.0f}",
        ]
        for name, found in runs.items()
    ]
    print(markdown(["system", "million rows/s", "CPU ns/row"], table))
    pairs = list(zip(runs["dali_like"], runs["pyarrow"], strict=True))
    rate = statistics.median(theirs.wall_s / ours.wall_s for ours, theirs in pairs)
    cpu = statistics.median(ours.cpu_s / theirs.cpu_s for ours, theirs in pairs)
    print(f"\nrate of dali_like / pyarrow: {rate:.2f} (to reach: 0.67); CPU time: {cpu:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
