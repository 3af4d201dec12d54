"""Arrays with the same value everywhere, as DALI makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity.alike import assert_both_refuse
from tests.parity.side_by_side import assert_alike

DTYPES = ["BOOL", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT", "FLOAT64"]


def test_zeros_and_ones():
    data = np.full((2, 3, 1), 7, np.uint8)

    def define(library: Any, image: Any, shape: Any) -> dict[str, Any]:
        fn, types = library.fn, library.types
        outputs = {}
        for make, like in ((fn.zeros, fn.zeros_like), (fn.ones, fn.ones_like)):
            name = make.__name__
            shapes = {"scalar": None, "empty": [], "number": 5, "two": [2, 3], "none": [0, 3], "samples": shape}
            outputs |= {f"{name} {what}": make(shape=value) for what, value in shapes.items() if value is not None}
            outputs |= {f"{name} {dtype}": make(shape=[2], dtype=getattr(types, dtype)) for dtype in DTYPES}
            outputs |= {f"{name} like {dtype}": like(image, dtype=getattr(types, dtype)) for dtype in DTYPES}
            outputs |= {f"{name} default": make(), f"{name} like": like(image), f"{name} like number": like(3.0)}
        return outputs

    assert_alike(define, [data, data[:1]], [np.int32([2, 3]), np.int32([0, 1])], layouts=["HWC"])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float32"])
def test_full(dtype):
    like = np.zeros((2, 3), dtype)
    values = [np.float32([1.5, 300, -3]), np.float32([-0.5, 2.5, 1e9])]

    def define(library: Any, data: Any, fill: Any, shape: Any) -> dict[str, Any]:
        fn = library.fn
        return {
            "samples": fn.full(fill, shape=shape),
            "rows": fn.full(fill, shape=[2, 3]),
            "number": fn.full(3, shape=[2, 3]),
            "scalar": fn.full(True),
            "float": fn.full(1.5, shape=2),
            "list": fn.full(np.array([[1], [2]], dtype), shape=[2, 2, 3]),
            "longer": fn.full(np.ones((1, 1, 3), dtype), shape=[3]),
            "like number": fn.full_like(data, 1),
            "like": fn.full_like(data, fill) if dtype != "int64" else fn.full_like(data, 7),
        }

    shapes = [np.int32([4, 3]), np.int32([0, 3])]
    assert_alike(define, [like, like], values, shapes, layouts=["HW"])


@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_wrong_shapes(name):
    assert_both_refuse(lambda library, _: getattr(library.fn, name)(shape=[-1, 2]), [0], match="shape must be")


def test_values_that_do_not_fit():
    wrong = np.float32([1, 2])

    assert_both_refuse(lambda library, fill: library.fn.full(fill, shape=[2, 3]), [wrong], match="cannot be broadcast")
    assert_both_refuse(
        lambda library, data, fill: library.fn.full_like(data, fill),
        [np.zeros((2, 3))],
        [wrong],
        match="cannot be broadcast",
    )
