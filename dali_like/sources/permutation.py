"""Permutations of any length that need no memory: each position, and its inverse, is computed independently.

An epoch of 10^12 samples is shuffled as easily as one of 10^4. Every worker of every rank sees the same order, which depends
only on the seed and the epoch.

A long permutation is a Feistel network over pairs of a quotient and a remainder: each round adds a hash of one to the other
(Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). There are a few more pairs than positions; a result that
is not a position goes through the network again until it is one (cycle-walking). Short permutations are NumPy's: a network
over few pairs would not produce all permutations equally often. `Permutation.without_table` makes short networks
nevertheless, where many permutations are needed, at few positions each.
"""

from __future__ import annotations

import functools
import math
import operator
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.random  # in the forkserver: NumPy imports it on first use, in each worker
from numpy.typing import NDArray

from dali_like.errors import ArgumentError

__all__ = ["BlockPermutation", "Neighborhoods", "Permutation", "are_below"]

#: Permutations up to this length are tables.
_MOST_IN_TABLE = 1 << 12
_MOST_LENGTH = 1 << 62
#: Positions of a table, and the number of tables that are kept.
_NEIGHBORHOOD = 1 << 10
_MOST_NEIGHBORHOODS = 4
#: A table takes as long as about 60 single positions, so it is made after some of them.
_USES_WITHOUT_TABLE = 24
#: With fewer rounds, neighbors at the distance of a quotient are not independent.
_ROUNDS = 4

# The hash: two steps of SplitMix64 (Steele, Lea and Flood, 2014), each a multiplication and a shift.
_FACTOR_1 = 0xBF58476D1CE4E5B9
_FACTOR_2 = 0x94D049BB133111EB
_SHIFT_1 = 29
_SHIFT_2 = 16
_WORD = (1 << 64) - 1
#: Distance of the states of SplitMix64.
_GOLDEN = 0x9E3779B97F4A7C15


class Permutation:
    """The numbers below `length` in random order, as a sequence that takes no memory.

    A position costs about 1 us, and 0.1 us in an array of positions.

    Args:
        length: up to 2^62.
        seed, epoch: integers from 0 on, which alone determine the order.

    Raises:
        ArgumentError: `length` is out of range, or `seed` or `epoch` is negative.

    >>> order = Permutation(10**12, seed=1)
    >>> order.index(order[5])
    5
    """

    def __init__(self, length: int, seed: int = 0, epoch: int = 0) -> None:
        length = operator.index(length)
        if not 0 <= length <= _MOST_LENGTH:
            raise ArgumentError(f"length should be from 0 to 2^62, but got {length}")
        if seed < 0 or epoch < 0:
            raise ArgumentError(f"seed and epoch should not be negative, but got {seed} and {epoch}")
        self._length = length
        self._table: NDArray[np.int64] | None = None
        entropy = np.random.SeedSequence([seed, epoch])
        if length <= _MOST_IN_TABLE:
            self._table = np.random.Generator(np.random.PCG64(entropy)).permutation(length)
            return
        self._make_network(length, entropy.generate_state(_ROUNDS, np.uint64).tolist())

    @classmethod
    def without_table(cls, length: int, seed: int, number: int) -> Permutation:
        """Return one of many permutations of the same length. It takes 3 us to make, for any length from 1 on.

        Short ones are less evenly distributed than permutations of the constructor.

        Args:
            seed, number: from 0 on.
        """
        order = cls.__new__(cls)
        order._length = length
        order._table = None
        first = _split_mix(seed) + _ROUNDS * number  # neighboring seeds share no keys
        order._make_network(length, [_split_mix(first + i) for i in range(_ROUNDS)])
        return order

    def _make_network(self, length: int, keys: list[int]) -> None:
        self._num_quotients = math.isqrt(length - 1) + 1
        self._num_remainders = -(-length // self._num_quotients)
        self._keys = tuple(zip(keys[::2], keys[1::2], strict=True))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, position: int) -> int: ...

    @overload
    def __getitem__(self, position: NDArray[Any]) -> NDArray[np.int64]: ...

    def __getitem__(self, position: int | NDArray[Any]) -> int | NDArray[np.int64]:
        """Return the number at a position, or an int64 array of the numbers at an array of positions.

        Raises:
            IndexError: a position is out of range. A single negative position counts from the end.
        """
        if position.__class__ is int and 0 <= position < self._length:
            index: int | NDArray[np.int64] = position
        else:
            index = _wrapped(position, self._length)
        if isinstance(index, np.ndarray):
            return self._look_up(index, self._table, backwards=False)
        return self._advance(index) if self._table is None else int(self._table[index])

    def index(self, number: int | NDArray[Any]) -> Any:
        """Return the position of a number, or of an array of numbers.

        Raises:
            ValueError: a number is out of range.
        """
        try:
            numbers = _wrapped(np.asarray(number), self._length)
        except IndexError:
            raise ValueError(f"a permutation of {self._length} numbers does not have {number}") from None
        positions = self._look_up(numbers, None if self._table is None else self._inverse, backwards=True)
        return positions if isinstance(number, np.ndarray) else int(positions)

    @functools.cached_property
    def _inverse(self) -> NDArray[np.int64]:
        assert self._table is not None
        return np.argsort(self._table)

    def _advance(self, index: int) -> int:
        num_quotients, num_remainders = self._num_quotients, self._num_remainders
        while True:
            quotient, remainder = divmod(index, num_remainders)
            for key_1, key_2 in self._keys:  # the hash twice, inlined for speed
                word = ((remainder ^ key_1) * _FACTOR_1) & _WORD
                word = ((word ^ (word >> _SHIFT_1)) * _FACTOR_2) & _WORD
                quotient = (quotient + (word >> _SHIFT_2)) % num_quotients
                word = ((quotient ^ key_2) * _FACTOR_1) & _WORD
                word = ((word ^ (word >> _SHIFT_1)) * _FACTOR_2) & _WORD
                remainder = (remainder + (word >> _SHIFT_2)) % num_remainders
            index = quotient * num_remainders + remainder
            if index < self._length:
                return index

    def _look_up(
        self, positions: NDArray[np.int64], table: NDArray[np.int64] | None, *, backwards: bool
    ) -> NDArray[np.int64]:
        if table is not None:
            return table[positions]
        numbers = positions.ravel().astype(np.uint64)
        outside: Any = slice(None)
        while numbers[outside].size:
            numbers[outside] = self._send_through(numbers[outside], backwards)
            outside = np.flatnonzero(numbers >= self._length)
        return numbers.astype(np.int64).reshape(positions.shape)

    def _send_through(self, numbers: NDArray[np.uint64], backwards: bool) -> NDArray[np.uint64]:
        """Send numbers through the network once."""
        num_quotients, num_remainders = np.uint64(self._num_quotients), np.uint64(self._num_remainders)
        quotients, remainders = np.divmod(numbers, num_remainders)
        for key_1, key_2 in reversed(self._keys) if backwards else self._keys:
            if backwards:
                remainders += num_remainders - _hashed(quotients, key_2) % num_remainders
                remainders %= num_remainders
                quotients += num_quotients - _hashed(remainders, key_1) % num_quotients
                quotients %= num_quotients
            else:
                quotients = (quotients + _hashed(remainders, key_1)) % num_quotients
                remainders = (remainders + _hashed(quotients, key_2)) % num_remainders
        return quotients * num_remainders + remainders


class Neighborhoods:
    """Single positions of a permutation, faster where many of them are close together: by tables of whole neighborhoods.

    Args:
        order: the permutation.
    """

    def __init__(self, order: Permutation) -> None:
        self._order = order
        #: For each of the latest neighborhoods its numbers; before them, how often it was used.
        self._latest: dict[int, array[int] | int] = {}

    def __getitem__(self, position: int) -> int:
        """Return the number at a position, which must be in range."""
        which, offset = divmod(position, _NEIGHBORHOOD)
        known = self._latest.get(which, 0)
        if known.__class__ is array:
            return known[offset]
        assert isinstance(known, int)
        if known < _USES_WITHOUT_TABLE:
            self._latest[which] = known + 1
            if len(self._latest) > _MOST_NEIGHBORHOODS:
                del self._latest[next(iter(self._latest))]
            return self._order[position]
        return self._table(which)[offset]

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers at some positions, at least one, which must be in range."""
        first = int(positions[0]) // _NEIGHBORHOOD
        offsets = positions - first * _NEIGHBORHOOD
        if are_below(offsets, _NEIGHBORHOOD):  # mostly
            known = self._latest.get(first)
            return np.frombuffer(known if isinstance(known, array) else self._table(first), np.int64)[offsets]
        which = positions // _NEIGHBORHOOD
        wanted = set(which.tolist())
        if len(wanted) > _MOST_NEIGHBORHOODS:
            return self._order[positions]
        found = np.empty_like(positions)
        for each in wanted:
            known = self._latest.get(each)
            table = known if isinstance(known, array) else self._table(each)
            places = which == each
            found[places] = np.frombuffer(table, np.int64)[positions[places] - each * _NEIGHBORHOOD]
        return found

    def _table(self, which: int) -> array[int]:
        """Make the table of a neighborhood."""
        begin = which * _NEIGHBORHOOD
        numbers = self._order[np.arange(begin, min(begin + _NEIGHBORHOOD, len(self._order)))]
        table = self._latest[which] = array("q", numbers.tobytes())
        while len(self._latest) > _MOST_NEIGHBORHOODS:
            del self._latest[next(iter(self._latest))]
        return table


class BlockPermutation:
    """The numbers below `length`, shuffled for data that is read in blocks: files, record batches, chunks.

    The blocks are put in random order; then groups of `together` consecutive blocks are shuffled. A program that goes
    through the positions in order reads each block once, and has the blocks of one group open at a time. A position costs
    1 to 2 us in this order, 0.1 us in an array over few groups, and 20 us more at the beginning of another group.

    Args:
        length: up to 2^62.
        block_size: numbers per block; the last block may have fewer.
        together: number of blocks that are shuffled together.
        seed, epoch: determine the order; see `Permutation`.

    Raises:
        ArgumentError: as `Permutation`; or `block_size` or `together` is not positive.

    >>> order = BlockPermutation(12, block_size=4, together=1)
    >>> sorted(order[i] // 4 for i in range(4)) in ([0] * 4, [1] * 4, [2] * 4)
    True
    """

    def __init__(self, length: int, block_size: int, together: int = 1, seed: int = 0, epoch: int = 0) -> None:
        if block_size < 1 or together < 1:
            raise ArgumentError(f"block_size and together should be positive, but got {block_size} and {together}")
        self._length = length
        self._block_size = block_size
        self._together = together
        self._entropy = (seed, epoch)
        self._blocks = Permutation(-(-length // block_size), seed, epoch)
        #: The last block lacks this many numbers; its place in the order of blocks follows.
        self._num_missing = len(self._blocks) * block_size - length
        self._short_place = self._blocks.index(len(self._blocks) - 1) if length else 0
        self._latest = _BlockGroup(-1, 0, 0, Permutation(0), {})

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, position: int) -> int: ...

    @overload
    def __getitem__(self, position: NDArray[Any]) -> NDArray[np.int64]: ...

    def __getitem__(self, position: int | NDArray[Any]) -> int | NDArray[np.int64]:
        """Return the number at a position, or an int64 array of the numbers at an array of positions.

        Raises:
            IndexError: a position is out of range. A single negative position counts from the end.
        """
        latest = self._latest
        if position.__class__ is int and latest.begin <= position < latest.end:
            index: Any = position
            place = latest.begin + latest.order[index - latest.begin]
        else:
            index = _wrapped(position, self._length)
            group_size = self._together * self._block_size
            # As if all blocks were full: positions behind the group of the short block move to the right.
            group = self._filled(index, (self._short_group + 1) * group_size) // group_size
            begin = self._begin(group)
            place = begin + self._in_groups(group, index - begin, Permutation.__getitem__)
        place = self._filled(place, (self._short_place + 1) * self._block_size)
        block, offset = divmod(place, self._block_size)
        number: int | NDArray[np.int64] = self._first(block) + offset
        return number

    def index(self, number: int | NDArray[Any]) -> Any:
        """Return the position of a number, or of an array of numbers.

        Raises:
            ValueError: a number is out of range.
        """
        try:
            index: Any = _wrapped(number, self._length, first=0)
        except IndexError:
            raise ValueError(f"a permutation of {self._length} numbers does not have {number}") from None
        block, offset = divmod(index, self._block_size)
        place = self._blocks.index(block)
        group = place // self._together
        begin = self._begin(group)
        index = place * self._block_size + offset - self._num_missing * (place > self._short_place)
        return begin + self._in_groups(group, index - begin, Permutation.index)

    def _in_groups(self, group: Any, index: Any, look_up: Callable[[Permutation, Any], Any]) -> Any:
        """Look up an index in the order of its group, or each index of an array."""
        if not isinstance(group, np.ndarray):
            return look_up(self._order_in(group), index)
        found = np.empty_like(index)
        for each in np.unique(group).tolist():
            mine = group == each
            found[mine] = look_up(self._order_in(each), index[mine])
        return found

    @property
    def _short_group(self) -> int:
        return self._short_place // self._together

    def _filled(self, index: Any, end: int) -> Any:
        """Return the position if the short block were full. `end` is the end of its group in that case."""
        return index + self._num_missing * (index >= end - self._num_missing)

    def _begin(self, group: Any) -> Any:
        """Return the first position of a group."""
        return group * self._together * self._block_size - self._num_missing * (group > self._short_group)

    def _first(self, block: Any) -> Any:
        """Return the first number of the block at a place. Cached for the blocks of the latest group."""
        if isinstance(block, np.ndarray):
            return self._blocks[block] * self._block_size
        firsts = self._latest.firsts
        first = firsts.get(block)
        if first is None:
            first = firsts[block] = self._blocks[block] * self._block_size
        return first

    def _order_in(self, group: int) -> Permutation:
        """Return the order of the positions of a group. The latest one is cached for neighboring positions."""
        latest = self._latest  # another thread may replace it at any time
        if latest.number != group:
            begin, end = self._begin(group), min(self._begin(group + 1), self._length)
            (seed,) = np.random.SeedSequence([*self._entropy, group]).generate_state(1, np.uint64).tolist()
            latest = self._latest = _BlockGroup(group, begin, end, Permutation(end - begin, seed), {})
        return latest.order


class _BlockGroup(NamedTuple):
    """Blocks that are shuffled together.

    Attributes:
        number: of the group.
        begin, end: its positions.
        order: of the positions, relative to `begin`.
        firsts: cache of the first numbers of its blocks, by place.
    """

    number: int
    begin: int
    end: int
    order: Permutation
    firsts: dict[int, int]


@overload
def _wrapped(position: int, length: int, first: int | None = None) -> int: ...


@overload
def _wrapped(position: NDArray[Any], length: int, first: int | None = None) -> NDArray[np.int64]: ...


def _wrapped(position: int | NDArray[Any], length: int, first: int | None = None) -> int | NDArray[np.int64]:
    """Check a position or an array of positions. A single one may count from the end, unless `first` is 0.

    Raises:
        IndexError: a position is out of range.
    """
    if isinstance(position, np.ndarray):
        if position.dtype.kind not in "iu":
            raise IndexError(f"positions should be whole numbers, but got an array of {position.dtype}")
        if position.size and not 0 <= int(position.min()) <= int(position.max()) < length:
            raise IndexError(f"an array has other positions than the {length} of this permutation")
        return position.astype(np.int64, copy=False)
    index = operator.index(position)
    if index < 0 and first is None:
        index += length
    if not 0 <= index < length:
        raise IndexError(f"position {position} of a permutation of {length} numbers")
    return index


def _split_mix(number: int) -> int:
    """Return a word of 64 bits: SplitMix64 after so many steps."""
    word = (number * _GOLDEN) & _WORD
    word = ((word ^ (word >> 30)) * _FACTOR_1) & _WORD
    word = ((word ^ (word >> 27)) * _FACTOR_2) & _WORD
    return word ^ (word >> 31)


def are_below(numbers: NDArray[np.int64], end: int) -> bool:
    """Return whether all of some numbers, at least one, are in ``range(end)``. Takes a third of the time of comparisons."""
    return bool(np.maximum.reduce(numbers.view(np.uint64)) < end)  # negative ones are larger then


def _hashed(words: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Return hashes of 48 bits."""
    words = (words ^ np.uint64(key)) * np.uint64(_FACTOR_1)
    words = (words ^ (words >> np.uint64(_SHIFT_1))) * np.uint64(_FACTOR_2)
    return words >> np.uint64(_SHIFT_2)
