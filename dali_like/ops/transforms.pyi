"""``nvidia.dali.ops.transforms``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class Translation:
    """Make the matrix of a translation.

    Args:
        matrix: a transform, FLOAT, to combine with the translation.
        offset: the translation, with one number for each dimension, or for each dimension of each frame.
        reverse_order: whether the translation comes before the transform of the input.
    """
    def __init__(
        self,
        *,
        offset: _Floats | DataNode = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        matrix: DataNode | _Constant | None = None,
        /,
        *,
        offset: _Floats | DataNode = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        matrix: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        offset: _Floats | DataNode = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Scale:
    """Make the matrix of a scaling.

    Args:
        matrix: a transform, FLOAT, to combine with the scaling.
        scale: factor for each dimension, or for each dimension of each frame. One number applies to all dimensions.
        center: point that stays in place. Default: the origin.
        ndim: number of dimensions, if `scale` is one number and there is no input. Default: 1.
        reverse_order: whether the scaling comes before the transform of the input.
    """
    def __init__(
        self,
        *,
        scale: _Floats | DataNode = ...,
        center: _Floats | DataNode | None = ...,
        ndim: int | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        matrix: DataNode | _Constant | None = None,
        /,
        *,
        scale: _Floats | DataNode = ...,
        center: _Floats | DataNode | None = ...,
        ndim: int | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        matrix: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        scale: _Floats | DataNode = ...,
        center: _Floats | DataNode | None = ...,
        ndim: int | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Rotation:
    """Make the matrix of a rotation, in two dimensions, or in three if there is an axis.

    Args:
        matrix: a transform, FLOAT, to combine with the rotation.
        angle: in degrees, for the sample or for each frame. From the first axis toward the second one.
        axis: axis of rotation (x, y, z), of any length but zero.
        center: point that stays in place. Default: the origin.
        reverse_order: whether the rotation comes before the transform of the input.
    """
    def __init__(
        self,
        *,
        angle: _Floats | DataNode = ...,
        axis: _Floats | DataNode | None = ...,
        center: _Floats | DataNode | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        matrix: DataNode | _Constant | None = None,
        /,
        *,
        angle: _Floats | DataNode = ...,
        axis: _Floats | DataNode | None = ...,
        center: _Floats | DataNode | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        matrix: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        angle: _Floats | DataNode = ...,
        axis: _Floats | DataNode | None = ...,
        center: _Floats | DataNode | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Shear:
    """Make the matrix of a shear mapping.

    Args:
        matrix: a transform, FLOAT, to combine with the shear mapping.
        shear: factors (x, y), or (xy, xz, yx, yz, zx, zy) for three dimensions: the shift along the first axis for each
            step along the second one.
        angles: the arc tangents of `shear`, in degrees from -90 to 90.
        center: point that stays in place. Default: the origin.
        reverse_order: whether the shear mapping comes before the transform of the input.
    """
    def __init__(
        self,
        *,
        shear: _Floats | DataNode | None = ...,
        angles: _Floats | DataNode | None = ...,
        center: _Floats | DataNode | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        matrix: DataNode | _Constant | None = None,
        /,
        *,
        shear: _Floats | DataNode | None = ...,
        angles: _Floats | DataNode | None = ...,
        center: _Floats | DataNode | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        matrix: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        shear: _Floats | DataNode | None = ...,
        angles: _Floats | DataNode | None = ...,
        center: _Floats | DataNode | None = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Crop:
    """Make the matrix that maps one range of coordinates to another one.

    It adjusts coordinates to a crop: `from_start` is mapped to `to_start`, and `from_end` to `to_end`. Each of them has one
    number for each dimension, or one number for all.

    Args:
        matrix: a transform, FLOAT, to combine with the mapping.
        from_start: lower bound of the original range. Default: 0.
        from_end: upper bound of the original range. Default: 1.
        to_start: lower bound of the new range. Default: 0.
        to_end: upper bound of the new range. Default: 1.
        absolute: whether to exchange bounds where the lower one is greater.
        reverse_order: whether the mapping comes before the transform of the input.
    """
    def __init__(
        self,
        *,
        from_start: _Floats | DataNode | None = ...,
        from_end: _Floats | DataNode | None = ...,
        to_start: _Floats | DataNode | None = ...,
        to_end: _Floats | DataNode | None = ...,
        absolute: bool = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        matrix: DataNode | _Constant | None = None,
        /,
        *,
        from_start: _Floats | DataNode | None = ...,
        from_end: _Floats | DataNode | None = ...,
        to_start: _Floats | DataNode | None = ...,
        to_end: _Floats | DataNode | None = ...,
        absolute: bool = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        matrix: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        from_start: _Floats | DataNode | None = ...,
        from_end: _Floats | DataNode | None = ...,
        to_start: _Floats | DataNode | None = ...,
        to_end: _Floats | DataNode | None = ...,
        absolute: bool = ...,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Combine:
    """Combine transforms.

    Args:
        matrices: transforms of the same number of dimensions, FLOAT, in the order of application.
        reverse_order: whether the last transform applies first.
    """
    def __init__(
        self,
        *,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *matrices: DataNode | _Fixed | float,
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        *matrices: _Sequence[DataNode],
        reverse_order: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
