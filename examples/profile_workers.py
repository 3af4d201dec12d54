"""Find the line that takes the workers' time: a sampling profile of a dataset that decodes, blurs and normalizes pictures.

    python -m examples.profile_workers [profile.json]

Prints the hottest lines with their callers, and writes the profile; ``dali-like view profile.json`` shows it as a flame
graph. ``dali-like run --profile profile.json train.py`` profiles a program as it is. Requires Pillow.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from dali_like.data import DataLoader
from dali_like.monitor.profile.profile import Profile

SIDE = 256


class Photographs:
    """Encoded pictures in memory, which the workers decode, blur and normalize."""

    def __init__(self, count: int = 64) -> None:
        rng = np.random.default_rng(0)
        self.encoded = []
        for _ in range(count):
            coarse = rng.integers(0, 256, (SIDE // 8, SIDE // 8, 3), np.uint8)
            file = io.BytesIO()
            Image.fromarray(coarse).resize((2 * SIDE, 2 * SIDE)).save(file, "JPEG")
            self.encoded.append(file.getvalue())

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, index: int) -> Any:
        picture = decode(self.encoded[index])
        blurred = picture.filter(ImageFilter.GaussianBlur(3))
        return normalize(np.asarray(blurred))


def decode(encoded: bytes) -> Image.Image:
    """Decode and scale a picture."""
    return Image.open(io.BytesIO(encoded)).convert("RGB").resize((SIDE, SIDE))


def normalize(pixels: Any) -> Any:
    """Return pixels from -1 to 1."""
    return (pixels / np.float32(127.5) - 1).transpose(2, 0, 1)


def profiled(path: Path, epochs: int = 4) -> Profile:
    """Load some epochs, and write the profile of the workers to a file."""
    loader = DataLoader(Photographs(), 8, num_workers=2, persistent_workers=True)
    with loader.profile(path) as profiling:
        for _ in range(epochs):
            for _ in loader:
                pass
    print(profiling)
    return profiling.profile


def main() -> None:
    """Profile, and print the hottest lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", type=Path, default=Path("profile.json"), help="default: %(default)s")
    profiled(parser.parse_args().profile)


if __name__ == "__main__":
    main()
