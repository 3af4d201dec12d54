"""What the methods of tensors and batches need, checked: the same in host memory and on a GPU."""

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
    """A layout; empty where none was given.

    Raises:
        ArgumentError: it has another number of dimensions.
    """
    if layout and len(layout) != ndim:
        raise ArgumentError(f"The layout '{layout}' cannot describe {ndim}-dimensional data")
    return layout or ""


def checked_shape(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """The shape of a tensor that is made of all elements of a batch.

    Raises:
        ArgumentClashError: it has another number of elements.
    """
    shape = tuple(map(operator.index, shape))
    if min(shape, default=0) < 0 or math.prod(shape) != size:
        raise ArgumentClashError(f"the batch has {size} elements, and not as many as the shape {shape}")
    return shape


def check_one_shape(shapes: Sequence[tuple[int, ...]], whole: str) -> None:
    """Check that the samples of a batch have one shape, so that they can be one array or tensor, as `whole` says.

    Raises:
        RaggedError: they have several.
    """
    different = sorted(set(shapes))
    if len(different) > 1:
        raise RaggedError(
            f"Tensors in the list must have the same shape to make one {whole}; these have {len(different)} different "
            f"ones, from {different[0]} to {different[-1]}. Use at(i) or iterate, or make them equal before"
        )


def axes_of_extent_1(shape: Sequence[int], dim: int | None) -> tuple[int, ...]:
    """The dimensions of extent 1: all of them, or `dim` if it is one.

    Raises:
        ArgumentClashError: there is no dimension `dim`.
    """
    ndim = len(shape)
    if dim is not None and not -ndim <= operator.index(dim) < ndim:
        raise ArgumentClashError(f"axis {dim} is out of bound for a tensor with {ndim} dimensions")
    candidates = range(ndim) if dim is None else (operator.index(dim) % ndim,)
    return tuple(axis for axis in candidates if shape[axis] == 1)


def without_axes(layout: str, removed: Collection[int]) -> str:
    """What is left of a layout when dimensions are removed."""
    return "".join(letter for axis, letter in enumerate(layout) if axis not in removed)


def type_to_reinterpret(own: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """The type that elements are to be taken for.

    Raises:
        ArgumentClashError: its elements have another size.
    """
    target = numpy_dtype(to_dali_type(dtype))
    if target.itemsize != own.itemsize:
        raise ArgumentClashError(
            f"elements of {own} cannot be taken for {target}, which have another size: {target.itemsize} bytes"
        )
    return target


def checked_address(pointer: Any) -> int:
    """The address that something is to be copied to.

    Raises:
        ArgumentError: it is the null pointer.
    """
    address = pointer.value if isinstance(pointer, ctypes.c_void_p) else operator.index(pointer)
    if not address:
        raise ArgumentError("copy_to_external() was given a null pointer")
    return int(address)
