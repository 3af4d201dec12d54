"""The library of dali-like-kernels, compiled for tests where there is a C compiler."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dali_like.common import kernel_library
from dali_like.graph.execution import batch_runs

FOLDER = Path(__file__).resolve().parents[1] / "kernels"
#: Variable with a folder that all processes of a run of pytest share; see tests/conftest.py.
SHARED_FOLDER = "TESTS_SHARED_FOLDER"

_GIVEN = os.environ.get(kernel_library.VARIABLE, "")


@functools.cache
def library() -> str:
    """Return the path of the library: that of the variable, or one compiled here. Skips the test without a compiler."""
    if _GIVEN.endswith(".so"):
        return os.path.abspath(_GIVEN)
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("there is no C compiler")
    path = Path(os.environ[SHARED_FOLDER]) / "libdali_like_kernels.so"
    # Compiling takes five seconds, and several processes of a run need the library at the same time.
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            spec = importlib.util.spec_from_file_location("build_library", FOLDER / "build_library.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            module.build(path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)  # a failed compiler leaves nothing under the final name
    return str(path)


@contextlib.contextmanager
def sample_by_sample() -> Iterator[None]:
    """Let operators compute samples of different shapes one by one, and no kernel."""
    with kernels_from("0"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_runs, "run_by_kernels", lambda *_: False)
        yield


@contextlib.contextmanager
def kernels_from(path: str) -> Iterator[None]:
    """Let operators use a library; "0": none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel_library.VARIABLE, path)
        kernel_library.kernels.cache_clear()
        try:
            yield
        finally:
            kernel_library.kernels.cache_clear()
