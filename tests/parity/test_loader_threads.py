"""PyTorch's loader with threads for workers: its tensors, and the limits of PyTorch's knowledge of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, TensorDataset

from dali_like.errors import ArgumentClashError
from dali_like.plugin.pytorch import DataLoader


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


def test_batches_are_those_of_pytorch() -> None:
    dataset = TensorDataset(torch.arange(30).reshape(10, 3), torch.arange(10.0))

    ours = list(DataLoader(dataset, 4, num_workers=2, multiprocessing_context="thread"))

    for (images, labels), (their_images, their_labels) in zip(ours, TorchLoader(dataset, 4), strict=True):
        assert torch.equal(images, their_images)
        assert torch.equal(labels, their_labels)


def test_the_global_generators_go_on_where_they_are() -> None:
    torch.manual_seed(1)
    loader: Any = DataLoader(range(4), num_workers=1, multiprocessing_context="thread", generator=torch.Generator())
    list(loader)
    drawn = torch.rand(1)

    torch.manual_seed(1)

    assert drawn == torch.rand(1)


def test_an_iterable_dataset_is_for_one_thread() -> None:
    alone = DataLoader(Numbers(), 2, num_workers=1)
    alone.multiprocessing_context = "thread"
    several = DataLoader(Numbers(), 2, num_workers=2, multiprocessing_context="thread")

    assert [batch.tolist() for batch in alone] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ArgumentClashError, match="get_worker_info"):
        iter(several)
