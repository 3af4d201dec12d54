"""What a callback may ask about the worker that it runs in."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple


class WorkerInfo(NamedTuple):
    """A worker: a process, or a thread. The names follow ``torch.utils.data.get_worker_info``.

    Attributes:
        id: its number, from 0 on. A worker that takes the place of a dead one has the same.
        num_workers: how many there are.
        seed: what a loader has seeded this worker's global generators with; None in those of a pipeline.
        dataset: this worker's copy of the loader's dataset, or what threads share; None in those of a pipeline.
    """

    id: int
    num_workers: int
    seed: int | None = None
    dataset: Any = None


class _Thread(threading.local):
    """What a thread is for itself, whatever its process is."""

    is_worker = False
    info: WorkerInfo | None = None


_info: WorkerInfo | None = None
_thread = _Thread()


def get_worker_info() -> WorkerInfo | None:
    """In a worker, which one it is; None elsewhere in the main process, and in sources without ``parallel=True``."""
    return _thread.info if _thread.is_worker else _info


def set_worker_info(info: WorkerInfo) -> None:
    """Say that this process is a worker; or this thread, if it has been said that it is one."""
    global _info  # noqa: PLW0603  # a process is one worker, for all that runs in it
    if _thread.is_worker:
        _thread.info = info
    else:
        _info = info


def become_worker_thread() -> None:
    """Say that this thread is a worker, and not its process."""
    _thread.is_worker = True


def is_worker_thread() -> bool:
    """Whether this thread is a worker. What belongs to the process is then not its to change."""
    return _thread.is_worker
