"""Drawing by weight, at the ends of the interval of random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dali_like.data.generators import by_arrival, by_cumulated_weights

ALMOST_ONE = np.nextafter(1, 0)


@pytest.mark.parametrize(("number", "position"), [(0.0, 1), (0.24, 1), (0.25, 3), (ALMOST_ONE, 3)])
def test_numbers_fall_on_positions_with_a_weight(number: float, position: int) -> None:
    weights = np.array([0, 1, 0, 3, 0], float)

    assert by_cumulated_weights(weights, np.array([number])).tolist() == [position]


@pytest.mark.parametrize("scale", [1e-310, 1.0, 1e308])
def test_weights_may_be_of_any_size(scale: float) -> None:
    weights = np.array([1, 1, 1, 1], float) * scale

    assert by_cumulated_weights(weights, np.array([0.1, 0.3, 0.6, 0.9])).tolist() == [0, 1, 2, 3]
    assert by_arrival(weights, np.array([0.9, 0.1, 0.5, 0.3]), 3).tolist() == [1, 3, 2]


def test_a_number_of_zero_arrives_first() -> None:
    assert by_arrival(np.array([5.0, 1.0, 0.0]), np.array([0.01, 0.0, 0.0]), 2).tolist() == [1, 0]
