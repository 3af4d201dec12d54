"""Share the work of batches among the calling thread and the threads of a pool."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import call
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Brevity", "Pace", "for_each", "one_by_one"]

#: Work that takes longer than this with several threads is never tried on one.
_SMALL_NS = 4_000_000
#: The slower way is tried again after so many batches: other programs may have disturbed it.
_TRIED_AGAIN = 64


#: Batches that take less in the pool run in the calling thread from then on, and return to the pool if they take more than
#: the second there. Passing a batch to another thread and waiting for it takes some 100 us; and where two threads take turns
#: with the interpreter's lock, the same work takes up to twice the time.
SHORT_NS, LONG_NS = 600_000, 800_000


class Brevity:
    """Decides whether the calling thread computes the batches, alone.

    A batch takes less time there than in the pool. So the limit for returning to the pool is the higher one: a batch changes
    its thread when its work changes, and not because the other way is measured. The measure is nearly the least of the last
    batches, and grows by a tenth with each: the system may interrupt a thread at any time.

    Attributes:
        is_short: whether the calling thread computes the next batch.
    """

    def __init__(self) -> None:
        self.is_short = False
        self._recent_ns = 0.0

    def note(self, elapsed_ns: int) -> None:
        """Note the time of a batch."""
        recent_ns = self._recent_ns or elapsed_ns
        self._recent_ns = min(elapsed_ns, 1.1 * recent_ns)
        self.is_short = self._recent_ns < (LONG_NS if self.is_short else SHORT_NS)


class Pace:
    """Decides whether threads share the work of a batch: not if that takes as long as one thread does.

    Small batches take longer with several threads: waking a thread takes some 50 us, and only one runs Python code at a
    time. Both ways are measured, since no rule tells how much of an operator is Python code.
    """

    def __init__(self) -> None:
        self._alone_ns: float | None = None  # time of a batch, for each index
        self._shared_ns: float | None = None
        self._num_batches = 0

    def shares(self, count: int) -> bool:
        """Whether several threads compute the next batch, of `count` indices."""
        if self._shared_ns is None:
            return True
        if self._shared_ns * count > _SMALL_NS:
            return True
        if self._alone_ns is None:
            return False
        self._num_batches += 1
        is_faster = self._shared_ns < self._alone_ns
        return not is_faster if self._num_batches % _TRIED_AGAIN == 0 else is_faster

    def note(self, count: int, elapsed_ns: int, *, shared: bool) -> None:
        """Note the time of a batch."""
        if shared:
            self._shared_ns = elapsed_ns / count
        else:
            self._alone_ns = elapsed_ns / count


def for_each(
    count: int,
    function: Callable[[int], None],
    pool: Executor,
    helpers: int,
    around: Callable[[Callable[[], None]], None] = call,
) -> None:
    """Call `function` for each index below `count`, in this thread and in free threads of `pool`.

    A thread that has finished an index takes the next one. Raises the exception of the lowest index, whichever came first.

    Args:
        count: the number of indices.
        function: called once for each, in any thread.
        pool: the threads.
        helpers: the most threads of the pool to use.
        around: called in each thread with its work, which it calls.
    """
    indices = itertools.count()
    errors: dict[int, Exception] = {}

    def work() -> None:
        while (i := next(indices)) < count:
            try:
                function(i)
            except Exception as error:
                errors[i] = error

    futures = [pool.submit(around, work) for _ in range(min(helpers, count - 1))]
    around(work)
    for future in futures:
        if not future.cancel():
            future.result()
    if errors:
        raise errors[min(errors)]


def one_by_one(count: int, function: Callable[[int], None], around: Callable[[Callable[[], None]], None] = call) -> None:
    """Call a function for each index in this thread."""

    def work() -> None:
        for i in range(count):
            function(i)

    around(work)
