"""What a callback may ask about the process that it runs in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """A worker process. The names follow ``torch.utils.data.get_worker_info``.

    Attributes:
        id: its number, from 0 on. A worker that takes the place of a dead one has the same.
        num_workers: how many there are.
        seed: what a loader has seeded this worker's global generators with; None in those of a pipeline.
        dataset: this worker's copy of the loader's dataset; None in those of a pipeline.
    """

    id: int
    num_workers: int
    seed: int | None = None
    dataset: Any = None


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process, which one it is; None in the main process, and in sources without ``parallel=True``."""
    return _info


def set_worker_info(info: WorkerInfo) -> None:
    """Say that this process is a worker."""
    global _info  # noqa: PLW0603  # a process is one worker, for all that runs in it
    _info = info
