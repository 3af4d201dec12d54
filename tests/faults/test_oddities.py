"""Exceptions and samples with any attributes: each costs at most its own batch, and the next batch is right."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.errors import WorkerError
from tests.conftest import once, time_limit
from tests.faults.oddities import NAME, OddDataset, Oddity, OddSampler, OddSource, oddities

BATCH_SIZE = 4
COUNT = 2000 if os.environ.get("PARITY") == "full" else 100
ERRORS = oddities(COUNT, are_errors=True)
SAMPLES = oddities(COUNT, are_errors=False)
RUN_S = 20.0

ways = pytest.mark.parametrize("way", ["serial", "fork", once("spawn"), "thread"])


def kind_raised_by(call: Callable[[], Any]) -> type | None:
    """Return the class of the exception of a call. pytest could not show the exception itself."""
    try:
        call()
    except Exception as error:
        return type(error)
    return None


def name_of(kind: type | None) -> str:
    """Return the name of a class, also if it defines its own."""
    return str(type.__dict__["__name__"].__get__(kind)) if kind is not None else "no error"


def names(way: str) -> tuple[str, ...]:
    """Return the names of the exceptions that may arrive: from workers, a substitute for exceptions that cannot travel."""
    return (NAME,) if way == "serial" else (NAME, WorkerError.__name__)


@ways
def test_a_batch_after_one_with_an_odd_exception_is_right(make_pipeline: Callable[..., Pipeline], way: str) -> None:
    pipe = make_pipeline(OddSource(ERRORS), way, batch_size=BATCH_SIZE)

    for i, oddity in enumerate(ERRORS):
        with time_limit(RUN_S):
            first = 2 * i * BATCH_SIZE
            assert pipe.run()[0].as_array().tolist() == list(range(first, first + BATCH_SIZE)), ERRORS[i - 1]
            assert name_of(kind_raised_by(pipe.run)) in names(way), oddity
    assert kind_raised_by(pipe.run) is StopIteration


@ways
def test_a_batch_after_one_with_an_odd_sample_is_right(make_pipeline: Callable[..., Pipeline], way: str) -> None:
    pipe = make_pipeline(OddSource(SAMPLES), way, batch_size=BATCH_SIZE)

    for i in range(len(SAMPLES)):
        with time_limit(RUN_S):
            first = 2 * i * BATCH_SIZE
            assert pipe.run()[0].as_array().tolist() == list(range(first, first + BATCH_SIZE)), SAMPLES[i - 1]
            kind_raised_by(pipe.run)
    assert kind_raised_by(pipe.run) is StopIteration


def loader(dataset: OddDataset, way: str, **options: Any) -> Any:
    workers: dict[str, Any] = {} if way == "serial" else {"num_workers": 2, "multiprocessing_context": way}
    return DataLoader(dataset, **options, **workers)


@ways
def test_a_batch_of_a_loader_after_one_with_an_odd_exception_is_right(way: str) -> None:
    batches = iter(loader(OddDataset(ERRORS), way, batch_sampler=OddSampler(COUNT)))

    for i, oddity in enumerate(ERRORS):
        with time_limit(RUN_S):
            assert np.asarray(next(batches)).tolist() == [4 * i, 4 * i + 1], ERRORS[i - 1]
            assert name_of(kind_raised_by(lambda: next(batches))) in names(way), oddity
    assert kind_raised_by(lambda: next(batches)) is StopIteration


@ways
def test_a_batch_of_a_loader_after_one_with_an_odd_sample_is_right(way: str) -> None:
    batches = iter(loader(OddDataset(SAMPLES), way, batch_size=2))

    for i in range(len(SAMPLES)):
        with time_limit(RUN_S):
            assert np.asarray(next(batches)).tolist() == [4 * i, 4 * i + 1], SAMPLES[i - 1]
            kind_raised_by(lambda: next(batches))
    assert kind_raised_by(lambda: next(batches)) is StopIteration


@pytest.mark.parametrize("way", ["serial", "fork", "thread"])
def test_loader_continues_after_a_first_sample_that_cannot_be_examined(way: str) -> None:
    class OddFirst(OddDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(3 - index)

    batches = iter(loader(OddFirst([Oddity(object, (("__class__", "failing property"),), ())]), way, batch_size=1))

    with time_limit(RUN_S):
        assert kind_raised_by(lambda: next(batches)) is not None
        assert [np.asarray(batch).tolist() for batch in batches] == [[2], [1], [0]]
