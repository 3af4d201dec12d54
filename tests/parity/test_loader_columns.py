"""Datasets that are only tensors: their batches are gathered, and equal PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset  # noqa: E402

from dali_like.data import ArrayDataset  # noqa: E402
from dali_like.plugin.pytorch import DataLoader  # noqa: E402

ROWS = 12


def rows(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.arange(ROWS * int(np.prod(shape))).reshape(ROWS, *shape).to(dtype)


class Overridden(TensorDataset):
    def __getitem__(self, index: int) -> int:
        return index


class WithItems(TensorDataset):
    def __getitems__(self, keys: list[int]) -> list[int]:
        return [key * 2 for key in keys]


PAIRS = TensorDataset(rows(2, 3), rows(dtype=torch.int64))

DATASETS: dict[str, Any] = {
    **{
        f"torch.{name}": TensorDataset(rows(2, dtype=getattr(torch, name)))
        for name in ("uint8", "bfloat16", "bool", "complex64")
    },
    "tensor": rows(2),
    "no elements": TensorDataset(torch.zeros(ROWS, 0, 3)),
    "channels last": TensorDataset(rows(2, 3, 4).contiguous(memory_format=torch.channels_last)),
    "one channel": TensorDataset(rows(1, 3, 4)),
    "permuted": TensorDataset(rows(3, 4).permute(0, 2, 1)),
    "every other": TensorDataset(torch.arange(4.0 * ROWS).reshape(2 * ROWS, 2)[::2]),
    "expanded": TensorDataset(torch.arange(3).expand(ROWS, 3)),
    "requires grad": TensorDataset(rows(2).requires_grad_()),
    "sparse": TensorDataset(rows(3).to_sparse()),
    "parameter": TensorDataset(torch.nn.Parameter(rows(2), requires_grad=False)),
    "conjugated": TensorDataset(rows(2, dtype=torch.complex64).conj()),
    "tensor and arrays": ArrayDataset(rows(2), np.arange(ROWS), np.ones((ROWS, 2), np.float32)),
    "stack": StackDataset(image=PAIRS, label=rows()),
    "subset": Subset(PAIRS, [5, -1, 0, 5, 7, 1]),
    "subset by tensor": Subset(PAIRS, torch.tensor([5, 3, 1, 2])),
    "subset with a key out of range": Subset(PAIRS, [0, 1, ROWS]),
    "concatenation": ConcatDataset([Subset(PAIRS, [3, 1]), PAIRS]),
    "concatenation of other dtypes": ConcatDataset([TensorDataset(rows(2)), TensorDataset(rows(2, dtype=torch.int64))]),
    "overridden": Overridden(rows(2)),
    "with items": WithItems(rows(2)),
}

SAMPLERS: dict[str, dict[str, Any]] = {
    "in order": {"batch_size": 5},
    "drop last": {"batch_size": 4, "drop_last": True},
    "negative": {"batch_size": 2, "sampler": [-1, 0, -2]},
    "out of range": {"batch_size": 2, "sampler": [0, 1, 99]},
    "too negative": {"batch_size": 2, "sampler": [0, -99]},
    "tensors": {"batch_size": 2, "sampler": torch.tensor([1, 0, 2])},
    "bytes": {"batch_size": 2, "sampler": torch.tensor([1, 0], dtype=torch.uint8)},
    "batch of tensors": {"batch_sampler": [torch.tensor([1, 0])]},
    "bool": {"batch_size": 2, "sampler": [True, False]},
    "slices": {"batch_size": 2, "sampler": [slice(0, 2), slice(1, 3)]},
    "lists": {"batch_size": 2, "sampler": [[0, 1], [1, 2]]},
    "no batches": {"batch_size": None},
    "own collation": {"batch_size": 2, "collate_fn": tuple},
}


def batches_of(loader: type, dataset: Any, **options: Any) -> list[Any]:
    """Return the description of each batch, and at last the type of an error."""
    found: list[Any] = []
    try:
        for batch in loader(dataset, **options):
            found.append(described(batch))
    except Exception as error:
        found.append(type(error))
    return found


def described(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        dense = batch.to_dense().detach()
        return batch.dtype, batch.layout, tuple(batch.shape), dense.stride(), batch.requires_grad, dense.tolist()
    if isinstance(batch, dict):
        return {key: described(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch), [described(part) for part in batch]
    return type(batch), repr(batch)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", DATASETS)
def test_batches_of_tensors_equal_those_of_pytorch(name: str, sampler: str) -> None:
    options = SAMPLERS[sampler]

    ours = batches_of(DataLoader, DATASETS[name], **options)

    assert ours == batches_of(torch.utils.data.DataLoader, DATASETS[name], **options)


@pytest.mark.parametrize(
    "name", ["torch.bfloat16", "torch.complex64", "tensor and arrays", "stack", "concatenation", "with items"]
)
def test_batches_of_tensors_from_workers_equal_those_of_pytorch(name: str) -> None:
    dataset = DATASETS[name]
    options: dict[str, Any] = {"batch_size": 6, "sampler": list(range(len(dataset))) * 8}

    ours = batches_of(DataLoader, dataset, num_workers=2, multiprocessing_context="thread", **options)

    assert ours == batches_of(torch.utils.data.DataLoader, dataset, **options)


def test_gathered_batches_and_the_tensors_of_the_dataset_can_be_resized() -> None:
    tensor = rows(2)
    (batch,) = DataLoader(tensor, ROWS)

    batch.resize_(100, 2)
    tensor.resize_(100, 2)

    assert batch.shape == tensor.shape == (100, 2)
