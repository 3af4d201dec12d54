"""Reductions against the real DALI.

Integers are the same. FLOAT is not: DALI adds up in that type, dali_like in FLOAT64. DALI's loss is within
`BOUND` of the sum that all terms would have if they were positive.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.alike import DALI, OURS, assert_both_refuse, assert_same, outputs

pytestmark = pytest.mark.peers

#: Of the sum of the magnitudes of the terms: four units in the last place of FLOAT.
BOUND = 4 * 2.0**-24
INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
AXES = {
    "all": {},
    "first": {"axes": 0},
    "last": {"axes": -1},
    "two": {"axes": [2, 0]},
    "none": {"axes": []},
    "names": {"axis_names": "CH"},
    "kept": {"axes": [1], "keep_dims": True},
    "all kept": {"keep_dims": True},
    "names kept": {"axis_names": "W", "keep_dims": True},
}


def images(dtype, seed=0):
    """Two images of different shapes."""
    random = np.random.default_rng(seed)
    samples = [random.uniform(-1, 1, (5, 7, 3)), random.uniform(-1, 1, (3, 11, 3))]
    if np.dtype(dtype).kind == "f":
        return [sample.astype(dtype) for sample in samples]
    limits = np.iinfo(dtype)
    return [random.integers(limits.min, limits.max, sample.shape, dtype=dtype, endpoint=True) for sample in samples]


def magnitude(name, sample, axes=None, axis_names=None, keep_dims=False):
    """The result if all terms were positive."""
    terms = np.abs(sample.astype(np.float64)) ** (2 if name == "mean_square" else 1)
    where = None if axes is None else tuple(np.atleast_1d(axes).astype(int))
    where = where if axis_names is None else tuple("HWC".index(letter) for letter in axis_names)
    return (terms.sum if name == "sum" else terms.mean)(axis=where, keepdims=keep_dims)


def small(dtype):
    """As `images`, but of numbers whose squares DALI can add up as FLOAT."""
    return [(sample % 50).astype(dtype) for sample in images("u1")]


class TestExact:
    @pytest.mark.parametrize("dtype", [*INTEGERS, "f4"])
    def test_extremes(self, dtype):
        def define(library, node):
            reductions = library.fn.reductions
            return {
                f"{name} {axes}": getattr(reductions, name)(node, **arguments)
                for axes, arguments in AXES.items()
                for name in ("min", "max")
            }

        assert_same(define, images(dtype), layouts=["HWC"])

    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_sums_of_integers(self, dtype):
        def define(library, node):
            return {axes: library.fn.reductions.sum(node, **arguments) for axes, arguments in AXES.items()}

        assert_same(define, images(dtype), layouts=["HWC"])

    def test_types_of_results(self):
        def define(library, u1, i1, i4, i8):
            reductions, types = library.fn.reductions, library.types
            return {
                "wrapped": reductions.sum(u1, dtype=types.UINT8),
                "wide": reductions.sum(i1, dtype=types.INT64),
                "as before": reductions.sum(i4, dtype=types.INT32),
                "float": reductions.sum(i4, dtype=types.FLOAT),
                "mean": reductions.mean(i4, dtype=types.INT32),
                "mean of 64 bits": reductions.mean(i8, dtype=types.INT64),
                "mean square": reductions.mean_square(i4, dtype=types.INT64),
                "rms": reductions.rms(i4, dtype=types.INT32),
            }

        samples = [sample - 25 for sample in small("i4")]
        assert_same(define, *[[sample.astype(dtype) for sample in samples] for dtype in ("u1", "i1", "i4", "i8")])

    def test_special_samples(self):
        def define(library, scalar, empty, nan):
            reductions = library.fn.reductions
            results = {f"{name} of a scalar": getattr(reductions, name)(scalar) for name in ("sum", "mean", "max", "rms")}
            results |= {f"{name} of nothing": getattr(reductions, name)(empty) for name in ("sum", "mean", "min", "max")}
            results |= {f"{name} of no columns": getattr(reductions, name)(empty, axes=1) for name in ("sum", "min")}
            return results | {f"{name} of NaN": getattr(reductions, name)(nan) for name in ("sum", "min", "max")}

        assert_same(define, [np.float32(-3)], [np.ones((0, 3), np.float32)], [np.float32([np.nan, 1, 3])])


class TestRounded:
    @pytest.mark.parametrize("axes", AXES)
    @pytest.mark.parametrize("dtype", [*INTEGERS, "f4"])
    def test_within_the_bound(self, dtype, axes):
        arguments = AXES[axes]
        names = ("mean", "mean_square") if dtype in INTEGERS else ("sum", "mean", "mean_square")
        samples = small(dtype) if dtype in INTEGERS else images(dtype)

        def define(library, node):
            return {name: getattr(library.fn.reductions, name)(node, **arguments) for name in names}

        theirs, ours = (outputs(library, define, [samples], ["HWC"]) for library in (DALI, OURS))

        for name in names:
            assert theirs[name].layout == ours[name].layout
            for one, other, sample in zip(theirs[name].samples, ours[name].samples, samples, strict=True):
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                apart = np.abs(one.astype(np.float64) - other)
                assert (apart <= BOUND * magnitude(name, sample, **arguments)).all(), f"{name}: {apart.max()}"

    def test_roots(self):
        def define(library, node):
            reductions = library.fn.reductions
            mean = reductions.mean(node, axes=[0, 1])
            return {
                "rms": reductions.rms(node, axes=[0, 1]),
                "std_dev": reductions.std_dev(node, mean, axes=[0, 1]),
                "ddof": reductions.std_dev(node, mean, axes=[0, 1], ddof=1),
            }

        assert_same(define, small("u1"), layouts=["HWC"], ulps=4)

    def test_means(self):
        def define(library, node):
            reductions = library.fn.reductions
            kept = reductions.mean(node, axes=[1], keep_dims=True)
            return {
                "number": reductions.variance(node, 11.5),
                "ddof": reductions.variance(node, 11.5, ddof=1),
                "no ddof left": reductions.variance(node, 11.5, ddof=-1),
                "node": reductions.variance(node, reductions.mean(node)),
                "kept": reductions.variance(node, kept, axes=[1]),
                "kept, to be kept": reductions.variance(node, kept, axes=[1], keep_dims=True),
                "not kept": reductions.variance(node, reductions.mean(node, axes=[0, 2]), axes=[0, 2]),
                "not kept, to be kept": reductions.variance(node, reductions.mean(node, axes=0), axes=0, keep_dims=True),
                "names": reductions.variance(node, reductions.mean(node, axis_names="HW"), axis_names="HW"),
            }

        assert_same(define, small("i2"), layouts=["HWC"], ulps=16)


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"axes": 3}, r"fn.reductions.sum: axes has 3, but axes are numbered from -3 to 2"),
            ({"axes": -4}, r"fn.reductions.sum: axes has -4, but axes are numbered from -3 to 2"),
            ({"axes": [0, 0]}, r"fn.reductions.sum: axes must be .* each only once, not \[0, 0\]"),
            ({"axes": [0, -3]}, r"fn.reductions.sum: axes has an axis twice: \[0, -3\]"),
            ({"axis_names": "Z"}, "fn.reductions.sum: there is no axis 'Z' in the layout 'HWC'"),
            ({"axis_names": "H", "axes": 0}, "fn.reductions.sum: axes and axis_names exclude each other"),
        ],
    )
    def test_both_refuse(self, arguments, message):
        def define(library, node):
            return library.fn.reductions.sum(node, **arguments)

        assert_both_refuse(define, images("u1")[:1], layouts=["HWC"], match=message)

    def test_a_number_without_dimensions(self):
        assert_both_refuse(lambda library, a: library.fn.reductions.sum(a, axes=0), [np.float32(1)], match="axes has 0")

    def test_a_mean_of_another_shape(self):
        """DALI reads beyond its end in memory."""

        def define(library, node):
            return {"it": library.fn.reductions.variance(node, library.fn.reductions.mean(node, axes=1), axes=0)}

        with pytest.raises(RuntimeError, match=r"the mean must be a number or have the shape \(7, 3\) or \(1, 7, 3\), not"):
            outputs(OURS, define, [images("u1")[:1]], [])


class TestDifferences:
    """Differences from DALI 1.53, with DALI's results."""

    def test_a_number_as_the_mean_of_several_results(self):
        """DALI has it for the first result; for the others it reads the memory behind the number."""
        define = lambda library, node: {"it": library.fn.reductions.variance(node, 2.0, axes=0)}  # noqa: E731

        assert outputs(OURS, define, [[np.float32([[1, 2], [2, 5]])]], [])["it"].samples[0].tolist() == [0.5, 4.5]

    def test_means_as_small_integers(self):
        """DALI adds up in the type of the result."""
        define = lambda library, node: {"it": library.fn.reductions.mean(node, dtype=library.types.UINT8)}  # noqa: E731
        theirs, ours = (outputs(library, define, [[np.uint8([200, 100, 3])]], []) for library in (DALI, OURS))

        assert (theirs["it"].samples, ours["it"].samples) == ([15], [101])
