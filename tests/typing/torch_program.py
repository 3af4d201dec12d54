# pyright: strict
"""As `program`, with PyTorch."""

from __future__ import annotations

from typing import assert_type

import torch
from torch.utils import data

from dali_like import Pipeline
from dali_like.plugin.pytorch import DALIGenericIterator, DataLoader


class Squares(data.Dataset[tuple[torch.Tensor, int]]):
    """A dataset."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), index**2), index


def load() -> int:
    """A loop over a loader; the types of its samples are inferred, as with PyTorch's."""
    loader = DataLoader(Squares(), batch_size=10, shuffle=True, num_workers=2, pin_memory="copy", on_error="raise")
    assert_type(loader, DataLoader[tuple[torch.Tensor, int]])
    theirs: data.DataLoader[tuple[torch.Tensor, int]] = loader
    return len(theirs) + len(list(DataLoader([1, 2, 3])))


def by_iterator(pipe: Pipeline) -> int:
    """DALI's iterator."""
    return sum(len(batch["images"]) for batches in DALIGenericIterator(pipe, ["images"]) for batch in batches)
