"""Results of functions that are kept for the same arguments, up to a number of bytes."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

R = TypeVar("R")


def kept_within(most_bytes: int, size_of: Callable[[R], int]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a function keep its results, those used last, for calls with equal arguments in any thread.

    The last result is kept however large it is.

    Args:
        most_bytes: of all kept results together.
        size_of: returns the bytes of a result.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        kept: OrderedDict[tuple[Hashable, ...], tuple[R, int]] = OrderedDict()
        adding = threading.Lock()
        num_bytes = 0

        @functools.wraps(function)
        def call(*arguments: Hashable) -> R:
            nonlocal num_bytes
            found = kept.get(arguments)
            if found is not None:
                with contextlib.suppress(KeyError):  # another thread has dropped it
                    kept.move_to_end(arguments)
                return found[0]
            made = function(*arguments)
            # A forked process may have a lock that is held for ever: it keeps no further results, and works.
            if adding.acquire(blocking=False):
                try:
                    if arguments not in kept:
                        size = size_of(made)
                        kept[arguments] = made, size
                        num_bytes += size
                    while len(kept) > 1 and num_bytes > most_bytes:
                        num_bytes -= kept.popitem(last=False)[1][1]
                finally:
                    adding.release()
            return made

        return call

    return decorate
