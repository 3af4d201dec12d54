"""Random generators for positions, such as a sample of an epoch: a function of a seed and a few numbers.

NumPy's way, ``default_rng(SeedSequence(seed, spawn_key=...))``, takes 12 us, longer than handing over a small sample. Here
one hash gives the states of a run of neighboring positions: a generator takes 1.5 us, and each is an object of its own.

Importing this module imports NumPy's generators, so other modules import it on first use.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.random.bit_generator import ISpawnableSeedSequence, SeedSequence
from numpy.typing import NDArray

#: Words in the state of a PCG64, and their bytes.
_STATE_WORDS, _STATE_BYTES = 4, 32
#: Positions that share a hash. Neighbors are mostly asked for one after another; others waste 1 us.
_RUN_BITS = 4
_RUN, _IN_RUN = 1 << _RUN_BITS, (1 << _RUN_BITS) - 1


def generator_for(seed: int, stream: int, epoch: int, index: int, kind: int = 0) -> Generator:
    """Return a new generator.

    Args:
        seed, stream: such as the seed of a pipeline and the number of a source.
        epoch, index, kind: the position.
    """
    position_seed = PositionSeed()  # an `__init__` in Python would take 50 ns more
    position_seed.words = _states(seed, stream, epoch, index >> _RUN_BITS, kind)[index & _IN_RUN]
    return Generator(PCG64(position_seed))  # type: ignore[arg-type]


class PositionSeed(ISpawnableSeedSequence):
    """The seed of a position, as NumPy's bit generators take it.

    Attributes:
        words: the state of a PCG64.
    """

    words: NDArray[np.uint64]

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """Return the first words of the state; if there are too few, as many as NumPy mixes from them."""
        if n_words == _STATE_WORDS and dtype is np.uint64:  # as a PCG64 asks for it
            return self.words
        words = self.words.view(dtype)
        return words[:n_words] if n_words <= len(words) else self._sequence.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[Any]:
        """Return seeds that are independent of this one."""
        return self._sequence.spawn(n_children)

    @functools.cached_property
    def _sequence(self) -> SeedSequence:
        return SeedSequence(self.generate_state(_STATE_BYTES // 4).tolist())


@functools.lru_cache(64)
def _states(seed: int, stream: int, epoch: int, run: int, kind: int) -> tuple[NDArray[np.uint64], ...]:
    """Return the states of a run of positions, which nobody can change."""
    digest = hashlib.shake_128(f"{seed} {stream} {epoch} {run} {kind}".encode()).digest(_RUN * _STATE_BYTES)
    return tuple(np.frombuffer(digest, np.uint64).reshape(_RUN, _STATE_WORDS))
