"""Decode audio with soundfile, mix channels, and resample, for ``fn.decoders.audio`` and ``fn.readers.nemo_asr``.

Without resampling, samples are DALI's. At a higher rate, they come from DALI's filter, because soxr would damp the
highest frequencies of the file. At a lower rate, DALI folds frequencies above half of it back into the signal; soxr removes
them. The rest differs by a thousandth of its power.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError, DecodeError
from dali_like.images.decoding_limit import DecodingLimit
from dali_like.sources.readers.sinc_resampling import resample

__all__ = ["AudioOptions", "DecodedAudio", "decode_audio", "is_sample_rate"]

_HIGHEST_HZ = 10_000_000
_FLOAT = np.dtype(np.float32)

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class AudioOptions:
    """Arguments that ``decoders.audio`` and ``readers.nemo_asr`` share.

    Attributes:
        sample_rate: target in Hz, from 1 to 10 million; 0 or less: that of the file.
        quality: of resampling, from 0 to 100.
        downmix: whether to return the mean of the channels, with one dimension.
        dtype: of the result: int16, int32 or float32.
    """

    sample_rate: float
    quality: float
    downmix: bool
    dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        if not (self.sample_rate <= 0 or is_sample_rate(self.sample_rate)):
            raise ArgumentError(
                f"sample_rate must be 0, for the rate of the file, or from 1 to {_HIGHEST_HZ:,} Hz, not {self.sample_rate!r}"
            )


def is_sample_rate(rate: float) -> bool:
    """Return whether audio can be resampled to a rate. Tiny rates would need endless filters, huge ones endless memory."""
    return 1 <= rate <= _HIGHEST_HZ


@dataclass(frozen=True, kw_only=True)
class DecodedAudio:
    """Samples of shape (frames,) or (frames, channels), and the sample rate of the file in Hz."""

    samples: Array
    file_rate: float


def decode_audio(
    file: BinaryIO | Array,
    options: AudioOptions,
    limit: DecodingLimit,
    empty: Callable[[tuple[int, ...], Any], Array] = np.empty,
    *,
    offset_s: float = 0.0,
    duration_s: float | None = None,
) -> DecodedAudio:
    """Decode an audio file, or a part of it.

    Args:
        file: local file, which must not be read yet, or the bytes of a file.
        options: see there.
        limit: for the samples in the file, and for the result.
        empty: returns memory for the samples, given shape and dtype.
        offset_s: beginning of the part in seconds. A negative value counts as 0.
        duration_s: its length in seconds. None: up to the end of the file, as if it is longer than the rest.

    Raises:
        DecodeError: the format is unknown, the data are damaged, `offset_s` is beyond the end, or the samples exceed the
            limit.
        MissingExtraError: soundfile or soxr is not installed.
    """
    soundfile = optional("soundfile", "Decoding audio", "audio")
    with _errors_of(soundfile):
        opened = io.BytesIO(file.data) if isinstance(file, np.ndarray) else file.fileno()
        with soundfile.SoundFile(opened, closefd=False) as sound:
            rate, channels = float(sound.samplerate), int(sound.channels)
            frames = _seek(sound, rate, offset_s, duration_s)
            resampled = options.sample_rate > 0 and options.sample_rate != rate
            most = max(frames, _resampled_frames(frames, rate, options) if resampled else 0)
            limit.check(
                most * channels * max(_FLOAT.itemsize, options.dtype.itemsize), f"{most} frames of {channels} channels"
            )
            mixed = options.downmix and channels > 1
            shape = (frames,) if options.downmix and channels == 1 else (frames, channels)
            if not resampled and not mixed:
                return DecodedAudio(samples=_decoded(sound, empty(shape, options.dtype)), file_rate=rate)
            samples = _decoded(sound, np.empty(shape, np.float32))
    if mixed:
        samples = samples.mean(axis=1, dtype=np.float32)
    if resampled:
        samples = _resampled(samples, rate, options)
    return DecodedAudio(samples=_converted(samples, empty(samples.shape, options.dtype)), file_rate=rate)


def _seek(sound: Any, rate: float, offset_s: float, duration_s: float | None) -> int:
    """Go to the beginning of the part, and return its number of frames."""
    start = max(0, int(offset_s * rate))
    left = int(sound.frames) - start
    if left < 0:
        raise DecodeError(f"the offset of {offset_s:g} s is beyond the end of the audio, at {sound.frames / rate:g} s")
    if start:
        sound.seek(start)
    return left if duration_s is None else min(left, int(duration_s * rate))


def _decoded(sound: Any, out: Array) -> Array:
    if not out.size:
        return out
    # soundfile writes to C-contiguous arrays only.
    target = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    if (count := len(sound.read(out=target))) < len(out):
        raise DecodeError(f"the audio is damaged or truncated: only {count} of {len(out)} frames could be decoded")
    if target is not out:
        out[...] = target
    return out


def _resampled_frames(frames: int, rate: float, options: AudioOptions) -> int:
    return math.ceil(frames * options.sample_rate / rate)


def _resampled(samples: Array, rate: float, options: AudioOptions) -> Array:
    count = _resampled_frames(len(samples), rate, options)
    if not count:
        return samples[:0]
    if options.sample_rate > rate:
        return resample(samples.reshape(len(samples), -1), rate, options.sample_rate, count, options.quality).reshape(
            count, *samples.shape[1:]
        )
    soxr = optional("soxr", "Resampling audio", "audio")
    name = "MQ" if options.quality < 50 else "HQ" if options.quality < 75 else "VHQ"
    made: Array = soxr.resample(samples, rate, options.sample_rate, quality=name)
    if len(made) < count:
        made = np.concatenate([made, np.zeros((count - len(made), *made.shape[1:]), made.dtype)])
    return made[:count]


def _converted(samples: Array, out: Array) -> Array:
    """Convert floats from -1 to 1 to the dtype of `out`. Integers are rounded and limited."""
    if out.dtype.kind == "f":
        out[...] = samples
    else:
        limits = np.iinfo(out.dtype)
        rounded = np.rint(samples * np.float32(limits.max))
        out[...] = np.clip(rounded.astype(np.float64), limits.min, limits.max)
    return out


@contextlib.contextmanager
def _errors_of(soundfile: Any) -> Iterator[None]:
    try:
        yield
    except soundfile.LibsndfileError as error:
        raise DecodeError(f"cannot decode audio: {error.error_string}") from None
