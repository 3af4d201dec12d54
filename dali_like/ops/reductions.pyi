"""``nvidia.dali.ops.reductions``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class Sum:
    """Sum elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result. Default: INT64 for signed integers, UINT64 for others, FLOAT for floating-point
            numbers, FLOAT64 for FLOAT64. Integer sums wrap around on overflow.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Mean:
    """Average elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result; integers are truncated. Default: FLOAT, or FLOAT64 for FLOAT64 input.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class MeanSquare:
    """Average the squares of elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result; integers are truncated. Default: FLOAT, or FLOAT64 for FLOAT64 input.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class RMS:
    """Compute the root mean square of elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result; integers are truncated. Default: FLOAT, or FLOAT64 for FLOAT64 input.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Min:
    """Find the minimum; NaN is ignored.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Max:
    """Find the maximum; NaN is ignored.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Variance:
    """Compute the variance: the mean squared distance from a given mean.

    Args:
        data: any dtype.
        mean: a number, or the result of `mean` over the same dimensions, with or without `keep_dims`.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        ddof: number subtracted from the element count in the divisor.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        ddof: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        mean: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        ddof: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        mean: _Sequence[DataNode] | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        ddof: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class StdDev:
    """Compute the standard deviation: the square root of `variance`.

    Args:
        data: any dtype.
        mean: a number, or the result of `mean` over the same dimensions, with or without `keep_dims`.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        ddof: number subtracted from the element count in the divisor.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        ddof: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        mean: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        ddof: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        mean: _Sequence[DataNode] | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        keep_dims: bool = ...,
        ddof: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
