"""Datasets of the real PyTorch and of dali_like side by side."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from dali_like import data  # noqa: E402
from tests.parity.torch_side import BOTH, assert_same_error, generator, outcomes  # noqa: E402

pytestmark = pytest.mark.peers


def assert_same(make: Callable[[Any], Any]) -> None:
    theirs, ours = outcomes(make)

    assert not isinstance(theirs, Exception)
    assert ours == theirs
    assert type(ours) is type(theirs)


class Many:
    """A dataset that can be asked for several samples at once."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getitem__(self, index: int) -> str:
        return self.text[index]

    def __getitems__(self, indices: list[int]) -> list[str]:
        return [self.text[index].upper() for index in indices]

    def __len__(self) -> int:
        return len(self.text)


def stream(module: Any, *items: int) -> Any:
    class Stream(module.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(items)

        def __len__(self) -> int:
            return len(items)

    return Stream()


def subset_without_getitems(module: Any) -> Any:
    class Part(module.Subset):
        def __getitem__(self, idx: Any) -> Any:
            return None

    return Part("abc", [0])


# Their elements


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module.StackDataset("abc", [1, 2, 3])[1],
        lambda module: module.StackDataset(a="abc", b=[1, 2, 3])[-1],
        lambda module: module.StackDataset(Many("abc"), "def").__getitems__([2, 0]),
        lambda module: module.StackDataset(a=Many("abc"), b="def").__getitems__([2, 0]),
        lambda module: module.StackDataset("abc").__getitems__([]),
        lambda module: len(module.StackDataset("abc")),
        lambda module: module.ConcatDataset(["ab", "", "cde"]).cumulative_sizes,
        lambda module: [module.ConcatDataset(["ab", "", "cde"])[i] for i in range(-5, 5)],
        lambda module: list(module.ConcatDataset(["ab", "", "cde"])),
        lambda module: len(module.ConcatDataset(iter(["ab", "c"]))),
        lambda module: list(stream(module, 1, 2) + stream(module, 3)),
        lambda module: len(stream(module, 1, 2) + stream(module, 3)),
        lambda module: list(itertools.islice(module.ChainDataset([stream(module, 1), "abc"]), 1)),
        lambda module: [module.Subset("abcd", [3, 1])[i] for i in (0, 1, -1)],
        lambda module: module.Subset(np.arange(9), [3, 1, 8])[[2, 0]].tolist(),
        lambda module: module.Subset("abcd", [3, 1]).__getitems__([1, 0]),
        lambda module: module.Subset(Many("abcd"), [3, 1]).__getitems__([1, 0]),
        lambda module: module.Subset({"x": 5}, ["x"])[0],
        lambda module: (module.Subset("ab", [1]) + module.Subset("cd", [0]))[1],
    ],
)
def test_samples(make: Callable[[Any], Any]) -> None:
    assert_same(make)


@pytest.mark.parametrize("index", [0, -1, [2, 0], slice(1, 3)])
def test_rows_of_arrays_are_rows_of_tensors(index: Any) -> None:
    arrays = np.arange(12).reshape(3, 4), np.array([0.5, 1.5, 2.5])

    theirs = torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays))[index]
    ours = data.ArrayDataset(*arrays)[index]

    assert isinstance(ours, tuple)
    assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]


def test_arrays_may_be_tensors() -> None:
    assert torch.equal(data.ArrayDataset(torch.arange(6).reshape(3, 2))[1][0], torch.tensor([2, 3]))


# random_split


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_splits(lengths: list[int], seed: int) -> None:
    with warnings.catch_warnings(action="ignore"):  # lengths whose sum is 1 are fractions
        theirs, ours = (module.random_split(range(sum(lengths)), lengths, generator(seed)) for module in BOTH)

    assert [part.indices for part in ours] == [part.indices for part in theirs]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 60), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_splits_by_fractions(shares: list[int], length: int, seed: int) -> None:
    fractions = [share / sum(shares) for share in shares]
    with warnings.catch_warnings(action="ignore"):
        theirs, ours = outcomes(lambda module: module.random_split(range(length), fractions, generator(seed)))

    if isinstance(theirs, Exception):  # a sum that rounding has made greater than 1
        assert isinstance(ours, type(theirs))
    else:
        assert [part.indices for part in ours] == [part.indices for part in theirs]


def test_the_split_that_a_test_of_pytorch_pins() -> None:
    splits = data.random_split(range(10), [3, 7], generator=generator(1))

    assert [split.indices for split in splits] == [[5, 6, 1], [2, 0, 8, 9, 3, 7, 4]]


def test_an_empty_split_is_warned_of() -> None:
    texts = []
    for module in BOTH:
        with pytest.warns(UserWarning, match="Length of split at index 1 is 0") as caught:
            module.random_split(range(1), [0.5, 0.5])
        texts.append([str(warning.message) for warning in caught])

    assert texts[0] == texts[1]


# Refusals


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module.Dataset()[0],
        lambda module: len(module.Dataset()),
        lambda module: module.IterableDataset(),
        lambda module: module.StackDataset(),
        lambda module: module.StackDataset("ab", "abc"),
        lambda module: module.StackDataset(a="ab", b="abc"),
        lambda module: module.StackDataset("ab", b="ab"),
        lambda module: module.ConcatDataset([]),
        lambda module: module.ConcatDataset(["ab", stream(module, 1)]),
        lambda module: module.ConcatDataset(["ab", "c"])[-4],
        lambda module: list(module.ChainDataset(["ab"])),
        lambda module: len(module.ChainDataset(["ab"])),
        subset_without_getitems,
        lambda module: module.random_split(range(10), [3, 8]),
        lambda module: module.random_split(range(10), [0.5, 0.6]),
        lambda module: module.random_split(range(10), [1.5, -0.5]),
    ],
)
def test_errors(make: Callable[[Any], Any]) -> None:
    assert_same_error(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module.ConcatDataset(["ab", "c"])[3],
        lambda module: module.random_split(range(10), [5.0, 5.0]),
        lambda module: module.Subset("ab", [0])[1],
    ],
)
def test_errors_of_datasets_have_pytorchs_types(make: Callable[[Any], Any]) -> None:
    assert_same_error(make, text=False)


def test_arrays_of_different_lengths() -> None:
    assert_same_error(lambda module: getattr(module, "TensorDataset", data.ArrayDataset)(torch.zeros(3), torch.zeros(4)))
