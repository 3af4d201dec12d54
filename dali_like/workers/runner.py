"""Computing a task: calling the source for some samples of a batch and writing what it returns into the batch's slot.

The same code runs in worker processes and, for sources that are not parallel, in the main process. It reads what to do
from the slot's header and touches nothing but the rows, descriptors and region of its own task.

Each sample is copied once. A sample that has the expected shape and dtype goes to its row, at one comparison and one
assignment an output. Any other is packed into the task's region and described. Nobody waits for the main process to make
room; samples that exceed even the region end the task with `Status.TOO_LARGE`, and the batch is computed again in a larger
slot.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import OutOfMemoryError
from dali_like.types import SampleInfo, set_stream
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

#: Memory is put behind a region in steps, since each is a few system calls: as much again as there is already, within these
#: bounds. So a batch of small samples takes little, and one of large samples few steps.
_LEAST_COMMIT_BYTES = 1 << 14
_MOST_COMMIT_BYTES = 1 << 20

#: So many indices are tried in the place of one that fails.
_MAX_SKIPPED = 1000

_log = logging.getLogger("dali_like")


class RegionFullError(Exception):
    """The samples of a task do not fit into its region; `needed` is how many bytes would have been enough so far."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class NoMemoryError(Exception):
    """There is no memory to put behind a region; `missing` is how many bytes were wanted."""

    def __init__(self, missing: int) -> None:
        super().__init__(missing)
        self.missing = missing


class _Cell(NamedTuple):
    """Where one sample of one output goes, and what it must be for that."""

    row: NDArray[Any]
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None


#: In place of a cell where there are no rows: no array has this shape.
_NO_CELL = _Cell(np.empty(0), np.dtype(float), None)


def _cell(rows: NDArray[Any] | None, i: int) -> _Cell:
    return _NO_CELL if rows is None else _Cell(rows[i, ...], rows.dtype, rows.shape[1:])


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
        self._cells: dict[int, list[tuple[_Cell, ...]]] = {}
        self._capacity = capacity
        self._rows = [self._rows_of(space, expected) for expected in self.expected]

    @property
    def num_cells(self) -> int:
        """How many samples' rows are kept."""
        return sum(map(len, self._cells.values()))

    def cells_of(self, task: int) -> list[tuple[_Cell, ...]]:
        """For each sample of a task, its row in each output."""
        cells = self._cells.get(task)
        if cells is None:
            samples = range(task * self.task_size, min((task + 1) * self.task_size, self._capacity))
            cells = self._cells[task] = [tuple(_cell(rows, i) for rows in self._rows) for i in samples]
        return cells

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
        cell: two numbers: the index in the batch of the sample that is being made; how many samples were replaced.
    """

    def __init__(self, space: SharedSpace, sources: Sequence[Source], cell: memoryview) -> None:
        self._space = space
        self._sources = sources
        self._cell = cell
        self._headers: dict[int, NDArray[np.int64]] = {}
        self._views: dict[int, _SlotView] = {}
        #: The exception that the last task ended with, if its status was FAILED.
        self.error: Exception | None = None
        #: The sample that found no room or no memory, if the status was TOO_LARGE or NO_MEMORY.
        self.homeless: Any = None

    def run(self, page: int, task: int, made: deque[Any] | None = None) -> tuple[Status, int]:
        """Compute one task of the batch in the slot that starts on `page`; the status and its value.

        Args:
            made: the first samples of the task, where they have been made already; they are taken out of it.
        """
        header = self._headers.get(page)
        if header is None:
            header = self._headers[page] = self._space.array(page * PAGE_BYTES, (HEADER_WORDS,), np.dtype(np.int64))
        words = header.tolist()
        if words[Header.CANCELLED]:
            return Status.SKIPPED, 0
        view = self._views.get(page)
        if view is None or view.geometry != words[Header.GEOMETRY]:
            if len(self._views) >= _MAX_VIEWS or sum(view.num_cells for view in self._views.values()) > _MAX_CELLS:
                self._views.clear()
                self._headers.clear()
            view = self._views[page] = _SlotView(self._space, page * PAGE_BYTES, words)
        job = _Job(self._space, view, self._sources[words[Header.SOURCE]], words, task)
        before = set_stream(job.source.seeds)
        try:
            return self._run(job, made)
        finally:
            set_stream(before)  # a callback may run a pipeline

    def _run(self, job: _Job, made: deque[Any] | None) -> tuple[Status, int]:
        if made:
            job.callback = _Resumed(made, job.callback)
        try:
            i = job.start
            while i < job.stop:
                i = self._make(job, i)
        except StopIteration:
            return Status.STOPPED, self._cell[0]
        except RegionFullError as full:
            return Status.TOO_LARGE, full.needed
        except NoMemoryError as shortage:
            return Status.NO_MEMORY, shortage.missing
        except Exception as error:
            self.error = error
            return Status.FAILED, self._cell[0]
        if job.region is None:
            return Status.DENSE, 0
        return Status.DESCRIBED, job.region.used

    def _make(self, job: _Job, begin: int) -> int:
        """Make the samples from `begin` on, up to the end of the task or the first that must be replaced; the next index."""
        source, cell = job.source, self._cell
        fill = self._fill_two_rows if source.num_outputs == 2 else self._fill_rows
        i = begin
        try:
            while i < job.stop:
                if job.region is None:
                    i, sample = fill(job, i)
                    if i == job.stop:
                        break
                else:
                    cell[0] = i
                    sample = job.callback(tuple.__new__(SampleInfo, (job.first + i, i, job.iteration, job.epoch)))
                self._store(job, i, sample, source)
                i += 1
        except (StopIteration, RegionFullError, NoMemoryError):
            raise
        except Exception as error:
            if source.on_error == "raise":
                raise
            self._replace(job, cell[0], error)
            return int(cell[0]) + 1
        return job.stop

    # The loops of the next two methods are what a sample costs besides its callback and the copies. Making the tuple by its
    # class, comparing dtypes by value, or naming `strict` in the call of zip would each add 0.1 us to some 0.4 us.

    def _fill_rows(self, job: _Job, begin: int) -> tuple[int, Any]:
        """Make samples for as long as they fit their rows: the index of the first that does not, and that sample."""
        callback, first, iteration, epoch, start = job.callback, job.first, job.iteration, job.epoch, job.start
        single, count = job.source.num_outputs is None, job.source.output_count
        cell, cells, new, ndarray = self._cell, job.cells, tuple.__new__, np.ndarray
        for i in range(begin, job.stop):
            cell[0] = i
            sample = callback(new(SampleInfo, (first + i, i, iteration, epoch)))
            outputs = (sample,) if single else sample
            if outputs.__class__ is not tuple or len(outputs) != count:
                return i, sample
            for array, (row, dtype, shape) in zip(outputs, cells[i - start]):  # noqa: B905
                if array.__class__ is ndarray and array.dtype is dtype and array.shape == shape:
                    row[...] = array
                else:
                    return i, sample
            array = outputs = sample = None  # so that the next sample gets the same memory, which is in the cache
        return job.stop, None

    def _fill_two_rows(self, job: _Job, begin: int) -> tuple[int, Any]:
        """As `_fill_rows`, for two outputs, such as data and a label: without the inner loop a sample takes 0.17 us less."""
        callback, first, iteration, epoch, start = job.callback, job.first, job.iteration, job.epoch, job.start
        cell, cells, new, ndarray = self._cell, job.cells, tuple.__new__, np.ndarray
        for i in range(begin, job.stop):
            cell[0] = i
            sample = callback(new(SampleInfo, (first + i, i, iteration, epoch)))
            if sample.__class__ is not tuple or len(sample) != 2:
                return i, sample
            a, b = sample
            (row_a, dtype_a, shape_a), (row_b, dtype_b, shape_b) = cells[i - start]
            if (
                a.__class__ is ndarray
                and b.__class__ is ndarray
                and a.dtype is dtype_a
                and b.dtype is dtype_b
                and a.shape == shape_a
                and b.shape == shape_b
            ):
                row_a[...] = a
                row_b[...] = b
                a = b = sample = None  # see above
            else:
                return i, sample
        return job.stop, None

    def _replace(self, job: _Job, i: int, error: Exception) -> None:
        """Put another sample in the place of one that could not be made.

        Raises:
            Exception: the original one, if no other can be found either.
        """
        source = job.source
        index = job.first + i
        if callable(source.on_error):
            replacer = replace(source, name=f"on_error of {source.name}")  # for what is wrong with its result
            self._store(job, i, _call_on_error(replacer, SampleInfo(index, i, job.iteration, job.epoch), error), replacer)
            by = "what on_error returned"
        else:
            for other in range(index + 1, index + 1 + _MAX_SKIPPED):
                try:
                    sample = source.callback(SampleInfo(other, i, job.iteration, job.epoch))
                    self._store(job, i, sample, source)
                except (RegionFullError, NoMemoryError):
                    raise
                except StopIteration:
                    raise error from None
                except Exception:  # that one too: on to the next
                    continue
                by = f"that of idx_in_epoch {other}"
                break
            else:
                raise error
        self._cell[1] += 1
        _log.warning("%s: the sample of idx_in_epoch %d is replaced by %s: %r", source.name, index, by, repr(error))

    def _store(self, job: _Job, i: int, sample: Any, source: Source) -> None:
        """Write any sample that may be written, and describe where it is."""
        view = job.view
        region = job.region
        if region is None:
            region = job.begin_region()
        for output, value in enumerate(split_outputs(sample, source)):
            array = as_array(value, source, output)
            expected = view.expected[output]
            if not job.provisional:
                check_array(array, expected[Word.DTYPE], expected[Word.NDIM], source, output)
            row, dtype, shape = job.cells[i - job.start][output]
            if array.shape == shape and array.dtype == dtype:
                row[...] = array
                offset = expected[Word.OFFSET] + i * expected[Word.NBYTES]
            else:
                try:
                    offset = region.append(array) - view.offset
                except (RegionFullError, NoMemoryError):
                    self.homeless = sample
                    raise
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


def _call_on_error(source: Source, info: SampleInfo, error: Exception) -> Any:
    assert callable(source.on_error)
    try:
        return source.on_error(info, error)
    except StopIteration as stop:
        raise RuntimeError(f"{source.name} raised StopIteration; only the callback ends the epoch") from stop


class _Resumed:
    """A callback some of whose samples have been made already."""

    def __init__(self, made: deque[Any], callback: Callable[[SampleInfo], Any]) -> None:
        self._made = made
        self._callback = callback

    def __call__(self, info: SampleInfo) -> Any:
        return self._made.popleft() if self._made else self._callback(info)


class _Job:
    """One task while it is computed.

    Attributes:
        start, stop: the samples of the batch that it consists of.
        first: idx_in_epoch of the batch's first sample.
        cells: the rows of each sample.
        region: where samples go that have no row; None as long as all had one.
    """

    def __init__(self, space: SharedSpace, view: _SlotView, source: Source, words: list[int], task: int) -> None:
        self._space = space
        self._task = task
        self.view = view
        self.source = source
        self.callback = source.callback
        self.epoch = words[Header.EPOCH]
        self.iteration = words[Header.ITERATION]
        self.first = words[Header.FIRST_SAMPLE]
        self.provisional = words[Header.PROVISIONAL]
        self.start = task * view.task_size
        self.stop = min(self.start + view.task_size, words[Header.BATCH_SIZE])
        self.cells = view.cells_of(task)
        self.region: _Region | None = None

    def begin_region(self) -> _Region:
        """From now on each sample is described, and so are those that lie in their rows already."""
        self.region = _Region(self._space, self.view, self._task)
        for output, expected in enumerate(self.view.expected):
            describe_rows(self.view.descriptors, output, expected, self.start, self.stop)
        return self.region


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
        step = min(max(self._committed, _LEAST_COMMIT_BYTES), _MOST_COMMIT_BYTES)
        target = min(align(end, step), self._size)
        missing = target - self._committed
        try:
            self._space.commit(self._start + self._committed, missing)
        except OutOfMemoryError:
            raise NoMemoryError(missing) from None  # the main process has the words, and may find memory
        self._committed = target
        self._marks[self._task] = target
