"""Tensors on a GPU: one sample, or a dense batch as one tensor. For batches see `dali_like.tensors.gpu_tensor_lists`.

The methods follow ``nvidia.dali.tensors`` 1.53, and copy only if their documentation says so. The copies that fill a
batch may be in progress. DLPack, the CUDA Array Interface and `Pipeline.run` make the user's streams wait for them.
Code that uses the address from `data_ptr` must wait on `stream` itself.

A batch and all views of it keep its memory alive. When the last one is dropped, the memory is reused after the work
queued by then on the default stream and on the current streams of PyTorch and CuPy in that thread. On other streams,
including those of JAX's functions, and for CUDA graphs, keep the batch until their work has finished. PyTorch's
``record_stream`` does not help: it ignores memory of other allocators.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from dali_like.common.suggestions import suggest_arguments
from dali_like.device.copier import Copier, Samples
from dali_like.device.cuda_streams import DEFAULT_STREAM, stream_handle
from dali_like.device.device_array import DeviceArray, copy_to
from dali_like.device.device_memory import unpooled
from dali_like.device.opening import check_device, shared_device
from dali_like.errors import ArgumentTypeError
from dali_like.tensors.cpu_tensors import TensorCPU
from dali_like.tensors.tensor_arguments import (
    axes_of_extent_1,
    checked_address,
    checked_layout,
    type_to_reinterpret,
    without_axes,
)
from dali_like.types import DALIDataType, to_dali_type

__all__ = ["TensorGPU"]

#: ``kDLCPU`` of DLPack, with its only number.
_DLPACK_CPU = (1, 0)
#: Kernels that XLA compiles assume arguments at multiples of 16 bytes (``kEntryParameterAlignBytes``), and DLPack promises
#: 256. Samples of a dense batch may lie elsewhere. An access of the wrong alignment would end the use of the GPU.
_EXPORT_ALIGNMENT = 16


def adopted(data: Any, device_id: int) -> DeviceArray:
    """Return an array of the user's on a GPU: its memory, or a copy if the array is not contiguous.

    Raises:
        ArgumentTypeError: the data is not an array on that GPU.
        DeviceError: the array is filled by a stream that captures a graph, or the GPU has failed.
    """
    if isinstance(data, TensorGPU):
        return data._array
    device_id = max(device_id, 0)
    check_device(device_id, "a tensor on a GPU")
    device = shared_device(device_id)
    device.hold(device.fence_of(None))
    array = device.adopt(data)
    if array.strides is None:
        return DeviceArray.of(device, array, device.record())
    address, lease = unpooled(device, array.nbytes, array.owner)
    device.gather(address, array)
    copied = device.record()
    device.hold(copied, None)  # the user's next writes to the array come after the copy
    return DeviceArray(device, address, array.shape, array.dtype, lease, copied)


def copied_to_gpu(samples: Samples, device_id: int = 0) -> Any:
    """Return a copy on a GPU of samples in host memory: one array, or a sequence of arrays.

    Raises:
        DeviceError: there is no GPU, or the copy could not be queued.
        MissingExtraError: CuPy is not installed.
        OutOfMemoryError: the GPU has too little free memory.
    """
    check_device(device_id, "a copy on a GPU")
    copier = Copier(shared_device(device_id), lambda nbytes: np.empty(nbytes, np.uint8))
    (made,) = copier.send([samples])
    copier.close()  # waits: the user may overwrite the samples from now on
    return made


class TensorGPU:
    """One sample, or a dense batch as one tensor, on a GPU.

    Supports the CUDA Array Interface and DLPack, so that ``cupy.asarray(tensor)``, ``torch.from_dlpack(tensor)`` and
    ``jax.dlpack.from_dlpack(tensor)`` are views of it. If its address is not a multiple of 16, as of some samples of a dense
    batch, DLPack exports a copy.

    Args:
        object: an array on the GPU with one of these interfaces.
        layout: a letter for each dimension, such as "HWC"; None or "" for no layout.
        device_id: the number of its GPU. Default: the first.

    Raises:
        ArgumentError: the layout has another number of dimensions, or `DALIDataType` lacks the dtype.
        ArgumentTypeError: the object is not an array on that GPU.
    """

    __slots__ = ("__weakref__", "_array", "_layout", "_origin")

    @suggest_arguments
    def __init__(self, object: Any, layout: str | None = None, device_id: int = -1) -> None:
        self._hold(adopted(object, device_id), layout)

    @classmethod
    def of(cls, array: DeviceArray, layout: str | None) -> Self:
        """Return the tensor of an array."""
        tensor = cls.__new__(cls)
        tensor._hold(array, layout)
        return tensor

    def _hold(self, array: DeviceArray, layout: str | None) -> None:
        to_dali_type(array.dtype)
        self._array = array
        self._layout = checked_layout(layout, len(array.shape))
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
        return len(self._array.shape)

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
        shape = self._array.shape
        removed = axes_of_extent_1(shape, dim)
        self._array = self._array.viewed([extent for axis, extent in enumerate(shape) if axis not in removed])
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

    def device_id(self) -> int:
        """Return the number of the GPU."""
        return self._array.device.device_id

    @property
    def stream(self) -> int:
        """The handle of the stream that fills the tensor."""
        return self._array.device.stream

    def data_ptr(self) -> int:
        """Return the address of the first element. The tensor is filled when its `stream` has reached this point."""
        return self._array.address

    def copy_to_external(
        self,
        ptr: ctypes.c_void_p | int,
        cuda_stream: Any = None,
        non_blocking: bool = False,
        use_copy_kernel: bool = False,
    ) -> None:
        """Copy the elements in C order to GPU memory with room for all of them.

        Args:
            ptr: the address.
            cuda_stream: the stream to order the copy on: after its earlier work, before its later work. Default: the
                GPU's default stream.
            non_blocking: whether to return before the copy has ended.
            use_copy_kernel: ignored; the copy engine copies.

        Raises:
            ArgumentError: the address is null.
            DeviceError: the copy has failed.
        """
        copy_to_external([self._array], ptr, cuda_stream, non_blocking=non_blocking)

    def as_cpu(self) -> TensorCPU:
        """Return a copy in host memory.

        Raises:
            DeviceError: the copy has failed.
        """
        return TensorCPU(self._array.to_host(), self._layout)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._array.interface

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
        **options: Any,
    ) -> Any:
        array = self._array
        device = array.device.dlpack_device
        wanted = device if dl_device is None else tuple(dl_device)
        if wanted not in (device, _DLPACK_CPU):
            raise BufferError(f"a tensor on device {device} cannot be exported to device {wanted}; import it, then copy it")
        is_view = wanted == device and array.address % _EXPORT_ALIGNMENT == 0 and not copy
        if copy is False and not is_view:
            raise BufferError(
                f"a tensor at {array.address:#x} on device {device} needs a copy for device {wanted}, because other devices "
                f"and addresses that are not multiples of {_EXPORT_ALIGNMENT} need one: leave copy=False out"
            )
        if wanted != device:
            return array.to_host().__dlpack__()
        if not is_view:
            # In aligned memory of its own, behind all work on the streams in use.
            address, lease = unpooled(array.device, array.nbytes, array.owner)
            copy_to(address, [array], array.device, None, waits=False)
            array = DeviceArray(array.device, address, array.shape, array.dtype, lease, array.device.record())
        if stream != -1:  # -1: no synchronization; None: the default stream, here all streams in use
            array.let_wait(stream)
        return array.device.export(array.on_gpu, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.device.dlpack_device

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentTypeError("a tensor on a GPU cannot be pickled; pickle its as_cpu()")

    def __repr__(self) -> str:
        layout = f', layout="{self._layout}"' if self._layout else ""
        return f"TensorGPU(dtype={self.dtype}{layout}, shape={self.shape()}, device_id={self.device_id()})"

    def __str__(self) -> str:
        return str(self.as_cpu()).replace("TensorCPU(", "TensorGPU(", 1)


def copy_to_external(arrays: list[DeviceArray], pointer: Any, cuda_stream: Any, *, non_blocking: bool) -> None:
    """Copy arrays to an address on the GPU; see `TensorGPU.copy_to_external`."""
    stream = stream_handle(cuda_stream)
    copy_to(
        checked_address(pointer),
        arrays,
        arrays[0].device,
        DEFAULT_STREAM if stream is None else stream,
        waits=not non_blocking,
    )


def reinterpreted(array: DeviceArray, dtype: Any) -> DeviceArray:
    """Return a view of an array with another dtype.

    Raises:
        ArgumentClashError: the dtypes differ in size.
    """
    return array.viewed(dtype=type_to_reinterpret(np.dtype(array.dtype), dtype))
