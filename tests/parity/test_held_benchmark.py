"""The benchmark of datasets that hold many small objects."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks import held


def test_a_row_has_the_figures_of_both_libraries() -> None:
    cells = [cell.strip() for cell in held.row(1, 1, repeats=1).strip("|").split("|")]

    assert cells[:2] == ["1", "1"]
    assert len(cells) == 9
    assert all(float(cell) > 0 for cell in cells)
