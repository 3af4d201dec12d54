"""The protocol between the main process and its workers: two kinds of records, and the layout of shared memory.

Records go through kernel pipes. A pipe writes up to ``PIPE_BUF`` bytes atomically, so any number of workers may share one
without a lock. Larger data lie in shared memory (`dali_like.engine.memory.space`)::

    cells            CELL_BYTES for each worker: its last task, its current sample, counters
    start message    START_MESSAGE_BYTES, written by the main process before workers start
    message areas    MESSAGE_BYTES for each worker: the error of its start, and Python stacks
    logs             LOG_BYTES for each worker: computed tasks with times; see `dali_like.engine.worker.meters`
    profiles         PROFILE_BYTES for each worker: counts of stacks; see `dali_like.engine.worker.profiles`
    meters           METER_WORDS words for each source and worker: times of callbacks (`dali_like.engine.worker.meters`)
    slots            one batch of one source each; made by the main process, addressed by their first page

    a slot:   header       HEADER_WORDS words (the batch, offsets), then one descriptor for each output
              marks        one word for each task: bytes of its region that have memory behind them
              counts       one word for each task: its number of samples, if that is not known before
              request      bytes from the main process to a request source
              descriptors  one for each sample and output, written by the worker for samples outside of rows
              rows         an array of shape (batch_size, *sample_shape) for each dense output
              regions      one for each task: large in address space, and only its used part has memory

Each part has one writer, so there is no lock between processes. The main process writes header and request, and does not
change them while a task of the batch is open, except for CANCELLED. The worker that has taken a task writes its mark, count,
descriptors, rows and region. A worker may die at any instruction: its cell then names the task to compute again.
"""

from __future__ import annotations

import enum
import struct
from typing import Any

import numpy as np

PAGE_BYTES = 4096

#: Main process to workers: ticket of the batch, first page of its slot, number of the task in the batch.
TASK = struct.Struct("<QII")

#: Workers to the main process: ticket, task, worker, `Status`, and a value whose meaning depends on the status.
DONE = struct.Struct("<QIHHq")

#: A ticket that no batch has. A record with it tells a worker to stop.
NO_TICKET = 0
#: In place of a worker: the forkserver, or the thread that serves Ray actors. If it ends, all workers end with it.
FORKSERVER = -1

CELL_BYTES = 128
#: Offsets in a cell. The task record comes first, then the index of the current sample, the number of samples that
#: ``on_error`` has replaced, and the number of skipped items of iterables.
CELL_SAMPLE = 16
CELL_REPLACED = 24
CELL_SKIPPED = 32
#: The process id, or native thread id, of the worker; 0 until it is ready for tasks.
CELL_PID = 40
#: Measurements: total time of tasks and their CPU time, in nanoseconds; the number of tasks; and the sums of squares of the
#: tasks' times and CPU times in seconds, as floats.
CELL_BUSY = 48
CELL_CPU = 56
CELL_TASKS = 64
CELL_SQUARES = 72
CELL_CPU_SQUARES = 80
#: Flag of the main process: do not measure quick tasks now.
CELL_UNMEASURED = 88
#: The largest resident memory of a worker that has ended, in KiB. The forkserver writes it.
CELL_PEAK = 96
#: Written by the main process for a worker of a pool that shares a budget of CPU time: the CPU time that it may use, in
#: thousandths of the time; `UNLIMITED`; or `RESTING`, if it may take no task.
CELL_SHARE = 104
UNLIMITED = 0
RESTING = -1
MESSAGE_BYTES = 1 << 20
START_MESSAGE_BYTES = PAGE_BYTES
METER_WORDS = 256
#: A worker's log of tasks, see `dali_like.engine.worker.meters`: a header, and a ring of records.
LOG_HEADER_BYTES = PAGE_BYTES
LOG_RECORD_BYTES = 64
LOG_RECORDS = 4096
LOG_BYTES = LOG_HEADER_BYTES + LOG_RECORDS * LOG_RECORD_BYTES
#: A worker's profile, see `dali_like.engine.worker.profiles`. It has memory only while the program wants profiles.
PROFILE_BYTES = 1 << 20


class Status(enum.IntEnum):
    """How a task ended. The brackets name the value of the record."""

    DENSE = 0  #: every sample is in its row [0]
    DESCRIBED = 1  #: every sample has a descriptor [bytes used of the task's region]
    STOPPED = 2  #: the source raised StopIteration [index of the sample in the batch]
    FAILED = 3  #: an exception, pickled at the start of the task's region [index of the sample in the batch]
    TOO_LARGE = 4  #: the samples do not fit into the task's region [bytes needed so far]
    SKIPPED = 5  #: the batch was cancelled before the task began [0]
    NO_MEMORY = 6  #: there was no memory for the task's region [missing bytes]


class Header(enum.IntEnum):
    """The words of a slot's header. The words up to BATCH_SIZE are written for each batch."""

    TICKET = 0
    CANCELLED = 1
    PROVISIONAL = 2  # dtypes and dimensions in the header are a guess; samples may differ
    SOURCE = 3
    EPOCH = 4
    ITERATION = 5
    FIRST_SAMPLE = 6
    BATCH_SIZE = 7
    CAPACITY = 8
    TASK_SIZE = 9
    NUM_OUTPUTS = 10
    MARKS_OFFSET = 11
    DESCRIPTORS_OFFSET = 12
    REGIONS_OFFSET = 13
    REGION_BYTES = 14
    LAYOUT = 15
    REQUEST_OFFSET = 16
    REQUEST_BYTES = 17
    NEEDED_BYTES = 18  # written by tasks that lack memory: the estimated size of their region
    CACHE = 19  # identity of the first sample cache, 0 without one; the journal in its memory names the next one
    JOURNAL_PAGE = 20  # of that cache, for the batch; see `dali_like.engine.memory.sample_cache`


HEADER_WORDS = 21


class Word(enum.IntEnum):
    """The words of a descriptor. In a header, an unknown dtype or ndim is -1, and an output without rows has offset -1."""

    OFFSET = 0
    NBYTES = 1
    DTYPE = 2
    NDIM = 3
    SHAPE = 4


DESCRIPTOR_WORDS = 16
MAX_NDIM = DESCRIPTOR_WORDS - Word.SHAPE
UNKNOWN = -1
WORD_BYTES = 8

#: The element types of samples, by their code in a descriptor.
DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?")
)
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}

#: Samples in a region start at multiples of this, as DALI's do: enough for every vector instruction set.
SAMPLE_ALIGNMENT = 128


def align(nbytes: int, alignment: int = PAGE_BYTES) -> int:
    """Round `nbytes` up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


def cell_offset(worker: int) -> int:
    """Return the offset of a worker's cell."""
    return worker * CELL_BYTES


def start_message_offset(num_workers: int) -> int:
    """Return the offset of the start message: one word with its length, then its bytes."""
    return align(num_workers * CELL_BYTES)


def message_offset(worker: int, num_workers: int) -> int:
    """Return the offset of a worker's message area."""
    return start_message_offset(num_workers) + START_MESSAGE_BYTES + worker * MESSAGE_BYTES


def log_offset(worker: int, num_workers: int) -> int:
    """Return the offset of a worker's log."""
    return message_offset(num_workers, num_workers) + worker * LOG_BYTES


def profile_offset(worker: int, num_workers: int) -> int:
    """Return the offset of a worker's profile."""
    return log_offset(num_workers, num_workers) + worker * PROFILE_BYTES


def meter_offset(source: int, worker: int, num_workers: int) -> int:
    """Return the offset of a worker's meter for a source."""
    return profile_offset(num_workers, num_workers) + (source * num_workers + worker) * METER_WORDS * WORD_BYTES


def control_bytes(num_workers: int, num_sources: int) -> int:
    """Return the size of everything before the slots."""
    return align(meter_offset(num_sources, 0, num_workers))
