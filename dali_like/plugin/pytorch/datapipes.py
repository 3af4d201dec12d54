"""Support for PyTorch's datapipes. They know nothing of workers: the loader divides them, and seeds them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import IterDataPipe, MapDataPipe, get_worker_info
from torch.utils.data.graph_settings import apply_random_seed, apply_sharding


def is_datapipe(dataset: Any) -> bool:
    """Return whether a dataset is a datapipe."""
    return isinstance(dataset, (IterDataPipe, MapDataPipe))


def draw_shared_seed(dataset: Any, generator: torch.Generator | None) -> int | None:
    """Draw the seed that an iterable datapipe has in all workers of all ranks; None for other datasets."""
    if not isinstance(dataset, IterDataPipe):
        return None
    seed = torch.empty((), dtype=torch.int64).random_(generator=generator)
    if dist.is_available() and dist.is_initialized():
        dist.broadcast(seed, src=0, group=dist.new_group(backend="gloo"))
    return int(seed.item())


def walk(dataset: Any, shared_seed: int | None) -> Iterator[Any]:
    """Begin an iterator over an iterable dataset."""
    if shared_seed is not None:
        apply_random_seed(dataset, torch.Generator().manual_seed(shared_seed))
    return iter(dataset)


def shard(dataset: Any, num_workers: int, worker_init_fn: Callable[[int], Any] | None) -> Callable[[int], Any] | None:
    """Divide a datapipe: here for the main process if it loads, or in the returned ``worker_init_fn`` for each worker."""
    if not is_datapipe(dataset):
        return worker_init_fn
    if num_workers:
        return ShardInWorker(worker_init_fn)
    apply_sharding(dataset, *_ranks())
    return worker_init_fn


class ShardInWorker:
    """A ``worker_init_fn`` that gives a datapipe the part of its rank and worker, and calls the user's function."""

    def __init__(self, worker_init_fn: Callable[[int], Any] | None) -> None:
        self._worker_init_fn = worker_init_fn
        self._num_ranks, self._rank = _ranks()

    def __call__(self, worker: int) -> None:
        info: Any = get_worker_info()
        apply_sharding(info.dataset, info.num_workers * self._num_ranks, worker * self._num_ranks + self._rank)
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)


def _ranks() -> tuple[int, int]:
    """Return the number of ranks that train together, and the rank of this process."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size(), dist.get_rank()
    return 1, 0
