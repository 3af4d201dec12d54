"""``nvidia.dali.fn.experimental``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
from dali_like.fn.experimental import decoders as decoders
from dali_like.fn.experimental import inputs as inputs
from dali_like.fn.experimental import readers as readers

_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def equalize(
    image: DataNode | _Constant,
    /,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Equalize the histogram of each channel: spread its values over the whole range.

    Args:
        image: uint8.
    """

@overload
def equalize(
    image: _Sequence[DataNode],
    /,
    *,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def debayer(
    image: DataNode | _Constant,
    /,
    *,
    algorithm: Literal["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv"] = "bilinear_ocv",
    blue_position: _Ints | DataNode,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Compute RGB images from the images of a sensor with a color filter array (Bayer pattern).

    Args:
        image: uint8 or uint16, with one channel and an even height and width.
        algorithm: "bilinear_ocv", "edgeaware_ocv", "vng_ocv" (only uint8), or "gray_ocv", which returns gray images with one
            channel.
        blue_position: row and column of blue in the 2x2 tiles that begin in the second row and column of the image, as in
            OpenCV: (0, 0) is BGGR, (0, 1) is GBRG, (1, 0) is GRBG, (1, 1) is RGGB. One number for both.
    """

@overload
def debayer(
    image: _Sequence[DataNode],
    /,
    *,
    algorithm: Literal["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv"] = "bilinear_ocv",
    blue_position: _Ints | DataNode,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def filter(
    data: DataNode | _Constant,
    filter: DataNode | _Constant,
    fill_value: DataNode | _Constant | None = None,
    /,
    *,
    anchor: _Ints | DataNode = (-1,),
    border: Literal["reflect_101", "reflect_1001", "wrap", "clamp", "constant"] = "reflect_101",
    dtype: _DataType | None = None,
    mode: Literal["same", "valid"] = "same",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Filter images and volumes with a window of weights.

    Each element of the result is the sum of the elements below the window, times their weights. This is a correlation: the
    window is not flipped. All axes except "F" and "C" are filtered. Channels must come first or last, frames first. Sums are
    computed in single precision; integers are rounded and saturate.

    Args:
        data: images, videos and volumes of any dtype.
        filter: the weights, FLOAT or FLOAT64: (height, width), or (depth, height, width) for volumes.
        fill_value: value outside the data for ``border="constant"``: a scalar of the dtype of the data. Default: 0.
        anchor: element of the window that lies on the element to compute: one number for all axes, or one for each; -1: the
            middle.
        border: values outside the data: "reflect_101" (mirrored, without the outermost elements), "reflect_1001" (mirrored),
            "wrap" (periodic), "clamp" (the nearest element), or "constant".
        dtype: FLOAT, or the type of the data, which is the default.
        mode: "same": the result has the shape of the data. "valid": the window stays inside the data, and the result is
            smaller.
    """

@overload
def filter(
    data: _Sequence[DataNode],
    filter: _Sequence[DataNode] | _Constant,
    fill_value: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    anchor: _Ints | DataNode = (-1,),
    border: Literal["reflect_101", "reflect_1001", "wrap", "clamp", "constant"] = "reflect_101",
    dtype: _DataType | None = None,
    mode: Literal["same", "valid"] = "same",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def median_blur(
    input: DataNode | _Constant,
    /,
    *,
    window_size: _Ints | DataNode = (3, 3),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Replace each element by the median of its surroundings, in each channel.

    Args:
        input: images of any dtype. Outside, they continue with the nearest edge element.
        window_size: width and height of the surroundings, odd numbers; one number for both.
    """

@overload
def median_blur(
    input: _Sequence[DataNode],
    /,
    *,
    window_size: _Ints | DataNode = (3, 3),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def dilate(
    input: DataNode | _Constant,
    /,
    *,
    anchor: _Ints | DataNode = (-1, -1),
    border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = "constant",
    iterations: int = 1,
    mask_size: _Ints | DataNode = (3, 3),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Replace each element by the maximum of its surroundings, in each channel.

    Args:
        input: images of uint8, uint16, int16, float32 or float64.
        anchor: (x, y) of the element in the rectangle of its surroundings; one number for both; -1: the middle.
        border_mode: values outside the image: "constant" (none), "replicate" (the nearest element), "reflect" (mirrored),
            "reflect_101" (mirrored, without the outermost elements) or "wrap" (periodic).
        iterations: number of repetitions.
        mask_size: width and height of the surroundings; one number for both.
    """

@overload
def dilate(
    input: _Sequence[DataNode],
    /,
    *,
    anchor: _Ints | DataNode = (-1, -1),
    border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = "constant",
    iterations: int = 1,
    mask_size: _Ints | DataNode = (3, 3),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def erode(
    input: DataNode | _Constant,
    /,
    *,
    anchor: _Ints | DataNode = (-1, -1),
    border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = "constant",
    iterations: int = 1,
    mask_size: _Ints | DataNode = (3, 3),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Replace each element by the minimum of its surroundings, in each channel.

    Args:
        input: images of uint8, uint16, int16, float32 or float64.
        anchor: (x, y) of the element in the rectangle of its surroundings; one number for both; -1: the middle.
        border_mode: values outside the image: "constant" (none), "replicate" (the nearest element), "reflect" (mirrored),
            "reflect_101" (mirrored, without the outermost elements) or "wrap" (periodic).
        iterations: number of repetitions.
        mask_size: width and height of the surroundings; one number for both.
    """

@overload
def erode(
    input: _Sequence[DataNode],
    /,
    *,
    anchor: _Ints | DataNode = (-1, -1),
    border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = "constant",
    iterations: int = 1,
    mask_size: _Ints | DataNode = (3, 3),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
