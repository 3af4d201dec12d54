"""Handlers that raise, of other signals than SIGINT, for example of timeouts by SIGALRM: then a pipeline can be closed."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.types import SampleInfo
from tests.callbacks import number
from tests.conftest import children, time_limit
from tests.faults.interrupting import STRIDE, Interrupter, wait_until_no_child_is_left

MakePipeline = Callable[..., Pipeline]


class TimeIsUp(Exception):
    pass


@pytest.fixture(autouse=True)
def _raises() -> Iterator[None]:
    def handle(*_: Any) -> None:
        raise TimeIsUp

    with time_limit():  # which has SIGALRM for itself
        before = signal.signal(signal.SIGUSR1, handle)
        yield
        signal.signal(signal.SIGUSR1, before)


def raise_at(point: int, modules: str, function: Callable[[], Any]) -> bool:
    """Call a function, and let a handler raise at one of the points in these modules; whether that point has come."""
    interrupter = Interrupter(point, signal.SIGUSR1, modules)
    with suppress(TimeIsUp), interrupter:
        function()
    return interrupter.has_come


@pytest.mark.parametrize(("way", "module"), [("fork", "workers"), ("thread", "threads")])
def test_while_workers_are_ended_leaves_none(way: str, module: str, make_pipeline: MakePipeline) -> None:
    for point in itertools.count(step=3):
        pipe = make_pipeline(number, way)
        pipe.run()

        has_come = raise_at(point, f"dali_like.workers.{module}", pipe.close)
        pipe.close()

        assert not children()
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("dali_like:")]
        if not has_come:
            break


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_while_workers_are_started_leaves_nothing_behind(way: str, make_pipeline: MakePipeline) -> None:
    for point in itertools.count(step=STRIDE if way == "spawn" else 3):
        pipe = make_pipeline(number, way)

        has_come = raise_at(point, "dali_like.engine.backends.launch", pipe.build)
        pipe.close()
        gc.collect()

        wait_until_no_child_is_left()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        assert gc.isenabled()
        if not has_come:
            break


def test_workers_that_are_spawned_get_signals_that_were_blocked_meanwhile(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return np.int64(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))

    pipe = make_pipeline(source, "spawn")

    assert pipe.run()[0].as_array().tolist() == [0, 0, 0, 0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
