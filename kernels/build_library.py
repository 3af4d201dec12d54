"""Compile the library: ``python build_library.py PATH``. Needs a C compiler, ``cc`` or that of the variable ``CC``."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
# No fused operations, whatever the processor has: results have the bits of NumPy's separate ones.
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-fvisibility=hidden")


def build(target: Path) -> None:
    """Compile all sources.

    Args:
        target: the file to write.

    Raises:
        CalledProcessError: the compiler has failed.
        FileNotFoundError: there is no compiler.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    target.parent.mkdir(parents=True, exist_ok=True)
    sources = sorted(map(str, SOURCES.glob("*.c")))
    subprocess.run([*compiler, *FLAGS, "-Wall", "-Wextra", "-o", str(target), *sources, "-lm"], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
