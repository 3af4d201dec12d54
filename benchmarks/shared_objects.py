"""Memory of workers whose dataset holds a million dicts: in a list, and in a SharedList; beside PyTorch's workers.

    python -m benchmarks.shared_objects [--objects 1000000] [--workers 8]

Each case is a separate process. Prints a Markdown table of the memory of all processes, their proportional set sizes, above
that of the same program with a dataset that makes its objects anew: at the start of the workers, and after one epoch that
reads every object. See proc(5): a page that n processes share counts 1/n for each. The memory of the program's own list,
which it has before there are workers, is printed above the table.

Limitation: the figures are those of one epoch. Forked workers that live longer copy no more than that, since each has read
its part of the objects only; with another shuffle in each epoch, every worker reads all of them in the end.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import processes
from benchmarks.report import environment, markdown
from benchmarks.turns import last_line_of
from dali_like.data import SharedList

__all__ = ["CASES", "Case", "Memory", "main", "measure", "table"]

BATCH_SIZE = 1000
#: Batches until all workers have started.
WARM_UP = 50
DEADLINE_S = 1200.0
METHODS = ("fork", "spawn")
#: The class of each library's loader.
LOADERS = {"dali_like": "dali_like.data", "torch": "torch.utils.data"}
TITLES = {"dali_like": "dali_like", "torch": "PyTorch"}


class Case(NamedTuple):
    """A library, a start method, and the holder of the objects: "list", "SharedList", or "made"."""

    library: str
    method: str
    holder: str


class Memory(NamedTuple):
    """Proportional set sizes of all processes, in bytes.

    Attributes:
        started: when all workers have started.
        read: after an epoch.
    """

    started: int
    read: int


CASES = tuple(
    Case(library, method, holder)
    for library in LOADERS
    for method in METHODS
    for holder in ("made", "list", *(["SharedList"] if library == "dali_like" else []))
)


class Lengths:
    """A dataset that reads one object for each sample."""

    def __init__(self, items: Sequence[dict[str, Any]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> int:
        return len(self.items[index]["path"])


class Made(Sequence[dict[str, Any]]):
    """The objects, made anew by each access."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return item(index)


def item(number: int) -> dict[str, Any]:
    """Return a dict as datasets have them."""
    return {"path": f"/data/train/{number:08}.jpg", "label": number % 1000, "size": (640, 480)}


def holder_of(holder: str, length: int) -> Sequence[dict[str, Any]]:
    """Return the objects in a holder."""
    if holder == "made":
        return Made(length)
    items: Iterator[dict[str, Any]] = map(item, range(length))
    return SharedList(items) if holder == "SharedList" else list(items)


def measure(case: Case, length: int, num_workers: int) -> Memory:
    """Read all objects once, in this process and its workers."""
    warnings.filterwarnings("ignore", "This DataLoader will create")
    loader = importlib.import_module(LOADERS[case.library]).DataLoader(
        Lengths(holder_of(case.holder, length)),
        batch_size=BATCH_SIZE,
        num_workers=num_workers,
        multiprocessing_context=case.method,
        persistent_workers=True,
    )
    batches = iter(loader)
    for _ in range(min(WARM_UP, length // BATCH_SIZE)):
        next(batches)
    started = _memory()
    for _ in batches:
        pass
    return Memory(started, _memory())


def _memory() -> int:
    return processes.pss_bytes([os.getpid(), *processes.descendants(os.getpid())])


def table(measured: Mapping[Case, Memory]) -> str:
    """Return the memory of each case above that of objects that are made anew, in Markdown."""
    rows = []
    for case, memory in measured.items():
        if case.holder != "made":
            made = measured[case._replace(holder="made")]
            above = [f"{(mine - bare) / 2**20:,.0f}" for mine, bare in zip(memory, made, strict=True)]
            rows.append([f"{TITLES[case.library]}, {case.method}, {case.holder}", *above])
    return markdown(["MiB of all processes", "workers started", "after an epoch"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases, and print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # measure this case in this process
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(measure(Case(*json.loads(given.one)), given.objects, given.workers)), flush=True)
        os._exit(0)
    print(environment(), end="\n\n", flush=True)
    before = _memory()
    items = holder_of("list", given.objects)
    print(f"the list of the program: {(_memory() - before) / 2**20:,.0f} MiB")
    shared = SharedList(items)
    begin_s = time.perf_counter()
    for number in range(given.objects):
        shared[number]
    access_us = (time.perf_counter() - begin_s) / given.objects * 1e6
    print(f"{shared}; an access takes {access_us:.2f} us", end="\n\n", flush=True)
    del items, shared
    measured = {}
    for case in CASES:
        if importlib.util.find_spec(LOADERS[case.library].partition(".")[0]) is not None:
            print(*case, file=sys.stderr, flush=True)
            options = ["--one", json.dumps(case), "--objects", str(given.objects), "--workers", str(given.workers)]
            measured[case] = Memory(*json.loads(last_line_of("benchmarks.shared_objects", options, deadline_s=DEADLINE_S)))
    print(table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
