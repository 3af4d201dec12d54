"""Collation with padding."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader, Padded, pad_collate
from dali_like.errors import ArgumentError, CollateError, SampleIndexError


def test_arrays_are_padded_to_the_largest_in_each_dimension() -> None:
    first, second = np.ones((1, 3), np.float32), np.full((2, 2), 2, np.float32)
    batch = pad_collate([first, second])
    assert batch.dtype == np.float32
    assert batch.tolist() == [[[1, 1, 1], [0, 0, 0]], [[2, 2, 0], [2, 2, 0]]]


def test_dtypes_are_promoted_as_in_a_stack() -> None:
    assert pad_collate([np.ones(1, np.int32), np.ones(2, np.float32)]).dtype == np.float64


def test_arrays_without_elements_are_rows_of_padding() -> None:
    assert pad_collate([np.array([], np.int64), np.array([3])], fill_value=9).tolist() == [[9], [3]]
    assert pad_collate([np.zeros((0, 2)), np.zeros((0, 2))]).shape == (2, 0, 2)


def test_multiple_of_concerns_the_first_dimension_alone() -> None:
    assert pad_collate([np.ones((5, 3)), np.ones((1, 3))], multiple_of=8).shape == (2, 8, 3)
    assert pad_collate([np.ones(8)], multiple_of=8).shape == (1, 8)


def test_other_parts_are_collated_as_by_default() -> None:
    samples = [
        {"tokens": np.arange(i), "box": np.ones(4), "label": i, "name": str(i), "scale": np.float32(i)} for i in (1, 2)
    ]
    batch = pad_collate(samples, fields=["tokens"])
    assert batch["tokens"].tolist() == [[0, 0], [0, 1]]
    assert batch["box"].shape == (2, 4)
    assert batch["label"].tolist() == [1, 2]
    assert batch["name"] == ["1", "2"]
    assert batch["scale"].dtype == np.float32


def test_fields_have_their_own_values_and_lengths() -> None:
    samples = [{"tokens": [1, 2], "labels": [7, 7]}, {"tokens": [3], "labels": [8]}]
    batch = pad_collate(samples, fields={"tokens": 0, "labels": -100}, lengths=True)
    assert batch["tokens"].values.tolist() == [[1, 2], [3, 0]]
    assert batch["labels"].values.tolist() == [[7, 7], [8, -100]]
    assert batch["labels"].lengths.tolist() == [2, 1]
    assert batch["labels"].lengths.dtype == np.int64


def test_lists_outside_the_fields_stay_containers() -> None:
    batch = pad_collate([{"tokens": [1], "pair": [1, 2]}, {"tokens": [1], "pair": [3, 4]}], fields=["tokens"])
    assert [part.tolist() for part in batch["pair"]] == [[1, 3], [2, 4]]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_loaders_collate_padded_batches(num_workers: int) -> None:
    samples = [(np.arange(i, dtype=np.int32), i) for i in range(4)]
    collate = functools.partial(pad_collate, fill_value=-1, lengths=True)
    batches = list(DataLoader(samples, batch_size=2, collate_fn=collate, num_workers=num_workers))
    assert all(isinstance(tokens, Padded) for tokens, _ in batches)
    assert [tokens.values.tolist() for tokens, _ in batches] == [[[-1], [0]], [[0, 1, -1], [0, 1, 2]]]
    assert [tokens.lengths.tolist() for tokens, _ in batches] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("samples", "options", "kind", "message"),
    [
        ([np.zeros(2), np.zeros((2, 1))], {}, CollateError, r"got \[2\] at entry 0 and \[2, 1\] at entry 1"),
        ([np.zeros(2, np.uint8)], {"fill_value": -100}, CollateError, "fill value -100 does not fit arrays of uint8"),
        ([np.zeros(2)], {"fill_value": "x"}, CollateError, "fill value 'x' does not fit arrays of float64"),
        ([np.zeros(2)], {"fields": ["text"]}, CollateError, "has the type <class 'numpy.ndarray'>. Leave out fields="),
        ([np.zeros(2)], {"multiple_of": 0}, ArgumentError, "multiple_of"),
        ([], {}, SampleIndexError, "the batch is empty"),
        ([], {"fields": ["text"]}, SampleIndexError, "the batch is empty"),
    ],
)
def test_samples_and_options_that_do_not_fit_are_errors(
    samples: Any, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        pad_collate(samples, **options)
