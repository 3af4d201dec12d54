"""Loaders that read many samples at a time in each worker: how many, in which order, and that all else is as without.

Reads that should run at once meet at a barrier: fewer would never pass it, and more would be counted.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader, IterableDataset
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    LoaderTimeoutError,
    SampleTypeError,
    WorkerDiedError,
)
from tests.conftest import DEADLINE_S, wait_until
from tests.data.loader_cases import Squares

pytestmark = pytest.mark.usefixtures("limited_time")

#: How a sample is read, with the argument of loaders for it.
KINDS = ("concurrency", "read_threads")
WAYS = ("serial", "fork", "thread")


class Slow:
    """Pairs of an array and a number. Reads take different times, so they end in another order than they begin."""

    def __init__(self, length: int = 40, make: Callable[[int], Any] | None = None) -> None:
        self.length = length
        self.make = make or (lambda index: (np.full(3, index, np.float32), index))

    def __len__(self) -> int:
        return self.length


class SlowCoroutines(Slow):
    async def __getitem__(self, index: int) -> Any:
        await asyncio.sleep(index * 7 % 5 / 1000)
        return self.make(index)


class SlowCalls(Slow):
    def __getitem__(self, index: int) -> Any:
        time.sleep(index * 7 % 5 / 1000)  # the delay is the subject: later reads end earlier
        return self.make(index)


SLOW: dict[str, type[Slow]] = {"concurrency": SlowCoroutines, "read_threads": SlowCalls}


def loader_of(dataset: Any, way: str, *, num_workers: int = 2, **options: Any) -> DataLoader[Any]:
    if way == "serial":
        return DataLoader(dataset, **options)
    return DataLoader(dataset, num_workers=num_workers, multiprocessing_context=way, **options)


@contextmanager
def ended(loader: DataLoader[Any]) -> Iterator[DataLoader[Any]]:
    """End the workers of a loader, also those that it keeps."""
    try:
        yield loader
    finally:
        loader._iterator = None
        gc.collect()


def numbers(batch: Any) -> list[int]:
    return [int(number) for number in np.ravel(batch[-1] if isinstance(batch, (list, tuple)) else batch)]


def shown(loader: DataLoader[Any]) -> list[list[int]]:
    with ended(loader):
        return [numbers(batch) for batch in loader]


def in_batches(length: int, size: int) -> list[list[int]]:
    return [list(range(begin, min(begin + size, length))) for begin in range(0, length, size)]


# The same batches


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("way", "size"), [*itertools.product(WAYS, (1, 3, 16)), ("spawn", 3)])
def test_batches_are_those_of_single_reads_in_order(kind: str, way: str, size: int) -> None:
    batches = shown(loader_of(SLOW[kind](), way, batch_size=size, **{kind: 8}))

    assert batches == in_batches(40, size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_batches_of_a_collation_of_the_program(kind: str, way: str) -> None:
    loader = loader_of(SLOW[kind](), way, batch_size=7, collate_fn=list, **{kind: 8})

    with ended(loader):
        assert [[number for _, number in batch] for batch in loader] == in_batches(40, 7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_samples_without_batches(kind: str, way: str) -> None:
    loader = loader_of(SLOW[kind](), way, batch_size=None, **{kind: 8})

    with ended(loader):
        assert [number for _, number in loader] == list(range(40))


@pytest.mark.parametrize("way", WAYS)
def test_samples_of_other_shapes_and_texts(way: str) -> None:
    def make(index: int) -> Any:
        return {"data": np.full(index % 3 + 1 if index >= 20 else 2, index), "text": str(index)}

    loader = loader_of(SlowCoroutines(make=make), way, batch_size=1, concurrency=8)

    with ended(loader):
        for index, batch in enumerate(loader):
            np.testing.assert_array_equal(batch["data"], [make(index)["data"]])
            assert batch["text"] == [str(index)]


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_a_batch_repeats_is_read_for_each_place(way: str) -> None:
    loader = loader_of(SlowCoroutines(), way, batch_sampler=[[3, 3, 1], [1, 3, 3]], concurrency=4)

    assert shown(loader) == [[3, 3, 1], [1, 3, 3]]


class Whole(Slow):
    async def __getitems__(self, indices: list[int]) -> Any:
        await asyncio.sleep(0.001 * (indices[0] % 3))
        return [self.make(index) for index in indices]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("__getitems__ has precedence")


@pytest.mark.parametrize("concurrency", [None, 1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_coroutines_of_whole_batches(concurrency: int | None, way: str) -> None:
    loader = loader_of(Whole(), way, batch_size=4, concurrency=concurrency)

    assert shown(loader) == in_batches(40, 4)


@pytest.mark.parametrize("way", WAYS)
def test_a_dataset_of_coroutines_needs_no_argument(way: str) -> None:
    assert shown(loader_of(SlowCoroutines(), way, batch_size=4)) == in_batches(40, 4)


class Part:
    """A part of a dataset, as PyTorch's Subset."""

    def __init__(self, dataset: Any, indices: range) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


@pytest.mark.parametrize("concurrency", [None, 4])
def test_part_of_a_dataset_of_coroutines(concurrency: int | None) -> None:
    loader = loader_of(Part(SlowCoroutines(), range(10, 22)), "fork", batch_size=4, concurrency=concurrency)

    assert shown(loader) == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19, 20, 21]]


# How many reads


class Meeting:
    """Reads wait until `expected` of them run at once, and then end together. A sample is the largest number so far."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.count = self.most = 0

    def __len__(self) -> int:
        return 10 * self.expected

    def enter(self) -> None:
        self.count += 1
        self.most = max(self.most, self.count)


class CoroutineMeeting(Meeting):
    barrier: Any = None

    async def __getitem__(self, index: int) -> Any:
        self.barrier = self.barrier or asyncio.Barrier(self.expected)
        self.enter()
        await asyncio.wait_for(self.barrier.wait(), DEADLINE_S / 2)
        self.count -= 1
        return self.most


class ThreadMeeting(Meeting):
    barrier: Any = None
    lock: Any = None

    def __getitem__(self, index: int) -> Any:
        with _meeting_lock:
            self.barrier = self.barrier or threading.Barrier(self.expected)
            self.enter()
        self.barrier.wait(DEADLINE_S / 2)
        with _meeting_lock:
            self.count -= 1
        return self.most


_meeting_lock = threading.Lock()
MEETINGS: dict[str, type[Meeting]] = {"concurrency": CoroutineMeeting, "read_threads": ThreadMeeting}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "reads"), [(4, 12), (16, 4), (4, 4), (1, 6)])
def test_reads_go_on_across_batches_and_are_as_many_as_allowed(kind: str, size: int, reads: int) -> None:
    batches = shown(loader_of(MEETINGS[kind](reads), "fork", num_workers=1, batch_size=size, **{kind: reads}))

    assert {number for batch in batches for number in batch} == {reads}


def test_batches_are_read_at_the_same_time() -> None:
    class Batches(CoroutineMeeting):
        async def __getitems__(self, indices: list[int]) -> Any:
            return [await self[indices[0]]] * len(indices)

    batches = shown(loader_of(Batches(3), "fork", num_workers=1, batch_size=2, concurrency=3, prefetch_factor=4))

    assert {number for batch in batches for number in batch} == {3}


@pytest.mark.parametrize("kind", KINDS)
def test_without_workers_the_reads_of_a_batch_run_together(kind: str) -> None:
    batches = shown(loader_of(MEETINGS[kind](4), "serial", batch_size=8, **{kind: 4}))

    assert {number for batch in batches for number in batch} == {4}


def test_default_of_batches_ahead_keeps_all_reads_busy() -> None:
    assert DataLoader(Squares(), num_workers=1, batch_size=16, concurrency=64).prefetch_factor == 8
    assert DataLoader(Squares(), num_workers=1, batch_size=256, concurrency=64).prefetch_factor == 2
    assert DataLoader(Squares(), num_workers=1, batch_size=16, concurrency=64, prefetch_factor=3).prefetch_factor == 3


class Marks(Slow):
    """Leaves a file for each read that begins. The first read waits for a file `go`."""

    def __init__(self, folder: Path, length: int = 40) -> None:
        super().__init__(length)
        self.folder = folder

    async def __getitem__(self, index: int) -> Any:
        (self.folder / f"{index}-{time.monotonic_ns()}").touch()
        while index == 0 and not (self.folder / "go").exists():
            await asyncio.sleep(0.001)
        return np.full(100, index, np.uint8), index

    def begun(self) -> list[int]:
        return sorted(int(path.name.partition("-")[0]) for path in self.folder.iterdir() if path.name != "go")


def test_results_that_wait_are_limited_by_their_bytes(tmp_path: Path) -> None:
    dataset = Marks(tmp_path)
    options: dict[str, Any] = {"num_workers": 1, "batch_size": 2, "prefetch_factor": 20, "concurrency": 4}
    loader = loader_of(dataset, "fork", max_read_bytes=500, share_batches=False, **options)
    batches = iter(loader)
    wait_until(lambda: len(dataset.begun()) >= 6, "reads up to the limit")
    (tmp_path / "go").touch()
    found = [numbers(batch) for batch in batches]

    assert found == in_batches(40, 2)
    assert sorted(dataset.begun()) == list(range(40))


def test_reads_beyond_the_limit_of_bytes_do_not_begin(tmp_path: Path) -> None:
    dataset = Marks(tmp_path)
    options: dict[str, Any] = {"num_workers": 1, "batch_size": 2, "prefetch_factor": 20, "concurrency": 4}
    loader = loader_of(dataset, "fork", max_read_bytes=500, share_batches=False, timeout=0.3, **options)
    batches: Any = iter(loader)
    wait_until(lambda: len(dataset.begun()) >= 6, "reads up to the limit")

    with pytest.raises(LoaderTimeoutError):  # meanwhile, the worker could go on
        next(batches)
    begun = dataset.begun()
    (tmp_path / "go").touch()
    batches.end()

    # The results of five reads are as many bytes as are allowed; reads that had begun by then end beyond it.
    assert len(begun) <= 6 + 3


def test_each_sample_is_read_once(tmp_path: Path) -> None:
    dataset = Marks(tmp_path)
    (tmp_path / "go").touch()

    assert shown(loader_of(dataset, "fork", batch_size=4, concurrency=8)) == in_batches(40, 4)
    assert dataset.begun() == list(range(40))


# Errors


def bad(index: int) -> Any:
    if index in (9, 17):
        raise ValueError(f"sample {index} is bad")
    return np.full(3, index), index


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_an_error_is_raised_at_the_batch_of_its_sample(kind: str, way: str) -> None:
    with ended(loader_of(SLOW[kind](make=bad), way, batch_size=4, **{kind: 16})) as loader:
        found: list[Any] = []
        batches = iter(loader)
        while len(found) < 10:
            try:
                found.append(numbers(next(batches)))
            except ValueError as error:
                found.append((str(error), re.findall(r"index \d+", "".join(error.__notes__))))

    expected: list[Any] = in_batches(40, 4)
    expected[2], expected[4] = ("sample 9 is bad", ["index 9"]), ("sample 17 is bad", ["index 17"])
    assert found == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_on_error_replaces_samples(kind: str, way: str) -> None:
    def instead(index: int, error: Exception) -> Any:
        return np.full(3, -index), -index

    skipped = shown(loader_of(SLOW[kind](make=bad), way, batch_size=4, on_error="skip", **{kind: 16}))
    replaced = shown(loader_of(SLOW[kind](make=bad), way, batch_size=4, on_error=instead, **{kind: 16}))

    assert skipped[2] == [8, 10, 10, 11]
    assert replaced[2] == [8, -9, 10, 11]
    assert skipped[3] == replaced[3] == [12, 13, 14, 15]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_stop_iteration_of_a_sample_is_that_of_single_reads(kind: str, way: str) -> None:
    def make(index: int) -> Any:
        if index == 6:
            raise StopIteration
        return index

    expected = shown(loader_of(SlowCalls(make=make), way, batch_size=4))
    assert shown(loader_of(SLOW[kind](make=make), way, batch_size=4, **{kind: 16})) == expected


def test_a_blocking_dataset_is_refused_by_concurrency() -> None:
    batches = iter(loader_of(SlowCalls(), "fork", batch_size=4, concurrency=4))

    with pytest.raises(SampleTypeError, match="pass read_threads=4"):
        next(batches)


# Deaths and hangs of workers


class Deadly(Slow):
    """Reads that end their process: one each for a number of times that is counted in a folder."""

    def __init__(self, folder: Path, deaths: dict[int, int]) -> None:
        super().__init__(80)
        self.folder, self.deaths = folder, deaths

    async def __getitem__(self, index: int) -> Any:
        await asyncio.sleep(index * 7 % 5 / 1000)
        for number in range(self.deaths.get(index, 0)):
            try:
                (self.folder / f"{index}-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(3, index), index


@pytest.mark.parametrize("share", [True, False])
def test_reads_of_a_dead_worker_are_begun_again(share: bool, tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, {10: 1, 41: 1, 57: 1})
    loader = loader_of(dataset, "fork", batch_size=4, concurrency=16, share_batches=share, worker_restarts=None)

    assert shown(loader) == in_batches(80, 4)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_sample_that_ends_every_worker_is_given_up_and_the_others_are_delivered(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, {21: 1000})
    loader = loader_of(dataset, "fork", batch_size=4, concurrency=16, worker_restarts=None, share_batches=False)
    found: list[Any] = []
    with ended(loader):
        batches = iter(loader)
        while len(found) < 20:
            try:
                found.append(numbers(next(batches)))
            except WorkerDiedError as error:
                found.append("given up" in "".join(error.__notes__))

    expected: list[Any] = in_batches(80, 4)
    expected[5] = True
    assert found == expected


def test_workers_that_are_killed_at_any_time_lose_no_batch(tmp_path: Path) -> None:
    loader = loader_of(SlowCoroutines(400), "fork", batch_size=4, concurrency=16, worker_restarts=None)
    found = []
    with ended(loader):
        batches: Any = iter(loader)
        for number, batch in enumerate(batches):
            found.append(numbers(batch))
            if number % 10 == 5:
                batches._workers[number // 10 % 2].kill()

    assert found == in_batches(400, 4)


class Hanging(Slow):
    async def __getitem__(self, index: int) -> Any:
        if index == 9:
            await asyncio.Event().wait()
        return index


def test_a_read_that_hangs_is_named_by_the_timeout() -> None:
    with ended(loader_of(Hanging(), "fork", batch_size=4, concurrency=16, timeout=0.3)) as loader:
        batches = iter(loader)
        assert [numbers(next(batches)), numbers(next(batches))] == in_batches(8, 4)
        with pytest.raises(LoaderTimeoutError, match=r"(?s)timed out after 0\.3 seconds.*index 9"):
            next(batches)


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_a_loader_ends_while_reads_hang(way: str) -> None:
    loader = loader_of(Hanging(), way, batch_size=4, concurrency=16)
    batches = iter(loader)
    assert numbers(next(batches)) == [0, 1, 2, 3]


# Epochs and states


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["fork", "thread"])
def test_an_epoch_left_in_the_middle_does_not_disturb_the_next(kind: str, way: str) -> None:
    loader = loader_of(SLOW[kind](), way, batch_size=4, persistent_workers=True, **{kind: 16})
    with ended(loader):
        for stop in (1, 3, 5):
            batches: Iterator[Any] = iter(loader)
            assert [numbers(next(batches)) for _ in range(stop)] == in_batches(40, 4)[:stop]
        assert [numbers(batch) for batch in loader] == in_batches(40, 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_state_continues_with_the_next_batch(kind: str, way: str) -> None:
    def make() -> DataLoader[Any]:
        return loader_of(SLOW[kind](), way, batch_size=4, shuffle=True, generator=5, **{kind: 16})

    expected = shown(make())
    with ended(make()) as loader:
        batches = iter(loader)
        found = [numbers(next(batches)) for _ in range(4)]
        state = loader.state_dict()
        del batches
    resumed = make()
    resumed.load_state_dict(state)

    assert found + shown(resumed) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_can_be_computed_again(kind: str) -> None:
    with ended(loader_of(SLOW[kind](), "fork", batch_size=4, **{kind: 16})) as loader:
        batches = iter(loader)
        next(batches)
        assert numbers(loader.batch_at(3)) == [12, 13, 14, 15]


def test_statistics_have_the_time_of_reads() -> None:
    with ended(loader_of(SlowCalls(80), "fork", batch_size=4, read_threads=8)) as loader:
        batches = list(loader)
        statistics = loader.statistics()

    assert len(batches) == 20
    assert statistics.sources[0].concurrency == 8


# Refused arguments


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 2, "read_threads": 2}, "pass one of them"),
        ({"concurrency": 2, "worker_seeding": "torch"}, "leave out concurrency"),
        ({"read_threads": 2, "worker_seeding": "torch"}, "leave out read_threads"),
        ({"max_read_bytes": 100}, "pass concurrency= or read_threads="),
    ],
)
def test_arguments_that_exclude_each_other(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentClashError, match=text):
        DataLoader(Squares(), **options)


@pytest.mark.parametrize("name", ["concurrency", "read_threads", "max_read_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_numbers_of_reads_are_positive(name: str, value: int) -> None:
    with pytest.raises(ArgumentError, match=name):
        DataLoader(Squares(), **{name: value})


def test_iterable_datasets_have_no_reads() -> None:
    class Numbers(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(5))

    with pytest.raises(ArgumentClashError, match="from_iterables"):
        DataLoader(Numbers(), read_threads=2)
