"""How long callbacks take: measured by whoever computes tasks, and read by the main process whenever it likes.

There is a *meter* for each worker and source: some words of shared memory that this worker alone writes. So nothing is sent,
no worker waits, and what it has measured survives its death; the one that takes its place goes on counting. Each word is
written at once, but not all of them together: a reader may see a task in one and not yet in another.

Two readings of the clock a task are all that it takes to know how busy a worker is. They are noted before the task is
reported, and all the rest after that, since somebody may wait for the report; who reads a meter waits for the rest. How long
each call of the callback takes is measured where that is cheap: in all tasks whose calls take `_SLOW_NS` or more on the
average, else in one task of `_EVERY`, which then counts for all since the last one. A call costs about half a microsecond
more in such a task, so that either way less than one per cent of the time is lost.

Durations are counted in bins whose widths grow with them: four to each doubling, from 256 ns up to nine minutes.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import monotonic_ns, sleep, thread_time_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.interrupts import deferred_interrupts
from dali_like.engine.memory.protocol import METER_WORDS, PAGE_BYTES, WORD_BYTES, meter_offset
from dali_like.engine.memory.space import SharedSpace
from dali_like.types import BatchInfo, SampleInfo

#: Calls that take as long on the average are all measured. Measuring one takes half a microsecond.
_SLOW_NS = 200_000
#: Of tasks with faster calls, one in so many is measured call by call, more of the first. A prime, since tasks come in
#: patterns.
_EVERY = 251

#: The words of a meter. The first three are written together after each task.
_TASKS, _BUSY_NS, _SINCE_NS = range(3)
#: In the place of when a task began: it has ended and is being noted. How long to wait for that.
_NOTING, _NOTING_NS = -1, 50_000_000
#: Of the tasks that were measured call by call, and of those that they count for: how long these took, and within them the
#: callback, the operators behind it, and the CPU time of the thread.
_TIMED_NS, _CALLBACK_NS, _OPERATORS_NS, _CPU_NS = range(3, 7)
#: When the meter was made, as `time.monotonic_ns` counts; and how long the thread has been ready to run since then, and had
#: no CPU.
_MADE_NS, _DELAYED_NS = 7, 8
_SLOWEST = 9
_NUM_SLOWEST = 8
_SLOW_WORDS = 5
_BINS = _SLOWEST + _NUM_SLOWEST * _SLOW_WORDS
NUM_BINS = 128
assert _BINS + NUM_BINS <= METER_WORDS

#: How often to ask the system for the latter, which takes some 20 us.
_ASK_EVERY_NS = 50_000_000

_pack_task = struct.Struct("=3q").pack_into

#: Bins are quarters of an octave; the first holds all that is shorter.
_FIRST_BITS, _QUARTERS = 9, 4


def edges_ns() -> NDArray[np.int64]:
    """Where the bins begin; one more than there are, since the last ends, too."""
    octaves, quarters = np.divmod(np.arange(NUM_BINS), _QUARTERS)
    return np.concatenate(([0], (_QUARTERS + quarters) << (octaves + _FIRST_BITS - 3)))


#: Where all bins but the first begin.
_BEGINS_NS: list[int] = edges_ns()[1:-1].tolist()


def bin_of(ns: int) -> int:
    """The bin that a duration is counted in; the last one for all that would be beyond it."""
    return bisect_right(_BEGINS_NS, ns)


class Recorder:
    """Counts durations, in one thread; any may read.

    Attributes:
        counts: by bin.
        total_ns: all together.
    """

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * NUM_BINS
        self.total_ns = 0

    def add(self, ns: int) -> None:
        """Count one."""
        self.counts[bin_of(ns)] += 1
        self.total_ns += ns


class SlowCall(NamedTuple):
    """A call of a callback that took long.

    Attributes:
        duration_ns: how long.
        sample: which one, as the callback is told it: ``idx_in_epoch``, or the index in the dataset; -1 where the dataset's
            keys are no integers.
        num_samples: 1; or so many, from `sample` on, that one call has made together, or of which one took so long.
        epoch: of the batch that the sample belongs to. Loaders count as epochs what their present workers do.
        iteration: of that batch.
    """

    duration_ns: int
    sample: int
    num_samples: int
    epoch: int
    iteration: int


class Stopwatch:
    """Measures the calls of one task.

    Attributes:
        outer: for each call how long it took, and with what it was called.
        inner: the same for the user's callback, where operators run behind it.
        cpu_ns: the CPU time of the thread when the task began; from its end on, that of the task.
    """

    __slots__ = ("cpu_ns", "inner", "outer")

    def __init__(self) -> None:
        self.cpu_ns = thread_time_ns()
        self.outer: list[tuple[int, Any]] = []
        self.inner: list[tuple[int, Any]] = []

    def timed(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A callback that is measured."""
        return _timed(callback, self.outer)

    def timed_within(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A callback that is measured, which another one that is measured calls."""
        return _timed(callback, self.inner)

    def timed_coroutine(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A coroutine function that is measured. Others may run while it waits."""

        async def call(info: Any) -> Any:
            begin = monotonic_ns()
            result = await callback(info)
            self.outer.append((monotonic_ns() - begin, info))
            return result

        return call


def _timed(callback: Callable[[Any], Any], calls: list[tuple[int, Any]]) -> Callable[[Any], Any]:
    append, clock = calls.append, monotonic_ns

    def call(info: Any) -> Any:
        begin = clock()
        result = callback(info)
        append((clock() - begin, info))
        return result

    return call


class Interval(NamedTuple):
    """The samples of a task.

    Attributes:
        epoch, iteration: of their batch.
        first: idx_in_epoch of the first; -1 where the source is told what to make.
        num_samples: how many there are.
    """

    epoch: int
    iteration: int
    first: int
    num_samples: int


class Meter:
    """Measures the tasks of one source, in one worker or thread: `begin`, `end`, `note`, `begin`, and so on.

    Args:
        words: where to write, METER_WORDS signed words; default: in memory of its own.
    """

    def __init__(self, words: memoryview | None = None) -> None:
        self.words = words = memoryview(bytearray(METER_WORDS * WORD_BYTES)).cast("q") if words is None else words
        self._tasks, self._busy_ns = words[_TASKS], words[_BUSY_NS]
        self._slowest = _slowest(words[_SLOWEST:_BINS].tolist())
        self._least_ns = self._slowest[-1].duration_ns if len(self._slowest) == _NUM_SLOWEST else 0
        self._begin_ns = 0
        self._unnoted: tuple[Stopwatch | None, int, Callable[[], Interval]] | None = None
        self._untimed = 0  # tasks since the last that was measured call by call
        self._most_untimed = 0  # of the first task nothing is known
        self._calls = 1  # in such a task
        self._mean_ns = 0
        self._slow_task_ns = _SLOW_NS
        self._asked_ns = 0  # when the system was asked last, and what it has said
        self._delayed_ns = -1
        words[_SINCE_NS] = 0
        words[_MADE_NS] = words[_MADE_NS] or monotonic_ns()

    def begin(self) -> Stopwatch | None:
        """A task begins; what is to measure its calls, if anything is."""
        self._begin_ns = self.words[_SINCE_NS] = monotonic_ns()
        if self._untimed < self._most_untimed:
            self._untimed += 1
            return None
        return Stopwatch()

    def end(self, watch: Stopwatch | None, span: Callable[[], Interval]) -> bool:
        """The task ends that `begin` has returned `watch` for; `span` tells its samples. Whether there is more to `note`."""
        elapsed_ns = monotonic_ns() - self._begin_ns
        self._tasks = tasks = self._tasks + 1
        self._busy_ns = busy_ns = self._busy_ns + elapsed_ns
        if watch is None and elapsed_ns < self._slow_task_ns:
            _pack_task(self.words, 0, tasks, busy_ns, 0)
            return False
        if watch is not None:
            watch.cpu_ns = thread_time_ns() - watch.cpu_ns
        self._unnoted = watch, elapsed_ns, span
        _pack_task(self.words, 0, tasks, busy_ns, _NOTING)
        return True

    def note(self) -> None:
        """Note what else has been measured of the task that has ended, if anything has: that may wait for its report."""
        if self._unnoted is None:
            return
        (watch, elapsed_ns, span), self._unnoted = self._unnoted, None
        samples = span()
        if watch is not None:
            self._note_calls(watch, elapsed_ns, samples)
        else:
            self._most_untimed = 0
            self._note_slow(elapsed_ns - (self._calls - 1) * self._mean_ns, samples.first, samples)
        self.words[_SINCE_NS] = 0

    @property
    def reading(self) -> Reading:
        """What it says."""
        return Reading(np.array(self.words))

    def merge(self, words: bytes) -> None:
        """Add what another meter has measured meanwhile."""
        mine = np.asarray(self.words)
        both = merged(mine, np.frombuffer(words, np.int64))
        both[_MADE_NS] = mine[_MADE_NS]  # other machines have other clocks
        mine[:] = both

    def take(self) -> bytes:
        """What has been measured since the last time."""
        taken = self.words.tobytes()
        np.asarray(self.words)[:] = 0
        self._tasks = self._busy_ns = self._least_ns = 0
        self._slowest = []
        return taken

    def _note_calls(self, watch: Stopwatch, elapsed_ns: int, span: Interval) -> None:
        calls = watch.inner or watch.outer
        weight, self._untimed = self._untimed + 1, 0
        words, total_ns, most_ns = self.words, 0, 0
        for ns, _ in calls:
            words[_BINS + bin_of(ns)] += weight
            total_ns += ns
            most_ns = ns if ns > most_ns else most_ns
        words[_TIMED_NS] += elapsed_ns * weight
        words[_CALLBACK_NS] += total_ns * weight
        words[_CPU_NS] += watch.cpu_ns * weight
        if self._begin_ns - self._asked_ns >= _ASK_EVERY_NS:
            self._note_delay()
        if watch.inner:
            words[_OPERATORS_NS] += (sum(ns for ns, _ in watch.outer) - total_ns) * weight
        if calls:
            self._calls, self._mean_ns = len(calls), total_ns // len(calls)
            self._slow_task_ns = len(calls) * _SLOW_NS
            is_slow = self._mean_ns >= _SLOW_NS
            self._most_untimed = 0 if is_slow else min(2 * self._most_untimed + 1, _EVERY - 1)
        if most_ns > self._least_ns:
            for ns, called_with in calls:
                if ns > self._least_ns:
                    self._note_slow(ns, called_with, span if len(calls) == 1 else span._replace(num_samples=1))

    def _note_delay(self) -> None:
        self._asked_ns = self._begin_ns
        before, self._delayed_ns = self._delayed_ns, delayed_ns()
        if before >= 0:  # else that was before the meter
            self.words[_DELAYED_NS] += self._delayed_ns - before

    def _note_slow(self, duration_ns: int, called_with: Any, span: Interval) -> None:
        if duration_ns <= self._least_ns:
            return
        call = SlowCall(duration_ns, _index_of(called_with, span), span.num_samples, span.epoch, span.iteration)
        self._slowest = sorted([*self._slowest, call], reverse=True)[:_NUM_SLOWEST]
        if len(self._slowest) == _NUM_SLOWEST:
            self._least_ns = self._slowest[-1].duration_ns
        flat = [word for slow in self._slowest for word in slow]
        np.asarray(self.words)[_SLOWEST : _SLOWEST + len(flat)] = flat


def delayed_ns() -> int:
    """How long this thread has been ready to run, and had no CPU (proc(5), schedstat); 0 where the system does not tell."""
    try:
        with deferred_interrupts(), open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(PAGE_BYTES).split()[1])
    except (OSError, IndexError):
        return 0


def _index_of(called_with: Any, span: Interval) -> int:
    """The index of a sample, given what the callback was called with."""
    if isinstance(called_with, SampleInfo):
        return called_with.idx_in_epoch
    if isinstance(called_with, BatchInfo):
        return span.first
    return int(called_with) if isinstance(called_with, (int, np.integer)) else -1


def _slowest(words: Sequence[int]) -> list[SlowCall]:
    calls = [SlowCall(*words[i : i + _SLOW_WORDS]) for i in range(0, len(words), _SLOW_WORDS)]
    return [call for call in calls if call.duration_ns]


def merged(some: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """The words of two meters as if they were of one, made when the first was."""
    both = some + others
    both[_SINCE_NS] = max(some[_SINCE_NS], others[_SINCE_NS])
    both[_MADE_NS] = min(some[_MADE_NS] or others[_MADE_NS], others[_MADE_NS] or some[_MADE_NS])
    both[_SLOWEST:_BINS] = 0
    slowest = _slowest(some[_SLOWEST:_BINS].tolist()) + _slowest(others[_SLOWEST:_BINS].tolist())
    flat = [word for call in sorted(slowest, reverse=True)[:_NUM_SLOWEST] for word in call]
    both[_SLOWEST : _SLOWEST + len(flat)] = flat
    return both


class Reading:
    """What a meter says.

    Attributes:
        words: all of it.
        tasks: how many have been computed.
        busy_ns: how long tasks took altogether.
        since_ns: when the task that is under way was begun; 0 if none is.
        timed_ns, callback_ns, operators_ns, cpu_ns: how long the tasks took whose calls were measured, or which these count
            for; and within these the callback, operators behind it, and the CPU.
        made_ns: when it was made; 0 if it has not been.
        delayed_ns: how long the thread was ready to run, and had no CPU.
        slowest: the calls that took longest.
        counts: how many calls took how long, by bin.
    """

    def __init__(self, words: NDArray[np.int64] | None = None) -> None:
        self.words = words = np.zeros(METER_WORDS, np.int64) if words is None else words
        numbers: list[int] = words[:_SLOWEST].tolist()
        self.tasks, self.busy_ns, self.since_ns = numbers[_TASKS], numbers[_BUSY_NS], max(numbers[_SINCE_NS], 0)
        self.timed_ns, self.callback_ns, self.operators_ns, self.cpu_ns = numbers[_TIMED_NS:_MADE_NS]
        self.made_ns, self.delayed_ns = numbers[_MADE_NS:]
        self.slowest = _slowest(words[_SLOWEST:_BINS].tolist())
        self.counts: tuple[int, ...] = tuple(words[_BINS : _BINS + NUM_BINS].tolist())

    def __add__(self, other: Reading) -> Reading:
        return Reading(merged(self.words, other.words))


def meter_of(space: SharedSpace, source: int, worker: int, num_workers: int) -> Meter:
    """The meter of a worker for one of the sources. Only that worker may have it."""
    start = meter_offset(source, worker, num_workers)
    return Meter(memoryview(space.map)[start : start + METER_WORDS * WORD_BYTES].cast("q"))


def meter_words(space: SharedSpace, num_sources: int, num_workers: int) -> NDArray[np.int64]:
    """What meters say, as it changes: by source, worker and word; the first two words are `Reading.tasks` and `busy_ns`."""
    return space.array(meter_offset(0, 0, num_workers), (num_sources, num_workers, METER_WORDS), np.dtype(np.int64))


def read_meters(space: SharedSpace, overdue: NDArray[np.int64], num_read: int) -> list[list[Reading]]:
    """What the first `num_read` workers have measured, by source and worker.

    `overdue` keeps, likewise, which tasks have been waited for in vain: their workers may be stopped, or dead.
    """
    words, overdue = meter_words(space, *overdue.shape)[:, :num_read], overdue[:, :num_read]
    until_ns = monotonic_ns() + _NOTING_NS
    while ((words[..., _SINCE_NS] == _NOTING) & (words[..., _TASKS] != overdue)).any():
        if monotonic_ns() >= until_ns:
            overdue[...] = words[..., _TASKS]
            break
        sleep(1e-4)
    return [[Reading(meter.copy()) for meter in meters] for meters in words]


def seconds_since(begin_ns: int) -> float:
    """How long ago something was; 0 if it has not been."""
    return (monotonic_ns() - begin_ns) / 1e9 if begin_ns else 0.0


def first_made_ns(readings: Sequence[Sequence[Reading]]) -> int:
    """When the first of some workers was ready; 0 if none is."""
    return min((reading.made_ns for of_source in readings for reading in of_source if reading.made_ns), default=0)
