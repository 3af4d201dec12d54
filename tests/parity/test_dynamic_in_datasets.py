"""Operators of dynamic mode in datasets of PyTorch, on torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import dali_like.experimental.dynamic as ndd
from dali_like.data import DataLoader as ArrayLoader
from dali_like.plugin.pytorch import DataLoader


class Flipped(torch.utils.data.Dataset[Any]):
    def __init__(self, *, as_torch: bool) -> None:
        self.as_torch = as_torch

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        made = ndd.flip(torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3) + index)
        return made.torch() if self.as_torch else np.asarray(made)


def test_torch_tensors_in_a_dataset() -> None:
    (batch,) = DataLoader(Flipped(as_torch=True), batch_size=4, num_workers=1)
    assert batch[1].tolist() == [[[4, 5, 6], [1, 2, 3]], [[10, 11, 12], [7, 8, 9]]]
    (arrays,) = ArrayLoader(Flipped(as_torch=False), batch_size=4)
    assert np.array_equal(arrays, batch)
