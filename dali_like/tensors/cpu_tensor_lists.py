"""Batches in host memory: samples with one dtype and number of dimensions, whose shapes may differ.

Arrays are views of the batch's memory. Methods copy only if their documentation says so.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dali_like.common.suggestions import suggest_arguments
from dali_like.engine.memory.ring import SampleList
from dali_like.errors import ArgumentClashError, ArgumentTypeError, SampleIndexError
from dali_like.tensors.cpu_tensors import (
    SHOWN_AT_EDGES,
    TensorCPU,
    address_of,
    copy_to_address,
    layout_lines,
    numbers_in,
    reinterpreted,
    text_of,
    view_of,
)
from dali_like.tensors.tensor_arguments import check_one_shape, checked_layout, checked_shape
from dali_like.types import DALIDataType, to_dali_type

if TYPE_CHECKING:
    from dali_like.tensors.gpu_tensor_lists import TensorListGPU

#: With more samples, the text of a batch shows only the first and last shapes.
_MAX_SHAPES_SHOWN = 16
#: With more elements, the text of a ragged batch shows only the first and last samples (as NumPy would),
_MAX_ELEMENTS_SHOWN = 1000
#: except for batches of at most this many samples.
_FEW_SAMPLES = 5


class TensorListCPU:
    """A batch: samples with one dtype and number of dimensions, whose shapes may differ.

    Args:
        b: an array of shape ``(samples, ...)``, bytes, or a DLPack capsule; a sequence of arrays or tensors; or
            another list, to share its memory.
        layout: the layout of each sample. Default: that of the tensors or the other list.
        is_pinned: ignored.

    Raises:
        ArgumentError: the layout has another number of dimensions than the samples, or `DALIDataType` lacks the dtype.
        ArgumentTypeError: the samples differ in dtype, number of dimensions or layout.
        ArgumentClashError: the array has no dimensions.

    >>> batch = TensorListCPU(np.zeros((4, 2, 3), np.uint8))
    >>> len(batch), batch.is_dense_tensor(), batch[0].shape()
    (4, True, [2, 3])
    """

    __slots__ = ("__weakref__", "_dense", "_layout", "_origin", "_samples")

    @suggest_arguments
    def __init__(
        self,
        b: TensorListCPU | NDArray[Any] | Sequence[Any],
        layout: str | None = None,
        is_pinned: bool = False,
    ) -> None:
        if isinstance(b, TensorListCPU):
            samples: NDArray[Any] | Sequence[NDArray[Any]] = b._samples
            layout = b.layout() if layout is None else layout
        elif isinstance(b, (list, tuple)):
            samples = [np.asarray(sample) for sample in b]
            _check_alike("data types", [sample.dtype for sample in samples])
            _check_alike("numbers of dimensions", [sample.ndim for sample in samples])
            if layout is None:
                layouts = [sample.layout() for sample in b if isinstance(sample, TensorCPU)]
                _check_alike("layouts", layouts)
                layout = layouts[0] if layouts else None
        else:
            samples = view_of(b)
            if samples.ndim == 0:
                raise ArgumentClashError("Cannot create TensorList from 0-dim array")
        self._hold(samples, layout or "")
        to_dali_type(self._first().dtype)

    @staticmethod
    def broadcast(tensor: Any, num_samples: int) -> TensorListCPU:
        """Return a batch that repeats one tensor, sharing its memory."""
        sample = tensor if isinstance(tensor, TensorCPU) else TensorCPU(tensor)
        return TensorListCPU([sample] * num_samples, sample.layout())

    @classmethod
    def of_arrays(cls, data: NDArray[Any] | Sequence[NDArray[Any]], layout: str) -> Self:
        """Return a batch of one array or a sequence of arrays, unchecked. A lazy sequence creates its arrays on access."""
        batch = cls.__new__(cls)
        batch._hold(data, layout)
        return batch

    def _hold(self, data: NDArray[Any] | Sequence[NDArray[Any]], layout: str) -> None:
        self._dense: NDArray[Any] | None = data if isinstance(data, np.ndarray) else None
        self._samples = data
        self._layout = layout
        self._origin: Callable[[int], str] | None = None
        if layout and len(data):
            checked_layout(layout, self.ndim())

    def set_origin(self, origin: Callable[[int], str] | None) -> None:
        """Set the function that returns the origin of a sample, usually a file name, for `source_info` of tensors."""
        self._origin = origin

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> TensorCPU:
        tensor = TensorCPU(self.at(index), self._layout)
        if self._origin is not None:
            tensor._origin = functools.partial(self._origin, operator.index(index) % len(self))
        return tensor

    def __iter__(self) -> Iterator[TensorCPU]:
        return (self[i] for i in range(len(self)))

    def at(self, index: int) -> NDArray[Any]:
        """Return sample `index` as an array; negative indices count from the end.

        Raises:
            SampleIndexError: there is no such sample.
        """
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise SampleIndexError(f"the batch has no sample {index}: it has {len(self)}, numbered from 0")
        # With the ellipsis, a sample without dimensions is an array, too.
        return self._samples[index] if self._dense is None else self._dense[index, ...]

    def shape(self) -> list[tuple[int, ...]]:
        """Return the shape of each sample."""
        if self._dense is not None:
            return [self._dense.shape[1:]] * len(self)
        return [sample.shape for sample in self._samples]

    @property
    def dtype(self) -> DALIDataType:
        """The element type of all samples."""
        return to_dali_type(self._first().dtype)

    def ndim(self) -> int:
        """Return the number of dimensions of each sample."""
        if isinstance(self._samples, SampleList):  # without making an array
            return self._samples.ndim if len(self._samples) else 1
        return self._first().ndim - (self._dense is not None)

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
            self._samples = self._dense = reinterpreted(self._dense, dtype)
        else:
            self._samples = [reinterpreted(sample, dtype) for sample in self._samples]

    def is_dense_tensor(self) -> bool:
        """Whether all samples have the same shape, as `as_array` and `as_tensor` require."""
        return self._dense is not None or len(set(self.shape())) <= 1

    def as_array(self) -> NDArray[Any]:
        """Return the batch as one array of shape ``(len(self), *sample_shape)``.

        Scattered samples are copied together once; the list then consists of views of that array.

        Raises:
            RaggedError: the samples have different shapes.
        """
        if self._dense is None:
            check_one_shape(self.shape(), "array")
            self._dense = np.stack(list(self._samples)) if len(self) else np.empty((0,), np.uint8)
            self._samples = self._dense
        return self._dense

    def as_tensor(self) -> TensorCPU:
        """Return the batch as one tensor; see `as_array`. Its layout begins with N.

        Raises:
            RaggedError: the samples have different shapes.
        """
        array = self.as_array()
        return TensorCPU(array, "N" + self._layout if self._layout or array.ndim == 1 else "")

    def as_reshaped_tensor(self, shape: Sequence[int]) -> TensorCPU:
        """Return all elements as one tensor of another shape. Copies if the samples are scattered.

        Raises:
            ArgumentClashError: the shape has another number of elements.
        """
        shape = checked_shape(shape, sum(map(math.prod, self.shape())))
        if self.is_dense_tensor():
            array = self.as_array()
            if array.shape == shape:
                return self.as_tensor()
        else:
            array = np.concatenate([sample.ravel() for sample in self._samples])
        return TensorCPU(array.reshape(shape), "N" if len(shape) == 1 and not self._layout else "")

    def data_ptr(self) -> int:
        """Return the address of the first element. Only the samples of a dense batch are contiguous."""
        return address_of(self.as_array() if self.is_dense_tensor() else self._first())

    def copy_to_external(self, ptr: ctypes.c_void_p | int) -> None:
        """Copy the samples back to back to an address with room for all of them.

        Raises:
            ArgumentError: the address is null.
        """
        copy_to_address(ptr, self._samples if self._dense is None else [self._dense])

    def reset(self) -> None:
        """Remove all samples."""
        self._hold([], "")

    def as_cpu(self) -> TensorListCPU:
        """Return the list itself."""
        return self

    def _as_gpu(self, device_id: int = 0) -> TensorListGPU:
        """Return a copy on a GPU, the first one by default; see `dali_like.tensors.gpu_tensors.copied_to_gpu`."""
        from dali_like.tensors.gpu_tensor_lists import TensorListGPU  # they import this module
        from dali_like.tensors.gpu_tensors import copied_to_gpu

        return TensorListGPU.of_arrays(copied_to_gpu(self._samples, device_id), self._layout)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.as_tensor().__array__(dtype, copy)

    def _first(self) -> NDArray[Any]:
        if self._dense is not None:
            return self._dense
        if not len(self._samples):
            return np.empty((0,), np.uint8)
        return self._samples[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value. DALI refuses to pickle batches."""
        return TensorListCPU, (self._dense if self._dense is not None else list(self._samples), self._layout)

    def _repr_html_(self) -> str:
        """Show the batch in a notebook."""
        from dali_like.showing.notebook import batch_html  # only notebooks ask

        return batch_html(self)

    def __repr__(self) -> str:
        return text_of("TensorListCPU", self._property_lines())

    def __str__(self) -> str:
        if self.is_dense_tensor():
            numbers = numbers_in(self.as_array())
        else:
            most = len(self) if sum(map(math.prod, self.shape())) <= _MAX_ELEMENTS_SHOWN else _FEW_SAMPLES
            samples = _edges(range(len(self)), lambda i: numbers_in(self.at(i)), most)
            numbers = "[" + ("\n" * self.ndim() + "    ").join(samples) + "]"  # blank lines as in NumPy's texts
        return text_of("TensorListCPU", [numbers, *self._property_lines()])

    def _property_lines(self) -> list[str]:
        shapes = ", ".join(_edges(self.shape(), str, _MAX_SHAPES_SHOWN))
        return [f"dtype={self.dtype}", *layout_lines(self._layout), f"num_samples={len(self)}", f"shape=[{shapes}]"]


def _check_alike(attribute: str, values: Sequence[Any]) -> None:
    if any(value != values[0] for value in values):
        found = ", ".join(str(value) for value in dict.fromkeys(values))
        raise ArgumentTypeError(f"the samples of a batch cannot have different {attribute}; these have {found}")


def _edges(values: Sequence[Any], text: Callable[[Any], str], most: int) -> list[str]:
    """Return the texts of all values, or of the first and last ones if there are more than `most`."""
    if len(values) <= most:
        return [text(value) for value in values]
    first, last = range(SHOWN_AT_EDGES), range(len(values) - SHOWN_AT_EDGES, len(values))
    return [*(text(values[i]) for i in first), "...", *(text(values[i]) for i in last)]
