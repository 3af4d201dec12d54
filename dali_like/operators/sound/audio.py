"""Operators for audio signals, as in ``nvidia.dali.fn``: decode, resample, filter, and find silence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.images.decoding_limit import DecodingLimit
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import PerSample, Rule, above, at_least, between, one_of_types
from dali_like.sources.readers.audio_decoding import AudioOptions, decode_audio, is_sample_rate
from dali_like.sources.readers.sinc_resampling import resample

_FLOAT = np.dtype(np.float32)
_RATE = Rule("in Hz from 1 to 10 million, or 0 or less", lambda rate: rate <= 0 or is_sample_rate(rate))


@operator(
    module="decoders",
    name="audio",
    num_outputs=2,
    output_layout=lambda _, __: ("", ""),
    kernel="sound.sound_kernels.decode_audio",
    kernel_is_compiled=False,
    kernel_for_stacks=False,
    kernel_for_large=True,
)
def decode(
    call: OperatorCall,
    data: Array,
    *,
    sample_rate: PerSample[Annotated[float, _RATE]] = 0.0,
    quality: Annotated[float, between(0, 100)] = 50.0,
    downmix: bool = False,
    dtype: Annotated[np.dtype[Any], one_of_types("int16 int32 float32")] = _FLOAT,
) -> tuple[Array, Array]:
    """Decode audio: WAV, FLAC, Ogg (Vorbis and Opus), MP3, and other formats of libsndfile. DALI does not decode MP3.

    Requires soundfile, and soxr for resampling: ``pip install soundfile soxr``.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        sample_rate: resample to this rate in Hz, from 1 to 10 million. Default, or with 0 or less: the rate of the file.
        quality: quality of resampling from 0, the fastest, to 100. To a higher rate, a filter with 3 to 64 lobes; to a lower
            one, "MQ" of soxr below 50, "HQ" below 75, otherwise "VHQ".
        downmix: return the mean of all channels, in one dimension.
        dtype: data type of the samples: FLOAT with values from -1 to 1, INT16 or INT32.

    Without resampling, and at a higher rate, the result is DALI's. DALI resamples to a lower rate without a low-pass filter,
    so that frequencies above half of the new rate turn up at others; soxr removes them. The rest differs by about a
    thousandth.

    Returns:
        Samples of shape (frames, channels), or (frames,) with `downmix`; and their rate in Hz, a scalar of dtype FLOAT.
    """
    if data.ndim != 1 or data.dtype != np.uint8:
        raise SampleTypeError(
            f"encoded audio must be a one-dimensional uint8 array, not of {data.dtype} and shape {data.shape}: "
            "pass the bytes of the file"
        )
    options = AudioOptions(sample_rate=sample_rate, quality=quality, downmix=downmix, dtype=dtype)
    decoded = decode_audio(data, options, DecodingLimit.of_pipeline(call.image_limit_bytes), call.empty)
    return decoded.samples, np.array(sample_rate if sample_rate > 0 else decoded.file_rate, np.float32)


# Resampling

_SAMPLE_TYPES = "int8 uint8 int16 uint16 int32 uint32 float32"


def _check_resample(given: Mapping[str, Any]) -> None:
    if ("in_rate" in given) != ("out_rate" in given):
        raise ArgumentClashError("in_rate and out_rate must be given together")
    ways = [name for name in ("in_rate", "scale", "out_length") if name in given]
    if len(ways) != 1:
        raise ArgumentClashError(
            "pass exactly one of scale, out_length, or in_rate with out_rate"
            + (f", not {' and '.join(ways)}" if ways else "")
        )


@operator(check=_check_resample)
def audio_resample(
    call: OperatorCall,
    signal: Array,
    *,
    in_rate: PerSample[Annotated[float, above(0)]] | None = None,
    out_rate: PerSample[Annotated[float, at_least(0)]] | None = None,
    scale: PerSample[Annotated[float, at_least(0)]] | None = None,
    out_length: PerSample[Annotated[int, at_least(0)]] | None = None,
    quality: Annotated[float, between(0, 100)] = 50.0,
    dtype: Annotated[np.dtype[Any], one_of_types(_SAMPLE_TYPES)] | None = None,
) -> Array:
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
    if signal.ndim not in (1, 2):
        raise SampleError(f"a signal must have the shape (frames,) or (frames, channels), not {signal.shape}")
    result = signal.dtype if dtype is None else dtype
    values = _normalized(signal, unsigned=result.kind == "u")
    frames = len(signal)
    if out_length is not None:
        rates, length = (float(frames), float(out_length)), out_length
        if length and not frames:
            raise SampleError(f"a signal without samples cannot be resampled to out_length={length}")
    else:
        given = (1.0, scale) if scale is not None else (in_rate or 1.0, out_rate or 0.0)
        rates = (float(np.float32(given[0])), float(np.float32(given[1])))
        length = math.ceil(frames * rates[1] / rates[0])
    out = call.empty((length, *signal.shape[1:]), result)
    resampled = resample(values.reshape(frames, math.prod(signal.shape[1:])), *rates, length, quality)
    if result.kind != "f":
        resampled *= np.float32(np.iinfo(result).max)
    convert(resampled.reshape(out.shape), result, out)
    return out


operator(module="experimental")(audio_resample.function)


def _normalized(signal: Array, *, unsigned: bool) -> NDArray[np.float32]:
    """Convert a signal to floats from -1 to 1, or from 0 to 1 if the result is unsigned."""
    if signal.dtype == np.float32:
        return (signal + np.float32(1)) * np.float32(0.5) if unsigned else signal
    if signal.dtype not in _SAMPLE_TYPES.split():
        raise SampleTypeError(
            f"a signal must be of dtype {', '.join(_SAMPLE_TYPES.split())}, not {signal.dtype}: convert it by fn.cast"
        )
    values = signal.astype(np.float32) / np.float32(np.iinfo(signal.dtype).max)
    if unsigned and signal.dtype.kind == "i":
        return (values + np.float32(1)) * np.float32(0.5)
    return values * np.float32(2) - np.float32(1) if not unsigned and signal.dtype.kind == "u" else values


# Filtering

_FILTERED_TYPES = "uint8 int8 uint16 int16 uint32 int32 uint64 int64 float32 float64"


@operator(output_layout="", stacks=(), kernel="sound.sound_kernels.preemphasis_filter", kernel_for_large=True)
def preemphasis_filter(
    call: OperatorCall,
    signal: Array,
    *,
    preemph_coeff: PerSample[float] = 0.97,
    border: Literal["zero", "clamp", "reflect"] = "clamp",
    dtype: Annotated[np.dtype[Any], one_of_types(_FILTERED_TYPES)] = _FLOAT,
) -> Array:
    """Amplify high frequencies: subtract a part of the previous sample from each sample.

    ``out[t] = signal[t] - preemph_coeff * signal[t - 1]``

    Args:
        signal: integers, FLOAT or FLOAT64. Arrays of several dimensions are filtered as one sequence of numbers, in the
            order of memory, as DALI does.
        preemph_coeff: part of the previous sample.
        border: sample before the first one: "zero", or the first one ("clamp"), or the second one ("reflect").
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """
    if signal.dtype not in _FILTERED_TYPES.split():
        raise SampleTypeError(
            f"a signal must be of dtype {', '.join(_FILTERED_TYPES.split())}, not {signal.dtype}: convert it by fn.cast"
        )
    kind = signal.dtype if signal.dtype == np.float64 else _FLOAT
    count = call.count if call.lead else 1
    values = signal.astype(kind, copy=False).reshape(count, math.prod(signal.shape[call.lead :]))
    coefficient = kind.type(preemph_coeff)
    out = call.empty(signal.shape, dtype)
    # Two passes in one place; the result is that of ``values[1:] - coefficient * values[:-1]``.
    filtered = out.reshape(values.shape) if dtype == kind else np.empty(values.shape, kind)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(values[:, :-1], -coefficient, out=filtered[:, 1:])
        filtered[:, 1:] += values[:, 1:]
        if values.size:
            filtered[:, 0] = values[:, 0]
            if border != "zero":
                filtered[:, 0] -= coefficient * values[:, min(1, values.shape[1] - 1) if border == "reflect" else 0]
    return out if dtype == kind else convert(filtered.reshape(signal.shape), dtype, out)


# Silence

_MEASURED_TYPES = "uint8 int8 uint16 int16 uint32 int32 uint64 int64 float32"


def _check_silence(given: Mapping[str, Any]) -> None:
    if given.get("reference_power", 1.0) <= 0:
        raise ArgumentError(f"reference_power must be positive, not {given['reference_power']}")
    if given.get("reset_interval", 1) < 1 and given["reset_interval"] != -1:
        raise ArgumentError(f"reset_interval must be positive, or -1, not {given['reset_interval']}")


@operator(
    num_outputs=2,
    output_layout=lambda _, __: ("", ""),
    check=_check_silence,
    stacks=(),
    kernel="sound.sound_kernels.nonsilent_region",
    kernel_for_large=True,
)
def nonsilent_region(
    call: OperatorCall,
    signal: Array,
    *,
    cutoff_db: float = -60.0,
    window_length: Annotated[int, at_least(1)] = 2048,
    reference_power: float = 0.0,
    reset_interval: int = 8192,
) -> tuple[Array, Array]:
    """Find the part of a signal between silence at its beginning and at its end.

    The signal is silent where its mean power in a window is less than ``reference_power * 10 ** (cutoff_db / 10)``.

    Args:
        signal: one dimension; integers or FLOAT.
        cutoff_db: power of the threshold relative to `reference_power`, in decibels.
        window_length: length of the window in samples, at most that of the signal.
        reference_power: mean power that has 0 decibels. Default: the maximum of the signal.
        reset_interval: number of samples after which the power of FLOAT signals is computed anew, since rounding errors of
            its changes accumulate; a multiple of `window_length`. -1: never.

    Returns:
        Index of the first sample, and number of samples of the region; both INT32 scalars. Number 0: all is silent.
    """
    if signal.ndim - call.lead != 1:
        raise SampleError(f"a signal must have one dimension, not the shape {signal.shape[call.lead :]}")
    if signal.dtype not in _MEASURED_TYPES.split():
        raise SampleTypeError(
            f"a signal must be of dtype {', '.join(_MEASURED_TYPES.split())}, not {signal.dtype}: convert it by fn.cast"
        )
    resets = signal.dtype.kind == "f" and reset_interval != -1
    if resets and reset_interval % window_length:
        raise ArgumentClashError(
            f"reset_interval must be -1, or a multiple of window_length={window_length}, not {reset_interval}: pass "
            f"reset_interval={max(8192 // window_length, 1) * window_length}"
        )
    rows = signal.reshape(call.count if call.lead else 1, signal.shape[-1])
    begins = np.zeros(len(rows), np.int32)
    lengths = np.zeros(len(rows), np.int32)
    if rows.size:
        window = min(window_length, rows.shape[1])
        power = _power(rows, window, reset_interval if resets else rows.shape[1])
        reference = np.float32(reference_power) if reference_power else power.max(axis=1, keepdims=True)
        loud = power >= reference * np.float32(10) ** np.float32(cutoff_db / 10)
        first, behind = loud.argmax(axis=1), loud.shape[1] - loud[:, ::-1].argmax(axis=1)
        found = loud.any(axis=1)
        begins[:] = np.where(found, first, 0)
        lengths[:] = np.where(found, behind - 1 - first + window, 0)
    return (begins, lengths) if call.lead else (begins.reshape(()), lengths.reshape(()))


def _power(signals: Array, window: int, interval: int) -> NDArray[np.float32]:
    """Return the mean power in each window of signals, of shape (signals, windows).

    It is summed up as DALI does, in single precision, except for 8 and 16 bit integers: with other rounding errors, other
    samples would be silent.
    """
    exact = signals.dtype.kind in "iu" and signals.dtype.itemsize <= 2
    squares = np.square(signals, dtype=np.int64 if exact else np.float32)
    count = signals.shape[1] - window + 1
    sums = np.empty((len(signals), count), squares.dtype)
    if exact:
        totals = np.zeros((len(squares), signals.shape[1] + 1), squares.dtype)
        np.cumsum(squares, axis=1, out=totals[:, 1:])
        np.subtract(totals[:, window:], totals[:, :count], out=sums)
    else:
        _sum_in_order(squares, window, interval, sums)
    return sums.astype(np.float32, copy=False) * np.float32(1 / window)


def _sum_in_order(squares: Array, window: int, interval: int, sums: Array) -> None:
    """Add up the squares in each window: those of the first one of an interval, then the changes from one to the next."""
    count = sums.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, count, interval - window + 1):
            end = min(begin + interval - window + 1, count)
            changes = np.empty((len(squares), 2 * (end - begin) - 1), squares.dtype)
            changes[:, 0] = np.add.accumulate(squares[:, begin : begin + window], axis=1)[:, -1]
            np.negative(squares[:, begin : end - 1], out=changes[:, 1::2])
            changes[:, 2::2] = squares[:, begin + window : end + window - 1]
            sums[:, begin:end] = np.add.accumulate(changes, axis=1)[:, ::2]
