"""Permutations of any length that need no memory: each position is computed by itself, and so is the way back.

An epoch of 10^12 samples is shuffled as easily as one of 10^4, and every worker of every rank sees the same order, since
that follows from the seed and the epoch alone.

A long permutation is a Feistel network over the pairs of a quotient and a remainder, which are added to, in turn, what a
hash makes of the other one (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). There are a few more pairs
than positions; one that is none is sent through again, which leads to one that is (cycle-walking). Short permutations are
NumPy's: a network over few pairs does not reach all of them equally often.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError

__all__ = ["BlockPermutation", "Permutation"]

#: Up to this length a permutation is a table.
_MOST_IN_TABLE = 1 << 12
_MOST_LENGTH = 1 << 62
#: With fewer, neighbours that are a quotient apart are not independent.
_ROUNDS = 4

# The hash: two steps of that of SplitMix64 (Steele, Lea and Flood, 2014), which a multiplication and a shift each make up.
_FACTOR_1 = 0xBF58476D1CE4E5B9
_FACTOR_2 = 0x94D049BB133111EB
_SHIFT_1 = 29
_SHIFT_2 = 16
_WORD = (1 << 64) - 1


class Permutation:
    """The numbers below `length` in random order, as a sequence that takes no memory.

    A position costs about a microsecond; an array of positions, 0.1 us for each.

    Args:
        length: up to 2^62.
        seed, epoch: what the order depends on, and nothing else: whole numbers from 0 on.

    Raises:
        ArgumentError: `length` is none of a permutation, or `seed` or `epoch` is negative.

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
        self._num_quotients = math.isqrt(length - 1) + 1
        self._num_remainders = -(-length // self._num_quotients)
        keys = entropy.generate_state(_ROUNDS, np.uint64).tolist()
        self._keys = tuple(zip(keys[::2], keys[1::2], strict=True))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, position: int) -> int: ...

    @overload
    def __getitem__(self, position: NDArray[Any]) -> NDArray[np.int64]: ...

    def __getitem__(self, position: int | NDArray[Any]) -> int | NDArray[np.int64]:
        """The number at a position, or those at an array of positions, of the same shape, as int64.

        Raises:
            IndexError: there is no such position. Negative ones count from the end.
        """
        index = _wrapped(position, self._length)
        if isinstance(index, np.ndarray):
            return self._look_up(index, self._table, backwards=False)
        return self._advance(index) if self._table is None else int(self._table[index])

    def index(self, number: int | NDArray[Any]) -> Any:
        """The position of a number, or of an array of numbers.

        Raises:
            ValueError: the permutation does not have it.
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
            for key_1, key_2 in self._keys:  # twice the same, in place of calls
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
        astray: Any = slice(None)
        while numbers[astray].size:
            numbers[astray] = self._pass(numbers[astray], backwards)
            astray = np.flatnonzero(numbers >= self._length)
        return numbers.astype(np.int64).reshape(positions.shape)

    def _pass(self, numbers: NDArray[np.uint64], backwards: bool) -> NDArray[np.uint64]:
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


class BlockPermutation:
    """The numbers below `length`, shuffled for data that is read in blocks: files, record batches, chunks.

    The blocks are put in random order, and in this order some at a time are shuffled together. So whoever goes through the
    positions in order needs as many blocks at a time as are shuffled together, and each block once. Then a position costs
    one to two microseconds, and one of an array that lies in few groups a tenth of one; to go to another group costs twenty.

    Args:
        length: up to 2^62.
        block_size: numbers in a block; the last one may have fewer.
        together: blocks that are shuffled together.
        seed, epoch: what the order depends on; see `Permutation`.

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
        #: By so many numbers the last block is shorter than the others; and where it has come to.
        self._num_missing = len(self._blocks) * block_size - length
        self._short_place = self._blocks.index(len(self._blocks) - 1) if length else 0
        self._latest = _Group(-1, 0, 0, Permutation(0), {})

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, position: int) -> int: ...

    @overload
    def __getitem__(self, position: NDArray[Any]) -> NDArray[np.int64]: ...

    def __getitem__(self, position: int | NDArray[Any]) -> int | NDArray[np.int64]:
        """The number at a position, or those at an array of positions, of the same shape, as int64.

        Raises:
            IndexError: there is no such position. Negative ones count from the end.
        """
        latest = self._latest
        if position.__class__ is int and latest.begin <= position < latest.end:
            index: Any = position
            place = latest.begin + latest.order[index - latest.begin]
        else:
            index = _wrapped(position, self._length)
            group_size = self._together * self._block_size
            # As if all blocks were full: what comes behind the short one's group moves to the right.
            group = self._filled(index, (self._short_group + 1) * group_size) // group_size
            begin = self._begin(group)
            place = begin + self._in_groups(group, index - begin, Permutation.__getitem__)
        place = self._filled(place, (self._short_place + 1) * self._block_size)
        block, offset = divmod(place, self._block_size)
        number: int | NDArray[np.int64] = self._first(block) + offset
        return number

    def index(self, number: int | NDArray[Any]) -> Any:
        """The position of a number, or of an array of numbers.

        Raises:
            ValueError: the permutation does not have it.
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
        """What the orders of groups have at an index, or at each of an array in its group."""
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
        """Where a position would be if the short block, which with others of its group ends at `end` then, were full."""
        return index + self._num_missing * (index >= end - self._num_missing)

    def _begin(self, group: Any) -> Any:
        """The first position of a group."""
        return group * self._together * self._block_size - self._num_missing * (group > self._short_group)

    def _first(self, block: Any) -> Any:
        """The first number of the block at a place among the blocks. Those of the latest group are kept, too."""
        if isinstance(block, np.ndarray):
            return self._blocks[block] * self._block_size
        firsts = self._latest.firsts
        first = firsts.get(block)
        if first is None:
            first = firsts[block] = self._blocks[block] * self._block_size
        return first

    def _order_in(self, group: int) -> Permutation:
        """The order of the positions of a group, of which the one that is asked for is kept: it will be asked for again."""
        latest = self._latest  # another thread may put its own there at any time
        if latest.number != group:
            begin, end = self._begin(group), min(self._begin(group + 1), self._length)
            (seed,) = np.random.SeedSequence([*self._entropy, group]).generate_state(1, np.uint64).tolist()
            latest = self._latest = _Group(group, begin, end, Permutation(end - begin, seed), {})
        return latest.order


class _Group(NamedTuple):
    """Blocks that are shuffled together.

    Attributes:
        number: which.
        begin, end: its positions.
        order: of these, counted from `begin`.
        firsts: the first numbers of those of its blocks that have been asked for, by place.
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
    """A position from 0 on, or an array of them. One alone may count from the end, unless `first` is 0.

    Raises:
        IndexError: there is no such position.
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


def _hashed(words: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Random numbers of 48 bits."""
    words = (words ^ np.uint64(key)) * np.uint64(_FACTOR_1)
    words = (words ^ (words >> np.uint64(_SHIFT_1))) * np.uint64(_FACTOR_2)
    return words >> np.uint64(_SHIFT_2)
