"""Types, shapes and combinations of arrays: general properties and placement.

tests/parity/test_arrays.py compares the results with DALI.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from dali_like import fn, ops, types
from dali_like.errors import ArgumentError, SampleError
from dali_like.operators.machinery.conversion import convert
from tests.operators.running import WAYS, batches, run

INTEGERS = [np.dtype(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")]
#: Samples of more than 16 KiB each.
LARGE = [np.random.default_rng(i).integers(0, 256, (70, 80, 3), np.uint8) for i in range(5)]
IMAGES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(4)]


def define(image, label):
    chw = fn.transpose(fn.cast(image, dtype=types.FLOAT), perm=[2, 0, 1])
    return [
        chw,
        fn.reshape(image, shape=[-1, 3])[:2],
        fn.stack(chw, chw / 2, axis_name="N"),
        fn.one_hot(label, num_classes=5),
        fn.lookup_table(label, keys=[0, 1], values=[7, 8], dtype=types.INT32),
        fn.copy(label) + fn.constant(idata=3, shape=[]),
    ]


class TestWhereTheyRun:
    @pytest.mark.parametrize("way", WAYS)
    def test_the_same_in_threads_and_in_workers(self, way):
        labels = [np.int32(i) for i in range(4)]
        (outputs,) = batches(define, IMAGES, labels, layouts=["HWC"], way=way)

        chw = np.transpose(IMAGES, (0, 3, 1, 2)).astype(np.float32)
        expected = [
            chw,
            np.reshape(IMAGES, (4, -1, 3))[:, :2],
            np.stack([chw, chw / np.int32(2)], 1).astype(np.float32),
            np.eye(5, dtype=np.float32)[:4],
            np.int32([7, 8, 0, 0]),
            np.int32([3, 4, 5, 6]),
        ]
        for output, array in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(output.as_array(), array, strict=True)
        assert [output.layout() for output in outputs] == ["CHW", "", "NCHW", "", "", ""]

    @pytest.mark.parametrize("way", WAYS)
    def test_views_of_memory_that_is_used_again(self, way):
        """Memory between operators is reused for the next sample; a view of it must not show that sample."""

        def define(image):
            between = fn.flip(image)
            chw = fn.transpose(between, perm=[2, 0, 1])
            return [chw, chw[:, 5:], fn.reshape(between, shape=[-1]), chw[1] + fn.squeeze(chw[:1], axes=0), fn.copy(between)]

        for outputs in run(define, LARGE, layouts=["HWC"], way=way, iterations=2):
            for i, image in enumerate(LARGE):
                back = image[:, ::-1]
                chw = back.transpose(2, 0, 1)
                for output, expected in zip(outputs, [chw, chw[:, 5:], back.ravel(), chw[1] + chw[0], back], strict=True):
                    np.testing.assert_array_equal(output[i], expected)

    def test_classes(self):
        ((results,),) = run(lambda image: ops.Transpose(perm=[1, 0, 2])(ops.Cast()(image, dtype=types.INT16)), IMAGES)

        np.testing.assert_array_equal(results, np.transpose(IMAGES, (0, 2, 1, 3)).astype(np.int16), strict=True)


class TestConversion:
    @given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(INTEGERS))
    @settings(max_examples=100, deadline=None)
    def test_integers_are_limited(self, data, given_type, wanted):
        array = data.draw(numpy_st.arrays(given_type, (4,)))

        result = convert(array, wanted)

        assert result.dtype == wanted
        assert result.tolist() == [limited(int(number), wanted) for number in array]

    @given(st.data(), st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)]), st.sampled_from(INTEGERS))
    @settings(max_examples=200, deadline=None)
    def test_fractions_are_rounded_to_the_nearest(self, data, given_type, wanted):
        near = st.integers(-(2**20), 2**20).map(lambda number: number / 4)
        far = st.floats(-(2.0**70), 2.0**70, width=8 * given_type.itemsize, allow_nan=False)
        array = np.array(data.draw(st.lists(near | far, min_size=3, max_size=3)), given_type)

        result = convert(array, wanted)

        rounded = [int(Decimal(float(number)).quantize(0, ROUND_HALF_UP)) for number in array]
        assert result.tolist() == [limited(number, wanted) for number in rounded]

    @pytest.mark.parametrize("given_type", [np.float16, np.float32, np.float64])
    def test_infinity_and_nan(self, given_type):
        array = np.array([np.inf, -np.inf, np.nan], given_type)

        assert [convert(array, dtype).tolist() for dtype in INTEGERS] == [
            [np.iinfo(dtype).max, np.iinfo(dtype).min, 0] for dtype in INTEGERS
        ]

    def test_an_array_of_that_type_is_not_copied(self):
        array = np.ones(3, np.int16)

        assert convert(array, np.dtype(np.int16)) is array


def limited(number: int, dtype: np.dtype) -> int:
    return max(int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), number))


class TestShapes:
    @given(st.data())
    @settings(max_examples=30, deadline=None)
    def test_dimensions_that_are_inserted_can_be_removed(self, data):
        array = data.draw(numpy_st.arrays(np.uint8, numpy_st.array_shapes(max_dims=3)))
        axes = data.draw(st.lists(st.integers(0, array.ndim + 1), min_size=2, max_size=2, unique=True))

        ((wider, same),) = run(
            lambda a: [fn.expand_dims(a, axes=axes), fn.squeeze(fn.expand_dims(a, axes=axes), axes=axes)], [array]
        )

        np.testing.assert_array_equal(wider[0], np.expand_dims(array, axes), strict=True)
        np.testing.assert_array_equal(same[0], array, strict=True)

    def test_empty_arrays_have_any_shape_of_no_elements(self):
        """DALI refuses extents of 0."""
        ((result,),) = run(lambda a: fn.reshape(a, shape=[3, 0, 2]), [np.ones((0, 5))])

        assert result[0].shape == (3, 0, 2)

    def test_bytes_as_booleans(self):
        """Every byte but 0 is True, as in C; NumPy expects 1."""
        ((result,),) = run(lambda a: fn.reinterpret(a, dtype=types.BOOL), [np.uint8([0, 1, 2])])

        assert result[0].view(np.uint8).tolist() == [0, 1, 1]

    def test_the_layout_is_that_of_as_many_letters(self):
        ((flat,),) = batches(lambda a: fn.transpose(fn.flip(a)), IMAGES)
        ((moving,),) = batches(lambda a: fn.transpose(fn.flip(a)), [image[None] for image in IMAGES])

        assert (flat.layout(), moving.layout()) == ("CWH", "CWHF")

    def test_an_argument_that_no_possible_layout_allows_is_refused_at_once(self):
        image = fn.flip(fn.external_source(name="x"))

        fn.transpose(image, perm=[2, 0, 1])
        with pytest.raises(ArgumentError, match=r"fn.transpose: perm has 2 dimensions; the layout 'HWC'"):
            fn.transpose(image, perm=[1, 0])

    def test_samples_of_one_element_among_others(self):
        """DALI checks the whole batch before it treats one-element arrays as numbers; with an axis both libraries agree."""
        ((results,),) = run(lambda a: fn.one_hot(a, num_classes=2, axis=1), [np.array([1]), np.array([1, 0])])

        assert [result.tolist() for result in results] == [[[0, 1]], [[0, 1], [1, 0]]]

    def test_the_error_names_the_operator_and_the_sample(self):
        with pytest.raises(SampleError, match="7 elements of an input do not fit the shape") as info:
            run(lambda a: fn.reshape(a, shape=[2, -1]), [np.ones(6), np.ones(7)])

        assert info.value.__notes__ == ["raised by fn.reshape for sample 1 of iteration 0 in epoch 0 (idx_in_epoch 1)"]


class TestNumbersWithoutDimensions:
    """NumPy 1 chooses the dtype of a result by their values."""

    @pytest.mark.parametrize("dtype", INTEGERS, ids=str)
    def test_conversions_saturate_as_those_of_arrays_do(self, dtype):
        limits = np.iinfo(dtype)
        for number in (limits.min, limits.max, limits.max - 33, 1):
            array = np.array([number], dtype)
            for other in INTEGERS:
                assert convert(array[0, ...], other) == convert(array, other)[0]

    @pytest.mark.parametrize("dtype", INTEGERS, ids=str)
    def test_tables_are_looked_up_as_with_arrays(self, dtype):
        def define(number):
            vector = fn.reshape(number, shape=[1])
            return [fn.lookup_table(data, keys=[1, 3], values=[5, 9], default_value=2) for data in (number, vector)]

        ((numbers, vectors),) = run(define, [np.array(i, dtype) for i in (1, 3, 7)])

        assert [int(number) for number in numbers] == [5, 9, 2]
        assert [int(vector[0]) for vector in vectors] == [5, 9, 2]
