"""The example and the benchmark of one loader for several processes."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from examples.shared_loader import RATES

pytestmark = pytest.mark.usefixtures("limited_time")


def test_several_trainings_share_a_loader() -> None:
    command = [sys.executable, "-m", "examples.shared_loader"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    found = [re.fullmatch(r"learning rate (.+): (.+)% right", line) for line in lines]
    assert [float(match[1]) for match in found if match] == list(RATES)
    assert all(float(match[2]) > 90 for match in found if match)


def run_benchmark(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.serving", "--side", "64", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_killed_consumers_leave_nothing() -> None:
    assert run_benchmark("--kills", "5", "--consumers", "3").startswith("5 kills, ")


def test_the_benchmark_compares_one_loader_with_several_consumers() -> None:
    lines = run_benchmark("--batches", "20", "--sample-ms", "2", "--consumers", "2").splitlines()

    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        "CPU time, s",
        "shared memory, MiB, median",
        "shared memory, MiB, largest",
        "time, s",
    ]
    assert all(float(line.split("|")[4]) > 0 for line in lines[2:])
