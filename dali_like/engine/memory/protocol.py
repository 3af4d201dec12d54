"""What passes between the main process and its workers: two kinds of records, and the shape of a slot.

Records go through kernel pipes, which write up to ``PIPE_BUF`` bytes atomically, so that any number of workers may share
one pipe without a lock. Everything larger lies in shared memory (`dali_like.engine.memory.space`)::

    control area     one cell of CELL_BYTES a worker: the task that it took last, and the sample that it is on
    notice           NOTICE_BYTES, written by the main process, for workers that start
    message areas    MESSAGE_BYTES a worker, for what it has to say before it can take a task
    logs             LOG_BYTES a worker, for what it has computed and when; see `dali_like.engine.worker.meters`
    meters           METER_WORDS words a source and worker, for how long callbacks take (`dali_like.engine.worker.meters`)
    slots            one batch of one source each; made by the main process, addressed by the page they start on

    a slot:   header       HEADER_WORDS words, then one descriptor an output: what the batch is, where its rows are
              marks        a word a task: how much of the task's region has memory behind it
              counts       a word a task: how many samples it has made, where that is not known beforehand
              request      what the main process sends along, for sources that want to be told what to make
              descriptors  one a sample and output, written by the worker for samples that are not in a row
              rows         for each dense output an array of shape (batch_size, *sample_shape)
              regions      one a task: large in address space, touched only as far as it is used

The header and the request are the main process's to write, and do not change while a task of the batch is on its way. The
marks, counts, descriptors, rows and region of a task belong to the one worker that has taken it. A worker may die at any
instruction: its cell names the task that has to be done again.
"""

from __future__ import annotations

import enum
import struct
from typing import Any

import numpy as np

PAGE_BYTES = 4096

#: Main process to workers: ticket of the batch, page that its slot starts on, number of the task in the batch.
TASK = struct.Struct("<QII")

#: Workers to the main process: ticket, task, worker, `Status`, and a value whose meaning depends on the status.
DONE = struct.Struct("<QIHHq")

#: A ticket that no batch has. A task with it wakes a worker without giving it work.
NO_TICKET = 0

CELL_BYTES = 128
#: Where in a worker's cell the index of its sample is, how many samples it has replaced, and how many items of iterables it
#: has skipped; the task record comes first.
CELL_SAMPLE = 16
CELL_REPLACED = 24
CELL_SKIPPED = 32
#: And where its process id is, for everybody who wants to know who the workers are.
CELL_PID = 40
#: Of workers that are measured: nanoseconds that their tasks have taken, of which on a CPU; how many tasks; and the sums of
#: the squares of the seconds that each has taken, and of those on a CPU, as floats.
CELL_BUSY = 48
CELL_CPU = 56
CELL_TASKS = 64
CELL_SQUARES = 72
CELL_CPU_SQUARES = 80
#: Whether quick tasks need not be measured now.
CELL_UNMEASURED = 88
MESSAGE_BYTES = 1 << 20
NOTICE_BYTES = PAGE_BYTES
METER_WORDS = 256
#: A worker's log of tasks, see `dali_like.engine.worker.meters`: a header, and a ring of records.
LOG_HEADER_BYTES = PAGE_BYTES
LOG_RECORD_BYTES = 64
LOG_RECORDS = 4096
LOG_BYTES = LOG_HEADER_BYTES + LOG_RECORDS * LOG_RECORD_BYTES


class Status(enum.IntEnum):
    """How a task ended; in brackets what the value of the record says."""

    DENSE = 0  #: every sample is in its row [0]
    DESCRIBED = 1  #: every sample has a descriptor [bytes used of the task's region]
    STOPPED = 2  #: the source raised StopIteration [index of the sample in the batch]
    FAILED = 3  #: an exception, pickled at the start of the task's region [index of the sample in the batch]
    TOO_LARGE = 4  #: the samples do not fit into the task's region [bytes that would have been needed so far]
    SKIPPED = 5  #: the batch was cancelled before the task began [0]
    NO_MEMORY = 6  #: there was no memory to put behind the task's region [bytes that were missing]


class Header(enum.IntEnum):
    """The words of a slot's header. The first of them, up to BATCH_SIZE, are written anew for each batch."""

    TICKET = 0
    CANCELLED = 1
    PROVISIONAL = 2  # what the header says of dtypes and dimensions is a guess, which samples need not follow
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
    GEOMETRY = 15
    REQUEST_OFFSET = 16
    REQUEST_BYTES = 17


HEADER_WORDS = 18


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

#: The element types that travel, by their code in a descriptor.
DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?")
)
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}

#: Samples in a region start at multiples of this, as DALI's do: enough for every vector instruction set.
SAMPLE_ALIGNMENT = 128


def align(nbytes: int, alignment: int = PAGE_BYTES) -> int:
    """`nbytes` rounded up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


def cell_offset(worker: int) -> int:
    """Where the cell of a worker lies."""
    return worker * CELL_BYTES


def notice_offset(num_workers: int) -> int:
    """Where the notice lies: its length in the first word, then its text."""
    return align(num_workers * CELL_BYTES)


def message_offset(worker: int, num_workers: int) -> int:
    """Where the message area of a worker lies."""
    return notice_offset(num_workers) + NOTICE_BYTES + worker * MESSAGE_BYTES


def log_offset(worker: int, num_workers: int) -> int:
    """Where the log of a worker lies."""
    return message_offset(num_workers, num_workers) + worker * LOG_BYTES


def meter_offset(source: int, worker: int, num_workers: int) -> int:
    """Where the meter of a worker for a source lies."""
    return log_offset(num_workers, num_workers) + (source * num_workers + worker) * METER_WORDS * WORD_BYTES


def control_bytes(num_workers: int, num_sources: int) -> int:
    """The size of all that comes before the slots."""
    return align(meter_offset(num_sources, 0, num_workers))
