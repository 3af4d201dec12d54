"""Pipelines and loaders inside of callbacks of workers: each process has the descriptors of its own pool, and no others."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.data import DataLoader
from dali_like.types import SampleInfo
from tests.callbacks import number
from tests.conftest import once

#: Samples of an inner run.
SIZE = 4


def pipes() -> set[int]:
    """Return the inodes of the pipes and sockets that this process has open, other than standard streams."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:  # the one that the listing itself used
            continue
        if int(name) > 2 and (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            found.add(status.st_ino)
    return found


class Dataset:
    """Its elements are the pipes of the process that loads them, as sorted text."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> str:
        return " ".join(map(str, pipes()))


@dataclass(frozen=True)
class InnerPipeline:
    """A source that runs another pipeline for each sample."""

    start_method: str

    def __call__(self, info: SampleInfo) -> Any:
        with Pipeline(SIZE, 1, None, py_num_workers=1, py_start_method=self.start_method) as inner:
            inner.set_outputs(fn.external_source(number, batch=False, parallel=True))
            return inner.run()[0].as_array()


@dataclass(frozen=True)
class InnerLoader:
    """A source that reads a loader for each sample."""

    context: str

    def __call__(self, info: SampleInfo) -> Any:
        loader = DataLoader(range(SIZE), batch_size=2, num_workers=1, multiprocessing_context=self.context)
        return np.concatenate(list(loader))


inner_ways = pytest.mark.parametrize(
    "inner",
    [
        InnerPipeline("fork"),
        InnerPipeline("thread"),
        InnerLoader("fork"),
        *(pytest.param(inner, marks=pytest.mark.once("spawn")) for inner in (InnerPipeline("spawn"), InnerLoader("spawn"))),
    ],
    ids=repr,
)
outer_ways = pytest.mark.parametrize("way", ["fork", once("spawn"), once("thread")])


@outer_ways
@inner_ways
def test_a_source_that_runs_a_pipeline_or_loader_gets_its_batches(
    make_pipeline: Callable[..., Pipeline], way: str, inner: Callable[[SampleInfo], Any]
) -> None:
    pipe = make_pipeline(inner, way, batch_size=2, workers=1, py_worker_restarts=0)

    for _ in range(2):
        assert pipe.run()[0].as_array().tolist() == [list(range(SIZE))] * 2


@outer_ways
@inner_ways
def test_a_dataset_that_runs_a_pipeline_or_loader_gets_its_batches(way: str, inner: Callable[[Any], Any]) -> None:
    class Outer:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return inner(SampleInfo(index, 0, 0, 0))

    batches = list(DataLoader(Outer(), num_workers=1, multiprocessing_context=way, worker_restarts=0))

    assert np.concatenate(batches).tolist() == [list(range(SIZE))] * 2


def test_a_forked_worker_within_a_forked_worker_has_no_pipe_of_it(make_pipeline: Callable[..., Pipeline]) -> None:
    foreign = pipes()

    def source(info: SampleInfo) -> Any:
        own = pipes() - foreign
        with open(os.devnull, "rb") as file:
            (text,) = DataLoader(Dataset(), batch_size=SIZE, num_workers=1, collate_fn=lambda texts: texts[0])
            return np.array([len(own) > 0, len(own & set(map(int, text.split()))), file.read() == b""])

    pipe = make_pipeline(source, batch_size=1, workers=1, py_worker_restarts=0)

    assert pipe.run()[0].as_array().tolist() == [[1, 0, 1]]
