"""States of sources: the state of a batch, and its travel with requests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch, Output, result_of
from dali_like.engine.worker.source import Source, SourceType
from dali_like.engine.worker.streams import Stream, reporting, request_text
from dali_like.errors import CheckpointError
from dali_like.feed.feed import Feed, SourcePlan
from dali_like.feed.lockstep import Lockstep, PipelinePosition
from dali_like.feed.source_states import LocalState, RecentStates, ReportedState
from dali_like.sources.state_format import ShardState, SourceProgress, state_of_walk
from dali_like.types import SampleInfo
from tests.faults.played import PlayedPool

LENGTH = 3


class Counter:
    """An iterable whose state changes with each item, in the same dictionary."""

    def __init__(self) -> None:
        self.state = {"number": 0}

    def state_dict(self) -> dict[str, int]:
        return self.state

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.state = state

    def __iter__(self) -> Iterator[int]:
        while True:
            self.state["number"] += 1
            yield self.state["number"]


class ReportingPool:
    """Workers with epochs of `LENGTH` batches, each with a state. Batches complete when they are waited for."""

    def __init__(self) -> None:
        self.keys: list[BatchKey] = []

    def submit(self, key: BatchKey) -> Batch:
        self.keys.append(key)
        return Batch(key)

    def poll(self) -> None:
        """Nothing completes here."""

    def wait(self, batch: Batch) -> Sequence[Output]:
        batch.outcome = StopIteration() if batch.key.iteration >= LENGTH else []
        batch.state = json.dumps(saved(batch.key.epoch, batch.key.iteration)).encode()
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        batch.cancelled = True

    def close(self) -> None:
        """Nothing is open."""


def saved(epoch: int, position: int) -> dict[str, Any]:
    """Return the state of a stream before a batch."""
    return {"epoch": epoch, "end": None, "of_iterator": False, "state": [epoch, position], "position": position}


def progress(epoch: int, position: int) -> SourceProgress:
    """Return the same, as a checkpoint has it."""
    return SourceProgress(states={0: state_of_walk(saved(epoch, position))})


def reported_state(*, reports: bool = True) -> ReportedState:
    counter = Counter()
    return ReportedState("source", Stream(counter.__iter__, owner=counter), 8, reports=reports)


def lockstep_of(pool: ReportingPool, state: ReportedState) -> Lockstep:
    return Lockstep([Feed(SourcePlan(0, 4, state=state), pool, 2, parallel=True)])


def take(lockstep: Lockstep, count: int) -> None:
    for _ in range(count):
        lockstep.next()


def test_recent_states_keep_the_state_of_each_batch_that_was_noted_last() -> None:
    recent = RecentStates(2)

    for iteration, state in ((0, 1), (1, 2), (0, 3), (2, 4)):
        recent.keep((0, iteration), state)

    assert [recent.get((0, iteration)) for iteration in range(3)] == [3, None, 4]


def test_local_state_is_noted_where_a_batch_begins_and_does_not_change_later() -> None:
    counter = Counter()
    stream = Stream(counter.__iter__, owner=counter)
    local = LocalState("source", stream, 2)

    for info in (SampleInfo(4, 0, 1, 0), SampleInfo(5, 1, 1, 0), SampleInfo(6, 0, 2, 0)):
        stream(info)

    states = [local.before((0, iteration)) for iteration in (1, 2, 3)]  # the last one has not begun
    assert [state.states[0].state["state"] for state in states] == [{"number": 0}, {"number": 6}, {"number": 7}]


def test_state_before_a_batch_that_no_one_has_waited_for_comes_with_that_batch() -> None:
    pool = ReportingPool()
    lockstep = lockstep_of(pool, reported_state())
    take(lockstep, 2)

    assert lockstep.state(0, PipelinePosition(0, 2, (0,)), ended=False) == progress(0, 2)
    take(lockstep, 1)
    assert len({(key.epoch, key.iteration) for key in pool.keys}) == len(pool.keys)


def test_state_before_the_end_of_an_epoch_is_that_of_the_next_epoch() -> None:
    lockstep = lockstep_of(ReportingPool(), reported_state())
    take(lockstep, LENGTH)

    assert lockstep.state(0, PipelinePosition(0, LENGTH, (0,)), ended=False) == progress(1, 0)


def test_source_that_reports_no_state_has_none_and_computes_nothing() -> None:
    pool = ReportingPool()
    lockstep = lockstep_of(pool, reported_state(reports=False))

    assert lockstep.state(0, PipelinePosition(0, 0, (0,)), ended=False) == SourceProgress()
    assert not pool.keys


def test_requests_carry_the_latest_state_of_their_epoch_only() -> None:
    pool = ReportingPool()
    lockstep = lockstep_of(pool, reported_state())

    take(lockstep, LENGTH)
    with pytest.raises(StopIteration):
        lockstep.next()

    states = {(key.epoch, key.iteration): key.request for key in pool.keys}
    assert states[0, 3] == request_text(0, json.dumps(saved(0, 0)).encode(), reports=True)
    assert states[1, 0] == request_text(0, b"", reports=True)


def test_answer_carries_a_state_if_its_request_asks_for_one() -> None:
    stream = Stream(lambda: iter([np.full((4, 1), number) for number in range(6)]), owner=Counter())
    stream.on_state = reporting("source")
    source = Source("source", stream, batch=True, type=SourceType.STREAM, in_order=True, takes_state=True)
    pool = PlayedPool(lambda: [source], 4, num_workers=1)
    asked = [True, False, False, True, False, True]

    with contextlib.closing(pool):
        keys = [BatchKey(0, 0, i, 0, 4, 0, i, request_text(0, b"", reports=reports)) for i, reports in enumerate(asked)]
        batches = list(map(pool.submit, keys))
        numbers = [int(np.asarray(pool.wait(batch)[0])[0, 0]) for batch in batches]

    assert numbers == [*range(6)]
    states = [json.loads(batch.state)["position"] if hasattr(batch, "state") else None for batch in batches]
    assert states == [0, None, None, 3, None, 5]


def test_restored_state_goes_with_requests_of_a_new_generation() -> None:
    state = reported_state()

    state.restore(progress(0, 5))

    assert state.request(3) == request_text(1, json.dumps(saved(0, 5)).encode(), reports=True)
    assert state.request(4) == request_text(1, b"", reports=True)


def test_restoring_another_kind_of_state_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="a state of another kind of source"):
        reported_state().restore(SourceProgress(states={0: ShardState(0, {"state": 5})}))
