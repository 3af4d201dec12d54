"""Operators that choose elements of sequences, as in ``nvidia.dali.fn``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from dali_like.errors import ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator, view_kernel
from dali_like.operators.parameters import SOME, Ints, PerSample, at_least


def _check_sequence(layout: str) -> None:
    if layout and layout[0] != "F":
        raise ArgumentError(f"the layout {layout!r} does not begin with F: the input must be a sequence")


def _elements_layout(layout: str, given: Mapping[str, Any]) -> Sequence[str]:
    _check_sequence(layout)
    return [layout[1:]] * len(given["element_map"])


def _sequence_layout(layout: str, _: Mapping[str, Any]) -> str:
    _check_sequence(layout)
    return layout


def _check_elements(lead: int, sequence: Array, numbers: Sequence[int], name: str) -> None:
    """Refuse inputs that are not sequences, and elements that they lack.

    Raises:
        SampleError: as above.
    """
    ndim, length = sequence.ndim - lead, sequence.shape[lead : lead + 1]
    if ndim < 2:
        raise SampleError(f"the input has {ndim} dimensions; a sequence of arrays has two or more")
    if wrong := [number for number in numbers if not 0 <= number < length[0]]:
        raise SampleError(f"{name} has {wrong[0]}, but the elements of this sequence are numbered from 0 to {length[0] - 1}")


@operator(
    num_outputs=lambda given: len(given["element_map"]),
    output_layout=_elements_layout,
    strided=True,
    stacks=(),
    **view_kernel("element_extract"),
)
def element_extract(call: OperatorCall, input: Array, *, element_map: Annotated[Ints, SOME, at_least(0)]) -> Any:
    """Return elements of sequences, each as an output of its own.

    Args:
        input: sequences of any dtype: arrays whose first dimension counts the elements, with a layout that begins with F or
            none.
        element_map: numbers of the elements, one for each output.

    Returns:
        As many outputs as `element_map` has numbers. They have one dimension less than the input.
    """
    _check_elements(call.lead, input, element_map, "element_map")
    if len(element_map) == 1:
        return call.part(input[:, element_map[0]] if call.lead else input[element_map[0]])
    return tuple([input[:, number] if call.lead else input[number] for number in element_map])


@operator(
    output_layout=_sequence_layout,
    strided=True,
    stacks=(),
    kernel="arrays.mask_kernels.sequence_rearrange",
    kernel_for_stacks=False,
    kernel_for_large=True,
)
def sequence_rearrange(call: OperatorCall, input: Array, *, new_order: PerSample[Annotated[Ints, SOME]]) -> Array:
    """Reorder, repeat or drop elements of sequences.

    Args:
        input: sequences of any dtype: arrays whose first dimension counts the elements, with a layout that begins with F or
            none.
        new_order: for each element of the result, its number in the input.
    """
    _check_elements(call.lead, input, new_order, "new_order")
    out = call.empty((*input.shape[: call.lead], len(new_order), *input.shape[call.lead + 1 :]), input.dtype)
    np.take(input, new_order, axis=call.lead, out=out, mode="clip")  # they are checked; so NumPy writes to `out` directly
    return out
