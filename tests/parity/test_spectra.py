"""Audio operators beside the real DALI: spectra, features, resampling, filtering and silence.

Tolerances: spectra and features are sums in another order, in single precision: 1e-5 of the largest element. Resampling is
exact to 1e-6 where each step between positions is exact in single precision. At other ratios, DALI adds up rounded steps,
which moves its positions by up to a thousandth of a sample: 1e-2 of white noise. Regions without silence are the same
samples, since our sums have DALI's rounding errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.conftest import OURS, Library
from tests.parity.covering import covering_rows
from tests.parity.operators import error_of, outputs

pytestmark = pytest.mark.peers

RNG = np.random.default_rng(0)
SIGNALS = [RNG.standard_normal(count).astype(np.float32) for count in (2000, 700, 1)]
LONG = [RNG.standard_normal(count).astype(np.float32) for count in (2000, 700)]
SPECTRA = [np.square(RNG.standard_normal((201, count))).astype(np.float32) for count in (7, 1)]
STACKED = [np.stack([spectrum, spectrum[::-1]]) for spectrum in SPECTRA]


def compare_all(
    dali: Library,
    operator: str,
    rows: list[dict[str, Any]],
    samples: list[np.ndarray],
    layout: str | None = None,
    bound: float = 1e-5,
) -> None:
    """Assert that both libraries return the same, for one pipeline with an output for each row of arguments.

    Args:
        bound: how far elements may be apart, relative to the largest one.
    """

    def define(library: Library, data: Any) -> list[Any]:
        function = library.fn
        for part in operator.split("."):
            function = getattr(function, part)
        return [result for row in rows for result in as_list(function(data, **of_library(library, row)))]

    ours, theirs = (outputs(library, define, [samples], [layout]) for library in (OURS, dali))
    assert [result.layout for result in ours] == [result.layout for result in theirs]
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        row = rows[number * len(rows) // len(ours)]
        for i, (sample, same) in enumerate(zip(one.samples, other.samples, strict=True)):
            assert (sample.dtype, sample.shape) == (same.dtype, same.shape), (row, i)
            one_f, other_f = sample.astype(np.float64), same.astype(np.float64)
            largest = np.abs(other_f, where=np.isfinite(other_f), out=np.zeros(other_f.shape)).max(initial=0)
            np.testing.assert_allclose(one_f, other_f, rtol=0, atol=bound * max(largest, 1e-6), err_msg=f"{row}, sample {i}")


def as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def of_library(library: Library, row: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are given, with the library's data type."""
    given = {name: value for name, value in row.items() if value is not None}
    return {name: getattr(library.types, value) if name == "dtype" else value for name, value in given.items()}


def settle_windows(row: dict[str, Any]) -> dict[str, Any]:
    """Long windows need a long transform, and the factors of windows their length."""
    length = row["window_length"] or 512
    size = row["nfft"] if row["nfft"] is None or row["nfft"] >= length else None
    factors = row["window_fn"] if row["window_fn"] is None or len(row["window_fn"]) == length else None
    return {**row, "nfft": size, "window_fn": factors}


WINDOWS = covering_rows(
    {
        "window_length": [None, 400, 401, 31],
        "nfft": [None, 512, 601],
        "window_step": [None, 160, 31],
        "window_fn": [None, tuple(np.linspace(0.5, 1, 31).tolist())],
        "power": [None, 1],
        "center_windows": [None, False],
        "reflect_padding": [None, False],
        "layout": [None, "tf"],
    },
    settle=settle_windows,
)


@pytest.mark.parametrize("centered", [True, False])
def test_spectrogram(centered: bool, dali: Library) -> None:
    rows = [row for row in WINDOWS if (row["center_windows"] is None) == centered]

    compare_all(dali, "spectrogram", rows, SIGNALS if centered else LONG)


@pytest.mark.parametrize(("shape", "layout"), [((300, 1), "tc"), ((1, 300), None), ((1, 300, 1), None), ((), None)], ids=str)
def test_shapes_of_one_channel(shape: tuple[int, ...], layout: str | None, dali: Library) -> None:
    compare_all(dali, "spectrogram", [{}], [np.resize(SIGNALS[0], shape)], layout)


def test_a_window_may_be_a_little_longer_than_the_signal(dali: Library) -> None:
    compare_all(dali, "spectrogram", [{"center_windows": False}], [SIGNALS[0][:257]])


def test_power_spectrum(dali: Library) -> None:
    rows = covering_rows({"axis": [None, 0, 1, 2], "nfft": [None, 0, 16, 9, 4], "power": [None, 1]})

    compare_all(dali, "power_spectrum", rows, [np.resize(SIGNALS[0], shape) for shape in ((6, 10, 12), (7, 13, 8))])
    compare_all(dali, "power_spectrum", [{}], SIGNALS[:2])


BANKS = covering_rows(
    {
        "nfilter": [None, 40, 300],
        "sample_rate": [None, 16000.0],
        "freq_low": [None, 120.0],
        "freq_high": [None, 7600.0],
        "normalize": [None, False],
        "mel_formula": [None, "htk"],
    }
)


@pytest.mark.parametrize("layout", [None, "ft"])
def test_mel_filter_bank(layout: str | None, dali: Library) -> None:
    compare_all(dali, "mel_filter_bank", BANKS, SPECTRA, layout, bound=5e-5)


@pytest.mark.parametrize("layout", [None, "cft", "fct", "ctf"])
def test_mel_filter_bank_of_several_axes(layout: str | None, dali: Library) -> None:
    compare_all(dali, "mel_filter_bank", [{"nfilter": 20}], STACKED, layout, bound=5e-5)
    compare_all(dali, "mel_filter_bank", [{"nfilter": 20}], [SPECTRA[0][:, 0]], bound=5e-5)


def settle_cosines(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "normalize": None} if row["dct_type"] == 1 else row


def test_mfcc(dali: Library) -> None:
    rows = covering_rows(
        {
            "axis": [None, 1],
            "n_mfcc": [None, 5, 300],
            "dct_type": [None, 1, 3, 4],
            "normalize": [None, True],
            "lifter": [None, 22.0, -1.0],
        },
        settle=settle_cosines,
    )

    compare_all(dali, "mfcc", rows, [SPECTRA[0][:40], SPECTRA[0][:25]])
    compare_all(dali, "mfcc", [{"axis": 2}, {"axis": 1}], [np.stack([spectrum] * 2) for spectrum in STACKED])


def test_to_decibels(dali: Library) -> None:
    rows = covering_rows(
        {"multiplier": [None, 20.0, -10.0], "reference": [None, 2.0, -2.0], "cutoff_db": [None, -20.0, 20.0, -500.0]}
    )
    odd = [np.float32(values) for values in ([0, 0], [0, 1, np.nan], [-1, -2], [1e-30, 1], [])]

    compare_all(dali, "to_decibels", rows, SPECTRA, "ft")
    compare_all(dali, "to_decibels", rows, odd)


# Signals


def noise(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """White noise that fills about the range of a dtype, or that from -1 to 1."""
    values = np.clip(np.random.default_rng(1).standard_normal(shape) * 0.3, -1, 1)
    if dtype.startswith("float"):
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return ((values + 1) / 2 * (float(limits.max) - limits.min) * 0.99 + limits.min).astype(dtype)


TYPES = {"uint8": "UINT8", "int8": "INT8", "uint16": "UINT16", "int16": "INT16", "uint32": "UINT32", "int32": "INT32"}
TYPES["float32"] = "FLOAT"


def test_resampling_by_ratios_that_are_exact(dali: Library) -> None:
    ways = [
        {"scale": 2.0},
        {"scale": 0.5},
        {"scale": 1.0},
        {"scale": 0.0},
        {"in_rate": 48000.0, "out_rate": 16000.0},
        {"in_rate": 16000.0, "out_rate": 0.0},
        {"out_length": 1000},
        {"out_length": 0},
    ]
    rows = [{**way, "quality": quality} for way in ways for quality in (None, 0.0, 30.0, 100.0)]
    signals = [noise("float32", (500, channels)) for channels in (1, 2, 9)]

    compare_all(dali, "audio_resample", rows, signals, "tc", bound=1e-6)
    compare_all(dali, "experimental.audio_resample", rows[:1], [signals[0][:, 0], signals[0][:1, 0], signals[0][:0, 0]])


def test_resampling_by_other_ratios(dali: Library) -> None:
    rows = [
        {"in_rate": 44100.0, "out_rate": 16000.0},
        {"in_rate": 16000.0, "out_rate": 44100.0},
        {"scale": 0.333},
        {"scale": 1.7, "quality": 100.0},
        {"out_length": 777},
    ]

    compare_all(dali, "audio_resample", rows, [noise("float32", (5000, 2)), noise("float32", (3001, 2))], bound=1e-2)


def test_ratios_are_those_of_single_precision(dali: Library) -> None:
    """Positions late in a long signal tell 0.7231 in single precision from the same in double precision."""
    compare_all(dali, "audio_resample", [{"scale": 0.7231}], [noise("float32", (300000,))], bound=3e-4)


@pytest.mark.parametrize("source", TYPES)
def test_data_types_of_resampling(source: str, dali: Library) -> None:
    rows = [{"scale": 2.0, "dtype": target} for target in (None, *TYPES.values())]
    signals = [noise(source, (300,)), noise(source, (300,))[::-1]]

    # Sums of single precision differ in the last digits, so integers of 8 and 16 bits by one, at halves.
    ours, theirs = (
        outputs(
            library,
            lambda library, data: [library.fn.audio_resample(data, **of_library(library, row)) for row in rows],
            [signals],
        )
        for library in (OURS, dali)
    )
    for one, other in zip(ours, theirs, strict=True):
        for sample, same in zip(one.samples, other.samples, strict=True):
            assert (sample.dtype, sample.shape) == (same.dtype, same.shape)
            scale = 1.0 if sample.dtype.kind == "f" else float(np.iinfo(sample.dtype).max)
            apart = np.abs(sample.astype(np.float64) - same.astype(np.float64))
            assert apart.max() <= max(2e-6 * scale, 1.0 if scale > 1 else 0), sample.dtype
            assert (apart >= max(1e-5 * scale, 1)).mean() < 0.02, sample.dtype


def test_rates_by_sample(dali: Library) -> None:
    signals = [noise("float32", (400,)), noise("float32", (300,))]
    rates, lengths = [np.float32(8000), np.float32(32000)], [np.int64(200), np.int64(1200)]

    def define(library: Library, signal: Any, *numbers: Any) -> list[Any]:
        rate, length = (library.fn.squeeze(number, axes=[0]) for number in numbers)
        return [
            library.fn.audio_resample(signal, in_rate=16000.0, out_rate=rate),
            library.fn.audio_resample(signal, in_rate=rate, out_rate=16000.0),
            library.fn.audio_resample(signal, scale=rate / 16000.0),
            library.fn.audio_resample(signal, out_length=length),
        ]

    ours, theirs = (outputs(library, define, [signals, rates, lengths]) for library in (OURS, dali))
    for one, other in zip(ours, theirs, strict=True):
        for sample, same in zip(one.samples, other.samples, strict=True):
            np.testing.assert_allclose(sample, same, atol=2e-6)


@pytest.mark.parametrize("source", [*TYPES, "int64", "uint64", "float64"])
def test_preemphasis_filter(source: str, dali: Library) -> None:
    rows = [
        {"border": border, "dtype": dtype, "preemph_coeff": coefficient}
        for border, coefficient in ((None, None), ("zero", 0.5), ("reflect", 1.0))
        for dtype in (None, "INT8", "UINT16", "INT64", "FLOAT64")
    ]

    compare_all(
        dali, "preemphasis_filter", rows, [noise(source, (50,)) // 2 if source != "int64" else np.arange(9)], bound=1e-6
    )
    compare_all(dali, "preemphasis_filter", rows[:1], [noise(source, (20, 3)), noise(source, (1, 3))], "tc", bound=1e-6)


def test_coefficients_by_sample(dali: Library) -> None:
    ours, theirs = (
        outputs(
            library,
            lambda library, signal, part: library.fn.preemphasis_filter(signal, preemph_coeff=part),
            [SIGNALS, [np.float32(0.1 * i) for i in range(3)]],
        )
        for library in (OURS, dali)
    )
    for sample, same in zip(ours[0].samples, theirs[0].samples, strict=True):
        np.testing.assert_allclose(sample, same, atol=1e-6)


@pytest.mark.parametrize("source", [*TYPES, "int64", "uint64"])
def test_nonsilent_region(source: str, dali: Library) -> None:
    sounds = [noise(source, (10000,)), noise(source, (3000,))]
    for sound in sounds:
        sound[: len(sound) // 3] = sound[-len(sound) // 4 :] = sound.dtype.type(0)
    rows = [
        {},
        *({"window_length": length} for length in (1, 512)),
        {"window_length": 3000, "reset_interval": 6000},
        {"window_length": 1000, "reset_interval": -1},
        *({"cutoff_db": cutoff} for cutoff in (-20.0, 0.0, 10.0, -80.0)),
        {"reference_power": 0.1},
        {"reference_power": 1e12, "cutoff_db": -30.0},
        {"reset_interval": 4096},
    ]

    compare_all(dali, "nonsilent_region", rows, sounds, bound=0)
    compare_all(dali, "nonsilent_region", rows[:1], [sounds[0][:1], sounds[0][:100], sounds[0][5000:5100]], bound=0)


MATRIX = SPECTRA[0][:6]
WRONG = [
    ("spectrogram", SIGNALS[0], {"nfft": 256}),
    ("spectrogram", SIGNALS[0], {"nfft": 0}),
    ("spectrogram", SIGNALS[0], {"power": 3}),
    ("spectrogram", SIGNALS[0], {"layout": "xy"}),
    ("spectrogram", SIGNALS[0], {"window_length": 0}),
    ("spectrogram", SIGNALS[0], {"window_step": 0}),
    ("spectrogram", SIGNALS[0], {"window_fn": [1.0] * 100}),
    ("spectrogram", SIGNALS[0][:100], {"center_windows": False}),
    ("spectrogram", SIGNALS[0].reshape(2, -1), {}),
    ("spectrogram", SIGNALS[0][:0], {}),
    ("spectrogram", SIGNALS[0].astype(np.int16), {}),
    ("power_spectrum", MATRIX, {"axis": 2}),
    ("power_spectrum", MATRIX, {"power": 0}),
    ("power_spectrum", MATRIX[:, :0], {}),
    ("power_spectrum", MATRIX.astype(np.float64), {}),
    ("mel_filter_bank", MATRIX, {"nfilter": 0}),
    ("mel_filter_bank", MATRIX, {"sample_rate": 0.0}),
    ("mel_filter_bank", MATRIX, {"freq_low": -1.0}),
    ("mel_filter_bank", MATRIX, {"freq_low": 300.0, "freq_high": 200.0}),
    ("mel_filter_bank", MATRIX, {"freq_high": 50000.0}),
    ("mel_filter_bank", MATRIX, {"mel_formula": "HTK"}),
    ("mel_filter_bank", MATRIX.astype(np.int16), {}),
    ("mfcc", MATRIX, {"axis": 2}),
    ("mfcc", MATRIX, {"axis": -1}),
    ("mfcc", MATRIX, {"n_mfcc": 0}),
    ("mfcc", MATRIX, {"dct_type": 5}),
    ("mfcc", MATRIX, {"dct_type": 1, "normalize": True}),
    ("mfcc", MATRIX[:1], {"dct_type": 1}),
    ("mfcc", MATRIX[0], {}),
    ("mfcc", MATRIX.astype(np.int16), {}),
    ("to_decibels", MATRIX, {"reference": 0.0}),
    ("to_decibels", MATRIX.astype(np.float64), {}),
    ("audio_resample", SIGNALS[0], {}),
    ("audio_resample", SIGNALS[0], {"scale": -1.0}),
    ("audio_resample", SIGNALS[0], {"in_rate": 3.0}),
    ("audio_resample", SIGNALS[0], {"in_rate": 0.0, "out_rate": 3.0}),
    ("audio_resample", SIGNALS[0], {"scale": 2.0, "out_length": 3}),
    ("audio_resample", SIGNALS[0], {"scale": 2.0, "quality": 101.0}),
    ("audio_resample", SIGNALS[0], {"scale": 2.0, "dtype": "FLOAT16"}),
    ("audio_resample", SIGNALS[0].astype(np.int64), {"scale": 2.0}),
    ("audio_resample", SIGNALS[0].reshape(2, 2, -1), {"scale": 2.0}),
    ("audio_resample", SIGNALS[0][:0], {"out_length": 2}),
    ("preemphasis_filter", SIGNALS[0], {"border": "wrap"}),
    ("preemphasis_filter", SIGNALS[0], {"dtype": "FLOAT16"}),
    ("preemphasis_filter", SIGNALS[0].astype(np.float16), {}),
    ("nonsilent_region", SIGNALS[0], {"reference_power": 0.0}),
    ("nonsilent_region", SIGNALS[0], {"window_length": 20000}),
    ("nonsilent_region", SIGNALS[0], {"reset_interval": 5000}),
    ("nonsilent_region", SIGNALS[0].astype(np.float64), {}),
    ("nonsilent_region", MATRIX, {}),
]


@pytest.mark.parametrize(
    ("operator", "sample", "arguments"), WRONG, ids=lambda value: "" if isinstance(value, np.ndarray) else str(value)
)
def test_errors(operator: str, sample: np.ndarray, arguments: dict[str, Any], dali: Library) -> None:
    def define(library: Library, data: Any) -> Any:
        return getattr(library.fn, operator)(data, **of_library(library, arguments))

    for library in (dali, OURS):
        assert error_of(library, define, [[sample]]) is not None, library
