"""Arithmetic, comparisons, functions and indices of data nodes against the real DALI, for all pairs of types.

Results are the same bit by bit, but for functions that libraries round differently: see `ULPS`. The class `TestDifferences`
shows where DALI is not followed.
"""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.alike import DALI, DTYPES, OURS, assert_both_refuse, assert_same, outputs

pytestmark = pytest.mark.peers

#: How far functions of floating-point numbers may be apart. NumPy computes FLOAT with vector instructions, which are within
#: 4 units in the last place of the exact result; DALI uses the functions of the C library.
ULPS = {
    **dict.fromkeys(["**", "fpow", "atan2", "exp", "log", "log2", "log10", "cbrt", "sin", "cos", "tan", "asin", "acos"], 4),
    **dict.fromkeys(["atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"], 4),
    "rsqrt": 4,
}
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv}
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
BITWISE = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
FUNCTIONS = ("abs", "fabs", "sqrt", "rsqrt", "cbrt", "exp", "log", "log2", "log10", "floor", "ceil", "sin", "cos", "tan")
FUNCTIONS += ("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")


def numbers(dtype: np.dtype, *, positive: bool = False) -> np.ndarray:
    """Small, large and special numbers of a type; the least of integers is left out where division by -1 ends DALI."""
    if dtype.kind == "b":
        return np.array([True]) if positive else np.array([False, True])
    if dtype.kind == "f":
        special = [] if positive else [0.0, -0.0, -1.5, -0.25, -3, np.inf, -np.inf, np.nan, -1e30]
        return np.array([*special, 1, 0.5, 2.75, 3, 7, 1e-3, 1e10], dtype)
    most = np.iinfo(dtype).max
    signed = [-1, -2, -3, -100, -most] if dtype.kind == "i" else []
    return np.array([*([] if positive else [0, *signed]), 1, 2, 3, 7, 100, most - 1, most], dtype)


def binary(library, name, left, right):
    """One of the operations on two operands, by its symbol or its name."""
    operators = ARITHMETIC | COMPARISONS | BITWISE | {"**": operator.pow}
    return operators[name](left, right) if name in operators else getattr(library.math, name)(left, right)


def allowed(a: np.dtype, b: np.dtype) -> list[str]:
    """The operations that there are on two types."""
    names = [*COMPARISONS, "*"]
    if not a.kind == b.kind == "b":
        names += [*ARITHMETIC, "**", "min", "max", "fpow", "atan2"]
    return names if "f" in a.kind + b.kind else [*names, *BITWISE]


def comparable(a: np.dtype, b: np.dtype) -> bool:
    """Whether DALI compares numbers of these types: negative integers and floating-point numbers it does not."""
    return {a.kind, b.kind} != {"i", "f"}


class TestAllPairsOfTypes:
    @pytest.mark.parametrize("left", DTYPES, ids=str)
    def test_nodes(self, left):
        def define(library, a, *others):
            results = {}
            for right, b, divisor in zip(DTYPES, others[::2], others[1::2], strict=True):
                for name in allowed(left, right):
                    if name not in COMPARISONS or comparable(left, right):
                        results[f"{name} {right}"] = binary(library, name, a, divisor if name == "//" else b)
            return results

        a = numbers(left)[:, np.newaxis]
        others = [[array] for right in DTYPES for array in (numbers(right), divisors(right))]
        assert_same(define, [a], *others, ulps=ULPS)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_numbers_and_constants(self, dtype):
        def define(library, a, divisor):
            results = {}
            for i, (value, kind) in enumerate(constants(library)):
                for name in allowed(dtype, kind):
                    if name not in COMPARISONS or comparable(dtype, kind):
                        results[f"{name} {i} node first"] = binary(library, name, a, value)
                        if not isinstance(value, (np.generic, np.ndarray)):
                            results[f"{name} {i} node last"] = binary(library, name, value, divisor if name == "//" else a)
            return results

        assert_same(define, [numbers(dtype)], [divisors(dtype)], ulps=ULPS)

    def test_integers_that_no_floating_point_number_is(self):
        """They are rounded before they are compared."""

        def define(library, *nodes):
            *integers, number = nodes
            return {
                f"{name} {i}": COMPARISONS[name](node, number) for name in COMPARISONS for i, node in enumerate(integers)
            }

        assert_same(define, *[[np.array([2**24 + 1], dtype)] for dtype in ("u4", "i4", "u8", "i8")], [np.float32([2**24])])

    def test_functions(self):
        def define(library, *nodes):
            return {
                f"{name} {dtype}": getattr(library.math, name)(node)
                for name in FUNCTIONS
                for node, dtype in zip(nodes, DTYPES[1:], strict=True)
                if name != "rsqrt"
            } | {f"minus {dtype}": -node for node, dtype in zip(nodes, DTYPES[1:], strict=True)}

        assert_same(define, *[[numbers(dtype)] for dtype in DTYPES[1:]], ulps=ULPS)

    def test_rsqrt(self):
        def define(library, *nodes):
            return {f"rsqrt {i}": library.math.rsqrt(node) for i, node in enumerate(nodes)}

        assert_same(define, *[[numbers(dtype, positive=True)] for dtype in DTYPES[1:]], ulps=ULPS)

    @pytest.mark.parametrize("values", DTYPES[1:], ids=str)
    def test_clamp(self, values):
        def define(library, value, *bounds):
            pairs = itertools.product(enumerate(bounds), enumerate(bounds))
            return {
                f"clamp {i} {j}": library.math.clamp(value, low, high[newaxis(library)]) for (i, low), (j, high) in pairs
            }

        def newaxis(library):
            return (slice(None), library.newaxis)

        assert_same(define, [numbers(values)[:, np.newaxis, np.newaxis]], *[[numbers(dtype)] for dtype in DTYPES])


def divisors(dtype: np.dtype) -> np.ndarray:
    """As `numbers`, but possible divisors of integers."""
    array = numbers(dtype)
    return array if dtype.kind == "f" else array[array != 0]


def constants(library):
    """Operands that are not nodes, and the types that they have in expressions."""
    of_int, of_float, of_bool = np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.bool_)
    yield from [(3, of_int), (-2, of_int), (2.5, of_float), (0.1, of_float), (True, of_bool)]
    yield from [(np.uint8(7), np.dtype(np.uint8)), (np.int64(-3), np.dtype(np.int64)), (np.float32(0.3), of_float)]
    yield from [
        (library.types.Constant(5).int16(), np.dtype(np.int16)),
        (library.types.Constant(2.5).float64(), np.dtype("f8")),
    ]
    yield from [(library.types.ScalarConstant(7, library.types.UINT64), np.dtype(np.uint64))]
    yield from [(library.types.Constant([5]), of_int), (library.types.Constant(np.float32([1.5])), of_float), ([2], of_int)]
    of_int64 = np.dtype(np.int64)
    yield from [(library.types.Constant(np.int64(6)), of_int64), (library.types.Constant(np.array(6)), of_int64)]
    yield from [(np.array(4), of_int64), (np.array([4]), of_int), (library.types.Constant(np.array([4])), of_int)]


SHAPES = [(), (1,), (3,), (2, 3), (2, 1), (1, 3), (1, 1), (4, 2, 3), (4, 1, 1), (0,), (0, 3), (2, 0), (0, 2, 3)]


class TestShapes:
    def test_those_that_broadcast(self):
        def define(library, *nodes):
            return {
                f"{one} {other}": nodes[one] + nodes[other]
                for one, other in itertools.product(range(len(SHAPES)), repeat=2)
                if broadcast(SHAPES[one], SHAPES[other])
            }

        assert_same(define, *[[np.arange(np.prod(shape), dtype=np.int32).reshape(shape)] for shape in SHAPES])

    @pytest.mark.parametrize(("one", "other"), [((2, 3), (2,)), ((0,), (3,)), ((4, 2, 3), (3, 3))])
    def test_those_that_do_not(self, one, other):
        assert_both_refuse(
            lambda library, a, b: a * b, [np.ones(one)], [np.ones(other)], match=r"Can't broadcast shapes: \("
        )

    def test_each_sample_has_its_own(self):
        assert_same(
            lambda library, a, b: {"sum": a + b, "product": b * a},
            [np.ones((2, 3), np.uint8), np.ones((5, 1), np.uint8), np.ones((0, 4), np.uint8)],
            [np.ones((1, 3), np.int8), np.ones((1, 6), np.int8), np.ones((1, 4), np.int8)],
        )


def broadcast(*shapes):
    try:
        return np.broadcast_shapes(*shapes) is not None
    except ValueError:
        return False


class TestLayouts:
    def test_of_results(self):
        images, rows = [np.ones((2, 3, 4))], [np.ones(4)]

        def define(library, hwc, plain, c, row, wide):
            return {
                "both": hwc + hwc,
                "one": hwc + plain,
                "other": plain * hwc,
                "end": hwc + c,
                "beginning": c - hwc,
                "number": 2 * hwc,
                "neither": plain + row,
                "short": c + plain,
                "one row": c + row,
                "clamp": clamp(library)(c),
                "function": library.math.exp(hwc),
                "comparison": hwc < c,
                "list": [1, 2, 3, 4] / hwc,
                "more": c * wide,
                "minus": -hwc,
                "plus": +hwc,
            }

        def clamp(library):
            return lambda node: library.math.clamp(node, 0, node)

        layouts = ["HWC", None, "C", None, None]
        assert_same(define, images, images, rows, rows, [np.ones((2, 4))], layouts=layouts)

    @pytest.mark.parametrize("layouts", [("HW", "WH"), ("HW", "H"), ("C", "HW")])
    def test_those_that_do_not_go_together(self, layouts):
        a, b = (np.ones((2,) * len(layout)) for layout in layouts)

        assert_both_refuse(lambda library, a, b: a + b, [a], [b], layouts=layouts, match="the operands have the layouts")


class TestRefusals:
    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (lambda library, flags, x: flags + flags, "arithmetic operator `\\+` cannot be booleans"),
            (lambda library, flags, x: flags - True, "arithmetic operator `-` cannot be booleans"),
            (lambda library, flags, x: -flags, "arithmetic operator `-` cannot be booleans"),
            (lambda library, flags, x: library.math.sqrt(flags), "arithmetic operator `sqrt` cannot be booleans"),
            (lambda library, flags, x: library.math.min(flags, flags), "arithmetic operator `min` cannot be booleans"),
            (lambda library, flags, x: x & 1, "bitwise operator `&` must be of integral type, not FLOAT and INT32"),
            (lambda library, flags, x: flags | x, "bitwise operator `\\|` must be of integral type, not BOOL and FLOAT"),
            (lambda library, flags, x: x + "a", "math.add: a constant is a number"),
            (lambda library, flags, x: x + 1j, "math.add: a constant is a number"),
            (lambda library, flags, x: x + None, "math.add: a constant is a number"),
            (lambda library, flags, x: x * [[1]], "math.mul: a constant is a number"),
            (lambda library, flags, x: x - [x], "an operand of `-` must be .*, not a list with nested DataNodes"),
            (lambda library, flags, x: library.math.sqrt(2), "math.sqrt needs at least one DataNode or Constant"),
            (
                lambda library, flags, x: library.math.max(1, 2.5),
                "math.max needs at least one DataNode .*, not only int, float",
            ),
            (lambda library, flags, x: library.types.ScalarConstant("a"), "Expected scalar value"),
            (lambda library, flags, x: x if x > 1 else flags, "no truth value"),
            (lambda library, flags, x: 0 < x < 1, "no truth value"),
            (lambda library, flags, x: x and flags, "no truth value"),
            (lambda library, flags, x: not x, "no truth value"),
            (lambda library, flags, x: 1 in x, "not iterable"),
            (lambda library, flags, x: x << 1, "bitwise operator `<<` must be of integral type, not FLOAT and INT32"),
            (lambda library, flags, x: float(x), "must be a string or a real number"),
        ],
    )
    def test_both_refuse(self, define, message):
        assert_both_refuse(define, [np.array([True])], [np.array([1], np.float32)], match=message)


IMAGE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


class TestIndices:
    def test_parts_of_samples(self):
        def define(library, a, one, end, scalars):
            new, slices = library.newaxis, {}
            for name, index in {
                "int": 0,
                "last": -1,
                "np": np.int64(1),
                "second": (slice(None), 1),
                "all": (0, 1, 2),
                "node": one,
                "both": (one, 0),
                "constant": library.types.Constant(1),
                "scalar constant": library.types.ScalarConstant(-1),
                "full": slice(None),
                "range": slice(0, 1),
                "to": slice(-1),
                "from": slice(1, None),
                "empty": (slice(None), slice(2, 1)),
                "step": (slice(None), slice(None), slice(None, None, 2)),
                "back": (slice(None), slice(None), slice(None, None, -1)),
                "back from": (0, 0, slice(3, 1, -1)),
                "back to": (0, 0, slice(None, 1, -2)),
                "beyond": (slice(None), slice(1, 10)),
                "before": slice(-10, 1),
                "nodes": slice(one, end),
                "to node": (0, slice(None, end)),
                "from node": (0, slice(one, None)),
                "step node": (0, 0, slice(None, None, end)),
                "nothing": (),
                "negative": (slice(None), slice(-2, -1)),
                "new": new,
                "new name": new("N"),
                "inner": (slice(None), new),
                "behind": (0, new("Z")),
                "before int": (new("Z"), 0),
                "last new": (slice(None),) * 3 + (new("Z"),),
                "two": (new("Z"), slice(None), new("Q")),
                "both kinds": (one, new, 1),
            }.items():
                slices[name] = a[index]
            return slices | {"of scalars": scalars[new], "twice": a[0][1], "of an expression": (a + 1)[:, 0]}

        one, end = [np.array(1, np.uint8), np.array(0, np.uint8)], [np.array(2, np.int16), np.array(1, np.int16)]
        samples = [IMAGE, np.arange(45, dtype=np.int32).reshape(3, 3, 5)]
        assert_same(define, samples, one, end, [np.float32(1), np.float32(2)], layouts=["HWC"])

    @pytest.mark.parametrize(
        ("index", "message"),
        [
            (5, "index 5 is out of bounds"),
            ((0, -4), "index -4 is out of bounds"),
            ((slice(None),) * 4, r"Too many indices \(4\) for the layout 'HWC'"),
            ((0, 0, 0, 0), "Too many indices"),
            (slice(None, None, 0), "Step cannot be zero"),
            (1.5, "an index of a DataNode is an integer"),
            ("a", "an index of a DataNode is an integer"),
            ([0, 1], "an index of a DataNode is an integer"),
        ],
        ids=str,
    )
    def test_refusals(self, index, message):
        assert_both_refuse(lambda library, a: a[index], [IMAGE], layouts=["HWC"], match=message)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (np.float32(1), "Array index must be of integral type. Got: float32"),
            (np.array([1]), r"Array indices must be scalar \(0D\). Got 1D tensor."),
            (np.array(2), "index 2 is out of bounds"),
        ],
    )
    def test_refusals_of_nodes(self, value, message):
        assert_both_refuse(lambda library, a, i: a[i], [IMAGE], [value], match=message)
        # DALI takes the part of a slice that is there.
        if value.ndim or value.dtype.kind == "f":
            assert_both_refuse(lambda library, a, i: a[:, i:], [IMAGE], [value], match=message)

    def test_names_of_new_axes(self):
        def of_a_scalar(library, a):
            return {"it": a[0, library.newaxis("Z"), 0, 0]}

        assert_same(of_a_scalar, [IMAGE])
        assert_both_refuse(lambda library, a: a[library.newaxis("Z")], [IMAGE], match="the input has no layout")

        def mixed(library, a):
            return a[library.newaxis("Z"), library.newaxis]

        assert_both_refuse(mixed, [IMAGE], match="New axis name must be specified for all axes or none")
        assert_both_refuse(lambda library, a: a[library.newaxis("AB")], [IMAGE], match="is a single letter, not 'AB'")
        assert_both_refuse(lambda library, a: a[library.newaxis(1)], [IMAGE], match="is a single letter, not 1")


class TestDifferences:
    """Differences from DALI 1.53, with DALI's results."""

    def both(self, define, *inputs):
        theirs, ours = (
            outputs(library, lambda library, *nodes: {"it": define(library, *nodes)}, inputs, []) for library in (DALI, OURS)
        )
        return theirs["it"].samples[0].tolist(), ours["it"].samples[0].tolist()

    def test_negative_integers_against_floating_point_numbers(self):
        """DALI has every negative integer less than every floating-point number, even the same one."""
        integers, others = [np.array([-3, -1, 2])], [np.array([-3.0, -5.0, 2.0])]

        assert self.both(lambda _, a, b: a == b, integers, others) == ([False, False, True], [True, False, True])
        assert self.both(lambda _, a, b: a < b, integers, others) == ([True, True, False], [False, False, False])

    def test_a_slice_that_begins_behind_the_end(self):
        """DALI's has the last element."""
        assert self.both(lambda _, a: a[5:7], [np.array([1, 2, 3])]) == ([3], [])

    def test_rsqrt_where_it_is_not_finite(self):
        theirs, ours = self.both(lambda library, a: library.math.rsqrt(a), [np.float32([0, np.inf])])

        assert np.isnan(theirs).all()
        assert ours == [np.inf, 0]

    def test_constants_of_64_bits_keep_their_precision(self):
        theirs, ours = self.both(
            lambda library, a: a + library.types.Constant(0.1, library.types.FLOAT64), [np.array([0.0])]
        )

        assert (theirs, ours) == ([float(np.float32(0.1))], [0.1])

    def test_scalars_of_numpy_in_front(self):
        """With DALI, NumPy makes a number of Python's of them."""
        define = lambda library, a: {"sum": np.uint8(1) + a}  # noqa: E731
        theirs, ours = (outputs(library, define, [[np.uint8(2)]], [])["sum"].samples[0] for library in (DALI, OURS))

        assert (theirs.dtype, ours.dtype) == (np.int32, np.uint8)
