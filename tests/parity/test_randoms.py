"""Random numbers of DALI and ours are not the same, but their types, shapes and distributions are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import dali_like
from tests.parity.alike import assert_both_refuse
from tests.parity.side_by_side import run_one

COUNT = 20_000


def define(library: Any, like: Any) -> dict[str, Any]:
    random, types = library.fn.random, library.types
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {
        "normal one": random.normal(),
        "normal many": random.normal(mean=3.0, stddev=2.0, shape=COUNT),
        "normal like": random.normal(like),
        "normal integers": random.normal(mean=128.0, stddev=300.0, shape=[COUNT], dtype=types.UINT8),
        "normal negative": random.normal(stddev=-2.0, shape=[COUNT], dtype=types.INT16),
        "normal double": random.normal(dtype=types.FLOAT64),
        "uniform rounded": random.uniform(range=[0.0, 2.0], shape=[COUNT], dtype=types.INT32),
        "uniform values": random.uniform(values=[1.5, 300.0, -4.0, 2.5], shape=[COUNT], dtype=types.UINT8),
        "beta one": random.beta(),
        "beta many": random.beta(alpha=2.0, beta=0.7, shape=COUNT),
        "beta like": random.beta(like, dtype=types.FLOAT64),
        "coins": random.coin_flip(like, probability=0.3, dtype=types.UINT8),
        "choice number": random.choice(5, shape=[COUNT]),
        "choice list": random.choice([1, 5, 9], shape=[COUNT], p=[0.2, 0.0, 0.8]),
        "choice floats": random.choice([1.5, 5.0], shape=COUNT),
        "choice bools": random.choice([True, False]),
        "choice bytes": random.choice(np.array([1, 2, 3], np.int8)),
        "choice scalar": random.choice(np.uint8(4), shape=[COUNT]),
        "choice row": random.choice(rows),
        "choice rows": random.choice(rows, shape=[COUNT]),
        "choice like": random.choice(5, like),
    }


def test_types_shapes_and_distributions():
    like = [np.zeros((100, 200, 1), np.uint8)]
    theirs = run_one(pytest.importorskip("nvidia.dali"), define, [like], ["HWC"])
    ours = run_one(dali_like, define, [like], ["HWC"])

    for name, expected in theirs.items():
        one, other = expected.samples[0], ours[name].samples[0]
        assert (one.dtype, one.shape, expected.layout) == (other.dtype, other.shape, ours[name].layout), name
        if one.size < COUNT:
            continue
        spread = max(one.std(), other.std())
        assert abs(one.mean() - other.mean()) <= 0.05 * spread, name
        assert abs(one.std() - other.std()) <= 0.05 * spread, name
        if len(set(one.flat)) < 10:
            assert set(one.flat) == set(other.flat), name


@pytest.mark.parametrize("layout", ["NS", ""])
def test_layouts_of_random_choices_equal_dalis(layout):
    def choices(library: Any, rows: Any) -> dict[str, Any]:
        choice = library.fn.random.choice
        shapes: dict[str, Any] = {"one": None, "none": (), "a row": 5, "a row of one": (1,), "rows": (1, 2)}
        return {name: choice(rows, shape=shape) for name, shape in shapes.items()} | {"like": choice(rows, np.zeros((2, 3)))}

    rows = [np.arange(6).reshape(2, 3)]
    theirs = run_one(pytest.importorskip("nvidia.dali"), choices, [rows], [layout])
    ours = run_one(dali_like, choices, [rows], [layout])

    assert {name: output.layout for name, output in ours.items()} == {name: output.layout for name, output in theirs.items()}


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 0.5), (2.0, 5.0), (30.0, 3.0)])
def test_beta_distributions(alpha, beta):
    for library in (pytest.importorskip("nvidia.dali"), dali_like):
        numbers = run_one(library, lambda it: {"it": it.fn.random.beta(alpha=alpha, beta=beta, shape=COUNT)}, [], [])

        assert stats.kstest(numbers["it"].samples[0], stats.beta(alpha, beta).cdf).pvalue > 1e-4


@pytest.mark.parametrize("arguments", [{"alpha": 0.0}, {"beta": -1.0}, {"alpha": np.inf}, {"dtype": "UINT8"}])
def test_wrong_beta_distributions(arguments):
    def define(library: Any, _: Any) -> Any:
        return library.fn.random.beta(
            **{name: library.types.UINT8 if name == "dtype" else value for name, value in arguments.items()}
        )

    assert_both_refuse(define, [0], match=f"{next(iter(arguments))} must be")
