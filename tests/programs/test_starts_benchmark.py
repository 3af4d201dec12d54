"""The benchmark of the first second: it runs, and judges ratios and goals."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import starts

REPOSITORY = Path(__file__).resolve().parents[2]

START = "start under fork, 10 ms samples, ms"
WARM_UP = "warm-up, share of the steady rate"


def line_of(figure: str, text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {figure} "))


def test_a_run_without_peers_writes_the_rows_of_its_parts() -> None:
    options = ["--parts", "import,restart,serial", "--peers", "", "--repeats", "1", "--seconds", "0.01"]
    command = [sys.executable, "-m", "benchmarks.starts", *options]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)

    assert finished.returncode == 0, finished.stderr
    figures = [line.split(" | ")[0].removeprefix("| ") for line in finished.stdout.splitlines()[2:]]
    parts = ("import", "restart", "serial")
    expected = [row.figure for row in starts.ROWS if row.figure.startswith(parts)]
    if importlib.util.find_spec("torch") is None:
        expected.remove("import of plugin.pytorch behind torch, ms of CPU")
    assert figures == expected


@pytest.mark.parametrize("part", starts.PARTS)
def test_each_part_is_for_this_library(part: str) -> None:
    assert starts.PARTS[part][1][0] == "dali_like"


def test_ratios_are_those_within_a_repeat() -> None:
    measured = {"dali_like": [{START: 50.0}, {START: 300.0}, {START: 60.0}], "torch": [{START: 100.0}] * 3}

    line = line_of(START, starts.table(measured, ["torch"]))

    assert line == f"| {START} | 60 | 100 | 0.60 | 0.55 of PyTorch's | NO |"


def test_goals_of_rates_are_minima_and_goals_of_missing_peers_are_left_out() -> None:
    measured = {"dali_like": [{START: 50.0, WARM_UP: 0.9}], "dali": [{START: 100.0}]}

    text = starts.table(measured, ["dali"])

    assert line_of(WARM_UP, text) == f"| {WARM_UP} | 0.90 | - | - | 0.85 | yes |"
    assert line_of(START, text) == f"| {START} | 50 | 100 | 0.50 | 0.6 of DALI's | yes |"
