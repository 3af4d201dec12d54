"""Threads of dynamic mode, and how many there are by default. Owned by the main process or a worker."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dali_like.common.work_sharing import for_each, one_by_one
from dali_like.engine.memory.limits import allowed_cpus
from dali_like.engine.worker.info import get_worker_info
from dali_like.errors import ArgumentError, ArgumentTypeError

__all__ = ["ThreadPool", "get_num_threads", "set_num_threads"]

#: DALI 1.53's default. DALI 2.4.0 takes all CPUs.
_MOST_THREADS = 4
#: DALI's limit for `set_num_threads`.
_MOST_PER_CPU = 100
#: The variable of the environment with the default number.
_VARIABLE = "DALI_NUM_THREADS"


class _NumThreads:
    """The number of threads that the program has set for all contexts, and how often it has done so."""

    chosen: int | None = None
    changes = 0


def get_num_threads() -> int:
    """Return the number of threads of contexts and pools that are made without one.

    It is the last argument of `set_num_threads`, else ``DALI_NUM_THREADS`` of the environment, else the usable CPUs, at most
    4; in a worker 1.
    """
    if _NumThreads.chosen is not None:
        return _NumThreads.chosen
    if text := os.environ.get(_VARIABLE):
        return int(text)
    return 1 if get_worker_info() is not None else min(_MOST_THREADS, allowed_cpus())


def set_num_threads(n: int | None) -> None:
    """Set the number of threads of contexts without a number of their own, from their next batch on; None: the default.

    Raises:
        ArgumentTypeError: `n` is not an integer.
        ArgumentError: it is not positive, or more than a hundred for each CPU.
    """
    if n is not None:
        if not isinstance(n, int):
            raise ArgumentTypeError(f"The number of threads must be an integer, not {n!r}")
        if n < 1:
            raise ArgumentError(f"The number of threads must be positive; got {n}")
        if n > _MOST_PER_CPU * (os.cpu_count() or 1):
            raise ArgumentError(f"The number of threads must not exceed {_MOST_PER_CPU} for each CPU; got {n}")
    _NumThreads.chosen = n
    _NumThreads.changes += 1


class ThreadPool:
    """Threads that compute the samples of batches, for one or several contexts: ``EvalContext(thread_pool=...)``.

    They start with the first batch, and end with `close` or with the pool.

    Args:
        num_threads: how many, including the thread that calls an operator. Default: `get_num_threads`.
        device_id: the GPU of the contexts that use the pool. Default: none.

    Raises:
        ArgumentError: `num_threads` is less than 1.
    """

    def __init__(self, num_threads: int | None = None, *, device_id: int | None = None) -> None:
        if num_threads is not None and num_threads < 1:
            raise ArgumentError(f"num_threads must be at least 1, not {num_threads}")
        self._num_threads = get_num_threads() if num_threads is None else num_threads
        self._device_id = device_id
        self._changes = _NumThreads.changes
        self._threads: ThreadPoolExecutor | None = None
        self._pid = 0

    @property
    def num_threads(self) -> int:
        """The number of threads."""
        return self._num_threads

    @property
    def device_id(self) -> int | None:
        """The GPU; None without one."""
        return self._device_id

    @property
    def is_outdated(self) -> bool:
        """Whether the program has called `set_num_threads` since."""
        return self._changes != _NumThreads.changes

    def for_each(
        self, count: int, function: Callable[[int], None], around: Callable[[Callable[[], None]], None] = operator.call
    ) -> None:
        """Call `function` for each index, in this thread and in the others; see `dali_like.common.work_sharing.for_each`."""
        helpers = min(self._num_threads, count) - 1
        if helpers < 1:
            one_by_one(count, function, around)
            return
        if self._threads is None or self._pid != os.getpid():  # threads do not survive a fork
            self._threads, self._pid = ThreadPoolExecutor(self._num_threads - 1, "dali_like"), os.getpid()
        for_each(count, function, self._threads, helpers, around)

    def close(self) -> None:
        """End the threads. The next batch starts them again."""
        threads, self._threads = self._threads, None
        if threads is not None and self._pid == os.getpid():
            threads.shutdown()
