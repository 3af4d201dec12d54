"""Properties of a description are computed once, not for each element."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.stage import Stage


class Source:
    """Numbers, with a count of the calls of ``len``."""

    lengths = 0

    def __len__(self) -> int:
        type(self).lengths += 1
        return 1000

    def __getitem__(self, index: int) -> int:
        return index


@contextmanager
def questions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Count how often stages are asked for their kind or length."""
    asked: list[Any] = []
    monkeypatch.setattr(Stage, "is_sharded", property(lambda stage: asked.append(stage) or any_sharded(stage)))
    Source.lengths = 0
    yield asked
    asked += range(Source.lengths)


def any_sharded(stage: Stage) -> bool:
    return any(each.is_sharded for each in stage.inputs)


def test_a_position_asks_no_stage_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = ComposedDataset.source(Source()).shuffle().repeat().map(abs)
    dataset[0]

    with questions(monkeypatch) as asked:
        for position in range(50):
            dataset[position]

    assert asked == []


def test_an_iterator_asks_no_stage_again(monkeypatch: pytest.MonkeyPatch) -> None:
    elements = iter(ComposedDataset.source(Source()).shuffle().map(abs))
    next(elements)

    with questions(monkeypatch) as asked:
        for _ in range(50):
            next(elements)

    assert asked == []


def test_a_walk_that_is_little_behind_a_known_state_replays_no_block() -> None:
    """As when several workers share a shard."""
    kept: list[int] = []
    dataset = ComposedDataset.source(range(64)).filter(lambda number: kept.append(number) or True)
    dataset = dataset.shuffle(block=16).with_options(shards=1)
    behind, ahead = dataset.elements(), dataset.elements()
    expected = [ahead.at(0, position) for position in range(4)]
    states = {0: ahead.state(0, 0, 3)}
    behind.at(0, 0)
    kept.clear()

    assert behind.at(0, 3, states) == expected[3]
    assert kept == []
