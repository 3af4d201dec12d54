"""``decoders.audio`` beside the real DALI: formats, types and downmixing exactly, resampling within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.audio_files import audio, below, encoded
from tests.parity.conftest import OURS
from tests.parity.operators import compare, error_of, outputs

pytestmark = pytest.mark.peers

SOUND = audio(1000, 2)
#: Signals without resampling: DALI's libvorbis rounds another way than that of soundfile.
FORMATS = {
    ("WAV", "PCM_16"): 0.0,
    ("WAV", "PCM_U8"): 0.0,
    ("WAV", "PCM_24"): 0.0,
    ("WAV", "FLOAT"): 0.0,
    ("WAV", "MS_ADPCM"): 0.0,
    ("FLAC", "PCM_16"): 0.0,
    ("FLAC", "PCM_24"): 0.0,
    ("OGG", "VORBIS"): 2.0**-22,
    ("OGG", "OPUS"): 0.0,
    ("AIFF", "PCM_16"): 0.0,
}
SCALES = {"FLOAT": 1.0, "INT16": 2.0**15, "INT32": 2.0**31}


@pytest.mark.parametrize("dtype", SCALES)
@pytest.mark.parametrize(("format", "subtype"), FORMATS)
def test_formats_and_types(format: str, subtype: str, dtype: str, dali: Any) -> None:
    files = [encoded(SOUND, 48000, format, subtype), encoded(SOUND[:500, :1], 16000, format, subtype)]
    bound = FORMATS[format, subtype] * SCALES[dtype]
    if bound and dtype != "FLOAT":
        bound = max(bound, 1.0)

    compare(
        dali,
        lambda library, data: library.fn.decoders.audio(data, dtype=getattr(library.types, dtype)),
        [files],
        bound=bound,
    )


@pytest.mark.parametrize(("dtype", "bound"), [("FLOAT", 2.0**-23), ("INT16", 0.0), ("INT32", 256.0)])
def test_downmixing(dtype: str, bound: float, dali: Any) -> None:
    files = [encoded(audio(1000, channels), 8000, subtype="FLOAT") for channels in (1, 2, 3, 5)]

    compare(
        dali,
        lambda library, data: library.fn.decoders.audio(data, downmix=True, dtype=getattr(library.types, dtype)),
        [files],
        bound=bound,
        mean=bound,
    )


@pytest.mark.parametrize("quality", [0.0, 50.0, 100.0])
@pytest.mark.parametrize(
    "rates", [(44100, 16000.0), (48000, 16000.0), (16000, 14400.5), (8000, 16000.0), (16000, 48000.0)], ids=str
)
def test_resampling_of_frequencies_below_both_rates_equals_dali(rates: tuple[int, float], quality: float, dali: Any) -> None:
    rate, target = rates
    files = [encoded(below(0.3 * min(rates), rate, rate // 2, seed), rate, subtype="FLOAT") for seed in range(2)]

    ours, theirs = (
        outputs(library, lambda library, data: library.fn.decoders.audio(data, sample_rate=target, quality=quality), [files])
        for library in (OURS, dali)
    )

    assert [sample.item() for sample in ours[1].samples] == [sample.item() for sample in theirs[1].samples] == [target] * 2
    for one, other in zip(ours[0].samples, theirs[0].samples, strict=True):
        assert one.shape == other.shape
        power = np.sqrt(np.mean((one - other) ** 2) / np.mean(other**2))
        # DALI's filter of the lowest quality has three lobes, which damps high frequencies and lets images of them through.
        assert power < (0.03 if quality == 0 else 2e-3)


@pytest.mark.parametrize("quality", [0.0, 50.0, 100.0])
@pytest.mark.parametrize("rates", [(16000, 32000.0), (44100, 48000.0), (8000, 16000.5), (8000, 44100.0)], ids=str)
def test_higher_rates_keep_the_highest_frequencies_of_the_file(rates: tuple[int, float], quality: float, dali: Any) -> None:
    """DALI adds up positions in single precision, which moves them by thousandths of a sample."""
    files = [encoded(audio(5000, channels), rates[0], subtype="FLOAT") for channels in (1, 2)]

    compare(
        dali,
        lambda library, data: library.fn.decoders.audio(data, sample_rate=rates[1], quality=quality)[0],
        [files],
        bound=5e-3,
        mean=5e-4,
    )


def test_dali_folds_high_frequencies_back_and_we_do_not(dali: Any) -> None:
    tone = np.sin(2 * np.pi * 9000 / 48000 * np.arange(48000)).astype(np.float32)

    ours, theirs = (
        outputs(
            library, lambda library, data: library.fn.decoders.audio(data, sample_rate=16000.0), [[encoded(tone, 48000)]]
        )
        for library in (OURS, dali)
    )

    assert np.abs(ours[0].samples[0][200:-200]).max() < 1e-3
    assert np.abs(theirs[0].samples[0][200:-200]).max() > 0.9


@pytest.mark.parametrize("dtype", ["INT16", "INT32"])
def test_resampled_integers_are_limited_alike(dtype: str, dali: Any) -> None:
    square = np.sign(np.sin(np.arange(2000) / 20)).astype(np.float32)
    ours, theirs = (
        outputs(
            library,
            lambda library, data: library.fn.decoders.audio(data, sample_rate=16000.0, dtype=getattr(library.types, dtype)),
            [[encoded(square, 8000, subtype="FLOAT")]],
        )
        for library in (OURS, dali)
    )
    extremes = [(result[0].samples[0].min(), result[0].samples[0].max()) for result in (ours, theirs)]
    assert extremes[0] == extremes[1]


@pytest.mark.parametrize(
    "data", [b"", bytes(range(100)), encoded(SOUND)[:20].tobytes(), encoded(SOUND, format="FLAC")[:1500].tobytes()], ids=len
)
def test_damaged_files(data: bytes, dali: Any) -> None:
    for library in (OURS, dali):
        error = error_of(library, lambda library, data: library.fn.decoders.audio(data), [[np.frombuffer(data, np.uint8)]])
        assert isinstance(error, RuntimeError)


def test_files_without_samples(dali: Any) -> None:
    compare(dali, lambda library, data: library.fn.decoders.audio(data), [[encoded(SOUND[:0]), encoded(SOUND[:1])]])
