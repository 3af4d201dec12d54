"""Random numbers in samples: they depend on the seed, the epoch and the position, and not on the worker."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import IterableDataset, get_worker_info
from dali_like.data.fetcher import SEEDS_PER_BATCH
from tests.data.loader_cases import MANY_WORKERS, Dice, DiceStream, Made, Squares, Stream, all_of, loader_of, plain

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

BATCH_SIZE = 2 * SEEDS_PER_BATCH
#: The batches are made sample by sample, as wholes, and by ``__getitems__``.
WAYS: dict[str, Any] = {
    "rows": {"batch_size": BATCH_SIZE},
    "collation": {"batch_size": BATCH_SIZE, "collate_fn": list},
    "batch sampler": {"batch_size": 1, "batch_sampler": [range(3), range(3, 20), range(20, 60)]},
    "no batches": {"batch_size": None},
}


def dice_of(workers: int, method: Any = "fork", length: int = 60, **options: Any) -> Any:
    """Return a loader whose samples are an index and random numbers of Python and NumPy."""
    return loader_of(Dice(length), workers, method, **{"generator": 1, "batch_size": BATCH_SIZE, **options})


def rolls_of(loader: Any) -> list[tuple[float, float]]:
    """Return the random numbers in the samples of an epoch."""
    return [roll for _, of_python, of_numpy in loader for roll in zip(of_python.tolist(), of_numpy.tolist(), strict=True)]


# The same with any workers


@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_workers_makes_no_difference(way: str) -> None:
    one, two, three = (all_of(dice_of(workers, **WAYS[way])) for workers in (1, 2, 3))

    assert one == two == three


def test_the_start_method_makes_no_difference() -> None:
    assert all_of(dice_of(2, "spawn")) == all_of(dice_of(1, "fork"))


def test_rows_and_a_collation_of_the_users_make_no_difference() -> None:
    rows = rolls_of(dice_of(2))
    whole = [(of_python, of_numpy) for batch in dice_of(2, collate_fn=list) for _, of_python, of_numpy in batch]

    assert rows == whole


def test_workers_that_go_on_make_no_difference_to_the_first_epoch() -> None:
    loader = dice_of(2, persistent_workers=True)
    first = all_of(loader)

    assert first == all_of(dice_of(2)) == all_of(dice_of(3, prefetch_epochs=True))


@pytest.mark.parametrize("way", ["rows", "collation"])
def test_nested_loops_do_not_change_random_numbers(way: str) -> None:
    loader = dice_of(2, persistent_workers=True, **WAYS[way])
    expected = all_of(dice_of(2, **WAYS[way]))

    outer = [(plain(batch), list(loader))[0] for batch in loader]

    assert outer == expected


class Deadly(Dice):
    """Ends the worker that computes a certain sample, once."""

    def __init__(self, mark: Path) -> None:
        super().__init__(60)
        self.mark = mark

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if index == 21 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return sample


@pytest.mark.parametrize("way", WAYS)
def test_the_death_of_a_worker_makes_no_difference(way: str, tmp_path: Path) -> None:
    options = {"generator": 1, **WAYS[way]}
    expected = all_of(dice_of(2, **WAYS[way]))

    assert all_of(loader_of(Deadly(tmp_path / "dead"), 2, **options)) == expected


class DeadlyStream(DiceStream):
    def __init__(self, mark: Path) -> None:
        super().__init__(30)
        self.mark = mark

    def __iter__(self) -> Iterator[Any]:
        return map(self.die_at_eleven, super().__iter__())

    def die_at_eleven(self, item: Any) -> Any:
        if item[0] == 11 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item


def test_the_death_of_a_worker_of_an_iterable_dataset_makes_no_difference(tmp_path: Path) -> None:
    def batches(dataset: Any) -> Any:
        return all_of(loader_of(dataset, 2, batch_size=4, generator=1))

    assert batches(DeadlyStream(tmp_path / "dead")) == batches(DiceStream(30))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [(1, 2), (2, 1)], ids=str)
def test_going_on_from_a_state_makes_no_difference(way: str, workers: tuple[int, int]) -> None:
    before, after = (dice_of(count, **WAYS[way]) for count in workers)
    next(batches := iter(before))
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))

    assert all_of(after) == all_of(batches)


@pytest.mark.parametrize("after", range(4))
def test_resuming_in_the_middle_of_a_walk_makes_no_difference(after: int) -> None:
    before, resumed = (loader_of(DiceStream(30), 2, batch_size=4) for _ in range(2))
    batches = iter(before)
    for _ in range(after):
        next(batches)
    resumed.load_state_dict(before.state_dict())

    assert all_of(resumed) == all_of(batches)


def test_with_the_seeding_of_torch_it_may_and_there_is_a_warning(tmp_path: Path) -> None:
    batches = iter(loader_of(Deadly(tmp_path / "dead"), 2, batch_size=4, worker_seeding="torch"))

    with pytest.warns(UserWarning, match="random generators of the new worker start again") as caught:
        indices = [index for index, *_ in map(plain, batches)]

    assert len(indices) == 15
    assert [warning.filename for warning in caught] == [__file__], "once"


# Different between samples and epochs


@pytest.mark.parametrize("way", ["rows", "collation", "no batches"])
def test_samples_differ_in_batches_and_in_epochs(way: str) -> None:
    for options in ({}, {"persistent_workers": True}, {"prefetch_epochs": True}):
        loader = dice_of(2, **WAYS[way], **options)
        samples = [sample for _ in range(2) for batch in loader for sample in samples_in(batch)]

        assert len(samples) == 120
        assert len({roll for roll, _ in samples}) == len({roll for _, roll in samples}) == 120


def samples_in(batch: Any) -> list[tuple[float, float]]:
    """Return the random numbers in a batch of any structure."""
    if isinstance(batch[0], tuple):
        return [sample[1:] for sample in batch]
    return list(zip(np.atleast_1d(batch[1]).tolist(), np.atleast_1d(batch[2]).tolist(), strict=True))


def test_items_of_iterable_datasets_differ_in_steps_workers_and_epochs() -> None:
    for options in ({}, {"persistent_workers": True}):
        loader = loader_of(DiceStream(40), 2, batch_size=4, **options)
        batches = [batch for _ in range(2) for batch in loader]

        assert len({roll for batch in batches for roll in batch[2].tolist()}) == 80
        assert len({roll for batch in batches for roll in batch[3].tolist()}) == 80
        assert len({roll for batch in batches for roll in batch[1].tolist()}) == 4, "one for each worker in each epoch"


def test_epochs_of_kept_workers_differ_also_when_the_dataset_has_changed() -> None:
    for seeding in ("tasks", "torch"):
        loader = dice_of(1, persistent_workers=True, worker_seeding=seeding)
        rolls = []
        for epoch in range(3):
            loader.dataset.epoch = epoch
            rolls += rolls_of(loader)

        assert len(set(rolls)) == 180


def test_without_a_generator_the_seed_of_numpy_decides() -> None:
    def epochs() -> list[Any]:
        loader = loader_of(Dice(), 2, batch_size=4, shuffle=True)
        return [all_of(loader) for _ in range(2)]

    np.random.seed(3)
    first, other = epochs(), epochs()
    np.random.seed(3)

    assert first == epochs() != other


def test_a_generator_makes_all_epochs_reproducible() -> None:
    def epochs(seed: Any, workers: int = 2, **options: Any) -> list[Any]:
        loader = loader_of(Dice(), workers, batch_size=4, shuffle=True, generator=seed, **options)
        return [all_of(loader) for _ in range(3)]

    assert epochs(1) == epochs(np.random.default_rng(1)) == epochs(1, 3) != epochs(2)
    assert epochs(1, persistent_workers=True) == epochs(1, 1, prefetch_epochs=True)


def test_the_generators_of_this_process_are_left_alone() -> None:
    random.seed(1)
    np.random.seed(1)
    all_of(loader_of(Dice(), 2, generator=1))
    rolls = random.random(), np.random.rand()

    random.seed(1)
    np.random.seed(1)

    assert rolls == (random.random(), np.random.rand())


# get_worker_info and worker_init_fn


class Informed(Squares):
    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return info.id, info.num_workers, info.seed, info.dataset is self


def test_worker_info_has_number_count_and_seed() -> None:
    loader = loader_of(Informed(), 2, generator=1, worker_seeding="torch", collate_fn=list)
    samples = {sample for batch in loader for sample in batch}

    (first, second) = sorted(samples)
    assert (first[0], second[0]) == (0, 1)
    assert first[1] == second[1] == 2
    assert second[2] == first[2] + 1
    assert first[3] is second[3] is True


def test_without_workers_there_is_nothing_to_know() -> None:
    assert [batch.item() for batch in loader_of(Made(lambda i: get_worker_info() is None, 2))] == [True, True]


def test_worker_seeding_of_torch_depends_on_the_worker() -> None:
    def rolls(workers: int) -> Any:
        return rolls_of(dice_of(workers, worker_seeding="torch", batch_size=10))

    assert rolls(2) == rolls(2) != rolls(1)
    assert rolls(2)[:10] == rolls(1)[:10]


class Noted:
    """A worker_init_fn that records its worker, and random numbers at that moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        state = [worker, info.id, info.seed, random.Random(info.seed).random() == random.random()]
        (self.folder / f"{worker} {os.getpid()}").write_text(json.dumps(state))

    @property
    def calls(self) -> list[Any]:
        return sorted(json.loads(path.read_text()) for path in self.folder.iterdir())


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_is_called_once_in_each_worker_after_seeding(tmp_path: Path, persistent: bool) -> None:
    noted = Noted(tmp_path)
    loader = loader_of(Squares(), 2, worker_init_fn=noted, persistent_workers=persistent, worker_seeding="torch")
    for _ in range(2):
        list(loader)

    calls = noted.calls

    assert [call[0] for call in calls] == [call[1] for call in calls] == ([0, 1] if persistent else [0, 0, 1, 1])
    assert all(call[3] for call in calls)
    assert len({call[2] for call in calls}) == len(calls)


def test_worker_init_fn_is_called_in_the_place_of_a_dead_worker_too(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    noted = Noted(notes)

    list(loader_of(Deadly(tmp_path / "dead"), 1, batch_size=BATCH_SIZE, worker_init_fn=noted))

    assert [call[0] for call in noted.calls] == [0, 0]


def seed_by_worker(worker: int) -> None:
    """Seed as PyTorch's notes on reproducibility recommend."""
    info = get_worker_info()
    assert info is not None
    assert info.seed is not None
    random.seed(info.seed % 2**32)
    np.random.seed(info.seed % 2**32)


def draw(worker: int) -> None:
    random.random()
    np.random.rand()


@pytest.mark.parametrize("worker_init_fn", [seed_by_worker, draw])
@pytest.mark.parametrize("way", WAYS)
def test_generators_that_worker_init_fn_has_used_depend_on_the_sample_all_the_same(way: str, worker_init_fn: Any) -> None:
    one, three = (all_of(dice_of(workers, worker_init_fn=worker_init_fn, **WAYS[way])) for workers in (1, 3))

    assert one == three == all_of(dice_of(2, **WAYS[way]))


def test_attributes_set_by_worker_init_fn_are_seen_by_samples() -> None:
    def prepare(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.offset = 100 + worker

    class Shifted(Squares):
        def __getitem__(self, index: int) -> Any:
            return self.offset + index  # type: ignore[attr-defined]

    assert [batch.item() for batch in loader_of(Shifted(3), 1, worker_init_fn=prepare)] == [100, 101, 102]


def test_error_of_worker_init_fn_is_raised() -> None:
    def refuse(worker: int) -> None:
        raise LookupError(f"worker {worker} has no key")

    with pytest.raises(LookupError, match="worker 0 has no key") as caught:
        next(iter(loader_of(Squares(), 1, worker_init_fn=refuse)))

    assert caught.value.__notes__ == ["raised by worker_init_fn, in worker 0"]


class Shuffled(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(10), 10))


def test_going_on_makes_no_difference_to_a_dataset_that_is_shuffled_where_it_begins() -> None:
    before, after = (loader_of(Shuffled(), 2, batch_size=4, persistent_workers=True) for _ in range(2))
    list(before)
    next(batches := iter(before))

    after.load_state_dict(before.state_dict())

    assert all_of(after) == all_of(batches)


def test_an_iterable_dataset_may_be_shuffled_where_it_begins() -> None:
    def epochs() -> list[Any]:
        loader = loader_of(Shuffled(), 1, batch_size=5, generator=1, persistent_workers=True)
        return [all_of(loader) for _ in range(3)]

    first, second, third = epochs()

    assert [first, second, third] == epochs()
    assert first != second != third != first


def test_streams_are_divided_by_the_number_of_the_worker() -> None:
    assert sorted(sample for sample in loader_of(Stream(10), 3, batch_size=None)) == list(range(10))
