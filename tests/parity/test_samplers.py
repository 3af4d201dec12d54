"""Samplers of the real PyTorch and of dali_like side by side: with the same generator, index for index, pass for pass."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from dali_like import data  # noqa: E402
from dali_like.data.generators import TorchRandomness  # noqa: E402
from dali_like.errors import CheckpointError  # noqa: E402
from tests.parity.torch_side import BOTH, assert_same_error, generator, outcomes  # noqa: E402

pytestmark = pytest.mark.peers

#: Programs of a module and a generator that make a sampler.
RANDOM: dict[str, Callable[[Any, Any], Any]] = {
    "permutation": lambda module, g: module.RandomSampler(range(20), generator=g),
    "several permutations": lambda module, g: module.RandomSampler(range(7), num_samples=20, generator=g),
    "permutations without rest": lambda module, g: module.RandomSampler(range(5), num_samples=20, generator=g),
    "part of a permutation": lambda module, g: module.RandomSampler(range(50), num_samples=20, generator=g),
    "large permutation": lambda module, g: module.RandomSampler(range(40_000), generator=g),
    "replacement": lambda module, g: module.RandomSampler(range(7), True, num_samples=100, generator=g),
    "replacement in whole blocks": lambda module, g: module.RandomSampler(range(7), True, num_samples=64, generator=g),
    "replacement of many": lambda module, g: module.RandomSampler(range(2**40), True, num_samples=100, generator=g),
    "subset": lambda module, g: module.SubsetRandomSampler([3, 1, 4, 1, 5, 9, 2, 6], g),
    "weighted": lambda module, g: module.WeightedRandomSampler([0.1, 0.0, 3, 2.5], 30, generator=g),
    "weighted by a tensor": lambda module, g: module.WeightedRandomSampler(torch.arange(9), 30, generator=g),
    "weighted once each": lambda module, g: module.WeightedRandomSampler(np.arange(1.0, 20), 19, False, generator=g),
}


@pytest.mark.parametrize("kind", RANDOM)
def test_passes_are_the_same_and_leave_the_generator_the_same(kind: str) -> None:
    generators = [generator(3), generator(3)]
    samplers = [RANDOM[kind](module, g) for module, g in zip(BOTH, generators, strict=True)]

    for _ in range(3):
        theirs, ours = map(list, samplers)
        assert ours == theirs
        assert torch.equal(*(g.get_state() for g in generators))
    assert len(set(map(len, samplers))) == 1


@pytest.mark.parametrize("kind", RANDOM)
@pytest.mark.parametrize("count", [1, 7, 33])
def test_passes_that_are_given_up_leave_the_generator_the_same(kind: str, count: int) -> None:
    generators = [generator(3), generator(3)]

    theirs, ours = (
        list(itertools.islice(RANDOM[kind](module, g), count)) for module, g in zip(BOTH, generators, strict=True)
    )

    assert ours == theirs
    assert torch.equal(*(g.get_state() for g in generators))


@given(st.integers(1, 90), st.integers(1, 200), st.booleans(), st.integers(1, 9), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_random_batches(length: int, total: int, replacement: bool, size: int, drop_last: bool, seed: int) -> None:
    theirs, ours = (
        module.BatchSampler(module.RandomSampler(range(length), replacement, total, generator(seed)), size, drop_last)
        for module in BOTH
    )

    assert list(ours) == list(theirs)
    assert len(ours) == len(theirs)


def test_a_subclass_on_torch_randomness_needs_no_generator() -> None:
    class RandomSampler(data.RandomSampler):
        randomness = TorchRandomness

    passes = []
    for sampler in (torch.utils.data.RandomSampler(range(20)), RandomSampler(range(20))):
        torch.manual_seed(5)
        passes.append([list(sampler), list(sampler)])

    assert passes[0] == passes[1]


@pytest.mark.parametrize("kind", RANDOM)
@pytest.mark.parametrize("count", [0, 1, 5, 19, 1000])
def test_a_pass_with_a_generator_of_pytorch_can_be_resumed(kind: str, count: int) -> None:
    sampler = RANDOM[kind](data, generator(3))
    running = data.resumable(sampler)
    running.take(count)
    state = json.loads(json.dumps(running.state_dict()))
    expected = list(running), list(sampler)

    elsewhere = RANDOM[kind](data, generator(4))
    resumed = data.resumable(elsewhere)
    resumed.load_state_dict(state)

    assert (list(resumed), list(elsewhere)) == expected


@pytest.mark.parametrize("state", [{}, {"torch": "00"}, {"torch": "x"}, {"torch": None}, {"bit_generator": "PCG64"}])
def test_invalid_state_of_a_pytorch_generator_is_refused(state: dict[str, Any]) -> None:
    sampler = data.RandomSampler(range(5), generator=generator(1))
    running = iter(sampler)

    with pytest.raises(CheckpointError, match="its generator is not one of PyTorch"):
        iter(sampler).load_state_dict({**running.state_dict(), "generator": state})


@pytest.mark.parametrize("replacement", [True, False])
def test_more_weights_than_pytorch_draws_from(replacement: bool) -> None:
    weights = np.zeros(2**24 + 1)
    weights[[5, -1]] = 1, 2

    indices = set(data.WeightedRandomSampler(weights, 2, replacement, generator(1)))

    assert indices <= {5, 2**24}
    assert replacement or len(indices) == 2


# Shares of processes


class TorchOrderedSampler(data.DistributedSampler):
    """As a plugin for PyTorch would have it."""

    randomness = TorchRandomness


@given(st.integers(0, 40), st.integers(1, 9), st.data(), st.booleans(), st.booleans(), st.integers(-3, 9), st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_shares(
    length: int, replicas: int, draw: st.DataObject, shuffle: bool, drop_last: bool, seed: int, epoch: int
) -> None:
    arguments = (range(length), replicas, draw.draw(st.integers(0, replicas - 1)), shuffle, seed, drop_last)
    theirs, ours = torch.utils.data.DistributedSampler(*arguments), TorchOrderedSampler(*arguments)
    theirs.set_epoch(epoch)
    ours.set_epoch(epoch)

    assert list(ours) == list(theirs)
    assert (len(ours), ours.num_samples, ours.total_size) == (len(theirs), theirs.num_samples, theirs.total_size)


@pytest.fixture
def process_group() -> Iterator[None]:
    """This process alone, under PyTorch's simplest backend."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_the_share_comes_from_the_process_group() -> None:
    theirs, ours = (module.DistributedSampler(range(5), shuffle=False) for module in BOTH)

    assert (ours.num_replicas, ours.rank, list(ours)) == (theirs.num_replicas, theirs.rank, list(theirs))


# Refusals


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module.RandomSampler([]),
        lambda module: module.RandomSampler([1], 0),
        lambda module: module.RandomSampler([1], num_samples=0),
        lambda module: module.RandomSampler([1], num_samples=1.0),
        lambda module: module.RandomSampler([1], num_samples=np.int64(3)),
        lambda module: module.WeightedRandomSampler([1, 2], 0),
        lambda module: module.WeightedRandomSampler([1, 2], True),
        lambda module: module.WeightedRandomSampler([1, 2], 1, 1),
        lambda module: module.WeightedRandomSampler([[1, 2]], 1),
        lambda module: list(module.WeightedRandomSampler([1, -1], 1)),
        lambda module: list(module.WeightedRandomSampler([1, float("inf")], 1)),
        lambda module: list(module.WeightedRandomSampler([0, 0], 1)),
        lambda module: list(module.WeightedRandomSampler([0, 0], 1, False)),
        lambda module: list(module.WeightedRandomSampler([1, 2], 3, False)),
        lambda module: module.BatchSampler(range(3), 0, False),
        lambda module: module.BatchSampler(range(3), True, False),
        lambda module: module.BatchSampler(range(3), 2.0, False),
        lambda module: module.BatchSampler(range(3), 2, 0),
        lambda module: len(module.BatchSampler(iter([1]), 2, False)),
        lambda module: module.DistributedSampler(range(3)),
        lambda module: module.DistributedSampler(range(3), num_replicas=3),
        lambda module: module.DistributedSampler(range(3), 3, 3),
        lambda module: module.DistributedSampler(range(3), 3, -1),
        lambda module: module.DistributedSampler(range(3), 0, 0),
        lambda module: iter(module.Sampler()),
        lambda module: module.Sampler([1]),
    ],
)
def test_errors(make: Callable[[Any], Any]) -> None:
    assert_same_error(make)


def test_an_index_without_weight_is_not_drawn() -> None:
    """PyTorch draws it in silence, if no other is left."""
    theirs, ours = outcomes(lambda module: list(module.WeightedRandomSampler([1, 0, 0], 2, False)))

    assert theirs == [0, 1]
    assert isinstance(ours, ValueError)


# In the other's company


def test_the_loader_of_pytorch_takes_ours() -> None:
    def batches(module: Any) -> list[Any]:
        dataset = module.ConcatDataset([range(5), module.Subset(range(100), [50, 60, 70])])
        sampler = module.BatchSampler(module.RandomSampler(dataset, generator=generator(1)), 3, False)
        return [batch.tolist() for batch in torch.utils.data.DataLoader(dataset, batch_sampler=sampler)]

    theirs, ours = map(batches, BOTH)

    assert ours == theirs


def test_ours_take_those_of_pytorch() -> None:
    sampler = torch.utils.data.RandomSampler(range(9), generator=generator(1))
    running = iter(data.BatchSampler(sampler, 2, False))
    running.take(2)
    sampler.generator = generator(1)
    resumed = iter(data.BatchSampler(sampler, 2, False))

    resumed.load_state_dict(running.state_dict())

    assert list(resumed) == list(running)
