"""Positions that are resolved together: the elements are those at single positions, and tables do not thrash."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from dali_like.data import ComposedDataset
from dali_like.sources.composed.stage import Place, RandomAccess
from dali_like.sources.permutation import Permutation
from dali_like.testing.differences import first_difference
from dali_like.testing.strategies import composed_datasets
from tests.internals import stage_of


def access_of(dataset: ComposedDataset) -> RandomAccess:
    evaluator = stage_of(dataset).evaluator(Place(dataset.seed, 60))
    assert isinstance(evaluator, RandomAccess)
    return evaluator


@hypothesis.settings(max_examples=150)
@hypothesis.given(st.data())
def test_resolved_positions_have_the_elements_at_single_positions(data: Any) -> None:
    dataset = data.draw(composed_datasets(shards=(12,)).filter(lambda each: each.shards is None and each.length != 0))
    most = 200 if dataset.length is None else 3 * dataset.length
    begin, step = data.draw(st.integers(0, most)), data.draw(st.integers(1, 70))
    positions = np.arange(begin, begin + 40 * step, step)

    at = access_of(dataset).resolved(positions)

    single = access_of(dataset)
    for i, position in enumerate(positions.tolist()):
        assert first_difference(single.at(position), at(i)) is None, position


def is_kept(number: int) -> bool:
    return number % 3 != 0


@pytest.mark.parametrize(
    "make",
    [
        lambda numbers: numbers.filter(is_kept),
        lambda numbers: ComposedDataset.mix([numbers.filter(is_kept), numbers], [1, 2], stop="never"),
    ],
    ids=["filter", "mixture in shards"],
)
def test_shards_that_proceed_at_different_rates_resolve_positions_together(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    look_up: Any = Permutation.__getitem__

    def count(order: Permutation, positions: Any) -> Any:
        calls.append(positions)
        return look_up(order, positions)

    monkeypatch.setattr(Permutation, "__getitem__", count)
    numbers = ComposedDataset.source(range(1_000_000)).shuffle().repeat()
    stream = iter(make(numbers).with_options(shards=30))

    for _ in range(30_000):
        next(stream)

    assert len(calls) < 3_000, "the first positions of each shard, and tables"
