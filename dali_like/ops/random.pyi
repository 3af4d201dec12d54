"""``nvidia.dali.ops.random``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class Uniform:
    """Draw numbers uniformly from a range, or from a set of values.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        range: lower bound, and upper bound (exclusive).
        values: numbers to draw from, instead of a range.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """
    def __init__(
        self,
        *,
        range: _Floats | DataNode = ...,
        values: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        shape_like: DataNode | _Constant | None = None,
        /,
        *,
        range: _Floats | DataNode = ...,
        values: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        shape_like: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        range: _Floats | DataNode = ...,
        values: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class CoinFlip:
    """Draw 1 with a given probability, otherwise 0.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        probability: probability of 1.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result. Default: INT32.
    """
    def __init__(
        self,
        *,
        probability: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        shape_like: DataNode | _Constant | None = None,
        /,
        *,
        probability: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        shape_like: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        probability: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Normal:
    """Draw normally distributed numbers.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        mean: mean of the distribution.
        stddev: standard deviation of the distribution.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """
    def __init__(
        self,
        *,
        mean: float | DataNode = ...,
        stddev: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        shape_like: DataNode | _Constant | None = None,
        /,
        *,
        mean: float | DataNode = ...,
        stddev: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        shape_like: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        mean: float | DataNode = ...,
        stddev: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Beta:
    """Draw numbers from 0 to 1 that follow a beta distribution.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        alpha, beta: parameters of the distribution.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result: FLOAT, the default, or FLOAT64.
    """
    def __init__(
        self,
        *,
        alpha: float | DataNode = ...,
        beta: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        shape_like: DataNode | _Constant | None = None,
        /,
        *,
        alpha: float | DataNode = ...,
        beta: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        shape_like: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        alpha: float | DataNode = ...,
        beta: float | DataNode = ...,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Choice:
    """Draw elements of an array, with replacement.

    Args:
        a: an array, whose elements along the first axis are drawn, or an integer n, to draw from 0 to n - 1.
        shape_like: the number and arrangement of drawn elements are those of this input; its values are ignored.
        p: probability of each element. Default: all equal.
        shape: number and arrangement of drawn elements. Default: one element, with the shape of an element of `a`.
    """
    def __init__(
        self,
        *,
        p: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        a: DataNode | _Constant,
        shape_like: DataNode | _Constant | None = None,
        /,
        *,
        p: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        a: _Sequence[DataNode],
        shape_like: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        p: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
