"""``share_batches`` of ``fn.external_source``: whether several workers compute a batch together."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import ArgumentTypeError
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S


def numbered(info: SampleInfo) -> Any:
    return np.int64(info.idx_in_epoch), np.int64(os.getpid())


def run_with(num_batches: int, **options: Any) -> list[Any]:
    pipe = Pipeline(16, num_threads=1, py_num_workers=2, py_start_method="fork")
    with pipe:
        pipe.set_outputs(*fn.external_source(numbered, num_outputs=2, batch=False, parallel=True, **options))
        return [[output.as_array() for output in pipe.run()] for _ in range(num_batches)]


def test_one_worker_computes_each_batch_of_a_pipeline_without_sharing() -> None:
    batches = run_with(6, share_batches=False)

    assert np.concatenate([numbers for numbers, _ in batches]).tolist() == list(range(96))
    assert [len(np.unique(pids)) for _, pids in batches] == [1] * 6


class Chunk:
    """The last chunk that a worker has read."""

    number = -1


def from_chunk(info: SampleInfo) -> Any:
    chunk = info.idx_in_epoch // 16
    if chunk != Chunk.number:
        time.sleep(0.002)
        Chunk.number = chunk
    return np.int64(info.idx_in_epoch), np.int64(os.getpid())


def test_workers_of_a_pipeline_stop_sharing_by_themselves_where_neighbors_are_cheap() -> None:
    pipe = Pipeline(16, num_threads=1, py_num_workers=2, py_start_method="fork", prefetch_queue_depth=3)
    deadline_s, since, count = time.monotonic() + DEADLINE_S, 0, 0
    with pipe:
        pipe.set_outputs(*fn.external_source(from_chunk, num_outputs=2, batch=False, parallel=True))
        while since < 20 and time.monotonic() < deadline_s:
            numbers, pids = (output.as_array() for output in pipe.run())
            assert numbers.tolist() == list(range(16 * count, 16 * count + 16))
            count += 1
            since = since + 1 if len(np.unique(pids)) == 1 else 0

    assert since == 20


def test_share_batches_of_another_type_is_an_error() -> None:
    with pytest.raises(ArgumentTypeError, match="share_batches"):
        fn.external_source(numbered, batch=False, parallel=True, share_batches="no")
