"""The benchmarks of training pipelines run with the real DALI and the real PyTorch, and find their batches right."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_quick_run(tmp_path: Path) -> None:
    for module in ("nvidia.dali", "torch", "skimage"):
        if find_spec(module) is None:
            pytest.skip(f"needs {module}")
    options = ["--workloads", "ssd", "--systems", "dali,torch", "--repeats", "1", "--seconds", "0.02", "--csv", "a.csv"]

    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.training", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        assert [(row["system"], row["workload"]) for row in csv.DictReader(file)] == [("dali", "ssd"), ("torch", "ssd")]
    assert "### ssd: batches of 32" in finished.stdout
