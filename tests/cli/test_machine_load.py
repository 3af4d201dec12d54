"""Other programs on the CPUs, by the counters of the kernel."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from dali_like.cli import machine_load
from dali_like.cli.doctor import machine
from dali_like.cli.doctor.findings import Verdict
from dali_like.cli.machine_load import busy_cpus, load_text
from dali_like.engine.memory.limits import allowed_cpus


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose counters show, in turn, the ticks given by `ticks`."""
    (tmp_path / "proc").mkdir()
    return tmp_path


def ticks(monkeypatch: pytest.MonkeyPatch, root: Path, *busy_of_100: int) -> None:
    """Let the CPUs of this process be busy for so many of 100 ticks from one look to the next."""
    totals = itertools.accumulate(((busy, 100 - busy) for busy in busy_of_100), lambda a, b: (a[0] + b[0], a[1] + b[1]))
    moments = iter([(0, 0), *totals])

    def write(*_: float) -> None:
        busy, idle = next(moments)
        mine = sorted(os.sched_getaffinity(0))
        lines = [f"cpu{number} {busy} 0 0 {idle} 0 0 0 0 0 0" for number in mine]
        others = f"cpu{mine[-1] + 1} 0 0 0 999 0 0 0 0 0 0\nintr 1 2"
        (root / "proc/stat").write_text("\n".join(["cpu 1 2 3 4", *lines, others]))

    write()
    monkeypatch.setattr(machine_load.time, "sleep", write)


@pytest.mark.parametrize("busy", [0, 50, 100])
def test_the_share_of_busy_cpus_is_that_of_the_cpus_of_this_process(
    monkeypatch: pytest.MonkeyPatch, root: Path, busy: int
) -> None:
    ticks(monkeypatch, root, busy)

    assert busy_cpus(root) == pytest.approx(allowed_cpus() * busy / 100)


def test_systems_without_these_counters_say_nothing(root: Path) -> None:
    assert busy_cpus(root, 0.0) is None
    assert load_text(None) == ""


def test_a_busy_machine_is_named_and_an_idle_one_is_not() -> None:
    assert load_text(0.05 * allowed_cpus(), [0.0]) == ""
    assert f"they used {allowed_cpus():.1f} of {allowed_cpus()} before" in load_text(allowed_cpus())
    assert "up to 60% of their time" in load_text(0.0, [0.3, 0.6])


@pytest.mark.parametrize(("busy", "verdict"), [(5, Verdict.OK), (90, Verdict.WARNING)])
def test_the_doctor_warns_of_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, root: Path, busy: int, verdict: Verdict
) -> None:
    ticks(monkeypatch, root, busy)

    assert machine.load(root).verdict is verdict
