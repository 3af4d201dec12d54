"""Where things lie in the slots of a source: computed once for each shape of its batches.

The main process makes a `SlotLayout`; workers read the same numbers from a slot's header.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import (
    DESCRIPTOR_WORDS,
    DTYPES,
    HEADER_WORDS,
    UNKNOWN,
    WORD_BYTES,
    Header,
    Word,
    align,
)

#: A batch is cut into a few tasks for each worker, so that the slow and the fast ones even out, but into no more than the
#: pipes and the main process can take: each costs a report, and each report may wake the main process.
TASKS_PER_WORKER = 2
MOST_TASKS = 32

_numbers = itertools.count(1)


def task_size(batch_size: int, num_workers: int, tasks_per_worker: int = TASKS_PER_WORKER) -> int:
    """How many samples make a task. Without workers, all."""
    return -(-batch_size // max(1, min(tasks_per_worker * num_workers, MOST_TASKS)))


class OutputSchema(NamedTuple):
    """What is known of an output before its samples are there.

    Attributes:
        dtype: code of the element type in `DTYPES`, or UNKNOWN.
        ndim: number of dimensions, or UNKNOWN.
        shape: the shape that all samples are expected to have: they get rows. None: they go to regions.
    """

    dtype: int = UNKNOWN
    ndim: int = UNKNOWN
    shape: tuple[int, ...] | None = None

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize if self.shape is not None else 0


class SlotLayout:
    """The inner measures of a slot; offsets count from its start. None of them changes.

    Args:
        capacity: number of samples a batch may have.
        task_size: number of samples in a task.
        region_bytes: address space of the region of one task.
        outputs: what is expected of each output.
        request_bytes: room for what the main process sends along with a batch.

    Attributes:
        rows: offset of each output's rows; UNKNOWN for those without.
        resident_bytes: everything before the regions; memory is put behind it when the slot is made.
        slot_bytes: address space of the slot.
        sample_bytes: what the rows of a sample take.
        all_dense: whether every output has rows.
        dense_rows: of each output that has, their offset, the shape of one, and its dtype.
        header: the words of the header and of the descriptors that follow it, to be completed for each batch.
    """

    def __init__(
        self,
        capacity: int,
        task_size: int,
        region_bytes: int,
        outputs: tuple[OutputSchema, ...],
        request_bytes: int = 0,
    ) -> None:
        self.capacity = capacity
        self.task_size = task_size
        self.region_bytes = region_bytes
        self.outputs = outputs
        self.request_bytes = request_bytes
        num_tasks = self.num_tasks(capacity)
        self.marks_offset = (HEADER_WORDS + DESCRIPTOR_WORDS * len(outputs)) * WORD_BYTES
        request_end = self.request_offset + align(request_bytes, WORD_BYTES)
        self.descriptors_offset = align(request_end, DESCRIPTOR_WORDS * WORD_BYTES)
        end = self.descriptors_offset + capacity * len(outputs) * DESCRIPTOR_WORDS * WORD_BYTES
        rows = []
        for output in outputs:
            if output.shape is None:
                rows.append(UNKNOWN)
            else:
                rows.append(align(end))
                end = rows[-1] + capacity * output.row_bytes
        self.rows = tuple(rows)
        self.resident_bytes = align(end)
        self.slot_bytes = self.resident_bytes + num_tasks * region_bytes
        self.sample_bytes = sum(output.row_bytes for output in outputs)
        self.all_dense = UNKNOWN not in rows
        self.dense_rows = [
            (offset, output.shape, DTYPES[output.dtype])
            for offset, output in zip(rows, outputs, strict=True)
            if output.shape is not None
        ]
        self.header = self._make_header()

    def num_tasks(self, batch_size: int) -> int:
        """How many tasks a batch of `batch_size` samples has."""
        return -(-batch_size // self.task_size)

    @property
    def counts_offset(self) -> int:
        """Where the counts begin."""
        return self.marks_offset + self.num_tasks(self.capacity) * WORD_BYTES

    @property
    def request_offset(self) -> int:
        """Where the request begins."""
        return self.marks_offset + 2 * self.num_tasks(self.capacity) * WORD_BYTES

    def region_offset(self, task: int) -> int:
        """Where the region of a task begins."""
        return self.resident_bytes + task * self.region_bytes

    def _make_header(self) -> NDArray[np.int64]:
        words = np.zeros(HEADER_WORDS + DESCRIPTOR_WORDS * len(self.outputs), np.int64)
        words[Header.GEOMETRY] = next(_numbers)
        words[Header.CAPACITY] = self.capacity
        words[Header.TASK_SIZE] = self.task_size
        words[Header.NUM_OUTPUTS] = len(self.outputs)
        words[Header.MARKS_OFFSET] = self.marks_offset
        words[Header.DESCRIPTORS_OFFSET] = self.descriptors_offset
        words[Header.REGIONS_OFFSET] = self.resident_bytes
        words[Header.REGION_BYTES] = self.region_bytes
        words[Header.REQUEST_OFFSET] = self.request_offset
        table = words[HEADER_WORDS:].reshape(-1, DESCRIPTOR_WORDS)
        for row, output, offset in zip(table, self.outputs, self.rows, strict=True):
            row[Word.OFFSET] = offset
            row[Word.NBYTES] = output.row_bytes
            row[Word.DTYPE] = output.dtype
            row[Word.NDIM] = output.ndim
            if output.shape is not None:
                row[Word.SHAPE : Word.SHAPE + len(output.shape)] = output.shape
        return words


def describe_rows(
    descriptors: NDArray[np.int64], output: int, row: NDArray[np.int64] | list[int], start: int, stop: int
) -> None:
    """Write the descriptors of samples that lie in their rows.

    Args:
        descriptors: shape (samples, outputs, DESCRIPTOR_WORDS), changed in place.
        output: which output.
        row: the descriptor of that output in the header.
        start: first sample.
        stop: first sample after the last.
    """
    part = descriptors[start:stop, output]
    part[:] = row
    part[:, Word.OFFSET] += np.arange(start, stop) * row[Word.NBYTES]
