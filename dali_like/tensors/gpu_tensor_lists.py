"""Batches on a GPU, as `Pipeline.run` returns them. See `dali_like.tensors.gpu_tensors` for the rules about streams."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from numpy.typing import NDArray

from dali_like.common.suggestions import suggest_arguments
from dali_like.device.copier import DeviceSamples
from dali_like.device.cuda_streams import stream_handle
from dali_like.device.device_array import DeviceArray, arrays_to_host, copy_to
from dali_like.device.device_memory import unpooled
from dali_like.device.interface import DeviceFence
from dali_like.errors import ArgumentClashError, ArgumentTypeError, SampleIndexError
from dali_like.tensors.cpu_tensor_lists import TensorListCPU
from dali_like.tensors.gpu_tensors import TensorGPU, adopted, copy_to_external, reinterpreted
from dali_like.tensors.tensor_arguments import check_one_shape, checked_layout, checked_shape
from dali_like.types import DALIDataType, to_dali_type

__all__ = ["TensorListGPU", "let_wait"]


class TensorListGPU:
    """A batch on a GPU: samples with one dtype and number of dimensions, whose shapes may differ.

    Args:
        object: an array on the GPU of shape ``(samples, ...)``; a sequence of tensors or arrays there; or another
            list, to share its memory.
        layout: the layout of each sample. Default: that of the tensors or the other list.
        device_id: the number of its GPU. Default: the first.

    Raises:
        ArgumentError: the layout has another number of dimensions than the samples, or `DALIDataType` lacks the dtype.
        ArgumentTypeError: the samples differ in dtype or number of dimensions, or are on another device.
        ArgumentClashError: the array has no dimensions.
    """

    __slots__ = ("__weakref__", "_dense", "_layout", "_origin", "_samples")

    @suggest_arguments
    def __init__(self, object: Any, layout: str | None = None, device_id: int = -1) -> None:
        samples: DeviceSamples
        if isinstance(object, TensorListGPU):
            samples = object._samples if object._dense is None else object._dense
            layout = object.layout() if layout is None else layout
        elif isinstance(object, (list, tuple)):
            samples = [adopted(sample, device_id) for sample in object]
            if len({(sample.dtype, len(sample.shape)) for sample in samples}) > 1:
                raise ArgumentTypeError("the samples of a batch cannot have different data types or numbers of dimensions")
            if layout is None:
                layout = next((sample.layout() for sample in object if isinstance(sample, TensorGPU)), None)
        else:
            samples = adopted(object, device_id)
            if not samples.shape:
                raise ArgumentClashError("Cannot create TensorList from 0-dim array")
        self._hold(samples, layout or "")
        if len(self):
            to_dali_type(self._first().dtype)

    @staticmethod
    def broadcast(tensor: Any, num_samples: int) -> TensorListGPU:
        """Return a batch that repeats one tensor, sharing its memory."""
        sample = tensor if isinstance(tensor, TensorGPU) else TensorGPU(tensor)
        return TensorListGPU([sample] * num_samples, sample.layout())

    @classmethod
    def of_arrays(cls, data: DeviceSamples, layout: str) -> Self:
        """Return a batch of arrays on a GPU, unchecked."""
        batch = cls.__new__(cls)
        batch._hold(data, layout)
        return batch

    def _hold(self, data: DeviceSamples, layout: str) -> None:
        self._dense = data if isinstance(data, DeviceArray) else None
        self._samples = [] if isinstance(data, DeviceArray) else data
        self._layout = layout
        self._origin: Callable[[int], str] | None = None
        if layout and len(self):
            checked_layout(layout, self.ndim())

    def set_origin(self, origin: Callable[[int], str] | None) -> None:
        """Set the function that returns the origin of a sample, usually a file name, for `source_info` of tensors."""
        self._origin = origin

    def __len__(self) -> int:
        return len(self._samples) if self._dense is None else self._dense.shape[0]

    def __getitem__(self, index: int) -> TensorGPU:
        tensor = TensorGPU.of(self._array(index), self._layout)
        if self._origin is not None:
            tensor._origin = functools.partial(self._origin, operator.index(index) % len(self))
        return tensor

    def __iter__(self) -> Iterator[TensorGPU]:
        return (self[i] for i in range(len(self)))

    def at(self, index: int) -> TensorGPU:
        """Return sample `index` as a tensor; negative indices count from the end.

        Raises:
            SampleIndexError: there is no such sample.
        """
        return self[index]

    def _array(self, index: int) -> DeviceArray:
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise SampleIndexError(f"the batch has no sample {index}: it has {len(self)}, numbered from 0")
        index %= len(self)
        return self._samples[index] if self._dense is None else self._dense.at(index)

    def _arrays(self) -> list[DeviceArray]:
        """Return the arrays of the batch, in the order of the samples."""
        return self._samples if self._dense is None else [self._dense]

    def shape(self) -> list[tuple[int, ...]]:
        """Return the shape of each sample."""
        if self._dense is not None:
            return [self._dense.shape[1:]] * len(self)
        return [sample.shape for sample in self._samples]

    @property
    def dtype(self) -> DALIDataType:
        """The element type of all samples."""
        return to_dali_type(self._first().dtype) if len(self) else DALIDataType.UINT8

    def ndim(self) -> int:
        """Return the number of dimensions of each sample."""
        if not len(self) and self._dense is None:
            return 1
        return len(self._first().shape) - (self._dense is not None)

    def layout(self) -> str:
        """Return the layout of each sample, or ""."""
        return self._layout

    def set_layout(self, layout: str | None) -> None:
        """Replace the layout of the samples; None or "" removes it.

        Raises:
            ArgumentError: the layout has another number of dimensions.
        """
        self._layout = checked_layout(layout, self.ndim()) if len(self) else layout or ""

    def reinterpret(self, dtype: Any) -> None:
        """Reinterpret the bytes of the samples as elements of another dtype.

        Raises:
            ArgumentClashError: the dtypes differ in size.
        """
        if self._dense is not None:
            self._dense = reinterpreted(self._dense, dtype)
        else:
            self._samples = [reinterpreted(sample, dtype) for sample in self._samples]

    def is_dense_tensor(self) -> bool:
        """Whether all samples have the same shape, as `as_tensor` requires."""
        return self._dense is not None or len(set(self.shape())) <= 1

    def as_tensor(self) -> TensorGPU:
        """Return the batch as one tensor. Its layout begins with N.

        Scattered samples are copied together once; the list then consists of parts of that tensor.

        Raises:
            RaggedError: the samples have different shapes.
        """
        if self._dense is None:
            check_one_shape(self.shape(), "tensor")
            self._dense = self._concatenated((len(self), *self._first().shape))
            self._samples = []
        is_named = self._layout or len(self._dense.shape) == 1
        return TensorGPU.of(self._dense, "N" + self._layout if is_named else "")

    def as_reshaped_tensor(self, shape: Sequence[int]) -> TensorGPU:
        """Return all elements as one tensor of another shape. Copies if the samples are scattered.

        Raises:
            ArgumentClashError: the shape has another number of elements.
        """
        shape = checked_shape(shape, sum(map(math.prod, self.shape())))
        if self.is_dense_tensor():
            tensor = self.as_tensor()
            return tensor if tensor.shape() == list(shape) else TensorGPU.of(tensor._array.viewed(shape), "")
        return TensorGPU.of(self._concatenated(shape), "N" if len(shape) == 1 and not self._layout else "")

    def data_ptr(self) -> int:
        """Return the address of the first element. Only the samples of a dense batch are contiguous."""
        return self.as_tensor().data_ptr() if self.is_dense_tensor() else self._first().address

    def device_id(self) -> int:
        """Return the number of the GPU.

        Raises:
            ArgumentClashError: the batch has no samples, and so no device.
        """
        return self._first().device.device_id

    @property
    def stream(self) -> int:
        """The handle of the stream that fills the batch."""
        return self._first().device.stream

    def copy_to_external(
        self,
        ptr: ctypes.c_void_p | int,
        cuda_stream: Any = None,
        non_blocking: bool = False,
        use_copy_kernel: bool = False,
    ) -> None:
        """Copy the samples back to back to GPU memory; see `TensorGPU.copy_to_external`."""
        if len(self):
            copy_to_external(self._arrays(), ptr, cuda_stream, non_blocking=non_blocking)

    def reset(self) -> None:
        """Remove all samples."""
        self._hold([], "")

    def as_cpu(self) -> TensorListCPU:
        """Return a copy in host memory.

        Raises:
            DeviceError: the copy has failed.
        """
        copies = arrays_to_host(self._arrays())
        batch = TensorListCPU.of_arrays(copies if self._dense is None else copies[0], self._layout)
        batch.set_origin(self._origin)
        return batch

    def as_array(self) -> NDArray[Any]:
        """Return a copy in host memory, as one array of shape ``(len(self), *sample_shape)``.

        Raises:
            RaggedError: the samples have different shapes.
            DeviceError: the copy has failed.
        """
        return self.as_cpu().as_array()

    @property
    def ready(self) -> DeviceFence:
        """A fence that passes when the batch is filled.

        Raises:
            ArgumentClashError: the batch has no samples.
        """
        return self._first().ready

    def wait_for_copies(self, stream: int | None) -> None:
        """Make a stream wait until the batch is filled; None: all streams in use."""
        if len(self):
            self._first().let_wait(stream)

    def _first(self) -> DeviceArray:
        if self._dense is not None:
            return self._dense
        if not self._samples:
            raise ArgumentClashError("a batch without samples has no GPU")
        return self._samples[0]

    def _concatenated(self, shape: tuple[int, ...]) -> DeviceArray:
        """Copy the samples back to back to new memory."""
        first = self._first()
        device = first.device
        address, lease = unpooled(device, sum(array.nbytes for array in self._samples))
        copy_to(address, self._samples, device, None, waits=True)
        return DeviceArray(device, address, shape, first.dtype, lease, device.record())

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentTypeError("a batch on a GPU cannot be pickled; pickle its as_cpu()")

    def _repr_html_(self) -> str:
        """Show the batch in a notebook."""
        from dali_like.showing.notebook import batch_html  # only notebooks ask

        return batch_html(self)

    def __repr__(self) -> str:
        layout = f', layout="{self._layout}"' if self._layout else ""
        return f"TensorListGPU(dtype={self.dtype}{layout}, num_samples={len(self)}, shape={self.shape()})"

    def __str__(self) -> str:
        return str(self.as_cpu()).replace("TensorListCPU(", "TensorListGPU(", 1)


def let_wait(outputs: Sequence[Any], cuda_stream: Any = None) -> None:
    """Make a stream wait until the outputs of a pipeline are filled; None: all streams in use. See `Pipeline.run`.

    Raises:
        ArgumentTypeError: `cuda_stream` is not a stream.
    """
    waited: list[Any] = []
    for output in outputs:
        if isinstance(output, TensorListGPU) and len(output):
            ready = output.ready
            if not any(ready is fence for fence in waited):  # usually all outputs share one fence
                output.wait_for_copies(stream_handle(cuda_stream))
                waited.append(ready)
