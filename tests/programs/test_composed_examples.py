"""The examples of composed datasets run as programs: resumed on other ranks, they deliver the same elements."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dali_like.data import ComposedDataset
from examples.elastic_run import PARTS, Element, run_in_parts
from tests.conftest import skip_without, without_notes_of_libpng

ROOT = Path(__file__).resolve().parents[2]
STEPS = 2


def run(example: str, *options: object) -> list[list[str]]:
    """Run an example, and return the cells of its table, without the heading."""
    command = [sys.executable, "-W", "error", "-m", f"examples.{example}", "--steps", str(STEPS), *map(str, options)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (finished.returncode, without_notes_of_libpng(finished.stderr)) == (0, ""), finished.stdout
    return [line.split() for line in finished.stdout.splitlines()[1:]]


def test_pretraining_resumes_on_other_ranks(tmp_path: Path) -> None:
    rows = run("pretraining", "--folder", tmp_path)

    assert [row[1:3] for row in rows] == [[str(ranks), str(workers)] for ranks, workers in PARTS for _ in range(STEPS)]
    assert {row[-1] for row in rows} == {"same"}
    assert all(float(row[-2].rstrip("%")) < 10 for row in rows)  # padding


def test_vision_language_resumes_on_other_ranks(tmp_path: Path) -> None:
    skip_without("simplejpeg", "cv2", "skimage", "sklearn")

    rows = run("vision_language", "--folder", tmp_path, "--per-photograph", 6)

    assert len(rows) == STEPS * len(PARTS)
    assert {row[-1] for row in rows} == {"same"}


class Unstable:
    """A source that violates the contract: its elements depend on earlier accesses."""

    def __init__(self) -> None:
        self.accesses = 0

    def __len__(self) -> int:
        return 100

    def __getitem__(self, _index: int) -> Element:
        self.accesses += 1
        return {"x": np.array([self.accesses])}


def test_a_different_element_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("examples.elastic_run.PARTS", ((2, 0),))

    is_right = run_in_parts(ComposedDataset.source(Unstable()), 2, 1, "count", lambda elements: f"{len(elements):5}")

    assert not is_right
    assert "DIFFERENT" in capsys.readouterr().out
