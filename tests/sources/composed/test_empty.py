from __future__ import annotations

from dali_like.data import ComposedDataset


def test_an_empty_dataset_is_empty_however_often_it_is_repeated() -> None:
    empty = ComposedDataset.source([])

    assert list(empty.repeat()) == list(empty.repeat(3)) == []
