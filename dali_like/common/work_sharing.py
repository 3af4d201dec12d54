"""Share the indices of a batch among the calling thread and the threads of a pool."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import call
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["for_each", "one_by_one"]


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
