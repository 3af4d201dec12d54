"""Costs of elements, packs by cost, packers of the user's, and elements that a packer leaves out."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentClashError, ArgumentError, EmptyFilterError, SampleError, SampleTypeError
from dali_like.testing.strategies import RandomGroups
from tests.sources.composed.resuming import assert_resumes, outputs

LEAVING = pytest.mark.filterwarnings("ignore:stage pack.* has dropped:UserWarning")
WHOLE = ("first_fit", "best_fit", "knapsack", "balanced")

ELEMENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=30)


def identity(number: Any) -> Any:
    return number


def costs(element: tuple[int, int]) -> dict[str, float]:
    return {"tokens": element[0], "images": element[1], "other": "not a number"}


def composed(elements: Any, shards: int = 1) -> ComposedDataset:
    return ComposedDataset.source(elements).with_options(shards=shards)


class Counting:
    """A function, with a count of its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls: list[Any] = []

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.function(*arguments)


# Several costs


@settings(max_examples=80, deadline=None)
@given(
    elements=ELEMENTS,
    block=st.integers(1, 12),
    shards=st.integers(1, 3),
    padded=st.booleans(),
    most=st.none() | st.integers(1, 3),
)
def test_batches_stay_within_each_budget(elements: Any, block: int, shards: int, padded: bool, most: int | None) -> None:
    budget = {"tokens": 14, "images": 6.5}
    batches = list(composed(elements, shards).batch_by_budget(budget, costs, block=block, padded=padded, most=most))

    for batch in batches:
        tokens, images = zip(*batch, strict=True)
        if padded:
            assert max(tokens) * len(batch) <= 14
            assert max(images) * len(batch) <= 6.5
        else:
            assert sum(tokens) <= 14
            assert sum(images) <= 6.5
        assert len(batch) <= (most or block)
    assert sorted(element for batch in batches for element in batch) == sorted(elements)


@settings(max_examples=150, deadline=None)
@given(
    elements=ELEMENTS,
    method=st.sampled_from(WHOLE),
    block=st.integers(1, 12),
    shards=st.integers(1, 3),
    most=st.none() | st.integers(1, 3),
)
def test_packs_stay_within_each_budget(elements: Any, method: str, block: int, shards: int, most: int | None) -> None:
    packs = list(
        composed(elements, shards).pack(
            budget={"tokens": 14, "images": 6}, cost=costs, method=method, block=block, most_segments=most
        )
    )

    assert all(sum(tokens for tokens, _ in pack) <= 14 and sum(images for _, images in pack) <= 6 for pack in packs)
    assert all(0 < len(pack) <= (most or block) for pack in packs)
    assert Counter(element for pack in packs for element in pack) == Counter(map(tuple, elements))


@settings(max_examples=30, deadline=None)
@given(elements=ELEMENTS, method=st.sampled_from(WHOLE), rest=st.sampled_from(["keep", "drop"]))
def test_packs_by_cost_resume_at_each_pack(elements: Any, method: str, rest: str) -> None:
    rest = "keep" if method == "balanced" else rest
    dataset = composed(elements, 2)
    assert_resumes(
        dataset.pack(budget={"tokens": 9, "images": 6}, cost=costs, method=method, block=4, rest=rest, too_long="drop")
    )


def test_a_pack_has_elements_of_any_structure() -> None:
    elements = [{"image": np.ones((n, n)), "text": "a" * n, "sound": [n]} for n in (3, 2, 1)]

    (pack, other) = composed(elements).pack(budget=4, cost=lambda element: len(element["text"]), method="best_fit")

    assert sorted(map(len, (pack, other))) == [1, 2]
    assert all(any(each is element for element in elements) for each in pack + other)


@pytest.mark.parametrize("too_large", ["error", "drop"])
def test_a_cost_is_measured_once(too_large: str) -> None:
    cost = Counting(identity)
    numbers = composed([3, 12, 4, 5, 6])

    for dataset in (
        numbers.batch_by_budget(12, cost, too_large=too_large, block=2),
        *(numbers.pack(budget=12, cost=cost, too_long=too_large, block=2, method=method) for method in WHOLE),
        numbers.bucket(cost, [5], [1, 1]),
    ):
        cost.calls.clear()
        list(dataset)
        assert sorted(cost.calls) == [(3,), (4,), (5,), (6,), (12,)]


@pytest.mark.parametrize("method", [*WHOLE, "concat"])
def test_an_array_is_converted_once(method: str) -> None:
    class Tokens(list[int]):
        conversions = 0

        def __array__(self, *arguments: Any, **options: Any) -> Any:
            Tokens.conversions += 1
            return np.array(list(self))

    list(composed([Tokens([1, 2]), Tokens([1] * 9), Tokens([3])]).pack(4, method=method, too_long="drop"))

    assert Tokens.conversions == 3


def test_a_length_is_taken_from_several_costs() -> None:
    batches = composed([(1, 0), (9, 0), (2, 0)]).bucket(costs, [5], [2, 2], key="tokens")

    assert sorted(map(sorted, batches)) == [[(1, 0), (2, 0)], [(9, 0)]]
    assert batches.description[0] == "bucket(costs['tokens'], [5], [2, 2], block=1024, rest=keep)"


def test_a_report_takes_one_of_several_costs() -> None:
    dataset = ComposedDataset.mix([composed([(1, 4)] * 10), composed([(2, 0)] * 10)], block=2)
    iterator = iter(dataset)
    for _ in range(4):
        next(iterator)

    (report,) = dataset.report(iterator.state_dict(), cost=costs, key="images")

    assert [each.tokens for each in report.inputs] == [8, 0]


def test_descriptions_of_filters_stay() -> None:
    dataset = composed([1])

    assert dataset.batch_by_budget(4, identity, too_large="drop").description == [
        "batch_by_budget(4, identity, block=1024, most=None)",
        "  filter(WithinBudget)",
        "    list[1]",
    ]
    assert dataset.pack(4, too_long="drop").description[1] == "  filter(Fits)"
    assert dataset.pack(budget={"tokens": 4, "b": 2.5}, cost=costs, method="balanced").description[0] == (
        "pack(costs: {tokens: 4, b: 2.5}, max None, method=balanced, block=1024)"
    )


def test_streams_of_earlier_versions_stay() -> None:
    """The checksums are of a version without packers, costs with names, and elements that are left out."""
    numbers = ComposedDataset.source(range(200)).shuffle().map(lambda number: (number * 37) % 23)
    tokens = numbers.map(lambda number: np.arange(number, dtype=np.int32))
    datasets = [
        tokens.pack(24, block=16),
        tokens.pack(24, block=16, method="best_fit", rest="drop", most_segments=2),
        tokens.pack(16, block=16, too_long="drop"),
        tokens.pack(16, too_long="drop", method="concat"),
        numbers.batch_by_budget(40, identity, block=16),
        numbers.batch_by_budget(20, identity, block=16, padded=True, too_large="drop", most=3),
        numbers.bucket(identity, [4, 8], [4, 3, 2], block=16),
    ]

    found = []
    for dataset in datasets:
        iterator = iter(dataset.with_options(shards=4, seed=3))
        outputs = [str(next(iterator)) for _ in range(5)]
        found.append(zlib.crc32(json.dumps([outputs, iterator.state_dict()["states"]]).encode()))

    assert found == [2500518064, 3445157089, 1969839382, 2651294293, 1985043591, 3334023045, 1021659313]


# Packers of the user's


class PairsOfCosts:
    """A packer that only makes pairs of elements whose costs together reach a limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def __call__(self, numbers: Any, generator: np.random.Generator) -> list[list[int]]:
        found, left = [], list(range(len(numbers)))
        while left:
            first = left.pop(0)
            partner = next((other for other in left if numbers[first] + numbers[other] >= self.limit), None)
            if partner is not None:
                left.remove(partner)
                found.append([first, partner])
        return found


def test_a_packer_gets_costs_and_a_generator_by_position() -> None:
    calls: list[Any] = []

    def packer(numbers: Any, generator: np.random.Generator) -> Any:
        calls.append((numbers, generator.random()))
        return [range(len(numbers["tokens"]))]

    elements = [(i, 2 * i) for i in range(5)]
    dataset = composed(elements).pack(cost=costs, budget={"images": 99, "tokens": 99}, method=packer, block=3)

    assert list(dataset) == [elements[:3], elements[3:]] == list(dataset)
    assert [list(numbers) for numbers, _ in calls] == [["images", "tokens"]] * 4
    assert [numbers["images"].tolist() for numbers, _ in calls[:2]] == [[0, 2, 4], [6, 8]]
    assert [drawn for _, drawn in calls[:2]] == [drawn for _, drawn in calls[2:]]
    assert calls[0][1] != calls[1][1]


def test_a_packer_may_pack_arrays() -> None:
    documents = [np.full(n, n) for n in (3, 5, 2, 4)]

    packs = list(composed(documents).pack(8, method=lambda lengths, generator: [[0, 1], [3, 2]]))

    assert [pack["tokens"].tolist() for pack in packs] == [[3, 3, 3, 5, 5, 5, 5, 5], [4, 4, 4, 4, 2, 2, 0, 0]]


def test_costs_without_a_budget_have_any_names() -> None:
    seen: list[Any] = []
    dataset = composed([{"a": 1, "b": 2}, {"a": 3, "b": 4}]).pack(
        cost=identity, method=lambda numbers, generator: seen.append(numbers) or [[1, 0]]
    )

    assert list(dataset) == [[{"a": 3, "b": 4}, {"a": 1, "b": 2}]]
    assert {name: numbers.tolist() for name, numbers in seen[0].items()} == {"a": [1, 3], "b": [2, 4]}
    with pytest.raises(SampleError, match=r"should return the same names .* it returned \('a',\) and None"):
        next(iter(composed([{"a": 1}, 2]).pack(cost=identity, method=lambda numbers, generator: [])))


def test_elements_that_a_packer_leaves_out_come_first_in_the_next_block() -> None:
    seen: list[list[float]] = []

    def packer(numbers: Any, generator: Any) -> Any:
        seen.append(numbers.tolist())
        return [[i] for i, number in enumerate(numbers) if number % 2 or len(numbers) < 3]

    packs = list(composed([1, 2, 3, 4, 5, 7, 9]).pack(cost=identity, method=packer, block=3))

    assert seen == [[1, 2, 3], [2, 4, 5], [2, 4, 7], [2, 4, 9], [2, 4]]
    assert packs == [[1], [3], [5], [7], [9], [2], [4]]


def test_elements_that_fit_into_no_pack_are_dropped_with_a_count() -> None:
    dataset = composed([5, 1, 5, 5, 1, 5, 1]).pack(cost=identity, method=PairsOfCosts(10), block=4)

    with pytest.warns(UserWarning, match=r"stage pack\(.*\) has dropped 3 elements of shard 0"):
        assert list(dataset) == [[5, 5], [5, 5]]


def test_a_packer_that_leaves_a_whole_block_out_is_an_error() -> None:
    iterator = iter(composed([1] * 4).pack(cost=identity, method=lambda numbers, generator: [], block=4))

    with pytest.raises(EmptyFilterError, match=r"has left out all 4 elements of a block in shard 0"):
        next(iterator)
    assert outputs(iterator) == []


def test_elements_are_not_left_out_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume goes back to the first element that is left."""
    monkeypatch.setattr("dali_like.sources.composed.blocks._MOST_BLOCKS_LEFT", 2)
    iterator = iter(
        composed([0, *[1] * 50]).pack(
            cost=identity, method=lambda numbers, generator: [[i] for i, cost in enumerate(numbers) if cost], block=4
        )
    )

    lefts = []
    for _ in range(20):
        next(iterator)
        lefts.append(iterator.state_dict()["states"]["0"][1][4:])

    assert lefts[0] == [[], 0, 0]  # the state goes back to the beginning of the block
    assert [0] in [left for left, *_ in lefts]
    assert lefts[-1][2] == 1


@LEAVING
@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 9), max_size=24),
    block=st.integers(2, 6),
    shards=st.integers(1, 3),
    packer=st.sampled_from([PairsOfCosts(10), PairsOfCosts(6), RandomGroups(1), RandomGroups(2)]),
    raising=st.booleans(),
)
def test_packs_of_a_packer_resume_at_each_pack(
    numbers: list[int], block: int, shards: int, packer: Any, raising: bool
) -> None:
    def load(number: int) -> int:
        if raising and number % 4 == 3:
            raise ValueError(f"no element {number}")
        return number

    assert_resumes(composed(numbers, shards).map(load).pack(cost=identity, method=packer, block=block))


@LEAVING
def test_states_do_not_depend_on_earlier_resumes() -> None:
    dataset = composed(range(60), 2).filter(lambda number: number % 5).pack(cost=identity, method=RandomGroups(2), block=6)
    iterator, resumed = iter(dataset), iter(dataset)
    for _ in range(20):
        assert next(iterator) == next(resumed)
        state = json.loads(json.dumps(iterator.state_dict()))
        assert resumed.state_dict() == state
        resumed = iter(dataset)
        resumed.load_state_dict(state)


@pytest.mark.parametrize(
    ("groups", "kind", "message"),
    [
        (7, SampleTypeError, r"should return lists of indices, but returned 7"),
        ([["a"]], SampleTypeError, r"should return lists of indices, but group 0 is \['a'\]"),
        ([[0.5]], SampleTypeError, "group 0 is"),
        ([[0], []], SampleError, "has returned an empty group, number 1"),
        ([[0, 3]], SampleError, r"has returned the indices \[0, 3\] for 3 elements"),
        ([[-1]], SampleError, r"has returned the indices \[-1\] for 3 elements"),
        ([[0], [1, 0]], SampleError, r"has returned an element twice; group 1 has \[1, 0\]"),
        ([[0, 1, 2]], SampleError, "group 0 of .* has 3 elements, and at most 2 may be in one"),
        ([[2], [0, 1]], SampleError, "group 1 of .* costs 11, and the budget of a pack is 10"),
    ],
)
def test_wrong_groups_are_errors_that_name_the_block(groups: Any, kind: type[Exception], message: str) -> None:
    dataset = composed([6, 5, 4]).pack(cost=identity, budget=10, method=lambda *_: groups, most_segments=2)

    with pytest.raises(kind, match=message) as caught:
        next(iter(dataset))

    assert "block 0 of shard 0" in caught.value.__notes__[0]


def test_the_stream_goes_on_behind_an_exception_of_a_packer() -> None:
    def packer(numbers: Any, generator: Any) -> Any:
        if 3 in numbers:
            raise ValueError("three")
        return [[i] for i in range(len(numbers))]

    dataset = composed(range(6)).pack(cost=identity, method=packer, block=2)

    assert outputs(iter(dataset)) == [[0], [1], "three", [4], [5]]
    assert_resumes(dataset)


# Methods of the library


def test_a_knapsack_leaves_elements_for_later_once_at_most() -> None:
    generator = np.random.default_rng(0)
    sizes = np.minimum(generator.lognormal(np.log(600), 1, 4000), 4096).astype(int).tolist()
    iterator = iter(composed(sizes).pack(budget=4096, cost=identity, method="knapsack", block=256))

    packs, oldest = [], 0
    for pack in iterator:
        packs.append(pack)
        _, number, _, _, left, passed, _ = iterator.state_dict()["states"]["0"][1]
        assert all(passed - each <= 256 for each in left), number
        oldest = max(oldest, len(left))

    assert oldest > 0
    assert sorted(size for pack in packs for size in pack) == sorted(sizes)
    used = [sum(pack) / 4096 for pack in packs[:-60]]
    assert np.mean(used) > 0.995


def test_balanced_packs_are_few_and_have_nearly_equal_costs() -> None:
    sizes = np.random.default_rng(0).integers(1, 100, 400)
    packs = list(composed(sizes.tolist()).pack(budget=1000, cost=identity, method="balanced", block=400))

    assert len(packs) <= sizes.sum() / 1000 + 1.5
    totals = [sum(pack) for pack in packs]
    assert max(totals) <= 1.01 * np.mean(totals)


# Errors


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({}, ArgumentClashError, "pack needs either length=, for arrays, or budget= and cost="),
        ({"length": 4, "cost": len}, ArgumentClashError, "pack needs either length="),
        ({"length": 4, "budget": 4}, ArgumentClashError, "pack needs either length="),
        ({"cost": len}, ArgumentClashError, "cost= needs budget=, the limit of a pack"),
        ({"cost": 4, "budget": 4}, ArgumentError, "a stage needs a function, but got"),
        ({"cost": len, "budget": 0}, ArgumentError, "budget should be positive, but got 0"),
        ({"cost": len, "budget": {}}, ArgumentError, "budget has no limits"),
        ({"cost": len, "budget": {"a": "b"}}, ArgumentError, r"budget\['a'\] should be a number, but got 'b'"),
        ({"cost": len, "budget": 4, "method": "concat"}, ArgumentClashError, "elements with a cost= cannot be split"),
        ({"cost": len, "budget": 4, "too_long": "split"}, ArgumentClashError, "elements with a cost= cannot be split"),
        ({"cost": len, "budget": 4, "too_long": "cut"}, ArgumentError, "too_long must be 'error' or 'drop', not 'cut'"),
        ({"cost": len, "budget": 4, "rest": "pad"}, ArgumentError, "rest must be 'keep' or 'drop', not 'pad'"),
        ({"cost": len, "budget": 4, "pad": 1}, ArgumentClashError, "packs by cost have no padding"),
        ({"cost": len, "budget": 4, "method": len, "rest": "drop"}, ArgumentClashError, 'rest="drop" is for methods that'),
        ({"length": 4, "method": "balanced", "rest": "drop"}, ArgumentClashError, 'rest="drop" is for methods that'),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        composed([]).pack(**arguments)


@pytest.mark.parametrize(
    ("budget", "value", "kind", "message"),
    [
        (4, {"a": 1}, SampleTypeError, "identity should return a number, but it returned a dict, which needs key="),
        ({"a": 4}, 3, SampleTypeError, "identity should return a mapping with a, but it returned an int"),
        ({"a": 4, "b": 1}, {"a": 1, "c": 2}, SampleError, "identity should return a mapping with 'b', but it has a, c"),
        ({"a": 4}, {"a": -1}, SampleError, "should return a number from 0 on as 'a', but it returned -1"),
        ({"a": 4, "b": 2}, {"a": 1, "b": 3}, SampleError, "an element has the cost 'b' 3, and a pack the budget 2"),
    ],
)
def test_wrong_costs_are_errors_that_name_the_place(budget: Any, value: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        next(iter(composed([value]).pack(budget=budget, cost=identity)))
    assert "the input before 1 in shard 0" in caught.value.__notes__[0]
