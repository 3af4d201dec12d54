"""Durations, counted in bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dali_like.monitor.measure.durations import Durations


def test_nothing_takes_no_time() -> None:
    nothing = Durations()

    assert (nothing.count, nothing.mean_s, nothing.median_s, nothing.p99_s) == (0, 0, 0, 0)


@given(st.lists(st.floats(1e-6, 100), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_right_to_a_quarter(seconds: list[float], share: float) -> None:
    right = float(np.quantile(seconds, share, method="inverted_cdf"))

    assert Durations.of(seconds).quantile_s(share) == pytest.approx(right, rel=0.25)


def test_a_bin_is_divided_evenly() -> None:
    many = Durations.of(np.linspace(0.001, 0.1, 10_000))

    assert many.median_s == pytest.approx(0.0505, rel=0.02)
    assert many.p90_s == pytest.approx(0.0901, rel=0.02)


def test_the_mean_is_exact() -> None:
    assert Durations.of([0.001, 0.002, 0.009]).mean_s == pytest.approx(0.004)


def test_earlier_ones_can_be_left_out() -> None:
    before, after = Durations.of([1.0]), Durations.of([1.0, 0.01, 0.01])

    assert after.since(before).count == 2
    assert after.since(before).total_s == pytest.approx(0.02)
    assert after.since(before).median_s == pytest.approx(0.01, rel=0.25)


def test_their_text_has_figures_instead_of_bins() -> None:
    assert repr(Durations.of([0.25] * 4)) == "<Durations count=4 mean_s=0.25 p90_s=0.265 p99_s=0.268>"
