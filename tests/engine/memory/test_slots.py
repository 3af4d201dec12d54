"""Slots by themselves: when they are used again, and when their memory goes back. How users see that is in test_ring.py."""

from __future__ import annotations

import gc
import os
import resource
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like.engine.memory import system_calls
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPE_CODES, PAGE_BYTES, Status
from dali_like.engine.memory.ring import Lease, Ring, Slot
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import ArrayAssembler
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.task import MOST_PLAIN_BYTES, Region, RegionFullError, SlotView
from dali_like.types import SampleInfo
from tests.internals import space_of

MIB = 1 << 20
TASKS = 4
#: A slot's rows, and the regions of its tasks.
ROWS_BYTES, REGION_BYTES = MIB, 64 * MIB


@dataclass
class PlayedFence:
    """A fence that passes when the test sets it, or after a wait."""

    ended: bool = False
    waits: int = 0

    def passed(self) -> bool:
        return self.ended

    def wait(self) -> None:
        self.ended = True
        self.waits += 1


@dataclass
class PlayedDevice:
    """Reads all memory that is given back, for as long as its fences say."""

    fences: list[PlayedFence] = field(default_factory=list)

    def made(self, address: int, nbytes: int) -> None:
        pass

    def fence(self) -> PlayedFence:
        self.fences.append(PlayedFence())
        return self.fences[-1]

    def freed(self, address: int) -> bool:
        return True


def slot_layout(
    *,
    with_rows: bool = True,
    row_bytes: int = ROWS_BYTES // TASKS,
    task_size: int = 1,
    region_bytes: int = REGION_BYTES,
    most_tasks: int = 0,
) -> SlotLayout:
    layout = OutputSchema(0, 1, (row_bytes,)) if with_rows else OutputSchema()
    return SlotLayout(TASKS, task_size, region_bytes, (layout,), most_tasks=most_tasks)


def make_ring(*, with_rows: bool = True, limit_bytes: int = 512 * MIB) -> Ring:
    return Ring(SharedSpace.create(limit_bytes), slot_layout(with_rows=with_rows))


def fill_regions(slot: Slot, nbytes: int) -> None:
    """Put so much memory behind each region, as workers do."""
    for task in range(TASKS):
        slot.space.commit(slot.offset + slot.slot_layout.region_offset(task), nbytes)
        slot.marks[task] = nbytes


def used_mib(ring: Ring) -> float:
    return space_of(ring).used_bytes / MIB


# Regions


def test_regions_that_are_unusually_large_are_given_back_when_the_slot_is_used_again() -> None:
    ring = make_ring(with_rows=False)
    slot = ring.acquire(0)
    fill_regions(slot, 10 * MIB)
    ring.release(slot)
    assert used_mib(ring) > 40

    assert ring.acquire(MIB) is slot

    assert used_mib(ring) < 1
    assert slot.marks.tolist() == [0] * TASKS, "workers must not take what is gone for memory that they have"
    assert slot.header.tolist() == slot.slot_layout.header.tolist()


def test_regions_that_are_not_much_larger_than_usual_are_kept() -> None:
    ring = make_ring(with_rows=False)
    slot = ring.acquire(0)
    fill_regions(slot, 10 * MIB)
    ring.release(slot)

    assert ring.acquire(6 * MIB) is slot

    assert used_mib(ring) > 40
    assert slot.marks.tolist() == [10 * MIB] * TASKS


@pytest.mark.parametrize(("mark", "counted"), [(-1, 0), (1 << 62, REGION_BYTES), (5, 5)])
def test_memory_behind_regions_is_not_more_than_they_have_room_for(mark: int, counted: int) -> None:
    """For any values in the marks."""
    slot = make_ring().acquire(0)

    slot.marks[:] = mark

    assert slot.committed_bytes == TASKS * counted


def test_region_gets_no_memory_behind_its_end() -> None:
    """There is another one."""
    ring = Ring(SharedSpace.create(MIB), SlotLayout(2, 1, 5 * PAGE_BYTES, (OutputSchema(),)))
    slot = ring.acquire(0)
    region = Region(slot.space, SlotView(slot.space, slot.offset, slot.header.tolist()), 0)

    region.take(5 * PAGE_BYTES - 100)

    assert slot.marks.tolist() == [5 * PAGE_BYTES, 0]
    with pytest.raises(RegionFullError):
        region.take(1)


# Samples in rows

DATA = np.arange(3.0)


@pytest.mark.parametrize("sample", [(DATA, 7), (DATA, np.int64(7)), [DATA, np.array(7)]], ids=["int", "scalar", "list"])
def test_objects_that_convert_to_arrays_of_the_expected_shape_go_to_their_rows(sample: Any) -> None:
    space = SharedSpace.create()
    source = Source("a source", lambda info: sample, num_outputs=2)
    rows = [OutputSchema(DTYPE_CODES[np.dtype(float)], 1, (3,)), OutputSchema(DTYPE_CODES[np.dtype(int)], 0, ())]
    assembler = ArrayAssembler(space, source, TASKS, declared=rows, num_workers=1, tasks_per_worker=1)
    slot = assembler.begin(Batch(BatchKey(0, 0, 0, 0, TASKS)), 1)

    status, _ = TaskRunner(space, [source], memoryview(bytearray(24)).cast("q")).run(slot.page, 0)

    assert status is Status.DENSE
    data, label = SlotView(space, slot.offset, slot.header.tolist()).rows
    assert data is not None
    assert label is not None
    assert (data.tolist(), label.tolist()) == ([DATA.tolist()] * TASKS, [7] * TASKS)


@pytest.mark.parametrize("num_outputs", [2, 3])
@pytest.mark.parametrize("gap", [0, 1], ids=["first", "second"])
def test_arrays_with_gaps_go_into_their_rows_as_others_do(num_outputs: int, gap: int) -> None:
    def make(info: SampleInfo) -> tuple[NDArray[Any], ...]:
        outputs = [np.arange(6.0).reshape(2, 3) + info.idx_in_epoch + output for output in range(num_outputs)]
        if info.idx_in_epoch >= TASKS // 2:
            outputs[gap] = np.asfortranarray(outputs[gap])
        return tuple(outputs)

    space = SharedSpace.create()
    source = Source("a source", make, num_outputs=num_outputs)
    rows = [OutputSchema(DTYPE_CODES[np.dtype(float)], 2, (2, 3))] * num_outputs
    assembler = ArrayAssembler(space, source, TASKS, declared=rows, num_workers=1, tasks_per_worker=1)
    runner = TaskRunner(space, [source], memoryview(bytearray(24)).cast("q"))
    for iteration in range(2):
        slot = assembler.begin(Batch(BatchKey(0, 0, iteration, iteration * TASKS, TASKS)), iteration + 1)

        status, _ = runner.run(slot.page, 0)

        assert status is Status.DENSE
        for output, batch in enumerate(SlotView(space, slot.offset, slot.header.tolist()).rows):
            indices = iteration * TASKS + np.arange(TASKS).reshape(-1, 1, 1)
            assert np.array_equal(batch, np.arange(6.0).reshape(2, 3) + indices + output)
        assembler.ring.release(slot)  # for the next batch


def test_views_know_the_number_of_keys_that_they_keep() -> None:
    """Small rows are copied as bytes of the space; NumPy copies large rows, and rows of arrays with gaps, without keys."""
    rows = [OutputSchema(DTYPE_CODES[np.dtype(np.uint8)], 1, (nbytes,)) for nbytes in (3, MOST_PLAIN_BYTES + 1)]
    ring = Ring(SharedSpace.create(), SlotLayout(5, 2, PAGE_BYTES, tuple(rows)))
    slot = ring.acquire(0)
    view = SlotView(slot.space, slot.offset, slot.header.tolist())

    keys = [len(view.keys_of(task)[output]) for task in (0, 2, 0) for output in range(2)]

    assert keys == [2, 2, 1, 1, 2, 2]
    assert view.num_keys == 3
    view.expect_gaps()
    view.keys_of(0)
    assert view.num_keys == 0


@pytest.mark.parametrize("is_refused", [False, True])
def test_pages_of_rows_that_other_processes_have_written_are_mapped_together(
    is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, the first write of each page takes a page fault."""
    if is_refused:  # as before Linux 5.14, which does not know the advice
        monkeypatch.setattr(system_calls, "_MADV_POPULATE_READ", 9999)
    samples, pages_of_sample = 8, 64
    rows = OutputSchema(DTYPE_CODES[np.dtype(np.uint8)], 1, (pages_of_sample * PAGE_BYTES,))
    slot = Ring(SharedSpace.create(), SlotLayout(samples, samples, PAGE_BYTES, (rows,))).acquire(0)
    content = bytes(samples * pages_of_sample * PAGE_BYTES)
    os.pwrite(slot.space.fd.fileno(), content, slot.offset + slot.slot_layout.rows[0])  # as if by another process
    view = SlotView(slot.space, slot.offset, slot.header.tolist())

    view.begin(0)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    view.rows[0][...] = 2
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    assert (faults >= samples * pages_of_sample) is is_refused, faults
    assert (faults <= samples) is not is_refused, faults


# Slots that have been given back


def test_returned_slots_are_free_before_the_next_request() -> None:
    ring = make_ring()
    slots = [ring.acquire(0) for _ in range(3)]

    ring.release(slots[0])

    assert (ring.num_free, ring.num_slots) == (1, 3)


def test_slot_with_a_possible_writer_is_not_used_before_the_writer_releases_it() -> None:
    ring = make_ring()
    slot = ring.acquire(0)
    hold = ring.hold(slot)

    ring.release(slot)
    assert ring.acquire(0) is not slot
    del hold

    assert ring.acquire(0) is slot
    ring.release(slot)
    assert ring.acquire(0) is slot, "as often as any other"


def test_many_free_slots_are_given_back_at_once() -> None:
    ring = make_ring()
    slots = [ring.acquire(0) for _ in range(40)]

    for slot in slots:
        ring.release(slot)
    ring.acquire(0)

    assert ring.num_slots == 16
    assert used_mib(ring) < 17


def test_slots_that_have_not_been_needed_for_a_while_are_given_back() -> None:
    ring = make_ring()
    for slot in [ring.acquire(0) for _ in range(8)]:
        ring.release(slot)

    for i in range(200):
        slots = [ring.acquire(0) for _ in range(1 + i % 2)]
        for slot in slots:
            ring.release(slot)

    assert ring.num_slots == 2
    assert used_mib(ring) < 3


def test_slots_without_memory_do_not_count() -> None:
    ring = make_ring(limit_bytes=2 * MIB)
    slots = []

    with pytest.raises(MemoryError):
        slots.extend(ring.acquire(0) for _ in range(5))

    assert ring.num_slots == 1


def test_new_geometry_leaves_no_slot_of_the_old_one() -> None:
    ring = make_ring()
    free, returned, taken = (ring.acquire(0) for _ in range(3))
    ring.release(free)
    ring.release(returned)
    assert ring.acquire(0) is returned
    ring.release(returned)

    ring.slot_layout = slot_layout(row_bytes=1)

    assert used_mib(ring) < 2
    ring.release(taken)
    assert ring.acquire(0).slot_layout is ring.slot_layout
    assert ring.num_slots == 1


def test_slots_keep_the_memory_of_equal_rows_when_tasks_are_joined() -> None:
    ring = make_ring()
    free, taken = (ring.acquire(0) for _ in range(2))
    free.marks[:] = PAGE_BYTES  # a worker has put memory behind the regions
    free.space.commit(free.offset + free.slot_layout.region_offset(0), PAGE_BYTES)
    ring.release(free)
    used_bytes = free.space.used_bytes

    ring.slot_layout = slot_layout(task_size=TASKS, most_tasks=TASKS)
    ring.release(taken)
    slots = [ring.acquire(0) for _ in range(2)]

    assert set(slots) == {free, taken}
    for slot in slots:
        assert slot.slot_layout is ring.slot_layout
        assert slot.header[: len(ring.slot_layout.header)].tolist() == ring.slot_layout.header.tolist()
        assert slot.marks.tolist() == [0]
    assert free.space.used_bytes == used_bytes - PAGE_BYTES
    ends = [slot.offset + slot.slot_layout.slot_bytes for slot in slots]
    assert free.space.allocate((TASKS - 1) * REGION_BYTES) in ends


def test_slots_that_are_too_small_for_the_new_regions_are_freed() -> None:
    ring = make_ring()
    ring.release(ring.acquire(0))

    ring.slot_layout = slot_layout(region_bytes=2 * REGION_BYTES)

    assert ring.num_slots == 0
    assert used_mib(ring) == 0


# Fences


def make_fenced_ring() -> tuple[Ring, list[PlayedFence]]:
    """A ring, and the fences of the slots that it is given back, in this order."""
    ring = make_ring()
    space_of(ring).observer = device = PlayedDevice()
    return ring, device.fences


class TestFences:
    def test_keep_a_slot_until_they_have_passed(self) -> None:
        ring, fences = make_fenced_ring()
        slot = ring.acquire(0)
        ring.release(slot)

        others = [ring.acquire(0) for _ in range(2)]
        assert slot not in others
        fences[0].ended = True

        assert ring.acquire(0) is slot
        assert fences[0].waits == 0

    def test_are_waited_for_where_memory_is_needed(self) -> None:
        ring, fences = make_fenced_ring()
        ring.release(ring.acquire(0))

        ring.drop_free()

        assert fences[0].waits == 1
        assert used_mib(ring) == 0
        assert ring.num_slots == 0

    def test_are_waited_for_before_the_memory_goes(self) -> None:
        ring, fences = make_fenced_ring()
        early, late = ring.acquire(0), ring.acquire(0)
        ring.release(early)

        ring.close()
        assert fences[0].waits == 1
        assert used_mib(ring) < 2
        ring.release(late)

        assert fences[1].waits == 1
        assert used_mib(ring) == 0


def test_ring_that_is_closed_keeps_no_memory() -> None:
    ring = make_ring()
    free, returned, taken = (ring.acquire(0) for _ in range(3))
    ring.release(free)
    assert ring.acquire(0) is free
    ring.release(free)
    ring.release(returned)

    ring.close()
    assert 1 <= used_mib(ring) < 2
    ring.release(taken)

    assert used_mib(ring) == 0


def test_slot_that_two_have_keeps_its_memory_after_closing_until_both_have_given_it_back() -> None:
    """A hanging thread behind the end of the epoch, and the holder of the last batch."""
    ring = make_ring()
    slot = ring.acquire(0)
    hold, lease = ring.hold(slot), Lease(ring, slot)
    rows = space_of(ring).array(slot.offset + slot.slot_layout.rows[0], (ROWS_BYTES,), np.dtype(np.uint8))
    rows[:] = 7

    ring.close()
    del hold
    assert (rows == 7).all()
    del lease

    assert used_mib(ring) == 0


# The space


class TestSpace:
    def test_keepers_that_are_gone_are_not_asked(self) -> None:
        space = SharedSpace.create(16 * MIB)
        ring = Ring(space, slot_layout())
        ring.release(ring.acquire(0))
        ring.close()
        del ring
        gc.collect()

        space.drop_free()

        # Private: nothing public shows the objects that keep a space
        assert not list(space._keepers)

    def test_an_extent_of_all_remaining_space_is_allocated(self) -> None:
        space = SharedSpace.create(16 * MIB)
        first = space.allocate(MIB)

        assert space.allocate(space.size - MIB) == MIB
        space.free(first, MIB)

        assert space.allocate(MIB) == first

    def test_memory_that_is_given_back_reads_as_zeros(self) -> None:
        space = SharedSpace.create(16 * MIB)
        offset = space.take(MIB, MIB)
        view = space.array(offset, (MIB,), np.dtype(np.uint8))
        view[:] = 7

        space.free(offset, MIB)

        assert not view.any()
