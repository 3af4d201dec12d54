"""The identity of a worker, for callbacks that run in it: `get_worker_info`. Set at the worker's start."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple


class WorkerInfo(NamedTuple):
    """A worker, which is a process or a thread. The names follow ``torch.utils.data.get_worker_info``.

    Attributes:
        id: its number, from 0 on. The replacement of a dead worker has the same number.
        num_workers: the number of workers.
        seed: the seed of this worker's global random generators in a loader; None in a pipeline.
        dataset: this worker's copy of the loader's dataset, which threads share; None in a pipeline.
    """

    id: int
    num_workers: int
    seed: int | None = None
    dataset: Any = None


class _Thread(threading.local):
    """The identity of a thread that is a worker."""

    is_worker = False
    info: WorkerInfo | None = None


_info: WorkerInfo | None = None
_thread = _Thread()


def get_worker_info() -> WorkerInfo | None:
    """Return the worker that this code runs in; None in the main process, as in sources without ``parallel=True``."""
    return _thread.info if _thread.is_worker else _info


def set_worker_info(info: WorkerInfo | None) -> None:
    """Set the identity of this thread if it is a worker, else of this process. None: as in the main process."""
    global _info  # noqa: PLW0603  # all threads of a worker process share it
    if _thread.is_worker:
        _thread.info = info
    else:
        _info = info


def become_worker_thread() -> None:
    """Make this thread a worker by itself, apart from its process."""
    _thread.is_worker = True


def join_worker(info: WorkerInfo | None) -> None:
    """Let this thread belong to a worker that is a thread, too."""
    become_worker_thread()
    set_worker_info(info)


def is_worker_thread() -> bool:
    """Whether this thread is a worker by itself. If so, it must not change the state of the process."""
    return _thread.is_worker
