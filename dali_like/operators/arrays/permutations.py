"""Operators that exchange the samples of a batch, as in ``nvidia.dali.fn``. They run in the main process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from dali_like.errors import SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import SOME, Ints, PerSample, at_least


@operator(random=True, per_sample=False, output_layout="")
def batch_permutation(call: OperatorCall, *, allow_repetitions: bool = False, no_fixed_points: bool = False) -> list[Array]:
    """Draw the numbers of the samples of the batch in random order, one number for each sample.

    Args:
        allow_repetitions: whether numbers are drawn independently, so that some may repeat and others be missing.
        no_fixed_points: whether no sample gets its own number. It has no effect on a batch of one sample.
    """
    rng, count = call.rng(), call.count
    own = np.arange(count)
    if no_fixed_points and count == 1:
        numbers = own
    elif allow_repetitions:
        numbers = rng.integers(0, count - no_fixed_points, count)
        numbers += no_fixed_points & (numbers >= own)
    else:
        numbers = rng.permutation(count)
        while no_fixed_points and (numbers == own).any():  # each time with a probability of a third or more
            numbers = rng.permutation(count)
    return [np.asarray(number) for number in numbers.astype(np.int32)]


@operator(per_sample=False, strided=True)
def permute_batch(
    call: OperatorCall, input: list[Array], *, indices: PerSample[Annotated[Ints, SOME, at_least(0)]]
) -> list[Array]:
    """Return samples of the batch in another order.

    Args:
        input: any dtype.
        indices: number of the sample of the batch to return, for each sample: a list with as many numbers as samples, or a
            node, for example of `batch_permutation`. Numbers may repeat.
    """
    numbers = _numbers(indices)
    if len(numbers) != call.count:
        raise SampleError(
            f"indices must have a number for each of the {call.count} samples of the batch, not {len(numbers)}"
        )
    if wrong := [number for number in numbers if not 0 <= number < len(input)]:
        raise SampleError(f"indices has {wrong[0]}, but the samples of the batch are numbered from 0 to {len(input) - 1}")
    return [input[number] for number in numbers]


def _numbers(indices: Ints | Sequence[Ints]) -> list[int]:
    """Return the numbers, given as a constant list, or as a list for each sample."""
    numbers: list[int] = []
    for given in indices:
        if isinstance(given, int):
            numbers.append(given)
        elif len(given) == 1:
            numbers.append(given[0])
        else:
            raise SampleError(f"indices must have one number for each sample, not {len(given)}")
    return numbers
