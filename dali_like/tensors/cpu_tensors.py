"""Tensors in host memory: one sample, or a dense batch as one tensor. For batches see
`dali_like.tensors.cpu_tensor_lists`.

Tensors are views of the batch's memory. Methods copy only if their documentation says so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.dlpack import array_of_capsule, is_capsule
from dali_like.common.suggestions import suggest_arguments
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

#: Number of elements, samples or shapes shown at each end when there are too many to show all.
SHOWN_AT_EDGES = 2


class TensorCPU:
    """One sample, or a dense batch as one tensor.

    Supports the array interface and DLPack, so that ``np.asarray(tensor)`` and ``torch.from_dlpack(tensor)`` are views
    of it.

    Args:
        b: an array, or an object that NumPy can view as one; bytes, or a DLPack capsule.
        layout: a letter for each dimension, such as "HWC"; None or "" for no layout.
        is_pinned: ignored.

    Raises:
        ArgumentError: the layout has another number of dimensions, or `DALIDataType` lacks the dtype.

    >>> tensor = TensorCPU(np.zeros((2, 3), np.float32), layout="HW")
    >>> tensor.shape(), tensor.dtype, tensor.layout()
    ([2, 3], <DALIDataType.FLOAT: 9>, 'HW')
    """

    __slots__ = ("__weakref__", "_array", "_layout", "_origin")

    @suggest_arguments
    def __init__(self, b: Any, layout: str | None = None, is_pinned: bool = False) -> None:
        array = view_of(b)
        to_dali_type(array.dtype)
        self._array = array
        self._layout = checked_layout(layout, array.ndim)
        self._origin: Callable[[], str] | None = None

    def shape(self) -> list[int]:
        """Return the extents of the dimensions."""
        return list(self._array.shape)

    @property
    def dtype(self) -> DALIDataType:
        """The element type."""
        return to_dali_type(self._array.dtype)

    def ndim(self) -> int:
        """Return the number of dimensions."""
        return self._array.ndim

    def layout(self) -> str:
        """Return the layout, or ""."""
        return self._layout

    def set_layout(self, layout: str | None) -> None:
        """Replace the layout; None or "" removes it.

        Raises:
            ArgumentError: the layout has another number of dimensions.
        """
        self._layout = checked_layout(layout, self.ndim())

    def squeeze(self, dim: int | None = None) -> bool:
        """Remove the dimensions of extent 1, or only dimension `dim` if its extent is 1; return whether any was removed.

        Raises:
            ArgumentClashError: there is no dimension `dim`.
        """
        removed = axes_of_extent_1(self._array.shape, dim)
        self._array = self._array.squeeze(removed)
        self._layout = without_axes(self._layout, removed)
        return bool(removed)

    def reinterpret(self, dtype: Any) -> None:
        """Reinterpret the bytes as elements of another dtype.

        Raises:
            ArgumentClashError: the dtypes differ in size.
        """
        self._array = reinterpreted(self._array, dtype)

    def source_info(self) -> str:
        """Return the name of the file that a reader has read the sample from, also behind operators; "" if unknown."""
        return "" if self._origin is None else self._origin()

    def get_property(self, name: str) -> str | None:
        """Return a property by name: "layout" if there is one, otherwise None."""
        return self._layout or None if name == "layout" else None

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return address_of(self._array)

    def copy_to_external(self, ptr: ctypes.c_void_p | int) -> None:
        """Copy the elements in C order to an address with room for all of them.

        Raises:
            ArgumentError: the address is null.
        """
        copy_to_address(ptr, [self._array])

    def as_cpu(self) -> TensorCPU:
        """Return the tensor itself."""
        return self

    def _as_gpu(self, device_id: int = 0) -> TensorGPU:
        """Return a copy on a GPU, the first one by default; see `dali_like.tensors.gpu_tensors.copied_to_gpu`."""
        from dali_like.tensors.gpu_tensors import TensorGPU, copied_to_gpu  # it imports this module

        return TensorGPU.of(copied_to_gpu(self._array, device_id), self._layout)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._array.__array_interface__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy:
            return np.array(self._array, dtype)
        return np.asarray(self._array, dtype)

    # No __buffer__ (Python 3.12): `torch.asarray` prefers it to DLPack and reads any data as one-dimensional float32, as it
    # does with DALI's tensors.

    def __bytes__(self) -> bytes:
        """Return the elements in C order."""
        return self._array.tobytes()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return self._array.__dlpack_device__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value. DALI refuses to pickle tensors."""
        return TensorCPU, (self._array, self._layout)

    def __repr__(self) -> str:
        return text_of("TensorCPU", self._property_lines())

    def __str__(self) -> str:
        return text_of("TensorCPU", [numbers_in(self._array), *self._property_lines()])

    def _property_lines(self) -> list[str]:
        layouts = [f"layout={self._layout}"] if self._layout else []  # no quotes, as in DALI; only its lists have quotes
        return [f"dtype={self.dtype}", *layouts, f"shape={self.shape()}"]


def view_of(data: Any) -> NDArray[Any]:
    """Return data as an array without a copy; bytes become uint8."""
    if is_capsule(data):
        return array_of_capsule(data)
    return np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)


def reinterpreted(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return a view of an array with another dtype.

    Raises:
        ArgumentClashError: the dtypes differ in size.
    """
    return array.view(type_to_reinterpret(array.dtype, dtype))


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def copy_to_address(pointer: Any, arrays: Iterable[NDArray[Any]]) -> None:
    """Copy the elements of arrays back to back to an address.

    Raises:
        ArgumentError: the address is null.
    """
    address = checked_address(pointer)
    for array in arrays:
        data = np.ascontiguousarray(array)
        ctypes.memmove(address, address_of(data), data.nbytes)
        address += data.nbytes


def text_of(kind: str, lines: Sequence[str]) -> str:
    """Return the text of a tensor or batch: its elements and properties, one per line."""
    return f"{kind}(\n    " + ",\n    ".join(lines) + ")"


def layout_lines(layout: str) -> list[str]:
    """Return the line about the layout; no line without a layout."""
    return [f'layout="{layout}"'] if layout else []


def numbers_in(array: NDArray[Any]) -> str:
    """Return the text of the elements; only of the first and last ones if there are many."""
    return np.array2string(array, prefix="    ", edgeitems=SHOWN_AT_EDGES)
