"""``nvidia.dali.ops.experimental``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class WarpPerspective:
    """Apply perspective transforms to images.

    Args:
        image: UINT8, UINT16, INT16 or FLOAT.
        matrix_input: the transform as a 3x3 matrix of floats, instead of `matrix`.
        matrix: rows of the transform of (x, y, 1), in pixels.
        inverse_map: whether the transform maps the result to the image; otherwise it is inverted.
        size: size of the result, as (height, width). Default: that of the image.
        pixel_origin: position of the first pixel's center: (0.5, 0.5) for "corner", (0, 0) for "center".
        border_mode: values outside the image: `fill_value`, or the image's own, continued in this way.
        fill_value: value outside the image for all channels, or one for each.
        interp_type: INTERP_NN, INTERP_LINEAR or INTERP_CUBIC.
    """
    def __init__(
        self,
        *,
        matrix: _Floats | DataNode | None = ...,
        inverse_map: bool = ...,
        size: _Floats | DataNode | None = ...,
        pixel_origin: Literal["corner", "center"] = ...,
        border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = ...,
        fill_value: _Floats = ...,
        interp_type: DALIInterpType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        matrix_input: DataNode | _Constant | None = None,
        /,
        *,
        matrix: _Floats | DataNode | None = ...,
        inverse_map: bool = ...,
        size: _Floats | DataNode | None = ...,
        pixel_origin: Literal["corner", "center"] = ...,
        border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = ...,
        fill_value: _Floats = ...,
        interp_type: DALIInterpType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        matrix_input: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        matrix: _Floats | DataNode | None = ...,
        inverse_map: bool = ...,
        size: _Floats | DataNode | None = ...,
        pixel_origin: Literal["corner", "center"] = ...,
        border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = ...,
        fill_value: _Floats = ...,
        interp_type: DALIInterpType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Remap:
    """Take each pixel of the result from a position in the image; 0 outside of it.

    Args:
        image: UINT8, UINT16, INT16 or FLOAT, with 1 or 3 channels.
        mapx, mapy: positions for each pixel of the result, FLOAT, in the layout HW, or FHW for one of each frame.
        interp: INTERP_NN, INTERP_LINEAR, INTERP_CUBIC or INTERP_LANCZOS3, which is OpenCV's with 8 pixels.
        pixel_origin: position of the first pixel's center: (0.5, 0.5) for "corner", (0, 0) for "center".
    """
    def __init__(
        self,
        *,
        interp: DALIInterpType = ...,
        pixel_origin: Literal["corner", "center"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        mapx: DataNode | _Constant,
        mapy: DataNode | _Constant,
        /,
        *,
        interp: DALIInterpType = ...,
        pixel_origin: Literal["corner", "center"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        mapx: _Sequence[DataNode] | _Constant,
        mapy: _Sequence[DataNode] | _Constant,
        /,
        *,
        interp: DALIInterpType = ...,
        pixel_origin: Literal["corner", "center"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
