"""Image decoders of any depth, as in ``nvidia.dali.fn.experimental.decoders``, and ``experimental.peek_image_shape``."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry.geometry import check_crop
from dali_like.operators.images import decoding
from dali_like.operators.images._image_parts import CACHE, IGNORED, ImageForm, check_image_slice
from dali_like.operators.images.decoding import SampleType, ShapeType
from dali_like.operators.machinery.description import operator, takes_arguments_of
from dali_like.types import RGB, DALIImageType

_UINT8 = np.dtype(np.uint8)
_INT64 = np.dtype(np.int64)
_IGNORED = {**IGNORED, "hw_decoder_load": 0.9}


@operator(
    module="experimental.decoders",
    output_layout="HWC",
    ignored={**_IGNORED, **CACHE},
    kernel="images.decoding_kernels.image_of_any_depth",
    kernel_for_one=False,
    kernel_for_large=True,
)
def image(
    call: OperatorCall,
    data: Array,
    *,
    output_type: DALIImageType = RGB,
    dtype: SampleType = _UINT8,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
) -> Array:
    """Decode images: JPEG, JPEG 2000, PNG, WebP, BMP, PNM and TIFF, of eight or sixteen bits or floating-point samples.

    A TIFF with a compression that OpenCV lacks, such as Zstandard, requires the package imagecodecs.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: color format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        dtype: data type of the result: UINT8, INT8, UINT16, INT16, UINT32, INT32 or FLOAT. Samples are scaled from the range
            of the file to that of this type: white is 255 as UINT8, 65535 as UINT16, and 1.0 as FLOAT.
        adjust_orientation: rotate the image upright according to its EXIF orientation.
        use_fast_idct: decode JPEGs with a faster transform, which changes pixels by a few units.

    With ``device="mixed"`` images of dtype UINT8 are decoded on the GPU, as those of `dali_like.fn.decoders.image`.

    Returns:
        Images of shape (height, width, channels) and layout "HWC".
    """
    return ImageForm(output_type, adjust_orientation, dtype, use_fast_idct).decode(call, data)


@operator(
    module="experimental.decoders",
    output_layout="HWC",
    check=check_crop,
    ignored=_IGNORED,
    kernel="images.decoding_kernels.image_crop_of_any_depth",
    kernel_for_one=False,
    kernel_for_large=True,
)
@takes_arguments_of(decoding.image_crop)
def image_crop(
    call: OperatorCall, data: Array, *, dtype: SampleType = _UINT8, adjust_orientation: bool = True, **others: Any
) -> Array:
    """Decode windows of images of any depth.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        crop, crop_w, crop_h, crop_pos_x, crop_pos_y, rounding: size and position of the window; see `dali_like.fn.crop`. The
            window is one of the image turned upright.
        crop_d, crop_pos_z: accepted for DALI compatibility.
        output_type, dtype, adjust_orientation, use_fast_idct: see `image`.
    """
    form = {"dtype": dtype, "adjust_orientation": adjust_orientation}
    return cast(Array, decoding.image_crop.function(call, data, **form, **others))


@operator(
    module="experimental.decoders",
    output_layout="HWC",
    check=check_image_slice,
    ignored=_IGNORED,
    kernel="images.decoding_kernels.image_slice_of_any_depth",
    kernel_for_one=False,
    kernel_for_large=True,
)
@takes_arguments_of(decoding.image_slice)
def image_slice(
    call: OperatorCall,
    data: Array,
    anchor: Array | None = None,
    shape_input: Array | None = None,
    /,
    *,
    dtype: SampleType = _UINT8,
    adjust_orientation: bool = True,
    **others: Any,
) -> Array:
    """Decode windows of images of any depth, given by start and end.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        anchor, shape_input: start and size of the windows; see `dali_like.fn.slice`.
        axes, axis_names, start, rel_start, end, rel_end, shape, rel_shape: see `dali_like.fn.slice`. The window is one of
            the image turned upright.
        normalized_anchor, normalized_shape: see `dali_like.fn.slice`.
        output_type, dtype, adjust_orientation, use_fast_idct: see `image`.
    """
    form = {"dtype": dtype, "adjust_orientation": adjust_orientation}
    return cast(Array, decoding.image_slice.function(call, data, anchor, shape_input, **form, **others))


@operator(
    module="experimental.decoders",
    output_layout="HWC",
    random=True,
    ignored=_IGNORED,
    kernel="images.decoding_kernels.image_random_crop_of_any_depth",
    kernel_for_one=False,
    kernel_for_large=True,
)
@takes_arguments_of(decoding.image_random_crop, without={"min_size"})
def image_random_crop(
    call: OperatorCall, data: Array, *, dtype: SampleType = _UINT8, adjust_orientation: bool = True, **others: Any
) -> Array:
    """Decode random windows of images of any depth.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.
        output_type, dtype, adjust_orientation, use_fast_idct: see `image`.
    """
    form = {"dtype": dtype, "adjust_orientation": adjust_orientation}
    return cast(Array, decoding.image_random_crop.function(call, data, **form, **others))


@operator(
    module="experimental",
    kernel="images.decoding_kernels.peek_shape_upright",
    kernel_is_compiled=False,
    kernel_for_stacks=False,
    kernel_for_large=True,
)
def peek_image_shape(
    call: OperatorCall,
    data: Array,
    *,
    image_type: DALIImageType = RGB,
    dtype: ShapeType = _INT64,
    adjust_orientation: bool = True,
) -> Array:
    """Return the shapes that encoded images have after decoding. Reads only their headers.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        image_type: color format, as `output_type` of the decoder.
        dtype: data type of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.
        adjust_orientation: whether the decoder turns images upright.

    Returns:
        (height, width, channels).
    """
    return np.array(ImageForm(image_type, adjust_orientation).shape_of(data), dtype)
