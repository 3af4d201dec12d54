"""The benchmark of features one at a time: each runs, and the picture shows the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import features
from benchmarks.adapters import is_installed

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_feature_is_compared_with_the_plain_pipeline(tmp_path: Path) -> None:
    report = tmp_path / "features.md"
    options = ["--features", "serial", "--repeats", "1", "--seconds", "0.01", "--report", str(report)]
    command = [sys.executable, "-m", "benchmarks.features", *options]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)

    assert finished.returncode == 0, finished.stderr
    assert "| `parallel=False` | " in report.read_text()
    texts = [text.text for text in ElementTree.parse(report.with_suffix(".svg")).iter("{http://www.w3.org/2000/svg}text")]
    assert {"fn.external_source", "parallel=False"} <= set(texts)


@pytest.mark.parametrize("name", [name for name, feature in features.FEATURES.items() if is_installed(feature.needs)])
def test_a_feature_delivers_batches(name: str) -> None:
    running = features.FEATURES[name].start()
    try:
        assert [running.take() for _ in range(2)] == [running.take()] * 2
    finally:
        running.close()


def test_the_report_has_the_median_and_the_range() -> None:
    report = features.report_of({"rng": [0.5, 0.25, 0.375], "plain_loader": [1.0]})

    assert "| `info.rng()` in each call | 0.38 | 0.25 to 0.50 | 0.40 |" in report
    assert "| DataLoader: one feature | share of the plain rate | range | wanted |" in report


def test_the_picture_of_the_documentation_agrees_with_its_tables() -> None:
    """If this fails, run ``python -m benchmarks.features --draw``."""
    drawn = features.draw(features.DOCUMENTATION.read_text(encoding="utf-8"))

    assert features.PICTURE.read_text(encoding="utf-8") == drawn
