"""The tables of states of workers, and of phases of a pool. `tests/faults` has the behavior."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from numpy.typing import NDArray

from dali_like.engine.pool.recovery import PHASES, TRANSITIONS, Phase, WorkerState
from dali_like.types import SampleInfo
from tests.faults.played import Death, PlayedPool
from tests.faults.test_played_workers import of, played, rows
from tests.internals import hang_errors_of, suspects_of, worker_states_of


@pytest.mark.parametrize(
    ("table", "start"), [(TRANSITIONS, WorkerState.NOT_STARTED), (PHASES, Phase.NORMAL)], ids=["workers", "phases"]
)
def test_all_states_are_in_the_table_and_can_be_reached(
    table: dict[enum.Enum, frozenset[enum.Enum]], start: enum.Enum
) -> None:
    reached = {start}
    while (further := reached.union(*(table[state] for state in reached))) != reached:
        reached = further

    assert set(table) == set(type(start)) == reached


def test_an_abandoned_worker_never_runs_again() -> None:
    assert not TRANSITIONS[WorkerState.ABANDONED]


def test_a_transition_that_is_not_in_the_table_is_an_error() -> None:
    with played(of(rows), num_workers=1) as pool:
        with pytest.raises(RuntimeError, match="worker 0: no transition from RUNNING to NOT_STARTED"):
            # Private: must be refused, so there is no public way
            pool.recovery._move(0, WorkerState.NOT_STARTED)
        with pytest.raises(RuntimeError, match="no transition from NORMAL to ISOLATED"):
            # Private: must be refused, so there is no public way
            pool.recovery._enter(Phase.ISOLATED)


@pytest.mark.parametrize("restarts", [None, 1])
def test_invariants_hold_after_each_step(restarts: int | None) -> None:
    def callback(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 10:
            raise Death
        return rows(info)

    for seed in range(20):
        with played(of(callback), num_workers=3, first_workers=2, deaths=0.1, restarts=restarts, seed=seed) as pool:
            for iteration in range(4):
                pool.begin(iteration, 8)
            for _ in range(200):
                pool.play()
                pool.poll()
                pool.recovery.look()
                _check_invariants(pool)


def _check_invariants(pool: PlayedPool) -> None:
    recovery = pool.recovery
    states = worker_states_of(pool)
    assert WorkerState.NOT_STARTED not in states[: recovery.num_workers]
    assert set(states[recovery.num_workers :]) <= {WorkerState.NOT_STARTED}
    hung = {worker for worker, state in enumerate(states) if state in (WorkerState.HUNG, WorkerState.HUNG_AT_START)}
    assert hung == set(hang_errors_of(pool))
    assert bool(suspects_of(pool)) == (recovery.phase in (Phase.DRAINING, Phase.RETIRING, Phase.ISOLATED))
    if recovery.phase is Phase.NORMAL:
        assert WorkerState.STOPPED not in states
    if WorkerState.ABANDONED in states:
        assert pool.dispatcher.has_failed
