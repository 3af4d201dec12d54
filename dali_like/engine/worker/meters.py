"""The instrument around each task: durations for statistics and the tuner, and records for traces.

A worker has one `Meter` for each source. The meter begins and ends with each task and writes into memory of the shared space
that this worker alone writes. No message is sent, no worker waits, and the numbers survive the worker's death: its
replacement goes on counting. The main process reads at any time. A reader may see a task in one word and not yet in another.

A meter writes to three places:

- The *words* of the meter, always: how many tasks there were, and how long they and their calls took. Two readings of the
  clock a task tell how busy a worker is. They are written before the task is reported. The rest is written after that, by
  `Meter.note`, since the main process may wait for the report; readers of a meter wait for the rest. Single calls are
  measured where that is cheap: in all tasks whose calls take `_SLOW_NS` or more on average, else in one of `MEASURED_EVERY`.
  Such a task then counts for all tasks since the last one. A call takes half a microsecond more in it, so that less than one
  per cent of the time is lost.
- The *task log*, while the main process traces: one record a task, in a ring; with operators behind the callback, also one
  for each of them, and then all tasks are measured call by call. The worker never waits for a reader: it overwrites records
  that were not read in time, and they are counted as lost. Without a trace, a task costs one look at one word.
- The worker's *cell*, if the number of workers is tuned (`CellMeter`): the time and the CPU time of its tasks.

Durations are counted in bins whose widths grow with them: four to each doubling, from 256 ns up to nine minutes.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import monotonic_ns, sleep, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.common.interrupts import deferred_interrupts
from dali_like.engine.memory.protocol import (
    CELL_BUSY,
    CELL_SQUARES,
    CELL_UNMEASURED,
    LOG_BYTES,
    LOG_HEADER_BYTES,
    LOG_RECORD_BYTES,
    LOG_RECORDS,
    METER_WORDS,
    PAGE_BYTES,
    WORD_BYTES,
    Header,
    Status,
    cell_offset,
    log_offset,
    meter_offset,
)
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.neighbors import NUM_WORDS as NUM_NEIGHBOR_WORDS
from dali_like.engine.worker.neighbors import NeighborCounts, count_neighbors, counts_of
from dali_like.types import BatchInfo, SampleInfo

if TYPE_CHECKING:
    from dali_like.engine.worker.sampling import StackSampler

#: If calls take this long on average, all are measured. Measuring one takes half a microsecond.
_SLOW_NS = 200_000
#: Otherwise one task in this many is measured call by call, and more of the first tasks. A prime, since tasks come in
#: patterns.
MEASURED_EVERY = 251

#: The words of a meter. The first three are written together after each task.
_TASKS, _BUSY_NS, _SINCE_NS = range(3)
#: Instead of the begin of a task: the task has ended, and `note` is to come. Readers wait at most this long for it.
_NOTING, _NOTING_NS = -1, 50_000_000
#: Sums over the tasks that were measured call by call, weighted by the tasks that each counts for: the time of the tasks, of
#: the callback in them, and of the operators behind it, and the CPU time of the thread.
_TIMED_NS, _CALLBACK_NS, _OPERATORS_NS, _CPU_NS = range(3, 7)
#: When the meter was made, by `time.monotonic_ns`; and how long since then the thread was ready to run and had no CPU.
_MADE_NS, _DELAYED_NS = 7, 8
_SLOWEST = 9
_NUM_SLOWEST = 8
_SLOW_WORDS = 5
_BINS = _SLOWEST + _NUM_SLOWEST * _SLOW_WORDS
NUM_BINS = 128
#: Nanoseconds of each operator, weighted as the sums above. The last word has those of all further operators.
_OPERATORS = _BINS + NUM_BINS
NUM_OPERATORS = 64
#: Whether samples are cheaper next to their neighbors.
_NEIGHBORS = _OPERATORS + NUM_OPERATORS
assert _NEIGHBORS + NUM_NEIGHBOR_WORDS <= METER_WORDS

#: How often the kernel is asked for the delay of the thread, which takes some 20 us.
ASK_EVERY_NS = 50_000_000

#: A shorter task is not measured for the tuner if the tuner can do without: that would cost a noticeable part of it.
_QUICK_NS = 1_000_000

_pack_task = struct.Struct("=3q").pack_into

#: Bins are quarters of an octave; the first bin holds all shorter durations.
_FIRST_BITS, _QUARTERS = 9, 4

# Durations


def edges_ns() -> NDArray[np.int64]:
    """Return the edges of the bins: one more than there are bins."""
    octaves, quarters = np.divmod(np.arange(NUM_BINS), _QUARTERS)
    return np.concatenate(([0], (_QUARTERS + quarters) << (octaves + _FIRST_BITS - 3)))


#: Where all bins but the first begin.
BEGINS_NS: list[int] = edges_ns()[1:-1].tolist()


def bin_of(ns: int) -> int:
    """Return the bin of a duration. The last bin holds all longer durations, too."""
    return bisect_right(BEGINS_NS, ns)


class Recorder:
    """Counts durations in one thread. Any thread may read.

    Attributes:
        counts: by bin.
        total_ns: the sum of the durations.
    """

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * NUM_BINS
        self.total_ns = 0

    def add(self, ns: int) -> None:
        """Count a duration."""
        self.counts[bisect_right(BEGINS_NS, ns)] += 1  # `bin_of`, without a call
        self.total_ns += ns


class SlowCall(NamedTuple):
    """A call of a callback that took long.

    Attributes:
        duration_ns: how long the call took.
        sample: the sample, as the callback knows it: ``idx_in_epoch``, or the index in the dataset; -1 if the keys of the
            dataset are not integers.
        num_samples: 1; or the number of samples, from `sample` on, that were computed by this call, or among which it was.
        epoch: the epoch of the sample. In loaders, epochs are counted from the start of the workers.
        iteration: the iteration of the sample.
    """

    duration_ns: int
    sample: int
    num_samples: int
    epoch: int
    iteration: int


# The worker's side


class Stopwatch:
    """Measures the calls of one task.

    Attributes:
        outer: the duration and the argument of each call.
        inner: the same for the user's callback, if operators run behind it.
        operators: nanoseconds of each operator behind the callback.
        cpu_ns: the CPU time of the thread at the begin of the task; after its end, the CPU time of the task.
    """

    __slots__ = ("cpu_ns", "inner", "operators", "outer")

    def __init__(self) -> None:
        self.cpu_ns = thread_time_ns()
        self.outer: list[tuple[int, Any]] = []
        self.inner: list[tuple[int, Any]] = []
        self.operators: list[int] = []

    def timed(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a callback whose calls are measured."""
        return _timed(callback, self.outer)

    def note_together(self, begin_ns: int, arguments: Sequence[Any]) -> None:
        """Note samples that were computed together from `begin_ns` until now: each took the same share."""
        share_ns = (monotonic_ns() - begin_ns) // len(arguments)
        self.outer.extend((share_ns, argument) for argument in arguments)

    def timed_within(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a callback whose calls are measured, and which another measured callback calls."""
        return _timed(callback, self.inner)

    def operator_times(self, count: int) -> list[int]:
        """Return the nanoseconds of each of `count` operators, to add to."""
        if not self.operators:
            self.operators = [0] * count
        return self.operators

    def timed_coroutine(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a coroutine function whose calls are measured. Others may run while one waits."""

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
        epoch, iteration: of the batch.
        first: idx_in_epoch of the first sample; -1 for request sources.
        num_samples: the number of samples.
        batch_size: samples in its batch; 0 where nothing depends on it.
    """

    epoch: int
    iteration: int
    first: int
    num_samples: int
    batch_size: int = 0

    def span(self) -> Interval:
        """Return itself: code that computes samples without a slot measures them by their interval."""
        return self


class MeasuredTask(Protocol):
    """A task as its meter sees it. With a task log, it is a `dali_like.engine.worker.task.Task`."""

    def span(self) -> Interval:
        """Return the samples of the task."""


class Meter:
    """Measures the tasks of one source in one worker or thread: `begin`, `end`, `note`, `begin`, and so on.

    Args:
        words: METER_WORDS signed words to write to; default: memory of its own.
        log: where to leave records while they are wanted; default: nowhere.
    """

    def __init__(self, words: memoryview | None = None, log: TaskLog | None = None) -> None:
        self.words = words = memoryview(bytearray(METER_WORDS * WORD_BYTES)).cast("q") if words is None else words
        self._log = log
        self._is_traced: Sequence[int] = (0,) if log is None else log.words
        self._tasks, self._busy_ns = words[_TASKS], words[_BUSY_NS]
        self._slowest = _slowest(words[_SLOWEST:_BINS].tolist())
        self._least_ns = self._slowest[-1].duration_ns if len(self._slowest) == _NUM_SLOWEST else 0
        self._begin_ns = 0
        self._unnoted: tuple[Stopwatch | None, int, MeasuredTask] | None = None
        self._untimed = 0  # tasks since the last one that was measured call by call
        self._most_untimed = 0  # the first task is measured call by call
        self._calls = 1  # in such a task
        self._has_operators = False
        self._mean_ns = 0
        self._slow_task_ns = _SLOW_NS
        self._asked_ns = 0  # when the kernel was asked last for the delay, and its answer
        self._delayed_ns = -1
        words[_SINCE_NS] = 0
        words[_MADE_NS] = words[_MADE_NS] or monotonic_ns()

    def begin(self) -> Stopwatch | None:
        """Begin a task. Return a stopwatch if its calls are to be measured."""
        self._begin_ns = self.words[_SINCE_NS] = monotonic_ns()
        if self._untimed < self._most_untimed and not (self._has_operators and self._is_traced[0]):  # as in `next_watch`
            self._untimed += 1
            return None
        return Stopwatch()

    def next_watch(self) -> Stopwatch | None:
        """Return a stopwatch if the calls of the next task are to be measured, for a later `begin_with`."""
        if self._untimed < self._most_untimed and not (self._has_operators and self._is_traced[0]):
            self._untimed += 1
            return None
        return Stopwatch()

    def begin_with(self, watch: Stopwatch | None) -> None:
        """Begin a task that `next_watch` gave `watch` for."""
        self._begin_ns = self.words[_SINCE_NS] = monotonic_ns()
        if watch is not None:
            watch.cpu_ns = thread_time_ns()

    def close(self) -> None:
        """End the profile of the worker, if there is one."""
        if self._log is not None:
            self._log.end_profile()

    def end(self, watch: Stopwatch | None, task: MeasuredTask, outcome: tuple[Status, int] | None = None) -> bool:
        """End the task that `begin` returned `watch` for. Return whether there is more to `note`.

        Args:
            outcome: the status of the task and its value. None: leave no record, as after an interrupt.
        """
        elapsed_ns = monotonic_ns() - self._begin_ns
        self._tasks = tasks = self._tasks + 1
        self._busy_ns = busy_ns = self._busy_ns + elapsed_ns
        if self._is_traced[0] and outcome is not None:
            self._write_records(task, outcome[0], watch)
        if watch is None and elapsed_ns < self._slow_task_ns:
            _pack_task(self.words, 0, tasks, busy_ns, 0)
            return False
        if watch is not None:
            watch.cpu_ns = thread_time_ns() - watch.cpu_ns
        self._unnoted = watch, elapsed_ns, task
        _pack_task(self.words, 0, tasks, busy_ns, _NOTING)
        return True

    def _write_records(self, task: Any, status: Status, watch: Stopwatch | None) -> None:
        """Write the record of a task. If operators were measured in it, also write those of its parts, one after another."""
        assert self._log is not None
        wanted = self._log.words[_WANTED]
        if wanted > RECORDS_WANTED:
            self._log.profile()
        if not wanted & RECORDS_WANTED:
            return
        end_ns, pid, begin_ns = monotonic_ns(), threading.get_native_id(), self._begin_ns
        self._log.write(task.words, task.number, begin_ns, end_ns, status, pid)
        if watch is not None and watch.operators:
            callback_ns = sum(ns for ns, _ in watch.inner)
            for part, took_ns in enumerate((callback_ns, *watch.operators), CALLBACK_PART):
                if took_ns:
                    self._log.write(task.words, task.number, begin_ns, begin_ns + took_ns, status, pid, part)
                    begin_ns += took_ns

    def skip(self, words: Sequence[int], number: int) -> None:
        """Record a task of a cancelled batch, given the header of the slot and the number of the task."""
        if self._is_traced[0] & RECORDS_WANTED and self._log is not None:
            now_ns = monotonic_ns()
            self._log.write(words, number, now_ns, now_ns, Status.SKIPPED, threading.get_native_id())

    def note(self) -> None:
        """Write the rest about the task that has ended, if there is more. This may wait for the task's report."""
        if self._unnoted is None:
            return
        (watch, elapsed_ns, task), self._unnoted = self._unnoted, None
        samples = task.span()
        if watch is not None:
            self._note_calls(watch, elapsed_ns, samples)
        else:
            self._most_untimed = 0
            self._note_slow(elapsed_ns - (self._calls - 1) * self._mean_ns, samples.first, samples)
        self.words[_SINCE_NS] = 0

    @property
    def reading(self) -> Reading:
        """A copy of the numbers."""
        return Reading(np.array(self.words))

    def merge(self, words: bytes) -> None:
        """Add the numbers that another meter has counted since they were taken last."""
        mine = np.asarray(self.words)
        both = merged(mine, np.frombuffer(words, np.int64))
        both[_MADE_NS] = mine[_MADE_NS]  # clocks differ between machines
        mine[:] = both

    def take(self) -> bytes:
        """Return the words, and start counting from zero."""
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
        if self._begin_ns - self._asked_ns >= ASK_EVERY_NS:
            self._note_delay()
        if watch.operators:
            self._has_operators = True
            words[_OPERATORS_NS] += sum(watch.operators) * weight
            for i, ns in enumerate(watch.operators):
                words[_OPERATORS + min(i, NUM_OPERATORS - 1)] += ns * weight
        if calls and self._tasks > 1:  # the first task imports modules, and all of its pages are new
            is_whole = span.num_samples == span.batch_size
            count_neighbors(words, _NEIGHBORS, [ns for ns, _ in calls], is_whole=is_whole)
        if calls:
            self._calls, self._mean_ns = len(calls), total_ns // len(calls)
            self._slow_task_ns = len(calls) * _SLOW_NS
            is_slow = self._mean_ns >= _SLOW_NS
            self._most_untimed = 0 if is_slow else min(2 * self._most_untimed + 1, MEASURED_EVERY - 1)
        if most_ns > self._least_ns:
            for ns, called_with in calls:
                if ns > self._least_ns:
                    self._note_slow(ns, called_with, span if len(calls) == 1 else span._replace(num_samples=1))

    def _note_delay(self) -> None:
        self._asked_ns = self._begin_ns
        before, self._delayed_ns = self._delayed_ns, delayed_ns()
        if before >= 0:  # the first answer covers the time before this meter
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


class TaskTimes:
    """The time and CPU time of a worker's tasks, in its cell, for the tuner.

    Attributes:
        is_quick: whether the last measured task took little time.
        is_unmeasured: a word of the cell: whether the tuner can do without quick tasks.
    """

    def __init__(self, space: SharedSpace, worker: int) -> None:
        cell = memoryview(space.map)[cell_offset(worker) :]
        self._sums = cell[CELL_BUSY:CELL_SQUARES].cast("q")
        self._squares = cell[CELL_SQUARES:][: 2 * WORD_BYTES].cast("d")
        self.is_unmeasured = cell[CELL_UNMEASURED:][:WORD_BYTES].cast("q")
        self.is_quick = False

    def add(self, took_ns: int, computed_ns: int) -> None:
        """Add the time and CPU time of a task."""
        self._sums[0] += took_ns
        self._sums[1] += computed_ns
        self._sums[2] += 1
        self._squares[0] += (took_ns / 1e9) ** 2
        self._squares[1] += (computed_ns / 1e9) ** 2
        self.is_quick = took_ns < _QUICK_NS


class CellMeter(Meter):
    """A meter that also writes to the cell of its worker, for the tuner."""

    def __init__(self, words: memoryview, log: TaskLog, times: TaskTimes) -> None:
        super().__init__(words, log)
        self._times = times
        self._cpu_ns: int | None = None

    def begin(self) -> Stopwatch | None:
        self._begin_cpu()
        return Meter.begin(self)  # not by super(), which takes longer

    def begin_with(self, watch: Stopwatch | None) -> None:
        self._begin_cpu()
        Meter.begin_with(self, watch)

    def _begin_cpu(self) -> None:
        times = self._times
        self._cpu_ns = None if times.is_quick and times.is_unmeasured[0] else thread_time_ns()

    def end(self, watch: Stopwatch | None, task: MeasuredTask, outcome: tuple[Status, int] | None = None) -> bool:
        if self._cpu_ns is not None:
            self._times.add(monotonic_ns() - self._begin_ns, thread_time_ns() - self._cpu_ns)
        return Meter.end(self, watch, task, outcome)


def worker_meters(space: SharedSpace, *, num_sources: int, worker: int, num_workers: int, is_tuned: bool) -> list[Meter]:
    """Return the meters of a worker, by source. Only this worker may have them.

    Args:
        is_tuned: whether a tuner reads the worker's cell.
    """
    log = TaskLog(space, worker, num_workers)
    if log.words[_WANTED] > RECORDS_WANTED:
        log.profile()
    words = [_words_of(space, source, worker, num_workers) for source in range(num_sources)]
    if not is_tuned:
        return [Meter(of_source, log) for of_source in words]
    times = TaskTimes(space, worker)
    return [CellMeter(of_source, log, times) for of_source in words]


def meter_of(space: SharedSpace, source: int, worker: int, num_workers: int) -> Meter:
    """Return the meter of a worker that runs elsewhere. Only one process may have it."""
    return Meter(_words_of(space, source, worker, num_workers))


def _words_of(space: SharedSpace, source: int, worker: int, num_workers: int) -> memoryview:
    start = meter_offset(source, worker, num_workers)
    return memoryview(space.map)[start : start + METER_WORDS * WORD_BYTES].cast("q")


def delayed_ns() -> int:
    """Return how long this thread was ready to run and had no CPU (proc(5), schedstat); 0 if the kernel does not tell."""
    try:
        with deferred_interrupts(), open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(PAGE_BYTES).split()[1])
    except (OSError, IndexError):
        return 0


def _index_of(called_with: Any, span: Interval) -> int:
    """Return the index of a sample, given the argument of the callback."""
    if isinstance(called_with, SampleInfo):
        return called_with.idx_in_epoch
    if isinstance(called_with, BatchInfo):
        return span.first
    return int(called_with) if isinstance(called_with, (int, np.integer)) else -1


def _slowest(words: Sequence[int]) -> list[SlowCall]:
    calls = [SlowCall(*words[i : i + _SLOW_WORDS]) for i in range(0, len(words), _SLOW_WORDS)]
    return [call for call in calls if call.duration_ns]


#: The words of a log's header: the measurements that the program wants, and the number of records.
_WANTED, _WRITTEN = 0, 1
#: The lowest bit of the first word. The others are the number of a profile; see `dali_like.engine.worker.profiles`.
RECORDS_WANTED = 1


#: `TaskRecord.part` of a whole task, of the callback in it, and of the first operator behind the callback.
WHOLE_TASK, CALLBACK_PART, FIRST_OPERATOR_PART = range(3)


class TaskRecord(NamedTuple):
    """A task that a worker has computed, or a part of it: all calls of the callback or of one operator, put together.

    Attributes:
        number: of the record, from 1 on. The worker writes it last: a record with the right number is complete.
        begin_ns, end_ns: by CLOCK_MONOTONIC.
        iteration, epoch: of the batch.
        first_sample: idx_in_epoch of the first sample.
        num_samples: the number of samples in the task.
        source: the number of the source in its pool.
        status: see `Status`.
        pid: the id of the worker's process, or thread.
        part: WHOLE_TASK; or CALLBACK_PART; or FIRST_OPERATOR_PART plus the number of an operator. Parts follow their task,
            from its begin on, one after another; in fact, each sample passes through all of them.
    """

    number: int
    begin_ns: int
    end_ns: int
    iteration: int
    epoch: int
    first_sample: int
    num_samples: int
    source: int
    status: int
    pid: int
    part: int


_BODY = struct.Struct("=qqqqqihhii")
_NUMBER = struct.Struct("=q")
_RECORD = np.dtype(
    {
        "names": TaskRecord._fields,
        "formats": ["i8", "i8", "i8", "i8", "i8", "i8", "i4", "i2", "i2", "i4", "i4"],
        "itemsize": LOG_RECORD_BYTES,
    }
)


class TaskLog:
    """The log of one worker, as the worker sees it.

    Attributes:
        words: its header. The first word says what is wanted.
        sampler: samples the stacks of the worker, while a profile is wanted.
    """

    def __init__(self, space: SharedSpace, worker: int, num_workers: int) -> None:
        begin = log_offset(worker, num_workers)
        self._space, self._worker, self._num_workers = space, worker, num_workers
        self.sampler: StackSampler | None = None
        self._map = space.map
        self.words = memoryview(space.map)[begin : begin + LOG_HEADER_BYTES].cast("q")
        self._records = begin + LOG_HEADER_BYTES

    def profile(self) -> None:
        """Begin the profile that the main process wants, unless it has begun."""
        if self.sampler is None or not self.sampler.is_alive():
            from dali_like.engine.worker.profiles import begin_profile  # few programs want profiles

            self.sampler = begin_profile(self._space, self._worker, self._num_workers, self.words)

    def end_profile(self) -> None:
        """End the profile at the end of the worker."""
        if self.sampler is not None:
            self.sampler.stop()

    def write(
        self, header: Sequence[int], task: int, begin_ns: int, end_ns: int, status: int, pid: int, part: int = WHOLE_TASK
    ) -> None:
        """Write the record of a task, or of a part of it, given the header of its slot and its number in the batch."""
        start = task * header[Header.TASK_SIZE]
        number = self.words[_WRITTEN] + 1
        offset = self._records + number % LOG_RECORDS * LOG_RECORD_BYTES
        _BODY.pack_into(
            self._map,
            offset + _NUMBER.size,
            begin_ns,
            end_ns,
            header[Header.ITERATION],
            header[Header.EPOCH],
            header[Header.FIRST_SAMPLE] + start,
            min(header[Header.TASK_SIZE], header[Header.BATCH_SIZE] - start),
            header[Header.SOURCE],
            status,
            pid,
            part,
        )
        _NUMBER.pack_into(self._map, offset, number)
        self.words[_WRITTEN] = number


# The main process's side


class TaskLogs:
    """The logs of all workers that a pool may have, as the main process sees them. Records are wanted until `close`.

    Attributes:
        num_lost: the number of records that were overwritten before they were read.
    """

    def __init__(self, space: SharedSpace, num_workers: int) -> None:
        self.num_lost = 0
        self._space = space  # the memory is unmapped with it
        self._begin = log_offset(0, num_workers)
        self._num_wanted = 0
        logs = space.array(self._begin, (num_workers, LOG_BYTES), np.dtype(np.uint8))
        self._words = logs[:, :LOG_HEADER_BYTES].view(np.int64)
        self._records = logs[:, LOG_HEADER_BYTES:].view(_RECORD)
        self._read: list[int] = []

    def want(self, num_workers: int) -> None:
        """From now on, want the records of the first `num_workers` workers.

        Raises:
            OutOfMemoryError: there is no memory for them.
        """
        more = slice(self._num_wanted, num_workers)
        if more.start >= more.stop:
            return
        self._space.commit(self._begin + more.start * LOG_BYTES, (more.stop - more.start) * LOG_BYTES)
        self._read += self._words[more, _WRITTEN].tolist()
        self._words[more, _WANTED] |= RECORDS_WANTED
        self._num_wanted = num_workers

    def read(self) -> list[tuple[int, TaskRecord]]:
        """Return the new records, each with its worker, in the order of each worker."""
        made: list[tuple[int, TaskRecord]] = []
        for worker, written in enumerate(self._words[: self._num_wanted, _WRITTEN].tolist()):
            since = self._read[worker]
            if written > since:
                self._read[worker] = written
                made += [(worker, record) for record in self._copy(worker, since, written)]
        return made

    def _copy(self, worker: int, since: int, written: int) -> list[TaskRecord]:
        """Copy the records after number `since`, up to `written`. Records that are overwritten meanwhile are lost."""
        numbers = np.arange(max(since, written - LOG_RECORDS) + 1, written + 1)
        records = self._records[worker, numbers % LOG_RECORDS]
        now = int(self._words[worker, _WRITTEN])
        records = records[(numbers > now + 1 - LOG_RECORDS) & (records["number"] == numbers)]
        self.num_lost += written - since - len(records)
        return [TaskRecord(*record) for record in records.tolist()]

    def close(self) -> None:
        """Stop the workers from writing records."""
        self._words[: self._num_wanted, _WANTED] &= ~RECORDS_WANTED


def merged(some: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Merge the words of two meters."""
    both = some + others
    both[_SINCE_NS] = max(some[_SINCE_NS], others[_SINCE_NS])
    both[_MADE_NS] = min(some[_MADE_NS] or others[_MADE_NS], others[_MADE_NS] or some[_MADE_NS])
    both[_SLOWEST:_BINS] = 0
    slowest = _slowest(some[_SLOWEST:_BINS].tolist()) + _slowest(others[_SLOWEST:_BINS].tolist())
    flat = [word for call in sorted(slowest, reverse=True)[:_NUM_SLOWEST] for word in call]
    both[_SLOWEST : _SLOWEST + len(flat)] = flat
    return both


class Reading:
    """The numbers of a meter at one moment. Readings can be added.

    Attributes:
        words: all words.
        tasks: the number of tasks.
        busy_ns: the time of all tasks.
        since_ns: the begin of the task that runs; 0 if none runs.
        timed_ns, callback_ns, operators_ns, cpu_ns: the time of the tasks whose calls were measured, weighted by the tasks
            that each counts for; and of this time, the parts of the callback, the operators behind it, and the CPU.
        made_ns: when the meter was made; 0 if it has not been made.
        delayed_ns: how long the thread was ready to run and had no CPU.
        slowest: the longest calls.
        counts: the number of calls, by the bins of their durations.
        each_operator_ns: the parts of `operators_ns`.
    """

    def __init__(self, words: NDArray[np.int64] | None = None) -> None:
        self.words = words = np.zeros(METER_WORDS, np.int64) if words is None else words
        numbers: list[int] = words[:_SLOWEST].tolist()
        self.tasks, self.busy_ns, self.since_ns = numbers[_TASKS], numbers[_BUSY_NS], max(numbers[_SINCE_NS], 0)
        self.timed_ns, self.callback_ns, self.operators_ns, self.cpu_ns = numbers[_TIMED_NS:_MADE_NS]
        self.made_ns, self.delayed_ns = numbers[_MADE_NS:]
        self.slowest = _slowest(words[_SLOWEST:_BINS].tolist())
        self.counts: tuple[int, ...] = tuple(words[_BINS : _BINS + NUM_BINS].tolist())
        self.each_operator_ns: tuple[int, ...] = tuple(words[_OPERATORS : _OPERATORS + NUM_OPERATORS].tolist())

    def __add__(self, other: Reading) -> Reading:
        return Reading(merged(self.words, other.words))


def meter_words(space: SharedSpace, num_sources: int, num_workers: int) -> NDArray[np.int64]:
    """Return a view of all meters, by source, worker and word. The first two words are `Reading.tasks` and `busy_ns`."""
    return space.array(meter_offset(0, 0, num_workers), (num_sources, num_workers, METER_WORDS), np.dtype(np.int64))


def neighbor_counts(words: NDArray[np.int64]) -> tuple[NeighborCounts, NeighborCounts]:
    """Return the counts of `dali_like.engine.worker.neighbors` of all workers, given the words of their meters."""
    return counts_of(words[:, _NEIGHBORS : _NEIGHBORS + NUM_NEIGHBOR_WORDS].sum(axis=0).tolist())


def read_meters(space: SharedSpace, overdue: NDArray[np.int64], num_read: int) -> list[list[Reading]]:
    """Read the meters of the first `num_read` workers, by source and worker. Wait for meters that `note` is writing.

    Args:
        overdue: by source and worker, the task that a reader has waited for in vain. The worker may be stopped or dead, so
            nobody waits for this task again.
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
    """Return the seconds since a moment; 0 if it has not come."""
    return (monotonic_ns() - begin_ns) / 1e9 if begin_ns else 0.0


def first_made_ns(readings: Sequence[Sequence[Reading]]) -> int:
    """Return when the first worker was ready; 0 if none is."""
    return min((reading.made_ns for of_source in readings for reading in of_source if reading.made_ns), default=0)
