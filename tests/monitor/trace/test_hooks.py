"""Hooks: functions that the library calls with statistics at intervals."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.monitor.measure.statistics import Statistics

MakePipeline = Callable[..., Pipeline]


def zeros(info: Any) -> Any:
    return np.zeros(3)


def test_hook_is_called_after_each_given_number_of_batches(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(zeros, "serial")
    told: list[Statistics] = []
    pipe.on_statistics(told.append, batches=3)
    for _ in range(10):
        pipe.run()

    assert [part.loop.batches for part in told] == [3, 3, 3]
    assert all(part.seconds > 0 for part in told)


def test_hook_is_called_after_each_given_number_of_seconds(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(zeros, "serial")
    often: list[Statistics] = []
    never: list[Statistics] = []
    pipe.on_statistics(often.append, seconds=1e-9)
    pipe.on_statistics(never.append, seconds=1e9)
    for _ in range(5):
        pipe.run()

    assert (len(often), len(never)) == (5, 0)


def test_hook_is_called_in_the_thread_of_the_loop(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(zeros, "fork")
    threads = []
    pipe.on_statistics(lambda _: threads.append(threading.current_thread()), batches=1)
    for _ in range(3):
        pipe.run()

    assert threads == [threading.current_thread()] * 2


def test_loaders_call_it_in_all_epochs() -> None:
    loader: DataLoader[Any] = DataLoader(np.arange(12), batch_size=2)
    told: list[int] = []
    loader.on_statistics(lambda part: told.append(part.loop.batches), batches=4)
    for _ in range(2):
        list(loader)

    assert told == [4, 4, 4]


def test_an_exception_of_the_hook_loses_no_batch(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array(info.iteration), "serial")
    pipe.on_statistics(lambda _: 1 // 0, batches=2)
    got = [int(pipe.run()[0].at(0)) for _ in range(2)]
    with pytest.raises(ZeroDivisionError):
        pipe.run()
    got.append(int(pipe.run()[0].at(0)))

    assert got == [0, 1, 2]


def test_its_time_is_work_of_the_loop(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(zeros, "serial")
    pipe.on_statistics(lambda _: threading.Event().wait(0.01), batches=1)
    for _ in range(3):
        pipe.run()

    assert pipe.statistics().loop.work.total_s >= 0.02


def test_hook_may_ask_for_the_report(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(zeros, "serial")
    reports: list[str] = []
    pipe.on_statistics(lambda _: reports.append(str(pipe.report())), batches=1)
    for _ in range(2):
        pipe.run()

    assert len(reports) == 1


def test_hook_does_not_keep_the_pipeline() -> None:
    loader: DataLoader[Any] = DataLoader(np.arange(4))
    loader.on_statistics(lambda _: None, batches=1)
    gone = weakref.ref(loader)
    gc.disable()
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how_often", [{}, {"batches": 1, "seconds": 1}])
def test_interval_in_batches_and_seconds_is_an_error(make_pipeline: MakePipeline, how_often: Any) -> None:
    with pytest.raises(ArgumentClashError, match="batches= or seconds="):
        make_pipeline(zeros).on_statistics(print, **how_often)


@pytest.mark.parametrize("how_often", [{"batches": 0}, {"seconds": 0}, {"seconds": "a minute"}, {"batches": 1.5}])
def test_interval_must_be_positive(make_pipeline: MakePipeline, how_often: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(how_often))} must be a positive"):
        make_pipeline(zeros).on_statistics(print, **how_often)
