"""Jagged batches for PyTorch: as ``torch.nested`` makes them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dali_like.errors import CollateError  # noqa: E402
from dali_like.plugin.pytorch import DataLoader, jagged_collate  # noqa: E402

pytestmark = pytest.mark.peers


def sample(i: int) -> dict[str, Any]:
    return {"tokens": torch.arange(i), "patches": np.full((i + 1, 3), i, np.float32), "label": i, "scale": torch.tensor(i)}


def assert_nested(found: Any, expected: list[Any]) -> None:
    reference = torch.nested.nested_tensor(expected, layout=torch.jagged)
    assert found.layout is torch.jagged
    assert found.dtype is reference.dtype
    assert torch.equal(found.values(), reference.values())
    assert torch.equal(found.offsets(), reference.offsets())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_are_nested_tensors(num_workers: int) -> None:
    samples = [sample(i) for i in range(4)]
    (batch,) = DataLoader(samples, batch_size=4, collate_fn=jagged_collate, num_workers=num_workers)
    assert_nested(batch["tokens"], [each["tokens"] for each in samples])
    assert_nested(batch["patches"], [torch.from_numpy(each["patches"]) for each in samples])
    assert torch.equal(batch["label"], torch.arange(4))
    assert torch.equal(batch["scale"], torch.arange(4))


def test_some_fields_can_be_stacked() -> None:
    collate = functools.partial(jagged_collate, fields=["tokens"])
    batch = collate([{"tokens": torch.arange(i), "image": torch.ones(2, 2)} for i in (1, 3)])
    assert_nested(batch["tokens"], [torch.arange(1), torch.arange(3)])
    assert batch["image"].shape == (2, 2, 2)


def test_tensors_that_differ_in_other_dimensions_are_refused() -> None:
    with pytest.raises(CollateError, match=r"got \[1, 2\] at entry 0 and \[1, 3\] at entry 1"):
        jagged_collate([torch.ones(1, 2), torch.ones(1, 3)])
