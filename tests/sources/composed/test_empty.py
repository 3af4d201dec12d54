from __future__ import annotations

from typing import Any

import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import EmptyFilterError
from dali_like.sources.composed import yielding


def test_an_empty_dataset_is_empty_however_often_it_is_repeated() -> None:
    empty = ComposedDataset.source([])

    assert list(empty.repeat()) == list(empty.repeat(3)) == []


@pytest.mark.parametrize(
    "empty",
    [
        ComposedDataset.source([]),
        ComposedDataset.source([]).shuffle(),
        ComposedDataset.source([]).repeat(),
        ComposedDataset.source([1]).take(0).map(str),
        ComposedDataset.source([1]).window(2),
        ComposedDataset.concat([ComposedDataset.source([])]),
        ComposedDataset.mix([ComposedDataset.source([]), ComposedDataset.source([1])], [1, 1]),
    ],
    ids=str,
)
def test_a_position_of_an_empty_dataset_is_an_index_error(empty: ComposedDataset[Any]) -> None:
    with pytest.raises(IndexError, match="no elements"):
        empty[0]


def nothing(element: Any) -> list[Any]:
    return []


def test_an_endless_stream_without_items_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yielding, "_MOST_EMPTY", 50)
    empty = ComposedDataset.source([1, 2]).repeat().flat_map(nothing).with_options(shards=1)

    with pytest.raises(EmptyFilterError, match=r"flat_map\(nothing\) has returned no item for 50 inputs in a row"):
        next(iter(empty))


def test_filters_that_reject_everything_end_with_an_error() -> None:
    endless = ComposedDataset.source([1, 2]).repeat()

    with pytest.raises(EmptyFilterError, match=r"filter\(nothing\) has rejected 50 inputs in a row"):
        next(iter(endless.filter(nothing, most_rejected=50)))
