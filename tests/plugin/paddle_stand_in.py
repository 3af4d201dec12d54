"""The part of PaddlePaddle that the iterators for it use, over NumPy arrays, with names and arguments of PaddlePaddle 3."""

from __future__ import annotations

import itertools
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class DenseTensor:
    def __init__(self) -> None:
        self._array = np.empty(0, np.float32)
        self._lengths: list[list[int]] = []

    def set(self, array: Any, place: Any) -> None:
        assert isinstance(place, CPUPlace)
        self._array = np.array(array)

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def lod(self) -> list[list[int]]:
        return [[0, *itertools.accumulate(lengths)] for lengths in self._lengths]

    def set_recursive_sequence_lengths(self, lengths: list[list[int]]) -> None:
        assert not lengths or sum(lengths[-1]) == len(self._array)
        self._lengths = lengths

    def _ptr(self) -> int:
        return int(self._array.__array_interface__["data"][0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array, dtype)


class CPUPlace:
    pass


class _Exported:
    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def from_dlpack(capsule: Any) -> DenseTensor:
    tensor = DenseTensor()
    tensor._array = np.from_dlpack(_Exported(capsule))
    return tensor


def module() -> ModuleType:
    """Return a module to import as ``paddle``."""
    names = ("BOOL", "FP32", "FP64", "FP16", "UINT8", "INT8", "INT16", "INT32", "INT64")
    kinds = SimpleNamespace(VarType=SimpleNamespace(**{name: f"VarType.{name}" for name in names}))
    paddle: Any = ModuleType("paddle")
    core = SimpleNamespace(DenseTensor=DenseTensor, CPUPlace=CPUPlace, from_dlpack=from_dlpack, VarDesc=kinds)
    paddle.framework = SimpleNamespace(core=core)
    return paddle
