"""Small videos, made by PyAV."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

#: Units of time stamps, in seconds.
_BASE = Fraction(1, 1000)
FRAME_MS = 40


def make_video(
    path: Path,
    num_frames: int,
    *,
    codec: str = "libx264",
    size: tuple[int, int] = (32, 48),
    durations_ms: tuple[int, ...] = (FRAME_MS,),
    start_ms: int = 0,
    gop: int = 5,
    options: dict[str, str] | None = None,
) -> Path:
    """Write a video, of frames that differ in their red channel.

    Args:
        path: the file; its ending is the format.
        num_frames: number of frames.
        codec: name of an encoder of FFmpeg.
        size: height and width.
        durations_ms: of the frames, again and again.
        start_ms: time stamp of the first frame.
        gop: frames from one key frame to the next.
        options: of the encoder.
    """
    import av  # optional

    height, width = size
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.gop_size = gop
        stream.bit_rate = 8_000_000
        stream.codec_context.time_base = _BASE
        stream.options = {"crf": "12", **(options or {})} if codec == "libx264" else options or {}
        time = start_ms
        for i in range(num_frames):
            image = np.zeros((height, width, 3), np.uint8)
            image[..., 0] = 7 * i % 256
            image[..., 1] = 3 * np.arange(width)
            image[..., 2] = 5 * np.arange(height)[:, None]
            frame = av.VideoFrame.from_ndarray(image, "rgb24")
            frame.pts, frame.time_base = time, _BASE
            time += durations_ms[i % len(durations_ms)]
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def frame_numbers(frames: np.ndarray) -> list[int]:
    """The numbers of frames of `make_video`, up to 36 frames; -1 for black ones."""
    red = frames[..., 0].astype(float).mean(axis=(1, 2))
    black = ~frames.reshape(len(frames), -1).any(axis=1)
    return [-1 if dark else round(value / 7) for value, dark in zip(red, black, strict=True)]
