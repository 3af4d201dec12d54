"""Notice whether anybody has drawn from the global random generators of Python and NumPy. Runs in workers.

Both are Mersenne Twisters. The functions that return their states take twenty microseconds and more, so this module looks at
the memory of the generators, if it is where it is expected.
"""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The words of the state of a Mersenne Twister.
_WORDS = 624

#: The parts in which to look for draws. Workers of short epochs do not find out where to look.
_FIRST_WATCHED, _LAST_WATCHED = 8, 24
_NEVER = 1 << 62


class DrawWatch:
    """Watches the calls of a dataset in parts of batches, and expects no draws after a number of parts without any.

    Attributes:
        expects_none: whether no draw is expected.
    """

    def __init__(self) -> None:
        self.expects_none = False
        self._num_parts = 0
        self._twisters: tuple[_Twister, ...] = ()
        self._before: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Watch a part, whose generators have been seeded."""
        if self._num_parts == _FIRST_WATCHED and not self._twisters:
            self._twisters = _twisters()
            if not self._twisters:
                self._num_parts = _NEVER
        self._before = [twister.sign() for twister in self._twisters]

    def end(self) -> bool:
        """End a part. Return whether it has drawn no number, and seeded no generator. If it has, all later parts may."""
        if [twister.sign() for twister in self._twisters] != self._before:
            self._num_parts, self.expects_none, self._twisters = _NEVER, False, ()
            return False
        self._num_parts += 1
        self.expects_none = _LAST_WATCHED <= self._num_parts < _NEVER
        return True


class _Twister:
    """The state of a Mersenne Twister in memory.

    Args:
        key, position: the addresses of the words, and of the number of those that have been used.
    """

    def __init__(self, key: int, position: int) -> None:
        self._key = (ctypes.c_uint32 * _WORDS).from_address(key)
        self._first = ctypes.c_uint32.from_address(key)
        self._position = ctypes.c_int.from_address(position)

    def sign(self) -> tuple[int, int]:
        """Return what changes with each draw: after the last word, the generator replaces all of them."""
        return self._position.value, self._first.value

    def matches(self, key: NDArray[np.uint32], position: int) -> bool:
        """Return whether this is the state that the library tells."""
        return self._position.value == position and list(self._key) == key.tolist()


def _twisters() -> tuple[_Twister, ...]:
    """Return both generators; none if one cannot be watched."""
    both = _python_twister(), _numpy_twister()
    return tuple(twister for twister in both if twister is not None) if None not in both else ()


def _python_twister() -> _Twister | None:
    _, (*words, position), _ = random.getstate()
    address = id(random._inst) + object.__basicsize__  # see CPython's _randommodule.c
    twister = _Twister(address + 4, address)
    return twister if twister.matches(np.array(words, np.uint32), position) else None


def _numpy_twister() -> _Twister | None:
    generator: Any = np.random.mtrand._rand._bit_generator
    if type(generator) is not np.random.MT19937:
        return None
    state, address = generator.state["state"], generator.ctypes.state_address
    twister = _Twister(address, address + 4 * _WORDS)
    return twister if twister.matches(state["key"], state["pos"]) else None
