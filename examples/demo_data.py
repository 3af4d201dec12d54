"""The demo's input: image files on disk, each with a label.

Three functions return `LabeledFiles`:

- `make_crops`: parts of the photographs in scikit-image and scikit-learn, as JPEG files of many sizes
- `make_digits`: scikit-learn's 1,797 handwritten digits of 8x8 pixels, as lossless PNG files
- `scan_folder`: existing images, with their sub-folders as labels

The first two write to a folder once. The list of files is written last, so a folder with a complete list is reused, and any
other folder is rewritten. Nothing is downloaded, and the same package versions create the same files.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["FolderError", "LabeledFiles", "make_crops", "make_digits", "make_folders", "packaged_photographs", "scan_folder"]

# Color photographs included in the wheels of these packages; scikit-image would download its other ones.
PACKAGED = {
    "skimage": (
        "data/astronaut.png",
        "data/chelsea.png",
        "data/coffee.png",
        "data/hubble_deep_field.jpg",
        "data/ihc.png",
        "data/motorcycle_left.png",
        "data/retina.jpg",
        "data/rocket.jpg",
    ),
    "sklearn": ("datasets/images/china.jpg", "datasets/images/flower.jpg"),
}
CROPS_PER_PHOTOGRAPH = 128
CROP_SIDE_PX = (96, 400)
JPEG_QUALITY = 90
# The digits have values from 0 to 16, which become pixels from 0 to 240.
DIGIT_SCALE = 15
FILE_LIST = "files.txt"
IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


class FolderError(ValueError):
    """The user's folder cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class LabeledFiles:
    """Image files with one label each.

    Attributes:
        files: the files, as absolute paths.
        labels: int32 array of shape (len(files),): for each file, the index of its label's name.
        names: names of the labels.
    """

    files: list[Path]
    labels: NDArray[np.int32]
    names: list[str]

    def subset(self, indices: NDArray[np.int64]) -> LabeledFiles:
        """Return the files with these indices, in this order."""
        return LabeledFiles([self.files[index] for index in indices], self.labels[indices], self.names)


def packaged_photographs() -> dict[str, Path]:
    """Return the photographs in the installed packages of `PACKAGED`, by name.

    Raises:
        FileNotFoundError: an installed package lacks one of its photographs.
    """
    photographs: dict[str, Path] = {}
    for package, members in PACKAGED.items():
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for member in members:
            path = Path(spec.origin).parent / member
            if not path.is_file():
                raise FileNotFoundError(f"{package} is installed without {path}; reinstall {package} from its wheel")
            photographs[path.stem] = path
    return photographs


def make_crops(folder: Path, photographs: Mapping[str, Path], per_photograph: int = CROPS_PER_PHOTOGRAPH) -> LabeledFiles:
    """Cut photographs into JPEG files of `CROP_SIDE_PX` pixels a side, or reuse existing files.

    Args:
        folder: folder for the files; created if missing.
        photographs: image files by name; a crop's label is the name of its photograph.
        per_photograph: number of crops from each photograph.
    """
    names = list(photographs)
    labels = [label for label in range(len(names)) for _ in range(per_photograph)]
    files = [f"{names[label]}-{i % per_photograph:03}.jpg" for i, label in enumerate(labels)]

    def encoded() -> Iterator[NDArray[Any]]:
        for label, path in enumerate(photographs.values()):
            photograph = cv2.imread(str(path), cv2.IMREAD_COLOR)
            if photograph is None:
                raise FileNotFoundError(f"{path} is missing or not an image")
            for crop in _random_crops(photograph, per_photograph, np.random.default_rng(label)):
                yield cv2.imencode(".jpg", crop, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]

    return _stored(folder, files, labels, names, encoded())


def make_digits(folder: Path) -> LabeledFiles:
    """Write scikit-learn's handwritten digits as gray PNG files, or reuse existing files.

    See https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = [int(label) for label in digits.target]
    files = [f"{label}-{i:04}.png" for i, label in enumerate(labels)]
    encoded = (cv2.imencode(".png", (image * DIGIT_SCALE).astype(np.uint8))[1] for image in digits.images)
    return _stored(folder, files, labels, [str(digit) for digit in range(10)], encoded)


def make_folders(files: LabeledFiles, root: Path) -> Path:
    """Link the files into a folder for each label, as readers of class folders expect, and return the absolute `root`."""
    root = root.resolve()
    for path, label in zip(files.files, files.labels, strict=True):
        link = root / files.names[label] / path.name
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)
    return root


def scan_folder(folder: Path, minimum: int) -> LabeledFiles:
    """Find the image files in a folder and its sub-folders; a file's label is its sub-folder of `folder`.

    Raises:
        FolderError: the folder is missing, is not a folder, or contains fewer than `minimum` images.
    """
    if not folder.is_dir():
        raise FolderError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    root = folder.resolve()
    files = sorted(path for path in root.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if len(files) < minimum:
        suffixes = " ".join(sorted(IMAGE_SUFFIXES))
        raise FolderError(f"{folder} holds {len(files)} images, and one batch needs {minimum} (counted: {suffixes})")
    inside = [path.relative_to(root).parts for path in files]
    labels = [parts[0] if len(parts) > 1 else root.name for parts in inside]
    names = sorted(set(labels))
    number = {name: i for i, name in enumerate(names)}
    return LabeledFiles(files, np.array([number[label] for label in labels], np.int32), names)


def _random_crops(photograph: NDArray[Any], count: int, rng: np.random.Generator) -> Iterator[NDArray[Any]]:
    smallest, largest = CROP_SIDE_PX
    for _ in range(count):
        height, width = (int(rng.integers(smallest, min(largest, side) + 1)) for side in photograph.shape[:2])
        top = int(rng.integers(photograph.shape[0] - height + 1))
        left = int(rng.integers(photograph.shape[1] - width + 1))
        yield photograph[top : top + height, left : left + width]


def _stored(
    folder: Path, files: list[str], labels: list[int], names: list[str], encoded: Iterable[NDArray[Any]]
) -> LabeledFiles:
    """Write the `encoded` files. They are not computed if the folder already lists and contains all of them."""
    folder = folder.resolve()
    paths = [folder / file for file in files]
    listing = "".join(f"{file}\t{names[label]}\n" for file, label in zip(files, labels, strict=True))
    file_list = folder / FILE_LIST
    listed = file_list.is_file() and file_list.read_text("utf-8") == listing
    if not (listed and all(path.is_file() for path in paths)):
        folder.mkdir(parents=True, exist_ok=True)
        file_list.unlink(missing_ok=True)
        for path, content in zip(paths, encoded, strict=True):
            path.write_bytes(content.tobytes())
        file_list.write_text(listing, "utf-8")
    return LabeledFiles(paths, np.array(labels, np.int32), names)
