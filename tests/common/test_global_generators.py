"""The global random generators are put back."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dali_like.common.global_generators import generator_states, kept_generators


def test_generators_are_put_back_also_after_an_error() -> None:
    before = generator_states()
    drawn: list[float] = []

    def fail() -> None:
        with kept_generators():
            drawn.extend((random.random(), np.random.random()))
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()

    assert [random.random(), np.random.random()] == drawn
    after = generator_states()
    assert after[0] != before[0]
