"""The library of dali-like-kernels: the one in use, or one compiled from the folder ``kernels`` of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dali_like.common.kernel_library import VARIABLE, kernels

__all__ = ["FOLDER", "use_kernels"]

#: Where the library is compiled to, below the current folder.
FOLDER = Path("build/benchmarks/kernels")
_SOURCES = Path(__file__).resolve().parents[1] / "kernels"


def use_kernels(wanted: bool) -> None:
    """Let operators of this process and its children use the library, or do without it.

    Raises:
        CalledProcessError: it is not installed and cannot be compiled.
    """
    if not wanted:
        os.environ[VARIABLE] = "0"
    elif not os.environ.get(VARIABLE, "").endswith(".so"):
        path = FOLDER.resolve() / "libdali_like_kernels.so"
        sources = [*(_SOURCES / "src").iterdir(), _SOURCES / "build_library.py"]
        if not path.exists() or path.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            subprocess.run([sys.executable, str(_SOURCES / "build_library.py"), str(path)], check=True)
        os.environ[VARIABLE] = str(path)
    kernels.cache_clear()
