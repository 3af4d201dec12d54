"""Memory of a sample cache: shares of batches in flight, entries, and the budget, step by step in one process."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import numpy as np
import pytest

from dali_like.engine.memory import sample_cache
from dali_like.engine.memory.protocol import PAGE_BYTES
from dali_like.engine.memory.sample_cache import (
    CacheMemory,
    Grant,
    Headroom,
    Share,
    link_grants,
    memory_of,
    shares_of_task,
)
from dali_like.errors import OutOfMemoryError

LENGTH = 200


def make_memory(budget_bytes: int, *, replaces: bool = False, length: int = LENGTH) -> CacheMemory:
    return CacheMemory.create(int.from_bytes(os.urandom(6), "little") + 1, length, budget_bytes, replaces=replaces)


def content_of(key: int, nbytes: int) -> bytes:
    return bytes([key % 251]) * nbytes


def fill(memory: CacheMemory, grant: Grant, task: int, keys: range, nbytes: int = 3000) -> None:
    """Write entries as the worker of a task does."""
    share = Share(memory.space, grant.offset, task, Headroom())
    for key in keys:
        if not share.put(key, 0, [content_of(key, nbytes)], nbytes):
            share.note(key, 0, 0, nbytes)
    share.close()


def found(memory: CacheMemory) -> list[int]:
    """Return the keys with an entry, after a comparison of the entries."""
    keys = []
    for key in range(memory.length):
        content = memory.get(key, 0)
        if content is not None:
            assert bytes(content) == content_of(key, len(content))
            keys.append(key)
    return keys


def test_entries_are_read_after_the_last_report() -> None:
    memory = make_memory(1 << 20)
    grant = memory.grant(2, 5)
    fill(memory, grant, 0, range(5))
    assert found(memory) == []

    fill(memory, grant, 1, range(5, 10))
    grant.end(0b11)

    assert found(memory) == [*range(10)]


def test_nothing_of_a_task_without_a_report_is_read() -> None:
    memory = make_memory(1 << 20)
    grant = memory.grant(2, 5)
    fill(memory, grant, 0, range(5))
    fill(memory, grant, 1, range(5, 10))

    grant.end(0b10)  # the worker of task 0 was killed

    assert found(memory) == [*range(5, 10)]
    assert memory.statistics().used_bytes <= 5 * PAGE_BYTES


def test_a_second_worker_begins_a_task_again() -> None:
    memory = make_memory(1 << 20)
    grant = memory.grant(1, 5)
    fill(memory, grant, 0, range(3, 5), nbytes=2000)
    fill(memory, grant, 0, range(5))

    grant.end(1)

    assert found(memory) == [*range(5)]


def test_the_first_of_two_entries_counts() -> None:
    memory = make_memory(1 << 20)
    first, second = memory.grant(1, 5), memory.grant(1, 5)
    for grant in (second, first):
        fill(memory, grant, 0, range(5))
        grant.end(1)

    statistics = memory.statistics()
    assert statistics.stored == 5
    assert statistics.used_bytes <= 5 * PAGE_BYTES


def test_a_grant_ends_once() -> None:
    memory = make_memory(1 << 20)
    grant = memory.grant(1, 5)
    grant.end(0)
    grant.end(1)

    assert memory.statistics().used_bytes == 0


def test_the_first_batches_of_eight_workers_all_get_room() -> None:
    memory = make_memory(2 * LENGTH * 3072)
    for i, grant in enumerate([memory.grant(2, 4) for _ in range(16)]):
        for task in range(2):
            fill(memory, grant, task, range(8 * i + 4 * task, 8 * i + 4 * task + 4))
        grant.end(0b11)

    assert memory.statistics().stored == 16 * 8


def test_entries_that_found_no_room_determine_the_next_shares() -> None:
    memory = make_memory(64 << 20)
    for keys in (range(4), range(4, 8)):
        grant = memory.grant(4, 1)
        for task in range(4):
            fill(memory, grant, task, keys[task : task + 1], nbytes=1 << 20)
        grant.end(0b1111)

    assert found(memory) == [4, 5, 6, 7]  # the first shares are smaller than an entry


def test_workers_store_nothing_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = make_memory(1 << 20)
    grant = memory.grant(1, 5)
    monkeypatch.setattr(sample_cache, "available_bytes", lambda: 1000)
    fill(memory, grant, 0, range(5))
    grant.end(1)

    assert found(memory) == []
    assert memory.statistics().used_bytes == 0


def test_a_batch_without_address_space_is_computed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = make_memory(1 << 20)
    memory.grant(1, 5).end(1)  # leaves a journal to use again

    def refuse(nbytes: int) -> int:
        raise OutOfMemoryError("no address space")

    monkeypatch.setattr(memory.space, "allocate", refuse)
    grant = memory.grant(1, 5)
    fill(memory, grant, 0, range(5))
    grant.end(1)

    assert found(memory) == []
    assert memory.statistics().used_bytes == 0


def test_replaced_entries_keep_their_memory_while_a_worker_may_read_them() -> None:
    memory = make_memory(4 * PAGE_BYTES, replaces=True)
    for key in range(4):
        memory.put(key, 0, [content_of(key, 4000)])
    offset = int(memory.index[3])
    entry = memory.space.array(offset, (4000,), np.dtype(np.uint8))
    before = entry.tobytes()
    grant = memory.grant(1, 1)  # may read entry 3
    for key in range(10, 20):
        memory.put(key, 0, [content_of(key, 4000)])

    assert memory.index[3] == 0
    assert entry.tobytes() == before

    grant.end(0)
    for key in range(10, 20):
        memory.put(key, 0, [content_of(key, 4000)])
    assert found(memory) == [16, 17, 18, 19]


def test_small_entries_of_the_owner_share_pages() -> None:
    memory = make_memory(1 << 20)
    for key in range(100):
        memory.put(key, 0, [content_of(key, 100)])

    assert found(memory) == [*range(100)]
    assert memory.statistics().used_bytes <= 5 * PAGE_BYTES


def test_a_share_refuses_writes_behind_its_task() -> None:
    memory = make_memory(1 << 20)
    grant = memory.grant(1, 5)
    ident, page = link_grants([grant])
    memory.is_owned = False  # as in a worker
    with shares_of_task(ident, page, 0):
        share = memory.share
        memory.put(1, 0, [b"one"])
    assert share is not None
    memory.put(2, 0, [b"two"])
    assert not share.put(3, 0, [b"three"], 5)
    memory.is_owned = True
    grant.end(1)

    assert [key for key in range(5) if memory.get(key, 0) is not None] == [1]


def test_a_batch_may_have_several_caches() -> None:
    memories = [make_memory(1 << 20) for _ in range(3)]
    grants = [memory.grant(2, 5) for memory in memories]
    ident, page = link_grants(grants)
    for memory in memories:
        memory.is_owned = False
    with shares_of_task(ident, page, 1):
        for i, memory in enumerate(memories):
            assert memory_of(memory.ident) is memory
            memory.put(i, 0, [b"entry"])
    for i, (memory, grant) in enumerate(zip(memories, grants, strict=True)):
        memory.is_owned = True
        grant.end(0b10)
        assert memory.get(i, 0) == b"entry"


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_budget_holds_and_entries_are_right_after_random_events(replaces: bool, seed: int) -> None:
    """Batches begin and end in any order; workers die at any entry; entries have any size."""
    choose = random.Random(seed)
    budget_bytes = choose.choice([30, 100, 400]) * PAGE_BYTES
    memory = make_memory(budget_bytes, replaces=replaces)
    open_grants: list[tuple[Grant, int]] = []

    def begin() -> None:
        num_tasks = choose.randint(1, 4)
        grant, reported = memory.grant(num_tasks, 8), 0
        for task in range(num_tasks):
            share = Share(memory.space, grant.offset, task, Headroom())
            for _ in range(choose.randint(0, 8)):
                key, nbytes = choose.randrange(LENGTH), choose.choice([10, 3000, 9000])
                share.put(key, 0, [content_of(key, nbytes)], nbytes)
            reported |= choose.choice([0, 1, 1]) << task
        open_grants.append((grant, reported))

    def end() -> None:
        if open_grants:
            grant, reported = open_grants.pop(choose.randrange(len(open_grants)))
            grant.end(reported)

    def put() -> None:
        key = choose.randrange(LENGTH)
        memory.put(key, 0, [content_of(key, choose.choice([10, 3000, 9000]))])

    actions: list[Callable[[], None]] = [begin, end, put]
    for _ in range(300):
        choose.choice(actions)()
        assert memory.statistics().used_bytes <= memory.budget_bytes == budget_bytes
    while open_grants:
        end()
    put()
    assert found(memory)
    assert memory.statistics().stored == len(found(memory)) == int(np.count_nonzero(memory.index))
    assert memory.statistics().used_bytes <= budget_bytes
