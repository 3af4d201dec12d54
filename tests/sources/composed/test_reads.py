"""Stages of composed datasets that read several elements at a time: the same stream, states and errors as without."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import ArgumentClashError, ArgumentError
from tests.conftest import DEADLINE_S

pytestmark = pytest.mark.usefixtures("limited_time")

KINDS = ("concurrency", "read_threads")
SHAPES = ("random access", "shards")


async def slow_coroutine(number: int) -> Any:
    await asyncio.sleep(number * 7 % 5 / 1000)
    return np.int64(number)


def slow_call(number: int) -> Any:
    time.sleep(number * 7 % 5 / 1000)  # the delay is the subject: later reads end earlier
    return np.int64(number)


async def bad_coroutine(number: int) -> Any:
    return bad_call(number)


def bad_call(number: int) -> Any:
    if number in (9, 17):
        raise ValueError(f"element {number} is bad")
    return np.int64(number)


SLOW: dict[str, Callable[[int], Any]] = {"concurrency": slow_coroutine, "read_threads": slow_call}
BAD: dict[str, Callable[[int], Any]] = {"concurrency": bad_coroutine, "read_threads": bad_call}


def is_kept(number: int) -> bool:
    return number % 5 != 2


def twice(number: Any) -> Any:
    return number * 2


def described(shape: str, kind: str, count: int, function: Callable[[int], Any]) -> ComposedDataset:
    dataset = ComposedDataset.source(range(60)).with_options(shards=6)
    if shape == "shards":
        dataset = dataset.filter(is_kept)
    return dataset.map(function, **{kind: count})  # type: ignore[arg-type]


def shown(batches: Any) -> list[Any]:
    return [np.ravel(batch).tolist() for batch in batches]


def serially(shape: str) -> list[int]:
    dataset = ComposedDataset.source(range(60)).with_options(shards=6)
    return [int(number) for number in (dataset.filter(is_kept) if shape == "shards" else dataset)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_loaders_yield_the_same_stream(num_workers: int, shape: str, kind: str) -> None:
    loader = DataLoader(described(shape, kind, 8, SLOW[kind]), batch_size=5, num_workers=num_workers)

    for _ in range(2):
        assert list(itertools.chain(*shown(loader))) == serially(shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_iterators_yield_the_same_stream(shape: str, kind: str) -> None:
    dataset = described(shape, kind, 8, SLOW[kind])

    assert [int(number) for number in dataset] == serially(shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parallel", [False, True])
def test_pipelines_yield_the_same_stream(parallel: bool, shape: str, kind: str) -> None:
    dataset = described(shape, kind, 8, SLOW[kind])
    pipe = Pipeline(batch_size=6, num_threads=1, device_id=None, py_num_workers=2, py_start_method="fork")
    with pipe:
        pipe.set_outputs(fn.external_source(dataset, parallel=parallel, batch=False))
    pipe.build()
    found: list[int] = []
    with closing(pipe), contextlib.suppress(StopIteration):
        while True:
            found += [int(np.asarray(sample)) for sample in pipe.run()[0]]

    assert found == serially(shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_state_continues_with_the_next_batch(stop: int, shape: str, kind: str) -> None:
    loader = DataLoader(described(shape, kind, 8, SLOW[kind]), batch_size=5, num_workers=2)
    batches = iter(loader)
    first = [next(batches) for _ in range(stop)]
    state = loader.state_dict()
    del batches
    resumed = DataLoader(described(shape, kind, 3, SLOW[kind]), batch_size=5, num_workers=1)
    resumed.load_state_dict(state)

    assert list(itertools.chain(*shown(first), *shown(resumed))) == serially(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_state_of_an_iterator_does_not_depend_on_reads(shape: str) -> None:
    reading = iter(described(shape, "read_threads", 8, slow_call))
    plain = iter(described(shape, "read_threads", 1, slow_call))
    for _ in range(7):
        assert next(reading) == next(plain)
        assert reading.state_dict() == plain.state_dict()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_errors_are_raised_at_the_turn_of_their_elements(shape: str, kind: str) -> None:
    found: list[Any] = []
    elements = iter(described(shape, kind, 8, BAD[kind]))
    while True:
        try:
            found.append(int(next(elements)))
        except StopIteration:
            break
        except ValueError as error:
            found.append(str(error))

    assert found == [f"element {number} is bad" if number in (9, 17) else number for number in serially(shape)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_error_names_stage_and_position(shape: str, kind: str) -> None:
    loader = DataLoader(described(shape, kind, 8, BAD[kind]), batch_size=60, num_workers=1)

    with pytest.raises(ValueError, match="is bad") as info:
        next(iter(loader))
    assert "raised by stage map(bad_" in "".join(info.value.__notes__)


class Meeting:
    """Calls wait until `expected` of them run at once."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.barrier: Any = None


class CoroutineMeeting(Meeting):
    async def __call__(self, number: int) -> Any:
        self.barrier = self.barrier or asyncio.Barrier(self.expected)
        await asyncio.wait_for(self.barrier.wait(), DEADLINE_S / 2)
        return np.int64(number)


class ThreadMeeting(Meeting):
    def __call__(self, number: int) -> Any:
        with _meeting:
            self.barrier = self.barrier or threading.Barrier(self.expected)
        self.barrier.wait(DEADLINE_S / 2)
        return np.int64(number)


_meeting = threading.Lock()
MEETINGS: dict[str, type[Meeting]] = {"concurrency": CoroutineMeeting, "read_threads": ThreadMeeting}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "size"), [("random access", 2), ("random access", 20), ("shards", 48)])
def test_reads_run_together_also_across_batches(shape: str, size: int, kind: str) -> None:
    meeting: Any = MEETINGS[kind](6)
    loader = DataLoader(described(shape, kind, 6, meeting), batch_size=size, num_workers=1)

    assert list(itertools.chain(*shown(loader))) == serially(shape)


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_two_stages_has_its_own_reads(kind: str) -> None:
    first: Any
    first, second = MEETINGS[kind](3), MEETINGS[kind](2)
    dataset: Any = ComposedDataset.source(range(24)).map(first, **{kind: 3}).map(twice).map(second, **{kind: 2})

    assert shown(DataLoader(dataset, batch_size=12, num_workers=1)) == [list(range(0, 24, 2)), list(range(24, 48, 2))]


@pytest.mark.parametrize("shape", SHAPES)
def test_stages_behind_reads_get_their_results(shape: str) -> None:
    dataset = described(shape, "concurrency", 8, slow_coroutine).map(twice).filter(lambda number: number % 4 == 2).window(2)

    pairs = [np.ravel(window).tolist() for window in dataset]

    expected = sorted(2 * number for number in serially(shape) if number * 2 % 4 == 2)
    assert sorted(itertools.chain(*pairs)) == expected


class Deadly:
    """Ends its process at an element, once."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number

    def __call__(self, number: int) -> Any:
        if number == self.number:
            try:
                (self.folder / "died").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return slow_call(number)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", [3, 31])
def test_a_killed_worker_loses_nothing(shape: str, number: int, tmp_path: Path) -> None:
    dataset = described(shape, "read_threads", 8, Deadly(tmp_path, number))
    loader = DataLoader(dataset, batch_size=5, num_workers=2, worker_restarts=None)

    assert list(itertools.chain(*shown(loader))) == serially(shape)
    assert (tmp_path / "died").exists()


class Once:
    """Leaves a file for each call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __call__(self, number: int) -> Any:
        (self.folder / f"{number}-{time.monotonic_ns()}").touch()
        return np.int64(number)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_element_is_read_once(shape: str, tmp_path: Path) -> None:
    loader = DataLoader(described(shape, "concurrency", 8, Once(tmp_path)), batch_size=5, num_workers=2)

    assert list(itertools.chain(*shown(loader))) == serially(shape)
    assert sorted(int(path.name.partition("-")[0]) for path in tmp_path.iterdir()) == sorted(serially(shape))


def test_random_numbers_belong_to_the_position() -> None:
    async def add(number: int, generator: np.random.Generator) -> Any:
        return number + generator.random()

    def add_at_once(number: int, generator: np.random.Generator) -> Any:
        return number + generator.random()

    source = ComposedDataset.source(range(20))
    reading = source.map(add, rng=True, concurrency=4)

    assert list(reading) == list(source.map(add_at_once, rng=True))


def test_a_coroutine_function_is_awaited_without_an_argument() -> None:
    assert [int(number) for number in ComposedDataset.source(range(5)).map(slow_coroutine)] == list(range(5))


def test_a_description_is_independent_of_the_number_of_simultaneous_reads() -> None:
    one, many = (ComposedDataset.source(range(5)).map(slow_call, read_threads=count) for count in (1, 8))

    assert one.description == many.description


@pytest.mark.parametrize(
    ("function", "options", "error", "text"),
    [
        (slow_call, {"concurrency": 4}, ArgumentError, "pass read_threads="),
        (slow_coroutine, {"read_threads": 4}, ArgumentError, "pass concurrency="),
        (slow_call, {"concurrency": 4, "read_threads": 4}, ArgumentClashError, "pass one of them"),
        (slow_call, {"read_threads": 0}, ArgumentError, "read_threads"),
    ],
)
def test_wrong_arguments(function: Any, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ComposedDataset.source(range(5)).map(function, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 4}, r"dataset\.map\(function, concurrency="),
        ({"worker_seeding": "torch"}, "random generators"),
    ],
)
def test_loaders_refuse_arguments_of_stages(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentClashError, match=text):
        DataLoader(described("random access", "read_threads", 4, slow_call), **options)
