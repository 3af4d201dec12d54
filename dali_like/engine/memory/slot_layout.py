"""Offsets of the parts of a slot, computed once for each schema of a source's batches.

The main process makes a `SlotLayout`. Workers read the same numbers from a slot's header.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
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

#: A batch has a few tasks for each worker, so that slow and fast tasks even out. The maximum bounds the cost: each task
#: takes a report, and each report may wake the main process.
TASKS_PER_WORKER = 2
MOST_TASKS = 32

_numbers = itertools.count(1)


def task_size(batch_size: int, num_workers: int, tasks_per_worker: int = TASKS_PER_WORKER) -> int:
    """Return the number of samples in a task. Without workers, a task has all samples."""
    return -(-batch_size // max(1, min(tasks_per_worker * num_workers, MOST_TASKS)))


class OutputSchema(NamedTuple):
    """The expected schema of an output.

    Attributes:
        dtype: code of the element type in `DTYPES`, or UNKNOWN.
        ndim: number of dimensions, or UNKNOWN.
        shape: the expected shape of all samples, which then get rows; None: samples go to regions.
    """

    dtype: int = UNKNOWN
    ndim: int = UNKNOWN
    shape: tuple[int, ...] | None = None

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize if self.shape is not None else 0


class SlotLayout:
    """Layout of a slot. Immutable; offsets count from the start of the slot, in bytes.

    Args:
        capacity: maximum number of samples of a batch.
        task_size: number of samples in a task.
        region_bytes: address space of the region of one task.
        outputs: the schema of each output.
        request_bytes: room for the request of a batch.
        most_tasks: number of tasks that the marks have room for. Layouts that differ only in the size of tasks then have
            their rows at the same offsets.

    Attributes:
        marks_offset, request_offset: offsets of the marks and of the request.
        rows: offset of each output's rows; UNKNOWN without rows.
        resident_bytes: size of everything before the regions. It has memory from the creation of the slot on.
        slot_bytes: address space of the slot.
        sample_bytes: size of one sample's rows, all outputs together.
        all_dense: whether every output has rows.
        dense_rows: offset, shape and dtype of the rows of each output with rows.
        row_bytes: size of a row of each of these outputs.
        header: template of the header and of the outputs' descriptors; each batch fills in its words.
    """

    def __init__(
        self,
        capacity: int,
        task_size: int,
        region_bytes: int,
        outputs: tuple[OutputSchema, ...],
        request_bytes: int = 0,
        most_tasks: int = 0,
    ) -> None:
        self.capacity = capacity
        self.task_size = task_size
        self.region_bytes = region_bytes
        self.outputs = outputs
        self.request_bytes = request_bytes
        num_tasks = self.num_tasks(capacity)
        self.most_tasks = max(most_tasks, num_tasks)
        self.marks_offset = (HEADER_WORDS + DESCRIPTOR_WORDS * len(outputs)) * WORD_BYTES
        self.request_offset = self.marks_offset + 2 * self.most_tasks * WORD_BYTES
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
        self.row_bytes = [output.row_bytes for output in outputs if output.shape is not None]
        self.header = self._make_header()

    def has_rows_of(self, other: SlotLayout) -> bool:
        """Return whether the rows are those of another layout, at the same offsets."""
        return (self.outputs, self.rows, self.resident_bytes) == (other.outputs, other.rows, other.resident_bytes)

    def num_tasks(self, batch_size: int) -> int:
        """Return the number of tasks of a batch with `batch_size` samples."""
        return -(-batch_size // self.task_size)

    @property
    def counts_offset(self) -> int:
        """Offset of the counts."""
        return self.marks_offset + self.num_tasks(self.capacity) * WORD_BYTES

    def region_offset(self, task: int) -> int:
        """Return the offset of the region of a task."""
        return self.resident_bytes + task * self.region_bytes

    def _make_header(self) -> NDArray[np.int64]:
        words = np.zeros(HEADER_WORDS + DESCRIPTOR_WORDS * len(self.outputs), np.int64)
        words[Header.LAYOUT] = next(_numbers)
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
        output: number of the output.
        row: the descriptor of that output in the header.
        start, stop: range of samples.
    """
    part = descriptors[start:stop, output]
    part[:] = row
    part[:, Word.OFFSET] += np.arange(start, stop) * row[Word.NBYTES]


def describe_places(
    descriptors: NDArray[np.int64], output: int, row: NDArray[np.int64] | list[int], places: Sequence[int]
) -> None:
    """Write the descriptors of samples at some places that lie in their rows; see `describe_rows`."""
    if places:
        described = np.tile(np.asarray(row), (len(places), 1))
        described[:, Word.OFFSET] += np.asarray(places) * row[Word.NBYTES]
        descriptors[places, output] = described
