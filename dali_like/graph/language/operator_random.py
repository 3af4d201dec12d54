"""Random numbers of operators: a function of seed, operator, epoch and sample.

A counter-based generator (Philox) can start anywhere. Its key identifies the operator and the pipeline, its counter the
sample; 2**128 numbers lie between two samples. So the order and the place of computation do not matter.

Creating a generator takes 16 us, setting the counter of an existing one 2.5 us. So each thread keeps one. For many samples
with few numbers each, NumPy computes the rounds of Philox for all samples at once, with the same results.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: The two words of a Philox key.
RandomKey: TypeAlias = tuple[int, int]

#: Keep the random streams of operators apart from each other, and from those of sources, which spawn from the same seed.
_OF_OPERATORS, _OF_SEED = 1 << 20, 1 << 21


def key_of(entropy: int, number: int) -> RandomKey:
    """Return the key of an operator that uses the pipeline's seed.

    Args:
        entropy: the pipeline's seed.
        number: of the operator among the random operators.
    """
    return _key(entropy, (_OF_OPERATORS, number))


def key_of_seed(seed: int) -> RandomKey:
    """Return the key of an operator with its own seed."""
    return _key(seed, (_OF_SEED,))


def _key(entropy: int, spawn_key: tuple[int, ...]) -> RandomKey:
    one, two = np.random.SeedSequence(entropy, spawn_key=spawn_key).generate_state(2, np.uint64)
    return int(one), int(two)


class _Local(threading.local):
    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        self.state: Any = dict(self.bits.state)
        self.key = self.state["state"]["key"]
        self.counter = self.state["state"]["counter"]


@functools.cache  # created on first use: NumPy imports its generators then
def _local() -> _Local:
    return _Local()


def generator_at(key: RandomKey, epoch: int, index: int) -> np.random.Generator:
    """Return this thread's generator, at the start of a sample's numbers; valid until the next call."""
    local = _local()
    local.key[0], local.key[1] = key
    local.counter[2], local.counter[3] = index, epoch
    local.bits.state = local.state  # also empties the buffer of numbers already drawn
    return local.generator


#: Numbers that one computation of Philox yields.
BLOCK = 4
_ROUNDS = 10
#: The constants of Philox4x64, and their halves.
_FACTORS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], np.uint64)
_STEPS = np.array([[0x9E3779B97F4A7C15], [0xBB67AE8584CAA73B]], np.uint64)
_HALF_BITS, _LOW_HALF = np.uint64(32), np.uint64((1 << 32) - 1)
_LOW_FACTORS, _HIGH_FACTORS = _FACTORS & _LOW_HALF, _FACTORS >> _HALF_BITS
_UNUSED_BITS, _TO_FRACTION = np.uint64(11), 1 / (1 << 53)


def numbers_at(key: RandomKey, epoch: int, indices: Sequence[int]) -> NDArray[np.float64]:
    """Return the first numbers that ``generator_at(key, epoch, index).random()`` returns for each index.

    Returns:
        shape (indices, BLOCK).
    """
    # Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. The words of a counter are kept in pairs, those
    # that a round multiplies and the others.
    multiplied = np.empty((2, len(indices)), np.uint64)
    others = np.empty((2, len(indices)), np.uint64)
    multiplied[0], multiplied[1] = 1, indices  # NumPy adds 1 to the counter before the first number
    others[0], others[1] = 0, epoch
    keys = np.array(key, np.uint64).reshape(2, 1)
    for _ in range(_ROUNDS):
        low, high = multiplied & _LOW_HALF, multiplied >> _HALF_BITS
        middle = (low * _LOW_FACTORS >> _HALF_BITS) + high * _LOW_FACTORS
        upper = high * _HIGH_FACTORS + (middle >> _HALF_BITS)
        upper += (low * _HIGH_FACTORS + (middle & _LOW_HALF)) >> _HALF_BITS
        lower = multiplied * _FACTORS
        multiplied, others = upper[::-1] ^ others ^ keys, lower[::-1]
        keys = keys + _STEPS
    words = np.stack((multiplied[0], others[0], multiplied[1], others[1]), axis=1)
    numbers: NDArray[np.float64] = np.multiply(words >> _UNUSED_BITS, _TO_FRACTION, dtype=np.float64)
    return numbers
