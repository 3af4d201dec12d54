"""The samples of the cases: batches of 16, small or large, of one shape or of different ones."""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["BATCH_SIZE", "KINDS", "LAYOUTS", "batch_of"]

BATCH_SIZE = 16
#: Sizes of ragged samples, as shares of the largest.
_SHARES = (1.0, 0.7, 0.85, 0.9, 0.75, 0.95, 0.8)
_RATE = 16_000

Array: TypeAlias = NDArray[Any]
Make: TypeAlias = Callable[[np.random.Generator, bool, float], Array]


def _pixels(rng: np.random.Generator, *shape: int) -> Array:
    """Return smooth images: noise neither compresses nor looks like a photograph."""
    height, width = shape[-3:-1]
    y, x = np.mgrid[:height, :width]
    waves = np.sin(y / (5 + 40 * rng.random()))[..., np.newaxis] + np.cos(x / (5 + 40 * rng.random()))[..., np.newaxis]
    noisy = 128 + 50 * waves + rng.normal(0, 6, shape)
    pixels: Array = np.clip(noisy, 0, 255).astype(np.uint8)
    return pixels


def _extent(small: bool, share: float) -> tuple[int, int]:
    height, width = (28, 36) if small else (360, 480)
    return round(height * share), round(width * share)


def _image(rng: np.random.Generator, small: bool, share: float) -> Array:
    return _pixels(rng, *_extent(small, share), 3)


def _photograph(rng: np.random.Generator, small: bool, share: float) -> Array:
    return _pixels(rng, *(round(side * share) for side in ((96, 128) if small else (480, 640))), 3)


def _float_image(rng: np.random.Generator, small: bool, share: float) -> Array:
    return _image(rng, small, share).astype(np.float32)


def _gray(rng: np.random.Generator, small: bool, share: float) -> Array:
    return _pixels(rng, *_extent(small, share), 1)


def _video(rng: np.random.Generator, small: bool, share: float) -> Array:
    return np.stack([_image(rng, small, share) for _ in range(4 if small else 6)])


def _volume(rng: np.random.Generator, small: bool, share: float) -> Array:
    depth, height, width = (6, 12, 16) if small else (16, 48, 40)
    return _pixels(rng, round(depth * share), height, width, 1)


def _jpeg(rng: np.random.Generator, small: bool, share: float) -> Array:
    import simplejpeg  # only these cases need it

    return np.frombuffer(simplejpeg.encode_jpeg(_photograph(rng, small, share), 90), np.uint8)


def _png(rng: np.random.Generator, small: bool, share: float) -> Array:
    import cv2  # only these cases need it

    encoded: Array = cv2.imencode(".png", _photograph(rng, small, share))[1].ravel()
    return encoded


def _npy(rng: np.random.Generator, small: bool, share: float) -> Array:
    file = io.BytesIO()
    np.save(file, _float_image(rng, small, share))
    return np.frombuffer(file.getvalue(), np.uint8)


def _audio(rng: np.random.Generator, small: bool, share: float) -> Array:
    count = round((_RATE // 8 if small else _RATE * 6) * share)
    sound = np.sin(np.arange(count) / (3 + 20 * rng.random())) + rng.normal(0, 0.1, count)
    sound[: count // 8] = 0  # silence at the beginning
    return (sound / 2).astype(np.float32)


def _wav(rng: np.random.Generator, small: bool, share: float) -> Array:
    import soundfile  # only this case needs it

    file = io.BytesIO()
    soundfile.write(file, _audio(rng, small, share), _RATE, format="WAV")
    return np.frombuffer(file.getvalue(), np.uint8)


def _spectrum(rng: np.random.Generator, small: bool, share: float) -> Array:
    return np.square(rng.standard_normal((257, round((12 if small else 600) * share)))).astype(np.float32)


def _mel(rng: np.random.Generator, small: bool, share: float) -> Array:
    return np.square(rng.standard_normal((64, round((12 if small else 600) * share)))).astype(np.float32)


def _boxes(rng: np.random.Generator, small: bool, share: float) -> Array:
    begin = rng.random((round((8 if small else 200) * share), 2)) / 2
    return np.concatenate([begin, begin + 0.1 + rng.random(begin.shape) * 0.4], axis=1).astype(np.float32)


def _labels_of_boxes(rng: np.random.Generator, small: bool, share: float) -> Array:
    return rng.integers(0, 20, (round((8 if small else 200) * share), 1), np.int32)


def _points(rng: np.random.Generator, small: bool, share: float) -> Array:
    return rng.standard_normal((round((16 if small else 50_000) * share), 3)).astype(np.float32)


def _numbers(rng: np.random.Generator, small: bool, share: float) -> Array:
    return rng.standard_normal((round((40 if small else 100_000) * share), 2)).astype(np.float32)


def _ids(rng: np.random.Generator, small: bool, share: float) -> Array:
    return rng.integers(0, 10, round((40 if small else 20_000) * share), np.int32)


def _label(rng: np.random.Generator, small: bool, share: float) -> Array:
    return rng.integers(0, 10, 1, np.int32)


def _table_mask(rng: np.random.Generator, small: bool, share: float) -> Array:
    return (_gray(rng, small, share)[..., 0] > 128).astype(np.int32)


def _matrix(rng: np.random.Generator, small: bool, share: float) -> Array:
    return (np.eye(2, 3) + rng.normal(0, 0.05, (2, 3))).astype(np.float32)


def _kernel(rng: np.random.Generator, small: bool, share: float) -> Array:
    return rng.random((3, 3)).astype(np.float32)


def _polygons(rng: np.random.Generator, small: bool, share: float) -> Array:
    count = round((8 if small else 200) * share)
    return np.stack([np.arange(count), np.arange(count) * 5, np.arange(count) * 5 + 5], axis=1).astype(np.int32)


def _vertices(rng: np.random.Generator, small: bool, share: float) -> Array:
    return rng.random((round((8 if small else 200) * share) * 5, 2)).astype(np.float32)


def _mask_ids(rng: np.random.Generator, small: bool, share: float) -> Array:
    return np.arange(0, round((8 if small else 200) * share), 2, dtype=np.int32)


#: Functions that make a sample of each kind, given a random generator, the size, and the fraction of the size to use.
KINDS: Mapping[str, Make] = {
    "image": _image,
    "float image": _float_image,
    "gray": _gray,
    "video": _video,
    "volume": _volume,
    "jpeg": _jpeg,
    "png": _png,
    "npy": _npy,
    "wav": _wav,
    "audio": _audio,
    "spectrum": _spectrum,
    "mel": _mel,
    "boxes": _boxes,
    "labels of boxes": _labels_of_boxes,
    "points": _points,
    "numbers": _numbers,
    "ids": _ids,
    "label": _label,
    "mask": _table_mask,
    "matrix": _matrix,
    "kernel": _kernel,
    "polygons": _polygons,
    "vertices": _vertices,
    "mask ids": _mask_ids,
}
#: Layouts of these kinds; the others have none.
LAYOUTS: Mapping[str, str] = {
    "image": "HWC",
    "float image": "HWC",
    "gray": "HWC",
    "video": "FHWC",
    "volume": "DHWC",
    "spectrum": "ft",
}


@functools.lru_cache(64)
def batch_of(kind: str, *, small: bool, ragged: bool) -> Array | Sequence[Array]:
    """Return a batch: one array, or a list of arrays of different shapes.

    Encoded samples are always a list: their lengths differ.
    """
    rng = np.random.default_rng(0)
    shares = itertools.islice(itertools.cycle(_SHARES if ragged else (1.0,)), BATCH_SIZE)
    samples = [KINDS[kind](rng, small, share) for share in shares]
    return np.stack(samples) if len({sample.shape for sample in samples}) == 1 else samples
