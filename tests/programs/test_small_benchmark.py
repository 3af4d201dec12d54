"""The benchmark of operators on small samples: it runs, and shows shares of the plain rate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import small
from dali_like import Pipeline, fn, types
from dali_like.types import SampleInfo

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_row_is_compared_with_the_plain_one() -> None:
    options = ["--rows", "plain,cast", "--systems", "dali_like", "--repeats", "1", "--seconds", "0.01"]
    command = [sys.executable, "-m", "benchmarks.small", *options]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)

    assert finished.returncode == 0, finished.stderr
    assert [line.split()[0] for line in finished.stdout.splitlines()] == ["plain", "cast"]
    assert "share 1.00" in finished.stdout


@pytest.mark.parametrize("row", small.ROWS)
def test_the_operators_of_a_row_run(row: str) -> None:
    source, layout, operators = small.ROWS[row]
    with Pipeline(2) as pipe:
        layouts = None if layout is None else [layout, ""]
        data = fn.external_source(source, num_outputs=2, batch=False, layout=layouts)
        pipe.set_outputs(*operators(SimpleNamespace(fn=fn, types=types), *data))
    try:
        *_, labels = pipe.run()
        assert len(labels) == 2
    finally:
        pipe.close()
    assert np.asarray(source(SampleInfo(3, 1, 0, 0))[1]).tolist() == [3]
