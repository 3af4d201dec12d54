"""Noise: the numbers of DALI and ours are not the same, but their types, layouts and distributions are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import dali_like
from tests.parity.alike import assert_both_refuse
from tests.parity.side_by_side import assert_alike, run_one

DALI = pytest.importorskip("nvidia.dali")
SHAPE = (100, 120, 3)
DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32"]


def define(library: Any, data: Any, mean: Any, factor: Any, prob: Any) -> dict[str, Any]:
    noise = library.fn.noise
    return {
        "gaussian": noise.gaussian(data),
        "gaussian wide": noise.gaussian(data, mean=3.0, stddev=50.0),
        "gaussian negative": noise.gaussian(data, stddev=-2.0),
        "gaussian none": noise.gaussian(data, stddev=0.0),
        "gaussian samples": noise.gaussian(data, mean=mean, stddev=mean),
        "salt": noise.salt_and_pepper(data),
        "salt samples": noise.salt_and_pepper(data, prob=prob, salt_vs_pepper=prob, salt_val=mean, pepper_val=factor),
        "salt elements": noise.salt_and_pepper(data, prob=0.4, per_channel=True, salt_val=120.7, pepper_val=3.6),
        "salt always": noise.salt_and_pepper(data, prob=1.0, salt_vs_pepper=0.9),
        "shot": noise.shot(data),
        "shot samples": noise.shot(data, factor=factor),
        "shot fine": noise.shot(data, factor=0.3),
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_distributions(dtype):
    """By moments, and by the two-sample test of Kolmogorov and Smirnov; the seeds are fixed."""
    data = [np.full(SHAPE, 60.25, dtype), np.linspace(0, 120, 36000).reshape(SHAPE).astype(dtype)]
    given = [np.float32(4), np.float32(1)], [np.float32(3), np.float32(0.5)], [np.float32(0.1), np.float32(0.7)]
    theirs, ours = (run_one(library, define, [data, *given], ["HWC"]) for library in (DALI, dali_like))

    for name, expected in theirs.items():
        assert ours[name].layout == expected.layout
        for one, other in zip(expected.samples, ours[name].samples, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            one, other = (np.round(numbers.astype(np.float64).ravel(), 3) for numbers in (one, other))  # noqa: PLW2901
            spread = max(one.std(), 1e-6)
            assert abs(one.mean() - other.mean()) <= 0.03 * spread, name
            assert abs(one.std() - other.std()) <= 0.05 * spread, name
            assert stats.ks_2samp(one, other).pvalue > 1e-4, name


def test_the_distributions_are_the_documented_ones():
    data = [np.full(SHAPE, 40, np.float32)]

    def exact(library: Any, data: Any) -> dict[str, Any]:
        noise = library.fn.noise
        return {
            "normal": noise.gaussian(data, mean=2.0, stddev=3.0),
            "poisson": noise.shot(data, factor=2.0),
            "salt": noise.salt_and_pepper(data, prob=0.3, salt_vs_pepper=0.25),
        }

    found = {name: output.samples[0] for name, output in run_one(dali_like, exact, [data], ["HWC"]).items()}
    assert stats.kstest(found["normal"].ravel(), stats.norm(42, 3).cdf).pvalue > 1e-3
    values, counts = np.unique(found["poisson"] / 2, return_counts=True)
    expected = stats.poisson(20).pmf(values) * found["poisson"].size
    often = expected > 20
    assert stats.chisquare(counts[often], expected[often], sum_check=False).pvalue > 1e-3
    assert abs((found["salt"] == 1).mean() - 0.3 * 0.25) < 0.01
    assert abs((found["salt"] == -1).mean() - 0.3 * 0.75) < 0.01


@pytest.mark.parametrize("layout", ["HWC", "CHW", "FHWC", ""])
def test_pixels_that_are_replaced(layout):
    shape = {"CHW": (3, 30, 40), "FHWC": (2, 30, 40, 3)}.get(layout, (30, 40, 3))
    data = [np.full(shape, 100, np.uint8)]

    def replaced(library: Any, data: Any) -> dict[str, Any]:
        noise = library.fn.noise
        return {
            flag: noise.salt_and_pepper(data, prob=0.5, per_channel=flag == "elements") for flag in ("pixels", "elements")
        }

    channels = layout.index("C") if layout else 2
    for library in (DALI, dali_like):
        for name, output in run_one(library, replaced, [data], [layout]).items():
            (result,) = output.samples
            first = np.take(result, [0], channels)
            assert np.array_equal(result, np.broadcast_to(first, shape)) == (name == "pixels")


def test_noise_of_strength_zero_changes_nothing():
    data = [np.arange(-10, 10, dtype=np.int32).reshape(4, 5), np.zeros((0, 5), np.int32)]

    def quiet(library: Any, data: Any) -> dict[str, Any]:
        noise = library.fn.noise
        return {
            "gaussian": noise.gaussian(data, stddev=0.0, mean=3.0),
            "salt": noise.salt_and_pepper(data, prob=0.0, per_channel=True),
            "pepper": noise.salt_and_pepper(data, prob=1.0, salt_vs_pepper=0.0, per_channel=True, pepper_val=-7.9),
        }

    assert_alike(quiet, data, layouts=["HW"])


def test_shots_without_noise():
    """A factor of 0 is the identity by DALI's documentation; its CPU operator returns zeros."""
    data = [np.float32([-3, 0.5, 1e30]), np.float32([-1, 2, np.nan])]

    def shots(library: Any, data: Any) -> dict[str, Any]:
        return {"none": library.fn.noise.shot(data, factor=0.0), "huge": library.fn.noise.shot(data, factor=1e-3)}

    found = run_one(dali_like, shots, [data], [])
    np.testing.assert_array_equal(found["none"].samples, data)
    assert found["huge"].samples[0][0] == 0
    assert found["huge"].samples[0][2] == np.float32(1e30)
    assert np.isnan(found["huge"].samples[1][2])


@pytest.mark.parametrize(
    ("match", "name", "arguments"),
    [
        ("prob must be", "salt_and_pepper", {"prob": 1.5}),
        ("prob must be", "salt_and_pepper", {"prob": -0.1}),
        ("salt_vs_pepper must be", "salt_and_pepper", {"salt_vs_pepper": 2.0}),
        ("has no channels", "salt_and_pepper", {}),
    ],
)
def test_wrong_arguments(match, name, arguments):
    assert_both_refuse(
        lambda library, data: getattr(library.fn.noise, name)(data, **arguments),
        [np.zeros((4, 5), np.uint8)],
        layouts=["HW"],
        match=match,
    )


@pytest.mark.parametrize("name", ["gaussian", "salt_and_pepper", "shot"])
def test_boolean_data(name):
    data = [np.zeros((4, 5, 1), bool)]

    assert_both_refuse(lambda library, data: getattr(library.fn.noise, name)(data), data, match="not to data of dtype bool")
