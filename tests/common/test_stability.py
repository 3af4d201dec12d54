"""Unstable and deprecated interfaces, in the code and on the page."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dali_like
from dali_like import Pipeline, fn, ops, pipeline_def
from dali_like.common.stability import SWITCH, deprecated, unstable, warn_deprecated
from dali_like.data import DataLoader
from dali_like.errors import ArgumentError, UnstableWarning

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stability.md"


@pytest.fixture
def wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")


@unstable("fn.of_tomorrow")
def of_tomorrow(x: int) -> int:
    """Add one."""
    return x + 1


@pytest.mark.usefixtures("wants_to_know")
def test_an_opt_in_warning_points_to_the_line_of_the_caller() -> None:
    with pytest.warns(UnstableWarning, match=r"^fn.of_tomorrow is unstable: it may change") as caught:
        assert of_tomorrow(1) == 2
    assert caught[0].filename == __file__


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_the_opt_in_nothing_warns(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert of_tomorrow(1) == 2
    assert of_tomorrow.__doc__ == "Add one."


def test_deprecated_functions_name_their_replacement() -> None:
    function = deprecated("fn.of_yesterday", "fn.of_today")(of_tomorrow)
    with pytest.warns(DeprecationWarning, match=r"^fn.of_yesterday is deprecated; use fn.of_today$"):
        assert function(1) == 2


def test_arguments_without_replacement_have_no_effect() -> None:
    with pytest.warns(DeprecationWarning, match=r"^Pipeline: x is deprecated and has no effect$"):
        warn_deprecated("Pipeline: x")


# The page


def unstable_names() -> set[str]:
    """Return the names of functions and methods that the page lists."""
    rows = re.findall(
        r"^\| (.*?) \|", PAGE.read_text().partition("## Unstable")[2].partition("## Deprecated")[0], re.MULTILINE
    )
    return set(re.findall(r"`([\w.]+)`", " ".join(rows)))


def test_the_page_lists_the_functions_marked_as_unstable() -> None:
    marked: list[Any] = [Pipeline.serve, DataLoader.serve, dali_like.connect, dali_like.operator]
    names = {function.__unstable__.removesuffix("()") for function in marked}
    assert unstable_names() == {*names, "dali_like.experimental.dynamic", "fn.experimental", "ops.experimental"}


@pipeline_def(batch_size=1, num_threads=1)
def equalized() -> Any:
    return fn.experimental.equalize(fn.external_source(lambda info: np.zeros((2, 2, 3), np.uint8), batch=False))


@pytest.mark.usefixtures("wants_to_know")
def test_experimental_operators_are_unstable() -> None:
    with pytest.warns(UnstableWarning, match="fn.experimental.equalize is unstable"):
        equalized()
    pipe = Pipeline(1, 1, None)
    with pytest.warns(UnstableWarning, match="fn.experimental.equalize is unstable"), pipe:
        ops.experimental.Equalize()(fn.constant(idata=[0] * 3, shape=[1, 1, 3]))


@pytest.mark.usefixtures("wants_to_know")
def test_serving_is_unstable() -> None:
    with pytest.warns(UnstableWarning, match=r"dali_like.connect\(\) is unstable"), pytest.raises(ArgumentError):
        dali_like.connect("/nowhere/at/all", timeout_s=-1)
    with pytest.warns(UnstableWarning, match=r"DataLoader.serve\(\) is unstable"), pytest.raises(ArgumentError):
        DataLoader([1, 2]).serve("/")


def test_dynamic_mode_is_unstable() -> None:
    program = "import dali_like.experimental.dynamic"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program], env={SWITCH: "1"}, capture_output=True, text=True, check=True
    )
    assert "dali_like.experimental.dynamic is unstable" in done.stderr
