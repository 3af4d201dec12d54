"""What `Pipeline.run` returns: batches of tensors in host memory.

The methods follow ``nvidia.dali.tensors`` 1.53. Nothing here copies unless it says so: arrays are views of the memory that
the batch lies in, they may be written to, and they keep it: a batch that somebody holds is never overwritten.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, RaggedError, SampleIndexError
from dali_like.types import DALIDataType, to_dali_type

__all__ = ["TensorCPU", "TensorListCPU"]


def _check_layout(layout: str, ndim: int) -> None:
    if layout and len(layout) != ndim:
        raise ArgumentError(f"The layout '{layout}' cannot describe {ndim}-dimensional data")


class TensorCPU:
    """One sample, or a dense batch as one tensor.

    It has the array interface, the DLPack interface and, from Python 3.12 on, the buffer interface, so that
    ``np.asarray(tensor)`` and ``torch.from_dlpack(tensor)`` are views of it.

    Args:
        data: an array, or what NumPy can make a view of.
        layout: a letter for each dimension, such as "HWC", or nothing.

    Raises:
        ArgumentError: the layout has another number of dimensions, or the dtype is none of `DALIDataType`.

    >>> tensor = TensorCPU(np.zeros((2, 3), np.float32), layout="HW")
    >>> tensor.shape(), tensor.dtype, tensor.layout()
    ([2, 3], <DALIDataType.FLOAT: 9>, 'HW')
    """

    __slots__ = ("__weakref__", "_array", "_layout")

    def __init__(self, data: Any, layout: str = "") -> None:
        array = np.asarray(data)
        to_dali_type(array.dtype)
        _check_layout(layout, array.ndim)
        self._array = array
        self._layout = layout

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

    def as_cpu(self) -> TensorCPU:
        """The tensor itself: it is in host memory."""
        return self

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._array.__array_interface__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy:
            return np.array(self._array, dtype)
        return np.asarray(self._array, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return self._array.__dlpack_device__()

    if sys.version_info >= (3, 12):

        def __buffer__(self, flags: int) -> memoryview:
            return memoryview(self._array)

    def __repr__(self) -> str:
        return f"TensorCPU(\n{self._array!r},\ndtype={self.dtype}, layout={self._layout!r}, shape={self.shape()})"


class TensorListCPU:
    """A batch: samples of one dtype and number of dimensions, whose shapes may differ.

    Args:
        data: an array whose first dimension counts the samples (a dense batch), or a sequence of arrays, or of tensors.
        layout: the layout of each sample.

    Raises:
        ArgumentError: the layout has another number of dimensions than the samples.

    >>> batch = TensorListCPU(np.zeros((4, 2, 3), np.uint8))
    >>> len(batch), batch.is_dense_tensor(), batch[0].shape()
    (4, True, [2, 3])
    """

    __slots__ = ("__weakref__", "_dense", "_layout", "_samples")

    def __init__(self, data: NDArray[Any] | Sequence[Any], layout: str = "") -> None:
        arrays = isinstance(data, np.ndarray) or all(isinstance(sample, np.ndarray) for sample in data)
        self._hold(data if arrays else [np.asarray(sample) for sample in data], layout)

    @classmethod
    def of_arrays(cls, data: NDArray[Any] | Sequence[NDArray[Any]], layout: str) -> Self:
        """A batch of what is known to be an array or a sequence of arrays, which are then made when they are asked for."""
        batch = cls.__new__(cls)
        batch._hold(data, layout)
        return batch

    def _hold(self, data: NDArray[Any] | Sequence[NDArray[Any]], layout: str) -> None:
        self._dense: NDArray[Any] | None = data if isinstance(data, np.ndarray) else None
        self._samples = data
        self._layout = layout
        if layout and len(data):
            _check_layout(layout, self.ndim())

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> TensorCPU:
        return TensorCPU(self.at(index), self._layout)

    def __iter__(self) -> Iterator[TensorCPU]:
        return (self[i] for i in range(len(self)))

    def at(self, index: int) -> NDArray[Any]:
        """Sample `index` as an array; negative indices count from the end.

        Raises:
            SampleIndexError: there is no such sample.
        """
        if not -len(self) <= index < len(self):
            raise SampleIndexError(f"sample {index} of a batch of {len(self)}")
        # The ellipsis makes an array of a sample without dimensions too.
        return self._samples[index] if self._dense is None else self._dense[index, ...]

    def shape(self) -> list[tuple[int, ...]]:
        """The shape of each sample."""
        if self._dense is not None:
            return [self._dense.shape[1:]] * len(self)
        return [sample.shape for sample in self._samples]

    @property
    def dtype(self) -> DALIDataType:
        """The element type of all samples."""
        return to_dali_type(self._first().dtype)

    def ndim(self) -> int:
        """The number of dimensions of each sample."""
        return self._first().ndim - (self._dense is not None)

    def layout(self) -> str:
        """The layout of each sample; empty where none was given."""
        return self._layout

    def is_dense_tensor(self) -> bool:
        """Whether all samples have the same shape, so that `as_array` and `as_tensor` can be had."""
        return self._dense is not None or len(set(self.shape())) <= 1

    def as_array(self) -> NDArray[Any]:
        """The batch as one array of shape ``(len(self), *sample_shape)``.

        Samples that lie scattered in memory are copied together, once; the list then consists of views of that array.

        Raises:
            RaggedError: the samples have different shapes.
        """
        if self._dense is None:
            if not self.is_dense_tensor():
                shapes = sorted(set(self.shape()))
                raise RaggedError(
                    f"Tensors in the list must have the same shape to make one array; these have {len(shapes)} different "
                    f"ones, from {shapes[0]} to {shapes[-1]}. Use at(i) or iterate, or make them equal before"
                )
            self._dense = np.stack(list(self._samples)) if len(self) else np.empty((0,), np.uint8)
            self._samples = self._dense
        return self._dense

    def as_tensor(self) -> TensorCPU:
        """The batch as one tensor; see `as_array`. Its layout begins with N.

        Raises:
            RaggedError: the samples have different shapes.
        """
        array = self.as_array()
        return TensorCPU(array, "N" + self._layout if self._layout or array.ndim == 1 else "")

    def as_cpu(self) -> TensorListCPU:
        """The list itself: it is in host memory."""
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.as_tensor().__array__(dtype, copy)

    def _first(self) -> NDArray[Any]:
        if self._dense is not None:
            return self._dense
        if not len(self._samples):
            return np.empty((0,), np.uint8)
        return self._samples[0]

    def __repr__(self) -> str:
        samples = ",\n".join(repr(sample) for sample in self._samples)
        return (
            f"TensorListCPU(\n[{samples}],\ndtype={self.dtype}, layout={self._layout!r}, num_samples={len(self)}, "
            f"shape={self.shape()})"
        )
