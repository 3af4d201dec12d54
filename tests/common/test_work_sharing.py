"""Indices shared among threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dali_like.common.work_sharing import Pace, for_each


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_each_index_once(count: int) -> None:
    seen: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        for_each(count, seen.append, pool, 2)
    assert sorted(seen) == [*range(count)]


def test_threads_work_beside_the_caller() -> None:
    both = threading.Barrier(2, timeout=300)
    with ThreadPoolExecutor(1) as pool:
        for_each(2, lambda _: both.wait() and None, pool, 1)


def test_the_error_of_the_lowest_index_is_raised_and_the_others_are_computed() -> None:
    seen: list[int] = []

    def function(i: int) -> None:
        seen.append(i)
        if i in (3, 5):
            raise ValueError(i)

    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="3"):
        for_each(8, function, pool, 2)
    assert sorted(seen) == [*range(8)]


def test_a_busy_pool_is_not_waited_for() -> None:
    gate = threading.Event()
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gate.wait)
        for_each(4, seen.append, pool, 1)
        gate.set()
    assert seen == [0, 1, 2, 3]


# Pace

MS = 1_000_000


def run(pace: Pace, count: int, *, alone_ns: int, shared_ns: int, batches: int) -> list[bool]:
    """Return whether threads shared each batch, if batches take these times."""
    ways = []
    for _ in range(batches):
        shared = pace.shares(count)
        pace.note(count, shared_ns if shared else alone_ns, shared=shared)
        ways.append(shared)
    return ways


@pytest.mark.parametrize(("alone_ns", "shared_ns", "shares"), [(MS, 2 * MS, False), (2 * MS, MS, True)])
def test_small_batches_take_the_faster_way(alone_ns: int, shared_ns: int, shares: bool) -> None:
    ways = run(Pace(), 16, alone_ns=alone_ns, shared_ns=shared_ns, batches=200)

    assert ways[:2] == [True, False]  # each way is tried
    assert ways[2:].count(shares) > 190


def test_large_batches_are_always_shared() -> None:
    assert all(run(Pace(), 16, alone_ns=10 * MS, shared_ns=11 * MS, batches=100))


def test_a_way_that_was_disturbed_once_is_tried_again() -> None:
    pace = Pace()
    run(pace, 16, alone_ns=2 * MS, shared_ns=3 * MS, batches=10)

    assert run(pace, 16, alone_ns=2 * MS, shared_ns=MS, batches=200)[-50:].count(True) > 45


def test_smaller_batches_count_by_their_size() -> None:
    pace = Pace()
    pace.note(100, 10 * MS, shared=True)

    assert pace.shares(100)
    assert not pace.shares(10)
