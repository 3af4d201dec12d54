"""``nvidia.dali.ops.reductions``. Written by tools.operator_stubs from the descriptions of the operators; not to be edited."""

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

class Sum:
    """The sum of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result. Default: INT64 of signed integers, UINT64 of others, FLOAT of floating-point numbers, and
            FLOAT64 of FLOAT64. Sums of integers that are too large wrap round.
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
        input: DataNode | _Fixed,
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
        input: Sequence[DataNode],
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
    """The mean of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result; of integers it is the part before the point. Default: FLOAT, and FLOAT64 of FLOAT64.
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
        input: DataNode | _Fixed,
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
        input: Sequence[DataNode],
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
    """The mean of the squares of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result; of integers it is the part before the point. Default: FLOAT, and FLOAT64 of FLOAT64.
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
        input: DataNode | _Fixed,
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
        input: Sequence[DataNode],
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
    """The root of the mean of the squares of elements.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        dtype: of the result; of integers it is the part before the point. Default: FLOAT, and FLOAT64 of FLOAT64.
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
        input: DataNode | _Fixed,
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
        input: Sequence[DataNode],
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
    """The least of elements; what is not a number does not count.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
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
        input: DataNode | _Fixed,
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
        input: Sequence[DataNode],
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
    """The greatest of elements; what is not a number does not count.

    Args:
        input: any dtype.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
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
        input: DataNode | _Fixed,
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
        input: Sequence[DataNode],
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
    """The mean of the squares of the distances of elements from a mean.

    Args:
        data: any dtype.
        mean: a number; or what `mean` makes of the same dimensions, which may have been kept.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        ddof: by how much less than by the number of elements the sum is divided.
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
        data: DataNode | _Fixed,
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
        data: Sequence[DataNode],
        mean: Sequence[DataNode] | _Constant,
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
    """The root of `variance`.

    Args:
        data: any dtype.
        mean: a number; or what `mean` makes of the same dimensions, which may have been kept.
        axes: the dimensions along which elements are taken together; from the end if negative. Default: all.
        axis_names: their letters in the layout.
        keep_dims: these dimensions stay, with the extent 1.
        ddof: by how much less than by the number of elements the sum is divided.
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
        data: DataNode | _Fixed,
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
        data: Sequence[DataNode],
        mean: Sequence[DataNode] | _Constant,
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
    
