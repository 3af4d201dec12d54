"""Functions compiled by Numba; tests/parity compares them with DALI's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import fn, types
from dali_like.errors import ArgumentError, ArgumentTypeError, DtypeMismatchError, MissingExtraError, NdimMismatchError
from dali_like.plugin import numba as plugin
from tests.operators.running import run

PICTURES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(2)]
ONE = {"in_types": [types.UINT8], "ins_ndim": [3], "out_types": [types.UINT8], "outs_ndim": [3]}


def inverted(out: Any, data: Any) -> None:
    out[:] = 255 - data


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"run_fn": 3}, ArgumentTypeError, "run_fn must be callable, not an int"),
        ({"setup_fn": 3}, ArgumentTypeError, "setup_fn must be callable, not an int"),
        ({"ins_ndim": [3, 3]}, ArgumentError, "in_types has 1 elements, but ins_ndim has 2"),
        ({"outs_ndim": []}, ArgumentError, "out_types has 1 elements, but outs_ndim has 0"),
        ({"outs_ndim": [0]}, ArgumentError, "outs_ndim has 0; arrays must have one dimension or more"),
        ({"out_types": [types.FLOAT16]}, ArgumentError, "FLOAT16, which Numba does not support"),
        ({"out_types": [types.UINT8] * 2, "outs_ndim": [3, 3]}, ArgumentError, "more outputs than inputs: pass setup_fn"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        fn.experimental.numba_function(fn.external_source(name="x"), **{"run_fn": inverted, **ONE, **arguments})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"in_types": [types.FLOAT]}, DtypeMismatchError, "input 0 is of dtype uint8, but in_types says float32"),
        ({"ins_ndim": [2]}, NdimMismatchError, "input 0 has 3 dimensions, but ins_ndim says 2"),
    ],
)
def test_inputs_that_are_not_as_declared(arguments, error, message):
    with pytest.raises(error, match=message):
        run(lambda data: fn.experimental.numba_function(data, run_fn=inverted, **{**ONE, **arguments}), PICTURES)


def test_where_dali_has_it():
    assert plugin.fn.experimental.numba_function is fn.experimental.numba_function
    assert plugin.experimental.NumbaFunction.__name__ == "NumbaFunction"


def test_without_numba(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(MissingExtraError, match=r"needs numba: pip install 'numba>=0\.60'"):
        run(lambda data: fn.experimental.numba_function(data, run_fn=lambda out, data: None, **ONE), PICTURES)
