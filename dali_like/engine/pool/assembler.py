"""Assemblers: begin batches of one source in slots, learn their schema, and turn finished slots into arrays.

Runs in the main process. An assembler owns the ring of its source.
"""

from __future__ import annotations

import abc
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.foreign_errors import add_note
from dali_like.engine.memory.batch_key import NUM_KEY_WORDS, BatchKey
from dali_like.engine.memory.protocol import DTYPES, PAGE_BYTES, UNKNOWN, WORD_BYTES, Header, align
from dali_like.engine.memory.ring import Lease, Ring, Slot
from dali_like.engine.memory.schema_learner import SchemaLearner
from dali_like.engine.memory.slot_layout import TASKS_PER_WORKER, OutputSchema, SlotLayout, task_size
from dali_like.engine.memory.space import SharedSpace, mib
from dali_like.engine.pool.batch import (
    Batch,
    Outcome,
    Output,
    Response,
    assemble,
    assemble_places,
    describe_sample,
    fill_up,
    position_note,
    schemas_at,
)
from dali_like.engine.pool.sharing import LEAST_SAMPLES, Sharing, Size
from dali_like.engine.worker.exceptions import read_message
from dali_like.engine.worker.neighbors import NeighborCounts
from dali_like.engine.worker.out_of_band import OutOfBandPickle
from dali_like.engine.worker.requests import SCHEMA_BYTES, RequestHandler, Schema
from dali_like.engine.worker.source import LastBatch, Source, SourceType, check_array
from dali_like.engine.worker.streams import asks_for_state
from dali_like.engine.worker.task import most_committed
from dali_like.errors import CorruptionError, DaliLikeError, OutOfMemoryError

if TYPE_CHECKING:
    from dali_like.engine.worker.parts import PartReport

#: Address space of a task's region: before the first batch, and the minimum after it.
_FIRST_REGION_BYTES = 1 << 32
_LEAST_REGION_BYTES = 1 << 20
#: The minimum where other spaces may share the file. There, samples that do not fit are not computed again.
_LEAST_SHARED_REGION_BYTES = 1 << 16
#: New regions have room for tasks 16 times as large as the largest so far. Regions are replaced when the factor is below 4.
_REGION_FACTOR = 16
_LEAST_REGION_FACTOR = 4
#: An output with varying shapes gets rows again after this many batches of one shape.
_BATCHES_TO_TRUST = 8
#: Attempts at a batch that there should be memory for, before an error.
_MOST_SHORTAGES = 3
#: Tasks shorter than the first are joined. Joined tasks are split again if they take longer than the second.
_SHORT_TASK_NS = 5_000_000
_LONG_TASK_NS = 16_000_000
#: A batch that takes less altogether is one task. Each task costs the worker and the main process about 20 us, and the main
#: process is then busier than a worker.
_TINY_BATCH_NS = 100_000
#: The regions of a slot take at most 1/64 of the address space, so that there is room for many slots. They take up to 1/8
#: if `ulimit -v` leaves so little that samples would not fit otherwise.
_MAX_SLOT_SHARE = 64
_MAX_LARGE_SLOT_SHARE = 8

#: Room for the first request of a request source.
_FIRST_REQUEST_BYTES = 1 << 11
#: Workers collate whole batches for a while after two batches in a row with another schema than expected, or after some
#: among others. A batch of another schema costs about as much as several that fit, and one among many does not matter.
_COST_OF_DIFFERENT, _MOST_COSTS = 4, 8
#: How many batches that are at first. The number doubles each time, so that few batches are tried in vain.
_FIRST_WHOLE, _MOST_WHOLE = 64, 4096

#: Writes the first words of a slot's header, which identify the batch.
_pack_batch = struct.Struct(f"={Header.BATCH_SIZE + 1}q").pack_into


class Assembler(abc.ABC):
    """Begins and finishes the batches of one source.

    Args:
        capacity: maximum number of samples of a batch.
        task_size: samples in a task.
        outputs: the schema of each output, as far as it is known.
        request_bytes: room for the request of a batch.

    Attributes:
        source: the source; `use` changes it.
        task_size: samples in a task of the slots from now on.
        ring: its slots.
        known: whether a batch has shown the schema of the samples.
        usual_region_bytes: usual memory of all regions of a batch together; decays slowly.
        num_batches, num_samples, made_bytes: totals of finished batches.
        sharing: decides whether workers share batches; None: that is fixed.
    """

    sharing: Sharing | None = None

    def __init__(
        self,
        space: SharedSpace,
        source: Source,
        capacity: int,
        task_size: int,
        *,
        outputs: Sequence[OutputSchema],
        request_bytes: int = 0,
    ) -> None:
        self.use(source)
        self._space = space
        self.task_size = task_size
        self._num_tasks = -(-capacity // task_size)
        self._most_bytes = space.size // _MAX_SLOT_SHARE  # of all regions of a slot together
        self._least_bytes = _LEAST_SHARED_REGION_BYTES if space.shares_file else _LEAST_REGION_BYTES
        self._largest_bytes = 0
        self._sized = False
        self.usual_region_bytes = 0
        self._needed_bytes = 0  # estimate of the regions of a batch that ran out of memory
        self.num_batches = self.num_samples = self.made_bytes = 0
        self.known = False
        #: Whether the schema comes from the first task of a batch that has not been delivered yet.
        self._guesses = False
        region = self._region_bytes(_FIRST_REGION_BYTES)
        self.ring = Ring(space, SlotLayout(capacity, task_size, region, tuple(outputs), request_bytes))

    @property
    def needs_first_batch(self) -> bool:
        """Whether further batches wait until the first one has shown the schema of the samples."""
        return not self.known

    @property
    def batch_bytes(self) -> int:
        """An upper estimate of the memory of a batch, in bytes; 0 if no batch has shown the size of samples."""
        slot_layout = self.ring.slot_layout
        if slot_layout.outputs and slot_layout.all_dense:
            return slot_layout.resident_bytes
        regions = max(self.usual_region_bytes, self._needed_bytes)
        return slot_layout.resident_bytes + most_committed(regions, self._num_tasks) if regions else 0

    @abc.abstractmethod
    def learn_early(self, batch: Batch, slot: Slot) -> None:
        """Take the schema from the first task of the first batch, so that further batches can begin early."""

    @abc.abstractmethod
    def end_of(self, batch: Batch, slot: Slot) -> int:
        """Return the number of samples of a batch whose tasks have all been reported.

        Raises:
            CorruptionError: workers cannot have written these counts.
        """

    @abc.abstractmethod
    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        """Return the outputs of a complete batch, which then own the slot, or the exception to raise."""

    @abc.abstractmethod
    def check(self, batch: Batch) -> None:
        """Compare a batch with the declared schema, or with batches delivered before. A mismatch becomes its outcome.

        Call it when the batch is delivered: the first delivered batch fixes the dtypes, and not the first computed one. The
        batch may have been computed when dtypes were a guess.
        """

    def describe(self, key: BatchKey, sample: int) -> str:
        """Describe a sample for messages."""
        return describe_sample(key, sample)

    def describe_unfinished(self, key: BatchKey, sample: int) -> str:
        """Describe the work of a worker that has reached this sample, for messages."""
        others = ", and perhaps others after it," if self.source.concurrency is not None else ""
        return describe_sample(key, sample, others)

    def use(self, source: Source) -> None:
        """Replace the source by another one of the same samples."""
        self.source = source
        self._counts = source.counts

    def renew(self, source: Source) -> None:
        """Replace the source, and forget its schema where it may differ."""
        self.use(source)

    def begin(self, batch: Batch, ticket: int) -> Slot:
        """Give a batch a slot, and write the header of the slot.

        Raises:
            OutOfMemoryError: there is no memory for a slot.
        """
        if batch.num_shortages >= _MOST_SHORTAGES:
            batch.num_shortages = 0
            raise OutOfMemoryError(
                f"batches need {mib(batch.missing_bytes)}, which the system refuses; lower the batch size or the prefetch "
                "depths, or give the process more memory"
            )
        try:
            slot = self._acquire(batch) if batch.missing_bytes else self.ring.acquire(self.usual_region_bytes)
        except OutOfMemoryError:
            self._space.drop_free()
            slot = self._acquire(batch)
        _pack_batch(self._space.map, slot.offset, ticket, 0, self._guesses, *batch.key[:NUM_KEY_WORDS])
        if self._counts:
            slot.counts[:] = UNKNOWN
        batch.begin(ticket, slot)
        return slot

    def _begin_with(self, batch: Batch, ticket: int, request: bytes) -> Slot:
        """As `begin`, and write the request that workers read."""
        if len(request) > self.ring.slot_layout.request_bytes:
            self._use(request_bytes=1 << len(request).bit_length())
        slot = Assembler.begin(self, batch, ticket)
        start = slot.offset + slot.slot_layout.request_offset
        slot.space.map[start : start + len(request)] = request
        slot.header[Header.REQUEST_BYTES] = len(request)
        return slot

    def cut(self, task_size: int) -> None:
        """Set the number of samples in a task. It must not be smaller than the first one."""
        now = self.ring.slot_layout
        if task_size == now.task_size:
            return
        self._num_tasks = -(-now.capacity // task_size)
        self._largest_bytes = -(-self._largest_bytes * task_size // now.task_size)
        # All regions together keep their size, so that slots keep their memory.
        regions = now.num_tasks(now.capacity) * now.region_bytes
        region = regions // self._num_tasks // PAGE_BYTES * PAGE_BYTES
        self._use(task_size=task_size, region_bytes=region)

    def fit(self, task_ns: float, num_workers: int, num_ahead: int) -> bool:
        """Join short tasks, or split them again. Return whether the size changed.

        The overhead of a task is that of about a dozen samples, and its report may wake the main process. But long tasks
        even out the load of workers, and joined tasks may be too few for all workers if fewer batches are in flight than
        before.

        Args:
            task_ns: mean time of a task, in nanoseconds.
            num_workers: number of workers; each should have two tasks.
            num_ahead: number of batches in flight.
        """
        now = self.ring.slot_layout
        if self.source.in_order or not (self.sharing is None or self.sharing.size is Size.USUAL):
            return False  # each task has its worker, or its size is being tried
        usual = self.task_size_for(num_workers)
        usual_ns = task_ns * usual / now.task_size
        if task_ns * now.capacity < _TINY_BATCH_NS * now.task_size:
            size = now.capacity
        elif now.task_size == usual and usual_ns < _SHORT_TASK_NS:
            wanted = -(-TASKS_PER_WORKER * num_workers // num_ahead)
            size = usual * -(-now.num_tasks(now.capacity) // wanted)
        elif usual_ns > _LONG_TASK_NS or now.num_tasks(now.capacity) * num_ahead < num_workers:
            size = usual
        else:
            size = now.task_size
        self.cut(size)
        return size != now.task_size

    def fit_sharing(self, parts: NeighborCounts, wholes: NeighborCounts, num_workers: int, num_ahead: int) -> bool:
        """Decide whether workers share batches. Return whether the decision has changed; see `Sharing.look`."""
        if self.sharing is None or num_workers < 2:
            return False
        are_single = self._usual_task_size(num_workers) == 1
        changes = self.sharing.look(parts, wholes, are_single=are_single, num_workers=num_workers, num_ahead=num_ahead)
        if changes:
            self.cut(self.task_size_for(num_workers))
        return changes

    def task_size_for(self, num_workers: int) -> int:
        """Return the number of samples in a task for a number of workers, without joining."""
        usual = self._usual_task_size(num_workers)
        if self.sharing is None or self.sharing.size is Size.USUAL:
            return usual
        return max(usual, 2) if self.sharing.size is Size.PAIRS else self.ring.slot_layout.capacity

    @abc.abstractmethod
    def _usual_task_size(self, num_workers: int) -> int:
        """Return the number of samples in a task if workers share batches."""

    def give_up_memory(self, batch: Batch, slot: Slot) -> None:
        """Record the memory that a batch lacked, and release its slot with all its memory."""
        batch.missing_bytes = batch.short_bytes + slot.committed_bytes
        batch.num_shortages += 1
        self.note_need(slot)
        slot.discard_regions()
        self.ring.release(slot)

    def note_need(self, slot: Slot) -> None:
        """Record the memory that the tasks of a batch have estimated before they ran out of it."""
        needed = int(slot.header[Header.NEEDED_BYTES])
        slot.header[Header.NEEDED_BYTES] = 0
        if 0 < needed < self._space.size:  # else a callback has written outside of its own memory
            needed = -(-needed * self._num_tasks * self.ring.slot_layout.task_size // slot.slot_layout.task_size)
            self._needed_bytes = max(self._needed_bytes, needed)

    def enlarge(self, needed: int, task_size: int) -> None:
        """Enlarge the regions, so that a task of `task_size` samples with `needed` bytes fits with room to spare.

        Raises:
            OutOfMemoryError: the address space is too small.
        """
        needed = self._in_tasks_of_now(needed, task_size)
        if needed * self._num_tasks > self._most_bytes:
            self._most_bytes = min(needed * self._num_tasks * 2, self._space.size // _MAX_LARGE_SLOT_SHARE)
        region = max(self._region_bytes(needed * 2), self.ring.slot_layout.region_bytes)
        if region < needed:
            raise OutOfMemoryError(
                f"{self.source.name} returned samples of {mib(needed)} in one of {self._num_tasks} tasks; a batch may take "
                f"{mib(self._most_bytes)} of the {mib(self._space.size)} of shared address space: lower the batch size, or "
                "raise `ulimit -v` or max_held_bytes"
            )
        self._largest_bytes = max(self._largest_bytes, region // _REGION_FACTOR)
        self._use(region_bytes=region)

    def _note_made(self, batch: Batch, slot: Slot, num_samples: int) -> None:
        """Count a complete batch."""
        self.num_batches += 1
        self.num_samples += num_samples
        self.made_bytes += batch.size * slot.slot_layout.sample_bytes + batch.region_bytes

    def _acquire(self, batch: Batch) -> Slot:
        slot = self.ring.acquire(self.usual_region_bytes)
        if batch.missing_bytes and (missing := batch.missing_bytes - slot.committed_bytes) > 0:
            try:
                self._space.check(missing)
            except OutOfMemoryError:
                self.ring.release(slot)
                raise
        return slot

    def _note_regions(self, batch: Batch, task_size: int) -> None:
        """Record the use of regions by a batch that was computed in tasks of `task_size` samples."""
        self.usual_region_bytes = max(batch.region_bytes, self.usual_region_bytes * 7 // 8)
        self._largest_bytes = max(self._largest_bytes, self._in_tasks_of_now(batch.largest_region_bytes, task_size))

    def _in_tasks_of_now(self, nbytes: int, task_size: int) -> int:
        """Scale the bytes of a task of `task_size` samples to the current size of tasks."""
        return -(-nbytes * self.ring.slot_layout.task_size // task_size)

    def _fitting_region_bytes(self) -> int:
        """Return the size of regions for the batches seen so far."""
        region = self.ring.slot_layout.region_bytes
        if self._largest_bytes * _LEAST_REGION_FACTOR > region or (self._largest_bytes and not self._sized):
            self._sized = True
            return self._region_bytes(self._largest_bytes * _REGION_FACTOR)
        return region

    def _use(
        self,
        *,
        outputs: tuple[OutputSchema, ...] | None = None,
        region_bytes: int | None = None,
        request_bytes: int | None = None,
        task_size: int | None = None,
    ) -> None:
        """Change the layout of slots from now on, if anything differs."""
        now = self.ring.slot_layout
        wanted = (
            now.task_size if task_size is None else task_size,
            now.region_bytes if region_bytes is None else region_bytes,
            now.outputs if outputs is None else outputs,
            now.request_bytes if request_bytes is None else request_bytes,
        )
        if wanted != (now.task_size, now.region_bytes, now.outputs, now.request_bytes):
            self.ring.slot_layout = SlotLayout(now.capacity, *wanted, most_tasks=now.most_tasks)
            self.task_size = wanted[0]

    def _region_bytes(self, wanted: int) -> int:
        wanted = max(wanted, self._least_bytes)
        return align(min(1 << (wanted - 1).bit_length(), self._most_bytes // self._num_tasks), PAGE_BYTES)


class ArrayAssembler(Assembler):
    """Assembler of a source of arrays. The first batch shows the schema, and later batches follow it.

    Args:
        declared: the declared schema of each output; UNKNOWN where the user declares nothing.
        num_workers: workers that share a batch; 0: one task has all samples.
        tasks_per_worker: maximum number of tasks of a batch for each worker.
    """

    def __init__(
        self,
        space: SharedSpace,
        source: Source,
        capacity: int,
        *,
        declared: Sequence[OutputSchema],
        num_workers: int,
        tasks_per_worker: int = TASKS_PER_WORKER,
    ) -> None:
        size = _task_size(source, capacity, num_workers, tasks_per_worker)
        super().__init__(space, source, capacity, size, outputs=declared)
        self._tasks_per_worker = tasks_per_worker
        self._capacity = capacity
        if source.measures_sharing and capacity >= LEAST_SAMPLES:
            self.sharing = Sharing()
        self._shapes = [SchemaLearner[tuple[int, ...]](trust=_BATCHES_TO_TRUST) for _ in declared]
        self._expected = list(declared)
        #: The schemas of the last delivered batch. Dense batches share one tuple, so `check` compares identities.
        self._fixed: tuple[OutputSchema, ...] = ()

    def _usual_task_size(self, num_workers: int) -> int:
        return _task_size(self.source, self._capacity, num_workers, self._tasks_per_worker)

    def give_up_memory(self, batch: Batch, slot: Slot) -> None:
        super().give_up_memory(batch, slot)
        if self._guesses:
            # Rows take memory for a guessed shape, which may be wrong.
            self._drop_rows(self.ring.slot_layout.outputs)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        num_samples = min(slot.slot_layout.task_size, batch.key.size)
        if self._counts and slot.counts[0] not in (UNKNOWN, num_samples):
            return  # the last batch of an epoch may be too short to learn from
        try:
            schemas = schemas_at(batch, slot, slice(num_samples), self.source)
        except DaliLikeError:
            return  # the complete batch will fail for the same reason
        self._adopt(schemas)
        self._guesses = True

    def end_of(self, batch: Batch, slot: Slot) -> int:
        size = batch.key.size
        if not self._counts:
            return size
        task_size = slot.slot_layout.task_size
        counts: list[int] = slot.counts[: slot.slot_layout.num_tasks(size)].tolist()
        for task, count in enumerate(counts):
            expected = min(task_size, size - task * task_size)
            if not UNKNOWN <= count <= expected:
                raise CorruptionError(
                    f"a batch of {self.source.name} has {count} samples in a task for {expected}: a callback has written "
                    "outside of its own memory; check the native code that it uses"
                )
            if count not in (UNKNOWN, expected):
                return task * task_size + count
        return size

    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        if not batch.size and self.source.ends_short:
            self.ring.release(slot)
            return StopIteration()
        try:
            outputs, schemas = self._assemble(batch, slot)
        except DaliLikeError as error:
            self.ring.release(slot)
            return error
        self._note_made(batch, slot, batch.size)
        batch.is_last = batch.size < batch.key.size and self.source.ends_short
        if not batch.size:
            return outputs
        batch.schemas = schemas
        if batch.described:
            self._note_regions(batch, slot.slot_layout.task_size)
            self._adopt(schemas)
        if self.source.last_batch is LastBatch.FILL and batch.size < self._capacity:
            return [fill_up(output, self._capacity) for output in outputs]
        return outputs

    def _assemble(self, batch: Batch, slot: Slot) -> tuple[list[Output], tuple[OutputSchema, ...]]:
        return assemble(batch, slot, self.ring, self.source)

    def check(self, batch: Batch) -> None:
        schemas, batch.schemas = batch.schemas, None
        if schemas is None or schemas is self._fixed or schemas == self._fixed:
            return
        try:
            self._fix(batch, schemas)
        except DaliLikeError as error:
            batch.outcome = error
        if any(
            (now.dtype, now.ndim) != (fixed.dtype, fixed.ndim)
            for now, fixed in zip(self.ring.slot_layout.outputs, self._expected, strict=True)
        ):
            self._drop_rows(self._expected)

    def _fix(self, batch: Batch, schemas: tuple[OutputSchema, ...]) -> None:
        try:
            for output, (seen, expected) in enumerate(zip(schemas, self._expected, strict=True)):
                check_array(DTYPES[seen.dtype], seen.ndim, expected.dtype, expected.ndim, self.source, output)
        except DaliLikeError as error:
            add_note(error, position_note(batch, self.source, 0))
            raise
        self._expected = list(schemas)
        self._fixed = schemas
        self._guesses = False

    def _adopt(self, seen: tuple[OutputSchema, ...]) -> None:
        """Adopt the schemas of a batch. This changes the layout of slots if samples go elsewhere or need more room."""
        is_object = self.source.is_object
        schemas = tuple(
            OutputSchema(schema.dtype, schema.ndim, None if is_object(output) else shapes.note(schema.shape))
            for output, (schema, shapes) in enumerate(zip(seen, self._shapes, strict=True))
        )
        region = self._fitting_region_bytes()
        self.known = True
        self._use(outputs=schemas, region_bytes=region)

    def _drop_rows(self, schemas: Sequence[OutputSchema]) -> None:
        """Let samples of these schemas go to regions."""
        for shapes in self._shapes:
            shapes.drop()
        self._use(outputs=tuple(OutputSchema(schema.dtype, schema.ndim) for schema in schemas))


class StreamAssembler(ArrayAssembler):
    """Assembles batches of a stream whose state travels with requests; see `dali_like.engine.worker.streams`."""

    def begin(self, batch: Batch, ticket: int) -> Slot:
        return self._begin_with(batch, ticket, batch.key.request)

    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        if asks_for_state(batch.key.request):
            batch.state = read_message(slot.space, slot.offset + slot.slot_layout.region_offset(0), int(slot.marks[0]))
        return super().finish(batch, slot)


class PartAssembler(ArrayAssembler):
    """Assembles batches whose tasks are parts; see `dali_like.engine.worker.parts`."""

    def begin(self, batch: Batch, ticket: int) -> Slot:
        return self._begin_with(batch, ticket, batch.key.request)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        try:
            report = _report_of(batch, slot, 0, self.source)
            if not report.num_samples or report.in_rows:
                return
            schemas = schemas_at(batch, slot, report.places, self.source)
        except DaliLikeError:
            return  # the complete batch will fail for the same reason
        self._adopt(schemas)
        self._guesses = True

    def end_of(self, batch: Batch, slot: Slot) -> int:
        return batch.key.stop

    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        try:
            reports = [_report_of(batch, slot, task, self.source) for task in range(batch.num_tasks)]
        except CorruptionError as error:
            self.ring.release(slot)
            return error
        batch.reports = reports
        batch.size = sum(report.num_samples for report in reports)
        return super().finish(batch, slot)

    def _assemble(self, batch: Batch, slot: Slot) -> tuple[list[Output], tuple[OutputSchema, ...]]:
        if batch.size == batch.key.size and slot.slot_layout.all_dense and all(report.in_rows for report in batch.reports):
            batch.described = 0
            return assemble(batch, slot, self.ring, self.source)
        places = sorted(place for report in batch.reports for place in report.places)
        if places and not 0 <= places[0] <= places[-1] < batch.key.size:
            raise _invalid_report(self.source)
        in_rows = [place for report in batch.reports if report.in_rows for place in report.places]
        return assemble_places(batch, slot, self.ring, self.source, places, in_rows)


class RequestAssembler(Assembler):
    """Assembler of a request source. It sends the request and the expected schema with each batch.

    `dali_like.engine.worker.requests` is its counterpart in workers.
    """

    def __init__(self, space: SharedSpace, source: Source, capacity: int, num_workers: int) -> None:
        assert source.task_size is not None
        super().__init__(
            space, source, capacity, source.task_size(num_workers), outputs=(), request_bytes=_FIRST_REQUEST_BYTES
        )
        if source.measures_sharing and capacity >= LEAST_SAMPLES:
            self.sharing = Sharing(is_whole=self._fetcher.recalls_whole())
            self.cut(self.task_size_for(num_workers))
        self._schema = SchemaLearner[Schema](cost=_COST_OF_DIFFERENT, most_costs=_MOST_COSTS)
        if (recalled := self._fetcher.recall()) is not None:
            self._expect(recalled)
            # No first batch will show how little they need, and programs hold more batches than regions of the first size.
            rows_bytes = self.ring.slot_layout.sample_bytes * self.task_size
            self._use(region_bytes=self._region_bytes(rows_bytes * _REGION_FACTOR))
        self._num_whole = _FIRST_WHOLE

    @property
    def _fetcher(self) -> RequestHandler:
        return self.source.handler

    def renew(self, source: Source) -> None:
        super().renew(source)
        self._expect(None)
        self.known = False

    def begin(self, batch: Batch, ticket: int) -> Slot:
        schema = self._schema.expected
        packed = b"" if schema is None else schema.packed
        text = SCHEMA_BYTES.pack(len(packed)) + packed + batch.key.request
        slot = self._begin_with(batch, ticket, text)
        batch.schema = schema
        return slot

    @property
    def needs_first_batch(self) -> bool:
        return False  # until the schema is known, samples go into pickles

    def fit_sharing(self, parts: NeighborCounts, wholes: NeighborCounts, num_workers: int, num_ahead: int) -> bool:
        changes = super().fit_sharing(parts, wholes, num_workers, num_ahead)
        if self.sharing is not None and self.sharing.is_settled:
            self._fetcher.note_whole(self.sharing.size is Size.WHOLE)
        return changes

    def _usual_task_size(self, num_workers: int) -> int:
        assert self.source.task_size is not None
        return self.source.task_size(num_workers)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        try:
            message = OutOfBandPickle.of_task(slot, 0).load(copies=True)
        except (Exception, SystemExit):  # raised again when the batch is delivered
            return
        self._learn(message)

    def end_of(self, batch: Batch, slot: Slot) -> int:
        return max(batch.key.size, batch.key.parts)  # `BatchKey.stop`, without a call

    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        if not self.known:
            self.learn_early(batch, slot)
            self.known = True
        try:
            response = Response(batch, slot, Lease(self.ring, slot), batch.schema)
        except CorruptionError as error:
            return error
        self._note_made(batch, slot, max(batch.key.size, batch.key.parts - 1))
        if batch.described:
            self._note_regions(batch, slot.slot_layout.task_size)
            self._use(region_bytes=self._fitting_region_bytes())
        return response

    def check(self, batch: Batch) -> None:
        pass

    def describe(self, key: BatchKey, sample: int) -> str:
        try:
            return self._fetcher.describe(key, sample)
        except Exception:  # keys of a sampler may be any objects, and raise when they are unpickled
            return super().describe(key, sample)

    describe_unfinished = describe

    def note_fit(self) -> None:
        """Record that all samples of a batch had the expected schema."""
        self._schema.note_fit()

    def note_different(self, schema: Schema | None, message: Any) -> None:
        """Learn a schema, or count batches with another one: where schemas change, workers collate better.

        Args:
            schema: that was expected of the samples of a batch, which had another one.
            message: the pickle of one of its tasks.
        """
        if schema is not self._schema.expected:
            return  # the batch was begun before the expectation changed
        if schema is None:
            self._learn(message)
        elif self._schema.note_different():
            self._use(outputs=())
            self._fetcher.make_whole(self._num_whole)
            self._num_whole = min(2 * self._num_whole, _MOST_WHOLE)

    def _learn(self, message: Any) -> None:
        self._expect(self._fetcher.learn(message))

    def _expect(self, schema: Schema | None) -> None:
        self.known = True
        self._schema.begin(schema)
        self._use(outputs=() if schema is None else schema.layouts)


def _report_of(batch: Batch, slot: Slot, task: int, source: Source) -> PartReport:
    """Return the report of a task.

    Raises:
        CorruptionError: a worker cannot have written it.
    """
    from dali_like.engine.worker.parts import PartReport, part_of  # few sources work in parts

    if not batch.described >> task & 1:  # all samples of the part are in their rows
        places = source.callback.places_of(part_of(batch.key.request, task))
        return PartReport(len(places) // WORD_BYTES, True, places, b"")
    start, room = slot.offset + slot.slot_layout.region_offset(task), int(slot.marks[task])
    if 0 < room <= slot.slot_layout.region_bytes:
        offset = int(slot.space.array(start, (1,), np.dtype(np.int64))[0])
        report = PartReport.unpack(read_message(slot.space, start + offset, room - offset)) if 0 < offset < room else None
        if report is not None and report.num_samples <= batch.key.size:
            return report
    raise _invalid_report(source)


def _invalid_report(source: Source) -> CorruptionError:
    return CorruptionError(
        f"the report of a task of {source.name} is invalid: a callback has written outside of its own memory; check the "
        "native code that it uses"
    )


def assembler_type(source: Source) -> type[ArrayAssembler]:
    """Return the class of the assembler of a source of arrays."""
    if source.type is SourceType.PARTS:
        return PartAssembler
    return StreamAssembler if source.takes_state else ArrayAssembler


def _task_size(source: Source, capacity: int, num_workers: int, tasks_per_worker: int) -> int:
    if source.task_size is not None:
        return source.task_size(num_workers)
    if source.batch:
        return capacity
    # A worker computes the samples of one task concurrently, so a worker gets one task.
    return task_size(capacity, num_workers, tasks_per_worker if source.concurrency is None else 1)
