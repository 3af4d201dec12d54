"""Random numbers of operators: a function of the seed, the operator, the epoch and the sample.

A counter-based generator (Philox) can be anywhere at once. Its key says which operator of which pipeline it is for, its
counter which sample; 2**128 numbers lie between two samples. So it matters neither where nor in what order samples are made.

Making a generator takes 16 us, setting the counter of one that is there 2.5 us. So each thread keeps one.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeAlias

import numpy as np

#: Two words.
RandomKey: TypeAlias = tuple[int, int]

#: What tells the streams of operators apart from those of sources (which spawn from the same seed), and from each other.
_OF_OPERATORS, _OF_SEED = 1 << 20, 1 << 21


def key_of(entropy: int, number: int) -> RandomKey:
    """The key of an operator of a pipeline, by the pipeline's seed and the operator's number among those that are random."""
    return _key(entropy, (_OF_OPERATORS, number))


def key_of_seed(seed: int) -> RandomKey:
    """The key of an operator that has a seed of its own."""
    return _key(seed, (_OF_SEED,))


def _key(entropy: int, spawn_key: tuple[int, ...]) -> RandomKey:
    one, two = np.random.SeedSequence(entropy, spawn_key=spawn_key).generate_state(2, np.uint64)
    return int(one), int(two)


class _Local(threading.local):
    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        self.state: Any = dict(self.bits.state)
        self.words = self.state["state"]


@functools.cache  # not made before it is needed, as NumPy imports its generators then
def _local() -> _Local:
    return _Local()


def generator_at(key: RandomKey, epoch: int, index: int) -> np.random.Generator:
    """The thread's generator, at the beginning of a sample's numbers; good until the next call."""
    local = _local()
    local.words["key"][:] = key
    local.words["counter"][:] = (0, 0, index, epoch)
    local.bits.state = local.state  # whose buffer is empty
    return local.generator
