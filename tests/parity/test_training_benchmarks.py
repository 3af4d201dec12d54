"""The benchmarks of training pipelines run with the real DALI and the real PyTorch, and find their batches right."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("cv2")

from benchmarks.adapters import is_installed
from benchmarks.training.systems import NEEDED
from benchmarks.with_torchvision import has_torchvision

pytestmark = pytest.mark.peers

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("workload", "systems"),
    [("ssd", ["dali", "torch"]), ("resnet", ["decoding"]), ("resnet", ["grain"]), ("resnet", ["spdl"])],
)
def test_a_quick_run(workload: str, systems: list[str], tmp_path: Path) -> None:
    for module in ("skimage", *(NEEDED[system] for system in systems)):
        if not is_installed(module):
            pytest.skip(f"{module} is not installed")
    names = ",".join(systems)
    options = ["--workloads", workload, "--systems", names, "--repeats", "1", "--seconds", "0.02", "--csv", "a.csv"]

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
        assert [(row["system"], row["workload"]) for row in csv.DictReader(file)] == [(each, workload) for each in systems]
    assert f"### {workload}: batches of" in finished.stdout


@pytest.mark.parametrize("system", ["dali", "torchvision"])
def test_trivial_augment(system: str, tmp_path: Path) -> None:
    module = NEEDED[system].split(".")[0]
    found = has_torchvision() if module == "torchvision" else find_spec(module) is not None
    if not found or find_spec("skimage") is None:
        pytest.skip(f"needs {module} and scikit-image")
    statements = [
        "import cv2",
        "from dataclasses import replace",
        "from benchmarks.training.run_one import measure",
        "from benchmarks.training.workloads import WORKLOADS",
        "cv2.setNumThreads(1)  # its threads do not survive the fork of torch",
        "workload = replace(WORKLOADS['trivial_augment'], batch_size=4, per_photograph=1)",
        f"assert measure({system!r}, workload, seconds=0.01, repeat=0).samples_per_s > 0",
    ]

    finished = subprocess.run(
        [sys.executable, "-c", "\n".join(statements)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
