"""Random generators of dynamic mode. Each call of a random operator takes two numbers: the key of its random numbers."""

from __future__ import annotations

import base64
import operator
import os
import random
import struct
import threading
from typing import Any

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.engine.worker.info import get_worker_info
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, CheckpointError
from dali_like.graph.language.operator_random import RandomKey

#: The 624 words and the position of the Mersenne Twister.
_WORDS = "<625I"
#: Numbers that are drawn at once, and dropped.
_MOST_SKIPPED = 4096


class RNG:
    """A generator of keys for random operators: equal seeds give equal results.

    Args:
        seed: an integer. Default: a random one.
        state: a result of `get_state`, or its text, instead of a seed.

    Raises:
        ArgumentClashError: both are given.
        CheckpointError: `state` is something else.

    >>> RNG(seed=7)() == RNG(seed=7)()
    True
    """

    def __init__(self, seed: int | None = None, state: Any = None) -> None:
        if state is None:
            self.seed = random.SystemRandom().getrandbits(31) if seed is None else seed
        elif seed is None:
            self.set_state(state)
        else:
            raise ArgumentClashError("Cannot specify both `seed` and `state`")

    def __call__(self) -> int:
        """Return the next number, from 0 to 2**32 - 1."""
        return self._rng.getrandbits(32)

    @property
    def seed(self) -> int:
        """The seed. Setting it starts the sequence again."""
        return self._seed

    @seed.setter
    def seed(self, value: int) -> None:
        self._seed = value
        self._rng = random.Random(value)

    def clone(self) -> RNG:
        """Return a generator with the same seed, at the start of the sequence."""
        return RNG(self._seed)

    def advance(self, n: int) -> None:
        """Leave out the next `n` numbers.

        Raises:
            ArgumentError: `n` is negative.
        """
        count = operator.index(n)
        if count < 0:
            raise ArgumentError("Cannot advance by a negative number")
        while count:
            step = min(count, _MOST_SKIPPED)
            self._rng.getrandbits(32 * step)
            count -= step

    @property
    def state(self) -> str:
        """The state; see `get_state`. Setting it continues from there."""
        return self.get_state()

    @state.setter
    def state(self, value: Any) -> None:
        self.set_state(value)

    def get_state(self, *, cuda_stream: Any = None) -> str:
        """Return the seed and the position in the sequence as text, for `set_state` and `Checkpoint`.

        Args:
            cuda_stream: without effect.
        """
        _, words, _ = self._rng.getstate()
        return f"{self._seed}:{base64.b64encode(struct.pack(_WORDS, *words)).decode()}"

    def set_state(self, value: Any) -> None:
        """Continue from a result of `get_state`, or its text.

        Raises:
            CheckpointError: `value` is something else.
        """
        seed, _, words = str(value).partition(":")
        try:
            state = struct.unpack(_WORDS, base64.b64decode(words))
            self.seed = int(seed)
            self._rng.setstate((random.Random.VERSION, state, None))
        except (ValueError, struct.error) as error:
            raise CheckpointError(f"this is not the state of a random generator: {value!r}") from error

    def state_dict(self) -> dict[str, Any]:
        """Return the seed and the position in the sequence, for a checkpoint."""
        return {"seed": self._seed, "state": self._rng.getstate()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        version, words, gauss = state_dict["state"]
        self.seed = state_dict["seed"]
        self._rng.setstate((version, tuple(words), gauss))

    def __repr__(self) -> str:
        return f"RNG(seed={self._seed})"


class _Default(threading.local):
    pid = 0
    rng: RNG


_default = _Default()


def get_default_rng() -> RNG:
    """Return the generator of this thread, for calls without ``rng=``.

    In a worker of a loader it starts from the worker's seed; elsewhere from a random one, until `set_seed`.
    """
    if _default.pid != os.getpid():  # a forked child must not repeat the numbers of its parent
        info = get_worker_info()
        _default.rng = RNG(None if info is None else info.seed)
        _default.pid = os.getpid()
    return _default.rng


def set_seed(seed: int) -> None:
    """Start the generator of this thread again, from a seed."""
    get_default_rng().seed = seed


def key_from(rng: Any) -> RandomKey:
    """Return the key for one call of a random operator.

    Args:
        rng: an `RNG`, a ``numpy.random.Generator``, such as ``info.rng()``, or None for the default. With ``seed=``, also a
            `SampleInfo`, see `dali_like.experimental.dynamic.invocation`.

    Raises:
        ArgumentTypeError: it is something else.
    """
    rng = get_default_rng() if rng is None else rng
    if isinstance(rng, RNG):
        return rng() << 32 | rng(), rng() << 32 | rng()
    if isinstance(rng, np.random.Generator):
        one, two = rng.integers(0, 1 << 64, 2, np.uint64).tolist()
        return one, two
    raise ArgumentTypeError(f"rng must be a random.RNG or a numpy.random.Generator, such as info.rng(), not {kind_of(rng)}")
