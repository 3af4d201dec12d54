"""Datasets that are only arrays: their batches are gathered, and equal those made of single samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like.data import ArrayDataset, ConcatDataset, DataLoader, Dataset, StackDataset, Subset
from dali_like.errors import SampleIndexError

ROWS = 12
FLOATS = np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3)
NUMBERS = np.arange(ROWS)
PAIRS = ArrayDataset(FLOATS, NUMBERS)
OTHERS = ArrayDataset(FLOATS + 100, NUMBERS + 100)

DATASETS: dict[str, Any] = {
    "arrays": PAIRS,
    "array": FLOATS,
    "numbers": NUMBERS,
    "booleans": ArrayDataset(NUMBERS % 2 == 0),
    "complex numbers": ArrayDataset(FLOATS.astype(np.complex64)),
    "other byte order": ArrayDataset(FLOATS.astype(">f4"), NUMBERS.astype(">i4")),
    "not contiguous": ArrayDataset(np.asfortranarray(FLOATS), NUMBERS[::-1]),
    "texts": ArrayDataset(NUMBERS.astype(str)),
    "no elements": ArrayDataset(np.zeros((ROWS, 0, 2))),
    "tuple": StackDataset(PAIRS, FLOATS),
    "dict": StackDataset(image=FLOATS, label=StackDataset(NUMBERS, NUMBERS * 2)),
    "subset": Subset(PAIRS, [5, -1, 0, 5, 7, 1]),
    "subset by array": Subset(PAIRS, np.array([5, 3, 1, 2])),
    "subset with a key out of range": Subset(PAIRS, [0, 1, ROWS]),
    "subset with bools": Subset(FLOATS, [True, False]),
    "concatenation": ConcatDataset([PAIRS, OTHERS]),
    "concatenation of subsets": ConcatDataset([Subset(PAIRS, [3, 1]), ConcatDataset([Subset(OTHERS, [4]), PAIRS])]),
    "concatenations side by side": StackDataset(ConcatDataset([NUMBERS, NUMBERS]), ConcatDataset([FLOATS, FLOATS])),
    "concatenation of other shapes": ConcatDataset([ArrayDataset(FLOATS), ArrayDataset(FLOATS[:, :1])]),
    "concatenation with another dataset": ConcatDataset([ArrayDataset(NUMBERS), [(np.int64(1),), (np.int64(2),)]]),
    "array and a list": StackDataset(FLOATS, list("abcdefghijkl")),
}

KEYS: dict[str, list[list[Any]]] = {
    "in order": [[0, 1, 2], [3, 0]],
    "negative": [[-1, 0], [-2, -1]],
    "in both parts": [[11, 12, 0, 13], [12]],
    "of NumPy": [[np.int64(1), np.int32(0)], [2]],
    "bool": [[True, False]],
    "out of range": [[0, 1], [0, 99]],
    "too negative": [[0, -99]],
    "very large": [[0, 2**70]],
    "float": [[0.0, 1.0]],
    "empty": [[0], []],
}


class BySample(Dataset[Any]):
    """The same samples, from a dataset that the loader knows nothing about."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, key: Any) -> Any:
        return self.dataset[key]


def batches_of(dataset: Any, batches: Sequence[Any]) -> list[Any]:
    """Return the description of each batch, and at last the type of an error."""
    found: list[Any] = []
    try:
        for batch in DataLoader(dataset, batch_sampler=batches):
            found.append(described(batch))
    except Exception as error:
        found.append(type(error))
    return found


def described(batch: Any) -> Any:
    if isinstance(batch, np.ndarray):
        return batch.dtype, batch.shape, batch.strides, batch.tolist(), batch.flags.writeable
    if isinstance(batch, dict):
        return {key: described(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch), [described(part) for part in batch]
    return batch


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("name", DATASETS)
def test_batches_of_arrays_equal_those_of_their_samples(name: str, keys: str) -> None:
    dataset = DATASETS[name]

    assert batches_of(dataset, KEYS[keys]) == batches_of(BySample(dataset), KEYS[keys])


class Counted(ArrayDataset):
    """Counts how often its arrays are read."""

    def __init__(self, *arrays: Any) -> None:
        self.num_reads = 0
        super().__init__(*arrays)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:  # type: ignore[override]
        self.num_reads += 1
        return self._arrays

    @arrays.setter
    def arrays(self, arrays: tuple[NDArray[Any], ...]) -> None:
        self._arrays = arrays


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(2048)), lambda d: StackDataset(d, NUMBERS_2048)])
@pytest.mark.parametrize(("num_workers", "most"), [(0, 40), (2, 1200)])
def test_arrays_are_read_once_for_each_task_instead_of_once_for_each_sample(wrap: Any, num_workers: int, most: int) -> None:
    counted = Counted(np.arange(2048))  # two workers get the first 4 batches before the schema is known, 256 samples
    context = "thread" if num_workers else None
    loader = DataLoader(wrap(counted), 64, num_workers=num_workers, multiprocessing_context=context)

    batches = list(loader)

    assert len(batches) == 32
    assert counted.num_reads <= most


NUMBERS_2048 = np.arange(2048)


def test_a_method_that_a_subclass_changes_is_called_for_each_sample() -> None:
    class Doubled(ArrayDataset):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)[0] * 2

    (batch,) = DataLoader(Doubled(np.arange(3)), 3)

    assert batch.tolist() == [0, 2, 4]


def test_getitems_that_a_subclass_adds_is_called() -> None:
    class Doubled(ArrayDataset):
        def __getitems__(self, keys: list[int]) -> list[int]:
            return [key * 2 for key in keys]

    (batch,) = DataLoader(Doubled(np.arange(3)), 3)

    assert batch.tolist() == [0, 2, 4]


def test_a_method_that_the_program_replaces_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrayDataset, "__getitem__", lambda self, index: index * 2)

    (batch,) = DataLoader(ArrayDataset(np.arange(3)), 3)

    assert batch.tolist() == [0, 2, 4]


def test_arrays_that_the_program_replaces_within_an_epoch_are_used_from_then_on() -> None:
    dataset = ArrayDataset(np.arange(4))
    batches = iter(DataLoader(dataset, 2))
    next(batches)

    dataset.arrays = (np.arange(4.0) * 10,)

    assert next(batches)[0].tolist() == [20.0, 30.0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_missing_row_is_replaced_by_on_error(num_workers: int) -> None:
    keys = [0, 1, 2, 9]
    loader = DataLoader(
        ConcatDataset([np.arange(4)]),
        4,
        sampler=keys * 8,
        num_workers=num_workers,
        multiprocessing_context="thread" if num_workers else None,
        on_error=lambda key, error: np.int64(-key),
    )

    assert [batch.tolist() for batch in loader] == [[0, 1, 2, -9]] * 8


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_missing_row_raises_the_error_of_the_dataset(num_workers: int) -> None:
    context = "thread" if num_workers else None
    keys = [0, 1] * 8 + [0, 9]
    loader = DataLoader(
        ConcatDataset([np.arange(4)]), 2, sampler=keys, num_workers=num_workers, multiprocessing_context=context
    )

    with pytest.raises(SampleIndexError, match="there is no sample 9 in a dataset of 4"):
        list(loader)


@pytest.mark.parametrize(
    "name", ["arrays", "dict", "complex numbers", "concatenation", "concatenations side by side", "subset"]
)
def test_batches_of_workers_equal_those_of_the_main_process(name: str) -> None:
    dataset = DATASETS[name]
    keys = list(range(len(dataset))) * 8  # most batches come after the schema is known

    ours = [
        described(batch) for batch in DataLoader(dataset, 6, sampler=keys, num_workers=2, multiprocessing_context="thread")
    ]

    assert ours == [described(batch) for batch in DataLoader(BySample(dataset), 6, sampler=keys)]


@pytest.mark.parametrize("wrap", [lambda d: Subset(d, range(4)), lambda d: StackDataset(NUMBERS, d)])
def test_a_dataset_inside_of_another_gets_whole_batches_by_its_getitems(wrap: Any) -> None:
    class OfBatches(Dataset[Any]):
        def __len__(self) -> int:
            return ROWS

        def __getitems__(self, keys: list[int]) -> list[int]:
            return [len(keys)] * len(keys)

    batch = next(iter(DataLoader(wrap(OfBatches()), 4, num_workers=2, multiprocessing_context="thread")))

    assert np.asarray(batch)[..., -4:].ravel()[-4:].tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize("dataset", [PAIRS, Subset(PAIRS, range(ROWS))])
def test_the_time_of_gathered_samples_is_counted_for_each_of_them(dataset: Any) -> None:
    loader = DataLoader(dataset, ROWS)

    list(loader)

    (source,) = loader.statistics().sources
    assert source.unit == "sample"
    assert source.callback.count == ROWS
