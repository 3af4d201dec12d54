"""``nvidia.dali.fn.reductions``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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
def sum(
    input: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Sum elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result. Default: INT64 for signed integers, UINT64 for others, FLOAT for floating-point
            numbers, FLOAT64 for FLOAT64. Integer sums wrap around on overflow.
    """

@overload
def sum(
    input: _Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def mean(
    input: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Average elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result; integers are truncated. Default: FLOAT, or FLOAT64 for FLOAT64 input.
    """

@overload
def mean(
    input: _Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def mean_square(
    input: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Average the squares of elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result; integers are truncated. Default: FLOAT, or FLOAT64 for FLOAT64 input.
    """

@overload
def mean_square(
    input: _Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def rms(
    input: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Compute the root mean square of elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result; integers are truncated. Default: FLOAT, or FLOAT64 for FLOAT64 input.
    """

@overload
def rms(
    input: _Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def min(
    input: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Find the minimum; NaN is ignored.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
    """

@overload
def min(
    input: _Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def max(
    input: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Find the maximum; NaN is ignored.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
    """

@overload
def max(
    input: _Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def variance(
    data: DataNode | _Constant,
    mean: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Compute the variance: the mean squared distance from a given mean.

    Args:
        data: any dtype.
        mean: a number, or the result of `mean` over the same dimensions, with or without `keep_dims`.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        ddof: number subtracted from the element count in the divisor.
    """

@overload
def variance(
    data: _Sequence[DataNode],
    mean: _Sequence[DataNode] | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def std_dev(
    data: DataNode | _Constant,
    mean: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Compute the standard deviation: the square root of `variance`.

    Args:
        data: any dtype.
        mean: a number, or the result of `mean` over the same dimensions, with or without `keep_dims`.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        ddof: number subtracted from the element count in the divisor.
    """

@overload
def std_dev(
    data: _Sequence[DataNode],
    mean: _Sequence[DataNode] | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
