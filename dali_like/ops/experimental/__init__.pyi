"""``nvidia.dali.ops.experimental``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
from dali_like.ops.experimental import decoders as decoders
from dali_like.ops.experimental import inputs as inputs
from dali_like.ops.experimental import readers as readers

_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

class AudioResample:
    """Change the sample rate of audio signals.

    The result is DALI's: that of a sinc filter with a Hann window. Like DALI, it has no low-pass filter: at a lower rate,
    frequencies above half of the new rate turn up at others. `decoders.audio` with ``sample_rate=`` removes them.

    Args:
        signal: shape (frames,) or (frames, channels); INT8, UINT8, INT16, UINT16, INT32, UINT32 or FLOAT.
        in_rate, out_rate: sample rates of input and result, in the same unit.
        scale: ratio of the rates, instead.
        out_length: number of frames of the result, instead.
        quality: from 0, for a filter with 3 lobes, to 100, with 64 lobes.
        dtype: data type of the result. Default: that of the input. The ranges of values correspond: -1 to 1 for FLOAT, the
            whole range for integers. Zero of signed types is the middle of unsigned ones.
    """
    def __init__(
        self,
        *,
        in_rate: float | DataNode | None = ...,
        out_rate: float | DataNode | None = ...,
        scale: float | DataNode | None = ...,
        out_length: int | DataNode | None = ...,
        quality: float = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        signal: DataNode | _Constant,
        /,
        *,
        in_rate: float | DataNode | None = ...,
        out_rate: float | DataNode | None = ...,
        scale: float | DataNode | None = ...,
        out_length: int | DataNode | None = ...,
        quality: float = ...,
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
        signal: _Sequence[DataNode],
        /,
        *,
        in_rate: float | DataNode | None = ...,
        out_rate: float | DataNode | None = ...,
        scale: float | DataNode | None = ...,
        out_length: int | DataNode | None = ...,
        quality: float = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Resize:
    """Scale images and volumes.

    Args:
        image: any dtype. Empty images stay empty.
        size: size of the result, as (height, width) or (depth, height, width), or one number for all axes; 0: follows from
            the others and `mode`; negative: mirrored.
        resize_x: width of the result.
        resize_y: height of the result.
        resize_z: depth of the result.
        resize_shorter: length of the shorter side; keeps proportions.
        resize_longer: length of the longer side; keeps proportions.
        mode: "default": sides without a size are scaled like the others. "stretch": they are not scaled. "not_larger",
            "not_smaller": proportions are kept, and no side is larger, or smaller, than given.
        max_size: maximum length of the sides; one for all axes, or one for each.
        subpixel_scale: where a side of the result is not an integer, use slightly more or less of the image, to keep
            proportions exactly. False: use the whole image.
        roi_start: start of the region to scale, in pixels, in the order of `size`. Default: the whole image.
        roi_end: end of the region; an end before the start mirrors the image.
        roi_relative: whether the region is given in fractions of the image's extents.
        interp_type: interpolation between pixels.
        min_filter: interpolation where the image shrinks.
        mag_filter: interpolation where the image grows.
        antialias: whether to filter where the image shrinks, so that no pixel is skipped.
        dtype: FLOAT, or the type of the input, which is the default.
        save_attrs: whether to return the original size as a second result, as (height, width) or (depth, height, width),
            INT32.
    """
    def __init__(
        self,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[True],
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[True],
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[list[DataNode]]:
        ...
    
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[False] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[False] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class TensorResize:
    """Scale arrays along any axes.

    Arguments for several axes have one number for all `axes`, or one for each.

    Args:
        data: any dtype, at least one dimension. Empty arrays stay empty.
        sizes: extents of the result; 0: follows from the others and `mode`; negative: mirrored.
        scales: ratios of the extents of the result to those of the input, instead.
        axes: axes to scale. Default: all.
        axis_names: the same as letters of the layout.
        mode: see `resize`. With "not_larger" and "not_smaller", the other axes are scaled too.
        max_size: maximum extents of the result.
        size_rounding: rounding of extents that are not integers: "round", "truncate" or "ceil".
        subpixel_scale: where an extent of the result is not an integer, use slightly more or less of the input, to keep the
            scale exactly. False: use the whole input.
        alignment: point of the input that keeps its place then, from 0 (start of the result) to 1 (its end).
        roi_start, roi_end: region to scale, in elements. An end before the start mirrors it. Default: all.
        roi_relative: whether the region is given in fractions of the extents.
        interp_type, min_filter, mag_filter, antialias, dtype: see `resize`.
    """
    def __init__(
        self,
        *,
        sizes: _Floats | DataNode | None = ...,
        scales: _Floats | DataNode | None = ...,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        size_rounding: Literal["round", "truncate", "ceil"] = ...,
        subpixel_scale: bool = ...,
        alignment: _Floats | DataNode = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        sizes: _Floats | DataNode | None = ...,
        scales: _Floats | DataNode | None = ...,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        size_rounding: Literal["round", "truncate", "ceil"] = ...,
        subpixel_scale: bool = ...,
        alignment: _Floats | DataNode = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        sizes: _Floats | DataNode | None = ...,
        scales: _Floats | DataNode | None = ...,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        size_rounding: Literal["round", "truncate", "ceil"] = ...,
        subpixel_scale: bool = ...,
        alignment: _Floats | DataNode = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
