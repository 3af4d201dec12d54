"""The benchmark of samples that take very different times."""

from __future__ import annotations

import argparse

import pytest

torch = pytest.importorskip("torch")

from benchmarks import tails  # noqa: E402


@pytest.mark.parametrize("pattern", list(tails.PATTERNS))
def test_patterns_have_the_times_that_their_names_say(pattern: str) -> None:
    units = sorted(tails.PATTERNS[pattern](1000))

    assert len(units) == 1000
    if pattern == "fifth":
        assert units == [1] * 800 + [10] * 200
    elif pattern == "hundredth":
        assert units == [1] * 990 + [100] * 10
    else:
        assert units[500] == pytest.approx(1, rel=0.1)
        assert units[841] == pytest.approx(2.718, rel=0.2), "one standard deviation"


@pytest.mark.parametrize(("workers", "bound_s"), [(1, 1.0), (2, 0.6)])
def test_the_bound_is_the_work_of_each_worker_or_the_longest_sample(workers: int, bound_s: float) -> None:
    batches = [(None, torch.tensor([0.2, 0.1])), (None, torch.tensor([0.6, 0.1]))]

    assert tails.measure(batches, workers).bound_s == pytest.approx(bound_s)


def test_rows_have_a_cell_for_each_column() -> None:
    options = argparse.Namespace(patterns=["fifth"], batches=[4], workers=2, samples=24, unit_ms=0.01, repeats=1)

    (row,) = tails.rows(options, tails.in_order)
    assert row.startswith("| fifth | 4 |")
    assert row.endswith("| 128 | 4.0 MiB |")
    (row,) = tails.rows(options, tails.overtaking)
    assert row.count("|") == 7
