"""Random numbers for samplers, from a generator of NumPy or of PyTorch.

Samplers use the `Randomness` protocol, which wraps a generator. PyTorch is not imported for it: a program with one of its
generators has imported it. The state of a generator consists of numbers and text, so that JSON can store it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.errors import ArgumentTypeError, CheckpointError

__all__ = ["NumpyRandomness", "Randomness", "TorchRandomness", "as_generator", "randomness_of"]

#: Returns a state, later than the moment that it is of: few states are wanted, and their texts take time.
SavedState = Callable[[], dict[str, Any]]

#: `torch.multinomial` refuses more weights than these.
_TORCH_MULTINOMIAL_LIMIT = 2**24


class Randomness(Protocol):
    """A source of random numbers for samplers."""

    @classmethod
    def fresh(cls) -> Self:
        """Return a new generator, seeded from the library's global generator, which programs seed."""

    @classmethod
    def of_epoch(cls, seed: int, epoch: int) -> Self:
        """Return a new generator that depends only on these numbers."""

    def permutation(self, length: int) -> NDArray[np.int64]:
        """Return the numbers below `length` in random order."""

    def integers(self, high: int, count: int) -> NDArray[np.int64]:
        """Draw `count` numbers below `high` from the uniform distribution."""

    def weighted(self, weights: NDArray[np.float64], count: int, replacement: bool) -> NDArray[np.int64]:
        """Draw `count` positions with probabilities proportional to `weights`; without replacement, each at most once."""

    def snapshot(self) -> SavedState:
        """Return a function that returns the state of the generator as it is now."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the generator to the state of a `snapshot`.

        Raises:
            CheckpointError: this is not the state of such a generator.
        """


class NumpyRandomness:
    """Draws from a `numpy.random.Generator`."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    @classmethod
    def fresh(cls) -> Self:
        """Return a new generator, seeded from NumPy's global generator."""
        return cls(np.random.default_rng(int(np.random.randint(2**63 - 1, dtype=np.int64))))

    @classmethod
    def of_epoch(cls, seed: int, epoch: int) -> Self:
        """Return a new generator, different for each pair of seed and epoch. Negative numbers are taken modulo 2^64."""
        return cls(np.random.default_rng([seed % 2**64, epoch % 2**64]))

    def permutation(self, length: int) -> NDArray[np.int64]:
        return self._generator.permutation(length)

    def integers(self, high: int, count: int) -> NDArray[np.int64]:
        return self._generator.integers(high, size=count)

    def weighted(self, weights: NDArray[np.float64], count: int, replacement: bool) -> NDArray[np.int64]:
        if replacement:
            return by_cumulated_weights(weights, self._generator.random(count))
        return by_arrival(weights, self._generator.random(len(weights)), count)

    def snapshot(self) -> SavedState:
        """Return a function that returns the state of the bit generator, with lists for arrays."""
        return functools.partial(_plain, self._generator.bit_generator.state)

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            self._generator.bit_generator.state = dict(state)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            kind = kind_of(self._generator.bit_generator)
            raise CheckpointError(f"Invalid state_dict: its generator is not {kind} of NumPy: {error}") from error


class TorchRandomness:
    """Draws from a ``torch.Generator`` with the functions that PyTorch's samplers use."""

    def __init__(self, generator: Any, seed: int | None = None) -> None:
        self._torch = sys.modules["torch"]
        self._own = generator
        #: Of a generator that only this object has, until something is drawn: its state then need not be copied.
        self._unused_seed = seed

    @property
    def _generator(self) -> Any:
        self._unused_seed = None
        return self._own

    @classmethod
    def fresh(cls) -> Self:
        """Return a new generator, seeded from PyTorch's global generator as in its ``RandomSampler``."""
        torch = importlib.import_module("torch")
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        return cls(torch.Generator().manual_seed(seed), seed)

    @classmethod
    def of_epoch(cls, seed: int, epoch: int) -> Self:
        """Return a new generator, seeded as in ``torch.utils.data.DistributedSampler``."""
        return cls(importlib.import_module("torch").Generator().manual_seed(seed + epoch))

    def permutation(self, length: int) -> NDArray[np.int64]:
        return self._array(self._torch.randperm(length, generator=self._generator))

    def integers(self, high: int, count: int) -> NDArray[np.int64]:
        return self._array(self._torch.randint(high, (count,), dtype=self._torch.int64, generator=self._generator))

    def weighted(self, weights: NDArray[np.float64], count: int, replacement: bool) -> NDArray[np.int64]:
        """See `Randomness.weighted`. If ``torch.multinomial`` cannot take so many weights, draw as for NumPy."""
        if len(weights) <= _TORCH_MULTINOMIAL_LIMIT:
            tensor = self._torch.from_numpy(weights)
            return self._array(self._torch.multinomial(tensor, count, replacement, generator=self._generator))
        if replacement:
            return by_cumulated_weights(weights, self._uniform(count))
        return by_arrival(weights, self._uniform(len(weights)), count)

    def snapshot(self) -> SavedState:
        """Return a function that returns the bytes of the state as hexadecimal text."""
        if (seed := self._unused_seed) is not None:
            return lambda: _text_of(self._torch.Generator().manual_seed(seed).get_state())
        return functools.partial(_text_of, self._own.get_state())

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            data = bytearray.fromhex(state["torch"])
            self._generator.set_state(self._torch.frombuffer(data, dtype=self._torch.uint8))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"Invalid state_dict: its generator is not one of PyTorch: {error}") from error

    def _uniform(self, count: int) -> NDArray[np.float64]:
        numbers: NDArray[np.float64] = self._torch.rand(count, dtype=self._torch.float64, generator=self._generator).numpy()
        return numbers

    @staticmethod
    def _array(tensor: Any) -> NDArray[np.int64]:
        numbers: NDArray[np.int64] = tensor.numpy()
        return numbers


def as_generator(generator: Any) -> Any:
    """Return the generator for a user's argument: a seed becomes a generator of NumPy, and None stays None.

    Raises:
        ArgumentTypeError: the argument is neither a generator nor a seed.
    """
    if generator is None or _is_torch_generator(generator):
        return generator
    try:
        return np.random.default_rng(generator)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"generator should be a numpy.random.Generator, a seed or a torch.Generator, but got {generator!r}"
        ) from error


def randomness_of(generator: Any) -> Randomness:
    """Wrap a result of `as_generator`."""
    if _is_torch_generator(generator):
        return TorchRandomness(generator)
    return NumpyRandomness(as_generator(generator))


def _is_torch_generator(generator: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(generator, torch.Generator)


def by_cumulated_weights(weights: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a position for each number in [0, 1), which the weights side by side divide."""
    edges = np.cumsum(weights / weights.max())
    positions: NDArray[np.int64] = np.searchsorted(edges, uniform * edges[-1], side="right")
    return positions


def by_arrival(weights: NDArray[np.float64], uniform: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Draw without replacement: each position gets a random arrival time with its weight as the rate; return the first ones.

    Each next arrival then has a probability proportional to its weight among the remaining ones (Efraimidis and Spirakis,
    "Weighted random sampling with a reservoir", 2006).
    """
    runners: NDArray[np.int64] = np.flatnonzero(weights)
    with np.errstate(divide="ignore"):  # the logarithm of 0: an immediate arrival
        log_times = np.log(-np.log1p(-uniform[runners])) - np.log(weights[runners])
    first: NDArray[np.int64] = runners[np.argsort(log_times, kind="stable")[:count]]
    return first


def _text_of(state: Any) -> dict[str, Any]:
    return {"torch": state.numpy().tobytes().hex()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
