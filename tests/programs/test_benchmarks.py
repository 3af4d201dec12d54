"""The benchmark harness runs and writes its report; figures are not checked."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import auto, costs
from benchmarks.__main__ import jobs
from benchmarks.measurement import COLUMNS

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_quick_run_writes_one_row_with_all_columns(tmp_path: Path) -> None:
    results = tmp_path / "results.csv"
    options = ["--quick", "--systems", "dali_like", "--workloads", "tiny", "--repeats", "1", "--seconds", "0.02"]
    command = [sys.executable, "-m", "benchmarks", *options, "--csv", str(results)]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    with results.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert reader.fieldnames == list(COLUMNS)
    assert [(row["system"], row["workload"], row["repeat"]) for row in rows] == [("dali_like", "tiny", "0")]
    assert float(rows[0]["samples_per_s"]) > 0
    # Below the main process: the forkserver, two workers, and the reserve if the forkserver has had the time to fork it.
    processes = [process.split(":")[0] for process in rows[0]["processes"].split("; ")]
    assert processes in (["main", "1", "2", "3"], ["main", "1", "2", "3", "4"])
    assert results.with_suffix(".svg").exists()
    assert "### tiny" in results.with_suffix(".md").read_text(encoding="utf-8")


def test_the_systems_take_turns_to_begin() -> None:
    order = [(job.repeat, job.system) for job in jobs(["tiny"], ["dali_like", "torch", "dali"], repeats=3)]

    assert order == [
        (0, "dali_like"), (0, "torch"), (0, "dali"),
        (1, "torch"), (1, "dali"), (1, "dali_like"),
        (2, "dali"), (2, "dali_like"), (2, "torch"),
    ]  # fmt: skip


def test_a_system_runs_only_the_workloads_it_is_for() -> None:
    planned = {(job.system, job.workload) for job in jobs(["tiny", "encoded", "startup"], ["torch_packed", "limit"], 1)}

    assert planned == {("torch_packed", "encoded"), ("limit", "tiny"), ("limit", "encoded")}


# Where the time of a batch goes


def test_costs_are_found_again() -> None:
    made = [
        costs.Cost(size, tasks, (2 * size + 30 * tasks + 5, 7 * size), (100 + 3 * tasks, 50))
        for size in costs.BATCH_SIZES
        for tasks in costs.TASKS
    ]

    np.testing.assert_allclose(costs.fit(made, lambda cost: cost.worker), [[2, 7], [30, 0], [5, 0]], atol=1e-9)
    np.testing.assert_allclose(costs.fit(made, lambda cost: cost.main), [[0, 0], [3, 0], [100, 50]], atol=1e-9)


@pytest.mark.parametrize("kind", costs.KINDS)
def test_every_kind_of_sample_has_costs(kind: str) -> None:
    cost = costs.measure(kind, 8, 2, batches=4)

    assert len(cost.worker) == len(cost.main)  # the kernel may not yet have counted a worker's CPU time in so short a run
    assert cost.main[0] > 0


def test_costs_are_times_where_instructions_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"  # as on a virtual machine without counters
    perf.write_text("#!/bin/sh\necho '<not supported>,,instructions,0,100.00,,' >&2\n", encoding="utf-8")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    cost = costs.measure("rows", 8, 2, batches=4)

    assert (len(cost.worker), len(cost.main)) == (1, 1)


# Automatic settings


def test_chosen_settings_are_held_against_the_best_fixed_ones() -> None:
    results = {
        ("tiny", "auto"): [auto.Result(0.2, 95.0, "2x5", 3.0), auto.Result(0.4, 85.0, "2x6", 4.0)],
        ("tiny", "1x2"): [auto.Result(0.1, 50.0, "1x2")],
        ("tiny", "2x2"): [auto.Result(0.3, 100.0, "2x2")],
    }

    report, is_good = auto.table(results)

    assert report.splitlines()[-1] == "| tiny | 2x2 | 100 | 0.0 | 2x5 2x6 | 90 | 3.5 | 90% | 1x2 | 0.10 | 0.30 |"
    assert is_good
    assert not auto.table({**results, ("tiny", "2x2"): [auto.Result(0.3, 101.0, "2x2")]})[1]


@pytest.mark.parametrize("workload", ["tiny", "shared"])
def test_a_run_with_chosen_settings_reports_them(workload: str) -> None:
    result = auto.run_one(workload, "auto", seconds=0.02)

    assert result.samples_per_s > 0
    assert re.fullmatch(r"\d+x\d+", result.settings)
