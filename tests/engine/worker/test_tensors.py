"""Sources that return PyTorch's tensors. A class of the same name stands for them; tests/parity has the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn


class Tensor:
    """Counts the ways in which it becomes an array."""

    counts: dict[str, int]

    def __init__(self, array: np.ndarray, *, is_plain: bool = True) -> None:
        self.array = array
        self.is_plain = is_plain

    def numpy(self) -> np.ndarray:
        if not self.is_plain:
            raise RuntimeError("requires grad")
        self.counts["numpy"] += 1
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.counts["__array__"] += 1
        return self.array


Tensor.__module__ = "torch"


@pytest.fixture
def counts() -> dict[str, int]:
    Tensor.counts = {"numpy": 0, "__array__": 0}
    return Tensor.counts


@contextmanager
def pipeline(source: Any, **options: Any) -> Iterator[Pipeline]:
    pipe = Pipeline(4, prefetch_queue_depth=1)
    with pipe:
        made = fn.external_source(source, batch=False, **options)
        pipe.set_outputs(*(made if isinstance(made, list) else [made]))
    try:
        yield pipe
    finally:
        pipe.close()


def test_from_the_second_task_on_tensors_are_asked_for_arrays(counts: dict[str, int]) -> None:
    with pipeline(lambda info: (Tensor(np.full(3, info.idx_in_epoch)), np.int32(1)), num_outputs=2) as pipe:
        batches = [np.array(pipe.run()[0].as_array()) for _ in range(4)]

    assert [batch[:, 0].tolist() for batch in batches] == [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in range(4)]
    assert counts["__array__"] == 4
    assert counts["numpy"] >= 12


def test_single_outputs_are_tensors_too(counts: dict[str, int]) -> None:
    with pipeline(lambda info: Tensor(np.full(3, info.idx_in_epoch))) as pipe:
        assert [pipe.run()[0].as_array()[0, 0] for _ in range(3)] == [0, 4, 8]

    assert counts["__array__"] == 4


def test_tensors_that_are_no_plain_arrays_are_converted_as_before(counts: dict[str, int]) -> None:
    def source(info: Any) -> Any:
        return Tensor(np.full(3, info.idx_in_epoch), is_plain=info.idx_in_epoch % 3 > 0)

    with pipeline(source) as pipe:
        batches = [pipe.run()[0].as_array()[:, 0].tolist() for _ in range(3)]

    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
