"""Jagged collation: values and offsets."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader, Jagged, jagged_collate
from dali_like.errors import CollateError, CollateKeyError, SampleIndexError


def text_of(i: int) -> dict[str, Any]:
    return {"tokens": np.arange(i, dtype=np.int32), "image": np.full((2, 2), i, np.float32), "label": i}


def test_arrays_become_values_and_offsets() -> None:
    batch = jagged_collate([np.array([1, 2]), np.array([], int), np.array([3])])
    assert isinstance(batch, Jagged)
    assert batch.values.tolist() == [1, 2, 3]
    assert batch.offsets.tolist() == [0, 2, 2, 3]
    assert batch.offsets.dtype == np.int64


def test_other_parts_are_stacked() -> None:
    batch = jagged_collate([text_of(2), text_of(1)], fields=["tokens"])
    assert batch["tokens"].values.dtype == np.int32
    assert batch["tokens"].values.tolist() == [0, 1, 0]
    assert batch["image"].shape == (2, 2, 2)
    assert batch["label"].tolist() == [2, 1]
    assert jagged_collate([text_of(2), text_of(1)])["image"].values.shape == (4, 2)
    assert jagged_collate([np.array(1), np.array(2)]).tolist() == [1, 2]


def test_parts_of_containers_are_jagged() -> None:
    first, names = jagged_collate([(np.arange(2), "a"), (np.arange(1), "b")])
    assert first.offsets.tolist() == [0, 2, 3]
    assert names == ("a", "b")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_loaders_collate_jagged_batches(num_workers: int) -> None:
    samples = [text_of(i) for i in range(4)]
    collate = functools.partial(jagged_collate, fields=["tokens"])
    batches = list(DataLoader(samples, batch_size=2, collate_fn=collate, num_workers=num_workers))
    assert all(isinstance(batch["tokens"], Jagged) for batch in batches)
    assert [batch["tokens"].offsets.tolist() for batch in batches] == [[0, 0, 1], [0, 2, 5]]


@pytest.mark.parametrize(
    ("samples", "fields", "kind", "message"),
    [
        ([np.zeros((1, 2)), np.zeros((1, 3))], None, CollateError, r"got \[1, 2\] at entry 0 and \[1, 3\] at entry 1"),
        ([text_of(1)], ["text"], CollateError, "has the fields tokens, image, label. Leave out fields="),
        ([np.zeros(2)], ["text"], CollateError, "has the type <class 'numpy.ndarray'>"),
        ([text_of(1), {}], ["tokens"], CollateKeyError, "sample 1 of the batch has no key 'tokens'"),
        ([], ["text"], SampleIndexError, "the batch is empty"),
        ([], None, SampleIndexError, "the batch is empty"),
    ],
)
def test_samples_that_do_not_fit_are_errors(samples: Any, fields: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        jagged_collate(samples, fields=fields)
