"""Types, shapes and combinations of arrays against the real DALI."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.alike import DALI, DTYPES, OURS, assert_both_refuse, assert_same, outputs

pytestmark = pytest.mark.peers

ALL_DTYPES = [*DTYPES, np.dtype("f2")]
NAMES = {"?": "BOOL", "f2": "FLOAT16", "f4": "FLOAT", "f8": "FLOAT64"}


def dali_type(library, dtype):
    return getattr(library.types, NAMES.get(dtype.str[1:], dtype.name.upper()) if dtype.kind != "b" else "BOOL")


def numbers(dtype):
    """Values of a type that other types round, or cannot hold; no NaN: DALI's result for it depends on the processor."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "f":
        large = 6e4 if dtype.itemsize == 2 else 1e30
        halves = np.arange(-3, 3.25, 0.25)
        close = [0.49999997, -0.49999997, 127.5, 255.4, 255.5, 300, -129, 32767.5, 65535.5, -large, large, np.inf, -np.inf]
        powers = [] if dtype.itemsize == 2 else [2.0**31, 2.0**31 - 128, -(2.0**31), 2.0**32, 2.0**63, 2.0**64, -(2.0**63)]
        with np.errstate(over="ignore"):
            return np.array([*halves, *close, *powers], dtype)
    limits = [np.iinfo(kind) for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "i8")]
    wanted = [0, 1, 100, *[number + i for limit in limits for number in (limit.min, limit.max) for i in (-1, 0, 1)]]
    own = np.iinfo(dtype)
    return np.array([number for number in wanted if own.min <= number <= own.max], dtype)


class TestCast:
    def test_all_pairs_of_types(self):
        def define(library, *nodes):
            return {
                f"{given} to {wanted}": library.fn.cast(node, dtype=dali_type(library, wanted))
                for (given, node), wanted in itertools.product(zip(ALL_DTYPES, nodes, strict=True), ALL_DTYPES)
                if (given.str[1:], wanted.kind) != ("f2", "b")
            }

        assert_same(define, *[[numbers(dtype)] for dtype in ALL_DTYPES])

    def test_to_the_type_of_another_node(self):
        def define(library, *nodes):
            return {str(i): library.fn.cast_like(nodes[0], node) for i, node in enumerate(nodes)}

        assert_same(define, *[[numbers(dtype).reshape(1, -1)] for dtype in ALL_DTYPES[::-1]], layouts=["HW"])

    def test_constants(self):
        def define(library, node):
            cast, dtype = library.fn.cast, library.types.INT16
            return {"node": cast(node, dtype=dtype), "constant": cast(library.types.Constant([1.5, -7]), dtype=dtype)}

        assert_same(define, [np.ones(3)])

    def test_refusals(self):
        assert_both_refuse(lambda library, a: library.fn.cast(a, dtype=a), [IMAGE], match="dtype must be .* not a DataNode")
        assert_both_refuse(lambda library, a: library.fn.cast(a, dtype="text"), [IMAGE], match="dtype must be a data type")

    def test_cast_of_nan_to_integers_is_zero(self):
        """DALI's result is the processor's, and differs from type to type; here it is 0."""
        dtypes = [dtype for dtype in DTYPES if dtype.kind in "iu"]

        def define(library, a):
            return {str(dtype): library.fn.cast(a, dtype=dali_type(library, dtype)) for dtype in dtypes}

        theirs, ours = (outputs(library, define, [[np.array([np.nan])]], []) for library in (DALI, OURS))

        assert {name: output.samples[0].tolist() for name, output in ours.items()} == {str(dtype): [0] for dtype in dtypes}
        assert theirs["int32"].samples[0].tolist() == [-(2**31)]


IMAGE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
OTHER = np.arange(40, dtype=np.int32).reshape(2, 5, 4)


def same_for_images(cases, *more, layouts=("HWC",)):
    """A table of functions of a library and a node of images."""
    assert_same(
        lambda library, *nodes: {name: case(library.fn, *nodes) for name, case in cases.items()}, *more, layouts=layouts
    )


class TestReshape:
    def test_arguments(self):
        cases = {
            "shape": lambda fn, a, n: fn.reshape(a, shape=[4, -1]),
            "one number": lambda fn, a, n: fn.reshape(a, shape=-1),
            "any negative number": lambda fn, a, n: fn.reshape(a, shape=[-7, 2]),
            "as many dimensions": lambda fn, a, n: fn.reshape(a, shape=[2, 2, -1]),
            "shape and layout": lambda fn, a, n: fn.reshape(a, shape=[2, -1], layout="AB"),
            "layout": lambda fn, a, n: fn.reshape(a, layout="XYZ"),
            "no layout": lambda fn, a, n: fn.reshape(a, layout=""),
            "of a scalar": lambda fn, a, n: fn.reshape(a[0, 0, 0], shape=[1, 1]),
            "to a scalar": lambda fn, a, n: fn.reshape(a[0, 0, :1], shape=[]),
            "rel_shape": lambda fn, a, n: fn.reshape(a, rel_shape=[0.5, 2, 1]),
            "rel_shape and the rest": lambda fn, a, n: fn.reshape(a, rel_shape=[1, -1]),
            "rel_shape, rounded": lambda fn, a, n: fn.reshape(a, rel_shape=[0.7, -1]),
            "rel_shape, one more": lambda fn, a, n: fn.reshape(a, rel_shape=[1, 1, 0.5, -1]),
            "src_dims": lambda fn, a, n: fn.reshape(a, src_dims=[2, 0, 1]),
            "src_dims, new": lambda fn, a, n: fn.reshape(a, src_dims=[-1, 2, 0, 1]),
            "src_dims and rel_shape": lambda fn, a, n: fn.reshape(a, src_dims=[1, 2, 0], rel_shape=[2, 0.5, 1]),
            "src_dims, fewer": lambda fn, a, n: fn.reshape(a, src_dims=[1, 0], rel_shape=[1, -1]),
            "shape before src_dims": lambda fn, a, n: fn.reshape(a, shape=[2, -1, 4], src_dims=[0, 1, 2]),
            "an input": lambda fn, a, n: fn.reshape(a, n),
            "a node": lambda fn, a, n: fn.reshape(a, shape=n),
            "a node and a layout": lambda fn, a, n: fn.reshape(a, shape=n, layout="XY"),
            "a constant": lambda fn, a, n: fn.reshape(a, np.array([-1, 2])),
        }
        same_for_images(cases, [IMAGE, OTHER], [np.array([4, -1]), np.array([-1, 2])])

    def test_halves_of_extents(self):
        same_for_images(
            {"it": lambda fn, a: fn.reshape(a, rel_shape=[0.5, -1])}, [np.ones((5, 6), np.uint8)], layouts=["HW"]
        )

    def test_reinterpret(self):
        types = types_of
        cases = {
            "smaller": lambda fn, a: fn.reinterpret(a, dtype=types(fn).UINT8),
            "larger": lambda fn, a: fn.reinterpret(a, dtype=types(fn).INT64),
            "with a shape": lambda fn, a: fn.reinterpret(a, dtype=types(fn).INT16, shape=[-1]),
            "of the same size": lambda fn, a: fn.reinterpret(a, dtype=types(fn).FLOAT),
            "a shape alone": lambda fn, a: fn.reinterpret(a, shape=[4, -1]),
            "rel_shape": lambda fn, a: fn.reinterpret(a, dtype=types(fn).INT16, rel_shape=[1, 1, 2]),
            "rel_shape and the rest": lambda fn, a: fn.reinterpret(a, dtype=types(fn).INT16, rel_shape=[1, -1]),
            "src_dims": lambda fn, a: fn.reinterpret(a, dtype=types(fn).INT16, src_dims=[1, 0, 2]),
            "a layout": lambda fn, a: fn.reinterpret(a, dtype=types(fn).INT16, layout="ABC"),
            "a scalar": lambda fn, a: fn.reinterpret(a[0, 0, 0], dtype=types(fn).FLOAT),
            "after a transposition": lambda fn, a: fn.reinterpret(fn.transpose(a, perm=[1, 0, 2]), dtype=types(fn).INT64),
        }
        same_for_images(cases, [IMAGE, OTHER])

    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (lambda fn, a: fn.reshape(a), "nothing would change; pass shape"),
            (lambda fn, a: fn.reshape(a, shape=[-1, -1]), "only one extent of shape may be negative"),
            (lambda fn, a: fn.reshape(a, shape=[5, 4]), "24 elements of an input do not fit the shape"),
            (lambda fn, a: fn.reshape(a, shape=[-1, 5]), "24 elements of an input do not fit the shape"),
            (lambda fn, a: fn.reshape(a, shape=[0, -1]), "24 elements of an input do not fit the shape"),
            (lambda fn, a: fn.reshape(a, layout="HW"), "the layout 'HW' must have 3 letters"),
            (lambda fn, a: fn.reshape(a, shape=[24], layout="HW"), "the layout 'HW' must have 1 letters"),
            (lambda fn, a: fn.reshape(a, rel_shape=[1, 1, 1], shape=[24]), "exclude each other"),
            (lambda fn, a: fn.reshape(a, np.array([24]), shape=[24]), "exclude each other"),
            (lambda fn, a: fn.reshape(a, np.float32([24])), "Shape input must have integral type; got: float32"),
            (lambda fn, a: fn.reshape(a, rel_shape=[1, 1, 1, 2]), "rel_shape has 4 elements for 3 dimensions"),
            (lambda fn, a: fn.reshape(a, rel_shape=[1, 1], src_dims=[0, 1, 2]), "rel_shape has 2 elements for 3 dimensions"),
            (lambda fn, a: fn.reshape(a, src_dims=[0, 3]), "src_dims has 3, but the input has 3 dimensions"),
            (lambda fn, a: fn.reshape(a, src_dims=[2, 0]), "24 elements of an input do not fit the shape"),
            (lambda fn, a: fn.reinterpret(a), "nothing would change; pass shape"),
            (
                lambda fn, a: fn.reinterpret(a[:, :, :3], dtype=types_of(fn).INT64),
                r"the last extent of the shape \(2, 3, 3\)",
            ),
            (lambda fn, a: fn.reinterpret(a, dtype=types_of(fn).INT16, shape=[24]), "48 elements of an input do not fit"),
        ],
    )
    def test_refusals(self, define, message):
        assert_both_refuse(lambda library, a: define(library.fn, a), [IMAGE], layouts=["HWC"], match=message)


def types_of(fn):
    return OURS.types if fn is OURS.fn else DALI.types


NARROW = np.arange(6, dtype=np.uint8).reshape(1, 2, 1, 3)


class TestDimensions:
    def test_squeeze_and_expand_dims(self):
        cases = {
            "first": lambda fn, a, s: fn.squeeze(a, axes=0),
            "two": lambda fn, a, s: fn.squeeze(a, axes=[2, 0]),
            "none": lambda fn, a, s: fn.squeeze(a, axes=[]),
            "names": lambda fn, a, s: fn.squeeze(a, axis_names="AB"),
            "no names": lambda fn, a, s: fn.squeeze(a, axis_names=""),
            "new": lambda fn, a, s: fn.expand_dims(a, axes=0),
            "new name": lambda fn, a, s: fn.expand_dims(a, axes=0, new_axis_names="N"),
            "new first and last": lambda fn, a, s: fn.expand_dims(a, axes=[5, 0], new_axis_names="XN"),
            "new in the middle": lambda fn, a, s: fn.expand_dims(a, axes=[2, 1], new_axis_names="XY"),
            "nothing new": lambda fn, a, s: fn.expand_dims(a, axes=[]),
            "of scalars": lambda fn, a, s: fn.expand_dims(s, axes=[0, 1], new_axis_names="XY"),
        }
        same_for_images(cases, [NARROW], [np.float32(3)], layouts=["AHBW"])

    def test_empty_arrays(self):
        cases = {
            "squeeze": lambda fn, a: fn.squeeze(a, axes=1),
            "expand_dims": lambda fn, a: fn.expand_dims(a, axes=[0, 2]),
            "transpose": lambda fn, a: fn.transpose(a),
        }
        same_for_images(cases, [np.ones((0, 3), np.float32)], layouts=["HW"])

    def test_transpose(self):
        cases = {
            "reversed": lambda fn, a, *_: fn.transpose(a),
            "perm": lambda fn, a, *_: fn.transpose(a, perm=[2, 0, 1]),
            "layout kept": lambda fn, a, *_: fn.transpose(a, perm=[2, 0, 1], transpose_layout=False),
            "layout given": lambda fn, a, *_: fn.transpose(a, perm=[2, 0, 1], output_layout="XYZ"),
            "of a result": lambda fn, a, *_: fn.transpose(fn.transpose(a, perm=[1, 0, 2])[0]) + 1,
            "no layout": lambda fn, a, plain, *_: fn.transpose(plain, perm=[2, 0, 1]),
            "scalar": lambda fn, a, plain, s, v: fn.transpose(s),
            "vector": lambda fn, a, plain, s, v: fn.transpose(v, perm=0),
            "copy": lambda fn, a, *_: fn.copy(a),
        }
        samples = [IMAGE, OTHER]
        same_for_images(cases, samples, samples, [np.float16(1)] * 2, [np.array([True, False])] * 2)

    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (lambda fn, a: fn.squeeze(a, axes=1), r"dimensions \(1,\) of an input of shape \(1, 2, 1, 3\) do not all"),
            (
                lambda fn, a: fn.squeeze(a, axis_names="W"),
                r"dimensions \(3,\) of an input of shape \(1, 2, 1, 3\) do not all",
            ),
            (lambda fn, a: fn.squeeze(a, axes=[0, 0]), r"fn.squeeze: axes has an axis twice"),
            (lambda fn, a: fn.squeeze(a, axis_names="Z"), "there is no axis 'Z' in the layout 'AHBW'"),
            (lambda fn, a: fn.squeeze(a + 0, axis_names="Z"), "there is no axis 'Z' in the layout 'AHBW'"),
            (lambda fn, a: fn.squeeze(a), "fn.squeeze: pass either axes or axis_names"),
            (lambda fn, a: fn.squeeze(a, axes=0, axis_names="A"), "fn.squeeze: pass either axes or axis_names"),
            (lambda fn, a: fn.expand_dims(a, axes=[0, 6]), "fn.expand_dims: axes has 6, but axes are numbered from 0 to 5"),
            (lambda fn, a: fn.expand_dims(a, axes=-1), "fn.expand_dims: axes has the negative axis"),
            (lambda fn, a: fn.expand_dims(a, axes=[1, 1]), "fn.expand_dims: axes has an axis twice"),
            (
                lambda fn, a: fn.expand_dims(a, axes=1, new_axis_names="XY"),
                "fn.expand_dims: axes and new_axis_names must have the same length",
            ),
            (
                lambda fn, a: fn.expand_dims(fn.reshape(a, layout=""), axes=0, new_axis_names="X"),
                "needs an input with a layout",
            ),
            (lambda fn, a: fn.transpose(a, perm=[0, 1]), "fn.transpose: perm has 2 dimensions; the layout 'AHBW'"),
            (
                lambda fn, a: fn.transpose(a, perm=[0, 1, 2, 4]),
                "fn.transpose: perm must have each of the numbers from 0 to 3",
            ),
            (lambda fn, a: fn.transpose(a, perm=[0, 1, 2, -1]), "fn.transpose: perm must have each of the numbers"),
            (lambda fn, a: fn.transpose(a, output_layout="XYZ"), "output_layout='XYZ' has another number of dimensions"),
            (lambda fn, a: fn.transpose(a, perm=a), "perm must be .* not a DataNode"),
        ],
    )
    def test_refusals(self, define, message):
        assert_both_refuse(lambda library, a: define(library.fn, a), [NARROW], layouts=["AHBW"], match=message)

    @pytest.mark.parametrize("axis", [-1, 4])
    def test_squeezed_dimensions_that_there_are_not(self, axis):
        """DALI takes no notice of them."""
        define = lambda library, a: {"it": library.fn.squeeze(a, axes=axis)}  # noqa: E731

        assert outputs(DALI, define, [[NARROW]], [])["it"].samples[0].shape == NARROW.shape
        with pytest.raises(ValueError, match="axes has"):
            outputs(OURS, define, [[NARROW]], [])


PLANE = np.arange(6, dtype=np.uint8).reshape(2, 3)


class TestCombinations:
    def test_stack_and_cat(self):
        cases = {
            "stack": lambda fn, a, b, s, e: fn.stack(a, b),
            "stack one": lambda fn, a, b, s, e: fn.stack(a),
            "stack many": lambda fn, a, b, s, e: fn.stack(*[a, b] * 10, axis=1),
            "stack last": lambda fn, a, b, s, e: fn.stack(a, b, axis=2, axis_name="C"),
            "stack -1": lambda fn, a, b, s, e: fn.stack(a, b, axis=-1, axis_name="C"),
            "stack -2": lambda fn, a, b, s, e: fn.stack(a, b, axis=-2, axis_name="C"),
            "stack other layouts": lambda fn, a, b, s, e: fn.stack(a, fn.reshape(b, layout="XY"), axis_name="C"),
            "stack scalars": lambda fn, a, b, s, e: fn.stack(s, s, axis_name="C"),
            "stack numbers": lambda fn, a, b, s, e: fn.stack(1.5, s, 2.5),
            "cat": lambda fn, a, b, s, e: fn.cat(a, b),
            "cat one": lambda fn, a, b, s, e: fn.cat(a),
            "cat 1": lambda fn, a, b, s, e: fn.cat(a, b, axis=1),
            "cat -1": lambda fn, a, b, s, e: fn.cat(a, b[:, :1], axis=-1),
            "cat name": lambda fn, a, b, s, e: fn.cat(a, b, axis_name="W"),
            "cat empty": lambda fn, a, b, s, e: fn.cat(a, e),
            "cat constant": lambda fn, a, b, s, e: fn.cat(a, np.uint8([[1, 2, 3]])),
            "cat no layout first": lambda fn, a, b, s, e: fn.cat(fn.reshape(a, layout=""), b),
        }
        samples = [PLANE, PLANE + 1]
        same_for_images(cases, samples, [PLANE + 2] * 2, [np.float32(3)] * 2, [PLANE[:0]] * 2, layouts=["HW", "HW"])

    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (lambda fn, a, b: fn.stack(a, b, axis=3), "fn.stack: axis must be from -2 to 2 for these inputs, not 3"),
            (lambda fn, a, b: fn.stack(b, a, axis=-4), "axis must be from -2 to 2 for these inputs, not -4"),
            (lambda fn, a, b: fn.stack(a, b, axis_name="CC"), "fn.stack: axis_name must be a single letter, not 'CC'"),
            (lambda fn, a, b: fn.stack(a, b, axis_name=""), "fn.stack: axis_name must be a single letter, not ''"),
            (lambda fn, a, b: fn.stack(b, a, axis_name="C"), "fn.stack: axis_name needs inputs with a layout"),
            (
                lambda fn, a, b: fn.stack(a, a[:1]),
                r"fn.stack: the inputs must have the same shape, not \(2, 3\) and \(1, 3\)",
            ),
            (lambda fn, a, b: fn.stack(a, a + 1), "fn.stack: the inputs must have the same type .* input 1 int32 and 2"),
            (lambda fn, a, b: fn.stack(a, a[0]), "fn.stack: the inputs must have the same type .* input 1 uint8 and 1"),
            (lambda fn, a, b: fn.stack(a, a, axis=a), "fn.stack: axis must be an integer, not a DataNode"),
            (lambda fn, a, b: fn.cat(a, b, axis=2), "fn.cat: axis must be from -2 to 1 for these inputs, not 2"),
            (lambda fn, a, b: fn.cat(a, b, axis=-3), "fn.cat: axis must be from -2 to 1 for these inputs, not -3"),
            (lambda fn, a, b: fn.cat(a[0, 0], a[0, 0]), "axis must be from 0 to -1 for these inputs, not 0"),
            (lambda fn, a, b: fn.cat(a, b, axis_name="Z"), "fn.cat: there is no axis 'Z' in the layout 'HW'"),
            (lambda fn, a, b: fn.cat(b, a, axis_name="W"), "there is no axis 'W' in the layout ''"),
            (lambda fn, a, b: fn.cat(a, b, axis_name="W", axis=1), "fn.cat: axis and axis_name exclude each other"),
            (lambda fn, a, b: fn.cat(a, b, axis_name="HW"), "fn.cat: axis_name must be a single letter, not 'HW'"),
            (lambda fn, a, b: fn.cat(a, a[:, :1]), "fn.cat: the inputs must have the same shape except for dimension 0"),
            (lambda fn, a, b: fn.cat(a, a + 1), "fn.cat: the inputs must have the same type"),
        ],
    )
    def test_refusals(self, define, message):
        def in_library(library, a, b):
            return define(library.fn, a, b)

        assert_both_refuse(in_library, [PLANE], [PLANE], layouts=["HW"], match=message)


class TestTables:
    def test_one_hot(self):
        types = types_of
        cases = {
            "one more dimension": lambda fn, a, s, v, *_: fn.one_hot(a, num_classes=4),
            "scalar": lambda fn, a, s, v, *_: fn.one_hot(s, num_classes=3, axis_name="C"),
            "one element": lambda fn, a, s, v, *_: fn.one_hot(v, num_classes=3),
            "one element, axis": lambda fn, a, s, v, *_: fn.one_hot(v, num_classes=3, axis=-1),
            "axis 0": lambda fn, a, s, v, *_: fn.one_hot(a, num_classes=4, axis=0, axis_name="C"),
            "axis 1": lambda fn, a, s, v, *_: fn.one_hot(a, num_classes=4, axis=1, axis_name="C"),
            "axis 2": lambda fn, a, s, v, *_: fn.one_hot(a, num_classes=4, axis=2, axis_name="C"),
            "no classes": lambda fn, a, s, v, *_: fn.one_hot(a),
            "values": lambda fn, a, s, v, *_: fn.one_hot(a, num_classes=2, on_value=2.5, off_value=-1.5),
            "values of integers": lambda fn, a, *_: fn.one_hot(
                a, num_classes=2, on_value=2.5, off_value=-1.5, dtype=types(fn).INT32
            ),
            "values too large": lambda fn, a, *_: fn.one_hot(a, num_classes=2, on_value=300, dtype=types(fn).UINT8),
            "floating point": lambda fn, a, s, v, f: fn.one_hot(f, num_classes=3),
        }
        classes = [np.array([0, 1.2, 1.9, -0.5, 5], np.float32)]
        same_for_images(cases, [PLANE], [np.int64(2)], [np.array([1], np.int8)], classes, layouts=["HW"])

    def test_one_hot_of_one_element_with_a_layout(self):
        cases = {
            "a vector": lambda fn, v: fn.one_hot(v, num_classes=3, axis_name="C"),
            "without a layout": lambda fn, v: fn.one_hot(v, num_classes=3),
            "one more dimension": lambda fn, v: fn.one_hot(v, num_classes=3, axis=-1, axis_name="C"),
        }
        same_for_images(cases, [np.array([[1]]), np.array([[2]])], layouts=["HW"])

    def test_lookup_table(self):
        types = types_of
        cases = {
            "values": lambda fn, a, *_: fn.lookup_table(
                a, keys=[0, 2, 3, 3], values=[0.2, 0.4, 0.5, 0.6], default_value=0.99
            ),
            "no keys": lambda fn, a, *_: fn.lookup_table(a, default_value=2),
            "integers": lambda fn, a, *_: fn.lookup_table(
                a, keys=[0, 2, 3, 4], values=[-1, 1.5, 300, 2.5], default_value=0.5, dtype=types(fn).UINT8
            ),
            "one": lambda fn, a, *_: fn.lookup_table(a, keys=1, values=2),
            "the last": lambda fn, a, *_: fn.lookup_table(a, keys=[65535], values=[1]),
            "others": lambda fn, a, b, c, d: fn.lookup_table(b, keys=[1], values=[2], default_value=7),
            "unsigned others": lambda fn, a, b, c, d: fn.lookup_table(c, keys=[1], values=[2], default_value=7),
            "short others": lambda fn, a, b, c, d: fn.lookup_table(d, keys=[0, 1], values=[1, 2], default_value=7),
            "float64": lambda fn, a, *_: fn.lookup_table(a, keys=[1], values=[0.1], dtype=types(fn).FLOAT64),
        }
        signed, unsigned = np.array([-1, 1, 2**40, 0]), np.array([2**63, 1], np.uint64)
        same_for_images(cases, [PLANE], [signed], [unsigned], [np.array([-1, 1], np.int8)], layouts=["HW"])

    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (
                lambda fn, a: fn.one_hot(a, num_classes=3, axis=3),
                "fn.one_hot: axis must be from -1 to 2 for these inputs, not 3",
            ),
            (lambda fn, a: fn.one_hot(a, num_classes=3, axis=-2), "fn.one_hot: axis must be an integer from -1 on, not -2"),
            (lambda fn, a: fn.one_hot(a, num_classes=3, axis_name="CC"), "fn.one_hot: axis_name must be a single letter"),
            (lambda fn, a: fn.one_hot(a, num_classes=-1), "fn.one_hot: num_classes must be an integer from 0 on, not -1"),
            (lambda fn, a: fn.one_hot(a > 1, num_classes=2), "fn.one_hot: the input must contain numbers"),
            (
                lambda fn, a: fn.lookup_table(a, keys=[0, 2], values=[1]),
                "fn.lookup_table: keys and values must have the same length",
            ),
            (lambda fn, a: fn.lookup_table(a, keys=[-1], values=[1]), "fn.lookup_table: keys must be .* from 0 to 65535"),
            (lambda fn, a: fn.lookup_table(a, keys=[65536], values=[1]), "fn.lookup_table: keys must be .* from 0 to 65535"),
            (lambda fn, a: fn.lookup_table(a * 1.5), "fn.lookup_table: the input must contain integers, not float32"),
            (lambda fn, a: fn.lookup_table(a > 1), "fn.lookup_table: the input must contain integers, not bool"),
        ],
    )
    def test_refusals(self, define, message):
        assert_both_refuse(lambda library, a: define(library.fn, a), [PLANE], layouts=["HW"], match=message)


class TestShapesAndConstants:
    def test_shapes(self):
        cases = {
            "shapes": lambda fn, a, s: fn.shapes(a),
            "of another type": lambda fn, a, s: fn.shapes(a, dtype=types_of(fn).FLOAT),
            "of scalars": lambda fn, a, s: fn.shapes(s),
            "shape": lambda fn, a, s: a.shape(dtype=types_of(fn).INT32),
        }
        same_for_images(cases, [IMAGE, OTHER], [np.float32(1)] * 2)

    def test_constants(self):
        types = types_of
        cases = {
            "float": lambda fn, a: fn.constant(fdata=1.5),
            "int": lambda fn, a: fn.constant(idata=1),
            "list": lambda fn, a: fn.constant(idata=[1, 2]),
            "scalar": lambda fn, a: fn.constant(idata=1, shape=[]),
            "filled": lambda fn, a: fn.constant(fdata=[1], shape=[2, 2]),
            "one extent": lambda fn, a: fn.constant(fdata=1, shape=3),
            "layout": lambda fn, a: fn.constant(idata=[1, 2, 3, 4], shape=[2, 2], layout="HW"),
            "saturated": lambda fn, a: fn.constant(fdata=[1.5, 300, -1, 2.5], dtype=types(fn).UINT8),
            "unsigned": lambda fn, a: fn.constant(idata=-1, dtype=types(fn).UINT32),
            "half": lambda fn, a: fn.constant(idata=2, dtype=types(fn).FLOAT16),
            "bool": lambda fn, a: fn.constant(idata=[2, 0], dtype=types(fn).BOOL),
            "empty": lambda fn, a: fn.constant(idata=[], shape=[0]),
            "in arithmetic": lambda fn, a: a + fn.constant(idata=[1, 2, 3, 4]),
        }
        same_for_images(cases, [IMAGE, OTHER])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "fn.constant: pass either fdata or idata"),
            ({"fdata": 1, "idata": 1}, "fn.constant: pass either fdata or idata"),
            ({"idata": [1, 2, 3], "shape": [2, 2]}, r"fn.constant: 3 elements do not fit the shape \(2, 2\)"),
            ({"idata": 1, "shape": [-1]}, r"fn.constant: 1 elements do not fit the shape \(-1,\)"),
            ({"idata": 1, "layout": "HW"}, "fn.constant: the layout 'HW' must have 1 letters"),
        ],
    )
    def test_refusals(self, arguments, message):
        assert_both_refuse(lambda library, a: library.fn.constant(**arguments), [IMAGE], match=message)
