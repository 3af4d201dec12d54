"""``nvidia.dali.fn.reductions``. Written by tools.operator_stubs from the descriptions of the operators; not to be edited."""

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

@overload
def sum(
    input: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The sum of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result. Default: INT64 of signed integers, UINT64 of others, FLOAT of floating-point numbers, and
            FLOAT64 of FLOAT64. Sums of integers that are too large wrap round.
    """

@overload
def sum(
    input: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def mean(
    input: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The mean of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result; of integers it is the part before the point. Default: FLOAT, and FLOAT64 of FLOAT64.
    """

@overload
def mean(
    input: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def mean_square(
    input: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The mean of the squares of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result; of integers it is the part before the point. Default: FLOAT, and FLOAT64 of FLOAT64.
    """

@overload
def mean_square(
    input: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def rms(
    input: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The root of the mean of the squares of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result; of integers it is the part before the point. Default: FLOAT, and FLOAT64 of FLOAT64.
    """

@overload
def rms(
    input: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def min(
    input: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The least of elements; what is not a number does not count.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
    """

@overload
def min(
    input: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def max(
    input: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The greatest of elements; what is not a number does not count.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
    """

@overload
def max(
    input: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def variance(
    data: DataNode | _Fixed,
    mean: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The mean of the squares of the distances of elements from a mean.

    Args:
        data: any dtype.
        mean: a number; or what `mean` makes of the same dimensions, which may have been kept.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        ddof: by how much less than by the number of elements the sum is divided.
    """

@overload
def variance(
    data: Sequence[DataNode],
    mean: Sequence[DataNode] | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def std_dev(
    data: DataNode | _Fixed,
    mean: DataNode | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The root of `variance`.

    Args:
        data: any dtype.
        mean: a number; or what `mean` makes of the same dimensions, which may have been kept.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        ddof: by how much less than by the number of elements the sum is divided.
    """

@overload
def std_dev(
    data: Sequence[DataNode],
    mean: Sequence[DataNode] | _Constant,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    ddof: int = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
