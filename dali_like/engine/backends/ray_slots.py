"""The slots as the dispatcher of actors sees them: what to send of a slot, and where to put what comes back.

It touches what a worker process would: the rows, descriptors, count and region of a task that has been taken and not been
reported, and the workers' cells and message areas.
"""

from __future__ import annotations

from time import monotonic_ns

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.backends.ray_worker import Report, samples_of
from dali_like.engine.memory.protocol import (
    DESCRIPTOR_WORDS,
    HEADER_WORDS,
    MESSAGE_BYTES,
    PAGE_BYTES,
    UNKNOWN,
    WORD_BYTES,
    Header,
    Status,
    Word,
    cell_offset,
    message_offset,
)
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.exceptions import write_message
from dali_like.engine.worker.meters import TaskLog, meter_of
from dali_like.engine.worker.task import NoMemoryError, Region, SlotView

#: Views of so many slots are kept for reuse; beyond that they start anew.
_MAX_VIEWS = 64

_WORD = np.dtype(np.int64)


class Slots:
    """The slots, cells and message areas of a pool.

    Args:
        space: where they are.
        num_workers: how many cells there are.
    """

    def __init__(self, space: SharedSpace, num_workers: int) -> None:
        self._space = space
        self._num_workers = num_workers
        self._views: dict[int, SlotView] = {}
        #: By source: what the last task with a region has used of it.
        self._region_bytes: dict[int, int] = {}
        self._logs = [TaskLog(space, worker, num_workers) for worker in range(num_workers)]

    def log(self, worker: int, pid: int, page: int, task: int, begin_ns: int, status: int) -> None:
        """Note a task that an actor has computed, if that is wanted; see `TaskLog`."""
        if self._logs[worker].words[0]:
            header = self.header_of(page).tolist()
            self._logs[worker].write(header, task, begin_ns, monotonic_ns(), status, pid)

    def header_of(self, page: int) -> NDArray[np.int64]:
        """The header of the slot that starts on a page, with what is expected of the outputs."""
        start = page * PAGE_BYTES
        num_outputs = int(self._space.array(start, (HEADER_WORDS,), _WORD)[Header.NUM_OUTPUTS])
        return self._space.array(start, (HEADER_WORDS + DESCRIPTOR_WORDS * num_outputs,), _WORD)

    def source_of(self, page: int) -> int:
        """The source whose slot starts on a page."""
        return int(self.header_of(page)[Header.SOURCE])

    def bytes_of(self, header: NDArray[np.int64], task: int) -> int:
        """How much the result of a task is going to take, judging by those before."""
        expected = header[HEADER_WORDS:].reshape(-1, DESCRIPTOR_WORDS)
        row_bytes = int(expected[expected[:, Word.OFFSET] != UNKNOWN, Word.NBYTES].sum())
        samples = samples_of(header, task, UNKNOWN)
        return row_bytes * int(samples.stop - samples.start) + self._region_bytes.get(int(header[Header.SOURCE]), 0)

    def store(self, page: int, task: int, report: Report) -> tuple[int, int]:
        """Put what a task has made into its place.

        Returns:
            The status and value that the pool is to see.
        """
        header = self.header_of(page)
        if header[Header.CANCELLED]:
            return Status.SKIPPED, 0
        view = self._view_of(page, header)
        samples = samples_of(header, task, report.num_samples)
        # Of a task that has failed there are no rows.
        for rows, made in zip([rows[samples] for rows in view.rows if rows is not None], report.rows):  # noqa: B905
            rows[...] = np.ndarray(rows.shape, rows.dtype, made)
        if report.num_samples != UNKNOWN:
            view.counts[task] = report.num_samples
        if report.descriptors is not None:
            descriptors = view.descriptors[samples]
            descriptors[...] = np.ndarray(descriptors.shape, descriptors.dtype, report.descriptors)
        if report.region is not None:
            region = np.frombuffer(report.region, np.uint8)
            self._region_bytes[int(header[Header.SOURCE])] = region.nbytes
            try:
                start = Region(self._space, view, task).take(region.nbytes)
            except NoMemoryError as shortage:
                return Status.NO_MEMORY, shortage.missing
            self._space.array(start, region.shape, region.dtype)[...] = region
        return report.status, report.value

    def forget(self) -> None:
        """Give up what keeps the space."""
        self._views.clear()

    def read_cell(self, worker: int, place: int) -> bytes:
        """A word of a worker's cell."""
        start = cell_offset(worker) + place
        return bytes(self._space.map[start : start + WORD_BYTES])

    def write_cell(self, worker: int, place: int, data: bytes) -> None:
        """Write into a worker's cell."""
        start = cell_offset(worker) + place
        self._space.map[start : start + len(data)] = data

    def note_ready(self, worker: int) -> None:
        """From now on a worker is there: its meters say since when."""
        meter_of(self._space, 0, worker, self._num_workers)

    def note_measured(self, worker: int, page: int, words: bytes) -> None:
        """Add what a worker has measured, for the source whose slot starts on a page, to its meter."""
        meter_of(self._space, self.source_of(page), worker, self._num_workers).merge(words)

    def leave_message(self, worker: int, message: bytes) -> None:
        """Say why a worker could not start."""
        start = message_offset(worker, self._num_workers)
        write_message(self._space, start, MESSAGE_BYTES - WORD_BYTES, message)

    def _view_of(self, page: int, header: NDArray[np.int64]) -> SlotView:
        view = self._views.get(page)
        if view is None or view.slot_layout != header[Header.GEOMETRY]:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            view = self._views[page] = SlotView(self._space, page * PAGE_BYTES, header.tolist())
        return view
