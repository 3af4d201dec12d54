"""Names that operators have in DALI 2, beside the names in DALI 1.53."""

from __future__ import annotations

import functools
import inspect
import warnings

import numpy as np
import pytest

from dali_like import fn, ops
from dali_like.common.class_names import class_name
from dali_like.experimental import dynamic
from dali_like.operators.machinery.deprecations import OF_DALI_2
from tests.operators.running import run


@pytest.mark.parametrize(("name", "older"), OF_DALI_2.items())
def test_an_operator_has_both_names_everywhere(name: str, older: str) -> None:
    *modules, last = name.split(".")
    *older_modules, older_last = older.split(".")

    for root in (fn, dynamic):
        new, former = (functools.reduce(getattr, path.split("."), root) for path in (name, older))
        assert inspect.signature(new) == inspect.signature(former)
    classes = [(modules, last), (older_modules, older_last)]
    new, former = (getattr(functools.reduce(getattr, path, ops), class_name(operator)) for path, operator in classes)
    assert inspect.signature(new) == inspect.signature(former)


def test_the_result_is_the_same_and_nothing_warns() -> None:
    images = [np.arange(24, dtype=np.uint8).reshape(4, 6, 1)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((new,),) = run(fn.equalize, images, layouts=["HWC"])
    ((former,),) = run(fn.experimental.equalize, images, layouts=["HWC"])

    np.testing.assert_array_equal(new[0], former[0], strict=True)
