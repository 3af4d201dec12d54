"""Names of ``fn`` and ``ops`` that do not exist: the error names the alternative, and a page lists them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dali_like
from dali_like import fn, ops
from tools.dali_functions import pages


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (fn, "optical_flow", "DALI has optical_flow, dali_like has not. Instead, compute it with PyTorch or CuPy"),
        (fn, "arithmetic_generic_op", "use the operators of Python"),
        (fn, "hidden", "DALI has hidden, dali_like has not. Instead, use"),
        (ops, "OpticalFlow", "DALI has OpticalFlow, .* PyTorch or CuPy"),
        (ops, "TensorSubscript", "use indices in brackets"),
        (fn, "rezise", "did you mean resize"),
        (ops, "Rezise", "did you mean Resize"),
        (fn, "xyzzy", r"See dir\(fn\), or write it"),
    ],
)
def test_missing_names_have_alternatives(module: Any, name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'.*{words}"):
        getattr(module, name)


def test_python_adds_no_guess_of_its_own() -> None:
    command = [sys.executable, "-c", "from dali_like import fn; fn.optical_flow"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert result.stderr.splitlines()[-1].endswith("behind the pipeline")
    assert "Did you mean" not in result.stderr


def test_private_names_have_none() -> None:
    assert not hasattr(fn, "_optical_flow")


def test_the_page_is_that_of_the_table() -> None:
    """If this fails, run ``python -m tools.dali_functions``."""
    folder = Path(dali_like.__file__).parents[1] / "docs" / "operators"

    for name, text in pages().items():
        assert (folder / name).read_text(encoding="utf-8") == text
