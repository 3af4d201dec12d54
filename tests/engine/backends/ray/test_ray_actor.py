"""How the dispatcher of Ray's actors takes tasks; for the rest see tests/on_ray."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from dali_like.engine.backends.ray.ray_actor import RayTask, RayTaskQueue
from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import NO_TICKET, TASK

Post = Callable[..., None]


@pytest.fixture
def made() -> Iterator[tuple[RayTaskQueue, Post]]:
    """A RayTaskQueue of two workers, and a function that posts a task for a worker, or for any worker."""
    ends = [[Descriptor(fd) for fd in os.pipe()] for _ in range(3)]

    def post(ticket: int, task: int, worker: int = -1) -> None:
        os.write(ends[worker + 1][1].fileno(), TASK.pack(ticket, 0, task))

    yield RayTaskQueue([read for read, _ in ends]), post
    for descriptor in itertools.chain(*ends):
        descriptor.close()


def taken(orders: RayTaskQueue, worker: int = 0, is_bound: bool = False) -> tuple[int, int] | None:
    """Ticket and task of the next."""
    orders.take_posted()
    order = orders.next_for(worker, is_bound)
    return None if order is None else (order.ticket, order.task)


def test_tasks_of_any_worker_are_taken_together_and_handed_out_in_order(made: tuple[RayTaskQueue, Post]) -> None:
    orders, post = made
    for task in range(3):
        post(1, task)

    assert taken(orders) == (1, 0)
    assert [order.task for order in orders.posted] == [1, 2]
    assert orders.has_waiting
    assert [taken(orders, worker) for worker in (1, 0, 1)] == [(1, 1), (1, 2), None]
    assert not orders.has_waiting


def test_tasks_of_lost_actors_come_first(made: tuple[RayTaskQueue, Post]) -> None:
    orders, post = made
    for task in range(4):
        post(1, task)
    orders.take_posted()
    _, *lost = (orders.next_for(0, False) for _ in range(3))

    orders.give_back(filter(None, lost))

    assert orders.has_waiting
    assert orders.next_for(0, False) == RayTask(1, 0, 1, ANY_WORKER)
    assert [taken(orders) for _ in range(3)] == [(1, 2), (1, 3), None]


def test_tasks_bound_to_a_worker_are_handed_to_it_only_one_at_a_time(made: tuple[RayTaskQueue, Post]) -> None:
    orders, post = made
    post(1, 0, worker=1)
    post(1, 1, worker=1)

    assert taken(orders, worker=0) is None
    assert taken(orders, worker=1) == (1, 0)
    assert taken(orders, worker=1, is_bound=True) is None

    orders.give_back([RayTask(1, 0, 0, worker=1)])
    assert taken(orders, worker=0) is None
    assert orders.next_for(1, False) == RayTask(1, 0, 0, worker=1)


def test_a_pool_that_is_gone_has_none() -> None:
    read, write = map(Descriptor, os.pipe())
    orders = RayTaskQueue([read])
    del write

    orders.take_posted()

    assert orders.next_for(0, False) is None
    assert orders.next_for(ANY_WORKER, False) is None


def test_whether_some_wait_of_batches_up_to_one_that_has_been_lost_is_known(made: tuple[RayTaskQueue, Post]) -> None:
    orders, post = made
    post(3, 0)
    post(NO_TICKET, 0)
    orders.take_posted()

    assert [orders.any_waits(ticket) for ticket in (NO_TICKET, 2, 3, 4)] == [False, False, True, True]
    orders.give_back([RayTask(2, 0, 1, ANY_WORKER)])
    assert orders.any_waits(2)
