"""Indices shared among threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dali_like.common.work_sharing import for_each


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
