"""Compile the library: ``python build_library.py PATH``. Needs a C compiler, ``cc`` or that of the variable ``CC``.

JPEGs are decoded with libjpeg-turbo 1.5 or later. It becomes a part of the library if there is a static one that can be
linked; otherwise it is linked dynamically. Without its headers, the library has no decoder. ``DALI_LIKE_KERNELS_JPEG`` is
the folder in which libjpeg-turbo is installed, or ``0`` to do without.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "src"
# No fused operations, whatever the processor has: results have the bits of NumPy's separate ones.
# Comparisons of floats may be computed in vectors: nobody asks for their exceptions.
FLAGS = (
    *("-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-fPIC", "-shared", "-fvisibility=hidden"),
)
JPEG_VARIABLE = "DALI_LIKE_KERNELS_JPEG"
#: The sources that need libjpeg-turbo.
DECODER = frozenset({"entropy.c", "jpeg.c"})


def build(target: Path) -> bool:
    """Compile all sources.

    Args:
        target: the file to write.

    Returns:
        Whether the library decodes JPEGs.

    Raises:
        CalledProcessError: the compiler has failed.
        FileNotFoundError: there is no compiler.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sources = sorted(map(str, SOURCES.glob("*.c")))
    where = os.environ.get(JPEG_VARIABLE, "")
    folders = [f"-I{where}/include", f"-L{where}/lib"] if where else []
    for library in () if where == "0" else ("-l:libjpeg.a", "-ljpeg"):
        if _compile(target, sources, *folders, library, "-Wl,--exclude-libs,ALL", quietly=True):
            return True
    if where not in ("", "0"):
        _compile(target, sources, *folders, "-ljpeg")  # says what is wrong
    _compile(target, [source for source in sources if Path(source).name not in DECODER])
    return False


def _compile(target: Path, sources: Sequence[str], *options: str, quietly: bool = False) -> bool:
    """Compile; return whether it succeeded. Without `quietly`, raise the error."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, *FLAGS, "-Wall", "-Wextra", "-o", str(target), *sources, "-lm", *options]
    return not subprocess.run(command, check=not quietly, stderr=subprocess.DEVNULL if quietly else None).returncode


if __name__ == "__main__":
    if not build(Path(sys.argv[1])):
        print("without windows of JPEGs: headers and library of libjpeg-turbo were not found", file=sys.stderr)
