"""Leaves of sample schemas whose batches are PyTorch tensors; see `dali_like.data.sample_schema`."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dali_like.data.sample_schema import ArrayLeaf, ComplexLeaf, Leaf, NumberLeaf, Rows, Texts, UnfitError, numpy_leaf

#: The integers of NumPy for elements whose dtype NumPy does not have.
_CARRIERS = {torch.bfloat16: torch.int16, torch.complex32: torch.int32}
_CARRIERS |= {dtype: torch.uint8 for name, dtype in vars(torch).items() if name.startswith("float8_")}

_DTYPE = operator.attrgetter("dtype")


def leaf_of(value: Any) -> Leaf | None:
    """Return a leaf for a tensor, an array or a number; None for other values. PyTorch does not collate dataclasses.

    Raises:
        UnfitError: the value is a dataclass.
    """
    if dataclasses.is_dataclass(value):
        raise UnfitError
    if type(value) is torch.Tensor:
        leaf = numpy_leaf(_array_of(value)) if _is_plain(value) else None
        return None if leaf is None else TensorLeaf(value, leaf)
    leaf = numpy_leaf(value)
    return None if leaf is None else _AS_TENSOR[type(leaf)](value)


class _AsTensor:
    """Converts the batch of a leaf to a tensor."""

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return _tensor_of(super().batch(rows, texts, in_tuple))  # type: ignore[misc]

    @staticmethod
    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[torch.Tensor, NDArray[Any]]:
        """Allocate the memory by PyTorch, so that the tensor can be resized: after ``numpy()`` it could not."""
        batch = torch.empty(shape, dtype=_dtype_of(dtype))
        memory = (ctypes.c_byte * (batch.numel() * dtype.itemsize)).from_address(batch.data_ptr())
        return batch, np.frombuffer(memory, dtype).reshape(shape)


class _ArrayAsTensor(_AsTensor, ArrayLeaf):
    pass


class _ComplexAsTensor(_AsTensor, ComplexLeaf):
    pass


class _NumberAsTensor(_AsTensor, NumberLeaf):
    pass


_AS_TENSOR: dict[type, Callable[[Any], Leaf]] = {
    ArrayLeaf: _ArrayAsTensor,
    ComplexLeaf: _ComplexAsTensor,
    NumberLeaf: _NumberAsTensor,
}


class TensorLeaf(Leaf):
    """A dense tensor on the CPU without gradients."""

    def __init__(self, tensor: torch.Tensor, leaf: Leaf) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.leaf = leaf
        self.layout = leaf.layout

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        if set(map(type, values)) != {torch.Tensor} or set(map(_DTYPE, values)) != {self.dtype}:
            return False
        if values[0].shape != self.shape:  # torch.stack would resize the output
            return False
        try:
            torch.stack(values, out=self.batch(rows, texts, False))
        except RuntimeError:  # other shapes, sparse, on a GPU, with gradients
            return False
        return True

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        self.leaf.number = self.number
        batch = _tensor_of(self.leaf.batch(rows, texts, in_tuple))
        return batch if batch.dtype is self.dtype else batch.view(self.dtype)

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        self.leaf.number = self.number
        return torch.from_numpy(self.leaf.sample(rows, texts, i)).view(self.dtype)

    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        first = values[0]
        if set(map(type, values)) != {torch.Tensor} or first.is_nested or first.layout is not torch.strided:
            raise UnfitError
        if not contiguous:
            return torch.stack(values)
        return torch.stack(values, out=torch.empty((len(values), *first.shape), dtype=first.dtype))


def _tensor_of(array: NDArray[Any]) -> torch.Tensor:
    """Return a view of an array. An empty one has the strides that PyTorch gives to a new tensor."""
    return torch.from_numpy(array) if array.size else torch.empty(array.shape, dtype=_dtype_of(array.dtype))


@functools.cache
def _dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        not tensor.is_nested
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _array_of(tensor: torch.Tensor) -> Any:
    carrier = _CARRIERS.get(tensor.dtype)
    return tensor.numpy() if carrier is None else tensor.view(carrier).numpy()
