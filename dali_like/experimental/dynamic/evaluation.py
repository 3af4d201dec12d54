"""Evaluation modes, and contexts with the threads that compute batches. Owned by the main process or a worker."""

from __future__ import annotations

import enum
import math
import operator
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError
from dali_like.experimental.dynamic import stream_handles
from dali_like.experimental.dynamic.placing import Device
from dali_like.experimental.dynamic.thread_pools import ThreadPool
from dali_like.graph.execution.buffers import BufferPool, PrivateSpace
from dali_like.graph.language.operator_interface import SampleShape

if TYPE_CHECKING:
    from dali_like.experimental.dynamic.checkpoint import Checkpoint

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

    Its own threads start with the first batch, and end with the outermost ``with context:``.

    Attributes:
        buffers: memory for large results and batches. It is used again when no array over it is alive.

    Args:
        num_threads: the number of threads. Default: that of `get_num_threads`, which `set_num_threads` changes later, too.
        device_id: the GPU of this context. Default: none.
        cuda_stream: without effect. Default: the current stream of this thread; see `set_current_stream`.
        thread_pool: threads to share with other contexts, instead of `num_threads`.

    Raises:
        ArgumentError: `num_threads` is less than 1.
        ArgumentClashError: both `num_threads` and `thread_pool` are given, or the pool is for another GPU.
    """

    def __init__(
        self,
        *,
        num_threads: int | None = None,
        device_id: int | None = None,
        cuda_stream: Any = None,
        thread_pool: ThreadPool | None = None,
    ) -> None:
        if thread_pool is not None and num_threads is not None:
            raise ArgumentClashError("`thread_pool` and `num_threads` cannot be specified together")
        if thread_pool is not None and thread_pool.device_id != device_id:
            raise ArgumentClashError(f"thread_pool.device_id is {thread_pool.device_id}, device_id is {device_id}")
        self._shared = thread_pool
        self._own: ThreadPool | None = None if num_threads is None else ThreadPool(num_threads, device_id=device_id)
        self._has_number = num_threads is not None
        self._pid = os.getpid()
        self._device = None if device_id is None else Device("gpu", device_id)
        self._cuda_stream = cuda_stream
        self._checkpoint: Checkpoint | None = None
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
        """End its own threads, and free unused memory. The next batch starts them again."""
        self.buffers.drop_free()
        if self._own is not None:
            self._own.close()

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
        """The stream, as given, or else the current stream of this thread."""
        return stream_handles.get_current_stream() if self._cuda_stream is None else self._cuda_stream

    @property
    def thread_pool(self) -> ThreadPool:
        """The threads."""
        if self._shared is not None:
            return self._shared
        own = self._own
        # A worker that was forked meanwhile has another default number.
        if own is None or (not self._has_number and (own.is_outdated or self._pid != os.getpid())):
            if own is not None:
                own.close()
            self._own, self._pid = (own := ThreadPool(device_id=self.device_id)), os.getpid()
        return own

    @property
    def num_threads(self) -> int:
        """The number of threads."""
        return self.thread_pool.num_threads

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of this context; see `dali_like.experimental.dynamic.checkpoint`."""
        if self._checkpoint is None:
            from dali_like.experimental.dynamic.checkpoint import Checkpoint  # few programs save states

            self._checkpoint = Checkpoint()
        return self._checkpoint

    def place(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Return memory for a large result; see `dali_like.graph.language.operator_interface.Place`."""
        if math.prod(shape) * dtype.itemsize < _LARGE_BYTES:
            return None
        made: NDArray[Any] = self.buffers.rows(SampleShape(shape, dtype), 1)[0]
        return made

    def for_each(
        self, count: int, function: Callable[[int], None], around: Callable[[Callable[[], None]], None] = operator.call
    ) -> None:
        """Call `function` for each index, in this thread and in the others."""
        self.thread_pool.for_each(count, function, around)


_stacks = _Stacks()
