"""The files: JPEGs of random parts of the photographs that come with scikit-image and scikit-learn."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from examples.demo_data import LabeledFiles, packaged_photographs

__all__ = ["FOLDER", "make_photographs"]

FOLDER = Path("build/benchmarks/photographs")
JPEG_QUALITY = 90


def make_photographs(sides: tuple[int, int], per_photograph: int, folder: Path = FOLDER) -> LabeledFiles:
    """Return files of the given sizes, created on first use; small photographs are enlarged.

    Args:
        sides: minimum and maximum of height and width, in pixels.
        per_photograph: number of files of each photograph, whose number is their label.
    """
    photographs = packaged_photographs()
    folder = folder.resolve() / f"{sides[0]}-{sides[1]}"
    files = [folder / f"{name}-{i:03}.jpg" for name in photographs for i in range(per_photograph)]
    labels = np.repeat(np.arange(len(photographs), dtype=np.int32), per_photograph)
    if not all(file.exists() for file in files):
        folder.mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(photographs.values()):
            _cut_up(path, files[number * per_photograph : (number + 1) * per_photograph], sides, number)
    return LabeledFiles(files, labels, list(photographs))


def _cut_up(photograph: Path, files: list[Path], sides: tuple[int, int], seed: int) -> None:
    image = cv2.imread(str(photograph))
    assert image is not None
    scale = sides[1] / min(image.shape[:2])
    if scale > 1:
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    rng = np.random.default_rng(seed)
    for file in files:
        height, width = rng.integers(sides[0], sides[1], 2, endpoint=True)
        top, left = (
            int(rng.integers(0, whole - part, endpoint=True))
            for whole, part in zip(image.shape, (height, width), strict=False)
        )
        part = image[top : top + height, left : left + width]
        file.write_bytes(cv2.imencode(".jpg", part, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes())
