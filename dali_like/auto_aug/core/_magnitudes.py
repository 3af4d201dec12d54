"""Magnitude bins with random signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like import fn, types
from dali_like.errors import ArgumentClashError, ArgumentTypeError
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True


@dataclass(frozen=True)
class SignedMagnitudeBin:
    """Magnitude bins, and whether augmentations with ``randomly_negate`` negate the magnitudes.

    Attributes:
        bin: the magnitude bin, or one for each of several augmentations.
        random_sign: 1 to negate the magnitude, otherwise 0, INT32; one for each of several augmentations.
        signed_magnitude_idx: ``2 * bin + random_sign``.
    """

    bin: int | DataNode
    random_sign: DataNode
    signed_magnitude_idx: DataNode

    def __getitem__(self, index: int) -> SignedMagnitudeBin:
        """Return the bin and the sign of one of several augmentations."""
        one = self.bin if isinstance(self.bin, int) else self.bin[index]
        return SignedMagnitudeBin(one, self.random_sign[index], self.signed_magnitude_idx[index])


def signed_bin(
    magnitude_bin: int | DataNode,
    random_sign: DataNode | None = None,
    seed: int | None = None,
    shape: Sequence[int] | None = None,
) -> SignedMagnitudeBin:
    """Combine a magnitude bin with a random sign.

    Several augmentations of one sample can share the sign.

    Args:
        magnitude_bin: from 0 to ``num_magnitude_bins - 1``, the same for all samples or one for each sample.
        random_sign: 1 to negate the magnitude, otherwise 0; by default random.
        seed: of the random signs.
        shape: of the random signs of each sample; by default one number.

    Raises:
        ArgumentTypeError: the bin is neither an integer nor a node.
        ArgumentClashError: `random_sign` is given together with `seed` or `shape`.

    Follows ``nvidia.dali.auto_aug.core.signed_bin`` 1.53.
    """
    if not isinstance(magnitude_bin, (int, DataNode)):
        raise ArgumentTypeError(f"magnitude_bin={magnitude_bin!r} must be an integer or a DataNode of integers")
    if random_sign is None:
        random_sign = random_index(2, seed, shape)
    elif seed is not None or shape is not None:
        raise ArgumentClashError("`random_sign` clashes with `seed` and `shape`: omit these, or omit `random_sign`")
    return SignedMagnitudeBin(magnitude_bin, random_sign, 2 * magnitude_bin + random_sign)


def random_index(count: int, seed: int | None, shape: Sequence[int] | None = None) -> DataNode:
    """Return random integers from 0 to ``count - 1``, INT32: one number for each sample, or an array."""
    options: dict[str, Any] = {} if shape is None else {"shape": shape}
    if seed is not None:
        options["seed"] = seed
    numbers: DataNode = fn.random.uniform(values=[*range(count)], dtype=types.INT32, **options)
    return numbers


def independent_seeds(seed: int | None, count: int) -> list[int | None]:
    """Return a seed for each of several random numbers: with equal seeds, they would depend on each other."""
    if seed is None:
        return [None] * count
    return [int(word) >> 1 for word in np.random.SeedSequence(abs(seed)).generate_state(count)]


def plain_bin(magnitude_bin: Any) -> Any:
    """Return a magnitude bin without its sign."""
    return magnitude_bin.bin if isinstance(magnitude_bin, SignedMagnitudeBin) else magnitude_bin
