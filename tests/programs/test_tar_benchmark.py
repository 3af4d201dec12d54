"""The benchmark of tar files: it measures dali_like, and detects wrong batches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.composed import tars


def test_dali_like_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["dali_like", "--batches", "2", "--images", "300", "--folder", str(tmp_path)]

    assert tars.main(arguments) == 0
    assert re.match(r"dali_like: [\d.]+ us of CPU per sample, [\d,]+ samples/s, first", capsys.readouterr().out)


def test_a_wrong_batch_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(sample: dict[str, Any]) -> dict[str, Any]:
        return {"image": np.zeros((28, 28), np.uint8), "number": np.int64(7)}

    monkeypatch.setattr(tars, "decoded", wrong)
    with pytest.raises(ValueError, match="the last batch is wrong"):
        tars.main(["dali_like", "--batches", "2", "--images", "300", "--folder", str(tmp_path)])
