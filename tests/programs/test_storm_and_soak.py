"""Short forms of ``make storm`` and ``make soak``: for some seconds, processes are killed, and no batch is wrong."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import signals, soak, storm

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("system", storm.TARGETS)
def test_a_storm_on_every_process_leaves_no_trace(system: str) -> None:
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
    assert re.search(r"in all: .* [1-9]\d* kills", finished.stdout)


#: Name and parent of each process of a pool in the main process 1.
WHOLE = {2: ("dali_like:start", 1), 3: ("dali_like:spare", 2), 4: ("dali_like:0", 2)}
ORPHANED_RESERVE = {5: ("dali_like:spare", 1)}
LOST_RESERVE = {6: ("dali_like:start", 1), 7: ("dali_like:0", 6)}
#: A child has the name of its parent until it sets its own.
UNNAMED_WORKER = {8: ("dali_like:start", 2)}
PROMOTED_UNNAMED = {9: ("dali_like:spare", 1), 10: ("dali_like:spare", 9)}


@pytest.mark.parametrize(
    ("processes", "targets"),
    [
        (WHOLE | {11: ("python", 1)}, [2, 3, 4]),
        (LOST_RESERVE, [7]),
        (ORPHANED_RESERVE, []),
        (WHOLE | ORPHANED_RESERVE | LOST_RESERVE, [2, 3, 4, 7]),
        (WHOLE | ORPHANED_RESERVE | UNNAMED_WORKER, [2, 3, 4]),
        (PROMOTED_UNNAMED, []),
    ],
)
def test_target_pids_have_a_forkserver_or_reserve_only_if_the_other_one_lives(
    processes: dict[int, tuple[str, int]], targets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(pid: int, file: str) -> str:
        name, parent = processes.get(pid, ("", 0))
        return f"{name}\n" if file == "comm" else f"{pid} ({name}) S {parent} 0"

    monkeypatch.setattr(signals, "_read", read)

    assert signals.target_pids(processes, have_reserves=True) == targets
    assert signals.target_pids(processes, have_reserves=False) == [pid for pid in processes if processes[pid][0] != "python"]


@pytest.mark.parametrize(("minutes", "growth"), [(2, []), (4, ["descriptors from 90 to 91"])])
def test_growth_is_reported_only_after_enough_measurements(minutes: int, growth: list[str]) -> None:
    observer = soak.Observer([], storm.Storm(lambda _: [], {}))
    count = minutes * 6
    observer._footprints = [soak.Footprint(100, 90 if index < count // 2 else 91) for index in range(count)]

    assert observer.growth() == growth
