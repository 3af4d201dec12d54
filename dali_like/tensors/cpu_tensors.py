"""Tensors in host memory: one sample, or a dense batch as one tensor. Batches are in `dali_like.tensors.cpu_tensor_lists`.

Nothing here copies unless it says so: tensors are views of the memory that the batch lies in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.dlpack import array_of_capsule, is_capsule
from dali_like.tensors.tensor_arguments import (
    axes_of_extent_1,
    checked_address,
    checked_layout,
    type_to_reinterpret,
    without_axes,
)
from dali_like.types import DALIDataType, to_dali_type

if TYPE_CHECKING:
    from dali_like.tensors.gpu_tensors import TensorGPU

#: So many are shown of the first and of the last ones, where there are too many to show all.
SHOWN_AT_EDGES = 2


class TensorCPU:
    """One sample, or a dense batch as one tensor.

    It has the array interface, the DLPack interface and, from Python 3.12 on, the buffer interface, so that
    ``np.asarray(tensor)`` and ``torch.from_dlpack(tensor)`` are views of it.

    Args:
        b: an array, or what NumPy can make a view of; bytes, or a capsule of DLPack.
        layout: a letter for each dimension, such as "HWC", or nothing.
        is_pinned: without effect.

    Raises:
        ArgumentError: the layout has another number of dimensions, or the dtype is none of `DALIDataType`.

    >>> tensor = TensorCPU(np.zeros((2, 3), np.float32), layout="HW")
    >>> tensor.shape(), tensor.dtype, tensor.layout()
    ([2, 3], <DALIDataType.FLOAT: 9>, 'HW')
    """

    __slots__ = ("__weakref__", "_array", "_layout")

    def __init__(self, b: Any, layout: str | None = None, is_pinned: bool = False) -> None:
        array = view_of(b)
        to_dali_type(array.dtype)
        self._array = array
        self._layout = checked_layout(layout, array.ndim)

    def shape(self) -> list[int]:
        """The extents of the dimensions."""
        return list(self._array.shape)

    @property
    def dtype(self) -> DALIDataType:
        """The element type."""
        return to_dali_type(self._array.dtype)

    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    def layout(self) -> str:
        """The layout; empty where none was given."""
        return self._layout

    def set_layout(self, layout: str | None) -> None:
        """Give it another layout, or none.

        Raises:
            ArgumentError: the layout has another number of dimensions.
        """
        self._layout = checked_layout(layout, self.ndim())

    def squeeze(self, dim: int | None = None) -> bool:
        """Remove the dimensions of extent 1, or that one dimension if it is; and say whether there were any.

        Raises:
            ArgumentClashError: there is no dimension `dim`.
        """
        removed = axes_of_extent_1(self._array.shape, dim)
        self._array = self._array.squeeze(removed)
        self._layout = without_axes(self._layout, removed)
        return bool(removed)

    def reinterpret(self, dtype: Any) -> None:
        """Take its bytes for elements of another type.

        Raises:
            ArgumentClashError: those have another size.
        """
        self._array = reinterpreted(self._array, dtype)

    def source_info(self) -> str:
        """Where the data comes from: empty, since no source of this version says so."""
        return ""

    def get_property(self, name: str) -> str | None:
        """What is known besides: "layout", if there is one; None for everything else."""
        return self._layout or None if name == "layout" else None

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address_of(self._array)

    def copy_to_external(self, ptr: ctypes.c_void_p | int) -> None:
        """Copy the elements, one behind the other, to an address, where there must be room for them.

        Raises:
            ArgumentError: it is no address.
        """
        copy_to_address(ptr, [self._array])

    def as_cpu(self) -> TensorCPU:
        """The tensor itself: it is in host memory."""
        return self

    def _as_gpu(self) -> TensorGPU:
        """A copy on the first GPU; see `dali_like.tensors.gpu_tensors.sent`."""
        from dali_like.tensors.gpu_tensors import TensorGPU, sent  # noqa: PLC0415  # which is made of what is here

        return TensorGPU.of(sent(self._array), self._layout)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._array.__array_interface__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy:
            return np.array(self._array, dtype)
        return np.asarray(self._array, dtype)

    # There is no __buffer__, which Python has from 3.12 on: `torch.asarray` would take it before DLPack, and read whatever
    # is there as float32 in one dimension, as it does with DALI's tensors.

    def __bytes__(self) -> bytes:
        """The elements, one behind the other."""
        return self._array.tobytes()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return self._array.__dlpack_device__()

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled by value, which DALI refuses."""
        return TensorCPU, (self._array, self._layout)

    def __repr__(self) -> str:
        return text_of("TensorCPU", self._facts())

    def __str__(self) -> str:
        return text_of("TensorCPU", [numbers_in(self._array), *self._facts()])

    def _facts(self) -> list[str]:
        layouts = [f"layout={self._layout}"] if self._layout else []  # without quotes, as in DALI, whose batches have them
        return [f"dtype={self.dtype}", *layouts, f"shape={self.shape()}"]


def view_of(data: Any) -> NDArray[Any]:
    """The array that some data is, if need be as bytes."""
    if is_capsule(data):
        return array_of_capsule(data)
    return np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)


def reinterpreted(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """An array whose bytes are taken for elements of another type.

    Raises:
        ArgumentClashError: those have another size.
    """
    return array.view(type_to_reinterpret(array.dtype, dtype))


def address_of(array: NDArray[Any]) -> int:
    """Of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def copy_to_address(pointer: Any, arrays: Iterable[NDArray[Any]]) -> None:
    """Copy the elements of arrays, one behind the other, to an address.

    Raises:
        ArgumentError: it is no address.
    """
    address = checked_address(pointer)
    for array in arrays:
        data = np.ascontiguousarray(array)
        ctypes.memmove(address, address_of(data), data.nbytes)
        address += data.nbytes


# Texts


def text_of(kind: str, lines: Sequence[str]) -> str:
    """What is shown of a tensor or a batch: its numbers, and facts about it."""
    return f"{kind}(\n    " + ",\n    ".join(lines) + ")"


def layout_fact(layout: str) -> list[str]:
    """The layout as a fact, if there is one."""
    return [f'layout="{layout}"'] if layout else []


def numbers_in(array: NDArray[Any]) -> str:
    """The elements, or the first and the last ones if there are many."""
    return np.array2string(array, prefix="    ", edgeitems=SHOWN_AT_EDGES)
