"""What a pool knows of a source: its ring, and what its batches have been like."""

from __future__ import annotations

import abc
import struct
from collections.abc import Sequence

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPES, PAGE_BYTES, UNKNOWN, Header, align
from dali_like.engine.memory.ring import Ring, Slot
from dali_like.engine.memory.slot_layout import TASKS_PER_WORKER, OutputSchema, SlotLayout, task_size
from dali_like.engine.memory.space import SharedSpace, mib
from dali_like.engine.pool.batch import Batch, Outcome, assemble, describe_sample, fill_up, first_layout, position_note
from dali_like.engine.worker.exceptions import add_note, read_message
from dali_like.engine.worker.source import LastBatch, Source, dtype_text, ndim_text
from dali_like.errors import CorruptionError, DaliLikeError, DtypeMismatchError, NdimMismatchError, OutOfMemoryError

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
#: Tasks that take less time than this are joined, and parted again if they would take longer than that.
_SHORT_TASK_NS = 5_000_000
_LONG_TASK_NS = 16_000_000
#: The regions of a slot take no more than this part of the whole address space, so that there is room for many slots; or
#: than the second part, where `ulimit -v` leaves so little that samples would not fit otherwise.
_MAX_SLOT_SHARE = 64
_MAX_LARGE_SLOT_SHARE = 8

#: Writes the words of a slot's header that say which batch it is for.
_pack_batch = struct.Struct(f"={Header.BATCH_SIZE + 1}q").pack_into


class Assembler(abc.ABC):
    """What a pool knows of one source: its ring, and how much room its batches need.

    Args:
        task_size: samples in a task.
        outputs: what is known of the outputs.
        request_bytes: room for what is sent along with a batch.

    Attributes:
        num_batches, num_samples, made_bytes: what has been made.
    """

    def __init__(
        self,
        space: SharedSpace,
        source: Source,
        capacity: int,
        task_size: int,
        outputs: Sequence[OutputSchema],
        request_bytes: int = 0,
    ) -> None:
        self.source = source
        self._space = space
        self._num_tasks = -(-capacity // task_size)
        self._most_bytes = space.size // _MAX_SLOT_SHARE  # the regions of all these tasks together
        self._largest_bytes = 0
        self._sized = False
        self.usual_region_bytes = 0
        self.num_batches = self.num_samples = self.made_bytes = 0
        #: Whether a batch has shown what samples look like.
        self.known = False
        #: Whether the layout comes from the first task of a batch that has not been delivered yet.
        self._guesses = False
        region = self._region_bytes(_FIRST_REGION_BYTES)
        self.ring = Ring(space, SlotLayout(capacity, task_size, region, tuple(outputs), request_bytes))

    @property
    def holds_back(self) -> bool:
        """Whether other batches wait until the first has shown what samples look like."""
        return not self.known

    @abc.abstractmethod
    def learn_early(self, batch: Batch, slot: Slot) -> None:
        """Take the layout from the first task of the first batch, so that the next batches need not wait for all of it."""

    @abc.abstractmethod
    def end_of(self, batch: Batch, slot: Slot) -> int:
        """How many samples a batch has whose tasks have all been reported.

        Raises:
            CorruptionError: the counts are not what workers write.
        """

    @abc.abstractmethod
    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        """The outputs of a batch that is complete, or what there is to raise; the slot passes to them."""

    @abc.abstractmethod
    def check(self, batch: Batch) -> None:
        """Hold a batch against what was declared, or delivered before; what differs is its outcome from now on.

        It may have been made when dtypes were only guessed. To be called when the batch is asked for: the first in that
        order fixes them, and not the one that was made first.
        """

    def describe(self, key: BatchKey, sample: int) -> str:
        """Which sample it is, for messages."""
        return describe_sample(key, sample)

    def describe_unfinished(self, key: BatchKey, sample: int) -> str:
        """What a worker is making that has come to this sample."""
        others = ", and perhaps others after it," if self.source.concurrency is not None else ""
        return describe_sample(key, sample, others)

    def renew(self, source: Source) -> None:
        """Take another source in the place of this one."""
        self.source = source

    def begin(self, batch: Batch, ticket: int) -> Slot:
        """Give a batch a slot and write the slot's header."""
        if batch.num_shortages >= _MOST_SHORTAGES:
            batch.num_shortages = 0
            raise OutOfMemoryError(f"batches need {batch.missing_bytes >> 20} MiB, which the system refuses")
        try:
            slot = self._acquire(batch)
        except OutOfMemoryError:
            self._space.drop_free()
            slot = self._acquire(batch)
        key = batch.key
        _pack_batch(self._space.map, slot.offset, ticket, 0, self._guesses, *key.words)
        if self.source.counts:
            slot.counts[:] = UNKNOWN
        batch.begin(ticket, slot, slot.slot_layout.num_tasks(key.size))
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
        """Let tasks have so many samples from now on; no fewer than at first."""
        now = self.ring.slot_layout
        if task_size == now.task_size:
            return
        self._num_tasks = -(-now.capacity // task_size)
        self._largest_bytes = -(-self._largest_bytes * task_size // now.task_size)
        self._use(task_size=task_size, region_bytes=self._region_bytes(now.region_bytes * task_size // now.task_size))

    def fit(self, task_ns: float, num_workers: int, num_ahead: int) -> bool:
        """Join tasks that are short, or part them again; whether there was a reason to.

        A task costs as much as a dozen samples, and may wake the main process. But long ones spread evenly, and where fewer
        batches are on their way than there were, the joined ones may be too few for all workers.

        Args:
            task_ns: how long they have taken, on the average.
            num_workers: that do them; each is to have two on their way.
            num_ahead: how many batches are.
        """
        now = self.ring.slot_layout
        usual = self.task_size_for(num_workers)
        usual_ns = task_ns * usual / now.task_size
        if now.task_size == usual and usual_ns < _SHORT_TASK_NS:
            wanted = -(-TASKS_PER_WORKER * num_workers // num_ahead)
            size = usual * -(-now.num_tasks(now.capacity) // wanted)
        elif usual_ns > _LONG_TASK_NS or now.num_tasks(now.capacity) * num_ahead < num_workers:
            size = usual
        else:
            size = now.task_size
        self.cut(size)
        return size != now.task_size

    @abc.abstractmethod
    def task_size_for(self, num_workers: int) -> int:
        """How many samples a task should have for so many workers."""

    def give_up_memory(self, batch: Batch, slot: Slot) -> None:
        """Take note of what a batch would have needed, and free what it has got."""
        batch.missing_bytes = batch.short_bytes + slot.committed_bytes
        batch.num_shortages += 1
        slot.discard_regions()
        self.ring.release(slot)
        if self._guesses:
            # Rows of a shape that may be wrong take memory, too.
            self._use(outputs=_without_rows(self.ring.slot_layout.outputs))

    def enlarge(self, needed: int, task_size: int) -> None:
        """Make the regions so large that a task of `task_size` samples which needs `needed` bytes fits with room to spare.

        Raises:
            OutOfMemoryError: the address space is too small for it.
        """
        needed = self._in_tasks_of_now(needed, task_size)
        if needed * self._num_tasks > self._most_bytes:
            self._most_bytes = min(needed * self._num_tasks * 2, self._space.size // _MAX_LARGE_SLOT_SHARE)
        region = max(self._region_bytes(needed * 2), self.ring.slot_layout.region_bytes)
        if region < needed:
            raise OutOfMemoryError(
                f"{self.source.name} returned samples of {mib(needed)} in one of {self._num_tasks} tasks; a batch may take "
                f"{mib(self._most_bytes)} of the {mib(self._space.size)} of shared address space, which is a quarter of "
                "`ulimit -v`: raise that, or lower the batch size"
            )
        self._largest_bytes = max(self._largest_bytes, region // _REGION_FACTOR)
        self._use(region_bytes=region)

    def _note_made(self, batch: Batch, slot: Slot, num_samples: int) -> None:
        """Take note of a batch that is complete."""
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
        """Take note of how much of its regions a batch has used that was made in tasks of so many samples."""
        self.usual_region_bytes = max(batch.region_bytes, self.usual_region_bytes * 7 // 8)
        self._largest_bytes = max(self._largest_bytes, self._in_tasks_of_now(batch.largest_region_bytes, task_size))

    def _in_tasks_of_now(self, nbytes: int, task_size: int) -> int:
        """How much a task would use, where one of `task_size` samples, made before the last cut perhaps, uses `nbytes`."""
        return -(-nbytes * self.ring.slot_layout.task_size // task_size)

    def _fitting_region_bytes(self) -> int:
        """How large regions should be, given what has been seen."""
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
        """Make slots of another slot_layout from now on."""
        now = self.ring.slot_layout
        wanted = (
            now.task_size if task_size is None else task_size,
            now.region_bytes if region_bytes is None else region_bytes,
            now.outputs if outputs is None else outputs,
            now.request_bytes if request_bytes is None else request_bytes,
        )
        if wanted != (now.task_size, now.region_bytes, now.outputs, now.request_bytes):
            self.ring.slot_layout = SlotLayout(now.capacity, *wanted)

    def _region_bytes(self, wanted: int) -> int:
        wanted = max(wanted, _LEAST_REGION_BYTES)
        return align(min(1 << (wanted - 1).bit_length(), self._most_bytes // self._num_tasks), PAGE_BYTES)


class ArrayAssembler(Assembler):
    """Of a source of arrays: the first batch shows what they are like, and the next ones follow.

    Args:
        declared: what the user says about the outputs, where anything.
        num_workers: how many share a batch; 0 where it is not shared.
        tasks_per_worker: into how many tasks for each of them it is cut, at most.
    """

    def __init__(
        self,
        space: SharedSpace,
        source: Source,
        capacity: int,
        declared: Sequence[OutputSchema],
        num_workers: int,
        tasks_per_worker: int = TASKS_PER_WORKER,
    ) -> None:
        size = _task_size(source, capacity, num_workers, tasks_per_worker)
        super().__init__(space, source, capacity, size, declared)
        self._tasks_per_worker = tasks_per_worker
        self._capacity = capacity
        self._streaks: list[tuple[tuple[int, ...] | None, int]] = [(None, 0)] * len(declared)
        self._expected = list(declared)
        #: The layouts of the batch that was delivered last; many have the same.
        self._fixed: tuple[OutputSchema, ...] = ()

    def task_size_for(self, num_workers: int) -> int:
        return _task_size(self.source, self._capacity, num_workers, self._tasks_per_worker)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        num_samples = min(slot.slot_layout.task_size, batch.key.size)
        if self.source.counts and slot.counts[0] not in (UNKNOWN, num_samples):
            return  # the last batch of the epoch
        try:
            layouts = first_layout(batch, slot, num_samples, self.source)
        except DaliLikeError:
            return  # the batch will fail for the same reason when it is complete
        self._adopt(layouts)
        self._guesses = True

    def end_of(self, batch: Batch, slot: Slot) -> int:
        size = batch.key.size
        if not self.source.counts:
            return size
        task_size = slot.slot_layout.task_size
        counts: list[int] = slot.counts[: slot.slot_layout.num_tasks(size)].tolist()
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

    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        if not batch.size and not self.source.batch:
            self.ring.release(slot)
            return StopIteration()
        try:
            outputs, layouts = assemble(batch, slot, self.ring, self.source)
        except DaliLikeError as error:
            self.ring.release(slot)
            return error
        self._note_made(batch, slot, batch.size)
        batch.is_last = batch.size < batch.key.size and not self.source.batch
        if not batch.size:
            return outputs
        batch.layouts = layouts
        if batch.described:
            self._note_regions(batch, slot.slot_layout.task_size)
            self._adopt(layouts)
        if self.source.last_batch is LastBatch.FILL and batch.size < self._capacity:
            return [fill_up(output, self._capacity) for output in outputs]
        return outputs

    def check(self, batch: Batch) -> None:
        layouts, batch.layouts = batch.layouts, None
        if layouts is None or layouts is self._fixed:
            return
        try:
            self._fix(batch, layouts)
        except DaliLikeError as error:
            batch.outcome = error
        if any(
            (now.dtype, now.ndim) != (fixed.dtype, fixed.ndim)
            for now, fixed in zip(self.ring.slot_layout.outputs, self._expected, strict=True)
        ):
            self._use(outputs=_without_rows(self._expected))

    def _fix(self, batch: Batch, layouts: tuple[OutputSchema, ...]) -> None:
        for j, (seen, expected) in enumerate(zip(layouts, self._expected, strict=True)):
            error: DaliLikeError | None = None
            if expected.dtype not in (UNKNOWN, seen.dtype):
                error = DtypeMismatchError(dtype_text(self.source, j, DTYPES[expected.dtype], DTYPES[seen.dtype]))
            elif expected.ndim not in (UNKNOWN, seen.ndim):
                error = NdimMismatchError(ndim_text(self.source, j, expected.ndim, seen.ndim))
            if error is not None:
                add_note(error, position_note(batch, self.source, 0))
                raise error
        self._expected = list(layouts)
        self._fixed = layouts
        self._guesses = False

    def _adopt(self, seen: tuple[OutputSchema, ...]) -> None:
        """Follow what a batch has shown: new slots if that changes where samples go or how much room they need."""
        layouts = tuple(map(self._next_layout, range(len(seen)), self.ring.slot_layout.outputs, seen))
        region = self._fitting_region_bytes()
        self.known = True
        self._use(outputs=layouts, region_bytes=region)

    def _next_layout(self, output: int, now: OutputSchema, seen: OutputSchema) -> OutputSchema:
        """Rows for the first shape of arrays, until it proves not to be the only one; again after many batches of one shape.

        A batch of one sample, say, always has one shape: following each batch would make new slots for each.
        """
        if self.source.is_object(output):
            return OutputSchema(seen.dtype, seen.ndim, None)
        if not self.known or now.shape == seen.shape:
            return seen
        shape, times = self._streaks[output]
        times = times + 1 if shape == seen.shape and shape is not None else 1
        self._streaks[output] = (seen.shape, times)
        if now.shape is None and times >= _BATCHES_TO_TRUST:
            return seen
        return OutputSchema(seen.dtype, seen.ndim, None)


class StreamAssembler(ArrayAssembler):
    """Of an iterable whose state workers take from requests; see `dali_like.engine.worker.streams`."""

    def begin(self, batch: Batch, ticket: int) -> Slot:
        return self._begin_with(batch, ticket, batch.key.request)

    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        if self.source.callback.on_state is not None:  # type: ignore[attr-defined]
            batch.state = read_message(slot.space, slot.offset + slot.slot_layout.region_offset(0), int(slot.marks[0]))
        return super().finish(batch, slot)


def _without_rows(layouts: Sequence[OutputSchema]) -> tuple[OutputSchema, ...]:
    return tuple(OutputSchema(layout.dtype, layout.ndim) for layout in layouts)


def _task_size(source: Source, capacity: int, num_workers: int, tasks_per_worker: int) -> int:
    if source.task_size is not None:
        return source.task_size(num_workers)
    if source.batch:
        return capacity
    # What is in the making in one worker at once is one task.
    return task_size(capacity, num_workers, tasks_per_worker if source.concurrency is None else 1)
