"""The speech example runs as a program, and computes log-mel features as a plain NumPy program does."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("soundfile")

import soundfile

from examples.speech_pipeline import BANDS, RATE_HZ, WINDOWS, log_mel
from examples.spoken_words import WORDS, make_folders

ROOT = Path(__file__).resolve().parents[2]


def test_speech_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "examples.speech_pipeline", "--epochs", "1", "--per-word", "1"]

    finished = subprocess.run(
        [*command, "--workers", "1", "--scratch", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (finished.returncode, finished.stderr) == (0, "")
    assert [line.split()[:3] for line in finished.stdout.splitlines()] == [["epoch", "words", "each"], ["0", "12", "64x80"]]


def test_features(tmp_path: Path) -> None:
    folder = make_folders(tmp_path, 1, seed=3)
    with closing(log_mel(str(folder), False, batch_size=len(WORDS), num_threads=1, device_id=None)) as pipe:
        features, labels = ([np.array(output.at(i)) for i in range(len(output))] for output in pipe.run())

    assert [label.item() for label in labels] == list(range(len(WORDS)))
    for name, result in zip(sorted(WORDS), features, strict=True):
        samples, rate = soundfile.read(folder / name / "0000.wav", dtype="float32")
        assert rate == RATE_HZ
        expected = by_numpy(samples)[:, :WINDOWS]
        assert result.shape == (BANDS, WINDOWS)
        np.testing.assert_allclose(result[:, : expected.shape[1]], expected, atol=1e-3)
        assert not result[:, expected.shape[1] :].any()


def by_numpy(samples: np.ndarray) -> np.ndarray:
    """Return the normalized logarithms of mel bands of a recording, from beginning to end of the word."""
    power = np.convolve(samples.astype(np.float64) ** 2, np.ones(512), "valid")
    loud = np.flatnonzero(power >= power.max() * 1e-4)
    sound = samples[loud[0] : loud[-1] + 512]
    sound = sound - 0.97 * np.concatenate([sound[:1], sound[:-1]])
    padded = np.pad(sound, 200, "reflect")
    hann = np.sin(np.pi * (np.arange(400) + 0.5) / 400) ** 2
    windows = [padded[begin : begin + 400] * hann for begin in range(0, len(sound) + 1, 160)]
    spectra = np.abs(np.fft.rfft(windows, 512)) ** 2
    low, high = mel(np.array([60, RATE_HZ / 2]))
    edges = np.interp(np.linspace(low, high, BANDS + 2), mel(hertz := np.linspace(0, 8000, 80001)), hertz)
    frequencies = np.linspace(0, RATE_HZ / 2, 257)
    triangles = [np.interp(frequencies, edges[i : i + 3], [0, 2 / (edges[i + 2] - edges[i]), 0]) for i in range(BANDS)]
    bands = np.array(triangles) @ spectra.T
    decibels = 10 * np.log10(np.maximum(bands / bands.max(), 1e-8))
    return (decibels - decibels.mean(axis=1, keepdims=True)) / decibels.std(axis=1, keepdims=True)


def mel(frequency: np.ndarray) -> np.ndarray:
    """Slaney's scale: linear to 1000 Hz, then logarithmic."""
    return np.where(
        frequency < 1000, frequency * 3 / 200, 15 + 27 * np.log(np.maximum(frequency, 1000) / 1000) / np.log(6.4)
    )
