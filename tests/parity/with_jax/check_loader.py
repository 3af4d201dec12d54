"""The loader of JAX arrays, on several devices of the CPU."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentClashError, ArgumentTypeError, ShardError
from dali_like.plugin.jax import DataLoader

DEVICES = jax.local_devices()
SHARDING = NamedSharding(Mesh(np.array(DEVICES), ("data",)), PartitionSpec("data"))
SIZE = len(DEVICES)


class Numbers:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return {"image": np.full((96, 96), index, np.float32), "more": (index, f"sample {index}")}


def load(length: int = 8 * SIZE, **options: Any) -> DataLoader[Any]:
    if options.get("num_workers"):
        options["multiprocessing_context"] = "spawn"
    return DataLoader(Numbers(length), batch_size=SIZE, **options)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("sharding", [None, SHARDING], ids=["default device", "sharded"])
def test_batches_are_arrays_on_their_devices_and_texts_stay(sharding: Any, num_workers: int) -> None:
    batches = list(load(sharding=sharding, num_workers=num_workers))

    for number, batch in enumerate(batches):
        expected = list(range(number * SIZE, (number + 1) * SIZE))
        image, (index, texts) = batch["image"], batch["more"]
        assert isinstance(image, jax.Array)
        assert image.sharding.device_set == ({DEVICES[0]} if sharding is None else set(DEVICES))
        assert np.asarray(image)[:, 5, 5].tolist() == np.asarray(index).tolist() == expected
        assert list(texts) == [f"sample {i}" for i in expected]
    assert len(batches) == 8


def test_states_count_batches_that_the_program_has_got() -> None:
    loader = load(num_workers=1, prefetch_to_device=3)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    other = load()
    other.load_state_dict(loader.state_dict())

    assert [int(batch["more"][0][0]) for batch in other] == [SIZE * number for number in range(3, 8)]


def test_a_batch_that_the_devices_do_not_divide_is_named() -> None:
    with pytest.raises(ShardError, match="drop_last=True"):
        list(load(SIZE + 1, sharding=SHARDING))


def test_a_batch_again_is_of_numpy() -> None:
    for dataset in (Numbers(4 * SIZE), ComposedDataset.source(Numbers(4 * SIZE))):
        loader = DataLoader(dataset, batch_size=SIZE, sharding=SHARDING)
        next(iter(loader))
        again = loader.batch_at(2)
        assert type(again["image"]) is np.ndarray
        assert again["image"][:, 0, 0].tolist() == list(range(2 * SIZE, 3 * SIZE))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ArgumentTypeError, match=r"sharding must be a jax\.sharding\.Sharding"):
        load(sharding=DEVICES[0])
    with pytest.raises(ArgumentClashError, match="sharding= says where batches go"):
        load(device="cuda")
    with pytest.raises(ArgumentClashError, match="serve lends"):
        load().serve("/nowhere")
