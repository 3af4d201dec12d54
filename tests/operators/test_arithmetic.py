"""Arithmetic and indexing of data nodes: placement, operands, and features beyond DALI.

tests/parity/test_arithmetic.py compares the results with DALI.
"""

from __future__ import annotations

import copy
import itertools
import operator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from dali_like import Pipeline, fn, math, newaxis, types
from dali_like.errors import ArgumentError, ArgumentTypeError, DefinitionError, SampleError, SampleTypeError
from dali_like.experimental import dynamic
from dali_like.graph.language.arithmetic import promoted
from dali_like.graph.language.nodes import DataNode
from dali_like.types import Constant
from tests.documents import DOCS, run_program_of
from tests.operators.running import WAYS, batches, pipeline, run

IMAGES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(4)]
DTYPES = [np.dtype(name) for name in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")]


def expression(image):
    return [math.clamp(image * 1.5 - [1, 2, 3], 0, 255)[:, ::-1], (image > 7) & (image < 12), -image[0] // 3]


def test_the_program_in_the_documentation():
    run_program_of(DOCS / "arithmetic.md", "python")


class TestWhereItRuns:
    @pytest.mark.parametrize("way", WAYS)
    def test_the_same_in_threads_and_in_workers(self, way):
        ((clamped, between, divided),) = run(expression, IMAGES, way=way)

        for i, image in enumerate(IMAGES):
            expected = np.clip(image * np.float32(1.5) - np.int32([1, 2, 3]), 0, 255)[:, ::-1]
            np.testing.assert_array_equal(clamped[i], expected.astype(np.float32), strict=True)
            np.testing.assert_array_equal(between[i], (image > 7) & (image < 12), strict=True)
            np.testing.assert_array_equal(divided[i], ((-image[0]) // 3).astype(np.int32), strict=True)

    def test_behind_the_source_where_operators_may(self):
        def define(image):
            return image * fn.random.uniform() + image[0]

        pipe = pipeline(define, IMAGES, way="workers")
        places = pipe.operator_places
        pipe.close()

        assert places == {
            "fn.random.uniform_0": "workers",
            "math.mul_1": "workers",
            "DataNode.__getitem___2": "workers",
            "math.add_3": "workers",
        }

    def test_random_operators_have_the_numbers_that_they_have_without_it(self):
        def plain(image):
            return fn.random.uniform(image)

        def mixed(image):
            before = image + 1
            return fn.random.uniform(image) * 1 + 0 * before

        ((alone,),) = run(plain, IMAGES)
        ((among,),) = run(mixed, IMAGES)

        np.testing.assert_array_equal(alone, among)

    def test_a_pipeline_of_it_can_be_saved(self):
        def define(x):
            shifted = x[x[0, 0, 0] & 1 :, ..., newaxis("Z")][:, 1::2]
            return [2 - x, x == 3, math.atan2(x, 2.0), shifted]

        with Pipeline(batch_size=1, num_threads=1) as pipe:
            pipe.set_outputs(*define(fn.external_source(name="x", layout="HWC")))
        again = Pipeline.deserialize(pipe.serialize())
        sample = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)

        for one, other in zip(pipe.run(x=[sample]), again.run(x=[sample]), strict=True):
            assert one.layout() == other.layout()
            np.testing.assert_array_equal(one.at(0), other.at(0), strict=True)
        pipe.close()
        again.close()


class TestTypes:
    def test_float16(self):
        """DALI's type rules include it, but only its GPU backend supports it."""
        halves, bytes_ = [np.float16([1, 2.5])], [np.uint8([3, 200])]

        ((total,), (root,), (less,)) = run(lambda a, b: [a + b, math.sqrt(a), a < b], halves, bytes_)[0]

        np.testing.assert_array_equal(total, np.float16([4, 202.5]), strict=True)
        np.testing.assert_array_equal(root, np.sqrt(halves[0]), strict=True)
        np.testing.assert_array_equal(less, [True, True])

    @pytest.mark.parametrize(("one", "other"), [*itertools.combinations(DTYPES, 2)], ids=str)
    def test_the_order_does_not_matter(self, one, other):
        assert promoted(one, other) == promoted(other, one)

    @given(numpy_st.arrays(st.sampled_from(DTYPES[1:9]), (3,)), numpy_st.arrays(st.sampled_from(DTYPES[1:9]), (3,)))
    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_integers_of_all_types(self, a, b):
        """Sums and products modulo the range of the result, comparisons of values, quotients without remainder."""
        divisor = np.where(b == 0, 1, b).astype(b.dtype)
        define = lambda a, b, c: [a + b, a * b, a < b, a == b, a // c]  # noqa: E731
        total, product, less, equal, quotient = (batch[0] for batch in run(define, [a], [b], [divisor])[0])

        dtype = promoted(a.dtype, b.dtype)
        left, right, by = ([int(x) for x in array] for array in (a, b, divisor))
        assert total.dtype == product.dtype == quotient.dtype == dtype
        assert total.tolist() == [wrapped(x + y, dtype) for x, y in zip(left, right, strict=True)]
        assert product.tolist() == [wrapped(x * y, dtype) for x, y in zip(left, right, strict=True)]
        assert less.tolist() == [x < y for x, y in zip(left, right, strict=True)]
        assert equal.tolist() == [x == y for x, y in zip(left, right, strict=True)]
        pairs = [(wrapped(x, dtype), wrapped(y, dtype)) for x, y in zip(left, by, strict=True)]
        assert quotient.tolist() == [wrapped(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), dtype) for x, y in pairs]


def wrapped(number: int, dtype: np.dtype) -> int:
    bits = 8 * dtype.itemsize
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if dtype.kind == "i" else number % (1 << bits)


class TestShapes:
    @given(numpy_st.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=4))
    @settings(max_examples=80, deadline=None)
    def test_broadcast_as_in_numpy(self, shapes):
        a, b, c = (np.arange(np.prod(shape)).reshape(shape) + i for i, shape in enumerate(shapes.input_shapes))

        ((differences,), (clamped,)) = run(lambda a, b, c: [a - b, math.clamp(a, b, c)], [a], [b], [c])[0]

        np.testing.assert_array_equal(differences, a - b, strict=True)
        np.testing.assert_array_equal(clamped, np.minimum(np.maximum(a, b), c), strict=True)

    def test_a_number_for_each_channel(self):
        """For contiguous images, and for mirrored ones."""
        mean = np.float32([1, 2, 3])

        ((plain, mirrored, channels),) = run(lambda a: [a - mean, a[:, ::-1] - mean, mean * a[0, 0]], IMAGES)

        np.testing.assert_array_equal(plain, IMAGES - mean)
        np.testing.assert_array_equal(mirrored, (IMAGES - mean)[:, :, ::-1])
        np.testing.assert_array_equal(channels, np.stack(IMAGES)[:, 0, 0] * mean)


class TestOperands:
    @pytest.mark.parametrize(
        "function", [operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.eq]
    )
    def test_arrays_in_front(self, function):
        """NumPy defers to the node, instead of making an array of nodes."""
        array = np.arange(3, dtype=np.float32)

        ((results,),) = run(lambda a: function(array, a[1, 0]), IMAGES)

        np.testing.assert_array_equal(results, [function(array, image[1, 0]) for image in IMAGES])

    def test_constants_among_themselves(self):
        def define(a):
            return [Constant([1, 2, 3]) * 2 + a, Constant([1, 2, 3])[1] - a, math.sqrt(Constant(4)) * a, +Constant(3) * a]

        ((first, second, third, fourth),) = run(define, [np.int32(10)])

        assert [batch[0].tolist() for batch in (first, second, third, fourth)] == [[12, 14, 16], -8, 20, 30]

    def test_constants_of_other_types(self):
        constant = types.ScalarConstant(7)

        assert (constant.value, constant.dtype, constant.shape) == (7, types.INT32, [])
        assert [constant.uint8().dtype, constant.float64().dtype, constant.bool().dtype] == [
            types.UINT8,
            types.FLOAT64,
            types.BOOL,
        ]
        assert types.ScalarConstant(np.int64(7)).dtype == types.INT64

    def test_one_that_its_type_cannot_hold(self):
        with pytest.raises(
            ArgumentError,
            match=r"math.add: 2147483648 does not fit into INT32; .*, as in types.Constant\(2147483648, types.INT64\)",
        ):
            fn.external_source(name="x") + 2**31

    @pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "//", "**", "<", "<=", ">", ">=", "==", "!="])
    def test_an_array_may_be_on_the_left(self, symbol):
        function = eval(f"lambda a, b: a {symbol} b")
        array, data = np.int32([1, 2, 5]), [np.int32([3, 2, 1])]

        ((ours,), (same,)) = run(lambda node: [function(array, node), function(Constant(array), node)], data)[0]

        assert ours.dtype == same.dtype
        assert ours.tolist() == same.tolist()

    @pytest.mark.parametrize(
        ("wrong", "error", "message"),
        [
            (np.sqrt, TypeError, r"use dali_like.math.sqrt, or fn.python_function\(.*np.sqrt\)"),
            (np.isnan, TypeError, r"runs: use fn.python_function\(node, function=np.isnan\)"),
            (np.add.reduce, TypeError, "np.add computes arrays"),
            (lambda node: node.dtype, AttributeError, "has no attribute 'dtype': use `dtype` of the batch that `run`"),
            (lambda node: node.astype("u1"), AttributeError, r"'astype': use fn.cast\(node"),
            (lambda node: node.nonsense, AttributeError, "a DataNode has no attribute 'nonsense'$"),
            (len, TypeError, "a DataNode has no length while the pipeline is defined"),
            (lambda node: 1 if node else 2, TypeError, "enable_conditionals=True.*derived from Pipeline.*standard input"),
        ],
    )
    def test_an_unsupported_use_of_a_node_is_an_error_with_a_remedy(self, wrong, error, message):
        with pytest.raises(error, match=message):
            wrong(fn.external_source(name="x"))

    def test_a_node_can_be_asked_for_attributes_and_copied(self):
        node = fn.external_source(name="x")

        assert not hasattr(node, "dtype")
        assert copy.copy(node).name == node.name

    def test_a_node_is_not_taken_for_one_of_several_words(self):
        """Although a node can be compared with strings."""
        node = fn.external_source(name="x")

        with pytest.raises(ArgumentError, match=r"out_of_bounds_policy must be one of 'error', .* not a DataNode"):
            fn.crop(node, crop=[1, 1], out_of_bounds_policy=node)

    def test_nodes_are_keys_of_dictionaries(self):
        nodes = [fn.external_source(name="x") for _ in range(100)]

        assert [{node: i for i, node in enumerate(nodes)}[node] for node in nodes] == list(range(100))

    def test_integer_division_by_zero(self):
        """In DALI it aborts the process."""
        with pytest.raises(SampleError, match="integer division by zero") as info:
            run(lambda a: 1 // a, [np.int32(3), np.int32(0)])

        assert info.value.__notes__ == ["raised by math.div for sample 1 of iteration 0 in epoch 0 (idx_in_epoch 1)"]


class TestIndices:
    @given(st.data())
    @settings(max_examples=60, deadline=None)
    def test_basic_indices_give_the_results_of_numpy(self, data):
        array = np.arange(60).reshape(3, 4, 5)
        numpy_index = data.draw(numpy_st.basic_indices(array.shape, allow_newaxis=True))
        parts = numpy_index if isinstance(numpy_index, tuple) else (numpy_index,)
        index = tuple(newaxis if part is None else part for part in parts)

        ((results,),) = run(lambda a: a[index], [array])

        np.testing.assert_array_equal(results[0], array[numpy_index], strict=True)

    def test_an_ellipsis_and_layouts(self):
        def define(a):
            return [a[..., 0], a[0, ..., 1:], a[..., newaxis("Z")], a[...]]

        (results,) = batches(define, IMAGES, layouts=["HWC"])

        assert [batch.layout() for batch in results] == ["HW", "WC", "HWCZ", "HWC"]

    def test_the_layout_is_that_of_as_many_letters(self):
        """Only the data show whether samples are images or sequences of images."""
        ((flat,),) = batches(lambda a: fn.flip(a)[0], IMAGES)
        ((moving,),) = batches(lambda a: fn.flip(a)[0], [image[np.newaxis] for image in IMAGES])

        assert (flat.layout(), moving.layout()) == ("WC", "HWC")

    @pytest.mark.parametrize("index", [None, True, 1.0, slice(0.5, None), "a", [0], np.array([0])], ids=repr)
    def test_an_invalid_index_is_an_argument_type_error(self, index):
        """DALI accepts some of these: None as a colon, and True and 0.5 as integers."""
        with pytest.raises(ArgumentTypeError):
            fn.external_source(name="x")[index]

    def test_two_ellipses(self):
        with pytest.raises(ArgumentError, match="only one ellipsis"):
            fn.external_source(name="x")[..., 0, ...]

    def test_iterating_is_still_refused(self):
        with pytest.raises(DefinitionError, match="cannot be unpacked"):
            list(fn.external_source(name="x"))


class TestLayoutsThatAreFed:
    def test_are_kept_by_arithmetic_and_subscripts(self):
        with Pipeline(batch_size=1) as pipe:
            image = fn.external_source(name="x")
            pipe.set_outputs(image + 1, image[0], image[newaxis, 0])
        try:
            pipe.feed_input("x", [np.zeros((2, 3, 4), np.uint8)], layout="CHW")

            assert [batch.layout() for batch in pipe.run()] == ["CHW", "HW", ""]
        finally:
            pipe.close()

    def test_those_that_do_not_go_together(self):
        with Pipeline(batch_size=1) as pipe:
            pipe.set_outputs(fn.external_source(name="x") + Constant([1, 2], layout="C"))
        try:
            pipe.feed_input("x", [np.zeros((3, 2))], layout="HW")
            with pytest.raises(ArgumentError, match=r"math.add: the operands have the layouts 'HW' and 'C'"):
                pipe.run()
        finally:
            pipe.close()


class TestConstants:
    def test_single_numbers_are_compared_as_such(self):
        """Like DALI's ScalarConstant; other constants make a node."""
        assert Constant(3) == types.ScalarConstant(3)
        assert Constant(3) != Constant(3).uint8()
        assert isinstance(Constant([1, 2]) == Constant([1, 2]), DataNode)

    def test_as_numbers_of_python(self):
        assert (int(Constant(3)), float(Constant(2.5)), bool(Constant(0))) == (3, 2.5, False)

    @pytest.mark.parametrize(
        "function", [lambda: int(Constant(2.5)), lambda: float(Constant(3)), lambda: bool(Constant([1, 2]))]
    )
    def test_a_constant_that_would_lose_values_is_refused(self, function):
        with pytest.raises(ArgumentTypeError, match="cast a single number first"):
            function()

    def test_as_arguments_of_operators(self):
        ((flipped, reshaped),) = run(
            lambda image: [fn.flip(image, horizontal=Constant(0)), fn.reshape(image, shape=Constant([6, 4]))], IMAGES
        )

        np.testing.assert_array_equal(flipped, IMAGES)
        np.testing.assert_array_equal(reshaped, np.reshape(IMAGES, (4, 6, 4)))


class TestOperatorsOfDALI2:
    """Results of DALI 2.4.0, which DALI 1.53 has not."""

    @pytest.mark.parametrize(
        ("left", "right", "expected"),
        [
            (np.int32([-7, 7, -1, 0, 100, -128]), 3, np.int32([-1, 1, -1, 0, 1, -2])),
            (np.int32([-7, 7, -1, 0, 100, -128]), -3, np.int32([-1, 1, -1, 0, 1, -2])),
            (np.uint8([0, 1, 2, 7, 200]), -3, np.int32([0, 1, 2, 1, 2])),
            (np.int32([-7, 7, -1]), np.float32([2, -2, 0]), np.float32([-1, 1, np.nan])),
            (
                np.float32([-7.5, 7.5, -0.0, 2.25, 1e4]),
                np.float32([2, -2, 3.5, -0.5, 7]),
                np.float32([-1.5, 1.5, -0.0, 0.25, 4]),
            ),
            (np.bool_([0, 1]), 3, np.int32([0, 1])),
            (7, np.int8([4, -4, 9]), np.int32([3, 3, 7])),
        ],
    )
    def test_remainders_have_the_sign_of_the_left_operand(self, left, right, expected):
        found = of_operands(operator.mod, left, right)

        np.testing.assert_array_equal(found, expected, strict=True)
        assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()

    @pytest.mark.parametrize(
        ("shift", "left", "right", "expected"),
        [
            (
                operator.lshift,
                np.int8([-7, 7, -1, 100, -128]),
                np.uint8([1, 3, 2, 7, 0]),
                np.int16([-14, 56, -4, 12800, -128]),
            ),
            (operator.rshift, np.int8([-7, 7, -1, 0, 100, -128]), 8, np.int32([-1, 0, -1, 0, 0, -1])),
            (operator.lshift, np.uint8([0, 1, 2, 200]), 8, np.int32([0, 256, 512, 51200])),
            (operator.lshift, np.int32([-7, 7, 5]), 33, np.int32([-14, 14, 10])),
            (operator.rshift, np.int32([-7, 7, 5]), 32, np.int32([-7, 7, 5])),
            (operator.lshift, np.int64([-7, 7]), 33, np.int64([-60129542144, 60129542144])),
            (operator.lshift, np.int32([-7, 7, 100]), -1, np.int32([-(2**31), -(2**31), 0])),
            (operator.rshift, 200, np.uint8([1, 3, 7]), np.int32([100, 25, 1])),
        ],
    )
    def test_shifts_use_the_count_modulo_the_bits_of_the_type(self, shift, left, right, expected):
        np.testing.assert_array_equal(of_operands(shift, left, right), expected, strict=True)

    def test_inverse_and_absolute_value_keep_the_type(self):
        (outputs,) = run(lambda x, y: [~x, abs(x), ~y], [np.int8([-7, 100, -128])], [np.bool_([0, 1])])

        for output, expected in zip(
            outputs, (np.int8([6, -101, 127]), np.int8([7, 100, -128]), np.bool_([1, 0])), strict=True
        ):
            np.testing.assert_array_equal(output[0], expected, strict=True)

    @pytest.mark.parametrize("apply", [operator.lshift, operator.rshift])
    def test_shifts_of_floating_point_numbers_are_refused(self, apply):
        with pytest.raises(SampleTypeError, match=r"bitwise operator .* must be of integral type"):
            of_operands(apply, np.float32([1]), 1)

    def test_remainder_of_division_by_zero_is_an_error(self):
        with pytest.raises(SampleError, match="integer division by zero"):
            of_operands(operator.mod, np.uint8([3]), np.uint8([0]))

    def test_tensors_of_the_dynamic_mode_have_them_too(self):
        tensor = dynamic.as_tensor(np.int32([-7, 7]))

        for found, expected in (
            (tensor % 3, [-1, 1]),
            (tensor << 1, [-14, 14]),
            (1 << abs(tensor), [128, 128]),
            (tensor >> 1, [-4, 3]),
            (~tensor, [6, -8]),
            (abs(tensor), [7, 7]),
        ):
            assert np.asarray(found).tolist() == expected


def of_operands(apply, left, right):
    """The result of an operation on an array from a source and a number, or another array."""
    arrays = [each for each in (left, right) if isinstance(each, np.ndarray)]

    def define(*nodes):
        found = iter(nodes)
        operands = [next(found) if isinstance(each, np.ndarray) else each for each in (left, right)]
        return apply(*operands)

    ((result,),) = run(define, *[[array] for array in arrays])
    return result[0]
