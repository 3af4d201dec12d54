"""Equal costs of ranks in logical shards: each element once, whatever ranks, workers, sizes and weights do."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import zlib
from collections import Counter
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from dali_like.data import ComposedDataset, DataLoader
from dali_like.data.balancing import chosen
from dali_like.data.batch_sizes import SizeFrom
from dali_like.errors import ArgumentClashError, ArgumentTypeError, CheckpointError
from dali_like.sources.composed.stage import WeightChange
from dali_like.sources.sharding import Shard
from dali_like.testing.rank_runs import LoaderRank, Part
from dali_like.testing.strategies import composed_datasets
from tests.data.loader_cases import MANY_WORKERS, loader_of
from tests.sources.composed.test_any_ranks import parts_of

_IS_FULL = os.environ.get("PARITY") == "full"
pytestmark = [
    pytest.mark.filterwarnings(MANY_WORKERS),
    pytest.mark.filterwarnings("ignore:(this rank has fewer logical shards|this epoch is empty):UserWarning"),
]
COUNT = 1200
COSTS = np.random.default_rng(3).lognormal(0, 1, 40_000)


def not_seventh(number: int) -> bool:
    return number % 7 != 0


def cost_of(number: int) -> float:
    return float(COSTS[number])


def cost_by_text(element: Any) -> float:
    """Return a log-normal cost for any element."""
    number = zlib.crc32(repr(element).encode()) / 2**32
    return math.exp(2 * number) + 9 * (number > 0.98)


def numbers(count: int = COUNT, shards: int = 8) -> ComposedDataset:
    return ComposedDataset.source(range(count)).shuffle().filter(not_seventh).with_options(shards=shards)


def ranks_of(count: int, batch_size: int = 4, workers: int = 0, dataset: Any = None, **options: Any) -> list[Any]:
    options = {"balance": "cost", "costs": cost_of, "balance_window": 6, "collate_fn": list, **options}
    options = {"shard_rest": "uneven", **options}
    dataset = numbers() if dataset is None else dataset
    return [
        loader_of(dataset, workers, batch_size=batch_size, shard_id=rank, num_shards=count, **options)
        for rank in range(count)
    ]


def rows_of(ranks: Any, count: int | None = None) -> list[list[Any]]:
    """Return the batches of each step, of all ranks."""
    return list(itertools.islice(itertools.zip_longest(*ranks, fillvalue=[]), count))


def all_of(rows: Any) -> list[Any]:
    return [element for row in rows for batch in row for element in batch]


def states_of(ranks: Any) -> Any:
    return json.loads(json.dumps([rank.state_dict() for rank in ranks]))


def resumed(states: Any, count: int, *args: Any, **options: Any) -> list[Any]:
    ranks = ranks_of(count, *args, **options)
    for rank in ranks:
        rank.load_state_dict(states)
    return ranks


# The contract


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("count", [1, 4])
def test_each_element_is_delivered_once_and_each_rank_has_its_number(count: int, workers: int) -> None:
    rows = rows_of(ranks_of(count, workers=workers))
    in_order = rows_of(ranks_of(count, workers=workers, balance=None, costs=None, balance_window=None))

    assert sorted(all_of(rows)) == list(filter(not_seventh, range(COUNT)))
    assert [list(map(len, row)) for row in rows] == [list(map(len, row)) for row in in_order]
    assert rows != in_order


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_do_not_depend_on_workers(workers: int) -> None:
    assert rows_of(ranks_of(2, workers=workers)) == rows_of(ranks_of(2))


@pytest.mark.parametrize("step", [1, 7, 40])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_resume_on_the_same_ranks_has_the_same_batches(step: int, workers: int) -> None:
    ranks = ranks_of(2, workers=workers)
    running = [iter(rank) for rank in ranks]
    rows_of(running, step)
    others = resumed(states_of(ranks), 2, workers=2 - workers)

    assert rows_of(others) == rows_of(running)


@pytest.mark.parametrize("step", [1, 7, 40])
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (2, 8)])
def test_a_resume_on_other_ranks_has_the_same_elements(step: int, before: int, after: int) -> None:
    ranks = ranks_of(before, 8 // before)
    found = all_of(rows_of([iter(rank) for rank in ranks], step))
    found += all_of(rows_of(resumed(states_of(ranks), after, 8 // after)))

    assert sorted(found) == list(filter(not_seventh, range(COUNT)))


@pytest.mark.parametrize("step", [1, 7, 40])
def test_a_loader_without_balance_goes_on_from_a_state_and_back(step: int) -> None:
    ranks = ranks_of(2)
    found = all_of(rows_of([iter(rank) for rank in ranks], step))
    plain = resumed(states_of(ranks), 4, 2, balance=None, costs=None, balance_window=None)
    found += all_of(rows_of([iter(rank) for rank in plain], 3))
    iterator = iter(numbers())
    iterator.load_state_dict(states_of(plain))
    rest = Counter(itertools.islice(iterator, 9))
    balanced = all_of(rows_of(resumed(states_of(plain), 2)))

    assert sorted(found + balanced) == list(filter(not_seventh, range(COUNT)))
    assert not rest - Counter(balanced)


@pytest.mark.parametrize("workers", [0, 1])
def test_smaller_batches_and_windows_go_on(workers: int) -> None:
    ranks = ranks_of(2, 12, workers, balance_window=9)
    found = all_of(rows_of([iter(rank) for rank in ranks], 5))
    after = resumed(states_of(ranks), 2, 12, workers, balance_window=1)
    running = [iter(rank) for rank in after]
    found += all_of(rows_of(running, 5))
    for size in (1, 20, 2):
        for rank in after:
            rank.set_batch_size(size)
        found += all_of(rows_of(running, 6))
    same = resumed(states_of(after), 2, 2, 1 - workers, balance_window=1)
    rest = rows_of(running)

    assert sorted(found + all_of(rest)) == list(filter(not_seventh, range(COUNT)))
    assert rows_of(same) == rest


def test_later_epochs_have_each_element_once() -> None:
    ranks = ranks_of(2, workers=1)

    assert [sorted(all_of(rows_of(ranks))) for _ in range(3)] == [list(filter(not_seventh, range(COUNT)))] * 3


class Failing:
    """Fails for some numbers."""

    def __call__(self, number: int) -> int:
        if number % 50 == 3:
            raise ValueError(f"number {number}")
        return number


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_with_failed_elements_are_passed(workers: int) -> None:
    ranks = ranks_of(1, 4, workers, numbers().map(Failing()).with_options(shards=8))
    found, failed, batches = [], [], iter(ranks[0])
    again, places = None, 0
    while True:
        try:
            batch = next(batches)
        except ValueError as error:
            failed.append(str(error))
        except StopIteration:
            break
        else:
            found += batch
        places += 1
        if places == 60:
            again = resumed(states_of(ranks), 1, 4, 2 - workers, numbers().map(Failing()).with_options(shards=8))[0]
            num_found, num_failed = len(found), len(failed)
    assert again is not None
    later, later_failed, batches = [], [], iter(again)
    while True:
        try:
            later += next(batches)
        except ValueError as error:
            later_failed.append(str(error))
        except StopIteration:
            break

    assert (later, later_failed) == (found[num_found:], failed[num_failed:])
    assert len(set(found)) == len(found)
    assert len(failed) == len(set(failed)) > 10


@pytest.mark.parametrize("workers", [0, 2])
def test_failed_elements_are_replaced(workers: int) -> None:
    dataset = numbers().map(Failing()).with_options(shards=8)
    (rank,) = ranks_of(1, 4, workers, dataset, on_error="skip")
    found = [number for batch in rank for number in batch]

    assert Counter(found).keys() == {number for number in filter(not_seventh, range(COUNT)) if number % 50 != 3}
    assert len(found) == len(list(filter(not_seventh, range(COUNT))))


@pytest.mark.parametrize("rest", ["count", "uneven"])
def test_the_end_of_an_epoch_has_as_many_batches_as_without_balance(rest: str) -> None:
    balanced = [list(map(len, rank)) for rank in ranks_of(4, 5, shard_rest=rest)]
    options: Any = {"shard_rest": rest, "balance": None, "costs": None, "balance_window": None}

    assert balanced == [list(map(len, rank)) for rank in ranks_of(4, 5, **options)]


def test_origins_belong_to_the_elements() -> None:
    for workers in (0, 1):
        (rank,) = ranks_of(1, 4, workers)
        for batch in itertools.islice(rank, 3):
            assert [origin.index for origin in rank.origins_of(batch)] == batch


# Random programs


def run(dataset: ComposedDataset, parts: list[Part], start_method: str) -> tuple[list[str], Any]:
    """Run parts one after another. Return the elements of all ranks, and the last states."""
    found: list[str] = []
    states: Any = []
    options: Any = {"balance": "cost", "costs": cost_by_text, "balance_window": 1 + parts[0].batch_size % 4}
    for part in parts:
        ranks = [
            LoaderRank(dataset, part, Shard(each, part.num_ranks), 0, states, start_method, **options)
            for each in range(part.num_ranks)
        ]
        for step in range(part.num_steps):
            if step == part.kill_before:
                for rank in ranks:
                    rank.kill_worker()
            for size in (size for before, size in part.resizes if before == step):
                change = SizeFrom(*max(rank.next_step() for rank in ranks), size)
                for rank in ranks:
                    rank.set_batch_size(change)
            for number in (number for before, number in part.reweighs if before == step):
                reweigh(dataset, ranks, number)
            for rank in ranks:
                found += map(repr, rank.next_batch())
        states = states_of_ranks(ranks)
        for rank in ranks:
            rank.close()
        if all(map(is_over, states)):
            break
    return found, states


def is_over(state: Any) -> bool:
    return bool(state["epoch"])


def states_of_ranks(ranks: list[LoaderRank]) -> Any:
    return json.loads(json.dumps([rank.state() for rank in ranks]))


def reweigh(dataset: ComposedDataset, ranks: list[LoaderRank], number: int) -> None:
    mixtures = [mixture for mixture in dataset.mixtures if mixture.why_fixed is None]
    if mixtures:
        rng = random.Random(number)
        mixture = rng.choice(mixtures)
        weights = tuple(rng.randint(1, 3) for _ in mixture.stage.names)
        change = WeightChange(mixture.path, *max(rank.first_position(mixture) for rank in ranks), weights)
        for rank in ranks:
            rank.set_weights(change)


@pytest.mark.parametrize("part", range(16 if _IS_FULL else 1))
def test_random_programs_deliver_each_element_once(part: int) -> None:
    @hypothesis.seed(part)
    @hypothesis.settings(max_examples=60 if _IS_FULL else 12, deadline=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(st.data())
    def check(data: Any) -> None:
        dataset = data.draw(composed_datasets(shards=(12,)).filter(lambda each: each.shards and not each.is_columnar))
        if dataset.is_endless:
            dataset = dataset.take(400)
        parts = data.draw(parts_of(12, most_steps=6, most_workers=2))
        start_method = data.draw(st.sampled_from(("fork", "thread")))
        found, states = run(dataset, parts, start_method)
        rest = iter(dataset)
        rest.load_state_dict(states)
        left = [] if all(map(is_over, states)) else list(map(repr, rest))
        plain = iter(dataset)
        plain.load_state_dict({**iter(dataset).state_dict(), "changes": states[0]["changes"]})

        assert Counter(found + left) == Counter(map(repr, plain))

    check()


# How equal they are


def test_log_normal_costs_on_eight_ranks_are_within_a_twentieth_of_the_mean() -> None:
    dataset = numbers(40_000, 64)
    rows = rows_of([iter(rank) for rank in ranks_of(8, 16, dataset=dataset, balance_window=None)], 250)
    sums = np.array([[COSTS[batch].sum() for batch in row] for row in rows])

    assert sums.max(1).sum() <= 1.05 * sums.mean(1).sum()


def test_the_report_has_the_deviation_of_the_batches_of_this_rank() -> None:
    (rank,) = ranks_of(1, 16, dataset=numbers(9000))
    list(rank)
    balance = rank.statistics().sources[0].balance

    assert balance.batches > 480
    assert balance.deviations < 0.3 * balance.deviations_in_order
    assert "costs of this rank: its batches deviate by" in str(rank.report())


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_near_its_target_and_late_candidates_come_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [sorted((float(cost), i) for i, cost in enumerate(rng.lognormal(0, 0.5, 16))) for _ in range(4)]
    target = 8 * float(np.exp(0.125))
    found = chosen(groups, [2] * 4, target, [1, 0, 0, 0], False)

    assert [len(each) for each in found] == [2] * 4
    assert all(set(each) <= set(group) for each, group in zip(found, groups, strict=True))
    assert 0 in [number for _, number in found[0]]
    assert sum(cost for each in found for cost, _ in each) == pytest.approx(target, rel=0.02)


def test_a_heavy_candidate_is_chosen_in_its_step_or_when_it_is_due() -> None:
    groups = [[(1.0, 1), (1.0, 2), (50.0, 0)], [(1.0, 0), (1.5, 1)]]

    assert (50.0, 0) not in chosen(groups, [1, 1], 4.0, [0, 0], False)[0]
    assert chosen(groups, [1, 1], 4.0, [0, 0], True)[0] == [(50.0, 0)]
    assert chosen(groups, [1, 1], 4.0, [1, 0], False)[0] == [(50.0, 0)]
    assert (50.0, 0) in chosen(groups, [3, 1], 4.0, [0, 0], False)[0]


# Errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"costs": None}, ArgumentTypeError, "needs costs=, a function that returns the cost of an element"),
        ({"costs": [1.0]}, ArgumentTypeError, "needs costs=, a function"),
        ({"shard_rest": "pad"}, ArgumentClashError, "cannot repeat elements at the end"),
        ({"balance_window": 0}, Exception, "balance_window"),
        ({"balance": None, "costs": None}, ArgumentClashError, 'balance_window is for balance="cost"'),
        (
            {"dataset": ComposedDataset.source(range(40_000)), "costs": COSTS},
            ArgumentClashError,
            "balance_window is for streams in logical shards",
        ),
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ranks_of(2, **options)


@pytest.mark.parametrize("parts", [None, [None, 0], [None, -1, [], 0, 0.0, 0], [None, 0, [3, 1], 0, 0.0, 0]])
def test_damaged_states_are_refused(parts: Any) -> None:
    ranks = ranks_of(1)
    next(iter(ranks[0]))
    (state,) = states_of(ranks)
    state["states"]["0"][1] = {"read_ahead": parts}
    (other,) = ranks_of(1)

    other.load_state_dict(state)

    with pytest.raises(CheckpointError, match="not a state of a shard that is read ahead"):
        iter(other)


def test_costs_that_are_no_numbers_are_errors_of_the_batch() -> None:
    (rank,) = ranks_of(1, costs=str)
    with pytest.raises(Exception, match="str should return a number, but it returned a str"):
        next(iter(rank))


def test_a_loader_with_balance_can_be_left_and_begun_again() -> None:
    loader: DataLoader[Any] = ranks_of(1, workers=2)[0]
    first = next(iter(loader))
    loader.set_epoch(0)

    assert next(iter(loader)) == first
