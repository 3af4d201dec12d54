"""Memory of batches in the real PyTorch and in dali_like: strides, resizing, and collations that the program replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.utils.data as torch_data  # noqa: E402
from torch.utils.data._utils import collate as torch_collate  # noqa: E402

from dali_like.plugin.pytorch import DataLoader  # noqa: E402

pytestmark = pytest.mark.peers

LOADERS = (DataLoader, torch_data.DataLoader)

SAMPLES: dict[str, Any] = {
    "volumes with the channels last": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed images": torch.arange(60.0).reshape(3, 4, 5).permute(1, 2, 0),
    "no rows": torch.zeros(0, 3),
    "no columns": torch.zeros(3, 0),
    "arrays without rows": np.zeros((0, 3)),
    "numbers": 5,
    "text and tensor": ("a", torch.ones(2)),
}


def memory_of(batch: Any) -> Any:
    if isinstance(batch, (list, tuple)):
        return [memory_of(part) for part in batch]
    return (batch.dtype, batch.shape, batch.stride()) if isinstance(batch, torch.Tensor) else batch


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", SAMPLES)
def test_batches_have_the_strides_of_pytorch(kind: str, workers: int) -> None:
    ours, theirs = ([memory_of(b) for b in loader([SAMPLES[kind]] * 24, 2, num_workers=workers)] for loader in LOADERS)

    assert ours == theirs


@pytest.mark.parametrize("sample", [torch.zeros(3), np.zeros(3), 1.5], ids=["tensors", "arrays", "numbers"])
def test_batch_made_without_workers_can_be_resized(sample: Any) -> None:
    for loader in LOADERS:
        for batch in loader([sample] * 4, 2):
            assert batch.resize_(10, 10).shape == (10, 10)


@pytest.mark.parametrize("workers", [0, 1])
def test_default_collation_that_the_program_has_replaced_everywhere_is_called(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = torch_collate.default_collate

    def replaced(samples: list[Any]) -> Any:
        return {"of the program": original(samples)}

    for module in (torch_data, torch_collate):
        monkeypatch.setattr(module, "default_collate", replaced)

    ours, theirs = (list(loader(range(4), 2, num_workers=workers)) for loader in LOADERS)

    assert [list(batch) for batch in ours] == [list(batch) for batch in theirs] == [["of the program"]] * 2


class Attributes(dict[int, int]):
    __getattr__ = dict.get


@pytest.mark.parametrize("workers", [0, 1])
def test_dataset_that_answers_every_attribute_by_none_is_loaded_as_in_pytorch(workers: int) -> None:
    ours, theirs = (
        [batch.tolist() for batch in loader(Attributes({0: 10, 1: 11}), 2, num_workers=workers)] for loader in LOADERS
    )

    assert ours == theirs == [[10, 11]]


class Repeated:
    """A batch sampler without end, and without the attributes of PyTorch's."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


@pytest.mark.parametrize("workers", [0, 1])
def test_batch_sampler_that_replaces_the_loaders_own_needs_no_batch_size(workers: int) -> None:
    loader = DataLoader(range(5), 2, num_workers=workers)
    object.__setattr__(loader, "batch_sampler", Repeated(loader.batch_sampler))

    batches = iter(loader)

    assert [next(batches).tolist() for _ in range(4)] == [[0, 1], [2, 3], [4], [0, 1]]
