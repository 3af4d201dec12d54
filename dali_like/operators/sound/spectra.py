"""Operators that compute spectra of signals, and features from them, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, AxisError, SampleError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.axes import check_below
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import Floats, above, at_least, between

#: Windows per step of `spectrogram`: their samples and spectra stay in the cache of the CPU.
_BLOCK = 128
#: Filters of `mel_filter_bank` per product of matrices. Each multiplies only the frequencies that its filters see.
_FILTERS_PER_BLOCK = 8

_Power = Annotated[int, between(1, 2)]


def _check_float(data: Array) -> None:
    """Check the dtype of an input.

    Raises:
        SampleTypeError: it is not float32.
    """
    if data.dtype != np.float32:
        raise SampleTypeError(
            f"the input must be of dtype float32, not {data.dtype}: convert it by fn.cast(dtype=types.FLOAT)"
        )


# Fourier transform


def _check_spectrogram(given: Mapping[str, Any]) -> None:
    length, size = given.get("window_length", 512), given.get("nfft")
    if size is not None and size < length:
        raise ArgumentClashError(f"nfft must be at least window_length={length}, not {size}")
    if "window_fn" in given and len(given["window_fn"]) not in (0, length):
        raise ArgumentClashError(
            f"window_fn must have one number for each sample of a window, {length}, not {len(given['window_fn'])}"
        )


@operator(
    check=_check_spectrogram,
    output_layout=lambda _, given: str(given["layout"]),
    stacks=(),
    kernel="sound.sound_kernels.spectrogram",
)
def spectrogram(
    call: OperatorCall,
    signal: Array,
    *,
    nfft: int | None = None,
    window_length: Annotated[int, at_least(1)] = 512,
    window_step: Annotated[int, at_least(1)] = 256,
    window_fn: Floats | None = None,
    power: _Power = 2,
    center_windows: bool = True,
    reflect_padding: bool = True,
    layout: Literal["ft", "tf"] = "ft",
) -> Array:
    """Compute the spectra of windows of a signal.

    Args:
        signal: FLOAT; at most one dimension with an extent other than 1.
        nfft: length of the Fourier transform; windows are padded with zeros. The result has ``nfft // 2 + 1`` frequencies.
            Default: `window_length`.
        window_length: length of a window in samples.
        window_step: distance between windows in samples.
        window_fn: factor for each sample of a window. Default: a Hann window.
        power: 2 for the power, 1 for the magnitude of each frequency.
        center_windows: whether the middle of the first window is the first sample. Otherwise windows lie within the signal.
        reflect_padding: whether centered windows mirror the signal at its ends. Otherwise it continues with zeros.
        layout: "ft" for frequencies by windows, "tf" for windows by frequencies.
    """
    _check_float(signal)
    lead, shape = call.lead, signal.shape[call.lead :]
    length = math.prod(shape)
    if length not in (1, *shape):
        raise SampleError(f"a signal must have one channel, not the shape {shape}: select one, such as signal[:, 0]")
    if not length:
        raise SampleError("a signal without samples has no spectrogram")
    samples = signal.reshape(call.count if lead else 1, length)
    if center_windows:
        before = window_length // 2
        count = length // window_step + 1
    else:
        before = 0
        count = int((length - window_length) / window_step) + 1  # truncated, so one window may be longer than the signal
        if count <= 0:
            raise SampleError(f"the signal has {length} samples, less than a window: window_length={window_length}")
    after = max((count - 1) * window_step + window_length - before - length, 0)
    padded = _padded(samples, before, after, mirrors=center_windows and reflect_padding)
    # As `numpy.lib.stride_tricks.sliding_window_view`, in a twentieth of the time.
    row_bytes, item_bytes = padded.strides
    windows: Array = np.ndarray(
        (len(padded), count, window_length), padded.dtype, padded, 0, (row_bytes, window_step * item_bytes, item_bytes)
    )
    factors = np.array(window_fn, np.float32) if window_fn else hann(window_length)
    size = window_length if nfft is None else nfft
    result = call.empty((*signal.shape[:lead], *((count, size // 2 + 1)[:: 1 if layout == "tf" else -1])), np.float32)
    out = result.reshape(len(samples), *result.shape[lead:])
    out = out if layout == "tf" else out.transpose(0, 2, 1)
    together = max(_BLOCK // count, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(samples), together):
            for begin in range(0, count, _BLOCK):
                part = slice(first, first + together), slice(begin, begin + _BLOCK)
                _write_power(np.fft.rfft(windows[part] * factors, size), power, out[part])
    return result


def _padded(samples: Array, before: int, after: int, *, mirrors: bool) -> Array:
    """Return signals, of shape (signals, samples), with mirrored samples or zeros at their ends.

    As `numpy.pad`, which takes 25 us for a few steps.
    """
    count, length = samples.shape
    if mirrors and max(before, after) >= length:
        return np.pad(samples, ((0, 0), (before, after)), "reflect")
    padded = np.empty((count, before + length + after), samples.dtype)
    padded[:, before : before + length] = samples
    if mirrors:
        padded[:, :before] = samples[:, before:0:-1]
        padded[:, before + length :] = samples[:, length - 1 - after : length - 1][:, ::-1]
    else:
        padded[:, :before] = 0
        padded[:, before + length :] = 0
    return padded


@functools.lru_cache(16)
def hann(length: int) -> NDArray[np.float32]:
    return (0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(length) + 0.5) / length)).astype(np.float32)


def _write_power(spectrum: Array, power: int, out: Array) -> None:
    """Write the power or magnitude of a spectrum. The caller ignores NumPy's warnings of overflow and invalid values."""
    real, imaginary = np.square(spectrum.real), np.square(spectrum.imag)
    if power == 1:
        real += imaginary
        np.sqrt(real, out=out, casting="same_kind")
    else:
        np.add(real, imaginary, out=out, casting="same_kind")


@operator(output_layout="", stacks=())
def power_spectrum(
    call: OperatorCall,
    data: Array,
    *,
    axis: Annotated[int, at_least(-1)] = -1,
    nfft: int | None = None,
    power: _Power = 2,
) -> Array:
    """Compute the spectra of signals along an axis.

    Args:
        data: FLOAT; from one to three dimensions.
        axis: axis of time, which becomes that of frequency; -1: the last one.
        nfft: length of the Fourier transform: longer signals are cut off, shorter ones padded with zeros. The result has
            ``nfft // 2 + 1`` frequencies. Default, or with 0 or less: the length of the signals.
        power: 2 for the power, 1 for the magnitude of each frequency.
    """
    _check_float(data)
    shape = data.shape[call.lead :]
    if not 1 <= len(shape) <= 3:
        raise SampleError(f"the input must have from 1 to 3 dimensions, not {len(shape)}")
    check_below("axis", (axis,), len(shape))
    if not shape[axis]:
        raise SampleError(f"the input has no samples in axis {axis}; its shape is {shape}")
    along = axis if axis < 0 else axis + call.lead
    with np.errstate(over="ignore", invalid="ignore"):
        spectrum = np.fft.rfft(data, nfft if nfft is not None and nfft > 0 else None, along)
        out = call.empty(spectrum.shape, np.float32)
        _write_power(spectrum, power, out)
    return out


# Features


def _check_mel(given: Mapping[str, Any]) -> None:
    rate, low, high = (
        given.get(name, default) for name, default in (("sample_rate", 44100.0), ("freq_low", 0.0), ("freq_high", 0.0))
    )
    if not low < (high if high > 0 else rate / 2) <= rate:
        raise ArgumentClashError(f"freq_high must be above freq_low={low:g}, and at most sample_rate={rate:g}, not {high:g}")


def _frequency_axis(layout: str, ndim: int) -> int:
    if layout and "f" not in layout:
        raise ArgumentError(f"there is no axis 'f' of frequencies in the layout {layout!r} of the input")
    return layout.index("f") if layout else max(ndim - 2, 0)


def _mel_layout(layout: str, _: Mapping[str, Any]) -> str:
    _frequency_axis(layout, 2)
    return ""


@operator(check=_check_mel, output_layout=_mel_layout, stacks=())
def mel_filter_bank(
    call: OperatorCall,
    spectrum: Array,
    *,
    nfilter: Annotated[int, at_least(1)] = 128,
    sample_rate: Annotated[float, above(0)] = 44100.0,
    freq_low: Annotated[float, at_least(0)] = 0.0,
    freq_high: float = 0.0,
    normalize: bool = True,
    mel_formula: Literal["slaney", "htk"] = "slaney",
) -> Array:
    """Convert spectra to the mel scale, with triangular filters.

    Args:
        spectrum: FLOAT; the axis "f" of its layout has the frequencies from 0 to half of the sample rate. Without a layout,
            the last but one axis has them, or the only one.
        nfilter: number of filters, and of elements in this axis of the result.
        sample_rate: sample rate of the signal in Hz.
        freq_low: lowest frequency in Hz.
        freq_high: highest frequency in Hz. Default: half of the sample rate.
        normalize: whether the integral of each filter is 1. Otherwise its peak is 1.
        mel_formula: "slaney", linear below 1000 Hz and logarithmic above, as in librosa; or "htk", ``2595 * log10(1 + f /
            700)``.
    """
    _check_float(spectrum)
    ndim = spectrum.ndim - call.lead
    if not ndim:
        raise SampleError("the input must have an axis of frequencies, but it is a single number")
    axis = _frequency_axis(call.layout[call.lead :], ndim) + call.lead
    high = freq_high if freq_high > 0 else sample_rate / 2
    blocks = _mel_blocks(spectrum.shape[axis], nfilter, sample_rate, freq_low, high, normalize, mel_formula)
    out = call.empty((*spectrum.shape[:axis], nfilter, *spectrum.shape[axis + 1 :]), np.float32)
    _multiply(blocks, spectrum, axis, out, call.lead)
    return out


class _RowBlock(NamedTuple):
    """Block of rows of a matrix, with the range of its nonzero columns."""

    rows: slice
    columns: slice
    values: NDArray[np.float32]


@np.errstate(over="ignore", invalid="ignore")
def _multiply(blocks: Sequence[_RowBlock], data: Array, axis: int, out: Array, lead: int) -> None:
    """Multiply a matrix with the vectors along an axis. Each sample of a stack is a product of its own: the order in which
    numbers are added depends on the shape of the matrices.
    """
    outer, inner = math.prod(data.shape[lead:axis]), math.prod(data.shape[axis + 1 :])
    count = math.prod(data.shape[:lead])
    given = data.reshape(count, outer, data.shape[axis], inner)
    made = out.reshape(count, outer, out.shape[axis], inner)
    for rows, columns, values in blocks:
        if inner == 1:
            np.matmul(given[:, :, columns, 0], values.T, out=made[:, :, rows, 0])
        else:
            np.matmul(values, given[:, :, columns], out=made[:, :, rows])


@functools.lru_cache(16)
def _mel_blocks(
    bins: int, count: int, rate: float, low: float, high: float, normalize: bool, formula: str
) -> Sequence[_RowBlock]:
    """Return the weights in blocks: filters that are neighbors see the same few frequencies."""
    filters = _mel_filters(bins, count, rate, low, high, normalize, formula)
    blocks = []
    for begin in range(0, count, _FILTERS_PER_BLOCK):
        rows = slice(begin, min(begin + _FILTERS_PER_BLOCK, count))
        seen = np.flatnonzero(filters[rows].any(axis=0))
        columns = slice(int(seen[0]), int(seen[-1]) + 1) if seen.size else slice(0, min(bins, 1))
        blocks.append(_RowBlock(rows, columns, np.ascontiguousarray(filters[rows, columns])))
    return blocks


def _mel_filters(
    bins: int, count: int, rate: float, low: float, high: float, normalize: bool, formula: str
) -> NDArray[np.float32]:
    """Return the weights; shape (count, bins)."""
    if bins < 2:
        return np.zeros((count, bins), np.float32)
    to_mel, to_hertz = (_slaney, _slaney_inverse) if formula == "slaney" else (_htk, _htk_inverse)
    edges = to_hertz(np.linspace(to_mel(np.array(low)), to_mel(np.array(high)), count + 2))[:, np.newaxis]
    frequencies = np.arange(bins) * (rate / (2 * (bins - 1)))
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    weights = np.maximum(np.minimum(rising, falling), 0)
    if normalize:
        weights *= 2 / (edges[2:] - edges[:-2])
    return np.asarray(weights, np.float32)


#: Slaney's scale: mels per Hz below 1000 Hz, mels at 1000 Hz, and mels per factor e above.
_SLOPE, _KNEE, _LOGARITHMIC = 3 / 200, 15.0, 27 / math.log(6.4)


def _slaney(hertz: Array) -> Array:
    return np.where(hertz < 1000, hertz * _SLOPE, _KNEE + _LOGARITHMIC * np.log(np.maximum(hertz, 1000) / 1000))


def _slaney_inverse(mel: Array) -> Array:
    return np.where(mel < _KNEE, mel / _SLOPE, 1000 * np.exp((np.maximum(mel, _KNEE) - _KNEE) / _LOGARITHMIC))


def _htk(hertz: Array) -> Array:
    return np.asarray(1127 * np.log1p(hertz / 700))


def _htk_inverse(mel: Array) -> Array:
    return np.asarray(700 * np.expm1(mel / 1127))


def _check_mfcc(given: Mapping[str, Any]) -> None:
    if given.get("normalize") and given.get("dct_type") == 1:
        raise ArgumentClashError("normalize is not possible with dct_type=1")


@operator(check=_check_mfcc, output_layout="", stacks=())
def mfcc(
    call: OperatorCall,
    spectrum: Array,
    *,
    axis: Annotated[int, at_least(0)] = 0,
    n_mfcc: Annotated[int, at_least(1)] = 20,
    dct_type: Annotated[int, between(1, 4)] = 2,
    normalize: bool = False,
    lifter: float = 0.0,
) -> Array:
    """Compute mel-frequency cepstral coefficients: the discrete cosine transform of spectra on the mel scale.

    Args:
        spectrum: FLOAT; from two to four dimensions, on the mel scale, usually in decibels.
        axis: axis of frequencies.
        n_mfcc: number of coefficients, at most the number of frequencies.
        dct_type: type of the transform, from 1 to 4.
        normalize: whether the transform is orthonormal.
        lifter: if positive, coefficient ``i`` is multiplied by ``1 + sin(pi * (i + 1) / lifter) * lifter / 2``.
    """
    _check_float(spectrum)
    ndim = spectrum.ndim - call.lead
    if axis >= max(ndim, 1):
        raise AxisError(f"axis={axis}: the input has {ndim} dimensions")
    if not 2 <= ndim <= 4:
        raise SampleError(f"the input must have from 2 to 4 dimensions, not {ndim}")
    axis += call.lead
    size = spectrum.shape[axis]
    if dct_type == 1 and size < 2:
        raise SampleError(f"dct_type=1 needs at least 2 frequencies, not {size}")
    matrix = _cosines(size, min(n_mfcc, size), dct_type, normalize, lifter)
    out = call.empty((*spectrum.shape[:axis], len(matrix), *spectrum.shape[axis + 1 :]), np.float32)
    _multiply([_RowBlock(slice(None), slice(None), matrix)], spectrum, axis, out, call.lead)
    return out


@functools.lru_cache(16)
def _cosines(size: int, count: int, kind: int, normalize: bool, lifter: float) -> NDArray[np.float32]:
    """Return the matrix of a discrete cosine transform; shape (count, size)."""
    row, column = np.arange(count)[:, np.newaxis], np.arange(size)
    if kind == 1:
        matrix = np.cos(np.pi * row * column / max(size - 1, 1))
        matrix[:, [0, -1]] /= 2
    else:
        half_row, half_column = 0.5 * (kind in (3, 4)), 0.5 * (kind in (2, 4))
        matrix = np.cos(np.pi * (row + half_row) * (column + half_column) / max(size, 1))
    if normalize:
        matrix *= math.sqrt(2 / max(size, 1))
    if kind == 2 and normalize:
        matrix[:1] /= math.sqrt(2)
    if kind == 3:
        matrix[:, :1] /= math.sqrt(2) if normalize else 2
    if lifter > 0:
        matrix *= 1 + np.sin(np.pi * (row + 1) / lifter) * (lifter / 2)
    return np.asarray(matrix, np.float32)


def _check_decibels(given: Mapping[str, Any]) -> None:
    if given.get("reference") == 0:
        raise ArgumentError("reference must not be 0; leave it out for the maximum of each input")


@operator(check=_check_decibels, output_layout="", stacks=(), kernel="sound.sound_kernels.to_decibels")
def to_decibels(
    call: OperatorCall,
    data: Array,
    *,
    multiplier: float = 10.0,
    reference: float = 0.0,
    cutoff_db: float = -200.0,
) -> Array:
    """Convert magnitudes or powers to decibels.

    ``out = multiplier * log10(max(data / reference, 10 ** (cutoff_db / multiplier)))``

    Args:
        data: FLOAT; positive numbers of any shape.
        multiplier: factor of the logarithm: 10 for powers, 20 for magnitudes.
        reference: magnitude or power that has 0 decibels. Default: the maximum of each input.
        cutoff_db: least value of the result.
    """
    _check_float(data)
    out = call.empty(data.shape, np.float32)
    axes = tuple(range(call.lead, data.ndim))
    factor = np.float32(1) / (np.float32(reference) if reference else _largest(data, axes))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        least = np.float32(10) ** (np.float32(cutoff_db) / np.float32(multiplier))
        np.multiply(data, factor, out=out)
        np.fmax(out, np.maximum(least, np.finfo(np.float32).smallest_subnormal), out=out)
        np.log10(out, out=out)
        np.multiply(out, np.float32(multiplier), out=out)
    return out


def _largest(data: Array, axes: tuple[int, ...]) -> Array:
    """Return the maximum along some axes, or 1 where that is not positive."""
    largest = np.fmax.reduce(data, axis=axes, initial=np.float32(0), keepdims=True)
    return np.where(largest > 0, largest, np.float32(1))
