"""Hooks: functions that an object calls around parts of its work, for traces (`dali_like.monitor.trace.trace`).

An object with hooks has an attribute `hooks`: one of these records. Each field is None unless a trace is in progress, so a
hook costs one comparison otherwise. A hook of type `Around` replaces the call: it must call the function, and return its
result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

#: Calls a function, its first argument, with the other arguments, and returns the result.
Around = Callable[..., Any]


class Hooked(Protocol):
    """An object with hooks."""

    hooks: Any


class LoopHooks(NamedTuple):
    """Hooks of a pipeline's loop, in the thread of the program."""

    take: Around | None = None  # returns the next batch


class PoolHooks(NamedTuple):
    """Hooks of a pool of workers. Arguments as of the methods of `WorkerPool`, `Assembler` and `Scale`."""

    wait: Around | None = None  # for news of the workers
    assemble: Around | None = None  # (batch, slot): finishes a batch
    grow: Callable[[int], None] | None = None  # called before there are this many workers
    close: Callable[[], None] | None = None  # called when the workers have ended


class InlineHooks(NamedTuple):
    """Hooks of a pool that computes in the calling thread."""

    compute: Around | None = None  # (batch, assembler), or (key) for batches on a GPU


class GraphHooks(NamedTuple):
    """Hooks of the operators of a pipeline."""

    wait: Around | None = None  # for the operators of a batch
    compute: Around | None = None  # (outputs of the sources, batch id): in a thread of the operators, if there are any
    #: Called with names of operators, their durations in this thread, the beginning of the first, and the batch's id.
    times: Callable[[Sequence[str], Sequence[int], int, Any], None] | None = None


class DeviceHooks(NamedTuple):
    """Hooks of a GPU."""

    copy: Callable[..., None] | None = None  # see `begin_copy`

    def begin_copy(
        self, direction: str, copy: Callable[..., None], target: int, source: int, nbytes: int, *more: Any
    ) -> None:
        """Call a function that begins a copy, through the hook if there is one."""
        if self.copy is None:
            copy(target, source, nbytes, *more)
        else:
            self.copy(direction, copy, target, source, nbytes, *more)
