"""The public names and signatures are as in `public_surface.txt`; see `public_surface` on how to renew it."""

from __future__ import annotations

import subprocess
import sys

from tests.project.public_surface import FILE

PROGRAM = "from tests.project.public_surface import surface; print(*surface(), sep='\\n')"


def test_public_names_and_signatures_are_those_of_the_file() -> None:
    """If the change is meant, run ``python -m tests.project.public_surface``."""
    # In a process of its own: other tests register operators and readers.
    result = subprocess.run([sys.executable, "-c", PROGRAM], cwd=FILE.parents[2], capture_output=True, text=True, check=True)

    assert result.stdout == FILE.read_text("utf-8")
