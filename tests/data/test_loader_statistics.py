"""Statistics of a loader: replaced samples, workers and times."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader
from dali_like.engine.memory.protocol import DONE
from dali_like.engine.pool.pipes import waiting_bytes
from dali_like.monitor.measure.statistics import Statistics
from tests.conftest import wait_until
from tests.data.loader_cases import MANY_WORKERS, Made, Stream, loader_of
from tests.internals import dispatcher_of, loader_workers_of

pytestmark = [pytest.mark.filterwarnings(MANY_WORKERS), pytest.mark.usefixtures("capfd")]


MS = 1_000_000  # ns


def bad_at_five_and_six(index: int) -> int:
    if index in (5, 6):
        raise LookupError(f"no sample {index}")
    return index


class Torn(Stream):
    """Raises at an item, and continues."""

    def __iter__(self) -> Iterator[Any]:
        return map(bad_at_five_and_six, range(self.length))


def counts_of(statistics: Statistics) -> tuple[int, int]:
    """Return the numbers of replaced workers and samples."""
    return statistics.worker_restarts, statistics.replaced_samples


def zero(key: Any, error: Exception) -> int:
    return 0


# Replaced samples


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"collate_fn": list}, {"on_error": zero}], ids=["rows", "collation", "callable"])
def test_replaced_samples_are_counted_in_all_epochs(workers: int, options: Any) -> None:
    loader = loader_of(Made(bad_at_five_and_six), workers, **{"batch_size": 4, "on_error": "skip", **options})

    counts = [(len(list(loader)), loader.statistics().replaced_samples) for _ in range(2)]

    assert counts == [(5, 2), (5, 4)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("on_error", ["skip", zero])
def test_replaced_items_of_iterable_datasets_are_counted(workers: int, on_error: Any) -> None:
    loader = loader_of(Torn(10), workers, batch_size=2, on_error=on_error)
    list(loader)

    assert loader.statistics().replaced_samples == 2


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}], ids=["workers that end", "workers that go on"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_replaced_samples_are_counted_while_workers_run(method: str, options: Any) -> None:
    loader = loader_of(Made(bad_at_five_and_six), 1, method, batch_size=10, on_error="skip", **options)
    batches = iter(loader)
    next(batches)

    assert loader.statistics().replaced_samples == 2

    del batches
    assert loader.statistics().replaced_samples == 2


def test_failed_batches_are_not_counted() -> None:
    loader = loader_of(Made(bad_at_five_and_six), batch_size=20)
    with pytest.raises(LookupError):
        list(loader)

    assert counts_of(loader.statistics()) == (0, 0)


def test_copies_count_for_themselves() -> None:
    loader = loader_of(Made(bad_at_five_and_six), batch_size=20, on_error="skip")
    list(loader)

    copied: DataLoader[Any] = pickle.loads(pickle.dumps(loader))
    list(copied)

    assert counts_of(copied.statistics()) == counts_of(loader.statistics()) == (0, 2)


# Replaced workers


def test_restarts_of_workers_are_counted(tmp_path: Path) -> None:
    def die_once(index: int) -> int:
        if index in (3, 11):
            try:
                (tmp_path / str(index)).touch(exist_ok=False)
            except FileExistsError:
                return index
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    loader = loader_of(Made(die_once), 1, batch_size=4)
    list(loader)

    assert counts_of(loader.statistics()) == (2, 0)


# Without workers, errors name the sample, too


@pytest.mark.parametrize(
    ("dataset", "options", "where"),
    [
        pytest.param(Made(bad_at_five_and_six), {"batch_size": 4}, "Made for index 5 (sample 1 of batch 1)", id="batch"),
        pytest.param(Made(bad_at_five_and_six), {"batch_size": None}, "Made for index 5", id="sample"),
        pytest.param(
            Made(bad_at_five_and_six),
            {"batch_sampler": [{4: None, 5: None}]},
            "Made for index 5 (sample 1 of batch 0)",
            id="keys of any kind",
        ),
        pytest.param(
            Made(lambda index: np.zeros(1 + index % 2)), {"batch_size": 2}, "Made for batch 0 (indices 0, 1)", id="collation"
        ),
        pytest.param(Torn(), {"batch_size": 2}, "Torn for batch 2", id="iterable"),
    ],
)
def test_errors_have_a_note_with_their_place(dataset: Any, options: Any, where: str) -> None:
    with pytest.raises((LookupError, ValueError)) as caught:
        list(loader_of(dataset, **options))

    assert caught.value.__notes__[-1] == f"raised by dataset {where}"


# Times


def slow_at_five(index: int) -> Any:
    threading.Event().wait(0.05 if index == 5 else 0.001)
    return np.full((10, 10), index), index


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"collate_fn": list}], ids=["rows", "collation"])
def test_samples_are_measured(workers: int, options: Any) -> None:
    loader = loader_of(Made(slow_at_five), workers, batch_size=4, **options)
    for _ in range(2):
        list(loader)
    [source] = loader.statistics().sources

    assert (source.name, source.unit) == ("dataset Made", "sample")
    assert source.place == ("workers" if workers else "main process")
    assert (source.batches, source.samples, source.callback.count) == (10, 40, 40)
    assert [call.duration_ns > 49 * MS for call in source.slowest if call.sample == 5] == [True, True]
    assert source.callback.median_s >= 0.0009
    assert 0 < source.callback_s <= source.busy_s


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_of_getitems_are_measured(workers: int) -> None:
    class Together(Made):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices]

    loader = loader_of(Together(slow_at_five), workers, batch_size=4)
    list(loader)
    [source] = loader.statistics().sources

    assert (source.unit, source.batches, source.samples, source.callback.count) == ("batch", 5, 20, 5)
    assert source.callback.median_s >= 0.0039


@pytest.mark.parametrize("workers", [0, 1])
def test_items_of_iterable_datasets_are_measured(workers: int) -> None:
    class Slow(Stream):
        def __iter__(self) -> Iterator[Any]:
            return map(slow_at_five, range(self.length))

    loader = loader_of(Slow(10), workers, batch_size=2)
    assert len(list(loader)) == 5
    [source] = loader.statistics().sources

    assert (source.batches, source.callback.count) == (5, 10)
    assert 2 in {call.iteration for call in source.slowest if call.duration_ns > 49 * MS}


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loop_is_measured_in_all_epochs(workers: int) -> None:
    loader = loader_of(Made(slow_at_five), workers, batch_size=4)
    for _ in range(3):
        assert len(list(loader)) == 5
    loop = loader.statistics().loop

    assert (loop.batches, loop.epochs, loop.wait.count, loop.work.count) == (15, 3, 14, 12)


def test_time_after_an_abandoned_epoch_is_not_counted_as_work() -> None:
    loader = loader_of(Made(slow_at_five), batch_size=4)
    for _ in range(3):
        next(iter(loader))

    assert loader.statistics().loop.work.count == 0


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}], ids=["workers that end", "workers that go on"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_all_epochs_are_told_together(method: str, options: Any) -> None:
    loader = loader_of(Made(slow_at_five), 2, method, batch_size=4, **options)
    for _ in range(2):
        for _ in loader:
            at_work = loader.statistics()
    statistics = loader.statistics()

    assert any(worker.pid for worker in at_work.workers)
    assert [worker.number for worker in statistics.workers] == [0, 1]
    assert sum(worker.tasks for worker in statistics.workers) >= 10
    assert all(worker.busy_s <= worker.alive_s for worker in statistics.workers)
    assert (statistics.settings.num_workers, statistics.settings.start_method) == (2, method)


def test_their_memory_is_told() -> None:
    loader = loader_of(Made(slow_at_five), 1, batch_size=4)
    batches = iter(loader)
    next(batches)
    memory = loader.statistics(memory=True).memory

    assert memory is not None
    assert all(nbytes > 1 << 16 for nbytes in (memory.main_bytes, *memory.worker_bytes, memory.forkserver_bytes))
    assert loader.statistics().held_bytes > 0


# Batches that are ready


def wait_for_reports(batches: Any, count: int) -> None:
    """Wait until a number of unread reports of workers are there."""
    done = dispatcher_of(loader_workers_of(batches).pool).pipes.done
    wait_until(lambda: waiting_bytes(done) == count * DONE.size, f"{count} reports")


def test_batches_that_are_ready_are_counted_whenever_one_is_taken() -> None:
    loader = loader_of(Made(int), 1, prefetch_factor=4)
    batches = iter(loader)
    unread = 4
    for _ in range(4):
        wait_for_reports(batches, unread)
        next(batches)
        unread = 1  # of the next batch

    assert loader.statistics().sources[0].ring.mean_ready == 4


def test_completed_batch_is_delivered_within_any_timeout() -> None:
    batches = iter(loader_of(Made(int), 1, prefetch_factor=4, timeout=1e-9))
    wait_for_reports(batches, 4)

    assert next(batches) == 0
