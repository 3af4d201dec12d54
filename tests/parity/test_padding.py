"""Padded batches for PyTorch: as ``pad_sequence`` makes them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pad_sequence  # noqa: E402

from dali_like.errors import CollateError  # noqa: E402
from dali_like.plugin.pytorch import DataLoader, pad_collate  # noqa: E402

pytestmark = pytest.mark.peers


def sample(i: int) -> dict[str, Any]:
    return {"tokens": torch.arange(i), "points": np.full((i + 1, 3), i, np.float32), "ids": [i] * i, "label": i}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_are_those_of_pad_sequence(num_workers: int) -> None:
    samples = [sample(i) for i in range(1, 5)]
    collate = functools.partial(pad_collate, fields={"tokens": -1, "points": 0, "ids": 9}, lengths=True)
    (batch,) = DataLoader(samples, batch_size=4, collate_fn=collate, num_workers=num_workers)
    tokens = [each["tokens"] for each in samples]
    assert torch.equal(batch["tokens"].values, pad_sequence(tokens, batch_first=True, padding_value=-1))
    assert torch.equal(batch["tokens"].lengths, torch.tensor([1, 2, 3, 4]))
    points = [torch.from_numpy(each["points"]) for each in samples]
    assert torch.equal(batch["points"].values, pad_sequence(points, batch_first=True))
    assert batch["ids"].values.tolist() == [[1, 9, 9, 9], [2, 2, 9, 9], [3, 3, 3, 9], [4, 4, 4, 4]]
    assert torch.equal(batch["label"], torch.arange(1, 5))


def test_dtypes_are_promoted_as_in_a_stack() -> None:
    assert pad_collate([torch.ones(1, dtype=torch.int32), torch.ones(2)]).dtype is torch.float32
    assert pad_collate([torch.ones(1, dtype=torch.bfloat16)], multiple_of=8).shape == (1, 8)


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ([torch.ones(2), torch.ones(2, 1)], {}, r"got \[2\] at entry 0 and \[2, 1\] at entry 1"),
        ([torch.ones(2, dtype=torch.uint8)], {"fill_value": "x"}, "fill value 'x' does not fit tensors of torch.uint8"),
        ([torch.ones(2, dtype=torch.uint8)], {"fill_value": -100}, "fill value -100 does not fit tensors of torch.uint8"),
    ],
)
def test_samples_and_options_that_do_not_fit_are_errors(samples: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CollateError, match=message):
        pad_collate(samples, **options)
