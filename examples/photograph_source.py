"""Photographs as the examples feed them to their pipelines: encoded, as they lie on disk.

Both sources are callables of a `SampleInfo`, which is all that `fn.external_source` wants of them: they are shuffled anew in
each epoch, and end it with the last full batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.demo_data import LabelledFiles

__all__ = ["DetectionSource", "PhotographSource", "made_up_objects"]

#: Of `made_up_objects`.
OBJECTS = (1, 4)
OBJECT_SIDE = (0.15, 0.5)
#: Windows that are tried before the whole photograph is taken, and how large they are.
WINDOW_ATTEMPTS = 20
WINDOW_SIDE = (0.5, 1.0)


class PhotographSource:
    """A file and its label, as an int32 array of one element.

    Args:
        photographs: the files.
        batch_size: of the pipeline; samples that do not make a full batch are left out.
        seed: of the order.
    """

    def __init__(self, photographs: LabelledFiles, batch_size: int, seed: int = 0) -> None:
        self._files = photographs.files
        self._labels = photographs.labels
        self._seed = seed
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self.batches = len(photographs.files) // batch_size

    def __call__(self, sample: Any) -> tuple[NDArray[Any], ...]:
        if sample.iteration >= self.batches:
            raise StopIteration
        index = self._index(sample.epoch_idx, sample.idx_in_epoch)
        return np.fromfile(self._files[index], np.uint8), self._labels[index : index + 1]

    def _index(self, epoch: int, position: int) -> int:
        """Which file is at a position of an epoch."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng((self._seed, self._epoch)).permutation(len(self._files))
        return int(self._order[position])


class DetectionSource(PhotographSource):
    """Photographs with objects, a window that has some of these in it, and their boxes within the window.

    The window and the mirroring are chosen here, since what becomes of the boxes depends on them. The pixels are left to
    the pipeline. Random numbers depend on the epoch and the sample alone. A sample consists of:

    - the encoded file: (bytes,), uint8
    - the boxes of the objects, as (left, top, right, bottom) in parts of the window, and mirrored if that is: (objects, 4),
      float32
    - their labels: (objects,), int32
    - where the window begins, as (left, top) in parts of the photograph, and its (width, height), likewise: (2,), float32
    - whether left and right are exchanged, 0 or 1: no dimensions, int32
    """

    def __call__(self, sample: Any) -> tuple[NDArray[Any], ...]:
        if sample.iteration >= self.batches:
            raise StopIteration
        index = self._index(sample.epoch_idx, sample.idx_in_epoch)
        boxes, labels = made_up_objects(index)
        rng = np.random.default_rng((self._seed, sample.epoch_idx, sample.idx_in_epoch))
        anchor, shape = _window_with_objects(rng, boxes)
        kept = _inside(_centers(boxes), anchor, shape)
        moved = _within_window(boxes[kept], anchor, shape)
        mirrored = int(rng.integers(2))
        if mirrored:
            moved[:, [0, 2]] = 1 - moved[:, [2, 0]]
        file = np.fromfile(self._files[index], np.uint8)
        return file, moved, labels[kept], anchor, shape, np.array(mirrored, np.int32)


def made_up_objects(index: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Boxes and labels of a photograph's objects, as `DetectionSource` has them, but in parts of the whole photograph."""
    rng = np.random.default_rng(index)
    count = int(rng.integers(OBJECTS[0], OBJECTS[1] + 1))
    sides = rng.uniform(*OBJECT_SIDE, (count, 2))
    begins = rng.uniform(0, 1 - sides)
    labels = rng.integers(1, 81, count)
    return np.concatenate([begins, begins + sides], axis=1).astype(np.float32), labels.astype(np.int32)


def _window_with_objects(
    rng: np.random.Generator, boxes: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Where a random window begins that has the center of an object in it, and how large it is."""
    for _ in range(WINDOW_ATTEMPTS):
        shape = rng.uniform(*WINDOW_SIDE, 2).astype(np.float32)
        anchor = (rng.random(2) * (1 - shape)).astype(np.float32)
        if _inside(_centers(boxes), anchor, shape).any():
            return anchor, shape
    return np.zeros(2, np.float32), np.ones(2, np.float32)


def _centers(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    return ((boxes[:, :2] + boxes[:, 2:]) / 2).astype(np.float32)


def _inside(points: NDArray[np.float32], anchor: NDArray[np.float32], shape: NDArray[np.float32]) -> NDArray[np.bool_]:
    inside = (points >= anchor) & (points < anchor + shape)
    return inside[:, 0] & inside[:, 1]


def _within_window(
    boxes: NDArray[np.float32], anchor: NDArray[np.float32], shape: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The boxes in parts of the window, cut off at its edges."""
    moved = ((boxes.reshape(-1, 2, 2) - anchor) / shape).clip(0, 1).reshape(-1, 4)
    return moved.astype(np.float32)
