"""The names of DALI's dynamic mode, listed by program."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import nvidia.dali.experimental.dynamic as dali
import pytest

import dali_like.experimental.dynamic as ndd

#: Not functions of users: imports of DALI's modules, and implementations of Python's operators.
INTERNAL = {"Optional", "Union", "local", "arithmetic_generic_op", "tensor_subscript", "subscript_dim_check"}
MODULES = [
    "",
    "decoders",
    "experimental",
    "io",
    "noise",
    "random",
    "readers",
    "reductions",
    "segmentation",
    "transforms",
    "math",
]


def names_of(module: Any) -> set[str]:
    return {name for name in vars(module) if not name.startswith("_")}


def inner(root: Any, path: str) -> ModuleType:
    return getattr(root, path) if path else root


@pytest.mark.parametrize("path", MODULES)
def test_the_page_lists_the_names_that_are_missing(path: str) -> None:
    missing = names_of(inner(dali, path)) - names_of(inner(ndd, path)) - INTERNAL
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "dynamic-mode.md").read_text()
    prefix = f"{path}." if path else ""
    assert sorted(name for name in missing if f"`{prefix}{name}`" not in page) == []


def test_dali_has_133_names() -> None:
    assert len(names_of(dali)) == 133
