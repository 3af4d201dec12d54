"""Find, await and kill the worker processes of a pipeline, for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from dali_like import Pipeline
from tests.conftest import wait_until
from tests.faults.streams import times_made


def workers_of(pipe: Pipeline) -> list[int]:
    """The process ids of the workers, once all have started."""
    wait_until(lambda: len(pipe.py_worker_pids) == pipe.py_num_workers, "the start of all workers")
    return pipe.py_worker_pids


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
