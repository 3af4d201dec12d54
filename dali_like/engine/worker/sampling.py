"""Samples of Python stacks: a thread looks at another one 25 times a second, and counts where it finds it.

Runs in a worker, or in the main process for sources that are called there, and only while the program asks for a profile
(`dali_like.monitor.profile`). The thread needs the GIL for each look. Code that computes without the GIL is not stopped.
Other code gives the GIL up for some 50 microseconds.

The time since the last look counts for the stack that is found, in one of three ways:

- *CPU time with the GIL*: the look comes late, because the GIL was held when it was due. It comes after the code in C that
  holds the GIL has returned, or after the interpreter's switch interval. Lateness for want of a CPU does not count.
- *CPU time without the GIL*: the look comes in time, and the kernel says that the thread computes, or is ready to.
- *Waiting*: the kernel says that it sleeps.

A stack is the one at the look, and not when it was due. So the switch interval is short meanwhile, unless other threads of
Python would then get in each other's way.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple, Self

#: Mean time between two looks.
PERIOD_S = 0.04
#: The switch interval meanwhile. A look that comes later than the second time has waited for the GIL; the kernel wakes a
#: thread within 0.1 ms.
_SWITCH_S, _LATE_NS = 0.0005, 300_000
#: Results are published after this time at first, and then in intervals that double up to the second one.
_FIRST_PERIOD_S, _LAST_PERIOD_S = 0.1, 1.0
_MOST_FRAMES = 200

_HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(_HERE)) + os.sep
#: The code of a worker is outside of these files' last frame; and if the worker computes nothing, it is in them.
WORKER_FILES = frozenset({os.path.join(_HERE, "worker.py"), os.path.join(PACKAGE, "engine", "backends", "threads.py")})
#: Names of threads in which a worker calls functions of the program.
_READS = ("dali_like_reads", "dali_like_elements")


class Frame(NamedTuple):
    """A place in a program."""

    file: str
    function: str
    line: int


#: From the outermost frame to the innermost one.
Stack = tuple[Frame, ...]


class Counts(NamedTuple):
    """Time in a stack.

    Attributes:
        samples: number of looks that have found it.
        wall_ns: time.
        cpu_ns: CPU time.
        free_ns: CPU time without the GIL.
    """

    samples: int = 0
    wall_ns: int = 0
    cpu_ns: int = 0
    free_ns: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(*map(int.__add__, self, other))


class StackCounts:
    """Counts by stack.

    Attributes:
        stacks: the counts.
        idle_ns: time in which the thread had nothing to compute.
    """

    def __init__(self) -> None:
        self.stacks: dict[Stack, Counts] = {}
        self.idle_ns = 0

    def add(self, stack: Stack, counts: Counts) -> None:
        """Add counts of a stack."""
        self.stacks[stack] = self.stacks.get(stack, Counts()).plus(counts)

    def add_all(self, other: StackCounts) -> None:
        """Add all counts of another one."""
        for stack, counts in other.stacks.items():
            self.add(stack, counts)
        self.idle_ns += other.idle_ns

    def as_json(self) -> dict[str, Any]:
        """Return the counts as values for JSON, with each frame once."""
        numbers: dict[Frame, int] = {}
        for frame in itertools.chain.from_iterable(self.stacks):
            numbers.setdefault(frame, len(numbers))
        return {
            "idle_ns": self.idle_ns,
            "frames": [list(frame) for frame in numbers],
            "stacks": [[[numbers[frame] for frame in stack], *counts] for stack, counts in self.stacks.items()],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Return the result of `as_json`."""
        counts = cls()
        frames = [Frame(*frame) for frame in saved["frames"]]
        for numbers, *values in saved["stacks"]:
            counts.add(tuple(frames[number] for number in numbers), Counts(*values))
        counts.idle_ns = saved["idle_ns"]
        return counts

    def as_text(self, most_bytes: int) -> bytes:
        """Return the counts as JSON of at most so many bytes. Where they need more, the rarest stacks are left out."""
        kept = self
        while len(text := json.dumps(kept.as_json()).encode()) > most_bytes:
            whole, kept = kept, StackCounts()
            heaviest = sorted(whole.stacks.items(), key=lambda pair: pair[1].wall_ns, reverse=True)
            kept.stacks, kept.idle_ns = dict(heaviest[: len(heaviest) // 2]), whole.idle_ns
        return text


class StackSampler(threading.Thread):
    """Samples the stacks of the thread that makes it, until nobody wants them any more.

    Args:
        boundary: files of the package whose last frame calls the functions to sample.
        is_wanted: returns whether to go on; called before each look.
        publish: takes the counts now and then, and at the end.
        is_alone: whether this process has no other threads that compute in Python.
        all_reads: whether to sample the threads that read for this process, too.

    Attributes:
        counts: so far.
        boundary: as given.
        states: tells by thread whether it computes.
        has_to_stop: whether `stop` has been called.
    """

    def __init__(
        self,
        boundary: frozenset[str],
        is_wanted: Callable[[], bool],
        publish: Callable[[StackCounts], None],
        *,
        is_alone: bool = False,
        all_reads: bool = False,
    ) -> None:
        super().__init__(name="dali_like_sampler", daemon=True)
        self.counts = StackCounts()
        self.boundary, self._is_wanted, self._publish = boundary, is_wanted, publish
        self._is_alone, self._finds_reads = is_alone, all_reads
        self._sampled = threading.get_ident()
        self.states = {self._sampled: _ThreadFile("stat", threading.get_native_id())}
        self.has_to_stop = False

    def run(self) -> None:
        # Not the global generator: the program may have seeded it.
        chance, publish_s = random.Random(), _FIRST_PERIOD_S
        last_ns, due_s = time.monotonic_ns(), time.monotonic() + publish_s
        switch_s = sys.getswitchinterval()
        if self._is_alone:
            sys.setswitchinterval(min(switch_s, _SWITCH_S))
        schedule = _ThreadFile("schedstat", threading.get_native_id())
        try:
            while not self.has_to_stop and self._is_wanted():
                pause_ns = int(PERIOD_S * 1e9 * (0.75 + chance.random() / 2))  # programs have periods, too
                delayed_ns, asleep_ns = schedule.delayed_ns(), time.monotonic_ns()
                time.sleep(pause_ns / 1e9)
                now_ns = time.monotonic_ns()
                if self.has_to_stop:
                    break  # the sampled thread waits for this one
                late_ns = now_ns - asleep_ns - pause_ns - (schedule.delayed_ns() - delayed_ns)
                self.look(now_ns - last_ns, is_late=late_ns > _LATE_NS)
                last_ns = now_ns
                if time.monotonic() >= due_s:
                    self._publish(self.counts)
                    publish_s = min(2 * publish_s, _LAST_PERIOD_S)
                    due_s = time.monotonic() + publish_s
        finally:
            if self._is_alone and sys.getswitchinterval() <= _SWITCH_S:  # the program has set no other one meanwhile
                sys.setswitchinterval(switch_s)
            for file in (schedule, *self.states.values()):
                file.close()
        self._publish(self.counts)

    def stop(self) -> None:
        """Stop, and publish the rest. Called in the sampled thread."""
        self.has_to_stop = True
        self.join()

    def look(self, elapsed_ns: int, *, is_late: bool) -> None:
        """Count the stacks of the sampled threads for the time since the last look."""
        if self._finds_reads:
            self._find_reads()
        frames = sys._current_frames()
        for ident, state in self.states.items():
            is_main, frame = ident == self._sampled, frames.get(ident)
            stack = stack_of(frame, self.boundary if is_main else None)
            if stack is None:
                self.counts.idle_ns += elapsed_ns if is_main else 0
                continue
            has_gil = is_main and is_late
            free_ns = elapsed_ns if not has_gil and state.is_running() else 0
            self.counts.add(stack, Counts(1, elapsed_ns, elapsed_ns if has_gil else free_ns, free_ns))

    def _find_reads(self) -> None:
        """Find the threads that read for this process now."""
        found = {thread.ident: thread for thread in threading.enumerate() if thread.name.startswith(_READS)}
        for ident in self.states.keys() - found.keys() - {self._sampled}:
            self.states.pop(ident).close()
        for new, thread in found.items():
            if new is not None and new not in self.states:
                self.states[new] = _ThreadFile("stat", thread.native_id or 0)


class _ThreadFile:
    """A file of the kernel about a thread of this process; see proc(5). Where the kernel tells nothing, all are zero."""

    def __init__(self, name: str, native_id: int) -> None:
        try:
            self._fd = os.open(f"/proc/self/task/{native_id}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def _read(self) -> bytes:
        try:
            return os.pread(self._fd, 512, 0)
        except OSError:  # no such file, or the thread has ended
            return b""

    def is_running(self) -> bool:
        """Return whether the thread computes, or is ready to. The file is ``stat``."""
        return self._read().rpartition(b") ")[2].startswith(b"R")

    def delayed_ns(self) -> int:
        """Return how long the thread was ready and had no CPU. The file is ``schedstat``."""
        words = self._read().split()
        return int(words[1]) if len(words) > 1 else 0

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def stack_of(frame: FrameType | None, boundary: frozenset[str] | None) -> Stack | None:
    """Return the stack of a frame inside the boundary, without the frames of the package that call the program's functions.

    Args:
        boundary: files; the stack begins inside the last frame of one of them. None: it begins with its thread.

    Returns:
        None: the thread computes nothing.
    """
    frames: list[tuple[CodeType, int]] = []
    is_inside = boundary is None
    while frame is not None and len(frames) < _MOST_FRAMES:
        code = frame.f_code
        if boundary is not None and code.co_filename in boundary:
            is_inside = True
            break
        frames.append((code, frame.f_lineno or 0))
        frame = frame.f_back
    frames.reverse()
    if not (is_inside and frames):
        return None
    inner = list(itertools.dropwhile(lambda pair: _is_outer(pair[0].co_filename), frames))
    if not inner and boundary is None:
        return None  # a thread that waits for work
    return tuple(Frame(code.co_filename, code.co_name, line) for code, line in inner or frames)


def _is_outer(file: str) -> bool:
    return file.startswith(PACKAGE) or file.endswith(_THREAD_FILES)


_THREAD_FILES = (f"{os.sep}threading.py", f"{os.sep}concurrent{os.sep}futures{os.sep}thread.py")
