"""The threads of dynamic mode, and their default number."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import errors


@pytest.fixture(autouse=True)
def default_number() -> Iterator[None]:
    yield
    ndd.set_num_threads(None)


def test_number_of_the_program_counts_for_contexts_without_one_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fixed = ndd.EvalContext(), ndd.EvalContext(num_threads=5)
    first = plain.num_threads

    monkeypatch.setenv("DALI_NUM_THREADS", "7")
    ndd.set_num_threads(None)
    assert (ndd.get_num_threads(), plain.num_threads) == (7, 7)

    ndd.set_num_threads(3)
    assert (ndd.get_num_threads(), plain.num_threads, fixed.num_threads, ndd.ThreadPool().num_threads) == (3, 3, 5, 3)

    monkeypatch.delenv("DALI_NUM_THREADS")
    ndd.set_num_threads(None)
    assert plain.num_threads == first


@pytest.mark.parametrize(
    ("number", "kind"), [(0, ValueError), (-1, ValueError), (10**6, ValueError), (1.5, TypeError), ("2", TypeError)]
)
def test_wrong_numbers_are_errors(number: object, kind: type[Exception]) -> None:
    before = ndd.get_num_threads()
    with pytest.raises(kind, match="number of threads") as caught:
        ndd.set_num_threads(number)  # type: ignore[arg-type]
    assert isinstance(caught.value, errors.DaliLikeError)
    assert ndd.get_num_threads() == before


def test_contexts_share_a_pool_that_they_do_not_close() -> None:
    pool = ndd.ThreadPool(3)
    seen: set[int] = set()
    barrier = threading.Barrier(3, timeout=60)

    def work(index: int) -> None:
        seen.add(threading.get_ident())
        barrier.wait()

    for _ in range(2):
        with ndd.EvalContext(thread_pool=pool) as context:
            assert (context.thread_pool, context.num_threads) == (pool, 3)
            context.for_each(3, work)
            batch = ndd.as_batch([np.ones((2, 3), np.uint8)] * 8, layout="HW")
            assert np.asarray(ndd.cast(batch, dtype=ndd.float32)).shape == (8, 2, 3)
    assert len(seen) == 3  # the second context has used the threads of the first one
    pool.close()


def test_contradicting_arguments_are_errors() -> None:
    pool = ndd.ThreadPool(2)
    with pytest.raises(errors.ArgumentClashError, match="num_threads"):
        ndd.EvalContext(thread_pool=pool, num_threads=2)
    with pytest.raises(errors.ArgumentClashError, match="device_id"):
        ndd.EvalContext(thread_pool=pool, device_id=1)
    with pytest.raises(errors.ArgumentError, match="at least 1"):
        ndd.ThreadPool(0)
