"""Make the allocator of a worker process keep the memory of samples, instead of returning it to the kernel each time.

A sample is freed before the next one is computed, which needs as much memory. By default, glibc returns large blocks to the
kernel, and the kernel zeroes the next ones: a page fault for every 4 KiB takes longer than writing to the page. See
mallopt(3).
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from dali_like.engine.memory.limits import recently_available_bytes as available_bytes

#: All workers together keep at most one part in this many of the memory that is available when they start.
_KEPT_SHARE = 8
#: Each keeps at least as much as glibc might keep by default. The upper limit is half of the largest int, as mallopt takes.
_LEAST_KEPT_BYTES = 64 << 20
_MOST_KEPT_BYTES = 1 << 30

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
#: Environment variables with which users set these limits. The last one sets others, too.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
_TUNABLES = "GLIBC_TUNABLES", "glibc.malloc."


def keep_freed_memory(num_workers: int) -> None:
    """Let this process, and processes forked from it, keep freed memory up to a limit, unless the environment sets one.

    Args:
        num_workers: the number of processes that share the available memory.
    """
    name, prefix = _TUNABLES
    if any(variable in os.environ for variable in _VARIABLES) or prefix in os.environ.get(name, ""):
        return
    kept = kept_bytes(num_workers, available_bytes())
    with contextlib.suppress(AttributeError):  # the allocator is not glibc's
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(_M_MMAP_THRESHOLD, kept // 2):  # some versions accept at most 32 MiB
            mallopt(_M_MMAP_THRESHOLD, _LEAST_KEPT_BYTES // 2)
        mallopt(_M_TRIM_THRESHOLD, kept)


def kept_bytes(num_workers: int, available: int) -> int:
    """Return the bytes that each worker may keep, given the available bytes."""
    return min(max(available // (_KEPT_SHARE * num_workers), _LEAST_KEPT_BYTES), _MOST_KEPT_BYTES)
