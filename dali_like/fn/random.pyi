"""``nvidia.dali.fn.random``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType

_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def uniform(
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    range: _Floats | DataNode = (-1.0, 1.0),
    values: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Draw numbers uniformly from a range, or from a set of values.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        range: lower bound, and upper bound (exclusive).
        values: numbers to draw from, instead of a range.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """

@overload
def uniform(
    shape_like: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    range: _Floats | DataNode = (-1.0, 1.0),
    values: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def coin_flip(
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    probability: float | DataNode = 0.5,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Draw 1 with a given probability, otherwise 0.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        probability: probability of 1.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result. Default: INT32.
    """

@overload
def coin_flip(
    shape_like: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    probability: float | DataNode = 0.5,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def normal(
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Draw normally distributed numbers.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        mean: mean of the distribution.
        stddev: standard deviation of the distribution.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """

@overload
def normal(
    shape_like: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def beta(
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    alpha: float | DataNode = 1.0,
    beta: float | DataNode = 1.0,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Draw numbers from 0 to 1 that follow a beta distribution.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        alpha, beta: parameters of the distribution.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result: FLOAT, the default, or FLOAT64.
    """

@overload
def beta(
    shape_like: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    alpha: float | DataNode = 1.0,
    beta: float | DataNode = 1.0,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def choice(
    a: DataNode | _Constant,
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    p: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Draw elements of an array, with replacement.

    Args:
        a: an array, whose elements along the first axis are drawn, or an integer n, to draw from 0 to n - 1.
        shape_like: the number and arrangement of drawn elements are those of this input; its values are ignored.
        p: probability of each element. Default: all equal.
        shape: number and arrangement of drawn elements. Default: one element, with the shape of an element of `a`.
    """

@overload
def choice(
    a: _Sequence[DataNode],
    shape_like: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    p: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
