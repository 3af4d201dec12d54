"""The seam between those who want batches and those who compute them.

A pool makes batches of numbered sources. There are two: `dali_like.workers.pool.ProcessPool`, which has worker processes,
and `InlinePool`, which computes in the calling thread. Both write through the same `TaskRunner` into slots of the same
kind, and so give the same batches.
"""

from __future__ import annotations

import contextlib
import gc
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dali_like.errors import (
    ClosedError,
    CorruptionError,
    DaliLikeError,
    DtypeMismatchError,
    NdimMismatchError,
    OutOfMemoryError,
)
from dali_like.interrupts import interruptible
from dali_like.types import current_call
from dali_like.workers.batch import Batch, BatchKey, Output, assemble, fill_up, first_layout, position_note
from dali_like.workers.geometry import TASKS_PER_WORKER, Geometry, OutputLayout, task_size
from dali_like.workers.memory import SharedSpace
from dali_like.workers.protocol import DTYPES, PAGE_BYTES, UNKNOWN, Header, Status, align
from dali_like.workers.ring import Lease, Ring, SampleList, Slot
from dali_like.workers.runner import TaskRunner
from dali_like.workers.samples import LastBatch, Pickled, Source, dtype_text, ndim_text
from dali_like.workers.transport import add_note

#: Address space of a task's region: before anything is known of the samples, and at least, once it is.
_FIRST_REGION_BYTES = 1 << 32
_LEAST_REGION_BYTES = 1 << 20
#: Regions have room for tasks this many times as large as the largest seen; they are made anew when less than the second
#: factor is left.
_REGION_FACTOR = 16
_LEAST_REGION_FACTOR = 4
#: An output that has had several shapes gets rows again after this many batches of one shape.
_BATCHES_TO_TRUST = 8
#: A batch for which there should be memory is not tried more often than this without saying so.
_MOST_SHORTAGES = 3
#: The regions of a slot take no more than this part of the whole address space.
_MAX_SLOT_SHARE = 64


class Pool(Protocol):
    """Computes batches. One thread at a time may use it."""

    def submit(self, key: BatchKey) -> Batch:
        """Begin a batch. Batches are computed in the order of their submission, as far as workers are free."""

    def poll(self) -> None:
        """Take note of what has been completed, without waiting."""

    def wait(self, batch: Batch) -> Sequence[Output]:
        """Wait for a batch and return its outputs, or raise what its callback raised (StopIteration among it)."""

    def cancel(self, batch: Batch) -> None:
        """Forget a batch. Its slot is used again when no worker writes to it any more."""

    def close(self) -> None:
        """End the workers and give all memory back that nobody holds. May be called twice."""


class Stage:
    """What a pool knows of one source: its ring, and the layout and sizes that its batches have had.

    Args:
        declared: what the user says about the outputs, where anything.
        num_workers: how many share a batch; 0 where it is not shared.
    """

    def __init__(
        self,
        space: SharedSpace,
        source: Source,
        capacity: int,
        declared: Sequence[OutputLayout],
        num_workers: int,
    ) -> None:
        self.source = source
        self._space = space
        self._capacity = capacity
        self._task_size = _task_size(source, capacity, num_workers)
        self._most_region_bytes = space.size // _MAX_SLOT_SHARE // -(-capacity // self._task_size)
        self._largest_bytes = 0
        self._sized = False
        self._streaks: list[tuple[tuple[int, ...] | None, int]] = [(None, 0)] * len(declared)
        self.usual_region_bytes = 0
        #: Whether a batch has shown what samples look like. Until then only the first batch is computed.
        self.known = False
        #: Whether the layout comes from the first task of a batch that has not been delivered yet.
        self._guesses = False
        self._expected = list(declared)
        #: The layouts of the batch that was delivered last; many have the same.
        self._fixed: tuple[OutputLayout, ...] = ()
        region = self._region_bytes(_FIRST_REGION_BYTES)
        self.ring = Ring(space, Geometry(capacity, self._task_size, region, tuple(declared)))

    def begin(self, batch: Batch, ticket: int) -> Slot:
        """Give a batch a slot and write the slot's header."""
        if batch.num_shortages >= _MOST_SHORTAGES:
            batch.num_shortages = 0
            raise OutOfMemoryError(f"batches need {batch.missing_bytes >> 20} MiB, which the system refuses")
        try:
            slot = self._acquire(batch)
        except OutOfMemoryError:
            gc.collect()  # batches may be held by nothing but garbage
            self._space.drop_free()
            slot = self._acquire(batch)
        key = batch.key
        header = slot.header
        header[Header.TICKET] = ticket
        header[Header.CANCELLED] = 0
        header[Header.PROVISIONAL] = self._guesses
        header[Header.SOURCE : Header.BATCH_SIZE + 1] = key.words
        if self.source.counts:
            slot.counts[:] = UNKNOWN
        batch.begin(ticket, slot, slot.geometry.num_tasks(key.size))
        return slot

    def _acquire(self, batch: Batch) -> Slot:
        slot = self.ring.acquire(self.usual_region_bytes)
        if batch.missing_bytes and (missing := batch.missing_bytes - slot.committed_bytes) > 0:
            try:
                self._space.check(missing)
            except OutOfMemoryError:
                self.ring.release(slot)
                raise
        return slot

    def give_up_memory(self, batch: Batch, slot: Slot) -> None:
        """Take note of what a batch would have needed, and free what it has got."""
        batch.missing_bytes = batch.short_bytes + slot.committed_bytes
        batch.num_shortages += 1
        slot.discard_regions()
        self.ring.release(slot)
        if self._guesses:
            # Rows of a shape that may be wrong take memory, too.
            outputs = tuple(OutputLayout(output.dtype, output.ndim) for output in self.ring.geometry.outputs)
            self.ring.geometry = Geometry(self._capacity, self._task_size, self.ring.geometry.region_bytes, outputs)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        """Take the layout from the first task of the first batch, so that the next batches need not wait for all of it."""
        num_samples = min(slot.geometry.task_size, batch.key.size)
        if self.source.counts and slot.counts[0] not in (UNKNOWN, num_samples):
            return  # the last batch of the epoch
        try:
            layouts = first_layout(batch, slot, num_samples, self.source)
        except DaliLikeError:
            return  # the batch will fail for the same reason when it is complete
        self._adopt(layouts)
        self._guesses = True

    def end_of(self, batch: Batch, slot: Slot) -> int:
        """How many samples a batch has whose tasks have all been reported.

        Raises:
            CorruptionError: the counts are not what workers write.
        """
        size = batch.key.size
        if not self.source.counts:
            return size
        task_size = slot.geometry.task_size
        counts: list[int] = slot.counts[: slot.geometry.num_tasks(size)].tolist()
        for task, count in enumerate(counts):
            expected = min(task_size, size - task * task_size)
            if not UNKNOWN <= count <= expected:
                raise CorruptionError(
                    f"a batch of {self.source.name} has {count} samples in a task for {expected}; a callback has written "
                    "into memory that is not its own"
                )
            if count not in (UNKNOWN, expected):
                return task * task_size + count
        return size

    def finish(self, batch: Batch, slot: Slot) -> Sequence[Output] | Exception:
        """The outputs of a batch that is complete, or what there is to raise; the slot passes to them."""
        if not batch.size and not self.source.batch:
            self.ring.release(slot)
            return StopIteration()
        try:
            outputs, layouts = assemble(batch, slot, self.ring, self.source)
        except DaliLikeError as error:
            self.ring.release(slot)
            return error
        batch.is_last = batch.size < batch.key.size and not self.source.batch
        if not batch.size:
            return outputs
        batch.layouts = layouts
        if batch.described:
            self.usual_region_bytes = max(batch.region_bytes, self.usual_region_bytes * 7 // 8)
            self._largest_bytes = max(self._largest_bytes, batch.largest_region_bytes)
            self._adopt(layouts)
        if self.source.last_batch is LastBatch.FILL and batch.size < self._capacity:
            return [fill_up(output, self._capacity) for output in outputs]
        return outputs

    def check(self, batch: Batch) -> None:
        """Hold a batch against what was declared, or delivered before; what differs is its outcome from now on.

        It may have been made when dtypes were only guessed. To be called when the batch is asked for: the first in that
        order fixes them, and not the one that was made first.
        """
        layouts, batch.layouts = batch.layouts, None
        if layouts is None or layouts is self._fixed:
            return
        try:
            self._fix(batch, layouts)
        except DaliLikeError as error:
            batch.outcome = error
        if any(
            (now.dtype, now.ndim) != (fixed.dtype, fixed.ndim)
            for now, fixed in zip(self.ring.geometry.outputs, self._expected, strict=True)
        ):
            outputs = tuple(OutputLayout(fixed.dtype, fixed.ndim) for fixed in self._expected)
            self.ring.geometry = Geometry(self._capacity, self._task_size, self.ring.geometry.region_bytes, outputs)

    def _fix(self, batch: Batch, layouts: tuple[OutputLayout, ...]) -> None:
        for j, (seen, expected) in enumerate(zip(layouts, self._expected, strict=True)):
            error: DaliLikeError | None = None
            if expected.dtype not in (UNKNOWN, seen.dtype):
                error = DtypeMismatchError(dtype_text(self.source, j, DTYPES[expected.dtype], DTYPES[seen.dtype]))
            elif expected.ndim not in (UNKNOWN, seen.ndim):
                error = NdimMismatchError(ndim_text(self.source, j, expected.ndim, seen.ndim))
            if error is not None:
                add_note(error, position_note(batch, self.source, 0, ""))
                raise error
        self._expected = list(layouts)
        self._fixed = layouts
        self._guesses = False

    def enlarge(self, needed: int) -> None:
        """Make the regions so large that a task which needs `needed` bytes fits with room to spare.

        Raises:
            OutOfMemoryError: the address space is too small for it.
        """
        region = self._region_bytes(needed * 2)
        if region < needed:
            raise OutOfMemoryError(
                f"{self.source.name} returned samples of {needed >> 20} MiB in one task; the shared address space of "
                f"{self._space.size >> 20} MiB is too small for them: raise `ulimit -v` or lower the batch size"
            )
        self._largest_bytes = max(self._largest_bytes, region // _REGION_FACTOR)
        self.ring.geometry = Geometry(self._capacity, self._task_size, region, self.ring.geometry.outputs)

    def _adopt(self, seen: tuple[OutputLayout, ...]) -> None:
        """Follow what a batch has shown: new slots if that changes where samples go or how much room they need."""
        geometry = self.ring.geometry
        layouts = tuple(map(self._next_layout, range(len(seen)), geometry.outputs, seen))
        region = geometry.region_bytes
        if self._largest_bytes * _LEAST_REGION_FACTOR > region or (self._largest_bytes and not self._sized):
            self._sized = True
            region = self._region_bytes(self._largest_bytes * _REGION_FACTOR)
        self.known = True
        if layouts != geometry.outputs or region != geometry.region_bytes:
            self.ring.geometry = Geometry(self._capacity, self._task_size, region, layouts)

    def _next_layout(self, output: int, now: OutputLayout, seen: OutputLayout) -> OutputLayout:
        """Rows for the first shape of arrays, until it proves not to be the only one; again after many batches of one shape.

        A batch of one sample, say, always has one shape: following each batch would make new slots for each.
        """
        if self.source.is_object(output):
            return OutputLayout(seen.dtype, seen.ndim, None)
        if not self.known or now.shape == seen.shape:
            return seen
        shape, times = self._streaks[output]
        times = times + 1 if shape == seen.shape and shape is not None else 1
        self._streaks[output] = (seen.shape, times)
        if now.shape is None and times >= _BATCHES_TO_TRUST:
            return seen
        return OutputLayout(seen.dtype, seen.ndim, None)

    def _region_bytes(self, wanted: int) -> int:
        wanted = max(wanted, _LEAST_REGION_BYTES)
        return align(min(1 << (wanted - 1).bit_length(), self._most_region_bytes), PAGE_BYTES)


class InlinePool:
    """Computes batches in the calling thread, when they are submitted.

    Args:
        sources: with what is declared about the outputs of each.
        capacity: the largest batch.
    """

    def __init__(self, sources: Sequence[tuple[Source, Sequence[OutputLayout]]], capacity: int, space: SharedSpace) -> None:
        self._stages = [Stage(space, source, capacity, declared, 0) for source, declared in sources]
        self._cell = memoryview(bytearray(24)).cast("q")
        self._runner = TaskRunner(space, [source for source, _ in sources], self._cell)
        self._due: deque[Batch] = deque()
        #: The first samples of the batch that is due. The source may not be able to make them again.
        self._samples: deque[Any] = deque()
        self._set_up = 0  # how many sources have been
        self._closed = False

    @property
    def num_replaced(self) -> int:
        """How many samples were replaced by what a source's ``on_error`` says."""
        return int(self._cell[1])

    def submit(self, key: BatchKey) -> Batch:
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        self._set_up_sources()
        batch = Batch(key)
        self._due.append(batch)
        try:
            self._compute_due()
        except BaseException:
            self._due.remove(batch)
            raise
        return batch

    def poll(self) -> None:
        pass

    def wait(self, batch: Batch) -> Sequence[Output]:
        error = self._compute_due()
        if error is not None and batch in self._due:
            raise error
        self._stages[batch.key.source].check(batch)
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        batch.outcome = None
        batch.cancelled = True
        if batch in self._due:
            if batch is self._due[0]:
                self._samples.clear()
            self._due.remove(batch)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._due.clear()
        self._samples.clear()
        with contextlib.ExitStack() as stack:  # all are called, even if one raises
            for stage in self._stages:
                stack.callback(stage.ring.close)
            stack.callback(self._runner.close)
            for stage in reversed(self._stages[: self._set_up]):
                if stage.source.worker_teardown is not None:
                    stack.callback(self._runner.call, stage.source.worker_teardown)

    def _set_up_sources(self) -> None:
        for stage in self._stages[self._set_up :]:
            if stage.source.worker_setup is not None:
                with interruptible():
                    self._runner.call(stage.source.worker_setup)
            self._set_up += 1

    def _compute_due(self) -> OutOfMemoryError | None:
        """Compute what has been submitted, in that order; or why there is no memory to do so."""
        while self._due:
            batch = self._due[0]
            try:
                while batch.outcome is None:
                    self._compute(batch, self._stages[batch.key.source])
            except OutOfMemoryError as error:
                return error
            self._due.popleft()
        return None

    def _compute(self, batch: Batch, stage: Stage) -> None:
        """Compute a batch, or come closer to it."""
        slot = stage.begin(batch, 0)
        call = current_call.get()  # this may be in the callback of another pipeline
        try:
            with interruptible():
                status, value = self._runner.run(slot.page, 0, self._samples)
        except BaseException:
            self._samples.clear()
            stage.ring.release(slot)
            raise
        finally:
            current_call.set(call)
            batch.slot = None
        if status in (Status.DENSE, Status.DESCRIBED):
            try:
                batch.size = stage.end_of(batch, slot)
            except CorruptionError as error:
                stage.ring.release(slot)
                batch.outcome = error
                return
            if status is Status.DESCRIBED:
                batch.described = 1
                batch.region_bytes = batch.largest_region_bytes = value
            batch.outcome = stage.finish(batch, slot)
        elif status is Status.TOO_LARGE:
            self._samples = self._made(slot, stage)
            try:
                stage.enlarge(value)
            except DaliLikeError as error:
                self._samples.clear()
                batch.outcome = error
        elif status is Status.NO_MEMORY:
            batch.missing_bytes = value + slot.committed_bytes
            batch.num_shortages += 1
            self._samples = self._made(slot, stage)
        else:
            self._samples.clear()
            stage.ring.release(slot)
            batch.outcome = StopIteration() if status is Status.STOPPED else self._failure(batch, stage, value)

    def _failure(self, batch: Batch, stage: Stage, sample: int) -> Exception:
        error = self._runner.error
        self._runner.error = None
        assert error is not None
        add_note(error, position_note(batch, stage.source, sample, ""))
        return error

    def _made(self, slot: Slot, stage: Stage) -> deque[Any]:
        """The samples that lie in a slot which has become too small, and the one that it was too small for."""
        homeless, self._runner.homeless = self._runner.homeless, None
        if stage.source.batch or stage.source.concurrency is not None:
            stage.ring.release(slot)
            return deque([homeless] if stage.source.batch and homeless is not None else [])
        lease = Lease(stage.ring, slot)
        count = int(self._cell[0])
        outputs: list[Sequence[Any]] = [
            SampleList(lease, slot.space.address + slot.offset, slot.descriptors[:count, j])
            for j in range(len(slot.geometry.outputs))
        ]
        outputs = [
            [Pickled(data) for data in output] if stage.source.is_object(j) else output for j, output in enumerate(outputs)
        ]
        single = stage.source.num_outputs is None
        made: deque[Any] = deque(outputs[0] if single else zip(*outputs, strict=True))
        made.append(_leave_slot(homeless, slot) if single else tuple(_leave_slot(value, slot) for value in homeless))
        made.extend(self._samples)  # those of an earlier attempt that had not been reached
        return made


def _leave_slot(value: Any, slot: Slot) -> Any:
    """A value as it is, or a copy of an array that was made in the slot; see `SampleInfo.empty`."""
    if isinstance(value, np.ndarray) and np.may_share_memory(value, slot.space.bytes):
        return value.copy()
    return value


def _task_size(source: Source, capacity: int, num_workers: int) -> int:
    if source.batch:
        return capacity
    # What is in the making in one worker at once is one task.
    return task_size(capacity, num_workers, TASKS_PER_WORKER if source.concurrency is None else 1)


def result_of(batch: Batch) -> Sequence[Output]:
    """The outputs of a batch whose outcome is known; or its exception is raised."""
    if isinstance(batch.outcome, Exception):
        raise batch.outcome
    assert batch.outcome is not None
    return batch.outcome
