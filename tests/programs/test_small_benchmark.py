"""The benchmark of operators on small samples: all systems compute the same, and the table compares them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import small
from benchmarks.adapters import is_installed
from benchmarks.small import Measured
from dali_like import Pipeline, fn, types
from dali_like.types import SampleInfo

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_row_is_compared_with_the_first_one(tmp_path: Path) -> None:
    options = ["--rows", "plain,cast", "--systems", "dali_like", "--repeats", "1", "--seconds", "0.01"]
    command = [sys.executable, "-m", "benchmarks.small", *options, "--report", str(tmp_path / "small.md")]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)

    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "small.md").read_text() == finished.stdout
    _, _, plain, cast = finished.stdout.splitlines()
    assert plain.startswith("| 28x28 bytes and a label |")
    assert plain.endswith("| 1.00 |")
    assert cast.startswith("| `cast`, `one_hot` |")


@pytest.mark.parametrize("row", small.ROWS)
def test_operators_of_a_row_compute_the_same_as_the_dataset(row: str) -> None:
    source, layout = small.ROWS[row].source, small.ROWS[row].layout
    with Pipeline(3) as pipe:
        layouts = None if layout is None else [layout, ""]
        data = fn.external_source(source, num_outputs=2, batch=False, layout=layouts)
        pipe.set_outputs(*small.ROWS[row].operators(SimpleNamespace(fn=fn, types=types), *data))
    try:
        made = [output.as_array() for output in pipe.run()]
    finally:
        pipe.close()

    for i in range(3):
        for output, expected in zip(made, small.Dataset(small.ROWS[row])[i], strict=True):
            mine, theirs = np.asarray(output[i]), np.asarray(expected)
            if row == "padded" and theirs.size > 1:
                theirs = np.pad(theirs, (0, len(mine) - len(theirs)))
            if row == "mirrored" and theirs.size > 1:
                mine, theirs = np.sort(mine, axis=-1), np.sort(theirs, axis=-1)
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not is_installed("torch"), reason="needs torch")
def test_the_loader_of_texts_delivers_padded_batches() -> None:
    with small.running("torch", "padded") as take:
        ids, labels = take()

    assert small.tokens(SampleInfo(3, 3, 0, 0))[0].tolist() == ids[3][:23].tolist()
    assert (tuple(ids.shape), tuple(labels.shape)) == ((256, 80), (256, 1))


def test_ratios_are_medians_of_the_repeats() -> None:
    measured = {
        ("plain", "dali_like"): [Measured(100.0, 1.0), Measured(300.0, 1.0), Measured(200.0, 1.0)],
        ("plain", "torch"): [Measured(10.0, 20.0), Measured(10.0, 10.0), Measured(50.0, 5.0)],
        ("cast", "dali_like"): [Measured(50.0, 2.0)] * 3,
        ("cast", "torch"): [Measured(5.0, 20.0)] * 3,
    }

    lines = small.report_of(measured).splitlines()

    assert lines[0].endswith("| share of the first row | times the rate of PyTorch | times less CPU than PyTorch |")
    assert lines[2] == "| 28x28 bytes and a label | 200 | 10 | 1.00 | 10.0 | 10.0 |"
    assert lines[3] == "| `cast`, `one_hot` | 50 | 5 | 0.50 | 10.0 | 10.0 |"
