"""Slots and leases: a batch that the user holds, in any form, is never overwritten, and its memory returns later."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.ring import Lease, Ring, Slot, leased_array
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import OutOfMemoryError
from dali_like.tensors import TensorListCPU
from dali_like.types import SampleInfo
from tests.conftest import in_both_places
from tests.internals import runtime_of, space_of

MakePipeline = Callable[..., Pipeline]
Source = Callable[[SampleInfo], NDArray[Any]]

#: How many samples an epoch has at most here, so that no two samples have the same number.
EPOCH = 100_000


def make_sources() -> dict[str, Source]:
    """Samples whose values are the number of the sample, of one shape or of many."""

    def dense(info: SampleInfo) -> NDArray[Any]:
        return np.full(1024, info.epoch_idx * 100_000 + info.idx_in_epoch, np.int32)

    def ragged(info: SampleInfo) -> NDArray[Any]:
        number = info.epoch_idx * 100_000 + info.idx_in_epoch
        return np.full(number * 37 % 1000 + 1, number, np.int32)

    return {"dense": dense, "ragged": ragged}


SOURCES = make_sources()


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    return SOURCES[request.param]


def assert_untouched(batch: TensorListCPU, iteration: int, epoch: int = 0) -> None:
    """Check each value of each sample against the sources above."""
    for i, tensor in enumerate(batch):
        values = np.asarray(tensor)
        assert values.size
        assert (values == epoch * EPOCH + iteration * len(batch) + i).all()


def num_slots(pipe: Pipeline) -> list[int]:
    """The slots of each source."""
    runtime = runtime_of(pipe)
    pools = (runtime.process_pool, runtime.inline_pool)
    return [assembler.ring.num_slots for pool in pools if pool for assembler in pool.assemblers]


# Held memory is not overwritten


@in_both_places
def test_all_batches_of_an_epoch_are_held(source: Source, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(source, way)

    batches = [pipe.run()[0] for _ in range(40)]

    for iteration, batch in enumerate(batches):
        assert_untouched(batch, iteration)


FORMS: dict[str, Callable[[TensorListCPU], Any]] = {
    "list": lambda batch: batch,
    "iterator": lambda batch: next(iter(batch)),
    "tensor": lambda batch: batch[2],
    "sample": lambda batch: batch.at(2),
    "sample by asarray": lambda batch: np.asarray(batch[2]),
    "array": TensorListCPU.as_array,
    "tensor of all": lambda batch: batch.as_tensor(),
    "asarray": np.asarray,
    "slice": lambda batch: batch.as_array()[1:3, 5:],
    "stride": lambda batch: batch.as_array()[::2, ::-3],
    "reshaped": lambda batch: batch.as_array().reshape(2, -1),
    "flat": lambda batch: batch.as_array().ravel(),
    "transposed": lambda batch: batch.as_array().T,
    "other dtype": lambda batch: batch.at(1).view(np.uint8),
    "memoryview": lambda batch: memoryview(batch.as_array()),
    "memoryview of a sample": lambda batch: memoryview(batch.at(0))[1:],
    "DLPack": lambda batch: np.from_dlpack(batch.as_tensor()),
    "DLPack of a sample": lambda batch: np.from_dlpack(batch[3]),
    "DLPack capsule": lambda batch: Capsule(batch[3]),
    "view of a view": lambda batch: np.asarray(memoryview(batch.as_array()[1:])),
}
FORMS_OF_RAGGED = ["list", "iterator", "tensor", "sample", "sample by asarray", "other dtype", "memoryview of a sample"]
FORMS_OF_TORCH: dict[str, Callable[[TensorListCPU], Any]] = {
    "from_dlpack": lambda batch: torch().from_dlpack(batch.as_tensor()),
    "from_dlpack of a sample": lambda batch: torch().from_dlpack(batch[1])[1:],
    "from_numpy": lambda batch: torch().from_numpy(batch.as_array()),
    "as_tensor": lambda batch: torch().as_tensor(batch.at(1)),
    "frombuffer": lambda batch: torch().frombuffer(batch.as_array(), dtype=torch().int32),
}


class Capsule:
    """A DLPack capsule that has been taken and not yet used."""

    def __init__(self, tensor: Any) -> None:
        self._capsule = tensor.__dlpack__()
        self._device = tensor.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Any:
        return self._device


def torch() -> Any:
    return pytest.importorskip("torch")


def content(view: Any) -> bytes:
    """Return the bytes of a held view; of a list, the bytes of all its samples."""
    if isinstance(view, Capsule):
        return np.from_dlpack(view).tobytes()
    if isinstance(view, TensorListCPU):
        return b"".join(np.asarray(tensor).tobytes() for tensor in view)
    return np.asarray(view).tobytes()


def assert_survives(make_view: Callable[[TensorListCPU], Any], source: Source, make_pipeline: MakePipeline) -> None:
    """A view keeps its values while the pipeline makes many more batches."""
    pipe = make_pipeline(source, "serial")
    other = make_pipeline(source, "serial")
    for _ in range(2):
        other.run()
    expected = content(make_view(other.run()[0]))

    for _ in range(2):
        pipe.run()
    view = make_view(pipe.run()[0])
    for _ in range(30):
        pipe.run()

    assert content(view) == expected


@pytest.mark.parametrize("form", FORMS)
def test_view_of_a_dense_batch_keeps_it(form: str, make_pipeline: MakePipeline) -> None:
    assert_survives(FORMS[form], SOURCES["dense"], make_pipeline)


@pytest.mark.parametrize("form", FORMS_OF_RAGGED)
def test_view_of_a_ragged_batch_keeps_it(form: str, make_pipeline: MakePipeline) -> None:
    assert_survives(FORMS[form], SOURCES["ragged"], make_pipeline)


@pytest.mark.parametrize("form", FORMS_OF_TORCH)
def test_torch_tensor_of_a_batch_keeps_it(form: str, make_pipeline: MakePipeline) -> None:
    torch()
    assert_survives(FORMS_OF_TORCH[form], SOURCES["dense"], make_pipeline)


def test_one_output_keeps_the_others(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> tuple[NDArray[Any], ...]:
        return np.full(3, info.idx_in_epoch), np.full(info.idx_in_epoch % 5 + 1, info.idx_in_epoch)

    pipe = make_pipeline(source, way, num_outputs=2)

    kept = [pipe.run()[i % 2] for i in range(30)]

    for iteration, batch in enumerate(kept):
        assert_untouched(batch, iteration)


def test_batches_survive_reset_close_and_the_pipeline(source: Source, way: str) -> None:
    method = {} if way == "serial" else {"py_start_method": way}

    @pipeline_def(batch_size=4, py_num_workers=2, **method)
    def pipeline() -> Any:
        return fn.external_source(source=source, batch=False, parallel=way != "serial")

    pipe = pipeline()
    first = [pipe.run()[0] for _ in range(10)]
    pipe.reset()
    second = [pipe.run()[0] for _ in range(10)]
    pipe.close()
    del pipe
    gc.collect()

    for epoch, batches in enumerate((first, second)):
        for iteration, batch in enumerate(batches):
            assert_untouched(batch, iteration, epoch)


def test_writes_of_the_user_to_a_held_batch_stay_and_reach_no_other_batch(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(SOURCES["dense"], way)
    pipe.run()
    held = pipe.run()[0]
    held.as_array()[:] = -1

    for iteration in range(2, 30):
        (batch,) = pipe.run()
        assert_untouched(batch, iteration)
        batch.as_array()[:] = -2

    assert (held.as_array() == -1).all()


def test_results_of_operators_are_held(make_pipeline: MakePipeline) -> None:
    cv2: Any = pytest.importorskip("cv2")
    files = [cv2.imencode(".png", np.full((40, 30 + i % 2, 3), i, np.uint8))[1] for i in range(80)]

    @pipeline_def(batch_size=4, num_threads=2)
    def pipeline() -> Any:
        return fn.decoders.image(fn.external_source(source=lambda info: files[info.idx_in_epoch % 80], batch=False))

    with contextlib.closing(pipeline()) as pipe:
        batches = [pipe.run()[0] for _ in range(20)]
        tensors = [list(batch) for batch in batches[::2]]
        del batches
        for _ in range(20):
            pipe.run()

    assert [[int(np.asarray(tensor).max()) for tensor in batch] for batch in tensors] == [
        [number, number + 1, number + 2, number + 3] for number in range(0, 80, 8)
    ]


def test_forked_child_that_drops_a_batch_leaves_it_to_the_parent(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(SOURCES["dense"], "serial")
    held = [pipe.run()[0] for _ in range(3)]
    pipe.close()  # so that a lease that ends gives its pages back to the system at once

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads about; the child does next to nothing
        pid = os.fork()
    if pid == 0:
        held.clear()
        os._exit(0)
    os.waitpid(pid, 0)

    for iteration, batch in enumerate(held):
        assert_untouched(batch, iteration)


# Released memory is reused


@pytest.mark.parametrize("depths", [(1, 1), (2, 1), (4, 3)])
@in_both_places
def test_slots_do_not_grow_in_number(depths: tuple[int, int], source: Source, way: str, make_pipeline: MakePipeline) -> None:
    options = {} if way == "serial" else {"source_options": {"prefetch_queue_depth": depths[1]}}
    pipe = make_pipeline(source, way, prefetch_queue_depth=depths[0], **options)
    depth = depths[0] if way == "serial" else sum(depths)

    for _ in range(200):
        pipe.run()
        assert max(num_slots(pipe)) <= depth + 2


@pytest.mark.parametrize("pattern", ["ab", "aab", "abcdefgh", "aaaaaaaaaaab"])
@in_both_places
def test_slots_do_not_grow_in_number_when_shapes_change(pattern: str, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        return np.zeros((ord(pattern[info.iteration % len(pattern)]) - 90, 100))

    pipe = make_pipeline(source, way)

    for _ in range(100):
        pipe.run()
        assert max(num_slots(pipe)) <= 3 + 2


@pytest.mark.parametrize(("pattern", "batch_size"), [("ab", 4), ("aab", 4), ("abcdefgh", 1)])
@in_both_places
def test_slots_are_not_made_anew_for_each_shape(
    pattern: str, batch_size: int, way: str, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class CountedSlot(Slot):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self.offset)

    def source(info: SampleInfo) -> NDArray[Any]:
        return np.zeros((ord(pattern[info.iteration % len(pattern)]) - 90, 100))

    monkeypatch.setattr("dali_like.engine.memory.ring.Slot", CountedSlot)
    pipe = make_pipeline(source, way, batch_size=batch_size)

    for _ in range(100):
        pipe.run()

    assert 0 < len(made) <= 20


@in_both_places
def test_slots_are_used_again_when_held_batches_are_released(source: Source, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(source, way)

    for _ in range(5):
        held = [pipe.run() for _ in range(20)]
        del held

    assert max(num_slots(pipe)) <= 20 + 3 + 2


def test_batches_may_be_released_in_any_thread(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(SOURCES["dense"], way)

    for _ in range(10):
        held = [pipe.run() for _ in range(5)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()

    assert max(num_slots(pipe)) <= 5 + 3 + 2


def megabyte_source() -> Source:
    return lambda info: np.full(1 << 18, info.idx_in_epoch % 251, np.uint8)


def test_memory_returns_when_held_batches_are_released(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(megabyte_source(), way)
    for _ in range(10):
        pipe.run()
    space = space_of(pipe)
    usual = space.used_bytes

    held = [pipe.run() for _ in range(50)]
    assert space.used_bytes > usual + (45 << 20)
    held.clear()
    for _ in range(100):
        pipe.run()

    assert space.used_bytes < usual + (10 << 20)


def test_memory_of_large_batches_returns(way: str, make_pipeline: MakePipeline) -> None:
    """The first one makes the slots larger; the second finds them large enough, and leaves its pages behind in one."""

    def source(info: SampleInfo) -> NDArray[Any]:
        return np.zeros(20_000_000 if info.iteration in (3, 20) else info.idx_in_batch + 1, np.uint8)

    pipe = make_pipeline(source, way)
    for _ in range(100):
        pipe.run()

    assert space_of(pipe).used_bytes < 40 << 20


@in_both_places
def test_memory_returns_when_the_pipeline_is_closed(source: Source, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(source, way, batch_size=256, prefetch_queue_depth=4)
    for _ in range(6):
        pipe.run()
    space = space_of(pipe)
    assert space.used_bytes > 1 << 20

    pipe.close()

    assert space.used_bytes < 1 << 18


def test_memory_of_a_batch_returns_when_it_is_released_after_closing(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(megabyte_source(), way)
    held = [pipe.run() for _ in range(20)]
    space = space_of(pipe)
    pipe.close()
    assert space.used_bytes >= 20 << 20

    held.clear()

    assert space.used_bytes < 1 << 18


def test_mapping_goes_with_the_last_batch() -> None:
    @pipeline_def(batch_size=4)
    def pipeline() -> Any:
        return fn.external_source(source=SOURCES["dense"], batch=False)

    with contextlib.closing(pipeline()) as pipe:
        sample = pipe.run()[0].at(1)
        mapping = f"{space_of(pipe).address:x}-"
    del pipe
    gc.collect()
    assert mapping in Path("/proc/self/maps").read_text()

    del sample
    gc.collect()

    assert mapping not in Path("/proc/self/maps").read_text()


# Rings and leases by themselves


def geometry_of(rows: int, capacity: int = 4) -> SlotLayout:
    layout = OutputSchema(DTYPE_CODES[np.dtype(np.uint8)], 1, (rows,))
    return SlotLayout(capacity, 1, 1 << 20, (layout,))


def make_ring() -> Ring:
    return Ring(SharedSpace.create(), geometry_of(100))


def test_ring_gives_the_slot_that_was_used_last() -> None:
    ring = make_ring()
    one, other = ring.acquire(0), ring.acquire(0)

    ring.release(other)
    ring.release(one)

    assert ring.acquire(0) is one
    assert ring.acquire(0) is other
    assert ring.acquire(0) not in (one, other)
    assert ring.num_slots == 3


def test_slots_of_a_ring_do_not_overlap() -> None:
    ring = make_ring()

    slots = sorted((ring.acquire(0) for _ in range(10)), key=lambda slot: slot.offset)

    for slot, following in itertools.pairwise(slots):
        assert slot.offset + slot.slot_layout.slot_bytes <= following.offset


def test_slots_of_an_old_geometry_are_not_used_again() -> None:
    ring = make_ring()
    free, taken = ring.acquire(0), ring.acquire(0)
    ring.release(free)

    ring.slot_layout = geometry_of(200)
    ring.release(taken)
    slot = ring.acquire(0)

    assert slot.slot_layout == ring.slot_layout
    assert ring.num_slots == 1


def test_lease_ends_with_the_last_of_its_arrays() -> None:
    ring = make_ring()
    slot = ring.acquire(0)
    lease = Lease(ring, slot)
    address = slot.space.address + slot.offset + slot.slot_layout.rows[0]
    one, other = (leased_array(lease, address + i * 100, (100,), np.dtype(np.uint8)) for i in range(2))
    del lease

    del one
    assert ring.acquire(0) is not slot

    view = other[10:]
    del other
    assert ring.acquire(0) is not slot

    del view
    assert ring.acquire(0) is slot


def test_ring_that_cannot_have_memory_for_a_slot_gives_its_address_space_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(self: SharedSpace, offset: int, nbytes: int) -> None:
        raise OutOfMemoryError

    space = SharedSpace.create()
    ring = Ring(space, geometry_of(100))
    monkeypatch.setattr(SharedSpace, "commit", commit)

    with pytest.raises(OutOfMemoryError):
        ring.acquire(0)

    assert ring.num_slots == 0
    assert space.allocate(space.size) == 0


def test_slots_that_are_in_use_again_and_again_are_kept() -> None:
    """Giving one back only to make another would cost its pages each time."""
    ring = Ring(SharedSpace.create(1 << 26), SlotLayout(4, 4, 1 << 20, (OutputSchema(0, 1, (4096,)),)))
    used = []
    for _ in range(200):
        slots = [ring.acquire(0) for _ in range(3)]
        used.append(set(slots))
        for slot in slots:
            ring.release(slot)

    assert ring.num_slots == 3
    assert all(slots == used[0] for slots in used)
