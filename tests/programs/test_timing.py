"""Timed receipt: CPU time of the processes below, also of processes that start or exit meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks import processes
from benchmarks.timing import Run, Timed, WorkersChangedError

BURNS = "import time\nwhile time.process_time() < {}: pass\nprint('burnt', flush=True)\ninput()"


def burning(seconds: float) -> subprocess.Popen[str]:
    """Start a process that uses some seconds of CPU time and stays."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", BURNS.format(seconds)], stdin=pipe, stdout=pipe, text=True)


def burnt(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "burnt\n"


def timed(consume: Callable[[], None]) -> Timed:
    return Run(lambda _: consume(), lambda batch, number: None).timed(1, processes.descendants(os.getpid()))


def test_process_that_starts_in_the_timed_part_counts_with_all_its_cpu_time() -> None:
    started = []

    def consume() -> None:
        started.append(burning(0.05))
        burnt(started[0])

    result = timed(consume)

    with started[0] as process:
        assert result.tree_cpu_s[process.pid] >= 0.05
        process.communicate("\n")


def test_process_from_before_the_timed_part_counts_with_the_cpu_time_since_then() -> None:
    with burning(0.05) as process:
        burnt(process)
        result = timed(lambda: None)

        assert 0 <= result.tree_cpu_s[process.pid] < 0.05
        process.communicate("\n")


def test_process_that_exits_in_the_timed_part_is_an_error_that_names_the_processes() -> None:
    with burning(0.0) as process:
        burnt(process)

        with pytest.raises(WorkersChangedError, match=str(process.pid)):
            timed(lambda: process.communicate("\n"))
