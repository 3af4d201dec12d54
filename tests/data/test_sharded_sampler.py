"""Batches of ranks: as from sharded sources, also after resuming with another number of ranks."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.data import DataLoader, DistributedSampler, Permutation, ShardedBatchSampler
from dali_like.errors import ArgumentError, CheckpointError
from tests.data.loader_cases import MANY_WORKERS, Squares, labels_of, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

LENGTH = 40


def samplers_of(ranks: int, batch_size: int, **options: Any) -> list[ShardedBatchSampler]:
    return [
        ShardedBatchSampler(range(LENGTH), batch_size, **{"seed": 3, "shard_id": rank, "num_shards": ranks, **options})
        for rank in range(ranks)
    ]


def in_steps(ranks: list[list[list[int]]]) -> list[list[int]]:
    """Return the batches of all ranks, iteration by iteration."""
    return [[*itertools.chain(*filter(None, step))] for step in itertools.zip_longest(*ranks)]


@pytest.mark.parametrize("rest", ["drop", "pad", "uneven"])
def test_batches_are_the_same_as_of_sources_with_shards(rest: str) -> None:
    order = Permutation(LENGTH, seed=3, epoch=0)
    for rank, sampler in enumerate(samplers_of(3, 4, shard_rest=rest)):
        pipe = Pipeline(4, num_threads=1)
        pipe.set_outputs(
            fn.external_source(
                lambda info: np.int64(order[info.idx_in_epoch]),
                batch=False,
                size=LENGTH,
                shard_id=rank,
                num_shards=3,
                shard_rest=rest,
            )
        )
        with closing(pipe):
            assert [outputs[0].as_array().tolist() for outputs in pipe] == list(sampler)
            assert len(sampler) == len(pipe)


def test_all_ranks_together_have_the_batches_of_a_distributed_sampler() -> None:
    ours = in_steps([list(sampler) for sampler in samplers_of(2, 5, shuffle=False)])
    theirs = [np.reshape(list(DistributedSampler(range(LENGTH), 2, rank, shuffle=False)), (-1, 5)) for rank in range(2)]

    assert [sorted(step) for step in ours] == np.sort(np.concatenate(theirs, axis=1)).tolist()


def test_each_epoch_has_another_order() -> None:
    (sampler,) = samplers_of(1, LENGTH)
    epochs = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        epochs += list(sampler)

    assert epochs[0] == epochs[2] != epochs[1]
    assert sorted(epochs[1]) == list(range(LENGTH))


def test_resuming_far_into_a_large_dataset_takes_no_memory() -> None:
    sampler = ShardedBatchSampler(range(10**12), 64, shard_id=1000, num_shards=1024)
    batches = iter(sampler)
    state = {**batches.state_dict(), "taken": 10**7}  # type: ignore[attr-defined]

    batches.load_state_dict(state)  # type: ignore[attr-defined]

    first = (10**7 * 1024 + 1000) * 64
    assert next(batches) == Permutation(10**12)[np.arange(first, first + 64)].tolist()


def test_a_state_brings_its_seed_and_its_epoch_along() -> None:
    (sampler,), (other,) = samplers_of(1, 4), samplers_of(1, 4, seed=8)
    sampler.set_epoch(2)
    batches, resumed = iter(sampler), iter(other)
    next(batches)

    resumed.load_state_dict(batches.state_dict())

    assert list(resumed) == list(batches)


def test_batches_are_gone_past_from_anywhere() -> None:
    (sampler,) = samplers_of(1, 4)
    batches = iter(sampler)
    next(batches)

    for _ in range(2):
        batches.skip(3)

    assert list(batches) == list(sampler)[7:]
    with pytest.raises(StopIteration):
        batches.skip(1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_loader_goes_on_with_another_number_of_ranks(workers: int, epoch: int) -> None:
    def loaders(ranks: int, batch_size: int) -> list[DataLoader[Any]]:
        samplers = samplers_of(ranks, batch_size, shard_rest="uneven")
        for sampler in samplers:
            sampler.set_epoch(epoch)
        return [loader_of(Squares(LENGTH), workers, batch_sampler=sampler) for sampler in samplers]

    expected = in_steps([labels_of(loader) for loader in loaders(1, 12)])
    before = loaders(4, 3)
    passes = [iter(loader) for loader in before]
    seen = in_steps([[next(batches)[1].tolist() for _ in range(2)] for batches in passes])

    state = json.loads(json.dumps(before[2].state_dict()))
    after = loaders(3, 4)
    for loader in after:
        loader.batch_sampler.set_epoch(0)
        loader.load_state_dict(state)

    assert seen + in_steps([labels_of(loader) for loader in after]) == expected


@pytest.mark.parametrize("steps", range(5))
def test_a_state_of_a_rank_that_has_more_batches_is_good_for_one_that_has_fewer(steps: int) -> None:
    """40 samples, 12 per iteration: in the fourth one, only the first rank gets any of the last four."""
    loaders = [loader_of(Squares(LENGTH), batch_sampler=sampler) for sampler in samplers_of(3, 4, shard_rest="uneven")]
    expected = [labels_of(loader) for loader in loaders]
    first = iter(loaders[0])
    assert sum(1 for _ in itertools.islice(first, steps)) == steps

    state = json.loads(json.dumps(loaders[0].state_dict()))

    for loader, batches in zip(loaders, expected, strict=True):
        loader.load_state_dict(state)
        assert labels_of(loader) == batches[steps:]


@pytest.mark.parametrize(
    ("length", "batch_size", "message"),
    [
        (41, 4, "41 samples in an epoch, and this has 40"),
        (40, 5, "5 samples per iteration of all ranks together, and this has 4"),
    ],
)
def test_states_of_others_are_refused(length: int, batch_size: int, message: str) -> None:
    def batches(length: int, batch_size: int) -> Any:
        return iter(ShardedBatchSampler(range(length), batch_size, shard_id=0, num_shards=1))

    with pytest.raises(CheckpointError, match=message):
        batches(40, 4).load_state_dict(batches(length, batch_size).state_dict())


def test_epochs_are_counted_from_0_on() -> None:
    (sampler,) = samplers_of(1, 4)

    with pytest.raises(ArgumentError, match="epoch must be an integer from 0 on"):
        sampler.set_epoch(-1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a positive integer"),
        ({"shuffle": "no"}, "shuffle must be True or False"),
        ({"seed": -1}, "seed must be an integer from 0 on"),
        ({"shard_id": 1}, "belong together"),
        ({"shard_rest": "fill"}, "shard_rest must be one of"),
    ],
    ids=str,
)
def test_arguments_that_say_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ShardedBatchSampler(range(4), **{"batch_size": 2, **options})
