"""The memory of what callbacks make: kept by the worker's allocator, and not the system's again after each sample.

What a callback makes for a sample is freed before the next one is made, which takes as much. Left to itself, the allocator
of glibc gives large blocks back to the system each time, which gives others and zeroes them: a page fault for every 4 KiB,
which takes longer than to write there. See mallopt(3).
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from dali_like.engine.memory.limits import available_bytes

#: All workers together keep no more than this part of the memory that there is when they start,
_KEPT_SHARE = 8
#: and each at least as much as glibc may come to keep by itself. The most is half of what mallopt takes, an int.
_LEAST_KEPT_BYTES = 64 << 20
_MOST_KEPT_BYTES = 1 << 30

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
#: By these users say it themselves; the last one can say many other things, too.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
_TUNABLES = "GLIBC_TUNABLES", "glibc.malloc."


def keep_freed_memory(num_workers: int) -> None:
    """Let this process and those forked from it keep what they free, up to a limit, unless the environment says otherwise.

    Args:
        num_workers: how many processes there will be that do.
    """
    name, prefix = _TUNABLES
    if any(variable in os.environ for variable in _VARIABLES) or prefix in os.environ.get(name, ""):
        return
    kept = kept_bytes(num_workers, available_bytes())
    with contextlib.suppress(AttributeError):  # not the allocator of glibc
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(_M_MMAP_THRESHOLD, kept // 2):  # some versions take no more than 32 MiB
            mallopt(_M_MMAP_THRESHOLD, _LEAST_KEPT_BYTES // 2)
        mallopt(_M_TRIM_THRESHOLD, kept)


def kept_bytes(num_workers: int, available: int) -> int:
    """How much each of so many workers may keep, where so much memory is available."""
    return min(max(available // (_KEPT_SHARE * num_workers), _LEAST_KEPT_BYTES), _MOST_KEPT_BYTES)
