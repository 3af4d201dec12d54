"""``share_batches`` of ``fn.external_source``: whether several workers compute a batch together."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import ArgumentTypeError
from dali_like.types import SampleInfo


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


def test_share_batches_of_another_type_is_an_error() -> None:
    with pytest.raises(ArgumentTypeError, match="share_batches"):
        fn.external_source(numbered, batch=False, parallel=True, share_batches="no")
