"""The benchmark harness runs and writes what it says; its figures are not looked at."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from benchmarks.__main__ import jobs
from benchmarks.measurement import COLUMNS

REPOSITORY = Path(__file__).parent.parent


def test_a_quick_run_writes_one_row_with_all_columns(tmp_path: Path) -> None:
    results = tmp_path / "results.csv"
    options = ["--quick", "--systems", "dali_like", "--workloads", "tiny", "--repeats", "1", "--seconds", "0.02"]
    command = [sys.executable, "-m", "benchmarks", *options, "--csv", str(results)]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    with results.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert reader.fieldnames == list(COLUMNS)
    assert [(row["system"], row["workload"], row["repeat"]) for row in rows] == [("dali_like", "tiny", "0")]
    assert float(rows[0]["samples_per_s"]) > 0
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
