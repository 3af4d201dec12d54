"""Spectra, features and signals: values of simple signals, and messages. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import fn, types
from dali_like.errors import ArgumentError, DaliLikeError, SampleError
from tests.audio_files import below
from tests.operators.running import WAYS, run

RATE_HZ = 8000


def tone(frequency_hz: float, frames: int = 4000, rate_hz: float = RATE_HZ) -> np.ndarray:
    return np.sin(2 * np.pi * frequency_hz / rate_hz * np.arange(frames)).astype(np.float32)


def result_of(operator: str, sample: np.ndarray, given_layout: str = "", **arguments: Any) -> np.ndarray:
    [[[result]]] = run(lambda data: getattr(fn, operator)(data, **arguments), [sample], layouts=[given_layout])
    return result


@pytest.mark.parametrize("way", WAYS)
def test_features_in_threads_and_workers(way: str) -> None:
    def define(signal: Any) -> list[Any]:
        spectrum = fn.spectrogram(fn.preemphasis_filter(signal), nfft=256, window_length=200, window_step=80)
        bands = fn.to_decibels(fn.mel_filter_bank(spectrum, sample_rate=RATE_HZ, nfilter=24))
        return [fn.mfcc(bands, n_mfcc=13), *fn.nonsilent_region(signal), fn.audio_resample(signal, scale=0.5)]

    sounds = [tone(440), tone(880, 2000)]
    coefficients, starts, lengths, halves = run(define, sounds, way=way)[0]

    assert [each.shape for each in coefficients] == [(13, 51), (13, 26)]
    assert [each.item() for each in starts] == [0, 0]
    assert [each.item() for each in lengths] == [4000, 2000]
    assert [each.shape for each in halves] == [(2000,), (1000,)]


@pytest.mark.parametrize("layout", ["ft", "tf"])
def test_the_spectrogram_of_a_tone_peaks_at_its_frequency(layout: str) -> None:
    spectrum = result_of("spectrogram", tone(1000), nfft=512, layout=layout, center_windows=False)

    frequencies = spectrum if layout == "ft" else spectrum.T
    assert set(frequencies.argmax(axis=0)) == {1000 * 512 // RATE_HZ}
    np.testing.assert_allclose(frequencies.max(axis=0), (512 / 4) ** 2, rtol=1e-2)


def test_magnitudes_are_roots_of_powers() -> None:
    signal = below(2000, RATE_HZ, 500)[:, 0]
    for operator in ("spectrogram", "power_spectrum"):
        power, magnitude = (result_of(operator, signal, power=number) for number in (2, 1))
        np.testing.assert_allclose(magnitude**2, power, rtol=1e-5)
    np.testing.assert_allclose(result_of("power_spectrum", signal), np.abs(np.fft.rfft(signal)) ** 2, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("formula", ["slaney", "htk"])
def test_mel_filters_overlap_by_halves(formula: str) -> None:
    filters = result_of(
        "mel_filter_bank",
        np.eye(401, dtype=np.float32),
        sample_rate=RATE_HZ,
        nfilter=20,
        normalize=False,
        mel_formula=formula,
    )

    inside = slice(*np.flatnonzero(filters.max(axis=0) > 0.99)[[0, -1]])
    np.testing.assert_allclose(filters.sum(axis=0)[inside], 1, atol=1e-5)
    assert (np.diff(filters.argmax(axis=1)) > 0).all()


def test_mel_filters_have_equal_areas() -> None:
    filters = result_of("mel_filter_bank", np.eye(2001, dtype=np.float32), sample_rate=RATE_HZ, nfilter=20)

    np.testing.assert_allclose(filters.sum(axis=1) * RATE_HZ / 4000, 1, atol=0.02)


def test_orthonormal_cosines_keep_lengths() -> None:
    data = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    for kind in (2, 3, 4):
        coefficients = result_of("mfcc", data, dct_type=kind, normalize=True)
        np.testing.assert_allclose(np.linalg.norm(coefficients, axis=0), np.linalg.norm(data, axis=0), rtol=1e-5)
    back = result_of("mfcc", result_of("mfcc", data, normalize=True), dct_type=3, normalize=True)
    np.testing.assert_allclose(back, data, atol=1e-5)


def test_decibels() -> None:
    data = np.float32([[100, 10, 1, 1e-9, 0]])

    np.testing.assert_allclose(result_of("to_decibels", data, cutoff_db=-80.0), [[0, -10, -20, -80, -80]], atol=1e-4)
    np.testing.assert_allclose(
        result_of("to_decibels", data[:, :3], multiplier=20.0, reference=1.0), [[40, 20, 0]], atol=1e-4
    )


@pytest.mark.parametrize("scale", [0.5, 2.0, 0.7, 441 / 160])
def test_resampling_keeps_frequencies_that_both_rates_can_hold(scale: float) -> None:
    sound = below(1000, RATE_HZ, 4000)
    there = result_of("audio_resample", sound, scale=scale, quality=100.0)
    back = result_of("audio_resample", there, in_rate=scale, out_rate=1.0, quality=100.0)

    assert len(there) == int(np.ceil(4000 * float(np.float32(scale))))
    np.testing.assert_allclose(back[:4000], sound, atol=2e-3)


def test_the_tone_keeps_its_phase_when_resampled() -> None:
    result = result_of("audio_resample", tone(300), in_rate=RATE_HZ, out_rate=11025.0, quality=100.0)

    np.testing.assert_allclose(result[200:-200], tone(300, len(result), 11025.0)[200:-200], atol=1e-3)


def test_types_of_signals_correspond() -> None:
    silence = np.full(50, 128, np.uint8)

    assert np.abs(result_of("audio_resample", silence, scale=1.0, dtype=types.INT16)).max() <= 130
    assert result_of("audio_resample", np.zeros(50, np.int16), scale=2.0, dtype=types.UINT8)[50] == 128
    full = result_of("audio_resample", np.sign(tone(100)), scale=2.0, dtype=types.INT8)
    assert (full.min(), full.max()) == (-128, 127)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.int32])
def test_silence_is_found(dtype: type) -> None:
    signal = np.zeros(9000)
    signal[3000:6000] = 1000 * np.sign(tone(100, 3000) + 0.5)

    def region(**arguments: Any) -> list[int]:
        [outputs] = run(lambda data: fn.nonsilent_region(data, **arguments), [signal.astype(dtype)])
        return [samples[0].item() for samples in outputs]

    assert region(window_length=1, cutoff_db=-20.0) == [3000, 3000]
    assert region(window_length=512, cutoff_db=-60.0, reset_interval=1024) == [3000 - 511, 3000 + 2 * 511]
    assert region(reference_power=1e9, cutoff_db=-10.0) == [0, 0]


def test_empty_signals() -> None:
    nothing = np.zeros(0, np.float32)

    assert result_of("preemphasis_filter", nothing).shape == (0,)
    assert result_of("audio_resample", nothing, scale=2.0).shape == (0,)
    assert [samples[0].item() for samples in run(fn.nonsilent_region, [nothing])[0]] == [0, 0]
    assert result_of("to_decibels", nothing).shape == (0,)


SIGNAL = tone(100, 100)
MESSAGES = [
    ("spectrogram", SIGNAL, {"nfft": 100}, ArgumentError, "nfft must be at least window_length=512, not 100"),
    (
        "spectrogram",
        SIGNAL,
        {"window_fn": [1.0]},
        ArgumentError,
        "window_fn must have one number for each sample of a window, 512",
    ),
    ("spectrogram", SIGNAL, {"center_windows": False}, SampleError, "100 samples, less than a window: window_length=512"),
    ("spectrogram", SIGNAL.reshape(2, 50), {}, SampleError, r"one channel, not the shape \(2, 50\): select one"),
    ("spectrogram", SIGNAL[:0], {}, SampleError, "a signal without samples has no spectrogram"),
    (
        "spectrogram",
        SIGNAL.astype(np.int16),
        {},
        SampleError,
        r"float32, not int16: convert it by fn.cast\(dtype=types.FLOAT\)",
    ),
    ("power_spectrum", SIGNAL, {"axis": 1}, DaliLikeError, "axis has 1, but axes are numbered from 0 to 0"),
    (
        "mel_filter_bank",
        SIGNAL,
        {"freq_high": 9e4},
        ArgumentError,
        "above freq_low=0, and at most sample_rate=44100, not 90000",
    ),
    ("mfcc", SIGNAL, {}, SampleError, "from 2 to 4 dimensions, not 1"),
    ("mfcc", SIGNAL, {"dct_type": 1, "normalize": True}, ArgumentError, "normalize is not possible with dct_type=1"),
    ("to_decibels", SIGNAL, {"reference": 0}, ArgumentError, "reference must not be 0; leave it out"),
    ("audio_resample", SIGNAL, {}, ArgumentError, "pass exactly one of scale, out_length, or in_rate with out_rate"),
    ("audio_resample", SIGNAL, {"in_rate": 3}, ArgumentError, "in_rate and out_rate must be given together"),
    ("audio_resample", SIGNAL[:0], {"out_length": 3}, SampleError, "without samples cannot be resampled to out_length=3"),
    (
        "audio_resample",
        SIGNAL.astype(np.float64),
        {"scale": 1},
        SampleError,
        "uint32, float32, not float64: convert it by fn.cast",
    ),
    ("preemphasis_filter", SIGNAL.astype(np.float16), {}, SampleError, "float64, not float16: convert it by fn.cast"),
    ("nonsilent_region", SIGNAL, {"window_length": 1000}, ArgumentError, "not 8192: pass reset_interval=8000"),
    ("nonsilent_region", SIGNAL, {"reset_interval": 0}, ArgumentError, "reset_interval must be positive, or -1, not 0"),
    ("nonsilent_region", SIGNAL.reshape(2, 50), {}, SampleError, r"one dimension, not the shape \(2, 50\)"),
]


@pytest.mark.parametrize(
    ("operator", "sample", "arguments", "error", "message"), MESSAGES, ids=[text for *_, text in MESSAGES]
)
def test_messages(
    operator: str, sample: np.ndarray, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(lambda data: getattr(fn, operator)(data, **arguments), [sample])


def test_spectra_need_an_axis_of_frequencies() -> None:
    with pytest.raises(ArgumentError, match="there is no axis 'f' of frequencies in the layout 'tc'"):
        result_of("mel_filter_bank", np.ones((5, 5), np.float32), "tc")
