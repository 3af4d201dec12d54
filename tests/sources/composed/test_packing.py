"""Packs: the same as plain models, nothing lost, exact resumes, errors."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentError, EmptyFilterError, SampleError, SampleTypeError
from dali_like.sources.composed.packers import fit
from dali_like.sources.composed.packing import PackLayout
from tests.sources.composed.resuming import assert_resumes, outputs

METHODS = ("first_fit", "best_fit", "knapsack", "balanced", "concat")

SIZES = st.lists(st.integers(0, 12), max_size=25)


def documents(sizes: Iterable[int]) -> list[Any]:
    """Return documents whose tokens all differ: document i has 100 * i + 1, 100 * i + 2 and so on."""
    return [np.arange(100 * i + 1, 100 * i + 1 + size, dtype=np.int32) for i, size in enumerate(sizes)]


def composed(elements: Sequence[Any], shards: int = 1) -> ComposedDataset:
    return ComposedDataset.source(elements).with_options(shards=shards)


def segments(pack: dict[str, Any], field: str = "tokens") -> list[list[int]]:
    """Return the tokens of each segment of a pack, and check that the parts of the pack agree."""
    tokens, ids, positions = pack[field], pack[f"{field}_segment_ids"], pack[f"{field}_positions"]
    assert ids.dtype == positions.dtype == np.int32
    used = int((ids > 0).sum())
    assert (ids[:used] > 0).all()
    assert not tokens[used:].any()
    assert not positions[used:].any()
    found = [tokens[ids == number].tolist() for number in range(1, ids.max(initial=0) + 1)]
    np.testing.assert_array_equal(positions[:used], [i for each in found for i in range(len(each))])
    boundaries = pack["cu_seqlens"]
    assert boundaries.dtype == np.int32
    np.testing.assert_array_equal(boundaries[: len(found) + 1], np.cumsum([0, *map(len, found)]))
    assert (boundaries[len(found) + 1 :] == len(tokens)).all()
    return found


# Models


def naive_fit(sizes: Sequence[Sequence[int]], capacities: Sequence[int], most: int | None, best: bool) -> list[list[int]]:
    bins: list[list[int]] = []

    def room(items: list[int]) -> list[int]:
        return [capacity - sum(sizes[i][d] for i in items) for d, capacity in enumerate(capacities)]

    relative = [sum(size / capacity for size, capacity in zip(each, capacities, strict=True)) for each in sizes]
    for item in sorted(range(len(sizes)), key=lambda item: -relative[item]):
        open_bins = [
            items
            for items in bins
            if len(items) != most and all(size <= free for size, free in zip(sizes[item], room(items), strict=True))
        ]
        if not open_bins:
            bins.append([item])
        else:
            (min(open_bins, key=lambda items: sum(room(items))) if best else open_bins[0]).append(item)
    return [sorted(items) for items in bins]


def naive_concat(elements: Sequence[Any], length: int) -> list[list[list[int]]]:
    packs: list[list[list[int]]] = []
    free = 0
    for element in elements:
        tokens = element.tolist()
        while tokens:
            if not free:
                packs.append([])
                free = length
            packs[-1].append(tokens[:free])
            tokens, free = tokens[free:], free - len(packs[-1][-1])
    return packs


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 16)), max_size=30),
    most=st.none() | st.integers(1, 4),
    best=st.booleans(),
)
def test_elements_are_distributed_as_by_a_plain_model(sizes: list[tuple[int, int]], most: int | None, best: bool) -> None:
    for columns, capacities in ((slice(0, 1), [10]), (slice(0, 2), [10, 16])):
        chosen = [size[columns] for size in sizes]
        found = fit(np.array(chosen).reshape(-1, len(capacities)), capacities, most, best)
        assert found == naive_fit(chosen, capacities, most, best)


@settings(max_examples=100, deadline=None)
@given(sizes=SIZES, length=st.integers(1, 9), shards=st.integers(1, 3))
def test_concatenation_is_that_of_a_plain_model(sizes: list[int], length: int, shards: int) -> None:
    elements = documents(sizes)
    found = [segments(pack) for pack in composed(elements, shards).pack(length, method="concat")]
    by_shard = [naive_concat(elements[shard::shards], length) for shard in range(shards)]
    longest = max(map(len, by_shard))
    assert found == [packs[i] for i in range(longest) for packs in by_shard if i < len(packs)]


@settings(max_examples=100, deadline=None)
@given(sizes=SIZES, method=st.sampled_from(METHODS), block=st.integers(1, 9), shards=st.integers(1, 3))
def test_no_token_is_lost_or_doubled(sizes: list[int], method: str, block: int, shards: int) -> None:
    elements = documents(sizes)
    packs = list(composed(elements, shards).pack(12, method=method, block=block, most_segments=3))
    found = [segment for pack in packs for segment in segments(pack)]
    assert all(pack["tokens"].shape == (12,) and pack["cu_seqlens"].shape == (5,) for pack in packs)
    assert all(pack["tokens_segment_ids"].max() <= 3 for pack in packs)
    assert sorted(token for segment in found for token in segment) == [token for each in elements for token in each.tolist()]
    if method != "concat":
        assert sorted(found) == [each.tolist() for each in elements if len(each)]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), max_size=14),
    method=st.sampled_from(METHODS),
    rest=st.sampled_from(["pad", "drop"]),
    length=st.integers(5, 12),
    too_long=st.sampled_from(["error", "split", "drop"]),
)
def test_a_stream_of_packs_resumes_at_each_pack(
    sizes: list[int], method: str, rest: str, length: int, too_long: str
) -> None:
    rest = "pad" if method == "balanced" else rest
    dataset = composed(documents(sizes), 2).pack(length, method=method, block=3, rest=rest, too_long=too_long)
    assert_resumes(dataset)


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_of_packs_resumes_behind_exceptions(method: str) -> None:
    def load(size: int) -> Any:
        if size == 0:
            raise ValueError("no such document")
        return np.arange(size)

    dataset = composed([3, 0, 7, 7, 0, 2, 9, 0, 0, 4, 0], 2).map(load).pack(8, method=method, block=3, too_long="error")
    assert_resumes(dataset)
    texts = [text for text in outputs(iter(dataset)) if isinstance(text, str)]
    assert texts.count("no such document") == 5
    assert sum("has the length 9" in text for text in texts) == 1


# Fields


def test_fields_of_an_element_have_the_same_segment_id() -> None:
    elements = [{"a": [1] * n, "b": np.full(m, 2.5), "id": n} for n, m in [(3, 1), (2, 4), (1, 1), (2, 0)]]
    (pack,) = composed(elements).pack({"a": 8, "b": 7}, pad={"a": -1, "b": 0})
    assert list(pack) == [
        *("a", "a_segment_ids", "a_positions", "cu_seqlens"),
        *("b", "b_segment_ids", "b_positions", "b_cu_seqlens"),
    ]
    assert pack["a_segment_ids"].tolist() == [1, 1, 1, 2, 2, 3, 4, 4]
    assert pack["b_segment_ids"].tolist() == [1, 2, 2, 2, 2, 3, 0]
    assert pack["b"].dtype == np.float64
    assert pack["b"].tolist() == [2.5] * 6 + [0]
    assert pack["b_cu_seqlens"].tolist() == [0, 1, 5, 6, 6] + [7] * 12
    assert pack["cu_seqlens"].tolist() == [0, 3, 5, 6, 8] + [8] * 12


def test_concatenation_ends_a_pack_when_one_field_is_full() -> None:
    elements = [{"a": np.arange(n), "b": np.arange(m)} for n, m in [(3, 1), (5, 1), (1, 6)]]
    packs = list(composed(elements).pack({"a": 4, "b": 4}, method="concat", pad=9))
    assert [pack["a"].tolist() for pack in packs] == [[0, 1, 2, 0], [1, 2, 3, 4], [0, 9, 9, 9], [9, 9, 9, 9]]
    assert [pack["b"].tolist() for pack in packs] == [[0, 0, 9, 9], [9, 9, 9, 9], [0, 1, 2, 3], [4, 5, 9, 9]]
    assert [pack["a_segment_ids"].tolist() for pack in packs][:2] == [[1, 1, 1, 2], [1, 1, 1, 1]]


def test_empty_lists_have_no_dtype() -> None:
    elements = [{"a": [], "b": [1]}, {"a": [1], "b": [2]}]
    (pack,) = composed(elements).pack({"a": 4, "b": 4})
    assert pack["a"].dtype == np.int64
    assert pack["a"].tolist() == [1, 0, 0, 0]
    assert pack["a_segment_ids"].tolist() == [2, 0, 0, 0]


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_segments_can_be_limited(method: str) -> None:
    packs = list(composed(documents([1, 1, 1, 1, 1])).pack(8, method=method, most_segments=2))
    assert sorted(pack["tokens_segment_ids"].max() for pack in packs) == [1, 2, 2]
    assert all(pack["cu_seqlens"].shape == (4,) for pack in packs)


def test_arrays_with_more_dimensions_are_packed_along_the_first() -> None:
    (pack,) = composed([np.ones((2, 3), np.float32), np.full((1, 3), 2, np.float32)]).pack(4)
    assert pack["tokens"].dtype == np.float32
    assert pack["tokens"][:, 0].tolist() == [1, 1, 2, 0]


def test_packs_can_be_collated() -> None:
    packs = composed(documents([5, 4, 3, 8])).pack(8).batch(2)
    (batch, _) = packs
    assert {name: part.shape for name, part in batch.items()} == {
        **dict.fromkeys(("tokens", "tokens_segment_ids", "tokens_positions"), (2, 8)),
        "cu_seqlens": (2, 10),
    }


def test_different_dtypes_are_promoted() -> None:
    (pack,) = composed([np.array([1], np.int32), np.array([2**40])]).pack(3)
    assert pack["tokens"].tolist() == [1, 2**40, 0]


@pytest.mark.parametrize(
    ("elements", "pad"), [([np.ones((1, 2)), np.ones((1, 3))], 0), ([np.ones(1, np.uint16)], -100), ([np.ones(1)], "a")]
)
def test_elements_that_do_not_fit_together_are_errors(elements: list[Any], pad: Any) -> None:
    for method in METHODS:
        iterator = iter(composed(elements).pack(8, method=method, pad=pad))
        with pytest.raises(SampleError, match=f"tokens of a pack cannot be combined: .*pad={pad!r}"):
            next(iterator)
        assert outputs(iterator) == []


# Elements that are too long, and rests


def test_an_element_that_is_too_long_is_an_error_that_names_it() -> None:
    iterator = iter(composed(documents([5, 9, 3])).pack(8, block=2))
    with pytest.raises(SampleError, match=r'the length 9, and a pack has 8\..*too_long="split"') as caught:
        next(iterator)
    assert "the input before 2 in shard 0" in caught.value.__notes__[0]
    assert segments(next(iterator)) == [[1, 2, 3, 4, 5], [201, 202, 203]]


@pytest.mark.parametrize("method", METHODS)
def test_an_element_that_is_too_long_can_be_dropped(method: str) -> None:
    (pack,) = composed(documents([5, 9, 3])).pack(8, method=method, too_long="drop")
    assert segments(pack) == [[1, 2, 3, 4, 5], [201, 202, 203]]


def test_dropping_all_elements_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.sources.composed.dataset._MOST_REJECTED", 3)
    with pytest.raises(EmptyFilterError, match=r"filter\(Fits\)"):
        next(iter(composed(documents([9, 9, 9, 1])).pack(8, too_long="drop")))


def test_an_element_that_is_too_long_can_be_split() -> None:
    packs = list(composed([{"a": list(range(1, 6)), "b": [7, 8, 9]}]).pack({"a": 2, "b": 2}, too_long="split"))
    assert sorted((pack["a"].tolist(), pack["b"].tolist()) for pack in packs) == [
        ([1, 2], [7, 8]),
        ([3, 4], [9, 0]),
        ([5, 0], [0, 0]),
    ]


@pytest.mark.parametrize("method", [method for method in METHODS if method != "balanced"])
def test_the_rest_of_a_shard_can_be_dropped(method: str) -> None:
    dataset = composed(documents([8, 8, 3]))
    assert len(list(dataset.pack(8, method=method, block=8))) == 3
    assert len(list(dataset.pack(8, method=method, block=8, rest="drop"))) == 2
    assert len(list(composed(documents([8, 8])).pack(8, method=method, block=8, rest="drop"))) == 2


def test_a_shard_that_ends_together_with_a_block_has_no_rest() -> None:
    assert len(list(composed(documents([5, 5])).pack(8, block=2, rest="drop"))) == 2
    assert len(list(composed(documents([5, 5])).pack(8, block=3, rest="drop"))) == 1


def test_the_first_block_of_a_shard_is_smaller_and_has_no_rest() -> None:
    """Shard 0 has blocks of 2, 4 and 2 elements, and shard 1 has two of 4."""
    assert len(list(composed(documents([5] * 16), shards=2).pack(8, block=4, rest="drop"))) == 15


@pytest.mark.parametrize("method", ["first_fit", "best_fit"])
def test_a_shard_keeps_no_elements_of_delivered_packs(method: str) -> None:
    alive: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def copied(document: Any) -> Any:
        alive[int(document[0])] = copy = document.copy()
        return copy

    packs = iter(composed(documents([8] * 64), shards=4).map(copied).pack(8, method=method, block=8))
    num_alive = [len(alive) for _ in zip(range(24), packs, strict=False)]

    assert num_alive[:4] == [1, 4, 9, 16]
    assert max(num_alive[4:]) <= 24


def test_skipped_packs_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = PackLayout.pack
    monkeypatch.setattr(PackLayout, "pack", lambda *args: built.append(args) or build(*args))
    for method in METHODS:
        dataset = composed(documents([8] * 10)).pack(8, method=method, block=5)
        elements = dataset.elements()
        elements.at(0, 7)
        assert len(built) == 1
        built.clear()


def test_packs_of_a_block_come_in_an_order_by_seed() -> None:
    def firsts(seed: int) -> list[int]:
        return [int(pack["tokens"][0]) for pack in composed(documents([8] * 20)).with_options(seed=seed).pack(8)]

    assert firsts(1) == firsts(1) != firsts(2)
    assert sorted(firsts(1)) == sorted(firsts(2))


@pytest.mark.parametrize("method", METHODS)
def test_an_endless_stream_of_empty_elements_is_an_error(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.sources.composed.packing._MOST_EMPTY", 5)
    monkeypatch.setattr("dali_like.sources.composed.blocks._MOST_EMPTY_BLOCKS", 5)
    iterator = iter(composed(documents([0, 0])).repeat().pack(8, method=method, block=2))
    for _ in range(2):
        with pytest.raises(EmptyFilterError, match=r"5 (blocks|elements) in a row"):
            next(iterator)
        iterator.load_state_dict(iterator.state_dict())


def test_some_empty_elements_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.sources.composed.packing._MOST_EMPTY", 3)
    (pack,) = composed(documents([0, 1, 0, 0, 1, 0])).pack(8, method="concat")
    assert segments(pack) == [[101], [401]]


# Wrong arguments and elements


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length must be a positive integer"),
        ({"length": {}}, "length has no fields"),
        (
            {"length": 8, "method": "next_fit"},
            "method must be 'concat' or 'first_fit' or 'best_fit' or 'knapsack' or 'balanced', not 'next_fit'",
        ),
        ({"length": 8, "rest": "keep"}, "rest must be 'pad' or 'drop', not 'keep'"),
        ({"length": 8, "too_long": "cut"}, "too_long must be 'error' or 'drop' or 'split', not 'cut'"),
        ({"length": 8, "block": 0}, "block must be a positive integer"),
        ({"length": 8, "most_segments": 0}, "most_segments must be a positive integer"),
        ({"length": {"a": 8}, "pad": {"b": 0}}, "pad should have the fields of length, a, but it has b"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        composed([]).pack(**arguments)


@pytest.mark.parametrize(
    ("element", "length", "kind", "message"),
    [
        ({"a": [1]}, 8, SampleTypeError, r"tokens of an element should be an array of numbers"),
        (np.int64(3), 8, SampleTypeError, r"it has type int64, dtype int64 and shape \(\)"),
        (["a"], 8, SampleTypeError, "Convert it: map"),
        (np.arange(3), {"a": 8}, SampleTypeError, r"it is an ndarray\. For elements that are arrays.*pack\(8\)"),
        ({"b": 1, "c": 2}, {"a": 8}, SampleError, "an element has no field 'a'; it has b, c"),
    ],
)
def test_elements_without_arrays_are_refused(element: Any, length: Any, kind: type[Exception], message: str) -> None:
    for method in METHODS:
        with pytest.raises(kind, match=message) as caught:
            next(iter(composed([element]).pack(length, method=method)))
        assert "raised by stage pack(" in caught.value.__notes__[0]


def test_a_description_names_the_arguments() -> None:
    dataset = composed([]).pack({"a": 4, "b": 8}, pad=1, rest="drop", most_segments=3)
    text = "pack(a: 4 pad 1, b: 8 pad 1, max 3, method=first_fit, block=1024, rest=drop)"
    assert dataset.description[0] == text
    assert dataset.shards == 1
    assert dataset.length is None
