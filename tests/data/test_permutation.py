"""Permutations without memory: they are permutations, have inverses, and pass statistical tests."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like.data import BlockPermutation, Permutation
from dali_like.errors import ArgumentError
from dali_like.sources.permutation import Neighborhoods

#: Lengths of tables and networks, at the border between them, and around networks without superfluous pairs.
LENGTHS = (0, 1, 2, 7, 4096, 4097, 71 * 71, 71 * 71 + 1, 50_000)
HUGE = 10**12

#: The first numbers of some orders: of the longest table, and of networks.
FOR_EVER = {
    4096: [2707, 414, 3343],
    4097: [729, 3562, 725],
    71 * 71: [994, 1940, 1412],
    HUGE: [180148360818, 775888863090, 568323088535],
}


def order_of(permutation: Permutation | BlockPermutation) -> list[int]:
    return [permutation[position] for position in range(len(permutation))]


# Permutations


@pytest.mark.parametrize("length", [1, 71, 4097, 50_000])
def test_neighborhoods_have_the_same_order(length: int) -> None:
    order = Permutation(length, 3)
    positions = [*range(length)][: 3 * 1024 + 7] + np.random.default_rng(1).integers(0, length, 500).tolist()
    neighborhoods = Neighborhoods(order)

    assert [neighborhoods[position] for position in positions] == order[np.array(positions)].tolist()


def test_neighborhoods_look_up_few_single_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    neighborhoods = Neighborhoods(Permutation(50_000, 3))
    looked_up: list[Any] = []
    look_up = Permutation.__getitem__
    monkeypatch.setattr(Permutation, "__getitem__", lambda *args: looked_up.append(args) or look_up(*args))

    for position in np.random.default_rng(1).permutation(4096).tolist():  # as the draws of a mixture in a block
        neighborhoods[position]

    assert len(looked_up) <= 4 * 25


@pytest.mark.parametrize("length", LENGTHS)
def test_has_each_number_once(length: int) -> None:
    assert sorted(order_of(Permutation(length, seed=5))) == list(range(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_array_of_positions_equals_single_positions(length: int) -> None:
    permutation = Permutation(length, seed=5)

    assert permutation[np.arange(length)].tolist() == order_of(permutation)


@pytest.mark.parametrize("length", LENGTHS)
def test_numbers_are_found(length: int) -> None:
    permutation = Permutation(length, seed=5)
    numbers = permutation[np.arange(length)]

    assert permutation.index(numbers).tolist() == list(range(length))
    assert all(permutation.index(int(number)) == position for position, number in enumerate(numbers[:50]))


@given(length=st.integers(1, 1 << 62), share=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 1 << 64))
def test_way_back_from_anywhere(length: int, share: float, seed: int) -> None:
    permutation = Permutation(length, seed)
    position = int(length * share) % length

    number = permutation[position]

    assert 0 <= number < length
    assert permutation.index(number) == position
    assert permutation[np.array([position])] == number


def test_positions_of_any_shape() -> None:
    permutation = Permutation(HUGE)
    positions = np.arange(6, dtype=np.uint16).reshape(2, 3)

    numbers = permutation[positions]

    assert numbers.shape == (2, 3)
    assert numbers.dtype == np.int64
    assert numbers[1, 2] == permutation[5]


def test_negative_positions_count_from_the_end() -> None:
    permutation = Permutation(HUGE)

    assert permutation[-1] == permutation[HUGE - 1]


def test_order_follows_from_seed_and_epoch() -> None:
    orders = {(seed, epoch): tuple(Permutation(HUGE, seed, epoch)[np.arange(8)]) for seed in (0, 1) for epoch in (0, 1)}

    assert len(set(orders.values())) == 4
    assert orders[1, 0] == tuple(Permutation(HUGE, 1, 0)[np.arange(8)])


@pytest.mark.parametrize(("length", "numbers"), FOR_EVER.items())
def test_order_is_for_ever(length: int, numbers: list[int]) -> None:
    """A resumed epoch may run with another version of this library."""
    assert Permutation(length, seed=1, epoch=2)[np.arange(3)].tolist() == numbers


# Statistical tests


def test_short_orders_are_equally_likely() -> None:
    seeds = range(2400)

    counts = Counter(tuple(order_of(Permutation(4, seed))) for seed in seeds)

    assert len(counts) == math.factorial(4)
    assert chi_squared(np.array(list(counts.values())), 100) < 3


@pytest.mark.parametrize("make", ["network", "numpy"])
@pytest.mark.parametrize("lag", [1, 2, 71, 142, 2500])
def test_neighbours_are_independent(make: str, lag: int) -> None:
    """Counts pairs of numbers at a distance by their sixteenths: 71 is the quotient of the network."""
    length = 5000
    counts = np.zeros((16, 16))

    for seed in range(20):
        order = orders(make)(length, seed)
        np.add.at(counts, (order[lag:] * 16 // length, order[:-lag] * 16 // length), 1)

    assert chi_squared(counts, counts.sum() / counts.size) < 1.5


@pytest.mark.parametrize("make", ["network", "numpy"])
def test_number_of_fixed_points(make: str) -> None:
    """The number has a Poisson distribution around 1."""
    positions = np.arange(5000)

    counts = Counter(int((orders(make)(5000, seed) == positions).sum()) for seed in range(600))

    expected = [600 / math.e / math.factorial(number) for number in range(4)]
    seen = [counts[number] for number in range(4)]
    assert chi_squared(np.array(seen), np.array(expected)) < 4


@pytest.mark.parametrize("make", ["network", "numpy"])
def test_number_of_descents(make: str) -> None:
    """On average half of the length, with a variance of a twelfth of it."""
    length, seeds = 5000, 200

    descents = [int((np.diff(orders(make)(length, seed)) < 0).sum()) for seed in range(seeds)]

    assert abs(np.mean(descents) - (length - 1) / 2) < 4 * math.sqrt(length / 12 / seeds)
    assert 0.7 < np.var(descents) / (length / 12) < 1.4


@pytest.mark.parametrize("make", ["network", "numpy"])
def test_orders_of_successive_epochs_are_independent(make: str) -> None:
    length = 5000
    counts = np.zeros((16, 16))

    for epoch in range(20):
        now, later = (orders(make)(length, 0, each) for each in (epoch, epoch + 1))
        np.add.at(counts, (now * 16 // length, later * 16 // length), 1)

    assert chi_squared(counts, counts.sum() / counts.size) < 1.5


def test_pieces_of_a_huge_one_are_spread_evenly() -> None:
    numbers = Permutation(HUGE, seed=3)[np.arange(100_000)]

    counts = np.bincount(numbers // (HUGE // 100), minlength=100)

    assert chi_squared(counts, 1000) < 1.5


def orders(make: str) -> Callable[..., NDArray[np.int64]]:
    if make == "numpy":
        return lambda length, seed, epoch=0: np.random.default_rng([seed, epoch]).permutation(length)
    return lambda length, seed, epoch=0: Permutation(length, seed, epoch)[np.arange(length)]


def chi_squared(seen: NDArray[np.float64], expected: float | NDArray[np.float64]) -> float:
    """Return chi squared per degree of freedom: about 1 for random counts."""
    return float((np.square(seen - expected) / expected).sum() / (seen.size - 1))


# Blocks


@pytest.mark.parametrize("together", [1, 2, 3, 20])
@pytest.mark.parametrize(("length", "block_size"), [(0, 3), (1, 3), (12, 3), (10, 3), (1000, 64)])
def test_blocks_have_each_number_once(length: int, block_size: int, together: int) -> None:
    for seed in range(6):  # the short block gets different places
        permutation = BlockPermutation(length, block_size, together, seed)
        order = order_of(permutation)

        assert sorted(order) == list(range(length))
        assert [permutation.index(number) for number in order] == list(range(length))
        assert permutation[np.arange(length)].tolist() == order
        assert permutation.index(np.array(order, np.int64)).tolist() == list(range(length))


@pytest.mark.parametrize("together", [1, 3])
def test_few_blocks_are_needed_at_a_time(together: int) -> None:
    length, block_size = 1000, 64

    for seed in range(6):
        blocks = [number // block_size for number in order_of(BlockPermutation(length, block_size, together, seed))]
        first, last = {}, {}
        for position, block in enumerate(blocks):
            first.setdefault(block, position)
            last[block] = position
        open_at_once = [sum(first[block] <= position <= last[block] for block in first) for position in range(length)]

        assert max(open_at_once) <= together


def test_blocks_and_their_items_are_shuffled() -> None:
    order = order_of(BlockPermutation(1000, block_size=50, seed=1))
    blocks = [block for block, _ in itertools.groupby(number // 50 for number in order)]

    assert blocks != sorted(blocks)
    assert [number % 50 for number in order[:50]] != [number % 50 for number in order[50:100]] != list(range(50))


def test_order_of_blocks_is_for_ever() -> None:
    permutation = BlockPermutation(HUGE, block_size=100, together=4, seed=1, epoch=2)

    numbers = [permutation[position] for position in (0, 1, 399, 400, -1)]

    assert numbers == [99748296638, 756852607123, 633750752845, 533991966775, 312675730589]


def test_blocks_of_a_huge_one() -> None:
    permutation = BlockPermutation(HUGE + 5, block_size=1 << 20, together=16, seed=1)

    number = permutation[HUGE // 2]

    assert permutation.index(number) == HUGE // 2
    assert permutation[np.array([[HUGE // 2, 5]])].tolist() == [[number, permutation[5]]]


def test_a_thread_that_asks_for_another_group_meanwhile_is_no_matter() -> None:
    class Shared(BlockPermutation):
        """The cached order is always replaced by that of the next group, as by another thread."""

        _is_asking = False

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "_latest" and value.order and not self._is_asking:
                self._is_asking = True
                self[value.end % len(self)]
                self._is_asking = False

    alone, shared = (kind(100, block_size=10, together=2, seed=1) for kind in (BlockPermutation, Shared))

    assert order_of(shared) == order_of(alone)
    assert shared[np.arange(100)].tolist() == order_of(alone)
    assert [shared.index(number) for number in order_of(alone)] == list(range(100))


# Errors


@pytest.mark.parametrize("length", [-1, (1 << 62) + 1])
def test_impossible_lengths_are_refused(length: int) -> None:
    with pytest.raises(ArgumentError, match=r"length should be from 0 to 2\^62, but got"):
        Permutation(length)


@pytest.mark.parametrize(("seed", "epoch"), [(-1, 0), (0, -1)])
def test_negative_seeds(seed: int, epoch: int) -> None:
    with pytest.raises(ArgumentError, match=f"seed and epoch should not be negative, but got {seed} and {epoch}"):
        Permutation(5, seed, epoch)


@pytest.mark.parametrize(("block_size", "together"), [(0, 1), (1, 0)])
def test_blocks_of_nothing(block_size: int, together: int) -> None:
    with pytest.raises(
        ArgumentError, match=f"block_size and together should be positive, but got {block_size} and {together}"
    ):
        BlockPermutation(5, block_size, together)


@pytest.mark.parametrize("permutation", [Permutation(5), Permutation(5000), BlockPermutation(5, 2)])
def test_positions_and_numbers_beyond_the_end(permutation: Permutation | BlockPermutation) -> None:
    length = len(permutation)

    for position in (length, -length - 1):
        with pytest.raises(IndexError, match=f"position {position} of a permutation of {length} numbers"):
            permutation[position]
    for number in (-1, length):
        with pytest.raises(ValueError, match=f"a permutation of {length} numbers does not have {number}"):
            permutation.index(number)


@pytest.mark.parametrize("positions", [np.array([0, 5]), np.array([-1]), np.array([0.0]), np.array([True])])
def test_arrays_of_positions_beyond_the_end(positions: NDArray[np.int64]) -> None:
    for permutation in (Permutation(5), BlockPermutation(5, 2)):
        with pytest.raises(IndexError, match="positions"):
            permutation[positions]
        with pytest.raises(ValueError, match="does not have"):
            permutation.index(positions)


class TestWithoutTable:
    def test_are_permutations_of_any_length(self):
        for length in (1, 2, 3, 10, 100, 4096, 5000):
            order = Permutation.without_table(length, seed=7, number=3)
            numbers = order[np.arange(length)]
            assert sorted(numbers.tolist()) == list(range(length))
            assert [order[i] for i in range(length)] == numbers.tolist()

    def test_differ_by_number_and_seed(self):
        orders = {
            tuple(Permutation.without_table(64, seed, number)[np.arange(64)].tolist())
            for seed in range(10)
            for number in range(10)
        }
        assert len(orders) == 100

    def test_each_place_is_as_likely(self):
        """The mean of the number at each place is that of all numbers, within 5 standard errors."""
        numbers = np.array([Permutation.without_table(16, 1, number)[np.arange(16)] for number in range(2000)])
        assert np.abs(numbers.mean(axis=0) - 7.5).max() < 5 * 4.61 / 2000**0.5
