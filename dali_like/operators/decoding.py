"""Decoding operators, as in ``nvidia.dali.fn.decoders``, and ``peek_image_shape``.

Operators that decode a window decode the image into a buffer of the thread, and copy the window. JPEG rows below the window
are skipped, so damage there goes unnoticed. Pixels above and beside it are decoded, because simplejpeg and OpenCV do not
expose libjpeg-turbo's partial decoding. `min_size` allows other pixels: JPEGs are then decoded at a smaller scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from dali_like.errors import ArgumentClashError, DecodeError, SampleError
from dali_like.graph.nodes import DataNode
from dali_like.graph.operator_interface import Array, OperatorCall, scratch
from dali_like.images.decode import decode_image, decode_jpeg_smaller, decoded_shape, may_be_decoded_smaller, read_header
from dali_like.images.jpeg_rows import upper_rows
from dali_like.operators._windows import (
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
    Window,
    check_slice,
    random_window,
    slice_window,
)
from dali_like.operators.axes import axes_of
from dali_like.operators.description import operator
from dali_like.operators.geometry import check_crop, crop_window
from dali_like.operators.parameters import Ints, PerSample, at_least, count, one_of_types
from dali_like.sources.readers.npy_header import NPY_HEADER_BYTES, parse_npy_header
from dali_like.types import RGB, DALIImageType

_INT64 = np.dtype(np.int64)
#: One number for both sides.
_MinSize: TypeAlias = Annotated[Ints, count(1, 2), at_least(1)]
#: Arguments for DALI's GPU decoders and its cache.
_IGNORED = {
    "affine": True,
    "device_memory_padding": 16777216,
    "device_memory_padding_jpeg2k": 0,
    "host_memory_padding": 8388608,
    "host_memory_padding_jpeg2k": 0,
    "hw_decoder_load": 0.65,
    "hybrid_huffman_threshold": 1000000,
    "jpeg_fancy_upsampling": False,
    "memory_stats": False,
    "preallocate_height_hint": 0,
    "preallocate_width_hint": 0,
    "split_stages": False,
    "use_chunk_allocator": False,
    "use_fast_idct": False,
}


@operator(
    module="decoders",
    output_layout="HWC",
    ignored={
        **_IGNORED,
        "cache_batch_copy": True,
        "cache_debug": False,
        "cache_size": 0,
        "cache_threshold": 0,
        "cache_type": "",
    },
)
def image(
    call: OperatorCall,
    data: Array,
    *,
    output_type: DALIImageType = RGB,
    adjust_orientation: bool = False,
    min_size: _MinSize | None = None,
) -> Array:
    """Decode images: JPEG, PNG, WebP, BMP and TIFF, recognized by their first bytes.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: color format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        adjust_orientation: rotate the image upright according to its EXIF orientation. The default is False, because DALI's
            ``decoders.image`` ignores the orientation; this argument is from DALI's ``experimental.decoders.image``.
        min_size: minimum (height, width) of the result. Allows decoding JPEGs at half, a quarter or an eighth of their size,
            which is faster for large photographs that are resized later. The pixels differ from those of ``resize``. Not in
            DALI.

    With ``device="mixed"`` the images are wanted on the GPU. They are decoded there if nvImageCodec is installed, and if no
    operator takes them, as operators run on the CPU. Images that nvImageCodec does not support are decoded on the CPU and
    copied, as are all images if the output type is neither RGB nor GRAY. Pixels may differ by a few units.

    Returns:
        Images of shape (height, width, channels), uint8, layout "HWC".

    For a file that cannot be decoded, `Pipeline.run` raises a `dali_like.errors.DecodeError` that names the sample.
    """
    if min_size is not None and not adjust_orientation:
        height, width, _ = _shape_of(data, output_type)
        smaller = _decode_smaller(call, data, output_type, Window(0, 0, height, width), min_size)
        if smaller is not None:
            return call.part(smaller[1])
    return decode_image(
        data, output_type, adjust_orientation, lambda shape: call.empty(shape, np.uint8), call.image_limit_bytes
    )


def _decode_smaller(
    call: OperatorCall, data: Array, output_type: DALIImageType, window: Window, min_size: Ints
) -> tuple[int, Array] | None:
    """Return a JPEG scaled down as far as a window of it stays large enough, and the divisor; None: full size is needed.

    Rows below the window may be missing.
    """
    least = min_size if len(min_size) == 2 else min_size * 2
    for factor in (8, 4, 2):
        if window.height // factor >= least[0] and window.width // factor >= least[1]:
            data = upper_rows(data, window.top + window.height + factor)
            if not may_be_decoded_smaller(data, factor, call.image_limit_bytes):
                return None
            height, width, channels = _shape_of(data, output_type)
            image = _image_memory(call, (-(-height // factor), -(-width // factor), channels))
            return (factor, image) if decode_jpeg_smaller(data, output_type, factor, image) else None
    return None


def _image_memory(call: OperatorCall, shape: tuple[int, ...]) -> Array:
    """Return memory for an image of which only a window is the result."""
    return scratch("decoded", shape, np.uint8) if call.is_output else call.empty(shape, np.uint8)


def _shape_of(data: Array, output_type: DALIImageType) -> tuple[int, int, int]:
    shape = decoded_shape(data, output_type, adjust_orientation=False)
    if shape is None:
        decode_image(data, output_type, adjust_orientation=False)  # raises the reason
    assert shape is not None
    return shape


def _decode_part(
    call: OperatorCall,
    data: Array,
    output_type: DALIImageType,
    whole: Sequence[int],
    start: Sequence[int],
    shape: Sequence[int],
) -> Array:
    """Return the window of an image from `start` on, given the shape of the whole image."""
    if (*start, *shape) == (0, 0, *whole[:2]):
        return decode_image(data, output_type, False, lambda shape: call.empty(shape, np.uint8), call.image_limit_bytes)
    (top, left), (height, width) = start, shape
    if not (0 <= top <= top + height <= whole[0] and 0 <= left <= left + width <= whole[1]):
        raise SampleError(
            f"the window of {height}x{width} from row {top} and column {left} on is not inside the image of "
            f"{whole[0]}x{whole[1]}"
        )
    upper = upper_rows(data, top + height)
    image = decode_image(upper, output_type, False, lambda shape: _image_memory(call, shape), call.image_limit_bytes)
    return call.part(image[top : top + height, left : left + width])


@operator(module="decoders", output_layout="HWC", check=check_crop, ignored=_IGNORED)
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
) -> Array:
    """Decode windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        crop, crop_w, crop_h, crop_pos_x, crop_pos_y, rounding: size and position of the window; see `dali_like.fn.crop`.
        crop_d, crop_pos_z: accepted for DALI compatibility.
        output_type: color format of the result; see `image`.
    """
    height, width, _ = whole = _shape_of(data, output_type)
    sizes, positions = {"W": crop_w, "H": crop_h}, {"W": crop_pos_x, "H": crop_pos_y}
    window = crop_window("HW", (height, width), crop, sizes, positions, rounding)
    start, shape = zip(window["H"], window["W"], strict=True)
    return _decode_part(call, data, output_type, whole, start, shape)


def _check_image_slice(given: Mapping[str, Any]) -> None:
    check_slice(given)
    axes, names = given.get("axes"), given.get("axis_names")
    is_default = axes is None and names is None
    if not is_default and not isinstance(axes, DataNode) and max(axes_of("HWC", axes, names, 3)) > 1:
        raise ArgumentClashError("only rows and columns of an image can be cut; it has all channels")


@operator(module="decoders", output_layout="HWC", check=_check_image_slice, ignored=_IGNORED)
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
) -> Array:
    """Decode windows of images, given by start and end.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        anchor, shape_input: start and size of the windows; see `dali_like.fn.slice`.
        axes, axis_names, start, rel_start, end, rel_end, shape, rel_shape: see `dali_like.fn.slice`.
        normalized_anchor, normalized_shape: see `dali_like.fn.slice`.
        output_type: color format of the result; see `image`.
    """
    extents = _shape_of(data, output_type)
    cut_axes = axes_of("HWC", axes, "WH" if axes is None and axis_names is None else axis_names, 3)
    named = {
        "start": start,
        "rel_start": rel_start,
        "end": end,
        "rel_end": rel_end,
        "shape": shape,
        "rel_shape": rel_shape,
    }
    sides = [extents[axis] for axis in cut_axes]
    spans = slice_window(sides, anchor, shape_input, (normalized_anchor, normalized_shape), named)
    begins, ends = [0, 0], list(extents[:2])
    for axis, (begin, last) in zip(cut_axes, spans, strict=True):
        if axis > 1:
            raise SampleError("only rows and columns of an image can be cut; it has all channels")
        begins[axis], ends[axis] = begin, last
    return _decode_part(call, data, output_type, extents, begins, [ends[0] - begins[0], ends[1] - begins[1]])


@operator(module="decoders", output_layout="HWC", random=True, ignored=_IGNORED)
def image_random_crop(
    call: OperatorCall,
    data: Array,
    *,
    random_area: Range = (0.08, 1.0),
    random_aspect_ratio: Range = (3 / 4, 4 / 3),
    num_attempts: Attempts = 10,
    output_type: DALIImageType = RGB,
    min_size: _MinSize | None = None,
) -> Array:
    """Decode random windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.
        output_type: color format of the result; see `image`.
        min_size: minimum (height, width) of the window. Allows decoding JPEGs at half, a quarter or an eighth of their size;
            see `image`. The window covers the same part of the image. Not in DALI.
    """
    height, width, _ = whole = _shape_of(data, output_type)
    window = random_window(call.rng(), height, width, random_area, random_aspect_ratio, num_attempts)
    if min_size is not None and (smaller := _decode_smaller(call, data, output_type, window, min_size)) is not None:
        factor, image = smaller
        top, left, rows, columns = (round(extent / factor) for extent in window)
        return call.part(image[top : top + rows, left : left + columns])
    return _decode_part(call, data, output_type, whole, window[:2], window[2:])


@operator()
def peek_image_shape(
    call: OperatorCall,
    data: Array,
    *,
    dtype: Annotated[np.dtype[Any], one_of_types("int32 uint32 int64 uint64 float32 float64")] = _INT64,
) -> Array:
    """Return the shapes of encoded images. Reads only their headers.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        dtype: data type of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.

    Returns:
        (height, width, channels), as `image` with ANY_DATA would decode it.
    """
    header = read_header(data)
    if header is None:
        decode_image(data)  # raises the reason
        raise DecodeError("the header of the image is damaged")
    return np.array([header.height, header.width, 1 if header.channels == 2 else header.channels], dtype)


@operator(module="decoders", name="numpy")
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
