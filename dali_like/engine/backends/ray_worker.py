"""A worker as an actor of Ray: what runs on the cluster's nodes.

Neither pipes nor the shared space reach that far. So an actor has a space of its own, with slots that are laid out like
those of the main process, one for each batch of a call, and computes its tasks there, by the same `TaskRunner` as all
others. What it sends back are the parts of a slot that a task has written: rows, descriptors, region. The main process puts
them into the same places of its slot; see `dali_like.engine.backends.ray_workers`.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Sequence
from pickle import PickleBuffer
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.backends.source_bundle import without_functions
from dali_like.engine.memory.protocol import PAGE_BYTES, UNKNOWN, WORD_BYTES, Header, Status
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.exceptions import SHORT_BYTES, pack_exception
from dali_like.engine.worker.info import WorkerInfo, set_worker_info
from dali_like.engine.worker.malloc import keep_freed_memory
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import PickledSource, Source
from dali_like.engine.worker.task import Region, SlotView
from dali_like.engine.worker.worker import limit_threads, report_error

_WORD = np.dtype(np.int64)


class RaySource(NamedTuple):
    """A source on its way to actors.

    Attributes:
        bare: the source without its functions.
        data: the functions, pickled.
        buffers: the large arrays that `data` refers to, and for each whether it may be written to.
    """

    bare: Source
    data: bytes
    buffers: tuple[tuple[NDArray[np.uint8], bool], ...]

    @classmethod
    def of(cls, source: Source, pickled: PickledSource) -> RaySource:
        """What is to be sent of a source."""
        buffers = [memoryview(buffer.raw()) for buffer in pickled.buffers]
        return cls(
            without_functions(source),
            pickled.data,
            tuple((np.frombuffer(buffer, np.uint8), not buffer.readonly) for buffer in buffers),
        )

    def unpack(self) -> Source:
        """The source. Arrays that nobody may write to stay in Ray's object store, where they are there once for a node."""
        buffers = [buffer.copy() if writable else buffer for buffer, writable in self.buffers]
        callback, on_error, setup, teardown = pickle.loads(self.data, buffers=buffers)
        return self.bare._replace(callback=callback, on_error=on_error, worker_setup=setup, worker_teardown=teardown)


class Role(NamedTuple):
    """Which worker an actor is.

    Attributes:
        worker: its number.
        num_workers: how many there are.
        threads: for the numerical libraries; None leaves them alone.
        path: where the main process looks for modules.
    """

    worker: int
    num_workers: int
    threads: int | None
    path: tuple[str, ...]


class Started(NamedTuple):
    """How the start of a worker has ended.

    Attributes:
        pid: its process id, on its node.
        error: why it could not start, packed; empty if it could.
    """

    pid: int
    error: bytes


class Report(NamedTuple):
    """What has become of a task. It travels as a list of plain numbers, bytes and buffers, which Ray takes least time for.

    Attributes:
        status, value: see `Status`.
        num_samples: how many it has made, or UNKNOWN: all.
        num_replaced: how many samples were replaced.
        seconds: how long it has taken.
        measured: how long callbacks have taken, as the words of a meter.
        rows: for each output that has rows, the bytes of the task's samples.
        descriptors: the bytes of the task's samples' descriptors; None if they are in rows.
        region: what has been used of the task's region.
    """

    status: int
    value: int
    num_samples: int
    num_replaced: int = 0
    seconds: float = 0.0
    measured: bytes = b""
    rows: Sequence[Any] = ()
    descriptors: Any = None
    region: Any = None


class RayWorker:
    """A worker. Its methods are called one at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._cell = memoryview(bytearray(3 * WORD_BYTES)).cast("q")
        self._space = SharedSpace.create()
        #: By source, and by which batch of a call it is.
        self._slots: dict[tuple[int, int], _Slot] = {}
        self._sources: list[Source] = []

    def begin(self, role: Role, bundle: Sequence[RaySource]) -> Started:
        """Take up work: unpickle the sources and call what sets them up."""
        try:
            sys.path += [path for path in role.path if path not in sys.path]
            limit_threads(role.threads)
            keep_freed_memory(role.num_workers)
            set_worker_info(WorkerInfo(role.worker, role.num_workers))
            self._sources = [source.unpack() for source in bundle]
            self._runner = TaskRunner(self._space, self._sources, self._cell)
            for source in self._sources:
                if source.worker_setup is not None:
                    self._runner.call(source.worker_setup)
        except Exception as error:  # whatever a user's class does when unpickled, or its worker_setup
            return Started(os.getpid(), pack_exception(error, SHORT_BYTES))
        return Started(os.getpid(), b"")

    def compute(self, parts: Sequence[tuple[bytes, Sequence[int]]]) -> list[list[Any]]:
        """Compute tasks of some batches.

        Args:
            parts: for each batch the header of its slot, with what is expected of the outputs, and which tasks.

        Returns:
            A `Report` of each task, as a list.
        """
        reports = []
        for place, (header, tasks) in enumerate(parts):
            slot = self._slot_for(np.frombuffer(header, _WORD), place)
            reports += [list(self._compute(slot, task)) for task in tasks]
        return reports

    def _compute(self, slot: _Slot, task: int) -> Report:
        begin, replaced = time.perf_counter(), self._cell[1]
        slot.view.counts[task] = UNKNOWN
        status, value = self._runner.run(slot.page, task)
        if status is Status.FAILED:
            status, value = report_error(self._runner, slot.page, task, value)
        self._runner.note()
        measured = self._runner.meters[slot.source].take()
        seconds = time.perf_counter() - begin
        return slot.report(task, status, value)._replace(
            num_replaced=self._cell[1] - replaced, seconds=seconds, measured=measured
        )

    def end(self) -> None:
        """Call what is to be called at the end."""
        try:
            for source in self._sources:
                if source.worker_teardown is not None:
                    self._runner.call(source.worker_teardown)
            self._runner.close()
        except Exception:  # nobody waits for it any more, so that it is shown where what callbacks print is
            traceback.print_exc()

    def _slot_for(self, header: NDArray[np.int64], place: int) -> _Slot:
        key = int(header[Header.SOURCE]), place
        slot = self._slots.get(key)
        if slot is None or slot.view.slot_layout != header[Header.GEOMETRY]:
            if slot is not None:
                del self._slots[key]
                slot.free()
            slot = self._slots[key] = _Slot(self._space, header)
        slot.take(header)
        return slot


class _Slot:
    """The place where tasks of one source are computed."""

    def __init__(self, space: SharedSpace, header: NDArray[np.int64]) -> None:
        self._space = space
        num_tasks = -(-int(header[Header.CAPACITY]) // int(header[Header.TASK_SIZE]))
        resident = int(header[Header.REGIONS_OFFSET])
        self._nbytes = resident + num_tasks * int(header[Header.REGION_BYTES])
        self._offset = space.allocate(self._nbytes)
        space.commit(self._offset, resident)
        self.take(header)
        self.view = SlotView(space, self._offset, header.tolist())

    @property
    def source(self) -> int:
        """The number of the source."""
        return int(self._header[Header.SOURCE])

    @property
    def page(self) -> int:
        """The page that it begins on."""
        return self._offset // PAGE_BYTES

    def take(self, header: NDArray[np.int64]) -> None:
        """Make it the slot of a batch."""
        self._header = self._space.array(self._offset, header.shape, _WORD)
        self._header[:] = header

    def report(self, task: int, status: Status, value: int) -> Report:
        """What a task that has ended has written."""
        count = int(self.view.counts[task])
        report = Report(int(status), int(value), count)
        if status is Status.FAILED:
            length = int.from_bytes(self._region(task, WORD_BYTES), "little")
            return report._replace(region=self._region(task, WORD_BYTES + length))
        if status not in (Status.DENSE, Status.DESCRIBED):
            return report
        samples = samples_of(self._header, task, count)
        report = report._replace(rows=[PickleBuffer(rows[samples].data) for rows in self.view.rows if rows is not None])
        if status is Status.DENSE:
            return report
        return report._replace(
            descriptors=PickleBuffer(self.view.descriptors[samples].data), region=self._region(task, value)
        )

    def _region(self, task: int, nbytes: int) -> PickleBuffer:
        """The first bytes of a task's region."""
        start = Region(self._space, self.view, task).start
        return PickleBuffer(self._space.array(start, (nbytes,), np.dtype(np.uint8)).data)

    def free(self) -> None:
        """Give its memory back."""
        self._space.free(self._offset, self._nbytes)


def samples_of(header: NDArray[np.int64], task: int, count: int) -> slice:
    """The samples that a task has made, or is to make if the count is UNKNOWN, by their index in the batch."""
    start = task * int(header[Header.TASK_SIZE])
    stop = min(start + int(header[Header.TASK_SIZE]), int(header[Header.BATCH_SIZE]))
    return slice(start, stop if count == UNKNOWN else start + count)
