"""Batches in host memory: samples of one dtype and number of dimensions, whose shapes may differ.

Nothing here copies unless it says so: arrays are views of the memory that the batch lies in.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentTypeError, SampleIndexError
from dali_like.tensors.cpu_tensors import (
    SHOWN_AT_EDGES,
    TensorCPU,
    address_of,
    copy_to_address,
    layout_fact,
    numbers_in,
    reinterpreted,
    text_of,
    view_of,
)
from dali_like.tensors.tensor_arguments import check_one_shape, checked_layout, checked_shape
from dali_like.types import DALIDataType, to_dali_type

if TYPE_CHECKING:
    from dali_like.tensors.gpu_tensor_lists import TensorListGPU

#: The texts of batches of more samples show the first and the last shapes.
_MOST_SHAPES_SHOWN = 16
#: Those of batches of more elements, in samples of several shapes, show the first and the last samples (as NumPy would),
_MOST_ELEMENTS_SHOWN = 1000
#: unless there are no more samples than these.
_FEW_SAMPLES = 5


class TensorListCPU:
    """A batch: samples of one dtype and number of dimensions, whose shapes may differ.

    Args:
        b: an array whose first dimension counts the samples (a dense batch), bytes, or a capsule of DLPack; a sequence of
            arrays, or of tensors; or another list, whose memory this one shares.
        layout: the layout of each sample. Default: that of the tensors, or of the other list.
        is_pinned: without effect.

    Raises:
        ArgumentError: the layout has another number of dimensions than the samples; the dtype is none of `DALIDataType`.
        ArgumentTypeError: the samples have several dtypes, numbers of dimensions or layouts.
        ArgumentClashError: the array has no dimensions.

    >>> batch = TensorListCPU(np.zeros((4, 2, 3), np.uint8))
    >>> len(batch), batch.is_dense_tensor(), batch[0].shape()
    (4, True, [2, 3])
    """

    __slots__ = ("__weakref__", "_dense", "_layout", "_samples")

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
        """A batch whose samples are all the same tensor, and share its memory."""
        sample = tensor if isinstance(tensor, TensorCPU) else TensorCPU(tensor)
        return TensorListCPU([sample] * num_samples, sample.layout())

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
            checked_layout(layout, self.ndim())

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
        index = operator.index(index)
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

    def set_layout(self, layout: str | None) -> None:
        """Give the samples another layout, or none.

        Raises:
            ArgumentError: the layout has another number of dimensions.
        """
        self._layout = checked_layout(layout, self.ndim()) if len(self) else layout or ""

    def reinterpret(self, dtype: Any) -> None:
        """Take the samples' bytes for elements of another type.

        Raises:
            ArgumentClashError: those have another size.
        """
        if self._dense is not None:
            self._samples = self._dense = reinterpreted(self._dense, dtype)
        else:
            self._samples = [reinterpreted(sample, dtype) for sample in self._samples]

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
            check_one_shape(self.shape(), "array")
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

    def as_reshaped_tensor(self, shape: Sequence[int]) -> TensorCPU:
        """All elements as one tensor of another shape. Those of samples that lie scattered in memory are copied together.

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
        """The address of the first element. Only the samples of a dense list lie one behind the other."""
        return address_of(self.as_array() if self.is_dense_tensor() else self._first())

    def copy_to_external(self, ptr: ctypes.c_void_p | int) -> None:
        """Copy the samples, one behind the other, to an address, where there must be room for them.

        Raises:
            ArgumentError: it is no address.
        """
        copy_to_address(ptr, self._samples if self._dense is None else [self._dense])

    def reset(self) -> None:
        """Let go of the samples."""
        self._hold([], "")

    def as_cpu(self) -> TensorListCPU:
        """The list itself: it is in host memory."""
        return self

    def _as_gpu(self) -> TensorListGPU:
        """A copy on the first GPU; see `dali_like.tensors.gpu_tensors.sent`."""
        from dali_like.tensors.gpu_tensor_lists import TensorListGPU  # noqa: PLC0415  # which are made of what is here
        from dali_like.tensors.gpu_tensors import sent  # noqa: PLC0415

        return TensorListGPU.of_arrays(sent(self._samples), self._layout)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.as_tensor().__array__(dtype, copy)

    def _first(self) -> NDArray[Any]:
        if self._dense is not None:
            return self._dense
        if not len(self._samples):
            return np.empty((0,), np.uint8)
        return self._samples[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled by value, which DALI refuses."""
        return TensorListCPU, (self._dense if self._dense is not None else list(self._samples), self._layout)

    def __repr__(self) -> str:
        return text_of("TensorListCPU", self._facts())

    def __str__(self) -> str:
        if self.is_dense_tensor():
            numbers = numbers_in(self.as_array())
        else:
            most = len(self) if sum(map(math.prod, self.shape())) <= _MOST_ELEMENTS_SHOWN else _FEW_SAMPLES
            samples = _edges(range(len(self)), lambda i: numbers_in(self.at(i)), most)
            numbers = "[" + ("\n" * self.ndim() + "    ").join(samples) + "]"  # as NumPy has lines between them
        return text_of("TensorListCPU", [numbers, *self._facts()])

    def _facts(self) -> list[str]:
        shapes = ", ".join(_edges(self.shape(), str, _MOST_SHAPES_SHOWN))
        return [f"dtype={self.dtype}", *layout_fact(self._layout), f"num_samples={len(self)}", f"shape=[{shapes}]"]


def _check_alike(what: str, values: Sequence[Any]) -> None:
    if any(value != values[0] for value in values):
        found = ", ".join(str(value) for value in dict.fromkeys(values))
        raise ArgumentTypeError(f"the samples of a batch cannot have different {what}; these have {found}")


def _edges(values: Sequence[Any], text: Callable[[Any], str], most: int) -> list[str]:
    """The texts of the values, or of the first and the last ones if there are more than `most`."""
    if len(values) <= most:
        return [text(value) for value in values]
    first, last = range(SHOWN_AT_EDGES), range(len(values) - SHOWN_AT_EDGES, len(values))
    return [*(text(values[i]) for i in first), "...", *(text(values[i]) for i in last)]
