"""Datasets of files with one folder per class, with the names and arguments of ``torchvision.datasets``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.common.foreign_errors import add_note
from dali_like.common.suggestions import suggest_arguments
from dali_like.data.datasets import Dataset
from dali_like.errors import ArgumentError, DecodeError, FolderError
from dali_like.images.decode import decode_image

__all__ = ["IMG_EXTENSIONS", "DatasetFolder", "ImageFolder", "default_loader"]

#: Suffixes of image files for `ImageFolder`, in lower or upper case.
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

#: The first bytes of files of the portable pixmap formats.
_PIXMAPS = tuple(f"P{number}".encode() for number in range(1, 7))

_IsValid = Callable[[str], bool]


def default_loader(path: str) -> NDArray[np.uint8]:
    """Read an image as an RGB array of shape (height, width, 3) and dtype uint8.

    Gray is repeated, alpha is dropped, and the EXIF orientation is ignored, as in Pillow's
    ``Image.open(path).convert("RGB")``.

    Args:
        path: a JPEG, PNG, WebP, BMP, TIFF, PPM or PGM file.

    Raises:
        DecodeError: the image cannot be decoded.
        MissingExtraError: simplejpeg or OpenCV is not installed.
    """
    encoded = np.fromfile(path, np.uint8)
    try:
        if encoded[:2].tobytes() in _PIXMAPS:
            return _decode_pixmap(encoded)
        return decode_image(encoded, adjust_orientation=False)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from None


class DatasetFolder(Dataset[tuple[Any, Any]]):
    """Files in folders: each folder in the root is a class, and the files in it, at any depth, are its samples.

    A sample is a pair: the result of `loader`, and the number of the class. Classes are numbered in the order of their
    names, and samples are ordered by class and path.

    Args:
        root: the folder.
        loader: returns the sample of a path.
        extensions: suffixes of the files to use, in lower case, such as ``(".npy",)``.
        transform: called with each sample; its result replaces the sample.
        target_transform: called with the number of the class; its result replaces the number.
        is_valid_file: returns whether to use the file of a path. Either this or `extensions`.
        allow_empty: whether classes without files are allowed.

    Attributes:
        classes: the names of the classes, sorted.
        class_to_idx: the number of each class, by name.
        samples: the path and the number of the class of each sample.
        targets: the number of the class of each sample.

    Raises:
        FolderError: the root has no folders; or a folder has no files, without `allow_empty`.
        ArgumentError: both or none of `extensions` and `is_valid_file` are given.

    Subclasses may override ``find_classes`` and ``make_dataset``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for path in (Path(root, "cat", "1.npy"), Path(root, "dog", "old", "2.npy")):
    ...         path.parent.mkdir(parents=True)
    ...         np.save(path, np.arange(int(path.stem)))
    ...     dataset = DatasetFolder(root, loader=np.load, extensions=(".npy",))
    ...     dataset.class_to_idx, dataset[1]
    ({'cat': 0, 'dog': 1}, (array([0, 1]), 1))
    """

    @suggest_arguments
    def __init__(
        self,
        root: str | Path,
        loader: Callable[[str], Any],
        extensions: str | tuple[str, ...] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        is_valid_file: _IsValid | None = None,
        allow_empty: bool = False,
    ) -> None:
        self.root = os.path.expanduser(root)
        self.loader = loader
        self.extensions = extensions
        self.transform = transform
        self.target_transform = target_transform
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """Return the names of the classes, and the number of each. Subclasses may omit some, or find them elsewhere.

        Raises:
            FolderError: there are no classes.
        """
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not classes:
            raise FolderError(f"Couldn't find any class folder in {directory}.")
        return classes, {name: number for number, name in enumerate(classes)}

    @staticmethod
    def make_dataset(
        directory: str | Path,
        class_to_idx: dict[str, int],
        extensions: str | tuple[str, ...] | None = None,
        is_valid_file: _IsValid | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """Return the path and the number of the class of each sample.

        Raises:
            FolderError, ArgumentError: see the class.
        """
        if not class_to_idx:
            raise ArgumentError("'class_to_index' must have at least one entry to collect any samples.")
        is_valid = _file_test(extensions, is_valid_file)
        root = os.path.expanduser(directory)
        files = {name: list(filter(is_valid, _files(os.path.join(root, name)))) for name in sorted(class_to_idx)}
        empty = [name for name, paths in files.items() if not paths]
        if empty and not allow_empty:
            raise FolderError(_without_files(empty, extensions))
        return [(path, class_to_idx[name]) for name, paths in files.items() for path in paths]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        try:
            sample = self.loader(path)
            if self.transform is not None:
                sample = self.transform(sample)
        except Exception as error:
            if path not in str(error):
                add_note(error, f"raised for the file {path}")
            raise
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        lines = [f"Dataset {type(self).__name__}", f"Number of datapoints: {len(self)}", f"Root location: {self.root}"]
        named = {"Transform": self.transform, "Target transform": self.target_transform}
        lines += [f"{name}: {transform!r}" for name, transform in named.items() if transform is not None]
        return "\n    ".join(line.replace("\n", "\n    ") for line in lines)


class ImageFolder(DatasetFolder):
    """Images in folders, one folder for each class, such as ``root/cat/1.jpg`` and ``root/dog/old/2.png``.

    Args:
        root: the folder.
        transform: called with each image, an RGB array of shape (height, width, 3) and dtype uint8; its result replaces the
            image.
        target_transform: called with the number of the class; its result replaces the number.
        loader: returns the image of a path.
        is_valid_file: returns whether to use the file of a path. None: use the suffixes in `IMG_EXTENSIONS`.
        allow_empty: whether classes without images are allowed.

    Attributes:
        imgs: the same as the attribute `samples` of `DatasetFolder`.

    Raises:
        FolderError: the root has no folders; or a folder has no images, without `allow_empty`.
    """

    @suggest_arguments
    def __init__(
        self,
        root: str | Path,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: _IsValid | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples


def _decode_pixmap(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    cv2 = optional("cv2", "decoding images", "images")
    try:
        pixels: NDArray[np.uint8] | None = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
    except cv2.error:
        pixels = None
    if pixels is None:
        raise DecodeError(f"invalid PPM or PGM image of {encoded.size} bytes; its first bytes are those of the format")
    return np.ascontiguousarray(pixels[:, :, ::-1])


def _files(directory: str) -> Iterator[str]:
    """Yield the files below a folder, sorted by folder and name. Follow symbolic links."""
    for folder, _, names in sorted(os.walk(directory, followlinks=True)):
        for name in sorted(names):
            yield os.path.join(folder, name)


def _file_test(extensions: str | tuple[str, ...] | None, is_valid_file: _IsValid | None) -> _IsValid:
    if extensions is not None and is_valid_file is None:
        ends = extensions if isinstance(extensions, str) else tuple(extensions)
        return lambda path: path.lower().endswith(ends)
    if extensions is None and is_valid_file is not None:
        return is_valid_file
    raise ArgumentError("Both extensions and is_valid_file cannot be None or not None at the same time")


def _without_files(classes: list[str], extensions: str | tuple[str, ...] | None) -> str:
    message = f"Found no valid file for the classes {', '.join(classes)}. "
    if extensions is None:
        return message
    return f"{message}Supported extensions are: {extensions if isinstance(extensions, str) else ', '.join(extensions)}"
