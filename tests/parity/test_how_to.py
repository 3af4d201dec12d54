"""The programs of pages about other libraries run, each in a process of its own: these libraries leave threads behind."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import DEADLINE_S
from tests.documents import DOCS, program_of

PAGES = {"lightning": "python lightning", "accelerate": "python accelerate", "jax": "python jax"}


@pytest.mark.parametrize("library", PAGES)
def test_the_program_runs(library: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    program = program_of(DOCS / "how-to" / f"{library}.md", PAGES[library])

    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )

    assert "assert" in program
    assert finished.returncode == 0, finished.stderr
