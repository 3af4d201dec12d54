"""The `Pool` interface, through which pipelines and loaders get batches, and the pool without workers.

A pool computes batches of numbered sources. `dali_like.engine.pool.pool.WorkerPool` has workers, mostly processes;
`InlinePool` computes in the calling thread. Both run the same code (`dali_like.engine.worker.runner`) on the same kind of
slots, and so return equal batches.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dali_like.common.foreign_errors import add_note, is_a
from dali_like.common.hooks import InlineHooks
from dali_like.common.interrupts import interruptible
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import Status
from dali_like.engine.memory.ring import Lease, SampleList, Slot
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler, assembler_type
from dali_like.engine.pool.batch import Batch, Output, result_of
from dali_like.engine.pool.inline_runner import InlineRunner
from dali_like.engine.pool.shortage import explain_shortage
from dali_like.engine.worker.exceptions import without_frames
from dali_like.engine.worker.meters import Reading
from dali_like.engine.worker.out_of_band import Pickled
from dali_like.engine.worker.source import Source, SourceType
from dali_like.errors import (
    ClosedError,
    CorruptionError,
    DaliLikeError,
    OutOfMemoryError,
)
from dali_like.types import current_call


class Pool(Protocol):
    """Computes batches. One thread at a time may use it."""

    def submit(self, key: BatchKey) -> Batch:
        """Begin a batch. Workers take up batches in the order of submission."""

    def poll(self) -> None:
        """Process the reports that have come, without waiting."""

    def wait(self, batch: Batch) -> Sequence[Output]:
        """Wait for a batch and return its outputs.

        Raises:
            StopIteration: the epoch has ended.
            Exception: the exception of the callback.
        """

    def cancel(self, batch: Batch) -> None:
        """Give a batch up. Its slot is reused when no worker writes to it any more."""

    def close(self) -> None:
        """Stop the workers and free all memory that no array uses. May be called twice."""


class InlinePool:
    """Computes batches in the calling thread, when they are submitted.

    Args:
        sources: each with the declared schemas of its outputs.
        capacity: the largest batch size.
        space: the shared space for the slots.

    Attributes:
        hooks: of a trace; none by default.
    """

    def __init__(self, sources: Sequence[tuple[Source, Sequence[OutputSchema]]], capacity: int, space: SharedSpace) -> None:
        self._assemblers = [
            assembler_type(source)(space, source, capacity, declared=declared, num_workers=0) for source, declared in sources
        ]
        self._space = space
        self._runner = InlineRunner(space, [source for source, _ in sources])
        self._due: deque[Batch] = deque()
        #: The first samples of the batch that is due. The source may be unable to compute them again.
        self._samples: deque[Any] = deque()
        self._closed = False
        self.hooks = InlineHooks()

    @property
    def num_replaced(self) -> int:
        """The number of samples that ``on_error`` has replaced."""
        return self._runner.num_replaced

    @property
    def assemblers(self) -> Sequence[Assembler]:
        """The assembler of each source."""
        return self._assemblers

    @property
    def readings(self) -> list[Reading]:
        """The measurements of each source."""
        return self._runner.readings

    def submit(self, key: BatchKey) -> Batch:
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        self._runner.set_up()
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
            self._space.reclaim()
            error = self._compute_due()
        if error is not None and batch in self._due:
            error = explain_shortage(error, self._space, self._assemblers, self._count_begun)
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame, and so to the batch
        self._assemblers[batch.key.source].check(batch)
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
        with contextlib.ExitStack() as stack:  # closes everything, even if a teardown raises
            for assembler in self._assemblers:
                stack.callback(assembler.ring.close)
            stack.callback(self._runner.close)

    def _count_begun(self, source: int) -> int:
        return sum(batch.key.source == source for batch in self._due)

    def _compute_due(self) -> OutOfMemoryError | None:
        """Compute the submitted batches, in order. Return the error if there is no memory for the next one."""
        while self._due:
            batch = self._due[0]
            try:
                while batch.outcome is None:
                    if self.hooks.compute is None:
                        self._compute(batch, self._assemblers[batch.key.source])
                    else:
                        self.hooks.compute(self._compute, batch, self._assemblers[batch.key.source])
            except OutOfMemoryError as error:
                return without_frames(error)
            self._due.popleft()
        return None

    def _compute(self, batch: Batch, assembler: Assembler) -> None:
        """Try to compute a batch. If its slot is too small, the next attempt gets a larger one."""
        slot = assembler.begin(batch, 0)
        call = current_call.get()  # this may run in a callback of another pipeline
        try:
            with interruptible():
                status, value = self._runner.run(slot.page, 0, self._samples)
        except BaseException as error:
            if is_a(error, KeyboardInterrupt):
                add_note(
                    error,
                    f"while {assembler.source.name} was computing "
                    f"{assembler.describe_unfinished(batch.key, self._runner.sample)}",
                )
            self._samples.clear()
            assembler.ring.release(slot)
            raise
        finally:
            current_call.set(call)
            batch.slot = None
        if status in (Status.DENSE, Status.DESCRIBED):
            try:
                batch.size = assembler.end_of(batch, slot)
            except CorruptionError as error:
                assembler.ring.release(slot)
                batch.outcome = error
                return
            if status is Status.DESCRIBED:
                batch.described = 1
                batch.region_bytes = batch.largest_region_bytes = value
                batch.schemas = self._runner.schemas
            batch.outcome = assembler.finish(batch, slot)
            if slot.slot_layout is not assembler.ring.slot_layout:
                slot.give_up_address_space()
        elif status is Status.TOO_LARGE:
            self._samples = self._made(slot, assembler)
            try:
                assembler.enlarge(value, slot.slot_layout.task_size)
            except DaliLikeError as error:
                self._samples.clear()
                batch.outcome = error
        elif status is Status.NO_MEMORY:
            batch.missing_bytes = value + slot.committed_bytes
            batch.num_shortages += 1
            assembler.note_need(slot)
            self._samples = self._made(slot, assembler)
        else:
            self._samples.clear()
            assembler.ring.release(slot)
            batch.failed_sample = value
            batch.outcome = StopIteration() if status is Status.STOPPED else self._runner.take_error(batch, value)

    def _made(self, slot: Slot, assembler: Assembler) -> deque[Any]:
        """Return the samples in a slot that was too small, and the sample that did not fit."""
        unplaced, self._runner.unplaced = self._runner.unplaced, None
        if assembler.source.type is SourceType.PARTS:
            assembler.ring.release(slot)
            return deque()  # its callback can compute them again
        if assembler.source.batch or assembler.source.concurrency is not None:
            assembler.ring.release(slot)
            return deque([unplaced] if assembler.source.batch and unplaced is not None else [])
        lease = Lease(assembler.ring, slot)
        count = self._runner.sample
        outputs: list[Sequence[Any]] = [
            SampleList(lease, slot.space.address + slot.offset, slot.descriptors[:count, j])
            for j in range(len(slot.slot_layout.outputs))
        ]
        outputs = [
            [Pickled(data) for data in output] if assembler.source.is_object(j) else output
            for j, output in enumerate(outputs)
        ]
        single = assembler.source.num_outputs is None
        made: deque[Any] = deque(outputs[0] if single else zip(*outputs, strict=True))
        made.append(_leave_slot(unplaced, slot) if single else tuple(_leave_slot(value, slot) for value in unplaced))
        made.extend(self._samples)  # samples of an earlier attempt, not used in this one
        return made


def _leave_slot(value: Any, slot: Slot) -> Any:
    """Return a value; copy an array that lies in the slot, see `SampleInfo.empty`."""
    if isinstance(value, np.ndarray) and np.may_share_memory(value, slot.space.bytes):
        return value.copy()
    return value
