"""Threads that share an iterator of a loader, and threads that end it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dali_like.data import DataLoader
from dali_like.errors import ClosedError
from tests.conftest import DEADLINE_S, wait_until
from tests.data.loader_cases import MANY_WORKERS, Made, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)


@pytest.mark.parametrize("kept", [False, True], ids=["workers end", "kept workers"])
@pytest.mark.parametrize("in_order", [True, False])
def test_threads_that_share_an_iterator_get_each_batch_once_and_all_of_them_meet_the_end(in_order: bool, kept: bool) -> None:
    batches = iter(loader_of(range(60), 2, "thread", batch_size=2, in_order=in_order, persistent_workers=kept))

    with ThreadPoolExecutor(4) as threads:
        shares = [threads.submit(list, batches) for _ in range(4)]
        taken = [share.result(DEADLINE_S) for share in shares]

    assert sorted(int(number) for share in taken for batch in share for number in batch) == list(range(60))


@pytest.mark.parametrize("kept", [False, True], ids=["workers end", "kept workers"])
def test_thread_that_waits_for_a_batch_of_an_ended_iterator_gets_an_error(kept: bool) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def sample(number: int) -> int:
        begun.set()
        assert may_end.wait(DEADLINE_S)
        return number

    loader: DataLoader[Any] = loader_of(Made(sample), 1, "thread", batch_size=2, persistent_workers=kept)
    batches: Any = iter(loader)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(next, batches)
        assert begun.wait(DEADLINE_S)
        ending = threading.Thread(target=batches.end)
        ending.start()
        if kept:
            ending.join()
        else:
            wait_until(waiting.done, "the waiting thread to be woken")
        may_end.set()

        with pytest.raises(ClosedError, match="have been ended"):
            waiting.result(DEADLINE_S)
        ending.join()
    del batches, loader
