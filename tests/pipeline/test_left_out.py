"""The first epoch that leaves samples out says how many, unless the program has asked for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.types import SampleInfo

MakePipeline = Callable[..., Pipeline]


def index(info: SampleInfo) -> Any:
    return np.int64(info.idx_in_epoch)


def ten(info: SampleInfo) -> Any:
    if info.idx_in_epoch >= 10:
        raise StopIteration
    return np.int64(info.idx_in_epoch)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "dali_like")
    return lambda: [record.getMessage() for record in caplog.records if "leaves out" in record.getMessage()]


@pytest.mark.parametrize(
    ("way", "source", "options", "text"),
    [
        ("serial", index, {"size": 1010}, "each epoch leaves out 2 of 1,010 samples, which do not fill a batch of 4"),
        ("fork", index, {"size": 10}, "each epoch leaves out 2 of 10 samples, which do not fill a batch of 4"),
        ("fork", ten, {}, "each epoch leaves out 2 samples, which do not fill a batch of 4"),
        ("serial", list(np.arange(10)), {}, "each epoch leaves out 2 samples, which do not fill a batch of 4"),
    ],
    ids=["size", "size, workers", "StopIteration, workers", "list"],
)
def test_samples_that_fill_no_batch_are_counted_once(
    make_pipeline: MakePipeline, lines: Callable[[], list[str]], way: str, source: Any, options: dict[str, Any], text: str
) -> None:
    pipe = make_pipeline(source, way, source_options={"name": "numbers", **options})
    for _ in range(2):
        list(pipe)

    (line,) = lines()
    assert line.startswith(f"external_source 'numbers': {text}")
    assert 'last_batch_policy="partial"' in line


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (index, {"size": 1000}),
        (index, {"size": 10, "last_batch_policy": "drop"}),
        (index, {"size": 10, "last_batch_policy": "partial"}),
        (index, {"size": 10, "shard_id": 0, "num_shards": 1, "shard_rest": "drop"}),
        (lambda info: np.zeros((3, 1)), {"size": 2, "batch": True}),
    ],
    ids=["none is left out", "drop", "partial", "shards", "batches"],
)
def test_nothing_is_said_otherwise(
    make_pipeline: MakePipeline, lines: Callable[[], list[str]], source: Any, options: dict[str, Any]
) -> None:
    list(make_pipeline(source, "serial", source_options=options))

    assert lines() == []
