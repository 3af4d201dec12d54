"""Resample signals with a windowed sinc filter, by DALI's formula.

The filter is a table of the sinc function times a Hann window, with 32 entries between two zeros of the sinc, interpolated
linearly. Its length is a number of lobes of the sinc, at the sample rate of the input. So there is no low-pass filter for
lower rates. Positions are exact here; DALI adds up steps in single precision, which moves positions by thousandths
of a sample.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float32]
_Integers = NDArray[np.int64]

_ENTRIES_PER_LOBE = 32
#: Ratios of sample rates with more different weights than this are not cached: 44,100 to 16,000 Hz has 160.
_MOST_PHASES = 1024
#: Longest period, in frames of input or result, that is resampled as a whole: 160 frames at 48,000 Hz are 147 at 44,100 Hz.
_MOST_OF_PERIOD = 1024
#: Results of a period per product of matrices. More mean more multiplications by zero, fewer more calls.
_PHASES_AT_ONCE = 32
#: Frames per step: their weights and inputs stay in the cache of the CPU.
_BLOCK = 2048


def resample(signal: _Floats, rate_in: float, rate_out: float, length: int, quality: float) -> _Floats:
    """Resample a signal.

    Args:
        signal: shape (frames, channels).
        rate_in, rate_out: sample rates, in the same unit.
        length: number of frames of the result.
        quality: from 0, for 3 lobes, to 100, for 64 lobes.
    """
    lobes = math.floor(0.007 * quality**2 - 0.09 * quality + 3 + 0.5)
    out = np.empty((length, signal.shape[1]), np.float32)
    if not out.size:
        return out
    padded = np.pad(signal, ((lobes, lobes + 1), (0, 0)))
    step = Fraction(rate_in) / Fraction(rate_out)
    if max(step.numerator, step.denominator) <= _MOST_OF_PERIOD:
        _resample_periods(padded, step, lobes, out)
        return out
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * lobes, axis=0)
    for begin in range(0, length, _BLOCK):
        frames = np.arange(begin, min(begin + _BLOCK, length))
        first, weights = _weights(frames, rate_in, rate_out, lobes)
        np.einsum("fcw,fw->fc", windows[first + lobes], weights, out=out[frames[0] : frames[-1] + 1])
    return out


def _resample_periods(padded: _Floats, step: Fraction, lobes: int, out: _Floats) -> None:
    """Resample a signal whose sample rates have a small ratio, by a product of matrices for some periods of it at a time.

    Args:
        padded: the signal, with zeros before and after it.
        step: ratio of the rates.
        lobes: of the filter.
        out: memory for the result.
    """
    blocks = _weights_of_period(step, lobes)
    size = blocks[-1].inputs.stop
    num_periods = -(-len(out) // step.denominator)
    padded = np.pad(padded, ((0, max(0, num_periods * step.numerator + size - len(padded))), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=0)[:: step.numerator]
    together = max(1, _BLOCK // step.denominator)
    made = np.empty((together, step.denominator), np.float32)
    for channel in range(out.shape[1]):
        for begin in range(0, num_periods, together):
            some = windows[begin : begin + together, channel]
            for results, inputs, weights in blocks:
                np.matmul(some[:, inputs], weights, out=made[: len(some), results])
            part = out[begin * step.denominator : (begin + together) * step.denominator, channel]
            part[:] = made.reshape(-1)[: len(part)]


class _Phases(NamedTuple):
    """Some results of a period, the inputs that they depend on, and their weights, of shape (inputs, results)."""

    results: slice
    inputs: slice
    weights: _Floats


@functools.lru_cache(16)
def _weights_of_period(step: Fraction, lobes: int) -> Sequence[_Phases]:
    """Return the weights of the inputs of a period. Neighboring results depend on nearly the same inputs."""
    first, weights = _phases(step, lobes)
    first = first + lobes
    blocks = []
    for begin in range(0, step.denominator, _PHASES_AT_ONCE):
        results = slice(begin, min(begin + _PHASES_AT_ONCE, step.denominator))
        inputs = slice(int(first[begin]), int(first[results.stop - 1]) + 2 * lobes)
        rows = np.zeros((results.stop - begin, inputs.stop - inputs.start), np.float32)
        for row, start, values in zip(rows, (first[results] - inputs.start).tolist(), weights[results], strict=True):
            row[start : start + 2 * lobes] = values
        blocks.append(_Phases(results, inputs, np.ascontiguousarray(rows.T)))
    return blocks


def _weights(frames: _Integers, rate_in: float, rate_out: float, lobes: int) -> tuple[_Integers, _Floats]:
    """Return the first frame of the input, and the weights of the following ones, for each of these frames."""
    step = Fraction(rate_in) / Fraction(rate_out)
    if step.denominator > _MOST_PHASES:
        return _weights_at(frames * np.float64(rate_in / rate_out), lobes)
    first, weights = _phases(step, lobes)
    periods, phases = np.divmod(frames, step.denominator)
    return first[phases] + periods * step.numerator, weights[phases]


@functools.lru_cache(16)
def _phases(step: Fraction, lobes: int) -> tuple[_Integers, _Floats]:
    """Return `_weights` for the frames of one period."""
    return _weights_at(np.arange(step.denominator) * step.numerator / step.denominator, lobes)


def _weights_at(positions: NDArray[np.float64], lobes: int) -> tuple[_Integers, _Floats]:
    first = np.ceil(positions) - lobes
    # Weights of a frame are entries of the table at distances of a lobe, so their places between two entries are equal.
    entries = (first - positions + lobes) * _ENTRIES_PER_LOBE
    numbers = np.clip(np.floor(entries).astype(np.int64), 0, _ENTRIES_PER_LOBE - 1)
    table = _table(lobes)
    lower = table[numbers]
    weights = lower + (entries - numbers)[:, np.newaxis] * (table[numbers + 1] - lower)
    return first.astype(np.int64), weights.astype(np.float32)


@functools.lru_cache(16)
def _table(lobes: int) -> NDArray[np.float64]:
    """Return the weights at distances of lobes, in columns, and at places between two lobes, in rows."""
    entries = np.arange(-_ENTRIES_PER_LOBE * lobes, _ENTRIES_PER_LOBE * lobes + 1)
    table = np.sinc(entries / _ENTRIES_PER_LOBE) * 0.5 * (1 + np.cos(2 * np.pi * entries / len(entries)))
    return np.stack([table[row::_ENTRIES_PER_LOBE][: 2 * lobes] for row in range(_ENTRIES_PER_LOBE + 1)])
