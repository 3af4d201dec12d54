"""Iterables in several workers: the batches of an epoch, and their order, are as in PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import dali_like
from tests.batches import END, numbers_in, outcomes, pipeline_of


class Samples(torch.utils.data.IterableDataset[Any]):
    """In worker `i`, as many samples as the i-th of the lengths says, from number 100 i on."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info() or dali_like.get_worker_info()
        assert info is not None
        return (np.full(2, 100 * info.id + number) for number in range(self.lengths[info.id]))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than there are cores
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("lengths", [(9, 9), (9, 2), (2, 13), (0, 5), (4, 0, 9), (1, 1, 1), (0, 0)], ids=str)
def test_shards_take_turns_as_in_pytorch(lengths: Sequence[int], drop_last: bool) -> None:
    loader = torch.utils.data.DataLoader(Samples(lengths), batch_size=4, num_workers=len(lengths), drop_last=drop_last)
    expected = [batch[:, 0].tolist() for batch in loader]

    options = {"sharded": True, "batch": False, "last_batch_policy": "drop" if drop_last else "partial"}
    with pipeline_of((Samples(lengths), options), workers=len(lengths)) as pipe:
        seen = outcomes(pipe, 2 * len(expected) + 2, lambda outputs: numbers_in(outputs[0]))

    assert seen == 2 * [*expected, END]
