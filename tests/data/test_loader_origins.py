"""``origins_of`` and ``origins=True`` of loaders: where the samples of a batch come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader, IterableDataset, Subset
from dali_like.errors import ArgumentClashError, OriginError
from dali_like.sources.origins import UNKNOWN, Origin
from tests.data.loader_cases import MANY_WORKERS

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

#: Arguments of loaders without workers, and with workers.
WAYS: dict[str, dict[str, Any]] = {
    "serial": {},
    "thread": {"num_workers": 2, "multiprocessing_context": "thread"},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
}


class Numbers:
    """Samples that show their index, and have files."""

    def __init__(self, count: int = 22) -> None:
        self.files = [f"photo-{i}.png" for i in range(count)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full(3, index, np.float32), index


def is_kept(number: int) -> bool:
    return number % 3 > 0


def document(number: int) -> Any:
    return np.full(1 + number % 5, number)


@pytest.mark.parametrize("way", WAYS)
def test_origins_of_a_shuffled_loader_are_the_indices_and_files_of_the_samples(way: str) -> None:
    loader = DataLoader(Numbers(), 4, shuffle=True, **WAYS[way])
    for _ in range(2):
        count = 0
        for batch in loader:
            assert loader.origins_of(batch) == [Origin(i, f"photo-{i}.png") for i in batch[1].tolist()]
            count += len(batch[1])
        assert count == 22


def test_origins_of_earlier_batches_are_known_for_eight_batches() -> None:
    loader = DataLoader(Numbers(), 2)
    batches = list(loader)

    assert [row.index for row in loader.origins_of(batches[3])] == [6, 7]
    with pytest.raises(OriginError, match="not one of the last 8 batches"):
        loader.origins_of(batches[2])
    with pytest.raises(OriginError, match="as the loader has yielded it"):
        loader.origins_of(list(batches[10]))


def test_origins_after_a_resume_are_those_of_the_samples() -> None:
    first = DataLoader(Numbers(), 4, shuffle=True)
    next(iter(first))
    state = first.state_dict()

    loader = DataLoader(Numbers(), 4, shuffle=True, **WAYS["fork"])
    loader.load_state_dict(state)

    for batch in loader:
        assert [row.index for row in loader.origins_of(batch)] == batch[1].tolist()


def test_origins_of_a_subset_have_the_files_of_the_dataset() -> None:
    loader = DataLoader(Subset(Numbers(), [5, 3]), 2)

    assert loader.origins_of(next(iter(loader))) == [Origin(0, "photo-5.png"), Origin(1, "photo-3.png")]


def test_origins_without_batches_have_one_row() -> None:
    loader = DataLoader(Numbers(), None)

    assert loader.origins_of(next(iter(loader))) == [Origin(0, "photo-0.png")]


@pytest.mark.parametrize("way", WAYS)
def test_column_of_a_map_style_dataset_has_the_indices(way: str) -> None:
    loader = DataLoader(Numbers(), 4, shuffle=True, origins=True, **WAYS[way])
    found = []
    for batch in loader:
        assert len(batch) == 3
        assert batch[2].dtype == np.int64
        assert np.array_equal(batch[2], batch[1])
        assert [row.index for row in loader.origins_of(batch)] == batch[2].tolist()
        found += batch[2].tolist()
    assert sorted(found) == list(range(22))


@pytest.mark.parametrize(
    ("sample", "column"), [((1, 2), 2), ([1, 2], 2), ({"a": 1}, "origins"), (7, 1)], ids=["tuple", "list", "dict", "number"]
)
def test_column_is_the_last_part_of_a_batch(sample: Any, column: Any) -> None:
    batch = next(iter(DataLoader([sample] * 3, 3, origins=True)))

    assert len(batch) == (2 if isinstance(sample, dict | int) else 3)
    assert batch[column].tolist() == [0, 1, 2]


def test_column_of_other_keys_has_their_origins() -> None:
    class Texts(dict[str, int]):
        pass

    loader = DataLoader(Texts(a=1, b=2), batch_sampler=[["b", "a"]], origins=True)

    assert next(iter(loader))[1] == [Origin("b"), Origin("a")]


def test_column_refuses_samples_with_a_field_of_its_name() -> None:
    with pytest.raises(ArgumentClashError, match='a field "origins"'):
        next(iter(DataLoader([{"origins": 1}], 1, origins=True)))


def mixture() -> ComposedDataset:
    inputs = [ComposedDataset.source(range(30)), ComposedDataset.source(range(100, 110))]
    return ComposedDataset.mix(inputs, [3, 1], block=8, names=["a", "b"]).shuffle()


def truth(number: int) -> Origin:
    return Origin(number % 100, "", "b" if number >= 100 else "a")


@pytest.mark.parametrize("is_sharded", [False, True], ids=["random access", "logical shards"])
@pytest.mark.parametrize("has_column", [False, True], ids=["asked", "column"])
@pytest.mark.parametrize("way", WAYS)
def test_origins_of_a_mixture_are_the_source_and_the_index_there(way: str, has_column: bool, is_sharded: bool) -> None:
    dataset = mixture().filter(is_kept) if is_sharded else mixture()
    loader = DataLoader(dataset, 4, origins=has_column, **WAYS[way])
    for epoch in range(2):
        count = 0
        for batch in loader:
            numbers = batch[0] if has_column else batch
            expected = [truth(number) for number in numbers.tolist()]
            assert loader.origins_of(batch) == expected
            if has_column:
                assert batch[1] == expected
            count += 1
        assert count > 5, epoch


@pytest.mark.parametrize("way", WAYS)
def test_column_of_packs_has_the_origins_of_their_segments_also_after_a_resume(way: str) -> None:
    packs = mixture().map(document).pack(8)

    def rows(loader: Any, most: int) -> list[tuple[Any, Any]]:
        return [(repr(batch["tokens"]), batch["origins"]) for _, batch in zip(range(most), loader, strict=False)]

    whole = rows(DataLoader(packs, 2, origins=True), 100)
    first = DataLoader(packs, 2, origins=True)
    begun = rows(first, 2)
    state = first.state_dict()
    loader = DataLoader(packs, 2, origins=True, **WAYS[way])
    loader.load_state_dict(state)

    assert len(whole) > 6
    assert begun + rows(loader, 100) == whole
    for batch in DataLoader(packs, 2, origins=True):
        for tokens, ids, origins in zip(batch["tokens"], batch["tokens_segment_ids"], batch["origins"], strict=True):
            assert origins == tuple(truth(int(tokens[ids == i][0])) for i in range(1, ids.max() + 1))


def test_a_replaced_element_of_logical_shards_has_its_own_origin() -> None:
    def fail(number: int) -> int:
        if number == 4:
            raise ValueError
        return number

    dataset = ComposedDataset.source(range(12)).filter(is_kept).map(fail).with_options(shards=1)

    (batch,) = DataLoader(dataset, 12, origins=True, on_error="skip")

    assert [row.index for row in batch[1]] == batch[0].tolist()
    (other,) = DataLoader(dataset, 12, origins=True, on_error=lambda index, error: -1)
    assert [row.index for row in other[1]] == [1, 2, None, 5, 7, 8, 10, 11]


def test_origins_of_an_iterable_dataset_are_unknown() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    loader = DataLoader(Stream(), 3)
    batch = next(iter(loader))

    with pytest.raises(OriginError, match="iterable dataset"):
        loader.origins_of(batch)
    with pytest.raises(ArgumentClashError, match="iterable"):
        DataLoader(Stream(), 3, origins=True)


def test_origins_of_files_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    loader = DataLoader(ComposedDataset.from_jsonl(path), 2)

    assert loader.origins_of(next(iter(loader))) == [Origin(0, str(path)), Origin(1, str(path))]


class FailsAgain:
    """Returns each number once, and raises an error when it is asked for the same number again."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, number: int) -> int:
        if number in self.seen:
            raise FileNotFoundError(f"{number} is gone")
        self.seen.add(number)
        return number


def test_origins_in_logical_shards_raise_the_error_of_an_element_that_is_gone() -> None:
    loader = DataLoader(ComposedDataset.source(range(40)).filter(is_kept).map(FailsAgain()), 4)
    batches = iter(loader)
    next(batches)
    batch = next(batches)

    with pytest.raises(FileNotFoundError, match="is gone"):
        loader.origins_of(batch)


def test_origins_in_logical_shards_are_unknown_for_elements_that_on_error_has_replaced() -> None:
    def broken(number: int) -> int:
        if number == 4:
            raise ValueError("broken")
        return number

    dataset = ComposedDataset.source(range(40)).filter(is_kept).map(broken)
    loader = DataLoader(dataset, 4, on_error=lambda position, error: -1)
    found = {int(value): row for batch in loader for value, row in zip(batch, loader.origins_of(batch), strict=True)}

    assert found.pop(-1) == UNKNOWN
    assert all(row == Origin(value) for value, row in found.items())
