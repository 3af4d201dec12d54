"""The recipe of `benchmarks.dynamic`: a pipeline, dynamic mode and a dataset compute the same bits."""

from __future__ import annotations

import sys
from contextlib import closing

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from benchmarks import dynamic
from dali_like.data import DataLoader


def test_the_same_bits_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "BATCH_SIZE", 4)
    files = dynamic.photographs(3)
    with closing(dynamic.recipe(files, batch_size=4, num_threads=1, py_num_workers=0)) as pipe:
        expected = [pipe.run()[0].as_array() for _ in range(2)]
    with ndd.EvalContext(num_threads=1):
        batches = dynamic.dynamic_batches(files)
        in_dynamic_mode = [np.asarray(next(batches)) for _ in range(2)]
    of_dataset = [*DataLoader(dynamic.Photographs(files, 8), batch_size=4)]

    assert expected[0].shape == (4, 3, 224, 224)
    assert np.array_equal(expected, in_dynamic_mode)
    assert np.array_equal(expected, of_dataset)
    assert not np.array_equal(expected[0], expected[1])


def test_the_program_prints_ratios(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(dynamic, "BATCH_SIZE", 2)
    monkeypatch.setattr(dynamic, "REPEATS", 1)
    monkeypatch.setattr(sys, "argv", ["dynamic", "--batches", "1", "--threads", "1"])
    dynamic.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["pipeline", "dynamic mode", "dataset"]
    assert all(line.endswith("of the pipeline") for line in lines)
