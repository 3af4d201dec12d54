"""Random programs that hold batches, parts of them and views of those, and let them go in any order.

Meanwhile shapes change, epochs are left early, memory runs out and comes back, pipelines are closed. What must stay true:
nothing that is held changes; no memory has two owners; what nobody holds or keeps for later is free; when nothing is held,
no memory is left.

`Rings` has rings, leases and a space to itself; `Pipelines` has whole pipelines, in the main process or with forked workers.
The programs are the same in every run.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.engine.memory.protocol import DTYPE_CODES, PAGE_BYTES, Word
from dali_like.engine.memory.ring import Lease, Ring, SampleList, Slot, leased_array
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import ClosedError, OutOfMemoryError
from dali_like.graph.execution.buffers import BufferPool
from dali_like.graph.language.operator_interface import SampleShape
from dali_like.tensors import TensorListCPU
from dali_like.types import SampleInfo
from tests.internals import free_of, returned_of, space_of

#: Programs that are the same in every run, and do not depend on how fast the machine is.
FIXED = settings(derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
#: A limit that no program here reaches.
ROOMY_BYTES = 1 << 32
#: Which one of several a step is about, modulo their number.
any_of_them = st.integers(0, 1000)
Extent = tuple[int, int]


@dataclass(frozen=True)
class Held:
    """An object that keeps memory, and its first values.

    Attributes:
        view: an array, a batch, or another object that arrays can be made of.
        content: the bytes that it showed.
        lessor: whose memory it keeps, where the machine knows.
        memory: the slot or the buffer.
    """

    view: Any
    content: bytes
    lessor: Any = None
    memory: Any = None


def content_of(view: Any) -> bytes:
    """Return the bytes of a view; of a batch, the bytes of all its samples."""
    if isinstance(view, TensorListCPU):
        return b"".join(view.at(i).tobytes() for i in range(len(view)))
    return np.asarray(view).tobytes()


def drop_one(held: list[Held], index: int, thread: bool) -> None:
    """Drop a held object, in this thread or in another."""
    drop = partial(held.pop, index % len(held))
    if thread:
        other = threading.Thread(target=drop)
        other.start()
        other.join()
    else:
        drop()


def assert_in_order_and_merged(free: Sequence[Extent]) -> None:
    """Check the invariants of a list of free extents."""
    assert all(nbytes > 0 and offset % PAGE_BYTES == nbytes % PAGE_BYTES == 0 for offset, nbytes in free)
    for (offset, nbytes), (following, _) in itertools.pairwise(free):
        assert offset + nbytes < following


# Rings, leases and the space

UINT8 = np.dtype(np.uint8)
CAPACITY = 4


def geometry_of(*shapes: tuple[int, ...] | None) -> SlotLayout:
    """Slots for outputs of bytes: rows where a shape is given, regions where none is."""
    return SlotLayout(CAPACITY, 2, 1 << 25, tuple(OutputSchema(DTYPE_CODES[UINT8], 1, shape) for shape in shapes))


GEOMETRIES = [geometry_of((100,)), geometry_of((20_000,)), geometry_of(None), geometry_of((8,), None, (3000,))]
#: Parts of an array that a user may keep.
PARTS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "all": lambda array: array,
    "some": lambda array: array[1:3],
    "backwards": lambda array: array[..., ::-2],
    "flat": lambda array: array.reshape(-1)[5:],
    "memoryview": lambda array: memoryview(array)[1:],
    "DLPack": np.from_dlpack,
}
parts = st.sampled_from(sorted(PARTS))
#: More than the regions of a slot keep when it is used again.
EXCESSIVE_BYTES = 20 << 20
#: So many batches show how many slots are needed.
BATCHES_TO_TRIM = 32
#: Sizes of the samples of `Rings` in regions.
REGION_BYTES = 1 << 14


class Rings(RuleBasedStateMachine):
    """Two rings and a pool of buffers that share a space, as the sources and the operators of a pipeline do."""

    def __init__(self) -> None:
        super().__init__()
        self.space = SharedSpace.create(ROOMY_BYTES)
        self.rings = [Ring(self.space, GEOMETRIES[0]) for _ in range(2)]
        self.buffers = BufferPool(self.space)
        self.held: list[Held] = []
        self.marks = itertools.cycle(range(1, 252))
        #: A ring that is closed gives pages back, but no address space.
        self.abandoned: set[Extent] = set()

    @rule(
        ring=st.integers(0, 1),
        slot_layout=st.sampled_from([None, *GEOMETRIES]),
        count=st.sampled_from([0, 0, 1, 4, 20, 40]),
        keep=st.lists(parts, min_size=1, max_size=3),
        spare_bytes=st.sampled_from([ROOMY_BYTES, ROOMY_BYTES, 0, PAGE_BYTES, 1 << 18]),
    )
    def make_batches(self, ring: int, slot_layout: SlotLayout | None, count: int, keep: list[str], spare_bytes: int) -> None:
        """Make some batches at a time, and hold every fourth; then one more, of another shape, or short of memory."""
        of = self.rings[ring]
        if slot_layout is not None:
            of.slot_layout = slot_layout
        self.space.limit_bytes = self.space.used_bytes + spare_bytes
        slots = [self._acquire(of) for _ in range(count)]
        for i, slot in enumerate(slots):
            assert slot is None or slot not in slots[:i]
            self._fill(of, slot, [] if i % 4 else keep)
        self._fill(of, self._acquire(of), keep)
        self.space.limit_bytes = ROOMY_BYTES

    @rule(ring=st.integers(0, 1))
    def make_one_large_batch(self, ring: int) -> None:
        """Its memory is not kept for the next one."""
        for committed_bytes in (EXCESSIVE_BYTES, 0):
            slot = self._acquire(self.rings[ring])
            if slot is None:
                return
            with contextlib.suppress(OutOfMemoryError):
                self.space.commit(slot.offset + slot.slot_layout.resident_bytes, committed_bytes or REGION_BYTES)
                slot.marks[0] = committed_bytes or REGION_BYTES
            self.rings[ring].release(slot)

    @rule(ring=st.integers(0, 1))
    def make_many_batches(self, ring: int) -> None:
        """After some, slots that are not needed are given back."""
        for _ in range(2 * BATCHES_TO_TRIM):
            slot = self._acquire(self.rings[ring])
            if slot is None:
                return
            self.rings[ring].release(slot)
        assert self.rings[ring].num_slots <= 1 + len(self._out(self.rings[ring]))

    @rule(lengths=st.lists(st.sampled_from([1, 100, 5000, 40_000]), min_size=1, max_size=3))
    def take_a_buffer(self, lengths: list[int]) -> None:
        arrays = self.buffers.arrays([SampleShape((length,), UINT8) for length in lengths])
        buffer = _memory_of(arrays[0] if isinstance(arrays, list) else arrays)
        for array in arrays:
            array[...] = next(self.marks)
        self._hold(arrays[-1], self.buffers, buffer)

    @precondition(lambda self: self.held)
    @rule(index=any_of_them, part=parts)
    def take_a_part_of_what_is_held(self, index: int, part: str) -> None:
        held = self.held[index % len(self.held)]
        self._hold(_part(np.asarray(held.view), part), held.lessor, held.memory)

    @precondition(lambda self: self.held)
    @rule(index=any_of_them, thread=st.booleans())
    def let_go(self, index: int, thread: bool) -> None:
        drop_one(self.held, index, thread)

    @precondition(lambda self: len(self.held) > 3)
    @rule()
    def let_all_go(self) -> None:
        self.held.clear()

    @rule()
    def drop_what_is_free(self) -> None:
        self.space.drop_free()

        assert self._free_bytes() == self.space.size - sum(nbytes for _, nbytes in self._extents() | self.abandoned)

    @rule(ring=st.integers(0, 1))
    def close_a_ring_and_make_another(self, ring: int) -> None:
        closed = self.rings[ring]
        slots = [*free_of(closed), *(slot for slot, _ in returned_of(closed))]
        closed.close()
        kept = {_extent(slot) for slot in slots if not self._is_free(slot.offset)}
        self.abandoned |= kept | {_extent(slot) for slot in self._out(closed)}
        self.rings[ring] = Ring(self.space, closed.slot_layout)

    @invariant()
    def nothing_held_has_changed(self) -> None:
        for held in self.held:
            assert content_of(held.view) == held.content

    @invariant()
    def free_extents_are_in_order_and_merged(self) -> None:
        assert_in_order_and_merged(free_of(self.space.file))

    @invariant()
    def no_memory_has_two_owners(self) -> None:
        _assert_disjoint([*free_of(self.space.file), *(self._extents() | self.abandoned)], self.space.size)

    @invariant()
    def rings_know_how_many_slots_they_have(self) -> None:
        for ring in self.rings:
            assert ring.num_slots == len(self._out(ring)) + len(free_of(ring)) + len(returned_of(ring))

    def teardown(self) -> None:
        self.held.clear()
        self.space.drop_free()

        assert self.space.used_bytes == 0
        assert self._free_bytes() == self.space.size - sum(nbytes for _, nbytes in self.abandoned)
        del self.space, self.rings, self.buffers  # machines are garbage that is collected late, and address space is finite

    def _acquire(self, ring: Ring) -> Slot | None:
        """A slot, or None if there is no memory for one."""
        try:
            slot = ring.acquire(0)
        except OutOfMemoryError:
            assert self.space.limit_bytes < ROOMY_BYTES
            return None
        assert slot not in self._out(ring)
        assert slot.slot_layout is ring.slot_layout
        assert slot.slot_layout.all_dense or slot.committed_bytes < EXCESSIVE_BYTES
        return slot

    def _fill(self, ring: Ring, slot: Slot | None, keep: list[str]) -> None:
        """Make a batch in a slot, if there is one, in rows and in regions, and hold parts of it."""
        if slot is None:
            return
        lease = Lease(ring, slot)
        address = slot.space.address + slot.offset
        arrays = []
        for output, (layout, row) in enumerate(zip(slot.slot_layout.outputs, slot.slot_layout.rows, strict=True)):
            if layout.shape is not None:
                arrays.append(leased_array(lease, address + row, (CAPACITY, *layout.shape), UINT8))
            else:
                self._describe(slot, output)
                arrays.extend(SampleList(lease, address, slot.descriptors[:, output])[:])
        for array in arrays:
            array[...] = next(self.marks)
        for array, part in zip(itertools.cycle(arrays), keep, strict=False):
            self._hold(_part(array, part), ring, slot)

    def _describe(self, slot: Slot, output: int) -> None:
        """Put samples of several lengths into the first region; of no length, if there is no memory for them."""
        start = slot.slot_layout.resident_bytes
        lengths = [8, 3000, 70, 1]
        if not slot.marks[0]:
            try:
                self.space.commit(slot.offset + start, REGION_BYTES)
                slot.marks[0] = REGION_BYTES
            except OutOfMemoryError:
                assert self.space.limit_bytes < ROOMY_BYTES
                lengths = [0] * CAPACITY
        for i, length in enumerate(lengths):
            slot.descriptors[i, output, : Word.SHAPE + 1] = (start, length, DTYPE_CODES[UINT8], 1, length)
            start += length

    def _hold(self, view: Any, lessor: Any, memory: Any) -> None:
        self.held.append(Held(view, content_of(view), lessor, memory))

    def _out(self, lessor: Any) -> set[Any]:
        """The memory of a ring or a pool that is held."""
        return {held.memory for held in self.held if held.lessor is lessor}

    def _extents(self) -> set[Extent]:
        return {_extent(held.memory) for held in self.held}

    def _is_free(self, position: int) -> bool:
        return any(offset <= position < offset + nbytes for offset, nbytes in free_of(self.space.file))

    def _free_bytes(self) -> int:
        return sum(nbytes for _, nbytes in free_of(self.space.file))


def _part(array: NDArray[Any], part: str) -> Any:
    """Return the part of an array that the user keeps; all of it if there is no such part."""
    if part == "memoryview" and not array.flags.c_contiguous:
        part = "all"
    if part == "DLPack" and not array.flags.writeable and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        part = "all"  # earlier versions export no read-only arrays
    return PARTS[part](array)


def _memory_of(array: NDArray[Any]) -> Any:
    """Return the memory that the lease of an array keeps."""
    export: Any = array.base
    # Private: finds the memory behind an export
    return export._lease._memory


def _extent(memory: Any) -> Extent:
    """Where a slot or a buffer lies."""
    return (memory.offset, memory.slot_layout.slot_bytes) if isinstance(memory, Slot) else tuple(memory)


def _assert_disjoint(extents: Sequence[Extent], size: int) -> None:
    for (offset, nbytes), (following, _) in itertools.pairwise(sorted([*extents, (size, 0)])):
        assert offset + nbytes <= following


def test_rings_in_any_program() -> None:
    run_state_machine_as_test(Rings, settings=settings(FIXED, max_examples=40, stateful_step_count=40))


# Pipelines

BATCH_SIZE = 4
#: Bounds of epochs and iterations, so that no two samples have the same number.
EPOCH = 100_000
#: Parts of a batch that a user may keep.
FORMS: dict[str, Callable[[TensorListCPU], Any]] = {
    "batch": lambda batch: batch,
    "tensor": lambda batch: batch[2],
    "sample": lambda batch: batch.at(1),
    "part of a sample": lambda batch: batch.at(3)[::-1][1:],
    "memoryview of a sample": lambda batch: memoryview(batch.at(0)),
    "DLPack of a sample": lambda batch: np.from_dlpack(batch[2]),
    "array": lambda batch: batch.as_array() if batch.is_dense_tensor() else batch,
    "part of an array": lambda batch: batch.as_array()[1:, ::2] if batch.is_dense_tensor() else batch.at(1),
    "part of a tensor of all": lambda batch: np.asarray(batch.as_tensor())[:2] if batch.is_dense_tensor() else batch[1],
}
#: The lengths of the samples of a batch: one for all, or one after the other.
lengths = st.one_of(
    st.sampled_from([1, 1000, 1 << 16, (1 << 18) + 1]).map(lambda length: [length]),
    st.lists(st.sampled_from([0, 1, 10, 1001, 5000, 1 << 16, (1 << 18) + 1]), min_size=2, max_size=5),
)
#: Less than some batches that are held take, and more than those on their way do.
SCANTY_BYTES = 64 << 20
#: Memory of a closed pipeline that stays as long as its space, for example the cells of its workers.
LEFT_BYTES = 1 << 18


@dataclass(frozen=True)
class Plan:
    """The expected batches of a pipeline.

    Attributes:
        lengths: of the samples of the first output, by iteration and by sample, again and again.
        iterations: of an epoch.
        depth: how far ahead.
        max_held_bytes: how much memory it may take.
    """

    lengths: tuple[tuple[int, ...], ...]
    iterations: int
    depth: int
    max_held_bytes: int | None

    def number(self, epoch: int, sample: int) -> int:
        """Return the values of a sample."""
        return epoch * EPOCH + sample

    def make(self, info: SampleInfo) -> tuple[NDArray[Any], NDArray[Any]]:
        """The source: a sample of a length that changes, and one of a length that does not."""
        if info.iteration >= self.iterations:
            raise StopIteration
        of_batch = self.lengths[info.iteration % len(self.lengths)]
        number = self.number(info.epoch_idx, info.idx_in_epoch)
        return np.full(of_batch[info.idx_in_batch % len(of_batch)], number, np.int32), np.full(3, number, np.int64)


#: Which output of a batch is held, and in which form.
schemas = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(sorted(FORMS))), max_size=3)
runs = st.sampled_from([1, 2, 4, 12])
plans = st.builds(
    Plan,
    lengths=st.lists(lengths.map(tuple), min_size=1, max_size=3).map(tuple),
    iterations=st.sampled_from([1, 20, 1000, 1000]),
    depth=st.integers(1, 3),
    max_held_bytes=st.sampled_from([None, SCANTY_BYTES]),
)


class Pipelines(RuleBasedStateMachine):
    """One pipeline after the other. Objects held of one are still held when the next has taken its place."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.held: list[Held] = []
        self.spaces: list[SharedSpace] = []

    @initialize(plan=plans)
    def start(self, plan: Plan) -> None:
        @pipeline_def(
            batch_size=BATCH_SIZE,
            num_threads=1,
            py_num_workers=2,
            prefetch_queue_depth=plan.depth,
            max_held_bytes=plan.max_held_bytes or ROOMY_BYTES,
        )
        def pipeline() -> Any:
            return tuple(fn.external_source(source=plan.make, num_outputs=2, batch=False, parallel=self.way != "serial"))

        self.plan = plan
        self.pipe: Pipeline = pipeline()
        self.pipe.build()
        self.spaces.append(space_of(self.pipe))
        self.epoch = self.iteration = 0
        self.begun = False

    @rule(schemas=schemas, runs=runs)
    def run(self, schemas: list[tuple[int, str]], runs: int) -> None:
        """Take batches, and hold parts of each, for as long as there are any."""
        for _ in range(runs):
            batch = self._take(may_fail=self.plan.max_held_bytes is not None)
            self._hold(batch, schemas)
            if not batch:
                break

    @precondition(lambda self: self.held)
    @rule(index=any_of_them, form=st.sampled_from(sorted(PARTS)))
    def take_a_part_of_what_is_held(self, index: int, form: str) -> None:
        held = self.held[index % len(self.held)].view
        array = held.at(index % BATCH_SIZE) if isinstance(held, TensorListCPU) else np.asarray(held)
        view = _part(array, form)
        self.held.append(Held(view, content_of(view)))

    @precondition(lambda self: self.held)
    @rule(index=any_of_them, thread=st.booleans())
    def let_go(self, index: int, thread: bool) -> None:
        drop_one(self.held, index, thread)

    @precondition(lambda self: self.held)
    @rule()
    def let_all_go(self) -> None:
        """Then there is memory for the next batch."""
        self.held.clear()
        self._take(may_fail=False)

    @rule(schemas=schemas, runs=runs)
    def leave_the_epoch_and_run(self, schemas: list[tuple[int, str]], runs: int) -> None:
        self.pipe.reset()
        if self.begun:
            self.epoch, self.iteration, self.begun = self.epoch + 1, 0, False
        self.run(schemas, runs)

    @rule(schemas=schemas, runs=runs)
    def drop_what_is_free_and_run(self, schemas: list[tuple[int, str]], runs: int) -> None:
        self.space.drop_free()
        self.run(schemas, runs)

    @rule(schemas=schemas, spare_bytes=st.sampled_from([0, 1 << 16, 1 << 22]))
    def run_short_of_memory(self, schemas: list[tuple[int, str]], spare_bytes: int) -> None:
        """No batch is lost by it."""
        limit_bytes = self.space.limit_bytes
        self.space.limit_bytes = min(self.space.used_bytes + spare_bytes, limit_bytes)
        self._hold(self._take(may_fail=True), schemas)
        self.space.limit_bytes = limit_bytes

    @rule(plan=plans, schemas=schemas, runs=runs)
    def close_and_start_another_and_run(self, plan: Plan, schemas: list[tuple[int, str]], runs: int) -> None:
        self.pipe.close()
        with pytest.raises(ClosedError):
            self.pipe.run()
        self.start(plan)
        self.run(schemas, runs)

    @invariant()
    def nothing_held_has_changed(self) -> None:
        for held in self.held:
            assert content_of(held.view) == held.content

    @invariant()
    def free_extents_are_in_order_and_merged(self) -> None:
        assert_in_order_and_merged(free_of(self.space.file))

    def teardown(self) -> None:
        if self.spaces:
            self.pipe.close()
        self.nothing_held_has_changed()
        self.held.clear()
        gc.collect()  # the traceback of an error is garbage that may hold a batch

        assert all(space.used_bytes < LEFT_BYTES for space in self.spaces)
        self.spaces.clear()

    @property
    def space(self) -> SharedSpace:
        """The space of the pipeline."""
        return self.spaces[-1]

    def _take(self, *, may_fail: bool) -> tuple[TensorListCPU, ...]:
        """Run, and compare the batch with the expected one; nothing at the end of the epoch, or if memory may be short."""
        try:
            batch = self.pipe.run()
        except StopIteration:
            assert self.iteration == self.plan.iterations
            return ()
        except OutOfMemoryError:
            assert may_fail
            return ()
        self.begun = True
        for i in range(BATCH_SIZE):
            expected = self.plan.make(SampleInfo(self.iteration * BATCH_SIZE + i, i, self.iteration, self.epoch))
            for output, sample in zip(batch, expected, strict=True):
                assert output.at(i).tobytes() == sample.tobytes()
        self.iteration += 1
        return batch

    def _hold(self, batch: tuple[TensorListCPU, ...], schemas: list[tuple[int, str]]) -> None:
        for output, form in schemas if batch else ():
            view = FORMS[form](batch[output])
            self.held.append(Held(view, content_of(view)))


@pytest.mark.parametrize(("way", "max_examples"), [("serial", 12), ("fork", 5)])
def test_pipelines_in_any_program(way: str, max_examples: int) -> None:
    run_state_machine_as_test(
        partial(Pipelines, way), settings=settings(FIXED, max_examples=max_examples, stateful_step_count=30)
    )
