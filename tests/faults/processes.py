"""Find, await and kill the worker processes of a pipeline, for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from dali_like import Pipeline
from tests.conftest import is_running, wait_until
from tests.faults.streams import times_made
from tests.internals import backend_of, pool_of, recovery_of


def workers_of(pipe: Pipeline) -> list[int]:
    """The process ids of the workers, once all have started."""
    wait_until(lambda: len(pipe.py_worker_pids) == pipe.py_num_workers, "the start of all workers")
    return pipe.py_worker_pids


def link_of(pipe: Pipeline, which: str) -> Any:
    """The end of the main process of the forkserver's or the reserve's socket; None if there is no such process."""
    pipe.build()
    # Private: the sockets of processes that have no public handle
    return getattr(backend_of(pool_of(pipe))._processes, f"_{which}")


def forkserver_of(pipe: Pipeline) -> int:
    """The process id of the forkserver."""
    pid: int = link_of(pipe, "forkserver").pid
    return pid


def reserve_of(pipe: Pipeline) -> int:
    """The process id of the reserve, or 0, or it has not announced itself."""
    link = link_of(pipe, "reserve")
    return 0 if link is None else link.pid


def wait_for_reserve(pipe: Pipeline) -> None:
    """Wait until the forkserver can be replaced: under fork, until there is a reserve."""
    wait_until(lambda: _look(pipe) and (reserve_of(pipe) or pipe.py_start_method != "fork"), "the reserve")


def wait_for_processes(pipe: Pipeline) -> list[int]:
    """Wait until all processes of a pipeline have started: forkserver, workers and reserve. Return their ids."""

    def are_there() -> bool:
        pids = pipe.py_worker_pids
        return _look(pipe) and len(pids) == pipe.py_num_workers and all(map(is_running, pids))

    wait_until(are_there, "the start of all workers")
    wait_for_reserve(pipe)
    return [pid for pid in (forkserver_of(pipe), reserve_of(pipe), *pipe.py_worker_pids) if pid]


def _look(pipe: Pipeline) -> bool:
    """Handle events, as the pool does while it waits. Return whether there is a forkserver."""
    pipe.build()
    pool = pool_of(pipe)
    backend_of(pool).read_news()
    recovery_of(pool).look()
    link = link_of(pipe, "forkserver")
    return link is not None and link.pid > 0


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def wait_until_all(pids: Iterable[int], status: str) -> None:
    """Wait until each of these processes has been seen in a status of psutil's."""
    for pid in pids:
        wait_until(lambda pid=pid: psutil.Process(pid).status() == status, f"a process that is {status}")


def wait_until_idle(pids: Sequence[int], folder: Path, num_samples: int) -> None:
    """Wait until so many samples have been made (see `faults.streams.counted`) and workers wait for the next task."""
    wait_until(lambda: len(times_made(folder)) == num_samples, f"{num_samples} samples")
    wait_until_all(pids, psutil.STATUS_SLEEPING)


def kill_and_wait(pids: Sequence[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Kill workers, and wait until they have been collected."""
    for pid in pids:
        os.kill(pid, number)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the end of the workers")
