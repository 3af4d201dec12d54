"""Equal cost on all ranks: the deal of a step, and loaders with ``balance="cost"``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader
from dali_like.data.balancing import dealt, lower_bound
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from tests.data.loader_cases import MANY_WORKERS, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)


def dearest(costs: Any, groups: Any) -> float:
    return max(sum(costs[i] for i in group) for group in groups)


@pytest.mark.parametrize(("count", "ranks"), [(1, 4), (2, 8), (4, 8), (16, 8), (16, 2), (5, 64)])
@pytest.mark.parametrize("sigma", [0.5, 1, 2])
def test_each_rank_gets_its_number_at_nearly_the_least_cost(count: int, ranks: int, sigma: float) -> None:
    rng = np.random.default_rng(count * ranks)
    total = bound = 0.0
    for _ in range(20):
        costs = rng.lognormal(0, sigma, count * ranks).tolist()
        groups = dealt(costs, [count] * ranks)
        assert [len(group) for group in groups] == [count] * ranks
        assert sorted(itertools.chain(*groups)) == list(range(count * ranks))
        total += dearest(costs, groups)
        bound += lower_bound(costs, [count] * ranks)

    assert total <= 1.02 * bound


def test_log_normal_costs_on_eight_ranks_are_within_a_twentieth_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    steps = [rng.lognormal(0, 1, 128).tolist() for _ in range(200)]

    balanced = np.mean([dearest(costs, dealt(costs, [16] * 8)) / (sum(costs) / 8) for costs in steps])
    in_order = np.mean([dearest(costs, [range(rank, 128, 8) for rank in range(8)]) / (sum(costs) / 8) for costs in steps])

    assert balanced <= 1.05
    assert in_order >= 1.45


@pytest.mark.parametrize("seed", range(30))
def test_the_lower_bound_is_below_the_best_deal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = [3, 3] if seed % 2 else [3, 2, 2]
    costs = rng.lognormal(0, 1.5, sum(counts)).tolist()

    def deals(left: frozenset[int], counts: list[int]) -> Any:
        if not counts:
            yield []
        for group in itertools.combinations(sorted(left), counts[0]) if counts else ():
            for others in deals(left - set(group), counts[1:]):
                yield [group, *others]

    best = min(dearest(costs, groups) for groups in deals(frozenset(range(len(costs))), counts))

    assert lower_bound(costs, counts) <= best * (1 + 1e-12)
    assert dearest(costs, dealt(costs, counts)) <= 1.2 * best


def test_equal_costs_and_empty_ranks_are_dealt() -> None:
    assert sorted(map(len, dealt([1.0] * 5, [2, 2, 1]))) == [1, 2, 2]
    assert dealt([3.0, 1.0], [2, 0]) == [[0, 1], []]
    assert dealt([0.0] * 4, [2, 2]) == [[0, 1], [2, 3]] or dealt([0.0] * 4, [2, 2]) == [[0, 2], [1, 3]]


# Loaders

COSTS = np.random.default_rng(3).lognormal(0, 1, 96)
NUMBERS = ComposedDataset.source(range(96)).shuffle().map(abs)


def ranks_of(ranks: int, batch_size: int, workers: int = 0, dataset: Any = NUMBERS, **options: Any) -> list[Any]:
    options = {"balance": "cost", "costs": COSTS, "collate_fn": list, **options}
    return [
        loader_of(dataset, workers, batch_size=batch_size, shard_id=rank, num_shards=ranks, **options)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_share_out_the_elements_of_a_step(workers: int) -> None:
    for batches in itertools.islice(zip(*ranks_of(4, 8, workers), strict=True), 3):
        sums = [COSTS[batch].sum() for batch in batches]
        assert [len(batch) for batch in batches] == [8] * 4
        assert max(sums) <= 1.02 * lower_bound(COSTS[list(itertools.chain(*batches))].tolist(), [8] * 4)
    assert sorted(itertools.chain(*batches)) == sorted(NUMBERS[position] for position in range(64, 96))


def test_states_are_those_of_a_loader_without_balance() -> None:
    balanced, plain = ranks_of(2, 6)[0], ranks_of(2, 6, balance=None, costs=None)[0]
    for each in (balanced, plain):
        batches = iter(each)
        [next(batches) for _ in range(3)]

    assert balanced.state_dict() == plain.state_dict()


def test_a_resume_on_the_same_ranks_has_the_same_deal() -> None:
    before, after = ranks_of(3, 4), ranks_of(3, 4, 1)
    running = [iter(each) for each in before]
    [next(each) for each in running]
    for each in after:
        each.load_state_dict([rank.state_dict() for rank in before])

    assert [next(iter(each)) for each in after] == [next(each) for each in running]


@pytest.mark.parametrize("rest", ["drop", "pad", "uneven"])
def test_the_end_of_an_epoch_has_as_many_elements_on_each_rank(rest: str) -> None:
    options: Any = {"dataset": ComposedDataset.source(range(90)).shuffle(), "costs": COSTS[:90], "shard_rest": rest}
    balanced = [[len(batch) for batch in each] for each in ranks_of(4, 7, **options)]
    options.update(balance=None, costs=None)

    assert balanced == [[len(batch) for batch in each] for each in ranks_of(4, 7, **options)]


def test_later_epochs_are_dealt_by_their_own_order() -> None:
    loaders = ranks_of(2, 12)
    epochs = [[list(each) for each in loaders] for _ in range(2)]

    for epoch in epochs:
        assert sorted(itertools.chain(*itertools.chain(*epoch))) == list(range(96))
    assert epochs[0] != epochs[1]


def test_the_report_has_the_costs_of_the_dearest_rank() -> None:
    each = ranks_of(4, 8)[0]
    list(each)

    balance = each.statistics().sources[0].balance
    text = str(each.report())

    assert balance.steps == 3
    assert balance.mean * 4 == pytest.approx(COSTS.sum())
    assert balance.bound <= balance.dearest < balance.in_order
    assert f"the dearest is {balance.dearest / balance.mean:.3f} of the mean" in text
    assert each.statistics().since(each.statistics()).sources[0].balance.steps == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"balance": "size"}, ArgumentError, 'balance must be "cost" or None'),
        ({"balance": None}, ArgumentClashError, 'costs is for balance="cost"'),
        ({"costs": COSTS[:3]}, ArgumentError, r"an array of shape \(96,\)"),
        ({"dataset": NUMBERS.filter(bool).repeat()}, ArgumentTypeError, "a function that returns the cost of an element"),
        ({"dataset": range(96)}, ArgumentClashError, "is for composed datasets"),
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ranks_of(1, 4, **options)


def test_balance_is_for_composed_datasets() -> None:
    with pytest.raises(ArgumentClashError, match="balance is for composed datasets"):
        DataLoader(range(9), balance="cost")
