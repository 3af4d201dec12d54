"""``share_batches``: whether several workers of a loader compute a batch together."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import random
import time
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader
from dali_like.data.fetcher import Fetcher, last_whole
from dali_like.data.options import LoaderOptions
from dali_like.errors import ArgumentTypeError
from tests.conftest import DEADLINE_S


class Drawn:
    """Samples with the process that computed them, and a random number. No worker is faster than the other."""

    def __init__(self, barrier: Any = None) -> None:
        self.barrier = barrier

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if self.barrier is not None and index == 0:
            self.barrier.wait()
        if self.barrier is not None and index == 15:
            self.barrier.set()
        return np.int64(index), np.float64(random.random()), np.int64(os.getpid())


def batches_of(**options: Any) -> list[Any]:
    return list(DataLoader(Drawn(), 16, num_workers=2, multiprocessing_context="fork", generator=1, **options))


def test_one_worker_computes_each_batch_without_sharing() -> None:
    batches = batches_of(share_batches=False)

    assert [len(set(pids.tolist())) for _, _, pids in batches] == [1] * 4


class Chunks:
    """Samples of chunks; the last chunk is kept. Counts how often a chunk is read, in memory that workers share."""

    def __init__(self) -> None:
        self._read = np.frombuffer(mmap.mmap(-1, 8 * 256), np.int64)
        self._kept = -1

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        chunk = index // 16
        if chunk != self._kept:
            self._kept = chunk
            self._read[os.getpid() % 256] += 1
        return index

    @property
    def num_read(self) -> int:
        return int(self._read.sum())


def test_each_chunk_is_read_once_where_batches_are_chunks_and_not_shared() -> None:
    dataset = Chunks()

    batches = list(DataLoader(dataset, 16, num_workers=2, multiprocessing_context="fork", share_batches=False))

    assert len(batches) == 4
    assert dataset.num_read == 4


class SlowChunks(Chunks):
    """Chunks of a slow store."""

    def __len__(self) -> int:
        return 16 * 64

    def __getitem__(self, index: int) -> int:
        if index // 16 != self._kept:
            time.sleep(0.002)
            self._kept = index // 16
            self._read[os.getpid() % 256] += 1
        return index


def test_workers_stop_sharing_by_themselves_where_neighbors_are_cheap() -> None:
    dataset = SlowChunks()
    loader = DataLoader(dataset, 16, num_workers=2, multiprocessing_context="fork")
    deadline_s, num_read = time.monotonic() + DEADLINE_S, 128

    while num_read > 70 and time.monotonic() < deadline_s:  # a worker that gets no CPU may miss a trial
        before = dataset.num_read
        batches = [batch.tolist() for batch in loader]
        num_read = dataset.num_read - before

    assert num_read <= 70, "64 chunks"
    assert batches == [list(range(16 * i, 16 * i + 16)) for i in range(64)]
    assert last_whole[id(dataset)]() is dataset, "later workers begin so"


def test_nothing_is_remembered_of_a_dataset_that_is_gone() -> None:
    dataset = SlowChunks()
    fetcher = Fetcher.of(LoaderOptions.of(DataLoader(dataset)))
    number = id(dataset)
    fetcher.note_whole(True)
    assert fetcher.recalls_whole()

    fetcher.note_whole(False)
    assert not fetcher.recalls_whole()
    fetcher.note_whole(True)
    del dataset, fetcher
    gc.collect()

    assert number not in last_whole


def test_batches_and_random_numbers_do_not_depend_on_sharing() -> None:
    shared, alone = batches_of(share_batches=True), batches_of(share_batches=False)

    for (indices, numbers, _), (same_indices, same_numbers, _) in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(indices, same_indices)
        np.testing.assert_array_equal(numbers, same_numbers)


def test_other_workers_compute_the_rest_of_a_shared_batch_while_one_waits() -> None:
    barrier = multiprocessing.get_context("fork").Event()  # sample 0 waits for sample 15 of the same batch
    loader = DataLoader(Drawn(barrier), 16, num_workers=2, multiprocessing_context="fork")

    _, _, pids = next(iter(loader))

    assert len(set(pids.tolist())) == 2


def test_share_batches_of_another_type_is_an_error() -> None:
    with pytest.raises(ArgumentTypeError, match="share_batches"):
        DataLoader(Drawn(), share_batches="no")  # type: ignore[arg-type]
