"""Checks of arguments that tensors and batches share, in host memory and on a GPU."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dali_like.errors import ArgumentClashError, ArgumentError, RaggedError
from dali_like.types import numpy_dtype, to_dali_type


def checked_layout(layout: str | None, ndim: int) -> str:
    """Return the layout, or "".

    Raises:
        ArgumentError: the layout has another number of dimensions.
    """
    if layout and len(layout) != ndim:
        raise ArgumentError(f"The layout '{layout}' cannot describe {ndim}-dimensional data")
    return layout or ""


def checked_shape(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the shape of a tensor made of all `size` elements of a batch.

    Raises:
        ArgumentClashError: the shape has another number of elements.
    """
    shape = tuple(map(operator.index, shape))
    if min(shape, default=0) < 0 or math.prod(shape) != size:
        raise ArgumentClashError(f"the batch has {size} elements; the shape {shape} needs another number")
    return shape


def check_one_shape(shapes: Sequence[tuple[int, ...]], whole: str) -> None:
    """Check that all samples have one shape. `whole` names the result in the message: "array" or "tensor".

    Raises:
        RaggedError: the samples have different shapes.
    """
    different = sorted(set(shapes))
    if len(different) > 1:
        raise RaggedError(
            f"Tensors in the list must have the same shape to make one {whole}; these have {len(different)} different "
            f"ones, from {different[0]} to {different[-1]}. Use at(i), iterate, or resize the samples first"
        )


def axes_of_extent_1(shape: Sequence[int], dim: int | None) -> tuple[int, ...]:
    """Return the dimensions of extent 1; with `dim`, only that one.

    Raises:
        ArgumentClashError: there is no dimension `dim`.
    """
    ndim = len(shape)
    if dim is not None and not -ndim <= operator.index(dim) < ndim:
        raise ArgumentClashError(f"axis {dim} is out of bound for a tensor with {ndim} dimensions")
    candidates = range(ndim) if dim is None else (operator.index(dim) % ndim,)
    return tuple(axis for axis in candidates if shape[axis] == 1)


def without_axes(layout: str, removed: Collection[int]) -> str:
    """Return the layout without the letters of removed dimensions."""
    return "".join(letter for axis, letter in enumerate(layout) if axis not in removed)


def type_to_reinterpret(own: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """Return the dtype to reinterpret elements as.

    Raises:
        ArgumentClashError: it differs in size from the dtype of the elements.
    """
    target = numpy_dtype(to_dali_type(dtype))
    if target.itemsize != own.itemsize:
        raise ArgumentClashError(
            f"{own} cannot be reinterpreted as {target}: the sizes differ, {own.itemsize} and {target.itemsize} bytes"
        )
    return target


def checked_address(pointer: Any) -> int:
    """Return the target address of a copy.

    Raises:
        ArgumentError: the pointer is null.
    """
    address = pointer.value if isinstance(pointer, ctypes.c_void_p) else operator.index(pointer)
    if not address:
        raise ArgumentError("copy_to_external() was given a null pointer")
    return int(address)
