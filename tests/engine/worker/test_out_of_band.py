"""Pickled objects in slots: how they arrive, where their arrays lie, and which blocks are refused."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import PAGE_BYTES, WORD_BYTES
from dali_like.engine.memory.ring import Lease, Ring, Slot
from dali_like.engine.memory.slot_layout import SlotLayout
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.out_of_band import LEAST_BUFFER_BYTES, OutOfBandPickle, block_of, pickle_parts, write_message
from dali_like.engine.worker.task import Region, RegionFullError, SlotView
from dali_like.errors import CorruptionError, SampleTypeError
from tests.internals import num_parts_of

REGION_BYTES = 1 << 20
LARGE = np.arange(LEAST_BUFFER_BYTES, dtype=np.uint8)


def make_slot() -> Slot:
    return Ring(SharedSpace.create(), SlotLayout(1, 1, REGION_BYTES, ())).acquire(0)


def write(
    value: Any, slot: Slot, reducers: dict[type, Callable[[Any], Any]] | None = None, lease: Lease[Any] | None = None
) -> OutOfBandPickle:
    region = Region(slot.space, SlotView(slot.space, slot.offset, slot.header.tolist()), 0)
    write_message(value, region, reducers or {})
    return OutOfBandPickle.of_task(slot, 0, lease)


def words_of(slot: Slot) -> NDArray[np.int64]:
    """The block in the region, as words; it begins with its table."""
    start = slot.offset + slot.slot_layout.region_offset(0)
    return slot.space.array(start, (REGION_BYTES // WORD_BYTES,), np.dtype(np.int64))


class Registered:
    """Refuses to be pickled but by a function that `copyreg` knows."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("nbytes", "num_parts"), [(LEAST_BUFFER_BYTES, 2), (LEAST_BUFFER_BYTES - 1, 1)], ids=["large", "small"]
)
def test_large_arrays_lie_beside_the_pickle(nbytes: int, num_parts: int) -> None:
    slot = make_slot()
    pickled = write({"x": LARGE[:nbytes], "y": 5}, slot)

    value = pickled.load()

    assert num_parts_of(pickled) == num_parts
    assert (value["x"].tolist(), value["y"]) == (LARGE[:nbytes].tolist(), 5)


def test_small_arrays_beside_large_ones_can_be_written_to_and_lie_elsewhere() -> None:
    slot = make_slot()
    small, large = write([LARGE[:4], LARGE], slot).load()

    words_of(slot)[:] = -1

    assert small.tolist() == [0, 1, 2, 3]
    assert set(large.tolist()) == {255}
    small[:] = 1
    large[:] = 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.complex128])
def test_large_arrays_are_aligned(dtype: Any) -> None:
    slot = make_slot()
    arrays = [np.append(LARGE, LARGE[:1]), np.arange(LEAST_BUFFER_BYTES // 2).astype(dtype), LARGE]

    loaded = write(arrays, slot).load()

    assert all(array.flags.aligned for array in loaded)
    assert all(map(np.array_equal, loaded, arrays))


@pytest.mark.parametrize("value", ["text", LARGE, [LARGE, LARGE[1:]]], ids=["small", "large", "two buffers"])
def test_a_block_may_lie_in_memory_of_its_own(value: Any) -> None:
    loaded = OutOfBandPickle(block_of(pickle_parts(value))).load()

    assert all(map(np.array_equal, loaded, value))


def test_copies_may_be_asked_for() -> None:
    slot = make_slot()
    value = write(LARGE, slot).load(copies=True)

    words_of(slot)[:] = -1

    assert (value == LARGE).all()


def test_under_a_lease_they_are_views_of_the_slot() -> None:
    ring = Ring(SharedSpace.create(), SlotLayout(1, 1, REGION_BYTES, ()))
    slot = ring.acquire(0)
    value = write(LARGE, slot, lease=Lease(ring, slot)).load()

    words_of(slot)[:] = -1

    assert set(value.tolist()) == {255}
    ring.close()


@pytest.mark.parametrize(
    "view",
    [memoryview(bytes(range(6))), memoryview(np.arange(6.0).reshape(2, 3)), memoryview(LARGE)],
    ids=["bytes", "of two dimensions", "large"],
)
def test_views_of_memory_stay_views_of_the_same_shape_and_type(view: memoryview) -> None:
    slot = make_slot()
    value = write([view], slot).load()[0]

    assert type(value) is memoryview
    assert (value.format, value.shape, value.tolist()) == (view.format, view.shape, view.tolist())


def test_a_lambda_is_pickled_by_value_and_arrays_beside_it_once() -> None:
    slot = make_slot()
    array = LARGE
    pickled = write([array, lambda: 5], slot)

    value = pickled.load()

    assert num_parts_of(pickled) == 2
    assert ((value[0] == LARGE).all(), value[1]()) == (True, 5)


def test_types_that_are_registered_for_pickling_are_pickled_so(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = make_slot()
    monkeypatch.setitem(copyreg.dispatch_table, Registered, lambda value: (int, (value.number,)))

    assert write([Registered(3)], slot).load() == [3]
    assert write([Registered(3)], slot, {Registered: lambda value: (str, (value.number,))}).load() == ["3"]


def test_registered_reducers_are_used_beside_objects_pickled_by_value() -> None:
    slot = make_slot()
    view = memoryview(np.arange(6, dtype=np.int16).reshape(2, 3))

    function, number, travelled = write(
        [lambda: 5, Registered(3), view], slot, {Registered: lambda value: (str, (value.number,))}
    ).load()

    assert function() == 5
    assert number == "3"
    assert (travelled.shape, travelled.format) == (view.shape, view.format)


def test_an_unpicklable_object_is_a_sample_type_error() -> None:
    slot = make_slot()
    with pytest.raises(SampleTypeError, match=r"an object that a worker has to send cannot be pickled: .*generator"):
        write((number for number in range(3)), slot)


def test_a_pickle_larger_than_the_region_is_an_error_with_the_needed_size() -> None:
    slot = make_slot()
    with pytest.raises(RegionFullError) as caught:
        write(np.zeros(REGION_BYTES, np.uint8), slot)

    assert caught.value.needed > REGION_BYTES


@pytest.mark.parametrize("mark", [-1, 0, WORD_BYTES - 1, REGION_BYTES + 1])
def test_a_region_of_another_size_has_no_block(mark: int) -> None:
    slot = make_slot()
    write(LARGE, slot)
    slot.marks[0] = mark

    with pytest.raises(CorruptionError, match="that a worker has sent are corrupted"):
        OutOfBandPickle.of_task(slot, 0)


@pytest.mark.parametrize("room", [PAGE_BYTES, PAGE_BYTES + WORD_BYTES])
def test_a_table_does_not_go_beyond_its_region(room: int) -> None:
    slot = make_slot()
    most = (room - WORD_BYTES) // (2 * WORD_BYTES)
    write(LARGE, slot)
    slot.marks[0] = room
    words_of(slot)[:] = 0

    words_of(slot)[0] = most
    assert num_parts_of(OutOfBandPickle.of_task(slot, 0)) == most
    for count in (-1, 0, most + 1, 1 << 62):
        words_of(slot)[0] = count
        with pytest.raises(CorruptionError):
            OutOfBandPickle.of_task(slot, 0)


@pytest.mark.parametrize(
    "part", [(-8, 8), (0, -1), (0, PAGE_BYTES + 1), (PAGE_BYTES, 1), (PAGE_BYTES + 1, 0), (8, PAGE_BYTES)]
)
def test_parts_do_not_go_beyond_their_region(part: tuple[int, int]) -> None:
    slot = make_slot()
    write(LARGE, slot)
    slot.marks[0] = PAGE_BYTES
    words_of(slot)[:5] = 2, 0, PAGE_BYTES, *part

    with pytest.raises(CorruptionError):
        OutOfBandPickle.of_task(slot, 0)

    words_of(slot)[3:5] = PAGE_BYTES, 0
    assert num_parts_of(OutOfBandPickle.of_task(slot, 0)) == 2
