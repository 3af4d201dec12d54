"""Operators for videos: decoding of files in memory, and scaling of what ``fn.readers.video_resize`` reads."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from dali_like.errors import ArgumentClashError, ArgumentError, DecodeError, SampleError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.images.decoding_limit import DecodingLimit
from dali_like.images.video import PadMode, VideoDecoder, check_fill_value, padded_numbers
from dali_like.operators.geometry.resizing import Mode, check_size, resize
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, Floats, Ints, PerSample, at_least, count
from dali_like.types import INTERP_LINEAR, DALIInterpType


def _check_frames(given: Mapping[str, Any]) -> None:
    ranged = [name for name in ("start_frame", "sequence_length", "stride", "end_frame") if name in given]
    if "frames" in given and ranged:
        raise ArgumentClashError(f"Cannot specify both `frames` and {', '.join(ranged)}: leave one of them out")
    if "sequence_length" in given and "end_frame" in given:
        raise ArgumentClashError("Cannot specify both `sequence_length` and `end_frame` arguments: leave one of them out")
    try:
        check_fill_value(given.get("fill_value", (0,)))
    except ArgumentError as error:
        raise ArgumentClashError(str(error)) from None


@operator(
    module="experimental.decoders",
    check=_check_frames,
    output_layout="FHWC",
    ignored={"affine": True, "build_index": True},
)
def video(
    call: OperatorCall,
    encoded: Array,
    *,
    frames: PerSample[Ints] | None = None,
    start_frame: PerSample[int] | None = None,
    end_frame: PerSample[int] | None = None,
    sequence_length: PerSample[Annotated[int, at_least(0)]] | None = None,
    stride: PerSample[Annotated[int, at_least(1)]] | None = None,
    pad_mode: PerSample[PadMode] = "constant",
    fill_value: Ints = (0,),
) -> Array:
    """Decode videos, or some of their frames, by FFmpeg: any format and codec that PyAV has.

    Args:
        encoded: encoded files, each a one-dimensional uint8 array.
        frames: numbers of the frames, in any order.
        start_frame: the first frame. Default: 0.
        end_frame: the end of the range of frames. Default: the end of the video.
        sequence_length: number of frames, instead of `end_frame`.
        stride: distance of the frames. Default: 1.
        pad_mode: treatment of frames outside of the video. "none": they are left out; in `frames` they are an error.
            "constant": they are filled with `fill_value`. "edge" or "repeat": the last frame is repeated. "reflect_1001" or
            "symmetric", "reflect_101" or "reflect": frames follow in reverse order, with or without the last one.
        fill_value: one value for each channel, or one for all.

    Returns:
        The frames in RGB, of shape (frames, height, width, 3), dtype UINT8 and layout FHWC.
    """
    if encoded.ndim != 1 or encoded.dtype != np.uint8:
        raise SampleTypeError(
            f"encoded videos must be one-dimensional arrays of uint8, not of {encoded.dtype} and shape {encoded.shape}"
        )
    if not encoded.size:
        raise DecodeError("Video decoder does not support empty input samples")
    decoder = VideoDecoder(io.BytesIO(encoded.tobytes()))
    try:
        size = len(decoder.index.frames)
        if frames is not None:
            numbers = list(frames)
            if pad_mode == "none" and (outside := [number for number in numbers if not 0 <= number < size]):
                raise SampleError(
                    f"Unexpected out-of-bounds frame index {outside[0]} for pad_mode = 'none' and a video of {size} frames"
                )
        else:
            numbers = _numbers(size, start_frame or 0, end_frame, sequence_length, stride or 1)
        numbers = padded_numbers(numbers, size, pad_mode)
        limit = DecodingLimit.of_pipeline(call.image_limit_bytes)
        out = call.empty(decoder.shape(len(numbers), limit), np.uint8)
        decoder.decode(numbers, out, fill_value)
    finally:
        decoder.close()
    return out


def _numbers(size: int, start: int, end: int | None, length: int | None, stride: int) -> list[int]:
    if start >= size:
        raise SampleError(f"Start frame {start} is out of bounds, expected range [0, {size})")
    if length is not None:
        return list(range(start, start + length * stride, stride))
    if end is not None and end <= start:
        raise SampleError(f"end_frame ({end}) must be greater than start_frame ({start})")
    return list(range(start, size if end is None else end, stride))


@operator(
    module="readers.video_resize",
    internal=True,
    check=check_size,
    layouts="FHWC",
    strided=True,
)
def scale(
    call: OperatorCall,
    frames: Array,
    *,
    size: PerSample[Annotated[Floats, count(1, 2, 3), FINITE]] | None = None,
    resize_x: PerSample[Annotated[float, FINITE]] = 0.0,
    resize_y: PerSample[Annotated[float, FINITE]] = 0.0,
    resize_z: PerSample[Annotated[float, FINITE]] = 0.0,
    resize_shorter: PerSample[Annotated[float, FINITE]] = 0.0,
    resize_longer: PerSample[Annotated[float, FINITE]] = 0.0,
    mode: Mode = "default",
    max_size: Annotated[Floats, count(1, 2, 3)] | None = None,
    subpixel_scale: bool = True,
    roi_start: PerSample[Annotated[Floats, count(1, 2, 3), FINITE]] | None = None,
    roi_end: PerSample[Annotated[Floats, count(1, 2, 3), FINITE]] | None = None,
    roi_relative: bool = False,
    interp_type: PerSample[DALIInterpType] = INTERP_LINEAR,
    min_filter: PerSample[DALIInterpType] | None = None,
    mag_filter: PerSample[DALIInterpType] | None = None,
    antialias: bool = True,
    minibatch_size: int = 32,
    temp_buffer_hint: int = 0,
) -> Array:
    """Scale the frames of a video.

    Args:
        frames: uint8 or float32.
        size, resize_x, resize_y, resize_z, resize_shorter, resize_longer: see ``fn.resize``.
        mode, max_size, subpixel_scale, roi_start, roi_end, roi_relative: likewise.
        interp_type, min_filter, mag_filter, antialias: likewise.
        minibatch_size, temp_buffer_hint: without effect.
    """
    scaled: Array = resize.function(
        call,
        frames,
        size=size,
        resize_x=resize_x,
        resize_y=resize_y,
        resize_z=resize_z,
        resize_shorter=resize_shorter,
        resize_longer=resize_longer,
        mode=mode,
        max_size=max_size,
        subpixel_scale=subpixel_scale,
        roi_start=roi_start,
        roi_end=roi_end,
        roi_relative=roi_relative,
        interp_type=interp_type,
        min_filter=min_filter,
        mag_filter=mag_filter,
        antialias=antialias,
    )
    return scaled
