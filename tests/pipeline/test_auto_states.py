"""States of pipelines and loaders with "auto" settings: taken before and after they grow, and loaded into others."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.data import DataLoader
from dali_like.engine.pool import tuner
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S

#: Batches that are compared behind a state.
BEHIND = 3


class Slow:
    """Slow samples, so that more workers and a greater depth pay."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def __call__(self, info: SampleInfo) -> Any:
        time.sleep(self.wait_s)
        return np.array([info.idx_in_epoch, info.rng().integers(1 << 30)])


class SlowDataset:
    """The same for a loader."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def __len__(self) -> int:
        return 1 << 12

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.wait_s)
        return index, np.random.randint(1 << 30)


class SlowBatches:
    """Slow batches of a stateful iterable. Its numbers continue from its state."""

    def __init__(self, wait_s: float, number: int = 0) -> None:
        self.wait_s = wait_s
        self.number = number

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.number += 1
            time.sleep(self.wait_s)
            yield np.full((4, 1), self.number)


@pytest.fixture(autouse=True)
def _few_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "MOST_WORKERS", 6)


def pipeline_of(source: Any, way: str = "serial", batch_size: int = 16) -> Pipeline:
    chosen = {} if way == "serial" else {"py_start_method": way, "py_num_workers": "auto", "prefetch_queue_depth": "auto"}
    pipe = Pipeline(batch_size, num_threads=2, seed=1, enable_checkpointing=True, **chosen)
    numbers = fn.external_source(source, batch=isinstance(source, SlowBatches), parallel=way != "serial")
    pipe.set_outputs(numbers, fn.random.uniform(numbers))
    return pipe


def take(pipe: Pipeline, count: int) -> list[Any]:
    return [[output.as_array().tolist() for output in pipe.run()] for _ in range(count)]


def grown(pipe: Any) -> bool:
    """Whether its settings differ from the first ones."""
    chosen = pipe.statistics().settings.chosen
    return chosen is not None and bool(chosen.num_workers_reason or chosen.prefetch_depth_reason)


def states_until_it_grows(pipe: Pipeline) -> tuple[list[Any], list[Any]]:
    """The states before each batch, and the batches; until it has grown, and some more."""
    states, batches = [], []
    end = time.monotonic() + DEADLINE_S
    while not grown(pipe) and time.monotonic() < end:
        states.append(json.loads(json.dumps(pipe.state_dict())))
        batches += take(pipe, 1)
    for _ in range(2 * BEHIND):
        states.append(json.loads(json.dumps(pipe.state_dict())))
        batches += take(pipe, 1)
    assert grown(pipe)
    return states, batches


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_a_pipeline_is_resumed_while_it_grows(way: str) -> None:
    with closing(pipeline_of(Slow(0.005), way)) as pipe:
        states, batches = states_until_it_grows(pipe)

    with closing(pipeline_of(Slow(0))) as serial:
        assert take(serial, len(batches)) == batches
        for i in {0, len(states) // 2, len(states) - BEHIND}:
            serial.load_state_dict(states[i])
            assert take(serial, BEHIND) == batches[i : i + BEHIND]
            with closing(pipeline_of(Slow(0.005), way)) as resumed:
                resumed.load_state_dict(states[i])
                assert take(resumed, BEHIND) == batches[i : i + BEHIND]


def test_a_state_is_loaded_by_a_pipeline_that_has_grown() -> None:
    with closing(pipeline_of(Slow(0.005), "thread")) as pipe:
        states, batches = states_until_it_grows(pipe)

        for i in (len(states) - BEHIND, 0):
            pipe.load_state_dict(states[i])
            assert take(pipe, BEHIND) == batches[i : i + BEHIND]


def test_an_iterable_in_a_worker_is_asked_however_far_it_is_ahead() -> None:
    with closing(pipeline_of(SlowBatches(0.003), "thread")) as pipe:
        states, batches = states_until_it_grows(pipe)

    for i in (0, len(states) // 2, len(states) - BEHIND):
        with closing(pipeline_of(SlowBatches(0, number=1000))) as serial:
            serial.load_state_dict(states[i])
            assert take(serial, BEHIND) == batches[i : i + BEHIND]


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_a_loader_is_resumed_while_it_grows(method: str) -> None:
    def loader_of(wait_s: float, **workers: Any) -> DataLoader[Any]:
        return DataLoader(SlowDataset(wait_s), 16, shuffle=True, generator=3, **workers)

    chosen = {"num_workers": "auto", "prefetch_factor": "auto", "multiprocessing_context": method}
    loader = loader_of(0.005, **chosen)
    states, batches = [], []
    end = time.monotonic() + DEADLINE_S
    for number, batch in enumerate(loader):
        states.append(json.loads(json.dumps(loader.state_dict())))
        batches.append([part.tolist() for part in batch])
        if number >= 2 * BEHIND and (grown(loader) or time.monotonic() > end):
            break
    assert grown(loader)
    assert isinstance(loader.num_workers, int)

    parts = 2 if method == "fork" else 1  # threads share the global generators with everybody
    for i in (0, len(states) - 1 - BEHIND):
        for other in (loader_of(0, num_workers=1, multiprocessing_context=method), loader_of(0.005, **chosen)):
            other.load_state_dict(states[i])
            resumed = [[part.tolist() for part in batch][:parts] for batch in itertools.islice(other, BEHIND)]
            assert resumed == [batch[:parts] for batch in batches[i + 1 : i + 1 + BEHIND]]
