"""Leaves of sample schemas whose batches are PyTorch tensors; see `dali_like.data.sample_schema`."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

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
        return torch.from_numpy(super().batch(rows, texts, in_tuple))  # type: ignore[misc]


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
        batch = torch.from_numpy(self.leaf.batch(rows, texts, in_tuple))
        return batch if batch.dtype is self.dtype else batch.view(self.dtype)

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        self.leaf.number = self.number
        return torch.from_numpy(self.leaf.sample(rows, texts, i)).view(self.dtype)


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
