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

from dali_like.data.sample_schema import (
    ArrayLeaf,
    Column,
    ComplexLeaf,
    Leaf,
    NumberLeaf,
    Rows,
    Texts,
    UnfitError,
    gather_rows,
    numpy_leaf,
)

#: The integers of NumPy for elements whose dtype NumPy does not have.
_CARRIERS = {torch.bfloat16: torch.int16, torch.complex32: torch.int32}
_CARRIERS |= {dtype: torch.uint8 for name, dtype in vars(torch).items() if name.startswith("float8_")}

#: Up to this many numbers of Python, `torch.tensor` is as fast as writing them into memory by NumPy.
_FEW_NUMBERS = 16
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}

_DTYPE = operator.attrgetter("dtype")


def leaf_of(value: Any) -> Leaf | None:
    """Return a leaf for a tensor, an array or a number; None for other values. PyTorch does not collate dataclasses.

    Raises:
        UnfitError: the value is a dataclass.
    """
    if dataclasses.is_dataclass(value):
        raise UnfitError
    if type(value) is torch.Tensor:
        if not _is_plain(value):
            return None
        leaf = numpy_leaf(np.broadcast_to(np.zeros((), _carrier_of(value.dtype)), tuple(value.shape)))
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
        return batch, _memory_of(batch, dtype)


class _ArrayAsTensor(_AsTensor, ArrayLeaf):
    pass


class _ComplexAsTensor(_AsTensor, ComplexLeaf):
    pass


class _NumberAsTensor(_AsTensor, NumberLeaf):
    def collate(self, values: Sequence[Any], in_tuple: bool, contiguous: bool) -> Any:
        if len(values) > _FEW_NUMBERS or self.kind not in _NUMBERS or set(map(type, values)) != {self.kind}:
            return super().collate(values, in_tuple, contiguous)
        return torch.tensor(values, dtype=_NUMBERS[self.kind])


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

    def gather(self, columns: Any, rows: Rows | None) -> Any:
        if type(columns) is not Column:
            raise UnfitError
        shape = columns.pieces[0].values.shape[1:] if rows is None else self.shape
        for values, _, _ in columns.pieces:
            if type(values) is not torch.Tensor or values.dtype is not self.dtype or values.shape[1:] != shape:
                raise UnfitError
            if not (_is_plain(values) and values.is_contiguous()):  # of others, a stack may have other strides
                raise UnfitError
        batch = values.new_empty((columns.size, *shape)) if rows is None else self.batch(rows, (), False)
        dtype = _carrier_of(self.dtype)
        pieces = tuple(piece._replace(values=_memory_of(piece.values, dtype)) for piece in columns.pieces)
        # By NumPy, in one thread: torch.index_select uses all CPUs, and waits for them where the workers need them.
        gather_rows(Column(pieces, columns.size), _memory_of(batch, dtype))
        return batch


def _tensor_of(array: NDArray[Any]) -> torch.Tensor:
    """Return a view of an array. An empty one has the strides that PyTorch gives to a new tensor."""
    return torch.from_numpy(array) if array.size else torch.empty(array.shape, dtype=_dtype_of(array.dtype))


def _memory_of(tensor: torch.Tensor, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a contiguous tensor as an array, which does not keep it. It can still be resized, unlike after ``numpy()``."""
    memory = (ctypes.c_byte * (tensor.numel() * dtype.itemsize)).from_address(tensor.data_ptr())
    return np.frombuffer(memory, dtype).reshape(tensor.shape)


@functools.cache
def _carrier_of(dtype: torch.dtype) -> np.dtype[Any]:
    """Return NumPy's dtype for the elements of a tensor."""
    elements = torch.empty(0, dtype=_CARRIERS.get(dtype, dtype)).numpy()
    return elements.dtype


@functools.cache
def _dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype.str)).dtype  # the first of several equal ones: not np.ulonglong


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        not tensor.is_nested
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )
