"""Names of ``fn`` and ``ops`` that do not exist: the error names the alternative."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dali_like import fn, ops


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (fn, "grid_mask", "DALI has grid_mask, dali_like has not. Instead, write it as a function of one sample"),
        (fn, "optical_flow", "an operator for the GPU: compute it with PyTorch or CuPy"),
        (fn, "zeros_like", "types.Constant"),
        (fn, "spectrogram", "DALI has spectrogram, .* fn.decoders.audio"),
        (fn.experimental, "debayer", "an operator for the GPU"),
        (ops, "OpticalFlow", "DALI has OpticalFlow, .* for the GPU"),
        (ops, "ZerosLike", "types.Constant"),
        (ops, "noise", "fn.random.normal"),
        (fn, "rezise", "did you mean resize"),
        (ops, "Rezise", "did you mean Resize"),
        (fn, "xyzzy", r"See dir\(fn\), or write it"),
    ],
)
def test_missing_names_have_alternatives(module: Any, name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'.*{words}"):
        getattr(module, name)


def test_python_adds_no_guess_of_its_own() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from dali_like import fn; fn.ones"], capture_output=True, text=True, timeout=60, check=False
    )

    assert result.stderr.splitlines()[-1].endswith("where a node is expected")
    assert "Did you mean" not in result.stderr


def test_private_names_have_none() -> None:
    assert not hasattr(fn, "_water")
