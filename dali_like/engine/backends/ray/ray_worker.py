"""A worker as a Ray actor. Runs on the nodes of the cluster.

Neither pipes nor the shared space reach another node. So an actor owns a space of its own. Its slots have the layout of the
main process's slots; there is one for each batch of a call. The actor computes tasks there with the same `TaskRunner` as
all workers, and returns the parts that a task has written: rows, descriptors, region. The main process copies them into its
slot, see `dali_like.engine.backends.ray.ray_slots`.
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
from dali_like.engine.memory.protocol import (
    DESCRIPTOR_WORDS,
    HEADER_WORDS,
    PAGE_BYTES,
    UNKNOWN,
    WORD_BYTES,
    Header,
    Status,
)
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.exceptions import SHORT_BYTES, pack_exception
from dali_like.engine.worker.info import WorkerInfo, set_worker_info
from dali_like.engine.worker.malloc import keep_freed_memory
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import PickledSource, Source
from dali_like.engine.worker.task import Region, SlotView
from dali_like.engine.worker.thread_limits import limit_threads
from dali_like.engine.worker.worker import report_error

_WORD = np.dtype(np.int64)


class RaySource(NamedTuple):
    """A pickled source for actors.

    Attributes:
        bare: the source without its functions.
        data: pickle of the functions.
        buffers: the large arrays that `data` refers to, each with a flag whether it is writable.
    """

    bare: Source
    data: bytes
    buffers: tuple[tuple[NDArray[np.uint8], bool], ...]

    @classmethod
    def of(cls, source: Source, pickled: PickledSource) -> RaySource:
        """Make it of a source and its pickle."""
        buffers = [memoryview(buffer.raw()) for buffer in pickled.buffers]
        return cls(
            without_functions(source),
            pickled.data,
            tuple((np.frombuffer(buffer, np.uint8), not buffer.readonly) for buffer in buffers),
        )

    def unpack(self) -> Source:
        """Return the source. Read-only arrays stay in Ray's object store, which has one copy for each node."""
        buffers = [buffer.copy() if writable else buffer for buffer, writable in self.buffers]
        callback, on_error, setup, teardown = pickle.loads(self.data, buffers=buffers)
        return self.bare._replace(callback=callback, on_error=on_error, worker_setup=setup, worker_teardown=teardown)


class Role(NamedTuple):
    """The place of an actor in its pool.

    Attributes:
        worker: the number of the worker.
        num_workers: the number of workers.
        threads: threads of the numerical libraries; None: the libraries' default.
        path: the module search path of the main process.
    """

    worker: int
    num_workers: int
    threads: int | None
    path: tuple[str, ...]


class Started(NamedTuple):
    """Result of the start of an actor.

    Attributes:
        pid: its process id, on its node.
        error: the packed exception if it could not start; else empty.
    """

    pid: int
    error: bytes


class TaskResult(NamedTuple):
    """Result of a task. It travels as a list of plain numbers, bytes and buffers, which Ray serializes fastest.

    Attributes:
        status, value: see `Status`.
        num_samples: the number of samples; UNKNOWN: all of the task.
        num_replaced: samples that ``on_error`` has replaced.
        seconds: the time that the task took.
        measured: the times of callbacks, as the words of a meter.
        rows: the bytes of the task's samples, for each output with rows.
        descriptors: the bytes of the samples' descriptors; None if all samples are in rows.
        region: the used part of the task's region.
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
    """The actor class. Ray calls its methods one at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._cell = memoryview(bytearray(3 * WORD_BYTES)).cast("q")
        self._space = SharedSpace.create(for_processes=False)
        #: By number of the source, and of the batch within a call.
        self._slots: dict[tuple[int, int], _ActorSlot] = {}
        self._sources: list[Source] = []

    def begin(self, role: Role, bundle: Sequence[RaySource]) -> Started:
        """Start: unpickle the sources, and call each `worker_setup`."""
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
        except Exception as error:  # unpickling and worker_setup run user code
            return Started(os.getpid(), pack_exception(error, SHORT_BYTES))
        return Started(os.getpid(), b"")

    def compute(self, parts: Sequence[tuple[bytes, Sequence[int]]]) -> list[list[Any]]:
        """Compute tasks of some batches.

        Args:
            parts: for each batch its header and request, see `Slots.words_of`, and the numbers of the tasks.

        Returns:
            The `TaskResult` of each task, as a list.
        """
        reports = []
        for place, (words, tasks) in enumerate(parts):
            slot = self._slot_for(np.frombuffer(words, _WORD), place)
            reports += [list(self._compute(slot, task)) for task in tasks]
        return reports

    def _compute(self, slot: _ActorSlot, task: int) -> TaskResult:
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
        """Stop: call each `worker_teardown`."""
        try:
            for source in self._sources:
                if source.worker_teardown is not None:
                    self._runner.call(source.worker_teardown)
            self._runner.close()
        except Exception:  # no caller waits any more: print it to the log of the actor
            traceback.print_exc()

    def _slot_for(self, words: NDArray[np.int64], place: int) -> _ActorSlot:
        num_words = HEADER_WORDS + DESCRIPTOR_WORDS * int(words[Header.NUM_OUTPUTS])
        header, request = words[:num_words], words[num_words:]
        key = int(header[Header.SOURCE]), place
        slot = self._slots.get(key)
        if slot is None or slot.view.slot_layout != header[Header.LAYOUT]:
            if slot is not None:
                del self._slots[key]
                slot.free()
            slot = self._slots[key] = _ActorSlot(self._space, header)
        slot.take(header, request)
        return slot


class _ActorSlot:
    """A slot of the actor's own space, for tasks of one source."""

    def __init__(self, space: SharedSpace, header: NDArray[np.int64]) -> None:
        self._space = space
        num_tasks = -(-int(header[Header.CAPACITY]) // int(header[Header.TASK_SIZE]))
        self._resident = resident = int(header[Header.REGIONS_OFFSET])
        self._nbytes = resident + num_tasks * int(header[Header.REGION_BYTES])
        self._offset = space.allocate(self._nbytes)
        space.commit(self._offset, resident)
        self.take(header, header[:0])
        self.view = SlotView(space, self._offset, header.tolist())
        self.view.marks[:] = 0  # some systems cannot free the pages of an earlier slot

    @property
    def source(self) -> int:
        """The number of the source."""
        return int(self._header[Header.SOURCE])

    @property
    def page(self) -> int:
        """The page that the slot starts on."""
        return self._offset // PAGE_BYTES

    def take(self, header: NDArray[np.int64], request: NDArray[np.int64]) -> None:
        """Write the header and the request of a batch into the slot."""
        self._header = self._space.array(self._offset, header.shape, _WORD)
        self._header[:] = header
        place = self._offset + int(header[Header.REQUEST_OFFSET])
        self._space.array(place, request.shape, _WORD)[:] = request

    def report(self, task: int, status: Status, value: int) -> TaskResult:
        """Return the result of a finished task."""
        count = int(self.view.counts[task])
        report = TaskResult(int(status), int(value), count)
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
        """Return the first `nbytes` bytes of a task's region."""
        start = Region(self._space, self.view, task).start
        return PickleBuffer(self._space.array(start, (nbytes,), np.dtype(np.uint8)).data)

    def free(self) -> None:
        """Free the memory of the slot."""
        self._space.discard(self._offset + self._resident, self._nbytes - self._resident)
        self._space.free(self._offset, self._nbytes)


def samples_of(header: NDArray[np.int64], task: int, count: int) -> slice:
    """Return the samples of a task as a slice of the batch. `count` limits them, unless it is UNKNOWN."""
    start = task * int(header[Header.TASK_SIZE])
    stop = min(start + int(header[Header.TASK_SIZE]), int(header[Header.BATCH_SIZE]))
    return slice(start, stop if count == UNKNOWN else start + count)
