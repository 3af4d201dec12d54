"""Access to a GPU, or the reason to skip a test; kernels that run until the test ends them."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest

from dali_like.device.accelerator import accelerator_is_available, count_is_known

#: A kernel ends after this time in any case, so that a failing test does not hang.
MOST_NS = 5_000_000_000

_CODE = r"""
extern "C" __global__ void wait_for(volatile int* flag, long long most_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (*flag == 0 && now - begin < most_ns);
}
"""


def cuda() -> Any:
    """Return CuPy; without it, skip the calling module."""
    if not accelerator_is_available() and count_is_known():
        pytest.skip("there is no GPU here", allow_module_level=True)
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed, by which GPUs are used", allow_module_level=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("cupy")


def stream_of(cupy: Any, handle: int) -> Any:
    """Return another library's stream as a CuPy stream."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions have another function for this
        return cupy.cuda.ExternalStream(handle)


class Gate:
    """A kernel that blocks all later work on a stream until the gate opens, or for `most_ns`."""

    def __init__(self, cupy: Any, stream: Any = None, *, most_ns: int = MOST_NS) -> None:
        self._memory = cupy.cuda.alloc_pinned_memory(4)
        self._flag = np.frombuffer(self._memory, np.int32, 1)
        self._flag[0] = 0
        self.stream = cupy.cuda.Stream.null if stream is None else stream
        kernel = cupy.RawKernel(_CODE, "wait_for")
        with self.stream:
            kernel((1,), (1,), (self._memory.ptr, most_ns))

    @property
    def is_shut(self) -> bool:
        """Whether the stream still waits."""
        return not self.stream.done

    def open(self) -> None:
        """Let the stream continue."""
        self._flag[0] = 1
        self.stream.synchronize()
