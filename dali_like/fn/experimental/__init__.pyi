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
def audio_resample(
    signal: DataNode | _Constant,
    /,
    *,
    in_rate: float | DataNode | None = None,
    out_rate: float | DataNode | None = None,
    scale: float | DataNode | None = None,
    out_length: int | DataNode | None = None,
    quality: float = 50.0,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
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

@overload
def audio_resample(
    signal: _Sequence[DataNode],
    /,
    *,
    in_rate: float | DataNode | None = None,
    out_rate: float | DataNode | None = None,
    scale: float | DataNode | None = None,
    out_length: int | DataNode | None = None,
    quality: float = 50.0,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

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
def warp_perspective(
    image: DataNode | _Constant,
    matrix_input: DataNode | _Constant | None = None,
    /,
    *,
    matrix: _Floats | DataNode | None = None,
    inverse_map: bool = True,
    size: _Floats | DataNode | None = None,
    pixel_origin: Literal["corner", "center"] = "corner",
    border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = "constant",
    fill_value: _Floats = (0.0,),
    interp_type: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
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

@overload
def warp_perspective(
    image: _Sequence[DataNode],
    matrix_input: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    matrix: _Floats | DataNode | None = None,
    inverse_map: bool = True,
    size: _Floats | DataNode | None = None,
    pixel_origin: Literal["corner", "center"] = "corner",
    border_mode: Literal["constant", "replicate", "reflect", "reflect_101", "wrap"] = "constant",
    fill_value: _Floats = (0.0,),
    interp_type: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def remap(
    image: DataNode | _Constant,
    mapx: DataNode | _Constant,
    mapy: DataNode | _Constant,
    /,
    *,
    interp: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    pixel_origin: Literal["corner", "center"] = "corner",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Take each pixel of the result from a position in the image; 0 outside of it.

    Args:
        image: UINT8, UINT16, INT16 or FLOAT, with 1 or 3 channels.
        mapx, mapy: positions for each pixel of the result, FLOAT, in the layout HW, or FHW for one of each frame.
        interp: INTERP_NN, INTERP_LINEAR, INTERP_CUBIC or INTERP_LANCZOS3, which is OpenCV's with 8 pixels.
        pixel_origin: position of the first pixel's center: (0.5, 0.5) for "corner", (0, 0) for "center".
    """

@overload
def remap(
    image: _Sequence[DataNode],
    mapx: _Sequence[DataNode] | _Constant,
    mapy: _Sequence[DataNode] | _Constant,
    /,
    *,
    interp: DALIInterpType = DALIInterpType.INTERP_LINEAR,
    pixel_origin: Literal["corner", "center"] = "corner",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def peek_image_shape(
    data: DataNode | _Constant,
    /,
    *,
    image_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Return the shapes that encoded images have after decoding. Reads only their headers.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        image_type: color format, as `output_type` of the decoder.
        dtype: data type of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.
        adjust_orientation: whether the decoder turns images upright.

    Returns:
        (height, width, channels).
    """

@overload
def peek_image_shape(
    data: _Sequence[DataNode],
    /,
    *,
    image_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
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
def inflate(
    input: DataNode | _Constant,
    /,
    *,
    shape: _Ints | DataNode,
    dtype: _DataType = ...,
    chunk_sizes: _Ints | DataNode | None = None,
    chunk_offsets: _Ints | DataNode | None = None,
    algorithm: Literal["LZ4"] = "LZ4",
    layout: str = "",
    sequence_axis_name: str = "F",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Decompress arrays that were compressed with LZ4, as a whole or in chunks. Requires the package lz4.

    Args:
        input: one-dimensional uint8 arrays of compressed data: LZ4 blocks, or frames, which DALI does not accept.
        shape: shape of the decompressed array, or of each chunk of it.
        dtype: data type of the decompressed array.
        chunk_sizes: sizes of the chunks, in bytes. Default: each chunk ends where the next one begins.
        chunk_offsets: positions of the chunks, in bytes. Default: each chunk begins where the one before ends.
        algorithm: the method of compression.
        layout: layout of the decompressed array, or of each chunk of it.
        sequence_axis_name: letter of the dimension that counts the chunks; used if there is a `layout`.

    Returns:
        The decompressed array. With `chunk_sizes` or `chunk_offsets` its first dimension counts the chunks.
    """

@overload
def inflate(
    input: _Sequence[DataNode],
    /,
    *,
    shape: _Ints | DataNode,
    dtype: _DataType = ...,
    chunk_sizes: _Ints | DataNode | None = None,
    chunk_offsets: _Ints | DataNode | None = None,
    algorithm: Literal["LZ4"] = "LZ4",
    layout: str = "",
    sequence_axis_name: str = "F",
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

@overload
def numba_function(
    *inputs: DataNode | _Fixed | float,
    run_fn: Callable[..., Any],
    out_types: Any,
    in_types: Any,
    outs_ndim: Any,
    ins_ndim: Any,
    setup_fn: Callable[..., Any] | None = None,
    batch_processing: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = True,
    bytes_per_sample_hint: Any = 0,
    blocks: Any = None,
    threads_per_block: Any = None,
) -> Any:
    """Call a function that Numba compiles at its first call. Requires the package numba.

    Workers and threads call it, unless it processes batches. It releases the GIL.

    Args:
        inputs: arrays of `in_types` with `ins_ndim` dimensions.
        run_fn: function that Numba can compile in nopython mode. It receives the outputs, then the inputs, and writes into
            the outputs. These are arrays; with `batch_processing`, lists with an array for each sample.
        out_types: data types of the outputs.
        in_types: data types of the inputs.
        outs_ndim: number of dimensions of each output.
        ins_ndim: number of dimensions of each input.
        setup_fn: function that defines the shapes of the outputs. It receives ``outs`` and ``ins``, and writes
            ``outs[output][sample][dimension]``; ``ins`` has the shapes of the inputs. Default: each output has the shape of
            the input with the same number.
        batch_processing: whether `run_fn` is called once per batch, in the main process.
    """

@overload
def numba_function(
    *inputs: _Sequence[DataNode],
    run_fn: Callable[..., Any],
    out_types: Any,
    in_types: Any,
    outs_ndim: Any,
    ins_ndim: Any,
    setup_fn: Callable[..., Any] | None = None,
    batch_processing: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = True,
    bytes_per_sample_hint: Any = 0,
    blocks: Any = None,
    threads_per_block: Any = None,
) -> list[Any]:
    ...

@overload
def resize(
    image: DataNode | _Constant,
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
    device: str | None = None,
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
    image: _Sequence[DataNode],
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
    device: str | None = None,
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
    image: DataNode | _Constant,
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
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
    image_type: Any = None,
) -> DataNode:
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

@overload
def resize(
    image: _Sequence[DataNode],
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
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
    image_type: Any = None,
) -> list[DataNode]:
    ...

@overload
def tensor_resize(
    data: DataNode | _Constant,
    /,
    *,
    sizes: _Floats | DataNode | None = None,
    scales: _Floats | DataNode | None = None,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] = "default",
    max_size: _Floats | None = None,
    size_rounding: Literal["round", "truncate", "ceil"] = "round",
    subpixel_scale: bool = True,
    alignment: _Floats | DataNode = (0.5,),
    roi_start: _Floats | DataNode | None = None,
    roi_end: _Floats | DataNode | None = None,
    roi_relative: bool = False,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
) -> DataNode:
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

@overload
def tensor_resize(
    data: _Sequence[DataNode],
    /,
    *,
    sizes: _Floats | DataNode | None = None,
    scales: _Floats | DataNode | None = None,
    axes: _Ints | None = None,
    axis_names: str | None = None,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] = "default",
    max_size: _Floats | None = None,
    size_rounding: Literal["round", "truncate", "ceil"] = "round",
    subpixel_scale: bool = True,
    alignment: _Floats | DataNode = (0.5,),
    roi_start: _Floats | DataNode | None = None,
    roi_end: _Floats | DataNode | None = None,
    roi_relative: bool = False,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    minibatch_size: Any = 32,
    temp_buffer_hint: Any = 0,
) -> list[DataNode]:
    ...
