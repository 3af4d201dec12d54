"""Runs the tests of `tests.parity.with_jax` in a process of their own.

JAX warns of every fork as soon as it is imported, and the number of devices must be known before.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers

FOLDER = Path(__file__).parent / "with_jax"


def test_with_jax() -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    files = sorted(map(str, FOLDER.glob("check_*.py")))

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert files
    assert result.returncode == 0, result.stdout + result.stderr
