"""Programs for earlier DALI versions: deprecated names of operators and arguments, and ineffective seeds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops, types
from dali_like.errors import ArgumentTypeError, DefinitionError
from dali_like.operators.machinery.deprecations import OPERATORS, SUPERSEDED

IMAGE = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
CONSTANT = types.Constant(IMAGE, layout="HWC")


def result_of(define: Callable[[], Any]) -> Any:
    """Return the only sample of a batch of one."""
    with closing(Pipeline(batch_size=1)) as pipe:
        pipe.set_outputs(define())
        return pipe.run()[0].at(0)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_their_older_names_as_well(name):
    function = getattr(fn, name)

    with (
        pytest.warns(DeprecationWarning, match=f"fn.{name} is deprecated; use"),
        pytest.raises((ArgumentTypeError, DefinitionError), match=OPERATORS[name]),
    ):
        function(no_such_argument=1)


def test_the_operator_by_an_older_name_is_that_of_today():
    with pytest.warns(DeprecationWarning, match="fn.coin_flip is deprecated; use fn.random.coin_flip"):
        assert result_of(lambda: fn.coin_flip(probability=1.0)) == 1
    with pytest.warns(DeprecationWarning, match="ops.CoinFlip is deprecated; use ops.random.CoinFlip"):
        assert result_of(ops.CoinFlip(probability=1.0)) == 1


def test_older_names_are_not_listed():
    assert not set(OPERATORS) & {*dir(fn)}
    assert "CoinFlip" not in dir(ops)


@pytest.mark.parametrize(
    "define",
    [
        lambda: fn.crop(CONSTANT, crop=(2, 2), output_dtype=types.FLOAT),
        lambda: ops.Crop(crop=(2, 2), output_dtype=types.FLOAT)(CONSTANT),
        lambda: ops.Crop(crop=(2, 2))(CONSTANT, output_dtype=types.FLOAT),
    ],
)
def test_arguments_have_their_older_names_as_well(define):
    with pytest.warns(DeprecationWarning, match="output_dtype is deprecated; use dtype"):
        assert result_of(define).dtype == np.float32


def test_an_argument_is_not_given_twice():
    with pytest.raises(ArgumentTypeError, match="output_dtype is a deprecated name of dtype"):
        fn.crop(CONSTANT, crop=(2, 2), dtype=types.FLOAT, output_dtype=types.FLOAT)


@pytest.mark.parametrize(
    "define",
    [
        lambda: fn.crop(CONSTANT, crop=(2, 2), image_type=types.RGB),
        lambda: ops.Crop(crop=(2, 2), image_type=types.RGB)(CONSTANT),
    ],
)
def test_arguments_that_have_lost_their_effect_are_taken(define):
    with pytest.warns(DeprecationWarning, match="fn.crop: image_type has no effect"):
        assert result_of(define).shape == (2, 2, 3)


@pytest.mark.parametrize(
    "define",
    [
        lambda: fn.flip(CONSTANT, seed=1),
        lambda: ops.Flip(seed=1)(CONSTANT),
        lambda: fn.external_source(lambda: [IMAGE], seed=1),
    ],
)
def test_every_operator_takes_a_seed(define):
    with pytest.warns(DeprecationWarning, match="seed has no effect"):
        assert result_of(define).shape == IMAGE.shape


def test_layouts_have_older_names():
    planes = result_of(lambda: fn.crop_mirror_normalize(CONSTANT, output_layout=types.NCHW))

    assert planes.shape == (3, 4, 4)
    assert [types.NHWC, types.NFHWC, types.NFCHW, types.SAME] == ["HWC", "FHWC", "FCHW", ""]


@pytest.mark.parametrize("name", SUPERSEDED)
def test_superseded_operators_warn(name: str) -> None:
    message = f"fn.{name} is deprecated; use fn.{SUPERSEDED[name]}"

    with pytest.warns(DeprecationWarning, match=message), pytest.raises(ArgumentTypeError, match="no_such_argument"):
        functools.reduce(getattr, name.split("."), fn)(CONSTANT, no_such_argument=1)
