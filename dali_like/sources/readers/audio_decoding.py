"""Decode audio with soundfile, mix channels, and resample, for ``fn.decoders.audio`` and ``fn.readers.nemo_asr``.

Without resampling, samples are DALI's. At a higher rate, they come from DALI's filter, because soxr would damp the
highest frequencies of the file. At a lower rate, DALI folds frequencies above half of it back into the signal; soxr removes
them. The rest differs by a thousandth of its power.
"""

from __future__ import annotations

import contextlib
import io
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError, DecodeError
from dali_like.images.decoding_limit import DecodingLimit
from dali_like.sources.readers.sinc_resampling import resample

__all__ = ["AudioOptions", "DecodedAudio", "decode_audio", "is_sample_rate", "of_16_bits"]

_HIGHEST_HZ = 10_000_000
_FLOAT = np.dtype(np.float32)
#: Head of a chunk of a WAV file; and the chunk "fmt ": kind, channels, rate, bytes per second, bytes of a frame, bits.
_CHUNK = struct.Struct("<4sI")
_FORMAT = struct.Struct("<HHIIHH")

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
    plain = _plain_wav(file) if isinstance(file, np.ndarray) else None
    if plain is not None:
        start, frames = _range(len(plain.samples), plain.file_rate, offset_s, duration_s)
        _check_size(frames, plain.samples.shape[1], plain.file_rate, options, limit)
        return _finished(plain.samples[start : start + frames], plain.file_rate, options, empty)
    soundfile = optional("soundfile", "Decoding audio", "audio")
    with _errors_of(soundfile):
        opened = io.BytesIO(file.data) if isinstance(file, np.ndarray) else file.fileno()
        with soundfile.SoundFile(opened, closefd=False) as sound:
            rate, channels = float(sound.samplerate), int(sound.channels)
            start, frames = _range(int(sound.frames), rate, offset_s, duration_s)
            if start:
                sound.seek(start)
            resampled = options.sample_rate > 0 and options.sample_rate != rate
            _check_size(frames, channels, rate, options, limit)
            mixed = options.downmix and channels > 1
            shape = (frames,) if options.downmix and channels == 1 else (frames, channels)
            if not resampled and not mixed:
                return DecodedAudio(samples=_decoded(sound, empty(shape, options.dtype)), file_rate=rate)
            samples = _decoded(sound, np.empty(shape, np.float32))
    return _finished(samples, rate, options, empty)


def _finished(
    samples: Array, rate: float, options: AudioOptions, empty: Callable[[tuple[int, ...], Any], Array]
) -> DecodedAudio:
    """Mix, resample and convert samples, which are floats or have 16 bits."""
    if options.downmix and samples.shape[-1] == 1:
        samples = samples.reshape(len(samples))
    resampled = options.sample_rate > 0 and options.sample_rate != rate
    if samples.dtype == np.int16 and (resampled or (options.downmix and samples.ndim == 2)):
        samples = of_16_bits(samples, np.empty(samples.shape, np.float32))
    if options.downmix and samples.ndim == 2:
        samples = samples.mean(axis=1, dtype=np.float32)
    if resampled:
        samples = _resampled(samples, rate, options)
    out = empty(samples.shape, options.dtype)
    converted = of_16_bits(samples, out) if samples.dtype == np.int16 else _converted(samples, out)
    return DecodedAudio(samples=converted, file_rate=rate)


def _plain_wav(data: Array) -> DecodedAudio | None:
    """Return the samples of a complete WAV file of 16 bits, as a view; None for all other files.

    It is the usual format. soundfile reads it through callbacks, which takes several times as long as the conversion.
    """
    size = data.size
    head = data[:12].tobytes()
    if not (head.startswith(b"RIFF") and head.endswith(b"WAVE")):
        return None
    position, form = 12, None
    while position + 8 <= size:
        name, nbytes = _CHUNK.unpack(data[position : position + 8].data)
        begin, position = position + 8, position + 8 + nbytes + nbytes % 2
        if name == b"fmt " and nbytes == _FORMAT.size and begin + nbytes <= size:
            form = _FORMAT.unpack(data[begin : begin + nbytes].data)
        elif name == b"data":
            if form is None:
                return None
            kind, channels, rate, _, step, bits = form
            if (
                (kind, bits) != (1, 16)
                or not (channels and rate and nbytes)
                or step != 2 * channels
                or nbytes % step
                or begin + nbytes > size
            ):
                return None
            return DecodedAudio(
                samples=data[begin : begin + nbytes].view("<i2").reshape(-1, channels), file_rate=float(rate)
            )
    return None


def of_16_bits(samples: Array, out: Array) -> Array:
    """Convert samples of 16 bits as soundfile does."""
    if out.dtype == np.float32:
        np.multiply(samples, np.float32(1 / 32768), out=out)
    else:
        out[...] = samples
        if out.dtype == np.int32:
            np.left_shift(out, 16, out=out)
    return out


def _range(count: int, rate: float, offset_s: float, duration_s: float | None) -> tuple[int, int]:
    """Return the first frame of a part, and its number of frames, given the number of all frames."""
    start = max(0, int(offset_s * rate))
    left = count - start
    if left < 0:
        raise DecodeError(f"the offset of {offset_s:g} s is beyond the end of the audio, at {count / rate:g} s")
    return start, left if duration_s is None else min(left, int(duration_s * rate))


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


def _check_size(frames: int, channels: int, rate: float, options: AudioOptions, limit: DecodingLimit) -> None:
    resampled = options.sample_rate > 0 and options.sample_rate != rate
    most = max(frames, _resampled_frames(frames, rate, options) if resampled else 0)
    limit.check(most * channels * max(_FLOAT.itemsize, options.dtype.itemsize), f"{most} frames of {channels} channels")


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
