"""Short forms of ``make storm`` and ``make soak``: for some seconds, processes are killed, and no batch is wrong."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import signals, storm

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("system", storm.TARGETS)
def test_a_storm_in_which_every_process_is_a_target_leaves_no_trace(system: str) -> None:
    outcome = storm.contest(system, argparse.Namespace(seconds=3.0, kills=12, seed=1))

    assert outcome.kills > 0
    assert outcome.events["batch"] > 0
    assert (outcome.events["wrong"], outcome.missing, dict(outcome.errors)) == (0, 0, {})
    assert (outcome.hung, outcome.left) == (False, 0)


def test_a_short_soak_passes() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.05"]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.endswith("all checks passed\n")
    assert " 0 kills" not in finished.stdout


@pytest.mark.parametrize(
    ("names", "targets"),
    [
        ({1: "dali_like:start", 2: "dali_like:spare", 3: "dali_like:0", 4: "python"}, [1, 2, 3]),
        ({1: "dali_like:start", 3: "dali_like:0"}, [3]),
        ({2: "dali_like:spare", 3: "dali_like:0"}, [3]),
    ],
)
def test_a_forkserver_and_its_reserve_are_not_killed_at_once(
    names: dict[int, str], targets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "is_alive", lambda pid: True)
    monkeypatch.setattr(signals, "_read", lambda pid, file: names[pid] + "\n")

    assert signals.target_pids(names, have_reserves=True) == targets
