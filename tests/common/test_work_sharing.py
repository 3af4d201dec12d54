"""Indices shared among threads."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dali_like.common.work_sharing import LONG_NS, SHORT_NS, Brevity, Pace, for_each


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


# Brevity


def turns(brevity: Brevity, *, alone_ns: int, pooled_ns: int, batches: int = 1000) -> list[bool]:
    """Return whether the calling thread computed each batch, if batches take these times. One in seven is interrupted."""
    ways = []
    for i in range(batches):
        ways.append(brevity.is_short)
        elapsed_ns = alone_ns if brevity.is_short else pooled_ns
        brevity.note(elapsed_ns + (8 * MS if i % 7 == 3 else elapsed_ns * (i % 5) // 20))
    return ways


def changes(ways: list[bool]) -> int:
    return sum(before != after for before, after in itertools.pairwise(ways))


@pytest.mark.parametrize("pooled_share", [1.0, 1.3, 2.0])
@pytest.mark.parametrize("alone_ns", range(50_000, 1_500_000, 50_000))
def test_equal_batches_change_their_thread_once_at_most(alone_ns: int, pooled_share: float) -> None:
    assert changes(turns(Brevity(), alone_ns=alone_ns, pooled_ns=int(alone_ns * pooled_share))) <= 1


def test_short_batches_go_to_the_calling_thread_and_long_ones_to_the_pool() -> None:
    assert all(turns(Brevity(), alone_ns=SHORT_NS // 4, pooled_ns=SHORT_NS // 2)[10:])
    assert not any(turns(Brevity(), alone_ns=2 * LONG_NS, pooled_ns=3 * LONG_NS))


def test_batches_with_other_work_than_before_change_their_thread() -> None:
    brevity, ways = Brevity(), []
    for _ in range(3):
        ways += turns(brevity, alone_ns=SHORT_NS // 4, pooled_ns=SHORT_NS // 2)
        ways += turns(brevity, alone_ns=2 * LONG_NS, pooled_ns=3 * LONG_NS)

    assert changes(ways) == 6
