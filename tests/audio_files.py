"""Small audio files, made with soundfile."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def audio(frames: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """White noise below 0.9, of shape (frames, channels) and dtype float32."""
    return np.random.default_rng(seed).uniform(-0.9, 0.9, (frames, channels)).astype(np.float32)


def below(highest_hz: float, rate: float, frames: int, seed: int = 0) -> np.ndarray:
    """Noise without higher frequencies, which begins and ends softly, of shape (frames, 1) and dtype float32."""
    frequencies = np.fft.rfftfreq(frames, 1 / rate)
    rng = np.random.default_rng(seed)
    spectrum = (rng.normal(size=frequencies.size) + 1j * rng.normal(size=frequencies.size)) * (frequencies < highest_hz)
    signal = np.fft.irfft(spectrum, frames) * np.hanning(frames)
    return (0.5 * signal / np.abs(signal).max()).astype(np.float32)[:, np.newaxis]


def encoded(samples: np.ndarray, rate: int = 16000, format: str = "WAV", subtype: str | None = None) -> np.ndarray:
    """The bytes of an audio file."""
    import soundfile

    file: Any = io.BytesIO()
    soundfile.write(file, samples, rate, format=format, subtype=subtype)
    return np.frombuffer(file.getvalue(), np.uint8)
