"""What workers have computed and when, for a trace: records in shared memory.

Each worker has a log of its own behind the cells and messages: a header and a ring of records, one a task. It alone writes
there, and never waits: a record that nobody has read in time is overwritten, and counted as lost. The main process says by
one word of the header whether records are wanted, and reads them when it is convenient. While they are not wanted, a task
costs a worker one look at that word.

A record says all that there is to know of its task, so that nobody has to remember which batch it was of.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dali_like.engine.memory.protocol import (
    HEADER_WORDS,
    LOG_BYTES,
    LOG_HEADER_BYTES,
    LOG_RECORD_BYTES,
    LOG_RECORDS,
    PAGE_BYTES,
    Header,
    Status,
    log_offset,
)
from dali_like.engine.memory.space import SharedSpace

_HEADER = struct.Struct(f"={HEADER_WORDS}q")
#: The words of a log's header: whether records are wanted, and how many have been written.
_WANTED, _WRITTEN = 0, 1


class TaskRecord(NamedTuple):
    """A task that a worker has computed.

    Attributes:
        number: of the record, from 1 on; written last, so that a record is whole if its number is what it should be.
        begin_ns, end_ns: when, in nanoseconds of CLOCK_MONOTONIC.
        iteration, epoch: of its batch.
        first_sample: idx_in_epoch of its first sample.
        num_samples: how many samples it was to make.
        source: by number in its pool.
        status: how it ended, see `Status`.
        pid: of the worker's process, or thread.
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


_BODY = struct.Struct("=qqqqqihhi")
_NUMBER = struct.Struct("=q")
_RECORD = np.dtype(
    {
        "names": TaskRecord._fields,
        "formats": ["i8", "i8", "i8", "i8", "i8", "i8", "i4", "i2", "i2", "i4"],
        "itemsize": LOG_RECORD_BYTES,
    }
)


class TaskLog:
    """The log of one worker, as that worker sees it.

    Attributes:
        words: of its header; the first says whether records are wanted.
    """

    def __init__(self, space: SharedSpace, worker: int, num_workers: int) -> None:
        begin = log_offset(worker, num_workers)
        self._map = space.map
        self.words = memoryview(space.map)[begin : begin + LOG_HEADER_BYTES].cast("q")
        self._records = begin + LOG_HEADER_BYTES

    def run(self, run: Callable[[int, int], tuple[Status, int]], page: int, task: int) -> tuple[Status, int]:
        """Let a task be computed, and leave a record of it."""
        begin_ns = time.monotonic_ns()
        status, value = run(page, task)
        self.write(page, task, begin_ns, status, threading.get_native_id())
        return status, value

    def write(self, page: int, task: int, begin_ns: int, status: int, pid: int) -> None:
        """Leave a record of a task that ends now, and that a process or thread has computed."""
        end_ns = time.monotonic_ns()
        words = _HEADER.unpack_from(self._map, page * PAGE_BYTES)
        start = task * words[Header.TASK_SIZE]
        number = self.words[_WRITTEN] + 1
        offset = self._records + number % LOG_RECORDS * LOG_RECORD_BYTES
        _BODY.pack_into(
            self._map,
            offset + _NUMBER.size,
            begin_ns,
            end_ns,
            words[Header.ITERATION],
            words[Header.EPOCH],
            words[Header.FIRST_SAMPLE] + start,
            min(words[Header.TASK_SIZE], words[Header.BATCH_SIZE] - start),
            words[Header.SOURCE],
            status,
            pid,
        )
        _NUMBER.pack_into(self._map, offset, number)
        self.words[_WRITTEN] = number


class TaskLogs:
    """The logs of all workers that a pool may have, as the main process sees them. Records are wanted until `close`.

    Attributes:
        num_lost: how many records have been overwritten before they were read.
    """

    def __init__(self, space: SharedSpace, num_workers: int) -> None:
        self.num_lost = 0
        self._space = space  # which takes its memory along when it is dropped
        self._begin = log_offset(0, num_workers)
        self._num_wanted = 0
        logs = space.array(self._begin, (num_workers, LOG_BYTES), np.dtype(np.uint8))
        self._words = logs[:, :LOG_HEADER_BYTES].view(np.int64)
        self._records = logs[:, LOG_HEADER_BYTES:].view(_RECORD)
        self._read: list[int] = []

    def want(self, num_workers: int) -> None:
        """Want the records of so many workers, the first ones, from now on.

        Raises:
            OutOfMemoryError: there is no memory for them.
        """
        more = slice(self._num_wanted, num_workers)
        if more.start >= more.stop:
            return
        self._space.commit(self._begin + more.start * LOG_BYTES, (more.stop - more.start) * LOG_BYTES)
        self._read += self._words[more, _WRITTEN].tolist()
        self._words[more, _WANTED] = 1
        self._num_wanted = num_workers

    def read(self) -> list[tuple[int, TaskRecord]]:
        """The records that have come since the last time, each with its worker, in the order of each worker."""
        made: list[tuple[int, TaskRecord]] = []
        for worker, written in enumerate(self._words[: self._num_wanted, _WRITTEN].tolist()):
            since = self._read[worker]
            if written > since:
                self._read[worker] = written
                made += [(worker, record) for record in self._copy(worker, since, written)]
        return made

    def _copy(self, worker: int, since: int, written: int) -> list[TaskRecord]:
        """The records behind number `since`, up to number `written`; those that are overwritten meanwhile are lost, too."""
        numbers = np.arange(max(since, written - LOG_RECORDS) + 1, written + 1)
        records = self._records[worker, numbers % LOG_RECORDS]
        now = int(self._words[worker, _WRITTEN])
        records = records[(numbers > now + 1 - LOG_RECORDS) & (records["number"] == numbers)]
        self.num_lost += written - since - len(records)
        return [TaskRecord(*record) for record in records.tolist()]

    def close(self) -> None:
        """No more records are wanted."""
        self._words[: self._num_wanted, _WANTED] = 0
