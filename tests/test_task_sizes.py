"""Into how many tasks batches are cut, and how far ahead they are begun: short tasks are joined, and waits are used."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import DEADLINE_S
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.graph.lockstep import Feed, Lockstep
from dali_like.types import SampleInfo
from dali_like.workers.batch import Batch, BatchKey
from dali_like.workers.memory import SharedSpace
from dali_like.workers.samples import Source
from dali_like.workers.stages import ArrayStage

MakePipeline = Callable[..., Pipeline]

BATCH_SIZE = 64
WORKERS = 2
#: Two tasks for each worker.
USUAL = 16

MICROSECOND = 1_000
MILLISECOND = 1_000_000


def indices(info: SampleInfo) -> NDArray[Any]:
    return np.array([info.idx_in_epoch])


def make_stage() -> ArrayStage:
    return ArrayStage(SharedSpace.create(), Source("a source", indices), BATCH_SIZE, (), WORKERS)


def size_of(stage: ArrayStage) -> int:
    return stage.ring.geometry.task_size


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
    stage = make_stage()

    assert stage.fit(100 * MICROSECOND, WORKERS, num_ahead) is (size != USUAL)

    assert size_of(stage) == size


def test_long_tasks_stay_as_they_are() -> None:
    stage = make_stage()

    assert not stage.fit(2 * MILLISECOND, WORKERS, 4)

    assert size_of(stage) == USUAL


def test_joined_tasks_that_have_become_long_are_parted_again() -> None:
    stage = make_stage()
    stage.fit(100 * MICROSECOND, WORKERS, 4)

    assert stage.fit(4 * 50 * MILLISECOND, WORKERS, 4)

    assert size_of(stage) == USUAL


def test_joined_tasks_take_longer_and_are_not_parted_for_that() -> None:
    stage = make_stage()
    stage.fit(900 * MICROSECOND, WORKERS, 4)

    assert not stage.fit(4 * 900 * MICROSECOND, WORKERS, 4)

    assert size_of(stage) == BATCH_SIZE


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_batches_are_the_same_while_tasks_are_joined(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(indices, way, batch_size=BATCH_SIZE, workers=WORKERS)
    pipe.build()
    assert pipe._engine is not None
    assert pipe._engine.process_pool is not None
    pool = pipe._engine.process_pool
    (stage,) = pool.stages
    deadline_s = time.monotonic() + DEADLINE_S

    first = 0
    while stage.ring.geometry.task_size == USUAL:
        (batch,) = pipe.run()
        np.testing.assert_array_equal(batch.as_array()[:, 0], np.arange(first, first + BATCH_SIZE))
        first += BATCH_SIZE
        assert time.monotonic() < deadline_s, "short tasks have not been joined"
    joined = stage.ring.geometry.task_size
    pool.grow(WORKERS)  # as they are
    assert stage.ring.geometry.task_size == joined
    for _ in range(10):
        (batch,) = pipe.run()
        np.testing.assert_array_equal(batch.as_array()[:, 0], np.arange(first, first + BATCH_SIZE))
        first += BATCH_SIZE


def test_at_first_batches_are_cut_for_the_workers_that_there_are(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(indices, "thread", batch_size=BATCH_SIZE, workers="auto")
    pipe.start_py_workers()
    assert pipe._engine is not None
    assert pipe._engine.process_pool is not None
    (stage,) = pipe._engine.process_pool.stages

    assert stage.ring.geometry.num_tasks(BATCH_SIZE) == 2, "one thread, and there may be 64"


class LatePool:
    """Batches are complete when somebody waits for them, or at once.

    Attributes:
        submitted: how many batches have been asked for.
        seen_waiting: how many had been, whenever somebody began to wait.
    """

    def __init__(self, *, is_prompt: bool) -> None:
        self._is_prompt = is_prompt
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
        batch.outcome = ()
        return batch.outcome

    def cancel(self, batch: Batch) -> None:
        """Nobody does."""

    def close(self) -> None:
        """Nothing is open."""


def test_what_follows_is_begun_before_a_wait_and_not_after_it() -> None:
    pool = LatePool(is_prompt=False)
    lockstep = Lockstep([Feed(pool, 0, ahead=2, parallel=True)], BATCH_SIZE)

    lockstep.next()
    lockstep.next()

    assert pool.seen_waiting == [3, 4]
    assert pool.submitted == 4


def test_where_nobody_waits_nothing_is_begun_early() -> None:
    pool = LatePool(is_prompt=True)
    lockstep = Lockstep([Feed(pool, 0, ahead=2, parallel=True)], BATCH_SIZE)

    lockstep.next()
    lockstep.next()

    assert pool.seen_waiting == [2, 3]
    assert pool.submitted == 4
