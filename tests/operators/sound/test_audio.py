"""``fn.decoders.audio``: formats, downmixing, resampling, damaged files. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from dali_like import fn, types
from dali_like.errors import ArgumentError, DecodeError, MissingExtraError, SampleError, SampleTypeError
from tests.audio_files import audio, below, encoded
from tests.operators.running import WAYS, run


def decode(*files: np.ndarray, way: str = "threads", **arguments: Any) -> list[tuple[np.ndarray, float]]:
    """Samples and rate of each file."""
    [[samples, rates]] = run(lambda data: fn.decoders.audio(data, **arguments), files, way=way)
    return [(each, rate.item()) for each, rate in zip(samples, rates, strict=True)]


@pytest.mark.parametrize("way", WAYS)
def test_several_files_of_a_batch(way: str) -> None:
    files = [encoded(audio(50, 2), 8000), encoded(audio(70, 1), 16000, "FLAC")]
    (first, first_rate), (second, second_rate) = decode(*files, way=way)

    np.testing.assert_allclose(first, audio(50, 2), atol=1e-4)
    np.testing.assert_allclose(second, audio(70, 1), atol=1e-4)
    assert (first_rate, second_rate) == (8000, 16000)


@pytest.mark.parametrize(
    ("format", "subtype"),
    [("WAV", "FLOAT"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None), ("AIFF", None)],
)
def test_formats(format: str, subtype: str | None) -> None:
    sound = below(2000, 48000, 4800)
    [(samples, rate)] = decode(encoded(sound, 48000, format, subtype))

    assert (rate, samples.dtype, samples.shape[1]) == (48000, np.float32, 1)
    length = min(len(samples), len(sound))
    assert np.abs(samples[:length] - sound[:length]).mean() < 0.02 or format == "MP3"  # which begins with a delay
    assert 0.3 < samples.max() < 0.7


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [0, 8000, 22050])
@pytest.mark.parametrize("downmix", [False, True])
@pytest.mark.parametrize("dtype", [types.INT16, types.INT32, types.FLOAT])
def test_plain_wav_files_are_those_of_soundfile(channels: int, rate: float, downmix: bool, dtype: Any) -> None:
    plain = encoded(audio(500, channels), 16000, "WAV", "PCM_16")
    # soundfile reads all that is not plain, such as a chunk of another length.
    other = np.concatenate([plain[:16], np.uint8([18, 0, 0, 0]), plain[20:36], np.uint8([0, 0]), plain[36:]])
    other[4:8] = np.array([other.size - 8], "<u4").view(np.uint8)

    (ours, ours_rate), (theirs, theirs_rate) = decode(plain, other, sample_rate=rate, downmix=downmix, dtype=dtype)

    assert (ours_rate, ours.dtype, ours.shape) == (theirs_rate, theirs.dtype, theirs.shape)
    assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize(("dtype", "scale"), [(types.INT16, 1 << 15), (types.INT32, 1 << 31), (types.FLOAT, 1)])
def test_types(dtype: Any, scale: int) -> None:
    [(samples, _)] = decode(encoded(audio(100, 2)), dtype=dtype)

    np.testing.assert_allclose(samples / scale, audio(100, 2), atol=2 / (1 << 15))


def test_downmixing() -> None:
    [(samples, _)] = decode(encoded(audio(100, 3)), downmix=True)

    np.testing.assert_allclose(samples, audio(100, 3).mean(axis=1), atol=1e-4)
    assert decode(encoded(audio(100, 1)), downmix=True)[0][0].shape == (100,)


@pytest.mark.parametrize("target", [8000, 44100, 11025.5])
@pytest.mark.parametrize("quality", [0, 50, 100])
def test_resampling_keeps_frequencies_that_both_rates_can_hold(quality: float, target: float) -> None:
    sound = below(2500, 16000, 16000)
    [(there, rate)] = decode(encoded(sound, subtype="FLOAT"), sample_rate=target, quality=quality)
    assert (there.shape, rate) == ((int(np.ceil(target)), 1), target)

    if float(target).is_integer():
        [(back, _)] = decode(encoded(there, int(target), subtype="FLOAT"), sample_rate=16000.0, quality=quality)
        # The filter of 3 lobes lets images of frequencies through.
        np.testing.assert_allclose(back, sound, atol=2e-2 if quality == 0 else 2e-3)


def test_rates_by_sample() -> None:
    files = [encoded(audio(1600))] * 3
    given = [np.float32(8000), np.float32(0), np.float32(16000)]
    [[samples, rates]] = run(lambda data, rate: fn.decoders.audio(data, sample_rate=rate), files, given)

    assert [len(each) for each in samples] == [800, 1600, 1600]
    assert [rate.item() for rate in rates] == [8000, 16000, 16000]


def test_integers_are_limited() -> None:
    square = np.sign(np.sin(np.arange(2000) / 20)).astype(np.float32)
    [(samples, _)] = decode(encoded(square, 8000, subtype="FLOAT"), sample_rate=16000, dtype=types.INT32)

    assert (samples.min(), samples.max()) == (-(1 << 31), (1 << 31) - 1)


def test_audio_without_samples() -> None:
    empty = encoded(audio(0, 2))
    assert decode(empty)[0][0].shape == (0, 2)
    assert decode(empty, downmix=True, sample_rate=1000)[0][0].shape == (0,)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros(0, np.uint8), "cannot decode audio: "),
        (np.arange(100, dtype=np.uint8), "cannot decode audio: Format not recognised"),
        (encoded(audio(100))[:20], "cannot decode audio"),
        (encoded(audio(1000), 16000, "FLAC")[:1500], "cannot decode audio: .*flac"),
        (encoded(audio(30000), 48000, "MP3")[:6000], "damaged or truncated: only .* of 30000 frames"),
    ],
)
def test_damaged_files(data: np.ndarray, message: str) -> None:
    with pytest.raises(DecodeError, match=message) as caught:
        decode(data)
    assert "sample 0" in "".join(caught.value.__notes__)


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"dtype must be .* one of INT16, INT32, FLOAT"):
        decode(encoded(audio(1)), dtype=types.FLOAT64)
    with pytest.raises(ArgumentError, match="quality must be a number from 0 to 100"):
        decode(encoded(audio(1)), quality=101)
    with pytest.raises(SampleTypeError, match="must be a one-dimensional uint8 array"):
        decode(np.zeros(3, np.float32))


def test_libraries_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    file, flac = encoded(audio(100)), encoded(audio(100), format="FLAC")
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(MissingExtraError, match="Resampling audio needs soxr: pip install 'soundfile"):
        decode(file, sample_rate=8000)
    assert len(decode(file)) == 1
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert len(decode(file)) == 1  # WAV with 16 bits needs no library
    with pytest.raises(MissingExtraError, match="Decoding audio needs soundfile: pip install"):
        decode(flac)


@pytest.mark.parametrize("rate", [1e-9, 0.5, 1e12, float("inf"), float("nan")])
def test_rates_that_would_take_for_ever_or_all_memory_are_refused(rate: float) -> None:
    file = encoded(audio(50), 8000)

    with pytest.raises(ArgumentError, match=r"fn.decoders.audio: sample_rate must be a number in Hz from 1 to 10 million"):
        decode(file, sample_rate=rate)
    with pytest.raises(SampleError, match="sample_rate must be a number in Hz from 1 to 10 million"):
        run(lambda data, rates: fn.decoders.audio(data, sample_rate=rates), [file], [np.float64(rate)])
    with pytest.raises(ArgumentError, match="sample_rate must be 0, for the rate of the file, or from 1 to 10,000,000 Hz"):
        fn.readers.nemo_asr(manifest_filepaths="a", sample_rate=rate)


def test_the_lowest_and_the_highest_rate() -> None:
    [(low, _)] = decode(encoded(audio(8000), 8000), sample_rate=1)
    [(high, _)] = decode(encoded(audio(8), 8000), sample_rate=10_000_000)

    assert (len(low), len(high)) == (1, 10_000)
