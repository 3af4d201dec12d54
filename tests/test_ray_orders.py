"""How the foreman of Ray's actors takes tasks; for the rest see tests/on_ray."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from dali_like.workers.batch import ANY_WORKER
from dali_like.workers.descriptors import Descriptor
from dali_like.workers.protocol import TASK
from dali_like.workers.ray_orders import Order, Orders

Post = Callable[..., None]


@pytest.fixture
def made() -> Iterator[tuple[Orders, Post]]:
    """Orders of two workers; and what posts a task for a worker, or for any."""
    ends = [[Descriptor(fd) for fd in os.pipe()] for _ in range(3)]

    def post(ticket: int, task: int, worker: int = -1) -> None:
        os.write(ends[worker + 1][1].fileno(), TASK.pack(ticket, 0, task))

    yield Orders([read for read, _ in ends]), post
    for descriptor in itertools.chain(*ends):
        descriptor.close()


def taken(orders: Orders, worker: int = 0, most: int = 0, is_bound: bool = False) -> list[tuple[int, int]]:
    """Ticket and task of those that a call would have."""
    order = orders.next_for(worker, is_bound)
    return [] if order is None else [(each.ticket, each.task) for each in (order, *orders.more_like(order, most))]


def test_those_of_one_batch_share_a_call(made: tuple[Orders, Post]) -> None:
    orders, post = made
    for ticket in (1, 2):
        for task in range(3):
            post(ticket, task)

    assert taken(orders, most=1) == [(1, 0), (1, 1)]
    assert taken(orders, most=9) == [(1, 2)]
    assert orders.has_waiting  # the first of the next batch, which had to be read
    assert taken(orders, most=9) == [(2, 0), (2, 1), (2, 2)]
    assert not orders.has_waiting
    assert taken(orders) == []


def test_those_of_lost_actors_come_first_and_one_by_one(made: tuple[Orders, Post]) -> None:
    orders, post = made
    for task in range(4):
        post(1, task)
    first = orders.next_for(0, False)
    assert first is not None
    lost = [first, *orders.more_like(first, 2)]

    orders.give_back(lost[1:])

    assert orders.has_waiting
    assert [taken(orders, most=9) for _ in range(4)] == [[(1, 1)], [(1, 2)], [(1, 3)], []]


def test_those_that_one_worker_must_do_are_its_alone_and_one_at_a_time(made: tuple[Orders, Post]) -> None:
    orders, post = made
    post(1, 0, worker=1)
    post(1, 1, worker=1)

    assert taken(orders, worker=0, most=9) == []
    assert taken(orders, worker=1, most=9) == [(1, 0)]
    assert taken(orders, worker=1, is_bound=True) == []

    orders.give_back([Order(1, 0, 0, worker=1)])
    assert taken(orders, worker=0) == []
    assert orders.next_for(1, False) == Order(1, 0, 0, worker=1, is_returned=True)


def test_a_pool_that_is_gone_has_none() -> None:
    read, write = map(Descriptor, os.pipe())
    orders = Orders([read])
    del write

    assert orders.next_for(0, False) is None
    assert orders.next_for(ANY_WORKER, False) is None
