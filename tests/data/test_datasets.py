"""Datasets: samples, combinations and errors."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.data import (
    ArrayDataset,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    random_split,
)
from dali_like.errors import (
    ArgumentError,
    ArgumentTypeError,
    DatasetError,
    MissingMethodError,
    SampleIndexError,
)


class Letters(Dataset[str]):
    """A map-style dataset without ``__getitems__``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getitem__(self, index: Any) -> str:
        return self.text[index]

    def __len__(self) -> int:
        return len(self.text)


class ManyLetters(Letters):
    """A dataset with ``__getitems__``, which records its arguments."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.asked: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> list[str]:
        self.asked.append(indices)
        return [self.text[index] for index in indices]


class Stream(IterableDataset[int]):
    def __init__(self, *items: int) -> None:
        self.items = items

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


# The base classes


def test_a_dataset_without_getitem_says_so() -> None:
    with pytest.raises(MissingMethodError, match=r"Subclasses of Dataset should implement __getitem__\. Dataset does not"):
        Dataset()[0]


def test_a_dataset_has_no_length_by_itself() -> None:
    with pytest.raises(TypeError, match="has no len"):
        len(Dataset())  # type: ignore[arg-type]


def test_an_iterable_dataset_without_iter_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        IterableDataset()  # type: ignore[abstract]


def test_adding_datasets_concatenates_them() -> None:
    both = Letters("ab") + Letters("c")

    assert isinstance(both, ConcatDataset)
    assert [both[i] for i in range(3)] == ["a", "b", "c"]


def test_adding_iterable_datasets_chains_them() -> None:
    both = Stream(1, 2) + Stream(3)

    assert isinstance(both, ChainDataset)
    assert list(both) == [1, 2, 3]


# ArrayDataset


def test_a_sample_is_a_row_of_each_array() -> None:
    images, labels = np.arange(12).reshape(3, 2, 2), np.array([5, 6, 7])

    image, label = ArrayDataset(images, labels)[1]

    assert image.tolist() == [[4, 5], [6, 7]]
    assert label == 6


def test_rows_are_views() -> None:
    images = np.zeros((3, 2))

    ArrayDataset(images)[1][0][:] = 1

    assert images.tolist() == [[0, 0], [1, 1], [0, 0]]


def test_a_list_of_indices_gives_a_batch_at_once() -> None:
    assert ArrayDataset(np.arange(5))[[1, 4]][0].tolist() == [1, 4]


def test_arrays_are_kept_without_conversion(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6).reshape(3, 2))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")

    dataset = ArrayDataset(mapped, [1, 2, 3])

    assert dataset.arrays[0] is mapped
    assert isinstance(dataset.arrays[1], np.ndarray)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros(3), np.zeros((4, 2))), "Size mismatch between tensors: the arrays have 3, 4 rows"),
        ((), "at least one array"),
        ((np.zeros(3), np.float32(1)), "an array has no dimensions"),
    ],
)
def test_arrays_that_make_no_dataset(arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        ArrayDataset(*arrays)


# StackDataset


def test_samples_side_by_side_are_tuples() -> None:
    dataset = StackDataset("abc", [1, 2, 3])

    assert dataset[1] == ("b", 2)
    assert len(dataset) == 3


def test_named_datasets_make_dicts() -> None:
    assert StackDataset(letter="abc", number=[1, 2, 3])[2] == {"letter": "c", "number": 3}


@pytest.mark.parametrize("named", [False, True])
def test_several_samples_are_asked_for_at_once_where_that_is_possible(named: bool) -> None:
    many, one = ManyLetters("abc"), Letters("xyz")
    dataset = StackDataset(many=many, one=one) if named else StackDataset(many, one)

    samples = dataset.__getitems__([2, 0])

    assert many.asked == [[2, 0]]
    assert samples == ([{"many": "c", "one": "z"}, {"many": "a", "one": "x"}] if named else [("c", "z"), ("a", "x")])


def test_a_dataset_that_returns_too_few_samples_is_found_out() -> None:
    class Forgetful(ManyLetters):
        def __getitems__(self, indices: list[int]) -> list[str]:
            return super().__getitems__(indices[1:])

    with pytest.raises(ArgumentError, match=r"Nested dataset's output size mismatch\. Expected 2, got 1"):
        StackDataset(Forgetful("abc")).__getitems__([0, 1])


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "At least one dataset should be passed"),
        (("ab",), {"other": "ab"}, "but both types are given"),
        (("ab", "abc"), {}, "Size mismatch between datasets: their lengths are 2, 3"),
        ((), {"one": "ab", "other": "abc"}, "Size mismatch between datasets"),
    ],
)
def test_datasets_that_cannot_be_stacked(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        StackDataset(*args, **kwargs)


# ConcatDataset


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_concatenated_datasets_are_one_list(lengths: list[int]) -> None:
    numbers = itertools.count()
    parts = [[next(numbers) for _ in range(length)] for length in lengths]
    whole = [number for part in parts for number in part]

    dataset = ConcatDataset(parts)

    assert [dataset[i] for i in range(len(dataset))] == whole
    assert [dataset[i] for i in range(-len(whole), 0)] == whole
    assert list(dataset) == whole  # the sequence protocol: IndexError ends it


def test_an_index_behind_the_end_is_an_index_error() -> None:
    with pytest.raises(SampleIndexError, match="no sample 3 in a dataset of 3"):
        ConcatDataset(["ab", "c"])[3]


def test_a_negative_index_before_the_beginning_is_a_value_error() -> None:
    with pytest.raises(ArgumentError, match="absolute value of index should not exceed dataset length"):
        ConcatDataset(["ab", "c"])[-4]


@pytest.mark.parametrize(
    ("datasets", "message"),
    [([], "datasets should not be an empty iterable"), (["ab", Stream(1)], "does not support IterableDataset")],
)
def test_datasets_that_cannot_be_concatenated(datasets: list[Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        ConcatDataset(datasets)


# ChainDataset


def test_a_chained_dataset_is_begun_when_the_one_before_has_ended() -> None:
    class Unwilling(Stream):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("begun too early")

    assert list(itertools.islice(ChainDataset([Stream(1, 2), Unwilling()]), 2)) == [1, 2]


def test_a_chain_is_as_long_as_its_parts() -> None:
    assert len(ChainDataset([Stream(1, 2), Stream(3)])) == 3


def test_a_map_style_dataset_in_a_chain_is_noticed_when_its_turn_comes() -> None:
    chain = iter(ChainDataset([Stream(1), Letters("ab")]))

    assert next(chain) == 1
    with pytest.raises(DatasetError, match="ChainDataset only supports IterableDataset"):
        next(chain)


# Subset


def test_a_subset_renames_keys() -> None:
    dataset = Subset({"x": 1, "y": 2}, ["y", "x"])

    assert [dataset[0], dataset[1], dataset[-1]] == [2, 1, 1]
    assert len(dataset) == 2


def test_a_list_of_positions_is_one_request() -> None:
    dataset = Subset(np.arange(10) * 10, [3, 1, 4])

    assert dataset[[2, 0]].tolist() == [40, 30]


def test_a_subset_asks_for_several_samples_at_once_where_that_is_possible() -> None:
    many = ManyLetters("abcde")

    assert Subset(many, [4, 2, 0]).__getitems__([0, 2]) == ["e", "a"]
    assert many.asked == [[4, 0]]


def test_a_subset_asks_for_one_sample_at_a_time_otherwise() -> None:
    assert Subset(Letters("abcde"), [4, 2, 0]).__getitems__([0, 2]) == ["e", "a"]


def test_a_subset_that_overrides_getitem_alone_is_refused() -> None:
    class Loud(Subset[str]):
        def __getitem__(self, idx: Any) -> str:
            return super().__getitem__(idx).upper()

    with pytest.raises(MissingMethodError, match="Loud overrides __getitem__ but not __getitems__"):
        Loud("abc", [0])


def test_a_subset_with_both_methods_of_its_own() -> None:
    class Loud(Subset[str]):
        def __getitem__(self, idx: Any) -> str:
            return super().__getitem__(idx).upper()

        def __getitems__(self, indices: Any) -> list[str]:
            return [self[idx] for idx in indices]

    assert Loud("abc", [2, 0]).__getitems__([0, 1]) == ["C", "A"]


# random_split


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(lambda lengths: sum(lengths) != 1), st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_splits_have_their_lengths_and_no_sample_twice(lengths: list[int], seed: int) -> None:
    splits = random_split(range(sum(lengths)), lengths, generator=seed)

    assert [len(split) for split in splits] == lengths
    assert sorted(index for split in splits for index in split.indices) == list(range(sum(lengths)))


@pytest.mark.parametrize(
    ("length", "fractions", "expected"),
    [
        (10, [0.5, 0.5], [5, 5]),
        (10, [0.33, 0.33, 0.34], [4, 3, 3]),
        (7, [0.3, 0.3, 0.4], [3, 2, 2]),
        (5, [1.0], [5]),
        (5, [1], [5]),
    ],
)
def test_fractions_are_rounded_down_and_the_rest_goes_to_the_first(
    length: int, fractions: list[float], expected: list[int]
) -> None:
    assert [len(split) for split in random_split(range(length), fractions)] == expected


def test_an_empty_split_is_warned_of_at_the_line_of_the_user() -> None:
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0") as caught:
        random_split(range(1), [0.5, 0.5])

    assert [warning.filename for warning in caught] == [__file__]


def test_splits_depend_on_the_seed() -> None:
    first, again, other = (random_split(range(50), [50], generator=seed)[0].indices for seed in (1, 1, 2))

    assert first == again != other


def test_a_generator_goes_on_from_split_to_split() -> None:
    generator = np.random.default_rng(1)

    assert random_split(range(50), [50], generator)[0].indices != random_split(range(50), [50], generator)[0].indices


def test_without_a_generator_the_seed_of_numpy_decides() -> None:
    splits = []
    for _ in range(2):
        np.random.seed(7)
        splits.append([random_split(range(50), [50])[0].indices for _ in range(2)])

    assert splits[0] == splits[1]
    assert splits[0][0] != splits[0][1]


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ([3, 8], ArgumentError, "Sum of input lengths does not equal the length of the input dataset!"),
        ([0.5, 0.6], ArgumentError, "Sum of input lengths does not equal"),
        ([1.5, -0.5], ArgumentError, "Fraction at index 0 is not between 0 and 1"),
        ([5.0, 5.0], ArgumentTypeError, r"integers, or fractions that sum up to 1, but got \[5.0, 5.0\]"),
        ([12, -2], ArgumentError, r"should not be negative, but got \[12, -2\]"),
    ],
)
def test_lengths_that_make_no_splits(lengths: list[float], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        random_split(range(10), lengths)


def test_a_wrong_generator_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match=r"numpy.random.Generator, a seed or a torch.Generator, but got 'dice'"):
        random_split(range(10), [10], generator="dice")


@pytest.mark.parametrize(
    "dataset",
    [
        ArrayDataset(np.arange(3), np.arange(3)),
        StackDataset("abc", "def"),
        ConcatDataset(["abc", "def"]),
        ChainDataset([Stream(1), Stream(2)]),
        Subset("abc", [2, 1]),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_datasets_can_be_pickled(dataset: Any) -> None:
    copied = pickle.loads(pickle.dumps(dataset))

    if isinstance(dataset, IterableDataset):
        assert list(copied) == list(dataset)
    else:
        assert [copied[i] for i in range(len(copied))] == [dataset[i] for i in range(len(dataset))]
