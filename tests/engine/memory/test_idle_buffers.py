"""Free buffers that have not been used for a while."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dali_like.engine.memory.idle_buffers import take_idle


class Buffer(NamedTuple):
    name: str
    request: int


def test_buffers_released_before_a_request_are_removed_from_each_size() -> None:
    free = {1: deque([Buffer("a", 1), Buffer("b", 2), Buffer("c", 5)]), 2: deque([Buffer("d", 3)]), 4: deque[Buffer]()}

    assert [each.name for each in take_idle(free, 3)] == ["a", "b", "d"]
    assert [each.name for buffers in free.values() for each in buffers] == ["c"]


def test_a_buffer_that_another_thread_takes_meanwhile_is_left_out() -> None:
    free = {1: deque([Buffer("a", 1), Buffer("b", 1), Buffer("c", 1)])}

    taking = take_idle(free, 1)
    assert next(taking).name == "a"
    free[1].clear()
    assert [*taking] == []
