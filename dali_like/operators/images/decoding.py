"""Decoding operators, as in ``nvidia.dali.fn.decoders``, and ``peek_image_shape``."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np

from dali_like.errors import DecodeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.images.jpeg_windows import JpegWindow
from dali_like.operators.geometry._windows import (
    Attempts,
    Axes,
    AxisNames,
    Extents,
    Parts,
    Position,
    Range,
    RelativeExtents,
    Rounding,
    Side,
    Sides,
    random_window,
)
from dali_like.operators.geometry.geometry import check_crop, crop_window
from dali_like.operators.images._image_parts import (
    CACHE,
    IGNORED,
    ImageForm,
    ImagePart,
    check_image_slice,
    image_slice_part,
)
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import Ints, PerSample, at_least, count, one_of_types
from dali_like.sources.readers.npy_header import NPY_HEADER_BYTES, parse_npy_header
from dali_like.types import ANY_DATA, RGB, DALIImageType

_INT64 = np.dtype(np.int64)
ShapeType: TypeAlias = Annotated[np.dtype[Any], one_of_types("int32 uint32 int64 uint64 float32 float64")]
SampleType: TypeAlias = Annotated[np.dtype[Any], one_of_types("uint8 int8 uint16 int16 uint32 int32 float32")]
#: One number for both sides.
_MinSize: TypeAlias = Annotated[Ints, count(1, 2), at_least(1)]


@operator(
    module="decoders",
    output_layout="HWC",
    ignored={**IGNORED, **CACHE},
    kernel="images.decoding_kernels.image",
    kernel_for_one=False,
    kernel_for_large=True,
)
def image(
    call: OperatorCall,
    data: Array,
    *,
    output_type: DALIImageType = RGB,
    dtype: SampleType | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
    min_size: _MinSize | None = None,
) -> Array:
    """Decode images: JPEG, JPEG 2000, PNG, WebP, BMP, PNM and TIFF, recognized by their first bytes.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: color format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        dtype: data type of the result, to whose range samples are scaled; see `dali_like.fn.experimental.decoders.image`.
            Default: UINT8, with the upper eight bits of samples of sixteen, as in DALI 1.53. Of DALI 2.
        use_fast_idct: decode JPEGs with a faster transform, which changes pixels by a few units.
        adjust_orientation: rotate the image upright according to its EXIF orientation. The default is False, because
            ``decoders.image`` of DALI 1.53 ignores the orientation; in DALI 2 it is True.
        min_size: minimum (height, width) of the result. Allows decoding JPEGs at half, a quarter or an eighth of their size,
            which is faster for large photographs that are resized later. The pixels differ from those of ``resize``. Not in
            DALI.

    With ``device="mixed"`` the images are wanted on the GPU. They are decoded there if nvImageCodec is installed, and if no
    operator takes them, as operators run on the CPU. Images that nvImageCodec does not support are decoded on the CPU and
    copied, as are all images if the output type is neither RGB nor GRAY. Pixels may differ by a few units.

    Returns:
        Images of shape (height, width, channels) and layout "HWC".

    For a file that cannot be decoded, `Pipeline.run` raises a `dali_like.errors.DecodeError` that names the sample.
    """
    form = ImageForm(output_type, adjust_orientation, dtype, use_fast_idct)
    if min_size is not None:
        height, width, _ = form.shape_of(data)
        factor = _divisor(height, width, min_size)
        whole = JpegWindow(0, 0, -(-height // factor), -(-width // factor), factor)
        if factor > 1 and (smaller := form.decode_smaller(call, data, whole)) is not None:
            return smaller
    return form.decode(call, data)


def _divisor(height: int, width: int, min_size: Ints) -> int:
    """Return how far a window may be scaled down: 8, 4, 2 or 1."""
    least = min_size if len(min_size) == 2 else min_size * 2
    return next((factor for factor in (8, 4, 2) if height // factor >= least[0] and width // factor >= least[1]), 1)


@operator(
    module="decoders",
    output_layout="HWC",
    check=check_crop,
    ignored=IGNORED,
    kernel="images.decoding_kernels.image_crop",
    kernel_for_one=False,
    kernel_for_large=True,
)
def image_crop(
    call: OperatorCall,
    data: Array,
    *,
    crop: PerSample[Sides] | None = None,
    crop_w: PerSample[Side] = 0.0,
    crop_h: PerSample[Side] = 0.0,
    crop_d: PerSample[Side] = 0.0,
    crop_pos_x: PerSample[Position] = 0.5,
    crop_pos_y: PerSample[Position] = 0.5,
    crop_pos_z: PerSample[Position] = 0.5,
    rounding: Rounding = "round",
    output_type: DALIImageType = RGB,
    dtype: SampleType | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
) -> Array:
    """Decode windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        crop, crop_w, crop_h, crop_pos_x, crop_pos_y, rounding: size and position of the window; see `dali_like.fn.crop`.
        crop_d, crop_pos_z: accepted for DALI compatibility.
        output_type: color format of the result; see `image`.
        dtype, use_fast_idct, adjust_orientation: see `image`. The window is one of the image turned upright.
    """
    decoded = ImageForm(output_type, adjust_orientation, dtype, use_fast_idct)
    height, width, _ = whole = decoded.shape_of(data)
    sizes, positions = {"W": crop_w, "H": crop_h}, {"W": crop_pos_x, "H": crop_pos_y}
    window = crop_window("HW", (height, width), crop, sizes, positions, rounding)
    return decoded.decode_part(call, data, whole, ImagePart(*zip(window["H"], window["W"], strict=True)))


@operator(
    module="decoders",
    output_layout="HWC",
    check=check_image_slice,
    ignored=IGNORED,
    kernel="images.decoding_kernels.image_slice",
    kernel_for_one=False,
    kernel_for_large=True,
)
def image_slice(
    call: OperatorCall,
    data: Array,
    anchor: Array | None = None,
    shape_input: Array | None = None,
    /,
    *,
    axes: PerSample[Axes] | None = None,
    axis_names: AxisNames | None = None,
    start: PerSample[Ints] | None = None,
    rel_start: PerSample[Parts] | None = None,
    end: PerSample[Ints] | None = None,
    rel_end: PerSample[Parts] | None = None,
    shape: PerSample[Extents] | None = None,
    rel_shape: PerSample[RelativeExtents] | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    output_type: DALIImageType = RGB,
    dtype: SampleType | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
) -> Array:
    """Decode windows of images, given by start and end.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        anchor, shape_input: start and size of the windows; see `dali_like.fn.slice`.
        axes, axis_names, start, rel_start, end, rel_end, shape, rel_shape: see `dali_like.fn.slice`.
        normalized_anchor, normalized_shape: see `dali_like.fn.slice`.
        output_type: color format of the result; see `image`.
        dtype, use_fast_idct, adjust_orientation: see `image`. The window is one of the image turned upright.
    """
    named = {
        "start": start,
        "rel_start": rel_start,
        "end": end,
        "rel_end": rel_end,
        "shape": shape,
        "rel_shape": rel_shape,
    }
    decoded = ImageForm(output_type, adjust_orientation, dtype, use_fast_idct)
    whole = decoded.shape_of(data)
    part = image_slice_part(whole, anchor, shape_input, (normalized_anchor, normalized_shape), axes, axis_names, named)
    return decoded.decode_part(call, data, whole, part)


@operator(
    module="decoders",
    output_layout="HWC",
    random=True,
    ignored=IGNORED,
    kernel="images.decoding_kernels.image_random_crop",
    kernel_for_one=False,
    kernel_for_large=True,
)
def image_random_crop(
    call: OperatorCall,
    data: Array,
    *,
    random_area: Range = (0.08, 1.0),
    random_aspect_ratio: Range = (3 / 4, 4 / 3),
    num_attempts: Attempts = 10,
    output_type: DALIImageType = RGB,
    dtype: SampleType | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
    min_size: _MinSize | None = None,
) -> Array:
    """Decode random windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.
        output_type: color format of the result; see `image`.
        dtype, use_fast_idct, adjust_orientation: see `image`. The window is one of the image turned upright.
        min_size: minimum (height, width) of the window. Allows decoding JPEGs at half, a quarter or an eighth of their size;
            see `image`. The window covers the same part of the image. Not in DALI.
    """
    decoded = ImageForm(output_type, adjust_orientation, dtype, use_fast_idct)
    height, width, _ = whole = decoded.shape_of(data)
    window = random_window(call.rng(), height, width, random_area, random_aspect_ratio, num_attempts)
    if min_size is not None and (factor := _divisor(window.height, window.width, min_size)) > 1:
        scaled = JpegWindow._make([*(round(extent / factor) for extent in window), factor])
        if (smaller := decoded.decode_smaller(call, data, scaled)) is not None:
            return smaller
    return decoded.decode_part(call, data, whole, ImagePart(window[:2], window[2:]))


@operator(
    kernel="images.decoding_kernels.peek_image_shape",
    kernel_is_compiled=False,
    kernel_for_stacks=False,
    kernel_for_large=True,
)
def peek_image_shape(
    call: OperatorCall,
    data: Array,
    *,
    image_type: DALIImageType = ANY_DATA,
    dtype: ShapeType = _INT64,
    adjust_orientation: bool = False,
) -> Array:
    """Return the shapes that encoded images have after decoding. Reads only their headers.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        image_type: color format, as `output_type` of the decoder. The default is that of DALI 1.53; in DALI 2 it is RGB.
        dtype: data type of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.
        adjust_orientation: whether the decoder turns images upright. The default is that of DALI 1.53; in DALI 2 it is True.

    Returns:
        (height, width, channels).
    """
    return np.array(ImageForm(image_type, adjust_orientation).shape_of(data), dtype)


@operator(
    module="decoders",
    name="numpy",
    kernel="images.decoding_kernels.decode_numpy",
    kernel_is_compiled=False,
    kernel_for_stacks=False,
    kernel_for_large=True,
)
def decode_numpy(call: OperatorCall, data: Array, *, dtype: np.dtype[Any] | None = None) -> Array:
    """Decode files written by ``numpy.save``.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        dtype: data type of the result. Default: that of the file.
    """
    try:
        header = parse_npy_header(data[:NPY_HEADER_BYTES].tobytes())
    except ValueError as error:
        raise DecodeError(f"this is not a numeric array written by numpy.save: {error}") from None
    elements, stored = data[header.offset :], header.dtype
    if elements.size < header.nbytes:
        raise DecodeError(
            f"the file is truncated: shape {header.shape} of {stored} needs {header.nbytes} bytes, not {elements.size}"
        )
    array = elements[: header.nbytes].view(stored).reshape(header.shape, order="F" if header.fortran_order else "C")
    out = call.empty(header.shape, stored.newbyteorder("=") if dtype is None else dtype)
    np.copyto(out, array, casting="unsafe")
    return out
