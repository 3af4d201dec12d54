"""Into how many tasks batches are cut, and how far ahead they are begun: short tasks are joined, and waits are used."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.engine.memory.batch_key import BatchKey, Sizes
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import ArrayAssembler, Assembler
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import Source
from dali_like.errors import WorkerDiedError
from dali_like.feed.feed import Feed, SourcePlan
from dali_like.feed.lockstep import Lockstep
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S
from tests.internals import dispatcher_of, pool_of

MakePipeline = Callable[..., Pipeline]

BATCH_SIZE = 64
WORKERS = 2
#: Two tasks for each worker.
USUAL = 16

#: With fewer marks, the descriptors of this many samples would take a page less.
BORDER = 124

MICROSECOND = 1_000
MILLISECOND = 1_000_000
MIB = 1 << 20


def indices(info: SampleInfo) -> NDArray[Any]:
    return np.array([info.idx_in_epoch])


def make_stage(**options: Any) -> ArrayAssembler:
    source = Source("a source", indices, **options)
    return ArrayAssembler(SharedSpace.create(), source, BATCH_SIZE, declared=(), num_workers=WORKERS)


def size_of(assembler: ArrayAssembler) -> int:
    return assembler.ring.slot_layout.task_size


def test_at_first_each_worker_has_two_tasks_of_a_batch() -> None:
    assert size_of(make_stage()) == USUAL


@pytest.mark.parametrize(
    ("num_ahead", "size"),
    [
        pytest.param(1, 16, id="one batch must keep all workers busy"),
        pytest.param(2, 32, id="two batches"),
        pytest.param(3, 32, id="three"),
        pytest.param(4, 64, id="so many that each worker has two"),
        pytest.param(9, 64, id="no task is of two batches"),
    ],
)
def test_short_tasks_are_joined_as_far_as_each_worker_has_two_on_their_way(num_ahead: int, size: int) -> None:
    assembler = make_stage()

    assert assembler.fit(100 * MICROSECOND, WORKERS, num_ahead) is (size != USUAL)

    assert size_of(assembler) == size


def test_tasks_that_each_have_a_worker_are_not_joined() -> None:
    assembler = make_stage(in_order=True)

    assert not assembler.fit(100 * MICROSECOND, WORKERS, 4)

    assert size_of(assembler) == USUAL


def test_long_tasks_stay_as_they_are() -> None:
    assembler = make_stage()

    assert not assembler.fit(5 * MILLISECOND, WORKERS, 4)

    assert size_of(assembler) == USUAL


def test_joined_tasks_that_have_become_long_are_parted_again() -> None:
    assembler = make_stage()
    assembler.fit(100 * MICROSECOND, WORKERS, 4)

    assert assembler.fit(4 * 50 * MILLISECOND, WORKERS, 4)

    assert size_of(assembler) == USUAL


def test_joined_tasks_are_parted_again_where_not_every_worker_has_one_any_more() -> None:
    assembler = make_stage()
    assembler.fit(100 * MICROSECOND, WORKERS, 4)

    assert not assembler.fit(4 * 100 * MICROSECOND, WORKERS, 2), "one for each worker"
    assert assembler.fit(4 * 100 * MICROSECOND, WORKERS, 1)

    assert size_of(assembler) == USUAL


@pytest.mark.parametrize("num_ahead", [1, 2, 9])
def test_a_batch_that_takes_less_than_its_tasks_cost_is_one_task(num_ahead: int) -> None:
    assembler = make_stage()

    assert assembler.fit(10 * MICROSECOND, WORKERS, num_ahead)
    assert not assembler.fit(30 * MICROSECOND, WORKERS, num_ahead), "the whole batch"

    assert size_of(assembler) == 64


def test_joined_tasks_take_longer_and_are_not_parted_for_that() -> None:
    assembler = make_stage()
    assembler.fit(900 * MICROSECOND, WORKERS, 4)

    assert not assembler.fit(4 * 900 * MICROSECOND, WORKERS, 4)

    assert size_of(assembler) == BATCH_SIZE


@pytest.mark.parametrize(("batch_size", "num_workers"), [(64, 2), (64, 3), (BORDER, 16)])
def test_slots_keep_their_memory_when_tasks_are_joined_and_parted(batch_size: int, num_workers: int) -> None:
    rows = [OutputSchema(0, 1, (MIB // batch_size,))]
    source = Source("a source", indices)
    assembler = ArrayAssembler(SharedSpace.create(), source, batch_size, declared=rows, num_workers=num_workers)
    usual = size_of(assembler)
    slot = assembler.ring.acquire(0)
    used_bytes = slot.space.used_bytes
    assembler.ring.release(slot)

    for size in (3 * usual, batch_size, usual, 2 * usual, usual):
        assembler.cut(size)
        assert assembler.ring.num_slots == 1
        assert slot.space.used_bytes == used_bytes
        assert slot.slot_layout is assembler.ring.slot_layout


# Batches that are on their way when tasks become larger or smaller tell how much room the next ones need


@pytest.fixture
def _small_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.engine.pool.assembler._FIRST_REGION_BYTES", 1)
    monkeypatch.setattr("dali_like.engine.pool.assembler._LEAST_REGION_BYTES", 1)


@pytest.mark.usefixtures("_small_regions")
def test_tasks_that_have_been_joined_meanwhile_get_room_for_all_their_samples() -> None:
    assembler = make_stage()
    assembler.cut(BATCH_SIZE)

    assembler.enlarge(64 * MIB, USUAL)

    assert assembler.ring.slot_layout.region_bytes >= BATCH_SIZE // USUAL * 64 * MIB


@pytest.mark.usefixtures("_small_regions")
def test_tasks_that_have_been_parted_meanwhile_need_no_room_for_more_than_their_samples() -> None:
    space = SharedSpace.create()
    assembler = ArrayAssembler(space, Source("a source", indices), BATCH_SIZE, declared=(), num_workers=WORKERS)
    most_for_a_slot = space.size // 64

    assembler.enlarge(most_for_a_slot, BATCH_SIZE)  # or an error: for each of several tasks that would be too much

    assert assembler.ring.slot_layout.region_bytes == most_for_a_slot * USUAL // BATCH_SIZE


def region_bytes_after_a_batch(task_size: int) -> int:
    """Return the size of regions after a batch that was begun with another size of tasks."""
    space = SharedSpace.create()
    source = Source("a source", indices)
    assembler = ArrayAssembler(space, source, BATCH_SIZE, declared=[OutputSchema()], num_workers=WORKERS)
    batch = Batch(BatchKey(0, 0, 0, 0, BATCH_SIZE))
    slot = assembler.begin(batch, 1)
    assembler.cut(task_size)
    runner = TaskRunner(space, [source], memoryview(bytearray(24)).cast("q"))
    for task in range(BATCH_SIZE // USUAL):
        _, batch.largest_region_bytes = runner.run(slot.page, task)
    batch.described = batch.open_tasks
    assembler.finish(batch, slot)
    runner.close()
    return assembler.ring.slot_layout.region_bytes


@pytest.mark.usefixtures("_small_regions")
def test_complete_batches_need_room_for_their_samples_only() -> None:
    assert region_bytes_after_a_batch(BATCH_SIZE) == BATCH_SIZE // USUAL * region_bytes_after_a_batch(USUAL)


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_batches_are_the_same_while_tasks_are_joined(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(indices, way, batch_size=BATCH_SIZE, workers=WORKERS)
    pipe.build()
    pool = pool_of(pipe)
    (assembler,) = pool.assemblers
    deadline_s = time.monotonic() + DEADLINE_S

    first = 0
    while assembler.ring.slot_layout.task_size == USUAL:
        (batch,) = pipe.run()
        np.testing.assert_array_equal(batch.as_array()[:, 0], np.arange(first, first + BATCH_SIZE))
        first += BATCH_SIZE
        assert time.monotonic() < deadline_s, "short tasks have not been joined"
    joined = assembler.ring.slot_layout.task_size
    pool.scale.grow(WORKERS)  # as they are
    assert assembler.ring.slot_layout.task_size == joined
    for _ in range(10):
        (batch,) = pipe.run()
        np.testing.assert_array_equal(batch.as_array()[:, 0], np.arange(first, first + BATCH_SIZE))
        first += BATCH_SIZE


def test_at_first_batches_are_cut_for_the_workers_that_there_are(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(indices, "thread", batch_size=BATCH_SIZE, workers="auto")
    pipe.start_py_workers()
    (assembler,) = pool_of(pipe).assemblers

    assert assembler.ring.slot_layout.num_tasks(BATCH_SIZE) == 2, "one thread, and there may be 64"


def test_canceled_batches_do_not_count_as_in_flight(make_pipeline: MakePipeline) -> None:
    gate = threading.Event()

    def source(info: SampleInfo) -> Any:
        assert gate.wait(DEADLINE_S)
        return indices(info)

    pipe = make_pipeline(source, "thread")
    pipe.build()
    pool = pool_of(pipe)
    batches = [pool.submit(BatchKey(0, 0, i, 4 * i, 4)) for i in range(3)]
    pool.cancel(batches[0])

    assert dispatcher_of(pool).num_begun(0) == 2

    gate.set()


# All outcomes of batches in flight when tasks become larger or smaller


@pytest.fixture
def changing_sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Lets tasks have another size after each batch; the sizes that there have been."""
    sizes: list[int] = []
    factors = itertools.cycle([2, 1, 4, 3, 1, 8])

    def fit(self: Assembler, task_ns: float, num_workers: int, num_ahead: int) -> bool:
        self.cut(self.task_size_for(num_workers) * next(factors))
        sizes.append(self.ring.slot_layout.task_size)
        return False

    monkeypatch.setattr(Assembler, "fit", fit)
    monkeypatch.setattr("dali_like.engine.pool.scaling._FIT_EVERY", 1)
    yield sizes
    assert len(set(sizes)) > 2


def of_many_lengths(info: SampleInfo) -> Any:
    """Ragged, and now and then far larger than all before."""
    index = info.idx_in_epoch
    return np.full(400_000 if index % 97 == 50 else index % 5, index), np.array(index)


def in_place(info: SampleInfo) -> Any:
    array, label = info.empty(3, np.int64), np.array(info.idx_in_epoch)
    array[...] = info.idx_in_epoch
    return array, label


async def awaited(info: SampleInfo) -> Any:
    await asyncio.sleep(0)
    return indices(info), np.array(info.idx_in_epoch)


def for_one_epoch(info: SampleInfo) -> Any:
    if info.idx_in_epoch >= 150:
        raise StopIteration
    return indices(info), np.array(info.idx_in_epoch)


def labels_of(pipe: Pipeline, num_batches: int) -> list[int]:
    """Return the labels of the next batches. A label is the value of all elements of its sample."""
    labels: list[int] = []
    for _ in range(num_batches):
        samples, these = pipe.run()
        labels += these.as_array().tolist()
        for i, label in enumerate(these.as_array().tolist()):
            assert (samples.at(i) == label).all()
    return labels


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("source", [of_many_lengths, in_place, awaited], ids=lambda source: source.__name__)
def test_samples_are_the_same_with_tasks_of_any_size(source: Any, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(source, num_outputs=2, batch_size=16, prefetch_queue_depth=3)

    assert labels_of(pipe, 40) == list(range(640))


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("policy", ["drop", "partial", "fill"])
def test_end_of_the_epoch_is_the_same_with_tasks_of_any_size(policy: str, make_pipeline: MakePipeline) -> None:
    expected = {
        "drop": list(range(144)),
        "partial": list(range(150)),
        "fill": [*range(150), *[149] * 10],
    }
    pipe = make_pipeline(
        for_one_epoch,
        num_outputs=2,
        batch_size=16,
        prefetch_queue_depth=3,
        source_options={"last_batch_policy": policy},
    )

    for _ in range(5):
        assert labels_of(pipe, 9 + (policy != "drop")) == expected[policy]
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()


@pytest.mark.usefixtures("changing_sizes")
def test_batches_are_complete_after_workers_are_killed(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(of_many_lengths, num_outputs=2, batch_size=16, prefetch_queue_depth=3, py_worker_restarts=None)
    choice = random.Random(5)

    labels = labels_of(pipe, 10)
    for _ in range(10):
        with contextlib.suppress(ProcessLookupError):  # that one has just been killed
            os.kill(choice.choice(pipe.py_worker_pids), signal.SIGKILL)
        labels += labels_of(pipe, 10)

    assert labels == list(range(1760))
    assert pipe.statistics().worker_restarts


@pytest.mark.usefixtures("changing_sizes")
def test_a_sample_that_ends_its_workers_costs_its_batch_and_no_other(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 250:
            os._exit(3)
        return in_place(info)

    pipe = make_pipeline(source, num_outputs=2, batch_size=16, prefetch_queue_depth=3, py_worker_restarts=None)

    assert labels_of(pipe, 15) == list(range(240))
    with pytest.raises(WorkerDiedError, match="idx_in_epoch 250"):
        pipe.run()
    assert labels_of(pipe, 10) == list(range(256, 416))


class Dice:
    """Return numbers of the global generators for a sample, and its index."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), np.random.rand(), str(index)


@pytest.mark.usefixtures("changing_sizes")
def test_random_numbers_of_loaders_do_not_depend_on_the_size_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> Any:
        loader = DataLoader(Dice(), 30, num_workers=2, generator=np.random.default_rng(3), multiprocessing_context="fork")
        return [repr(batch) for _ in range(2) for batch in loader]

    changing = batches()
    monkeypatch.setattr(Assembler, "fit", lambda *_: False)

    assert changing == batches()


class LatePool:
    """Batches are complete when the pool waits for them, or at once.

    Attributes:
        submitted: how many batches have been asked for.
        seen_waiting: how many had been, at the beginning of each wait.
        interrupts: how many of the next waits Ctrl-C ends.
    """

    def __init__(self, *, is_prompt: bool) -> None:
        self._is_prompt = is_prompt
        self.interrupts = 0
        self.submitted = 0
        self.seen_waiting: list[int] = []

    def submit(self, key: BatchKey) -> Batch:
        self.submitted += 1
        batch = Batch(key)
        if self._is_prompt:
            batch.outcome = ()
        return batch

    def poll(self) -> None:
        """Nothing is completed here."""

    def wait(self, batch: Batch) -> Any:
        self.seen_waiting.append(self.submitted)
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        batch.outcome = ()
        return batch.outcome

    def cancel(self, batch: Batch) -> None:
        """Nobody does."""

    def close(self) -> None:
        """Nothing is open."""


def test_the_next_batch_is_submitted_before_a_wait_and_not_after_it() -> None:
    pool = LatePool(is_prompt=False)
    lockstep = Lockstep([Feed(SourcePlan(0, BATCH_SIZE), pool, 2, parallel=True)])

    lockstep.next()
    lockstep.next()

    assert pool.seen_waiting == [3, 4]
    assert pool.submitted == 4


def test_without_a_wait_the_next_batch_is_submitted_after_the_last() -> None:
    pool = LatePool(is_prompt=True)
    lockstep = Lockstep([Feed(SourcePlan(0, BATCH_SIZE), pool, 2, parallel=True)])

    lockstep.next()
    lockstep.next()

    assert pool.seen_waiting == [2, 3]
    assert pool.submitted == 4


def test_waits_that_are_interrupted_begin_nothing_more() -> None:
    pool = LatePool(is_prompt=False)
    pool.interrupts = 3
    lockstep = Lockstep([Feed(SourcePlan(0, BATCH_SIZE), pool, 2, parallel=True)])

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            lockstep.next()
    lockstep.next()

    assert pool.seen_waiting == [3, 3, 3, 3]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("num_batches", [0, 1, 2, 7])
def test_no_epoch_of_known_length_begins_too_much(num_batches: int, depth: int) -> None:
    pool = LatePool(is_prompt=False)
    sizes = Sizes(num_batches, BATCH_SIZE)
    lockstep = Lockstep([Feed(SourcePlan(0, BATCH_SIZE, sizes=sizes), pool, depth, parallel=True)])

    for epoch in range(1, 4):
        for _ in range(num_batches):
            lockstep.next()
            assert pool.submitted <= len(pool.seen_waiting) + depth
        with pytest.raises(StopIteration):
            lockstep.next()
        lockstep.reset()
        assert len(pool.seen_waiting) == epoch * num_batches


@pytest.mark.parametrize(("keeps", "num_slots"), [pytest.param(False, 4, id="dropped"), pytest.param(True, 5, id="held")])
def test_a_batch_that_is_begun_early_takes_the_place_of_one_that_is_delivered(
    keeps: bool, num_slots: int, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(indices, prefetch_queue_depth=2)  # and one that the source adds
    kept = None
    for _ in range(40):
        outputs = pipe.run()
        kept = outputs if keeps else None
        del outputs

    assert pipe.statistics().sources[0].ring.slots <= num_slots
    del kept
