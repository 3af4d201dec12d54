"""PyTorch's datapipes, which its loader divides among workers and shuffles alike in all of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from dali_like.plugin.pytorch import DataLoader
from dali_like.plugin.pytorch import datapipes as _datapipes

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

OPTIONS: dict[str, dict[str, Any]] = {
    "no workers": {"batch_size": 4},
    "workers": {"num_workers": 2},
    "persistent workers": {"num_workers": 2, "persistent_workers": True, "batch_size": 3},
    "unshuffled": {"num_workers": 3, "shuffle": False},
}


def shuffled() -> Any:
    return IterableWrapper(range(20)).shuffle(buffer_size=7).sharding_filter()


def epochs_of(kind: Any, **options: Any) -> list[Any]:
    """Three epochs, and the numbers of the global generator after each."""
    torch.manual_seed(3)
    loader = kind(shuffled(), **options)
    return [([batch.tolist() for batch in loader], torch.rand(1).item()) for _ in range(3)]


def items_of(loader: Any) -> list[int]:
    return list(itertools.chain.from_iterable(batch.tolist() for batch in loader))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("seeding", ["tasks", "torch"])
def test_datapipes_give_the_same_as_in_pytorch(options: dict[str, Any], seeding: str) -> None:
    assert epochs_of(DataLoader, worker_seeding=seeding, **options) == epochs_of(TorchLoader, **options)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_every_item_comes_once(workers: int) -> None:
    assert sorted(items_of(DataLoader(shuffled(), num_workers=workers))) == list(range(20))


@pytest.mark.parametrize("workers", [0, 2])
def test_every_rank_has_its_part(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []
    for rank in range(3):
        monkeypatch.setattr(_datapipes, "_ranks", lambda rank=rank: (3, rank))
        torch.manual_seed(1)
        parts.append(items_of(DataLoader(shuffled(), num_workers=workers)))

    assert sorted(map(len, parts)) == [6, 7, 7]
    assert sorted(itertools.chain.from_iterable(parts)) == list(range(20))


def test_map_style_ones_are_loaded_by_index() -> None:
    assert items_of(DataLoader(SequenceWrapper(range(7)), num_workers=2, batch_size=3)) == list(range(7))


def test_a_worker_init_fn_finds_them_divided() -> None:
    def count(worker: int) -> None:
        info: Any = torch.utils.data.get_worker_info()
        info.dataset.count = len(list(IterableWrapper(info.dataset)))

    loader = DataLoader(shuffled(), num_workers=2, batch_size=None, worker_init_fn=count, collate_fn=_count_in_worker)

    assert set(loader) == {10}


def _count_in_worker(item: int) -> int:
    info: Any = torch.utils.data.get_worker_info()
    count: int = info.dataset.count
    return count


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("after", [1, 3])
def test_an_epoch_goes_on_where_it_was(workers: int, after: int) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(shuffled(), num_workers=workers, batch_size=2)

    before, resumed = make(), make()
    batches = iter(before)
    for _ in range(after):
        next(batches)
    resumed.load_state_dict(before.state_dict())

    assert items_of(resumed) == items_of(batches)
