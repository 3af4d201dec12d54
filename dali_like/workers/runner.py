"""Computing a task: calling the source for some samples of a batch and writing what it returns into the batch's slot.

The same code runs in worker processes and, for sources that are not parallel, in the main process. It reads what to do
from the slot's header and touches nothing but the rows, descriptors and region of its own task.

Each sample is copied once. A sample that has the expected shape and dtype goes to its row, at one comparison and one
assignment an output. Any other is packed into the task's region and described. Nobody waits for the main process to make
room; samples that exceed even the region end the task with `Status.TOO_LARGE`, and the batch is computed again in a larger
slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.types import SampleInfo
from dali_like.workers.geometry import describe_rows
from dali_like.workers.memory import SharedSpace
from dali_like.workers.protocol import (
    DESCRIPTOR_WORDS,
    DTYPE_CODES,
    DTYPES,
    HEADER_WORDS,
    PAGE_BYTES,
    SAMPLE_ALIGNMENT,
    UNKNOWN,
    WORD_BYTES,
    Header,
    Status,
    Word,
    align,
)
from dali_like.workers.samples import Source, as_array, check_array, split_outputs

#: Views of so many slots, and of so many samples in them, are kept for reuse; beyond that they start anew. A ring has a few
#: slots; many more only while somebody holds many batches.
_MAX_VIEWS = 256
_MAX_CELLS = 1 << 16

#: Memory is put behind a region in steps of at least this, since each step is a system call.
_COMMIT_BYTES = 1 << 18


class RegionFullError(Exception):
    """The samples of a task do not fit into its region; `needed` is how many bytes would have been enough so far."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class _Cell(NamedTuple):
    """Where one sample of one output goes, and what it must be for that."""

    row: NDArray[Any]
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None


#: In place of a cell where there are no rows: no array has this shape.
_NO_CELL = _Cell(np.empty(0), np.dtype(float), None)


class _SlotView:
    """A slot as the one who fills it sees it."""

    def __init__(self, space: SharedSpace, offset: int, words: Sequence[int]) -> None:
        word = np.dtype(np.int64)
        num_outputs = words[Header.NUM_OUTPUTS]
        capacity = words[Header.CAPACITY]
        self.offset = offset
        self.geometry = words[Header.GEOMETRY]
        self.task_size = words[Header.TASK_SIZE]
        self.regions_offset = offset + words[Header.REGIONS_OFFSET]
        self.region_bytes = words[Header.REGION_BYTES]
        self.marks = space.array(offset + words[Header.MARKS_OFFSET], (-(-capacity // self.task_size),), word)
        self.descriptors: NDArray[np.int64] = space.array(
            offset + words[Header.DESCRIPTORS_OFFSET], (capacity, num_outputs, DESCRIPTOR_WORDS), word
        )
        self.expected: list[list[int]] = space.array(
            offset + HEADER_WORDS * word.itemsize, (num_outputs, DESCRIPTOR_WORDS), word
        ).tolist()
        #: By task, for each sample its row in each output; made when a task is first computed here.
        self.cells: dict[int, list[tuple[_Cell, ...]]] = {}
        self._capacity = capacity
        self._rows = [self._rows_of(space, expected) for expected in self.expected]

    def cells_of(self, task: int) -> list[tuple[_Cell, ...]]:
        """The rows of the samples of a task."""
        samples = range(task * self.task_size, min((task + 1) * self.task_size, self._capacity))
        return [
            tuple(_NO_CELL if rows is None else _Cell(rows[i, ...], rows.dtype, rows.shape[1:]) for rows in self._rows)
            for i in samples
        ]

    def _rows_of(self, space: SharedSpace, expected: list[int]) -> NDArray[Any] | None:
        if expected[Word.OFFSET] == UNKNOWN:
            return None
        shape = tuple(expected[Word.SHAPE : Word.SHAPE + expected[Word.NDIM]])
        return space.array(self.offset + expected[Word.OFFSET], (self._capacity, *shape), DTYPES[expected[Word.DTYPE]])


class TaskRunner:
    """Computes tasks of the given sources.

    Args:
        space: where the slots are.
        sources: by their number in the slots' headers.
        current: a cell of one number, which always says the index in the batch of the sample that is being made.
    """

    def __init__(self, space: SharedSpace, sources: Sequence[Source], current: memoryview) -> None:
        self._space = space
        self._sources = sources
        self._current = current
        self._headers: dict[int, NDArray[np.int64]] = {}
        self._views: dict[int, _SlotView] = {}
        self._num_cells = 0
        #: The exception that the last task ended with, if its status was FAILED.
        self.error: Exception | None = None

    def run(self, page: int, task: int) -> tuple[Status, int]:
        """Compute one task of the batch in the slot that starts on `page`; the status and its value."""
        header = self._headers.get(page)
        if header is None:
            header = self._headers[page] = self._space.array(page * PAGE_BYTES, (HEADER_WORDS,), np.dtype(np.int64))
        words = header.tolist()
        if words[Header.CANCELLED]:
            return Status.SKIPPED, 0
        view = self._views.get(page)
        if view is None or view.geometry != words[Header.GEOMETRY]:
            if len(self._views) >= _MAX_VIEWS or self._num_cells > _MAX_CELLS:
                self._views.clear()
                self._headers.clear()
                self._num_cells = 0
            view = self._views[page] = _SlotView(self._space, page * PAGE_BYTES, words)
        return self._run(view, words, task)

    def _run(self, view: _SlotView, words: list[int], task: int) -> tuple[Status, int]:
        source = self._sources[words[Header.SOURCE]]
        epoch = words[Header.EPOCH]
        iteration = words[Header.ITERATION]
        first = words[Header.FIRST_SAMPLE]
        start = task * view.task_size
        stop = min(start + view.task_size, words[Header.BATCH_SIZE])
        callback = source.callback
        single = source.num_outputs is None
        count = source.output_count
        cells = view.cells.get(task)
        if cells is None:
            cells = view.cells[task] = view.cells_of(task)
            self._num_cells += len(cells)
        current = self._current
        new, ndarray = tuple.__new__, np.ndarray
        region: _Region | None = None
        i = start
        try:
            for i in range(start, stop):
                current[0] = i
                # This loop is what a sample costs besides its callback: 0.3 us. Making the tuple by its class, comparing
                # dtypes by value, or naming `strict` in the call of zip would each add 0.1 us.
                sample = callback(new(SampleInfo, (first + i, i, iteration, epoch)))
                if region is None:
                    outputs = (sample,) if single else sample
                    if outputs.__class__ is tuple and len(outputs) == count:
                        pairs = zip(outputs, cells[i - start])  # noqa: B905
                        for array, (row, dtype, shape) in pairs:
                            if array.__class__ is ndarray and array.dtype is dtype and array.shape == shape:
                                row[...] = array
                            else:
                                break
                        else:
                            continue
                    region = _Region(self._space, view, task)
                    for output, expected in enumerate(view.expected):
                        describe_rows(view.descriptors, output, expected, start, i)
                self._store(view, region, cells[i - start], i, sample, source)
        except StopIteration:
            return Status.STOPPED, i
        except RegionFullError as full:
            return Status.TOO_LARGE, full.needed
        except Exception as error:
            self.error = error
            return Status.FAILED, i
        if region is None:
            return Status.DENSE, 0
        return Status.DESCRIBED, region.used

    def _store(
        self, view: _SlotView, region: _Region, cells: tuple[_Cell, ...], i: int, sample: Any, source: Source
    ) -> None:
        for output, value in enumerate(split_outputs(sample, source)):
            array = as_array(value, source, output)
            expected = view.expected[output]
            check_array(array, expected[Word.DTYPE], expected[Word.NDIM], source, output)
            row, dtype, shape = cells[output]
            if array.shape == shape and array.dtype == dtype:
                row[...] = array
                offset = expected[Word.OFFSET] + i * expected[Word.NBYTES]
            else:
                offset = region.append(array) - view.offset
            ndim = array.ndim
            view.descriptors[i, output, : Word.SHAPE + ndim] = (
                offset,
                array.nbytes,
                DTYPE_CODES[array.dtype],
                ndim,
                *array.shape,
            )

    def write_message(self, page: int, task: int, message: bytes) -> None:
        """Leave a message at the start of a task's region, in place of its samples."""
        region = _Region(self._space, self._views[page], task)
        region.append(np.frombuffer(len(message).to_bytes(WORD_BYTES, "little") + message, np.uint8))


class _Region:
    """The region of one task, filled from its start."""

    def __init__(self, space: SharedSpace, view: _SlotView, task: int) -> None:
        self._space = space
        self._marks = view.marks
        self._task = task
        self._start = view.regions_offset + task * view.region_bytes
        self._size = view.region_bytes
        self._committed = int(view.marks[task])
        self.used = 0

    def append(self, array: NDArray[Any]) -> int:
        """Copy an array to the end of what is used, and return its offset in the shared space."""
        begin = self.used
        end = align(begin + array.nbytes, SAMPLE_ALIGNMENT)
        if end > self._committed:
            self._grow(end)
        offset = self._start + begin
        self._space.array(offset, array.shape, array.dtype)[...] = array
        self.used = end
        return offset

    def _grow(self, end: int) -> None:
        if end > self._size:
            raise RegionFullError(end)
        target = min(align(end, _COMMIT_BYTES), self._size)
        self._space.commit(self._start + self._committed, target - self._committed)
        self._committed = target
        self._marks[self._task] = target
