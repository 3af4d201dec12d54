"""Iterables that each worker walks through whole: the first batches of two workers have the same content."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, get_worker_info
from dali_like.data import DataLoader, IterableDataset
from dali_like.data import get_worker_info as info_of_loader
from dali_like.feed.first_batches import FirstBatches

MakePipeline = Callable[..., Pipeline]

SAME = "the first batches of workers 0 and 1 have the same content"


class Whole(IterableDataset):
    """Yields the same items in each worker."""

    def __init__(self, items: Any = range(40)) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class Divided(Whole):
    """Yields the items of the worker."""

    def __iter__(self) -> Iterator[Any]:
        info = info_of_loader()
        return iter(self.items[info.id :: info.num_workers])


def batches_of(dataset: IterableDataset, **options: Any) -> list[Any]:
    return list(DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, **options}))


class TestALoader:
    @pytest.mark.parametrize(
        "items",
        [
            range(40),
            [f"text {i}" for i in range(40)],
            [{"image": np.full((8, 8), i), "box": [1.0, i]} for i in range(40)],
        ],
        ids=["numbers", "texts", "nested arrays"],
    )
    def test_of_a_dataset_that_is_not_divided_warns(self, items: Any) -> None:
        with pytest.warns(UserWarning, match=rf"dataset Whole: {SAME}.*get_worker_info\(\)"):
            batches_of(Whole(items))

    def test_warns_once(self) -> None:
        loader = DataLoader(Whole(), 4, num_workers=2)
        with pytest.warns(UserWarning, match="same content"):
            list(loader)

        list(loader)

    @pytest.mark.parametrize(
        ("dataset", "options"),
        [
            (Divided(range(40)), {}),
            (Whole(), {"num_workers": 1}),
            (Whole(np.zeros((40, 3))), {}),
            (Whole([object() for _ in range(40)]), {"collate_fn": list, "multiprocessing_context": "thread"}),
        ],
        ids=["divided", "one worker", "equal items", "unreadable items"],
    )
    def test_of_other_datasets_does_not_warn(self, dataset: IterableDataset, options: dict[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert batches_of(dataset, **options)


class TestAPipeline:
    @pytest.mark.parametrize("is_divided", [False, True])
    def test_with_sharded_iterables_warns_unless_they_are_divided(
        self, make_pipeline: MakePipeline, is_divided: bool
    ) -> None:
        class Numbers:
            def __iter__(self) -> Iterator[Any]:
                info = get_worker_info()
                assert info is not None
                return iter(np.arange(40)[info.id :: info.num_workers] if is_divided else np.arange(40))

        pipe = make_pipeline(Numbers(), "fork", source_options={"sharded": True, "name": "numbers"})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(pipe)

        texts = [str(each.message) for each in caught if SAME in str(each.message)]
        assert len(texts) == (0 if is_divided else 1)
        assert all("external_source 'numbers'" in text for text in texts)


def test_the_search_ends_although_a_worker_has_few_batches() -> None:
    first_batches = FirstBatches(2, "source")
    first_batches.note(1, np.array([1]))
    for i in range(20):
        first_batches.note(0, np.array([i]))

    assert first_batches.is_done
