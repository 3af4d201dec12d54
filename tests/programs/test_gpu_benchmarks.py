"""The GPU benchmark script, as far as testable without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as script
from benchmarks.gpu.cases import CASES, needs

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_gpu_it_says_so_at_once() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"],
        cwd=ROOT,
        env={"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 1
    assert result.stderr.startswith("nothing has been measured: there is no GPU here: ")


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "accelerator_is_available", lambda: True)
    monkeypatch.setattr(script, "missing", lambda modules: ["cupy"])

    assert script.why_not() == f"{sys.executable} lacks cupy; make gpu PYTHON=... takes another one"


def test_a_gpu_that_cannot_be_counted_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some containers have CUDA's driver, but not NVML."""
    monkeypatch.setattr(script, "accelerator_is_available", lambda: False)
    monkeypatch.setattr(script, "count_is_known", lambda: False)
    monkeypatch.setattr(script, "missing", lambda modules: [])

    assert script.why_not() is None


@pytest.mark.parametrize(
    ("case", "modules"),
    [
        ("copy", ["cupy", "torch"]),
        ("rate: DALI", ["cupy", "torch", "nvidia.dali"]),
        ("decode: dali_like", ["cupy", "torch", "nvidia.nvimgcodec", "PIL"]),
        ("decode: DALI", ["cupy", "torch", "nvidia.dali", "PIL"]),
    ],
)
def test_cases_need(case: str, modules: list[str]) -> None:
    assert case in CASES
    assert needs(case) == modules


def test_what_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "missing", lambda modules: ["nvidia.dali"])

    assert script.run_case("rate: DALI", 1, 1) == {"not measured": "no nvidia.dali here"}


def test_table_has_the_ratios_to_others() -> None:
    results: dict[str, dict[str, Any]] = {
        "rate: dali_like": {"batches/s": 300.0},
        "rate: torch DataLoader": {"batches/s": 100.0},
        "rate: DALI": {"not measured": "no nvidia.dali here"},
        "wait: dali_like": {"median us": 12.0},
    }

    ratios = script.ratios(results)

    assert ratios == {"rate, times that of torch DataLoader": 3.0}
    assert "| dali_like | rate, times that of torch DataLoader | 3 |" in script.table({"dali_like": ratios})
