"""``nvidia.dali.fn``. Written by tools.operator_stubs from the descriptions of the operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
from dali_like.fn import decoders as decoders
from dali_like.fn import random as random
from dali_like.fn import reductions as reductions
from dali_like.fn._external_source import external_source as external_source

_Constant: TypeAlias = _Fixed | float | Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def cast(
    input: DataNode | _Fixed,
    /,
    *,
    dtype: _DataType,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Give arrays another type.

    Numbers that are too large or too small become the largest or least of the type; fractions are rounded, halves away from
    zero.

    Args:
        input: any dtype.
        dtype: of the result.
    """

@overload
def cast(
    input: Sequence[DataNode],
    /,
    *,
    dtype: _DataType,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def cast_like(
    input_0: DataNode | _Fixed,
    input_1: DataNode | _Constant,
    /,
    *,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Give arrays the type of others.

    Args:
        input_0: any dtype.
        input_1: its values and its shape do not matter.
    """

@overload
def cast_like(
    input_0: Sequence[DataNode],
    input_1: Sequence[DataNode] | _Constant,
    /,
    *,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def copy(
    input: DataNode | _Fixed,
    /,
    *,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The same again.

    Args:
        input: any dtype.
    """

@overload
def copy(
    input: Sequence[DataNode],
    /,
    *,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def shapes(
    input: DataNode | _Fixed,
    /,
    *,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The shape of each sample, as a one-dimensional array; see also `DataNode.shape`.

    Args:
        input: any dtype.
        dtype: of the result.
    """

@overload
def shapes(
    input: Sequence[DataNode],
    /,
    *,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def stack(
    *inputs: DataNode | _Fixed | float,
    axis: int = 0,
    axis_name: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Put arrays of the same shape side by side along a new dimension.

    Args:
        inputs: arrays of one type.
        axis: which one it is in the result; from the end if negative.
        axis_name: its letter in the layout. Default: the result has no layout.
    """

@overload
def stack(
    *inputs: Sequence[DataNode],
    axis: int = 0,
    axis_name: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def cat(
    *inputs: DataNode | _Fixed | float,
    axis: int = 0,
    axis_name: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Put arrays one behind the other along a dimension.

    Args:
        inputs: arrays of one type, and of the same shape but for that dimension.
        axis: which one it is; from the end if negative.
        axis_name: its letter in the layout of the first input.
    """

@overload
def cat(
    *inputs: Sequence[DataNode],
    axis: int = 0,
    axis_name: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def one_hot(
    input: DataNode | _Fixed,
    /,
    *,
    num_classes: int = 0,
    axis: int | None = None,
    axis_name: str | None = None,
    dtype: _DataType = ...,
    on_value: float = 1.0,
    off_value: float = 0.0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Numbers of classes as vectors that have one value at that place, and another one elsewhere.

    Args:
        input: integers.
        num_classes: how long the vectors are.
        axis: which dimension of the result they are along; -1: the last one. Default: that as well, but arrays of a single
            element are then taken for numbers, so that the result is a vector.
        axis_name: its letter in the layout. Default: the result has no layout.
        dtype: of the result.
        on_value: at the place of the class.
        off_value: elsewhere, and everywhere if there is no such class.
    """

@overload
def one_hot(
    input: Sequence[DataNode],
    /,
    *,
    num_classes: int = 0,
    axis: int | None = None,
    axis_name: str | None = None,
    dtype: _DataType = ...,
    on_value: float = 1.0,
    off_value: float = 0.0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def lookup_table(
    input: DataNode | _Fixed,
    /,
    *,
    keys: _Ints = (),
    values: _Floats = (),
    default_value: float = 0.0,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Put other values in the place of integers.

    Args:
        input: integers.
        keys: those that there are values for, from 0 to 65535. Of those that come several times, the last one counts.
        values: as many.
        default_value: the value of all others.
        dtype: of the result.
    """

@overload
def lookup_table(
    input: Sequence[DataNode],
    /,
    *,
    keys: _Ints = (),
    values: _Floats = (),
    default_value: float = 0.0,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

def constant(
    *,
    fdata: _Floats | None = None,
    idata: _Ints | None = None,
    shape: _Ints | None = None,
    dtype: _DataType | None = None,
    layout: str = "",
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The same array for every sample; see also `dali_like.types.Constant`.

    Args:
        fdata: the elements, as floating-point numbers.
        idata: the elements, as integers.
        shape: of the array, which a single element fills. Default: one dimension.
        dtype: of the array. Default: FLOAT or INT32.
        layout: a letter for each dimension.
    """

@overload
def brightness_contrast(
    image: DataNode | _Fixed,
    /,
    *,
    brightness: float | DataNode = 1.0,
    brightness_shift: float | DataNode = 0.0,
    contrast: float | DataNode = 1.0,
    contrast_center: float | DataNode | None = None,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Make images brighter or darker, and their contrast higher or lower.

    ``out = brightness_shift * range + brightness * (contrast_center + contrast * (in - contrast_center))``, where the range
    is the largest number of the result's dtype, or 1 for floats.

    Args:
        image: any dtype and number of channels.
        brightness: the factor of the brightness.
        brightness_shift: is added; 1 is the whole range.
        contrast: the factor of the contrast; 0 makes everything gray.
        contrast_center: the value that no contrast changes. Default: half of the range of the image's dtype.
        dtype: of the result. Default: that of the image.
    """

@overload
def brightness_contrast(
    image: Sequence[DataNode],
    /,
    *,
    brightness: float | DataNode = 1.0,
    brightness_shift: float | DataNode = 0.0,
    contrast: float | DataNode = 1.0,
    contrast_center: float | DataNode | None = None,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def brightness(
    image: DataNode | _Fixed,
    /,
    *,
    brightness: float | DataNode = 1.0,
    brightness_shift: float | DataNode = 0.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Make images brighter or darker: ``out = brightness_shift * range + brightness * in``.

    Args:
        image: any dtype and number of channels.
        brightness: the factor of the brightness.
        brightness_shift: is added; 1 is the largest number of the result's dtype, or 1 for floats.
        dtype: of the result. Default: that of the image.
    """

@overload
def brightness(
    image: Sequence[DataNode],
    /,
    *,
    brightness: float | DataNode = 1.0,
    brightness_shift: float | DataNode = 0.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def contrast(
    image: DataNode | _Fixed,
    /,
    *,
    contrast: float | DataNode = 1.0,
    contrast_center: float | DataNode | None = None,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Make the contrast of images higher or lower: ``out = contrast_center + contrast * (in - contrast_center)``.

    Args:
        image: any dtype and number of channels.
        contrast: the factor of the contrast; 0 makes everything gray.
        contrast_center: the value that no contrast changes. Default: half of the range of the image's dtype.
        dtype: of the result. Default: that of the image.
    """

@overload
def contrast(
    image: Sequence[DataNode],
    /,
    *,
    contrast: float | DataNode = 1.0,
    contrast_center: float | DataNode | None = None,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def hsv(
    image: DataNode | _Fixed,
    /,
    *,
    hue: float | DataNode = 0.0,
    saturation: float | DataNode = 1.0,
    value: float | DataNode = 1.0,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Change hue, saturation and value of RGB images, by a linear transformation of the colors.

    Args:
        image: any dtype, three channels.
        hue: is added to the hue, in degrees.
        saturation: the factor of the saturation; 0 makes an image gray.
        value: the factor of the brightness.
        dtype: of the result. Default: UINT8.
    """

@overload
def hsv(
    image: Sequence[DataNode],
    /,
    *,
    hue: float | DataNode = 0.0,
    saturation: float | DataNode = 1.0,
    value: float | DataNode = 1.0,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def hue(
    image: DataNode | _Fixed,
    /,
    *,
    hue: float | DataNode = 0.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = DALIImageType.RGB,
) -> DataNode:
    """Change the hue of RGB images.

    Args:
        image: any dtype, three channels.
        hue: is added to the hue, in degrees.
        dtype: of the result. Default: that of the image.
    """

@overload
def hue(
    image: Sequence[DataNode],
    /,
    *,
    hue: float | DataNode = 0.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = DALIImageType.RGB,
) -> list[DataNode]:
    ...

@overload
def saturation(
    image: DataNode | _Fixed,
    /,
    *,
    saturation: float | DataNode = 1.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = DALIImageType.RGB,
) -> DataNode:
    """Change the saturation of RGB images.

    Args:
        image: any dtype, three channels.
        saturation: the factor of the saturation; 0 makes an image gray.
        dtype: of the result. Default: that of the image.
    """

@overload
def saturation(
    image: Sequence[DataNode],
    /,
    *,
    saturation: float | DataNode = 1.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = DALIImageType.RGB,
) -> list[DataNode]:
    ...

@overload
def color_twist(
    image: DataNode | _Fixed,
    /,
    *,
    brightness: float | DataNode = 1.0,
    contrast: float | DataNode = 1.0,
    hue: float | DataNode = 0.0,
    saturation: float | DataNode = 1.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = DALIImageType.RGB,
) -> DataNode:
    """Change brightness, contrast, hue and saturation of RGB images.

    Args:
        image: any dtype, three channels.
        brightness: the factor of the brightness.
        contrast: the factor of the contrast, around 128 (0.5 for floats); 0 makes everything gray.
        hue: is added to the hue, in degrees.
        saturation: the factor of the saturation; 0 makes an image gray.
        dtype: of the result. Default: that of the image.
    """

@overload
def color_twist(
    image: Sequence[DataNode],
    /,
    *,
    brightness: float | DataNode = 1.0,
    contrast: float | DataNode = 1.0,
    hue: float | DataNode = 0.0,
    saturation: float | DataNode = 1.0,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = DALIImageType.RGB,
) -> list[DataNode]:
    ...

@overload
def color_space_conversion(
    image: DataNode | _Fixed,
    /,
    *,
    image_type: DALIImageType,
    output_type: DALIImageType,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Convert images from one color model to another.

    Args:
        image: uint8, with one channel if it is GRAY, else three.
        image_type: its color model: RGB, BGR, GRAY or YCbCr.
        output_type: that of the result; another one.
    """

@overload
def color_space_conversion(
    image: Sequence[DataNode],
    /,
    *,
    image_type: DALIImageType,
    output_type: DALIImageType,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def flip(
    image: DataNode | _Fixed,
    /,
    *,
    horizontal: int | DataNode = 1,
    vertical: int | DataNode = 0,
    depthwise: int | DataNode = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Mirror images and volumes.

    Args:
        image: any dtype.
        horizontal: exchange left and right.
        vertical: exchange top and bottom.
        depthwise: exchange front and back.
    """

@overload
def flip(
    image: Sequence[DataNode],
    /,
    *,
    horizontal: int | DataNode = 1,
    vertical: int | DataNode = 0,
    depthwise: int | DataNode = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def crop(
    image: DataNode | _Fixed,
    /,
    *,
    crop: _Floats | DataNode | None = None,
    crop_w: float | DataNode = 0.0,
    crop_h: float | DataNode = 0.0,
    crop_d: float | DataNode = 0.0,
    crop_pos_x: float | DataNode = 0.5,
    crop_pos_y: float | DataNode = 0.5,
    crop_pos_z: float | DataNode = 0.5,
    rounding: Literal["round", "truncate"] = "round",
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_values: _Floats = (0.0,),
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = None,
) -> DataNode:
    """Cut windows out of images and volumes.

    Args:
        image: any dtype.
        crop: the size of the window, as (height, width) or (depth, height, width); 0 for all of an axis. The depth is that
            of volumes, or the frames of sequences of images; all of it is taken without it.
        crop_w: its width, if `crop` is not given.
        crop_h: its height.
        crop_d: its depth.
        crop_pos_x: where it lies, from 0 (at the left edge) to 1 (at the right edge).
        crop_pos_y: likewise, from top to bottom.
        crop_pos_z: likewise, from front to back.
        rounding: what becomes of positions between pixels: "round" or "truncate".
        out_of_bounds_policy: what becomes of a window that is larger than the image: "error", "pad" with `fill_values`, or
            "trim_to_shape".
        fill_values: one for all, or one for each channel.
        dtype: of the result. Default: that of the input.
    """

@overload
def crop(
    image: Sequence[DataNode],
    /,
    *,
    crop: _Floats | DataNode | None = None,
    crop_w: float | DataNode = 0.0,
    crop_h: float | DataNode = 0.0,
    crop_d: float | DataNode = 0.0,
    crop_pos_x: float | DataNode = 0.5,
    crop_pos_y: float | DataNode = 0.5,
    crop_pos_z: float | DataNode = 0.5,
    rounding: Literal["round", "truncate"] = "round",
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_values: _Floats = (0.0,),
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = None,
) -> list[DataNode]:
    ...

@overload
def slice(
    data: DataNode | _Fixed,
    anchor: DataNode | _Constant | None = None,
    shape_input: DataNode | _Constant | None = None,
    /,
    *,
    axes: _Ints | DataNode | None = None,
    axis_names: str | None = None,
    start: _Ints | DataNode | None = None,
    rel_start: _Floats | DataNode | None = None,
    end: _Ints | DataNode | None = None,
    rel_end: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_values: _Floats = (0.0,),
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = None,
) -> DataNode:
    """Cut windows out of arrays, given where they begin and end.

    The window is given by the inputs `anchor` and `shape_input`, or by arguments: where it begins, and where it ends or how
    large it is, in elements or (``rel_``) in parts of the extent; with a number for each axis, or one for all of them.

    Args:
        data: any number of dimensions.
        anchor: where the window begins in each of the axes.
        shape_input: how large it is.
        axes: the axes that are cut. Default: 1 and 0, where there is no layout.
        axis_names: their letters in the layout, instead. Default: "WH".
        start, rel_start: where the window begins. Default: at the beginning.
        end, rel_end: where it ends. Default: at the end.
        shape, rel_shape: how large it is, instead of where it ends.
        normalized_anchor: whether a floating-point `anchor` is in parts of the extent.
        normalized_shape: likewise for `shape_input`.
        out_of_bounds_policy: what becomes of a window that lies partly outside: "error", "pad" with `fill_values`, or
            "trim_to_shape".
        fill_values: one for all, or one for each channel.
        dtype: of the result. Default: that of the input.
    """

@overload
def slice(
    data: Sequence[DataNode],
    anchor: Sequence[DataNode] | _Constant | None = None,
    shape_input: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    axes: _Ints | DataNode | None = None,
    axis_names: str | None = None,
    start: _Ints | DataNode | None = None,
    rel_start: _Floats | DataNode | None = None,
    end: _Ints | DataNode | None = None,
    rel_end: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_values: _Floats = (0.0,),
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = None,
) -> list[DataNode]:
    ...

@overload
def pad(
    data: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | DataNode | None = None,
    axis_names: str | None = None,
    shape: _Ints | DataNode | None = None,
    align: _Ints | DataNode | None = None,
    fill_value: float | DataNode = 0.0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Append elements, so that all samples of a batch are as large as the largest, or as large as is said.

    Args:
        data: any number of dimensions.
        axes: where to append. Default: in all axes.
        axis_names: their letters in the layout, instead.
        shape: extents to reach, one for all axes, or one for each; where a sample is larger already, it stays. -1 or 0: the
            largest of the batch.
        align: numbers that the extents are to be multiples of; one for all axes, or one for each.
        fill_value: what is appended.
    """

@overload
def pad(
    data: Sequence[DataNode],
    /,
    *,
    axes: _Ints | DataNode | None = None,
    axis_names: str | None = None,
    shape: _Ints | DataNode | None = None,
    align: _Ints | DataNode | None = None,
    fill_value: float | DataNode = 0.0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def paste(
    image: DataNode | _Fixed,
    /,
    *,
    ratio: float | DataNode,
    fill_value: _Ints,
    paste_x: float | DataNode = 0.5,
    paste_y: float | DataNode = 0.5,
    min_canvas_size: float | DataNode = 0.0,
    n_channels: int = 3,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Paste images onto larger canvases.

    Args:
        image: any dtype.
        ratio: how much larger the canvas is, from 1 on.
        fill_value: its color: one value for all channels, or one for each.
        paste_x: where the image lies, from 0 (left) to 1 (right).
        paste_y: likewise, from top to bottom.
        min_canvas_size: the least extent of the canvas, in pixels.
        n_channels: how many channels the images have, if `fill_value` has one value for each.
    """

@overload
def paste(
    image: Sequence[DataNode],
    /,
    *,
    ratio: float | DataNode,
    fill_value: _Ints,
    paste_x: float | DataNode = 0.5,
    paste_y: float | DataNode = 0.5,
    min_canvas_size: float | DataNode = 0.0,
    n_channels: int = 3,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def peek_image_shape(
    data: DataNode | _Fixed,
    /,
    *,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """The shapes of encoded images, from the beginnings of their files, which are not decoded.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        dtype: of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.

    Returns:
        (height, width, channels), as `image` with ANY_DATA would decode it.
    """

@overload
def peek_image_shape(
    data: Sequence[DataNode],
    /,
    *,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def gaussian_blur(
    image: DataNode | _Fixed,
    /,
    *,
    sigma: _Floats | DataNode = (0.0,),
    window_size: _Ints | DataNode = (0,),
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Blur images, volumes and signals.

    All axes but "F" and "C" are blurred. Channels must come first or last, frames first. Without a layout there are up to
    three axes, which are all blurred. What lies beyond the edges mirrors what lies within.

    Args:
        image: any dtype.
        sigma: the standard deviation of the Gaussian, one for all axes, or one for each, outermost first.
            Default: ``(radius - 1) * 0.3 + 0.8`` with ``radius = (window_size - 1) / 2``.
        window_size: how many elements in a line are weighted, an odd number; likewise. Default: ``2 * ceil(3 * sigma) + 1``.
        dtype: of the result: FLOAT. Default: that of the image.
    """

@overload
def gaussian_blur(
    image: Sequence[DataNode],
    /,
    *,
    sigma: _Floats | DataNode = (0.0,),
    window_size: _Ints | DataNode = (0,),
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def jpeg_compression_distortion(
    image: DataNode | _Fixed,
    /,
    *,
    quality: int | DataNode = 50,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Spoil images as compressing them to JPEG does.

    Args:
        image: uint8, RGB.
        quality: from 1, the worst, to 100, the best. What lies outside is taken for the nearest of these.
    """

@overload
def jpeg_compression_distortion(
    image: Sequence[DataNode],
    /,
    *,
    quality: int | DataNode = 50,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def erase(
    data: DataNode | _Fixed,
    /,
    *,
    anchor: _Floats | DataNode = (),
    shape: _Floats | DataNode = (),
    fill_value: _Floats | DataNode = (0.0,),
    axes: _Ints | None = None,
    axis_names: str | None = None,
    normalized: bool = False,
    normalized_anchor: bool = False,
    normalized_shape: bool = False,
    centered_anchor: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Fill regions with a value.

    Args:
        data: any dtype and layout.
        anchor: where the regions begin, one behind the other: (y, x, y, x, ...), say. Default: at 0.
        shape: how large they are, likewise. Parts of them may lie outside.
        fill_value: what they are filled with; one value, or one for each channel.
        axes: what axes the numbers of `anchor` and `shape` are for. Default: all but the channels.
        axis_names: the same by the letters of the layout: "HW", say; counts for more than `axes`.
        normalized: `anchor` and `shape` are parts of the extents of the data, from 0 to 1.
        normalized_anchor: likewise, only `anchor`.
        normalized_shape: likewise, only `shape`.
        centered_anchor: `anchor` is where the middle of the regions is.
    """

@overload
def erase(
    data: Sequence[DataNode],
    /,
    *,
    anchor: _Floats | DataNode = (),
    shape: _Floats | DataNode = (),
    fill_value: _Floats | DataNode = (0.0,),
    axes: _Ints | None = None,
    axis_names: str | None = None,
    normalized: bool = False,
    normalized_anchor: bool = False,
    normalized_shape: bool = False,
    centered_anchor: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def crop_mirror_normalize(
    image: DataNode | _Fixed,
    /,
    *,
    crop: _Floats | DataNode | None = None,
    crop_w: float | DataNode = 0.0,
    crop_h: float | DataNode = 0.0,
    crop_d: float | DataNode = 0.0,
    crop_pos_x: float | DataNode = 0.5,
    crop_pos_y: float | DataNode = 0.5,
    crop_pos_z: float | DataNode = 0.5,
    rounding: Literal["round", "truncate"] = "round",
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_values: _Floats = (0.0,),
    mirror: int | DataNode = 0,
    mean: _Floats | DataNode = (0.0,),
    std: _Floats | DataNode = (1.0,),
    scale: float = 1.0,
    shift: float = 0.0,
    pad_output: bool = False,
    output_layout: str = "CHW",
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = None,
) -> DataNode:
    """Cut a window out of images, mirror and normalize them, and change their layout and dtype, all at once.

    ``out = scale * (in - mean) / std + shift``

    Args:
        image: any dtype.
        crop: the size of the window, as (height, width) or (depth, height, width); 0 for all of an axis. The depth is that
            of volumes, or the frames of sequences of images. Default: all.
        crop_w: its width, if `crop` is not given.
        crop_h: its height.
        crop_d: its depth.
        crop_pos_x: where it lies, from 0 (at the left edge) to 1 (at the right edge).
        crop_pos_y: likewise, from top to bottom.
        crop_pos_z: likewise, from front to back.
        rounding: what becomes of positions between pixels: "round" or "truncate".
        out_of_bounds_policy: what becomes of a window that is larger than the image: "error", "pad" with `fill_values`, or
            "trim_to_shape".
        fill_values: one for all, or one for each channel of the result. They are not normalized.
        mirror: whether to exchange left and right.
        mean: is subtracted; one for all, or one for each channel.
        std: is divided by, likewise.
        scale: is multiplied with.
        shift: is added in the end.
        pad_output: add channels, filled with `fill_values`, so that their number is a power of two.
        output_layout: the order of the axes of the result; "": that of the image.
        dtype: of the result. Default: FLOAT.
    """

@overload
def crop_mirror_normalize(
    image: Sequence[DataNode],
    /,
    *,
    crop: _Floats | DataNode | None = None,
    crop_w: float | DataNode = 0.0,
    crop_h: float | DataNode = 0.0,
    crop_d: float | DataNode = 0.0,
    crop_pos_x: float | DataNode = 0.5,
    crop_pos_y: float | DataNode = 0.5,
    crop_pos_z: float | DataNode = 0.5,
    rounding: Literal["round", "truncate"] = "round",
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_values: _Floats = (0.0,),
    mirror: int | DataNode = 0,
    mean: _Floats | DataNode = (0.0,),
    std: _Floats | DataNode = (1.0,),
    scale: float = 1.0,
    shift: float = 0.0,
    pad_output: bool = False,
    output_layout: str = "CHW",
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    image_type: Any = None,
) -> list[DataNode]:
    ...

@overload
def normalize(
    data: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    mean: _Floats | DataNode | None = None,
    stddev: _Floats | DataNode | None = None,
    batch: bool = False,
    ddof: int = 0,
    epsilon: float = 0.0,
    scale: float = 1.0,
    shift: float = 0.0,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Subtract the mean and divide by the standard deviation, which are computed or given.

    ``out = scale * (in - mean) / stddev + shift``

    Args:
        data: any dtype and layout.
        axes: over which axes mean and standard deviation are computed. Default: all, or those of which `mean` and
            `stddev` have one element.
        axis_names: the same by the letters of the layout.
        mean: a number, or an array with as many dimensions as the data and one element in the `axes`. Default: the mean of
            the data.
        stddev: likewise. Default: the standard deviation of the data.
        batch: whether mean and standard deviation are those of all samples of the batch together.
        ddof: is subtracted from the number of elements, by which the sum of the squares is divided.
        epsilon: is added to the variance.
        scale: is multiplied with.
        shift: is added in the end.
        dtype: of the result. Default: FLOAT.

    Data without any variance becomes `shift`.
    """

@overload
def normalize(
    data: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    mean: _Floats | DataNode | None = None,
    stddev: _Floats | DataNode | None = None,
    batch: bool = False,
    ddof: int = 0,
    epsilon: float = 0.0,
    scale: float = 1.0,
    shift: float = 0.0,
    dtype: _DataType = ...,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def python_function(
    *inputs: DataNode | _Fixed | float,
    function: Callable[..., Any],
    num_outputs: int = 1,
    output_layouts: _Strings | None = None,
    batch_processing: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = True,
    bytes_per_sample_hint: Any = 0,
) -> Any:
    """OperatorCall a Python function with NumPy arrays.

    It is called in the main process, in a thread of its own, ahead of `Pipeline.run`; one call at a time and in the order of
    the samples, also if nobody needs what it returns. Such a pipeline cannot be serialized.

    Args:
        inputs: any dtypes.
        function: is given a sample of each input, or a list of all samples of each, and returns an array, or a list of
            arrays. If there are several outputs, it returns a tuple of those. It must not modify what it is given.
        num_outputs: how many outputs there are.
        output_layouts: one for all outputs, or a list with one for each, as far as it goes.
        batch_processing: whether the function is called once for each batch, with lists.
    """

@overload
def python_function(
    *inputs: Sequence[DataNode],
    function: Callable[..., Any],
    num_outputs: int = 1,
    output_layouts: _Strings | None = None,
    batch_processing: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = True,
    bytes_per_sample_hint: Any = 0,
) -> list[Any]:
    ...

@overload
def torch_python_function(
    *inputs: DataNode | _Fixed | float,
    function: Callable[..., Any],
    num_outputs: int = 1,
    output_layouts: _Strings | None = None,
    batch_processing: bool = True,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = True,
    bytes_per_sample_hint: Any = 0,
) -> Any:
    """OperatorCall a Python function with tensors of PyTorch; see `python_function`.

    Args:
        inputs: any dtypes.
        function: is given a list of all samples of each input, as tensors, or a sample of each, and returns a list of
            tensors, or a tensor. If there are several outputs, it returns a tuple of those. It must not modify what it is
            given.
        num_outputs: how many outputs there are.
        output_layouts: one for all outputs, or a list with one for each, as far as it goes.
        batch_processing: whether the function is called once for each batch, with lists.
    """

@overload
def torch_python_function(
    *inputs: Sequence[DataNode],
    function: Callable[..., Any],
    num_outputs: int = 1,
    output_layouts: _Strings | None = None,
    batch_processing: bool = True,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = True,
    bytes_per_sample_hint: Any = 0,
) -> list[Any]:
    ...

@overload
def resize(
    image: DataNode | _Fixed,
    /,
    *,
    size: _Floats | DataNode | None = None,
    resize_x: float | DataNode = 0.0,
    resize_y: float | DataNode = 0.0,
    resize_z: float | DataNode = 0.0,
    resize_shorter: float | DataNode = 0.0,
    resize_longer: float | DataNode = 0.0,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] = "default",
    max_size: _Floats | None = None,
    subpixel_scale: bool = True,
    roi_start: _Floats | DataNode | None = None,
    roi_end: _Floats | DataNode | None = None,
    roi_relative: bool = False,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    save_attrs: Literal[True],
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
    image_type: Any = None,
) -> list[DataNode]:
    ...

@overload
def resize(
    image: Sequence[DataNode],
    /,
    *,
    size: _Floats | DataNode | None = None,
    resize_x: float | DataNode = 0.0,
    resize_y: float | DataNode = 0.0,
    resize_z: float | DataNode = 0.0,
    resize_shorter: float | DataNode = 0.0,
    resize_longer: float | DataNode = 0.0,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] = "default",
    max_size: _Floats | None = None,
    subpixel_scale: bool = True,
    roi_start: _Floats | DataNode | None = None,
    roi_end: _Floats | DataNode | None = None,
    roi_relative: bool = False,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    save_attrs: Literal[True],
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
    image_type: Any = None,
) -> list[list[DataNode]]:
    ...

@overload
def resize(
    image: DataNode | _Fixed,
    /,
    *,
    size: _Floats | DataNode | None = None,
    resize_x: float | DataNode = 0.0,
    resize_y: float | DataNode = 0.0,
    resize_z: float | DataNode = 0.0,
    resize_shorter: float | DataNode = 0.0,
    resize_longer: float | DataNode = 0.0,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] = "default",
    max_size: _Floats | None = None,
    subpixel_scale: bool = True,
    roi_start: _Floats | DataNode | None = None,
    roi_end: _Floats | DataNode | None = None,
    roi_relative: bool = False,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    save_attrs: Literal[False] = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
    image_type: Any = None,
) -> DataNode:
    """Scale images and volumes.

    Args:
        image: any dtype. What is empty stays so.
        size: of the result, as (height, width) or (depth, height, width), or one number for all; 0: as the others and `mode`
            say; negative: mirrored.
        resize_x: the width of the result.
        resize_y: its height.
        resize_z: its depth.
        resize_shorter: its shorter side; proportions are kept.
        resize_longer: its longer side; proportions are kept.
        mode: "default": sides that are not given are scaled as the others are. "stretch": they are not scaled. "not_larger",
            "not_smaller": proportions are kept, and no side is larger, or smaller, than given.
        max_size: what no side exceeds; one for all, or one for each.
        subpixel_scale: where a side of the result is no whole number: take a little more or less of the image, so that
            proportions are exact. False: take all of it.
        roi_start: where the region begins that becomes the result, in pixels, in the order of `size`. Default: all.
        roi_end: where it ends; if that is before its start, the image is mirrored.
        roi_relative: whether the region is given in parts of the image's extents.
        interp_type: how values between pixels are made.
        min_filter: likewise, where the image shrinks.
        mag_filter: likewise, where it grows.
        antialias: where the image shrinks, filter it, so that no pixel is left out.
        dtype: FLOAT, or that of the input, which is the default.
        save_attrs: a second result says how large the image was, as (height, width) or (depth, height, width), INT32.
    """

@overload
def resize(
    image: Sequence[DataNode],
    /,
    *,
    size: _Floats | DataNode | None = None,
    resize_x: float | DataNode = 0.0,
    resize_y: float | DataNode = 0.0,
    resize_z: float | DataNode = 0.0,
    resize_shorter: float | DataNode = 0.0,
    resize_longer: float | DataNode = 0.0,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] = "default",
    max_size: _Floats | None = None,
    subpixel_scale: bool = True,
    roi_start: _Floats | DataNode | None = None,
    roi_end: _Floats | DataNode | None = None,
    roi_relative: bool = False,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    save_attrs: Literal[False] = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
    image_type: Any = None,
) -> list[DataNode]:
    ...

@overload
def random_resized_crop(
    image: DataNode | _Fixed,
    /,
    *,
    size: _Ints,
    random_area: _Floats = (0.08, 1.0),
    random_aspect_ratio: _Floats = (0.75, 1.3333333333333333),
    num_attempts: int = 10,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
) -> DataNode:
    """Cut random windows out of images, and scale them to one size.

    Args:
        image: any dtype.
        size: of the result, as (height, width); one number for both.
        random_area: the least and the largest part of the image that a window has.
        random_aspect_ratio: the least and the largest quotient of its width and its height.
        num_attempts: how often a window that does not fit is drawn again, before a middle one is taken.
        interp_type, min_filter, mag_filter, antialias, dtype: as of `resize`.
    """

@overload
def random_resized_crop(
    image: Sequence[DataNode],
    /,
    *,
    size: _Ints,
    random_area: _Floats = (0.08, 1.0),
    random_aspect_ratio: _Floats = (0.75, 1.3333333333333333),
    num_attempts: int = 10,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def per_frame(
    input: DataNode | _Fixed,
    /,
    *,
    replace: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Say that the first dimension of arguments counts the frames of sequences, by a layout that begins with F.

    Where such arguments are given to `rotate`, `warp_affine`, `gaussian_blur`, or an operator that changes colors, and
    sequences along with them, each frame gets its own value. One value is for all.

    Args:
        input: as many values as there are frames in the sequence of the same sample.
        replace: whether another first letter of their layout is replaced. Default: it is an error.
    """

@overload
def per_frame(
    input: Sequence[DataNode],
    /,
    *,
    replace: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def reshape(
    data: DataNode | _Fixed,
    shape_input: DataNode | _Constant | None = None,
    /,
    *,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    src_dims: _Ints | None = None,
    layout: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Take the elements of arrays for those of arrays of another shape, or layout.

    Args:
        data: any dtype.
        shape_input: the same as `shape`.
        shape: of the result. One extent may be negative: it becomes what is left.
        rel_shape: the extents of the result divided by those of the input. One may be negative likewise; if it is the last
            one, it may be one more than there are dimensions.
        src_dims: which dimensions of the input `rel_shape` is about, or those of the result without it; -1: a new one.
        layout: of the result. Default: that of the input, if it has as many dimensions.
    """

@overload
def reshape(
    data: Sequence[DataNode],
    shape_input: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    src_dims: _Ints | None = None,
    layout: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def reinterpret(
    data: DataNode | _Fixed,
    shape_input: DataNode | _Constant | None = None,
    /,
    *,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    src_dims: _Ints | None = None,
    layout: str | None = None,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Take the bytes of arrays for those of arrays of another type, shape or layout.

    Args:
        data: any dtype.
        shape_input: the same as `shape`.
        shape: see `reshape`; in elements of the new type. Default: that of the input, but for the last extent.
        rel_shape: see `reshape`.
        src_dims: see `reshape`.
        layout: see `reshape`.
        dtype: of the result. Default: that of the input.
    """

@overload
def reinterpret(
    data: Sequence[DataNode],
    shape_input: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    src_dims: _Ints | None = None,
    layout: str | None = None,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def squeeze(
    data: DataNode | _Fixed,
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Remove dimensions of extent 1.

    Args:
        data: any dtype.
        axes: which ones. Others are allowed where the array is empty and stays so.
        axis_names: their letters in the layout.
    """

@overload
def squeeze(
    data: Sequence[DataNode],
    /,
    *,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def expand_dims(
    data: DataNode | _Fixed,
    /,
    *,
    axes: _Ints,
    new_axis_names: str = "",
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Insert dimensions of extent 1.

    Args:
        data: any dtype.
        axes: where they are in the result.
        new_axis_names: their letters in the layout. Default: the result has no layout.
    """

@overload
def expand_dims(
    data: Sequence[DataNode],
    /,
    *,
    axes: _Ints,
    new_axis_names: str = "",
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def transpose(
    input: DataNode | _Fixed,
    /,
    *,
    perm: _Ints | None = None,
    transpose_layout: bool = True,
    output_layout: str = "",
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Put the dimensions of arrays into another order.

    Args:
        input: any dtype.
        perm: for each dimension of the result, which one of the input it is. Default: the last one first.
        transpose_layout: the letters of the layout go with their dimensions; otherwise it stays as it is.
        output_layout: the layout of the result, instead.
    """

@overload
def transpose(
    input: Sequence[DataNode],
    /,
    *,
    perm: _Ints | None = None,
    transpose_layout: bool = True,
    output_layout: str = "",
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def warp_affine(
    image: DataNode | _Fixed,
    matrix_input: DataNode | _Constant | None = None,
    /,
    *,
    matrix: _Floats | DataNode | None = None,
    inverse_map: bool = True,
    size: _Floats | DataNode | None = None,
    fill_value: float | None = None,
    interp_type: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Map images and volumes by affine transforms.

    Args:
        image: any dtype.
        matrix_input: the transform, as a 2x3 matrix of floats, or 3x4 for volumes, instead of `matrix`.
        matrix: the rows of the transform of (x, y), or (x, y, z), in pixels; the middle of the first pixel is (0.5, 0.5).
        inverse_map: whether the transform is from the result to the image; otherwise it is inverted.
        size: of the result, as (height, width) or (depth, height, width). Default: that of the image.
        fill_value: what is outside of the image. Default: its edge goes on.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or that of the input, which is the default.
    """

@overload
def warp_affine(
    image: Sequence[DataNode],
    matrix_input: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    matrix: _Floats | DataNode | None = None,
    inverse_map: bool = True,
    size: _Floats | DataNode | None = None,
    fill_value: float | None = None,
    interp_type: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def rotate(
    image: DataNode | _Fixed,
    /,
    *,
    angle: float | DataNode,
    axis: _Floats | DataNode | None = None,
    size: _Floats | DataNode | None = None,
    keep_size: bool = False,
    fill_value: float | None = None,
    interp_type: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Turn images and volumes about their middle.

    Args:
        image: any dtype.
        angle: in degrees, counter-clockwise.
        axis: for volumes, the direction (x, y, z) about which they are turned.
        size: of the result, as (height, width) or (depth, height, width). Default: such that all of the image is seen.
        keep_size: keep the size of the image, if `size` is not given.
        fill_value: what is outside of the image. Default: its edge goes on.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or that of the input, which is the default.
    """

@overload
def rotate(
    image: Sequence[DataNode],
    /,
    *,
    angle: float | DataNode,
    axis: _Floats | DataNode | None = None,
    size: _Floats | DataNode | None = None,
    keep_size: bool = False,
    fill_value: float | None = None,
    interp_type: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    dtype: _DataType | None = None,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
