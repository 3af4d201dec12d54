"""``nvidia.dali.ops.random``. Written by tools.operator_stubs from the descriptions of the operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType

_Constant: TypeAlias = _Fixed | float | Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

class Uniform:
    """Numbers that are equally likely everywhere in a range, or among some values.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        range: the least number, and the one that all are below.
        values: the numbers that there are, instead of a range.
        shape: of the result. Default: a single number.
        dtype: of the result; integers are rounded, and limited to what they can hold. Default: FLOAT.
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
        shape_like: Sequence[DataNode] | _Constant | None = None,
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
    """1 with a probability, otherwise 0.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        probability: of 1.
        shape: of the result. Default: a single number.
        dtype: of the result. Default: INT32.
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
        shape_like: Sequence[DataNode] | _Constant | None = None,
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
    """Numbers that are normally distributed.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        mean: of the numbers.
        stddev: their standard deviation.
        shape: of the result. Default: a single number.
        dtype: of the result; integers are rounded, and limited to what they can hold. Default: FLOAT.
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
        shape_like: Sequence[DataNode] | _Constant | None = None,
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
    

class Choice:
    """Elements of an array, drawn with replacement.

    Args:
        a: what to draw from: the elements along the first axis. Or an integer: the numbers from 0 to that, without itself.
        shape_like: as many are drawn as this has elements, and in its shape; its values do not matter.
        p: how probable each of them is. Default: all alike.
        shape: how many are drawn, and in what shape. Default: one, whose shape is that of an element of `a`.
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
    def __call__(  # type: ignore[overload-overlap]
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
        a: Sequence[DataNode] | _Constant,
        shape_like: Sequence[DataNode] | _Constant | None = None,
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
    
