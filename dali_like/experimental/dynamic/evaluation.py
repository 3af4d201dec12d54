"""Evaluation modes, and contexts with the threads that compute batches. Owned by the main process or a worker."""

from __future__ import annotations

import enum
import math
import operator
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dali_like.common.work_sharing import for_each, one_by_one
from dali_like.engine.memory.limits import allowed_cpus
from dali_like.engine.worker.info import get_worker_info
from dali_like.errors import ArgumentError
from dali_like.experimental.dynamic.placing import Device
from dali_like.graph.execution.buffers import BufferPool, PrivateSpace
from dali_like.graph.language.operator_interface import SampleShape

#: As DALI's default.
_MOST_THREADS = 4
#: From this size on, fresh memory takes longer than memory that is used again: a page fault for each 4 KiB.
_LARGE_BYTES = 1 << 16


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.modes: list[EvalMode] = []
        self.contexts: list[EvalContext] = []
        self.default: EvalContext | None = None


class EvalMode(enum.Enum):
    """When operators are computed. All modes compute an operator before its function returns, as ``sync_cpu`` does."""

    default = enum.auto()
    deferred = enum.auto()
    eager = enum.auto()
    sync_cpu = enum.auto()
    sync_full = enum.auto()

    def __enter__(self) -> None:
        _stacks.modes.append(self)

    def __exit__(self, *_: object) -> None:
        _stacks.modes.pop()

    @staticmethod
    def current() -> EvalMode:
        """Return the mode of the innermost ``with mode:`` in this thread."""
        return _stacks.modes[-1] if _stacks.modes else EvalMode.default


class EvalContext:
    """The threads that compute batches, and the device of results without inputs.

    The threads start with the first batch, and end with the outermost ``with context:``.

    Attributes:
        buffers: memory for large results and batches. It is used again when no array over it is alive.

    Args:
        num_threads: the number of threads. Default: the usable CPUs, at most 4; in a worker 1.
        device_id: the GPU of this context. Default: none.
        cuda_stream: without effect.

    Raises:
        ArgumentError: `num_threads` is less than 1.
    """

    def __init__(self, *, num_threads: int | None = None, device_id: int | None = None, cuda_stream: Any = None) -> None:
        if num_threads is not None and num_threads < 1:
            raise ArgumentError(f"num_threads must be at least 1, not {num_threads}")
        self._num_threads = num_threads
        self._device = None if device_id is None else Device("gpu", device_id)
        self._cuda_stream = cuda_stream
        self._threads: ThreadPoolExecutor | None = None
        self._pid = 0
        self.buffers = BufferPool(PrivateSpace())

    @staticmethod
    def current() -> EvalContext:
        """Return the innermost context of this thread, or its default one."""
        return _stacks.contexts[-1] if _stacks.contexts else EvalContext.default()

    @staticmethod
    def default() -> EvalContext:
        """Return the context of this thread outside of any ``with context:``."""
        if _stacks.default is None:
            _stacks.default = EvalContext()
        return _stacks.default

    def __enter__(self) -> Self:
        _stacks.contexts.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _stacks.contexts.pop()
        if self not in _stacks.contexts:
            self.close()

    def close(self) -> None:
        """End the threads, and free unused memory. The next batch starts them again."""
        self.buffers.drop_free()
        threads, self._threads = self._threads, None
        if threads is not None and self._pid == os.getpid():
            threads.shutdown()

    def evaluate_all(self) -> None:
        """Do nothing: no operator is pending."""

    @property
    def device(self) -> Device | None:
        """The GPU; None without one."""
        return self._device

    @property
    def device_id(self) -> int | None:
        """The index of the GPU; None without one."""
        return None if self._device is None else self._device.device_id

    @property
    def cuda_stream(self) -> Any:
        """The stream, as given."""
        return self._cuda_stream

    @property
    def num_threads(self) -> int:
        """The number of threads."""
        if self._num_threads is None:
            self._num_threads = 1 if get_worker_info() is not None else min(_MOST_THREADS, allowed_cpus())
        return self._num_threads

    def place(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Return memory for a large result; see `dali_like.graph.language.operator_interface.Place`."""
        if math.prod(shape) * dtype.itemsize < _LARGE_BYTES:
            return None
        made: NDArray[Any] = self.buffers.rows(SampleShape(shape, dtype), 1)[0]
        return made

    def for_each(
        self, count: int, function: Callable[[int], None], around: Callable[[Callable[[], None]], None] = operator.call
    ) -> None:
        """Call `function` for each index, in this thread and in the others; see `for_each`."""
        helpers = min(self.num_threads, count) - 1
        if helpers < 1:
            one_by_one(count, function, around)
            return
        if self._threads is None or self._pid != os.getpid():  # threads do not survive a fork
            self._threads, self._pid = ThreadPoolExecutor(self.num_threads - 1, "dali_like"), os.getpid()
        for_each(count, function, self._threads, helpers, around)


_stacks = _Stacks()
