"""Iterators for JAX over pipelines for a GPU, with DALI_LIKE_DEVICE=cpu."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import jax
import numpy as np
import pytest

from dali_like import fn, pipeline_def
from dali_like.plugin.jax import DALIGenericIterator


def test_arrays_are_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_LIKE_DEVICE", "cpu")

    @pipeline_def(batch_size=2, device_id=0)
    def pipeline() -> Any:
        data = fn.external_source(lambda info: np.full((2, 2), info.idx_in_epoch, np.uint8), batch=False)
        return fn.cast(data, dtype="float32", device="gpu")

    with closing(pipeline()) as pipe:
        batch = next(DALIGenericIterator(pipe, ["data"], size=4))

    assert isinstance(batch["data"], jax.Array)
    assert {device.platform for device in batch["data"].devices()} == {"cpu"}
    assert batch["data"][:, 0, 0].tolist() == [0, 1]
