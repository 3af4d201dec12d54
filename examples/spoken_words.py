"""Make audio files of words of two vowels, synthesized from harmonics of a voice and resonances of a vocal tract."""

from __future__ import annotations

import itertools
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16000
#: Resonances of English vowels in Hz, as averages of men.
_FORMANTS_HZ = {"a": (730, 1090, 2440), "i": (270, 2290, 3010), "u": (300, 870, 2240), "e": (530, 1840, 2480)}
_BANDWIDTHS_HZ = np.array([90, 110, 170])
WORDS = ["".join(pair) for pair in itertools.permutations(_FORMANTS_HZ, 2)]


def word(name: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a word, spoken by a random voice between silence, with values from -1 to 1.

    Args:
        name: two vowels.
        rng: draws pitch, length, size of the vocal tract, loudness, noise and silence.
    """
    frames = int(rng.uniform(0.3, 0.6) * RATE_HZ)
    progress = np.linspace(0, 1, frames)[:, np.newaxis]
    pitch_hz = rng.uniform(90, 250) * (1 + rng.uniform(-0.2, 0.2) * progress)
    phase = 2 * np.pi * np.cumsum(pitch_hz, axis=0) / RATE_HZ
    change = 1 / (1 + np.exp(-(progress - rng.uniform(0.4, 0.6)) * 20))
    first, second = (np.array(_FORMANTS_HZ[vowel]) * rng.uniform(0.95, 1.2) for vowel in name)
    formants_hz = first * (1 - change) + second * change
    sound = np.zeros(frames)
    for number in range(1, int(4000 / pitch_hz.max()) + 1):
        resonances = 1 / (1 + ((number * pitch_hz - formants_hz) / _BANDWIDTHS_HZ) ** 2)
        sound += (resonances.sum(axis=1) / number) * np.sin(number * phase[:, 0])
    sound *= np.sin(np.pi * progress[:, 0]) ** 0.5 * rng.uniform(0.1, 0.8) / np.abs(sound).max()
    before, after = rng.integers(RATE_HZ // 20, RATE_HZ // 3, 2)
    padded = np.pad(sound, (before, after))
    spoken: NDArray[np.float32] = (padded + rng.normal(scale=3e-4, size=padded.size)).astype(np.float32)
    return spoken


def make_folders(folder: Path, per_word: int, seed: int) -> Path:
    """Write WAV files to a sub-folder for each word, unless they exist, and return the folder.

    Args:
        folder: parent of the sub-folders.
        per_word: number of files for each word.
        seed: selects the voices.
    """
    for index, (name, number) in enumerate(itertools.product(WORDS, range(per_word))):
        path = folder / name / f"{number:04}.wav"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = word(name, np.random.default_rng([seed, index]))
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
            file.writeframes(np.round(samples * 32767).astype("<i2").tobytes())
    return folder
