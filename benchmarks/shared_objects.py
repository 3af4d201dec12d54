"""Memory of workers whose dataset holds a million dicts: in a list, and in a SharedList.

    python -m benchmarks.shared_objects [--objects 1000000] [--workers 8]

Prints the growth of the proportional set sizes of all processes over one epoch that reads every object, and the time of an
access. Workers take memory of their own meanwhile, so the growth with a dataset that makes its objects anew is subtracted.
See proc(5) for the proportional set size: a page that n processes share counts 1/n for each.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from typing import Any

from dali_like.data import DataLoader, SharedList

BATCH_SIZE = 1000
#: Batches until all workers have started.
WARM_UP = 50


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


def growth_bytes(items: Sequence[dict[str, Any]], num_workers: int, method: str) -> int:
    """Return by how much the proportional set sizes grow in an epoch, once all workers have started."""
    loader = DataLoader(
        Lengths(items),
        batch_size=BATCH_SIZE,
        num_workers=num_workers,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    batches = iter(loader)
    for _ in range(WARM_UP):
        next(batches)
    before = loader.statistics(memory=True).memory
    for _ in batches:
        pass
    after = loader.statistics(memory=True).memory
    if before is None or after is None:
        raise RuntimeError("the loader has not read its memory")
    return after.total_bytes - before.total_bytes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=8)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")
    shared = SharedList(map(item, range(given.objects)))
    begin_s = time.perf_counter()
    for number in range(given.objects):
        shared[number]
    access_us = (time.perf_counter() - begin_s) / given.objects * 1e6
    print(f"{shared}; an access takes {access_us:.2f} us")
    for method in ("fork", "spawn"):
        own = growth_bytes(Made(given.objects), given.workers, method)
        growth = growth_bytes(shared, given.workers, method) - own
        print(f"SharedList, {method}: {growth / 2**20:+.1f} MiB, {growth / shared.nbytes:.1%} of the block")
    growth = growth_bytes(list(map(item, range(given.objects))), given.workers, "fork")
    print(f"list, fork: {growth / 2**20:+.1f} MiB, {growth / shared.nbytes:.1%} of the block")


if __name__ == "__main__":
    main()
