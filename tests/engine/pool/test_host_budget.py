"""The budget of CPU time of a host: its entries and shares, and workers that keep to them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import benchmarks.host_budget
from dali_like.cli import top
from dali_like.data import DataLoader
from dali_like.engine.memory.limits import available_cpus, read_file
from dali_like.engine.memory.protocol import RESTING, UNLIMITED
from dali_like.engine.pool import host_budget
from dali_like.engine.pool.host_budget import HostBudget, cpu_budget, needed_cpus, places, read, shares
from dali_like.engine.worker.worker import within_share
from dali_like.errors import ArgumentError
from dali_like.monitor.show import live
from tests.conftest import wait_until
from tests.internals import loader_workers_of


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ([1.0], [1.0]),
        ([9.0], [4.0]),
        ([0.5, 9.0], [0.5, 3.5]),
        ([9.0, 0.5, 9.0, 0.1], [1.7, 0.5, 1.7, 0.1]),
        ([9.0] * 4, [1.0] * 4),
    ],
)
def test_pools_get_the_cpus_that_they_need_or_an_equal_part_of_the_rest(needs: list[float], expected: list[float]) -> None:
    assert shares(needs, 4.0) == pytest.approx(expected)


def test_a_loop_that_waits_needs_more_cpus_and_one_that_does_not_needs_those_in_use() -> None:
    assert needed_cpus(used_s=1.0, own_s=0.5, elapsed_s=1.0, most=8) == 2.5
    assert needed_cpus(used_s=0.2, own_s=1.0, elapsed_s=1.0, most=8) == 0.25
    assert needed_cpus(used_s=1.0, own_s=0.0, elapsed_s=1.0, most=8) == 8
    assert needed_cpus(used_s=0.0, own_s=1.0, elapsed_s=1.0, most=8) == host_budget.LEAST_CPUS


def test_the_variable_sets_the_budget_and_the_cpus_of_the_process_limit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("0.5", 0.5), ("", available_cpus()), ("1000", available_cpus())):
        monkeypatch.setenv("DALI_LIKE_CPUS", text)
        assert cpu_budget() == expected
    for text in ("none", "0", "-1", "nan", "inf"):
        monkeypatch.setenv("DALI_LIKE_CPUS", text)
        with pytest.raises(ArgumentError, match="DALI_LIKE_CPUS"):
            cpu_budget()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only entries with the budget of this test count, of 0.75 CPUs: other tests run meanwhile."""
    text = f"0.75{os.getpid():08d}"
    monkeypatch.setenv("DALI_LIKE_CPUS", text)
    real = host_budget.is_valid
    monkeypatch.setattr(host_budget, "is_valid", lambda entry: entry.budget == float(text) and real(entry))
    monkeypatch.setattr(host_budget, "_SEARCH_S", 0.0)
    monkeypatch.setattr(host_budget, "_SEARCH_FACTOR", 0)
    monkeypatch.setattr(host_budget, "_PERIOD_S", 0.0)


OTHER = """
import sys, time
from dali_like.engine.pool.host_budget import HostBudget
entry = HostBudget(is_fixed=len(sys.argv) > 1)
while True:
    entry.update(9.0, 0.25, 2, 2)
    print(flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def other() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts another process with a pool that needs all CPUs; a fixed one uses 0.25."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        begun.append(subprocess.Popen([sys.executable, "-c", OTHER, *arguments], stdout=subprocess.PIPE, text=True))
        assert begun[-1].stdout is not None
        begun[-1].stdout.readline()
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("alone")
def test_the_end_of_a_process_frees_its_share(other: Callable[..., subprocess.Popen[str]]) -> None:
    entry = HostBudget()
    assert entry.update(9.0, 0.0, 1, 1) == pytest.approx(0.75, rel=0.01)
    process = other()
    assert entry.update(9.0, 0.0, 1, 1) == pytest.approx(0.375, rel=0.01)
    assert entry.update(0.1, 0.0, 1, 1) == pytest.approx(0.1)

    process.send_signal(signal.SIGKILL)
    process.wait()

    assert entry.update(9.0, 0.0, 1, 1) == pytest.approx(0.75, rel=0.01)
    entry.close()


@pytest.mark.usefixtures("alone")
def test_a_pool_with_a_fixed_number_of_workers_counts_and_gives_nothing(other: Callable[..., Any]) -> None:
    other("fixed")
    entry = HostBudget()

    assert entry.update(9.0, 0.0, 1, 1) == pytest.approx(0.5, rel=0.01)


def test_a_new_pool_is_modest_until_others_have_found_it(other: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_LIKE_CPUS", "0.75")
    other()
    entry = HostBudget()
    assert entry.update(9.0, 0.0, 1, 1) == host_budget.LEAST_CPUS


@pytest.mark.usefixtures("alone")
def test_entries_can_be_read_and_a_forked_child_has_none() -> None:
    entry = HostBudget()
    entry.update(2.0, 0.5, 3, 2)
    (found,) = [each for each in read(places()) if each.pid == os.getpid()]
    assert (found.num_workers, found.num_active, found.needed, found.used) == (3, 2, 2.0, 0.5)
    assert found.share == pytest.approx(0.75, rel=0.01)
    if not (child := os.fork()):
        inherited = [each for each in read(places()) if each.pid == os.getpid()]
        os._exit(1 if inherited or entry.update(9.0, 0.0, 1, 1) is not None else 0)

    assert os.waitpid(child, 0)[1] == 0


class Clock:
    """CPU time and sleeps of a worker whose tasks take 10 ms of CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = self.cpu_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def take(self) -> int:
        self.now_s += 0.01
        self.cpu_s += 0.01
        return 1

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("share", [100, 500, 900])
def test_a_worker_keeps_to_its_share(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, words = Clock(monkeypatch), [UNLIMITED]
    take = within_share(clock.take, words, lambda: clock.cpu_s, clock.sleep)
    for _ in range(1000):
        take()
    assert clock.now_s == pytest.approx(10.0)  # without a limit, it does not wait, and owes nothing later

    words[0], begin_s, used_s = share, clock.now_s, clock.cpu_s
    while clock.now_s < begin_s + 5:
        take()

    assert clock.cpu_s - used_s == pytest.approx(5 * share / 1000, rel=0.05)


def test_a_resting_worker_takes_no_task_until_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, words, pauses = Clock(monkeypatch), [RESTING], []

    def sleep(seconds: float) -> None:
        assert not clock.cpu_s
        pauses.append(seconds)
        words[0] = RESTING if len(pauses) < 5 else UNLIMITED

    within_share(clock.take, words, lambda: clock.cpu_s, sleep)()

    assert len(pauses) == 5


class Busy:
    """A dataset whose samples take CPU time."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Any:
        end_s = time.process_time() + 0.002
        while time.process_time() < end_s:
            pass
        return np.array(index)


def resting_of(workers: Any) -> int:
    pool = workers.pool
    words = [pool.scale.share_of(worker) for worker in range(pool.num_workers)]
    return words.count(RESTING)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("method", ["fork", "spawn", "thread"])
def test_workers_of_a_loader_rest_while_the_budget_is_short_and_end_all_the_same(method: str) -> None:
    loader = DataLoader(Busy(), batch_size=4, num_workers="auto", multiprocessing_context=method)
    batches = iter(loader)
    workers = loader_workers_of(batches)
    workers.pool.scale.grow(2)
    expected = 0
    for batch in batches:
        assert batch.tolist() == list(range(expected, expected + 4))
        expected += 4
        if resting_of(workers) and expected >= 200:
            break

    batches.end()  # type: ignore[attr-defined]
    wait_until(lambda: not any(workers.pids), "the end of all workers")


@pytest.mark.usefixtures("alone")
def test_a_loader_keeps_to_the_budget() -> None:
    loader = DataLoader(Busy(), batch_size=4, num_workers="auto")
    batches = iter(loader)
    workers = loader_workers_of(batches)
    workers.pool.scale.grow(2)
    for batch in batches:
        if batch[0] > 200:
            break

    def cpu_s() -> float:
        return sum(int(read_file(f"/proc/{pid}/schedstat").split()[0]) for pid in workers.pids) / 1e9

    begin_s, used_s = time.monotonic(), cpu_s()
    while time.monotonic() - begin_s < 3:
        next(batches)
    assert cpu_s() - used_s <= 1.05 * 0.75 * (time.monotonic() - begin_s)


@pytest.mark.usefixtures("alone")
def test_a_published_loader_with_a_fixed_number_of_workers_has_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_PERIOD_NS", 0)
    loader = DataLoader(Busy(), batch_size=4, num_workers=1)
    loader.publish()
    for batch in loader:
        if batch[0] > 40:
            break

    (found,) = [each for each in read(places()) if each.pid == os.getpid()]
    assert found.is_fixed
    assert found.num_workers == 1
    assert found.used > 0
    console = Console(width=200)
    with console.capture() as capture:
        console.print(top.overview([], [found]))
    assert re.search(rf"0\.75\d* CPUs +workers +at rest.*\n *process {os.getpid()} +1 +0 +\d.* fixed", capture.get())


def test_the_benchmark_measures_steps_and_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.host_budget, "WARM_UP_S", 0.1)
    steps, used = benchmarks.host_budget.measure("auto", 1, 0.2)
    assert steps > 0
    assert used > 0
