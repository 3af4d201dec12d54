"""The benchmark of operators beside DALI's."""

from __future__ import annotations

import pytest

from benchmarks.operators import measuring
from benchmarks.operators.measuring import Row, measure


def test_a_row_has_a_time_for_each_library() -> None:
    ours, theirs = measure(Row("cast", small=True, ragged=True, num_threads=2), repeats=1, seconds=0.001)

    assert ours > 0
    assert theirs > 0


def test_results_of_other_shapes_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = iter(["these", "others"])
    monkeypatch.setattr(measuring, "kind_of", lambda outputs: next(kinds))

    with pytest.raises(AssertionError, match="the results differ"):
        measure(Row("cast", small=True, ragged=False, num_threads=1), repeats=1, seconds=0.001)
