"""What PyTorch's loader does for its datapipes, which know nothing of workers: it divides them, and seeds them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import IterDataPipe, MapDataPipe, get_worker_info
from torch.utils.data.graph_settings import apply_random_seed, apply_sharding


def is_datapipe(dataset: Any) -> bool:
    """Whether a dataset is a graph of datapipes."""
    return isinstance(dataset, (IterDataPipe, MapDataPipe))


def draw_shared_seed(dataset: Any, generator: torch.Generator | None) -> int | None:
    """What the datapipes of a pass are to be seeded with in all workers of all ranks; None: it is no iterable datapipe."""
    if not isinstance(dataset, IterDataPipe):
        return None
    seed = torch.empty((), dtype=torch.int64).random_(generator=generator)
    if dist.is_available() and dist.is_initialized():
        dist.broadcast(seed, src=0, group=dist.new_group(backend="gloo"))
    return int(seed.item())


def walk(dataset: Any, shared_seed: int | None) -> Iterator[Any]:
    """Begin to walk through an iterable dataset."""
    if shared_seed is not None:
        apply_random_seed(dataset, torch.Generator().manual_seed(shared_seed))
    return iter(dataset)


def divide(dataset: Any) -> None:
    """Let a datapipe that is walked through in this process have the part of its rank."""
    apply_sharding(dataset, *_ranks())


class Divide:
    """A ``worker_init_fn``: lets a datapipe have its worker's part of the part of its rank, and calls that of the user."""

    def __init__(self, worker_init_fn: Callable[[int], Any] | None) -> None:
        self._worker_init_fn = worker_init_fn
        self._num_ranks, self._rank = _ranks()

    def __call__(self, worker: int) -> None:
        info: Any = get_worker_info()
        apply_sharding(info.dataset, info.num_workers * self._num_ranks, worker * self._num_ranks + self._rank)
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)


def _ranks() -> tuple[int, int]:
    """How many processes train together, and which of them this is."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size(), dist.get_rank()
    return 1, 0
