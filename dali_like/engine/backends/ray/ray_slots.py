"""Slots and cells as the Ray dispatcher uses them: the headers to send to actors, and the places for their results.

Runs in the dispatcher's thread of the main process. It writes where a worker process would write: the rows, descriptors,
count and region of a task that has been taken and not reported, and the cells and message areas of workers.
"""

from __future__ import annotations

from time import monotonic_ns

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.backends.ray.ray_worker import TaskResult, samples_of
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
from dali_like.engine.worker.meters import RECORDS_WANTED, TaskLog, meter_of
from dali_like.engine.worker.task import NoMemoryError, Region, SlotView

#: Slot views to cache. One more clears the cache.
_MAX_VIEWS = 64

_WORD = np.dtype(np.int64)


class Slots:
    """The slots, cells and message areas of a pool.

    Args:
        space: the shared space of the pool.
        num_workers: the number of cells.
    """

    def __init__(self, space: SharedSpace, num_workers: int) -> None:
        self._space = space
        self._num_workers = num_workers
        self._views: dict[int, SlotView] = {}
        #: Bytes that the last task with a region has used of it, by source.
        self._region_bytes: dict[int, int] = {}
        self._logs = [TaskLog(space, worker, num_workers) for worker in range(num_workers)]

    def log(self, worker: int, pid: int, page: int, task: int, begin_ns: int, status: int) -> None:
        """Write a task into the log of a worker, if that is turned on; see `dali_like.engine.worker.meters`."""
        if self._logs[worker].words[0] & RECORDS_WANTED:
            header = self.header_of(page).tolist()
            self._logs[worker].write(header, task, begin_ns, monotonic_ns(), status, pid)

    def header_of(self, page: int) -> NDArray[np.int64]:
        """Return the header of the slot that starts on a page, with the descriptors of its outputs."""
        start = page * PAGE_BYTES
        num_outputs = int(self._space.array(start, (HEADER_WORDS,), _WORD)[Header.NUM_OUTPUTS])
        return self._space.array(start, (HEADER_WORDS + DESCRIPTOR_WORDS * num_outputs,), _WORD)

    def words_of(self, page: int) -> bytes:
        """The message to an actor about a slot: its header, and the request."""
        header = self.header_of(page)
        num_words = -(-int(header[Header.REQUEST_BYTES]) // WORD_BYTES)
        start = page * PAGE_BYTES + int(header[Header.REQUEST_OFFSET])
        return header.tobytes() + self._space.array(start, (num_words,), _WORD).tobytes()

    def source_of(self, page: int) -> int:
        """Return the number of the source whose slot starts on a page."""
        return int(self.header_of(page)[Header.SOURCE])

    def bytes_of(self, header: NDArray[np.int64], task: int) -> int:
        """Estimate the bytes of a task's result: its rows, and as much of its region as the last task has used."""
        expected = header[HEADER_WORDS:].reshape(-1, DESCRIPTOR_WORDS)
        row_bytes = int(expected[expected[:, Word.OFFSET] != UNKNOWN, Word.NBYTES].sum())
        samples = samples_of(header, task, UNKNOWN)
        return row_bytes * int(samples.stop - samples.start) + self._region_bytes.get(int(header[Header.SOURCE]), 0)

    def store(self, page: int, task: int, report: TaskResult) -> tuple[int, int]:
        """Copy the result of a task into its slot.

        Returns:
            The status and value of the report to the pool.
        """
        header = self.header_of(page)
        if header[Header.CANCELLED]:
            return Status.SKIPPED, 0
        view = self._views.get(page)
        if view is None or view.slot_layout != header[Header.LAYOUT]:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            view = self._views[page] = SlotView(self._space, page * PAGE_BYTES, header.tolist())
        samples = samples_of(header, task, report.num_samples)
        # A failed task has no rows, so the second list may be shorter.
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
                header[Header.NEEDED_BYTES] = max(header[Header.NEEDED_BYTES], shortage.needed)
                return Status.NO_MEMORY, shortage.missing
            self._space.array(start, region.shape, region.dtype)[...] = region
        return report.status, report.value

    def forget(self) -> None:
        """Drop the references to the space."""
        self._views.clear()

    def read_cell(self, worker: int, place: int) -> bytes:
        """Return a word of a worker's cell."""
        start = cell_offset(worker) + place
        return bytes(self._space.map[start : start + WORD_BYTES])

    def write_cell(self, worker: int, place: int, data: bytes) -> None:
        """Write bytes into a worker's cell."""
        start = cell_offset(worker) + place
        self._space.map[start : start + len(data)] = data

    def note_ready(self, worker: int) -> None:
        """Begin the meters of a worker that has started."""
        meter_of(self._space, 0, worker, self._num_workers)

    def note_measured(self, worker: int, page: int, words: bytes) -> None:
        """Add measurements to a worker's meter for the source whose slot starts on a page."""
        meter_of(self._space, self.source_of(page), worker, self._num_workers).merge(words)

    def leave_message(self, worker: int, message: bytes) -> None:
        """Write the reason why a worker could not start."""
        start = message_offset(worker, self._num_workers)
        write_message(self._space, start, MESSAGE_BYTES - WORD_BYTES, message)
