"""Decoding of whole images and of windows, for the operators of ``fn.decoders`` and ``fn.experimental.decoders``.

A window is decoded with the image into a buffer of the thread, and copied. JPEG rows below the window are skipped, so damage
there goes unnoticed. dali-like-kernels and TurboJPEG 3 skip the pixels above and beside it as well; simplejpeg and OpenCV
decode them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dali_like.errors import ArgumentClashError, SampleError
from dali_like.graph.language.nodes import DataNode
from dali_like.graph.language.operator_interface import Array, OperatorCall, scratch
from dali_like.images.decode import decode_image, decode_jpeg_smaller, decoded_shape, may_be_decoded_smaller, read_header
from dali_like.images.jpeg_rows import upper_rows
from dali_like.images.jpeg_windows import JpegWindow, decode_jpeg_window
from dali_like.operators.geometry._windows import check_slice, slice_window
from dali_like.operators.machinery.axes import axes_of
from dali_like.types import DALIImageType

#: Arguments for DALI's GPU decoders.
IGNORED = {
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
}
#: Arguments for the cache of DALI's GPU decoders.
CACHE = {
    "cache_batch_copy": True,
    "cache_debug": False,
    "cache_size": 0,
    "cache_threshold": 0,
    "cache_type": "",
}


class ImagePart(NamedTuple):
    """A window of an image: the first row and column, and the numbers of rows and columns."""

    start: Sequence[int]
    shape: Sequence[int]


@dataclass(frozen=True)
class ImageForm:
    """The form of decoded images.

    Attributes:
        output_type: color format.
        adjust_orientation: whether to turn images upright.
        dtype: data type, to whose range samples are scaled; None: the upper eight bits of samples.
        fast_idct: whether to decode JPEGs less accurately.
    """

    output_type: DALIImageType
    adjust_orientation: bool = False
    dtype: np.dtype[Any] | None = None
    fast_idct: bool = False

    def shape_of(self, data: Array) -> tuple[int, int, int]:
        """Return the shape of an image from its header.

        Raises:
            DecodeError: this is not an image.
        """
        shape = decoded_shape(data, self.output_type, self.adjust_orientation)
        if shape is None:
            decode_image(data, self.output_type, self.adjust_orientation)  # raises the reason
        assert shape is not None
        return shape

    def decode(self, call: OperatorCall, data: Array) -> Array:
        """Decode an image, into the memory for the result."""
        return self._decode(call, data, lambda shape: call.empty(shape, self._dtype))

    def decode_part(self, call: OperatorCall, data: Array, whole: Sequence[int], part: ImagePart) -> Array:
        """Decode a window of an image.

        Args:
            data: the file.
            whole: the shape of the image.
            part: the window.

        Raises:
            SampleError: the window is not inside the image.
        """
        (top, left), (height, width) = part
        if (top, left, height, width) == (0, 0, *whole[:2]):
            return self.decode(call, data)
        if not (0 <= top <= top + height <= whole[0] and 0 <= left <= left + width <= whole[1]):
            raise SampleError(
                f"the window of {height}x{width} from row {top} and column {left} on is not inside the image of "
                f"{whole[0]}x{whole[1]}"
            )
        if not self.adjust_orientation or _is_upright(data):
            if (window := self._decode_window(call, data, JpegWindow(top, left, height, width))) is not None:
                return window
            data = upper_rows(data, top + height)
        image = self._decode(call, data, lambda shape: memory_for(call, shape, self._dtype))
        return call.part(image[top : top + height, left : left + width])

    def decode_smaller(self, call: OperatorCall, data: Array, window: JpegWindow) -> Array | None:
        """Decode a window of a JPEG at a half, a quarter or an eighth of its size, in stored orientation.

        Returns:
            The window; None: the image cannot be decoded like this.
        """
        if self.dtype is not None or (self.adjust_orientation and not _is_upright(data)):
            return None
        if (pixels := self._decode_window(call, data, window)) is not None:
            return pixels
        top, left, rows, columns, factor = window
        data = upper_rows(data, (top + rows + 1) * factor)
        if not may_be_decoded_smaller(data, factor, call.image_limit_bytes):
            return None
        height, width, channels = self.shape_of(data)
        image = memory_for(call, (-(-height // factor), -(-width // factor), channels), np.uint8)
        decoded = decode_jpeg_smaller(data, self.output_type, factor, image)
        return call.part(image[top : top + rows, left : left + columns]) if decoded else None

    def _decode_window(self, call: OperatorCall, data: Array, window: JpegWindow) -> Array | None:
        if self.dtype is not None:
            return None
        pixels = decode_jpeg_window(
            data,
            self.output_type,
            window,
            lambda shape: memory_for(call, shape, np.uint8),
            call.image_limit_bytes,
            self.fast_idct,
        )
        return None if pixels is None else call.part(pixels)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8) if self.dtype is None else self.dtype

    def _decode(self, call: OperatorCall, data: Array, out: Any) -> Array:
        return decode_image(
            data, self.output_type, self.adjust_orientation, out, call.image_limit_bytes, self.dtype, self.fast_idct
        )


def _is_upright(data: Array) -> bool:
    header = read_header(data)
    return header is not None and header.orientation == 1


def memory_for(call: OperatorCall, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return memory for an image of which only a window is the result."""
    return scratch("decoded", shape, dtype) if call.is_output else call.empty(shape, dtype)


def check_image_slice(given: Mapping[str, Any]) -> None:
    """Check the arguments that select a window of an image by start and end.

    Raises:
        ArgumentError: they contradict each other, or cut channels.
    """
    check_slice(given)
    axes, names = given.get("axes"), given.get("axis_names")
    is_default = axes is None and names is None
    if not is_default and not isinstance(axes, DataNode) and max(axes_of("HWC", axes, names, 3)) > 1:
        raise ArgumentClashError("only rows and columns of an image can be cut; it has all channels")


def image_slice_part(
    whole: Sequence[int],
    anchor: Array | None,
    shape: Array | None,
    normalized: tuple[bool, bool],
    axes: tuple[int, ...] | None,
    axis_names: str | None,
    named: Mapping[str, Any],
) -> ImagePart:
    """Return the window of an image that the arguments of ``image_slice`` select.

    Args:
        whole: the shape of the image.
        anchor, shape, normalized, named: see `slice_window`.
        axes, axis_names: the sliced axes.
    """
    cut_axes = axes_of("HWC", axes, "WH" if axes is None and axis_names is None else axis_names, 3)
    spans = slice_window([whole[axis] for axis in cut_axes], anchor, shape, normalized, named)
    begins, ends = [0, 0], list(whole[:2])
    for axis, (begin, last) in zip(cut_axes, spans, strict=True):
        if axis > 1:
            raise SampleError("only rows and columns of an image can be cut; it has all channels")
        begins[axis], ends[axis] = begin, last
    return ImagePart(begins, [ends[0] - begins[0], ends[1] - begins[1]])
