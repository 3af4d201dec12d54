"""The element at a position is the same on any ranks and workers, after any changes of them and any deaths.

`make parity-full` tries many times as many examples, in parts that run at the same time.
"""

from __future__ import annotations

import os
import random
from functools import partial
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dali_like.data import ComposedDataset, DataLoader
from dali_like.sources.composed.known_costs import source_lengths
from dali_like.testing.rank_runs import LoaderRank, Part, Reference, first_mismatch
from dali_like.testing.strategies import composed_datasets, value_of

_IS_FULL = os.environ.get("PARITY") == "full"
#: The examples are the same in each run, and others in each part.
in_parts = pytest.mark.parametrize("part", range(16 if _IS_FULL else 1))


@st.composite
def parts_of(
    draw: st.DrawFn, num_shards: int | None, most_steps: int = 4, most_ranks: int = 6, most_workers: int = 3
) -> list[Part]:
    """Two or three parts with different ranks and workers, in which batch sizes and weights may change."""
    counts = [count for count in range(1, most_ranks + 1) if (num_shards or 60) % count == 0]
    parts = []
    for _ in range(draw(st.integers(2, 3))):
        num_steps = draw(st.integers(1, most_steps))
        parts.append(
            Part(
                num_steps,
                batch_size=draw(st.integers(1, 12)),
                num_ranks=draw(st.sampled_from(counts)),
                num_workers=draw(st.integers(1, most_workers)),
                kill_before=draw(st.none() | st.integers(0, num_steps - 1)),
                resizes=tuple(draw(st.lists(st.tuples(st.integers(0, num_steps - 1), st.integers(1, 12)), max_size=2))),
                reweighs=tuple(draw(st.lists(st.tuples(st.integers(0, num_steps - 1), st.integers(0, 9)), max_size=2))),
                keeps_sizes=draw(st.booleans()),
            )
        )
    return parts


class First:
    """Keeps the first elements of each logical shard."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __call__(self, number: int) -> bool:
        place, shard = divmod(number, len(self.lengths))
        return place < self.lengths[shard]


def uneven_run(number: int) -> tuple[ComposedDataset, list[Part]]:
    """Return a stream whose logical shards have between none and six elements, and parts that come near its end."""
    rng = random.Random(number)
    num_shards = rng.choice((12, 6, 4))
    dataset = ComposedDataset.source(range(6 * num_shards)).filter(First([rng.randrange(7) for _ in range(num_shards)]))
    if rng.random() < 0.5:
        dataset = dataset.shuffle(block=4)
    counts = [count for count in range(1, 7) if num_shards % count == 0]
    parts = [
        Part(
            rng.randint(1, 12),
            batch_size=rng.randint(1, 2),
            num_ranks=rng.choice(counts),
            num_workers=rng.randint(0, 2),
            kill_before=rng.choice((None, 0)),
            resizes=rng.choice(((), ((rng.randrange(4), rng.randint(1, 3)),))),
            keeps_sizes=rng.random() < 0.5,
        )
        for _ in range(rng.randint(2, 4))
    ]
    return dataset.with_options(shards=num_shards), parts


@in_parts
def test_ranks_at_different_steps_near_the_end_of_an_epoch_are_merged(part: int) -> None:
    for number in range(part * 1000, part * 1000 + (1000 if _IS_FULL else 200)):
        dataset, parts = uneven_run(number)

        assert first_mismatch(dataset, parts, Reference(dataset)) is None, number


@in_parts
@pytest.mark.filterwarnings("ignore:(this rank has fewer logical shards|this epoch is empty):UserWarning")
def test_loaders_at_different_steps_near_the_end_of_an_epoch_are_merged(part: int) -> None:
    for number in range(part * 100, part * 100 + (100 if _IS_FULL else 30)):
        dataset, parts = uneven_run(number)

        mismatch = first_mismatch(dataset, parts, Reference(dataset), partial(LoaderRank, start_method="thread"))

        assert mismatch is None, number


@in_parts
def test_simulated_ranks_deliver_the_elements_of_a_plain_iteration(part: int) -> None:
    @hypothesis.seed(part)
    @hypothesis.settings(max_examples=1250 if _IS_FULL else 100)
    @hypothesis.given(st.data())
    def check(data: Any) -> None:
        dataset: ComposedDataset = data.draw(composed_datasets(shards=(12, 4, 60), raising=True))
        parts = data.draw(parts_of(dataset.shards))
        epoch = data.draw(st.integers(0, 1))

        mismatch = first_mismatch(dataset, parts, Reference(dataset, epoch, keep_errors=True), epoch=epoch)

        assert mismatch is None

    check()


@in_parts
@pytest.mark.filterwarnings("ignore:(this rank has fewer logical shards|this epoch is empty):UserWarning")
def test_loaders_deliver_the_elements_of_a_plain_iteration(part: int) -> None:
    @hypothesis.seed(part)
    @hypothesis.settings(max_examples=63 if _IS_FULL else 6)
    @hypothesis.given(st.data())
    def check(data: Any) -> None:
        dataset: ComposedDataset = data.draw(composed_datasets(shards=(60,)))
        start_method = data.draw(st.sampled_from(("fork", "fork", "fork", "thread", "spawn")))
        # Spawned workers are fresh interpreters, which start slowly.
        most = {"most_ranks": 2, "most_workers": 1} if start_method == "spawn" and not _IS_FULL else {"most_workers": 2}
        parts = data.draw(parts_of(dataset.shards, most_steps=3, **most))

        mismatch = first_mismatch(dataset, parts, Reference(dataset), partial(LoaderRank, start_method=start_method))

        assert mismatch is None

    check()


@in_parts
def test_balanced_ranks_share_out_the_elements_of_each_step(part: int) -> None:
    @hypothesis.seed(part)
    @hypothesis.settings(max_examples=300 if _IS_FULL else 40, deadline=None)
    @hypothesis.given(st.data())
    def check(data: Any) -> None:
        dataset: ComposedDataset = data.draw(composed_datasets(shards=(12,)).filter(lambda each: each.shards is None))
        lengths = source_lengths(dataset)
        rng = random.Random(data.draw(st.integers(0, 99)))
        costs = {name: [rng.choice((1, 2, 30)) for _ in range(length)] for name, length in lengths.items()}
        reference, begin, states = Reference(dataset), 0, None
        for each in data.draw(parts_of(None, most_workers=1)):
            ranks = [balanced(dataset, costs, rank, each) for rank in range(each.num_ranks)]
            if states is not None:
                for rank in ranks:
                    rank.load_state_dict(states, allow_change=["batch_size"])
            running = [iter(rank) for rank in ranks]
            for _ in range(each.num_steps):
                expected = reference.at(range(begin, begin + each.batch_size * each.num_ranks))
                begin += each.batch_size * each.num_ranks
                found = [next(rank, []) for rank in running]
                counts = [sum(position % each.num_ranks == rank for position in expected) for rank in range(each.num_ranks)]
                assert [len(batch) for batch in found] == counts
                assert sorted(value_of(item) for batch in found for item in batch) == sorted(
                    map(value_of, expected.values())
                )
            if dataset.length is not None and begin >= dataset.length:
                return
            states = [rank.state_dict() for rank in ranks]

    check()


def balanced(dataset: ComposedDataset, costs: Any, rank: int, part: Part) -> Any:
    """Return the loader of a rank that shares out the cost of each step."""
    options: Any = {"shard_id": rank, "num_shards": part.num_ranks, "shard_rest": "uneven", "collate_fn": list}
    return DataLoader(dataset, part.batch_size, balance="cost", costs=costs, **options)
