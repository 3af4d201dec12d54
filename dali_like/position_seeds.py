"""Random generators for positions, such as a sample of an epoch: a function of a seed and a few numbers.

NumPy's way, ``default_rng(SeedSequence(seed, spawn_key=...))``, takes 12 us, longer than handing over a small sample. Here
a hash mixes the numbers: a generator takes 2 us, and each is an object of its own.

Importing this module imports NumPy's generators, so other modules import it on first use.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence, SeedSequence

#: Bytes of a hash: the state of a PCG64.
_STATE_BYTES = 32
_pack = struct.Struct("<qqq").pack


def generator_for(seed: int, stream: int, epoch: int, index: int, kind: int = 0) -> np.random.Generator:
    """Return a new generator.

    Args:
        seed, stream: few different ones, such as the seed of a pipeline and the number of a source.
        epoch, index, kind: the position.
    """
    bits = np.random.PCG64(PositionSeed(seed, stream, epoch, index, kind))  # type: ignore[arg-type]
    return np.random.Generator(bits)


class PositionSeed(ISpawnableSeedSequence):
    """The seed of a position, as NumPy's bit generators take it."""

    def __init__(self, seed: int, stream: int, *position: int) -> None:
        self._stream = seed, stream
        self._position = position

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """Return the first words of the hash; if there are too few, as many as NumPy mixes from them."""
        mixed = _begun(*self._stream).copy()
        mixed.update(_pack(*self._position))
        words = np.frombuffer(mixed.digest(), dtype)
        if n_words == len(words):  # of a PCG64
            return words
        return words[:n_words] if n_words < len(words) else self._sequence.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[Any]:
        """Return seeds that are independent of this one."""
        return self._sequence.spawn(n_children)

    @functools.cached_property
    def _sequence(self) -> SeedSequence:
        return SeedSequence(self.generate_state(_STATE_BYTES // 4).tolist())


@functools.lru_cache(64)
def _begun(seed: int, stream: int) -> Any:
    """Return a hash of the seed, to copy and to continue."""
    return hashlib.blake2b(f"{seed} {stream}".encode(), digest_size=_STATE_BYTES)
