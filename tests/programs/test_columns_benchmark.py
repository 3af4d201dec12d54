"""The benchmark of Parquet files in columns: it runs, counts all rows, and detects lost ones. Figures are not checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import columns


def test_a_small_run_prints_both_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert columns.main(["--rows", "20000", "--repeats", "1"]) == 0

    printed = capsys.readouterr().out
    assert "| dali_like " in printed
    assert "| pyarrow " in printed
    assert "rate of dali_like / pyarrow: " in printed


def test_lost_rows_are_an_error(tmp_path: Path) -> None:
    pattern = columns.write_files(str(tmp_path), 20_000)

    def incomplete(pattern: str) -> Iterator[dict[str, Any]]:
        batches = columns.scanned(pattern)
        next(batches)
        yield from batches

    assert columns.measured(columns.scanned, pattern).rows == 20_000
    with pytest.raises(AssertionError, match="are not those of the files"):
        columns.measured(incomplete, pattern)
