"""Limits the threads of numerical libraries: those of one worker would compete with the other workers.

NumPy brings OpenBLAS, and PyTorch an OpenMP library. Their limits are set by one call each. threadpoolctl knows all
libraries, but takes ten milliseconds of the time to the first batch to import, and to find them.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from dali_like.engine.memory.limits import read_file

_OPENBLAS = ("libopenblas", "libscipy_openblas")
#: Beginnings of the names of libraries with threads, as in threadpoolctl.
_NUMERICAL = (*_OPENBLAS, "libblas", "libblis", "libflexiblas", "libgomp", "libiomp", "libmkl_rt", "libomp")
#: Parts of the name of OpenBLAS's function, which depend on its build.
_PREFIXES = ("scipy_", "")
_SUFFIXES = ("64_", "", "_64")

#: The functions of other libraries that set their number of threads.
_SETTERS = {
    **dict.fromkeys(("libgomp", "libiomp", "libomp"), "omp_set_num_threads"),
    "libmkl_rt": "MKL_Set_Num_Threads",
}
#: OpenBLAS with threads of its own, not those of OpenMP; see openblas_get_parallel in its cblas.h.
_OWN_THREADS = 1

#: Sets the number of threads of the libraries that have been found.
Limit = Callable[[int], object]

#: The numerical libraries of this process, with the number of modules and the last one when they were found.
_libraries: tuple[tuple[int, str], Limit] | None = None


def limit_threads(threads: int | None) -> None:
    """Limit the threads of the numerical libraries in this process, loaded already or later. None: do nothing."""
    if threads is None:
        return
    os.environ.update(thread_variables(threads))
    find_libraries()(threads)
    if (cv2 := sys.modules.get("cv2")) is not None:
        cv2.setNumThreads(threads if threads > 1 else 0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)


def find_libraries() -> Limit:
    """Find the numerical libraries of this process. That takes milliseconds; forked processes inherit the result."""
    global _libraries  # noqa: PLW0603
    modules = len(sys.modules), next(reversed(sys.modules))
    if _libraries is None or _libraries[0] != modules:
        _libraries = modules, _limit_of_known() or _limit_of_all()
    return _libraries[1]


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that limit the threads of libraries."""
    names: tuple[Any, ...] = (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "OPENCV_FOR_THREADS_NUM",
    )
    return dict.fromkeys(names, str(threads))


def _limit_of_known() -> Limit | None:
    """Return the limit of the libraries; None if this process has none or an unknown one, or they cannot be told."""
    paths = _numerical_libraries()
    functions = [_function_of(path) for path in paths]
    if not paths or None in functions:
        return None
    return lambda threads: [function(threads) for function in functions if function is not None]


def _numerical_libraries() -> list[str]:
    """Return the paths of the numerical libraries that are loaded; empty where the system does not tell."""
    lines = (line.split(maxsplit=5) for line in read_file("/proc/self/maps").splitlines())
    paths = {fields[5] for fields in lines if len(fields) == 6}
    return [path for path in paths if os.path.basename(path).startswith(_NUMERICAL)]


def _function_of(path: str) -> Limit | None:
    """Return the function of a library that sets its number of threads; None if the library is not known."""
    base = os.path.basename(path)
    try:
        library = ctypes.CDLL(path, os.RTLD_NOLOAD)
    except OSError:
        return None
    if base.startswith(_OPENBLAS):
        return _function_of_openblas(library)
    name = next((setter for begin, setter in _SETTERS.items() if base.startswith(begin)), "")
    return getattr(library, name) if hasattr(library, name) else None


def _function_of_openblas(library: ctypes.CDLL) -> Limit | None:
    def named(name: str) -> Any:
        names = (f"{prefix}openblas_{name}{suffix}" for prefix, suffix in itertools.product(_PREFIXES, _SUFFIXES))
        return next((getattr(library, name) for name in names if hasattr(library, name)), None)

    function: Limit | None = named("set_num_threads")
    kind = named("get_parallel")
    try:
        number, most = (ctypes.c_int.in_dll(library, f"blas_{name}") for name in ("cpu_number", "num_threads"))
    except ValueError:  # this build does not export its variables
        return function
    if function is None or kind is None or kind() != _OWN_THREADS:
        return function

    def limit(threads: int) -> None:
        # In a forked process, the function would first start as many threads as in the main process.
        if threads <= most.value:
            number.value = threads
        else:
            function(threads)

    return limit


def _limit_of_all() -> Limit:
    from threadpoolctl import ThreadpoolController  # see above

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about combinations of OpenMP libraries, which the user has chosen
        controller = ThreadpoolController()
    return lambda threads: controller.limit(limits=threads)
