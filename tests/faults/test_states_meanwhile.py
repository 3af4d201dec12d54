"""States that are taken while workers are killed or stopped: a program that resumes from one gets the same batches."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data import DataLoader, get_worker_info
from dali_like.types import SampleInfo
from tests.faults.processes import kill_and_wait, workers_of

BATCH_SIZE = 4
NUM_BATCHES = 8
#: After so many batches a state is taken. The epoch has ended behind the last.
POINTS = {"fork": (0, 1, 3, 7, 8), "spawn": (3,)}

WAYS = [(way, point) for way, points in POINTS.items() for point in points]


class Numbers:
    """Batches of an iterable that knows its state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Numbers:
        self.at = 0
        return self

    def __next__(self) -> Any:
        if self.at == NUM_BATCHES:
            raise StopIteration
        self.at += 1
        return np.full((BATCH_SIZE, 1), self.at)

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def dice(info: SampleInfo) -> Any:
    if info.iteration == NUM_BATCHES:
        raise StopIteration
    return np.array([info.epoch_idx, info.idx_in_epoch, info.rng().integers(1 << 30)])


def make_pipeline(way: str) -> Pipeline:
    @pipeline_def(
        batch_size=BATCH_SIZE,
        num_threads=1,
        py_num_workers=2,
        py_start_method=way,
        py_worker_restarts=None,
        enable_checkpointing=True,
        seed=5,
    )
    def pipeline() -> Any:
        return (
            fn.external_source(source=dice, batch=False, parallel=True),
            fn.external_source(source=Numbers(), batch=True, parallel=True, cycle="raise"),
        )

    return pipeline()


def take(pipe: Pipeline, count: int) -> list[Any]:
    """So many batches, or ends of epochs, after which it goes on with the next one."""
    taken: list[Any] = []
    while len(taken) < count:
        try:
            taken.append([output.as_array().tolist() for output in pipe.run()])
        except StopIteration:
            taken.append("the end")
            pipe.reset()
    return taken


def state_amid_trouble(workers: list[int], state_dict: Callable[[], Any]) -> Any:
    """A state, while one worker is stopped, and when another one has just been killed."""
    killed, stopped = workers
    os.kill(stopped, signal.SIGSTOP)
    try:
        kill_and_wait([killed])
        return json.loads(json.dumps(state_dict()))
    finally:
        os.kill(stopped, signal.SIGCONT)


@pytest.mark.parametrize(("way", "point"), WAYS)
def test_of_a_pipeline(way: str, point: int) -> None:
    with make_pipeline("fork") as undisturbed:
        expected = take(undisturbed, NUM_BATCHES + 5)

    with make_pipeline(way) as pipe:
        seen = take(pipe, point)
        pipe.build()
        state = state_amid_trouble(workers_of(pipe), pipe.state_dict)
        seen += take(pipe, 3)
    with make_pipeline(way) as resumed:
        resumed.load_state_dict(state)
        first = take(resumed, 2)
        state = state_amid_trouble(workers_of(resumed), resumed.state_dict)
    with make_pipeline(way) as again:
        again.load_state_dict(state)
        then = take(again, 3)

    assert seen == expected[: point + 3]
    assert first + then == expected[point:][:5]


class Dice:
    def __len__(self) -> int:
        return BATCH_SIZE * NUM_BATCHES

    def __getitem__(self, index: int) -> Any:
        assert get_worker_info() is not None
        return index, np.random.randint(1 << 30)


def make_loader(way: str) -> DataLoader[Any]:
    return DataLoader(
        Dice(),
        BATCH_SIZE,
        shuffle=True,
        num_workers=2,
        multiprocessing_context=way,
        worker_restarts=None,
        generator=np.random.default_rng(5),
    )


@pytest.mark.parametrize(("way", "point"), WAYS)
def test_of_a_loader(way: str, point: int) -> None:
    undisturbed = make_loader("fork")
    expected = [[part.tolist() for part in batch] for _ in range(2) for batch in undisturbed]

    loader = make_loader(way)
    batches = iter(loader)
    seen = [next(batches) for _ in range(point)]
    state = loader.state_dict()
    if point < NUM_BATCHES:  # with the last one the workers have ended
        state = state_amid_trouble([worker.pid for worker in batches._workers], loader.state_dict)
    seen += batches
    resumed = make_loader(way)
    resumed.load_state_dict(state)
    rest = [batch for _ in range(2) for batch in resumed]

    assert [[part.tolist() for part in batch] for batch in seen] == expected[:NUM_BATCHES]
    assert [[part.tolist() for part in batch] for batch in rest] == expected[point:][: len(rest)]
    assert len(rest) >= NUM_BATCHES
