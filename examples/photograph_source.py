"""Sources of encoded photographs for the training examples.

Both sources are callables of a `SampleInfo`, as `fn.external_source` expects. They shuffle anew in each epoch, and end it
with the last full batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.demo_data import LabeledFiles

__all__ = ["DetectionSource", "PhotographSource", "made_up_objects"]

#: Minimum and maximum of the number of objects, and of their sides, for `made_up_objects`.
OBJECTS = (1, 4)
OBJECT_SIDE = (0.15, 0.5)
#: Number of windows to try before using the whole photograph, and their size.
WINDOW_ATTEMPTS = 20
WINDOW_SIDE = (0.5, 1.0)


class PhotographSource:
    """Returns a file and its label, as an int32 array of one element.

    Args:
        photographs: the files.
        batch_size: batch size of the pipeline; samples that do not fill a batch are left out.
        seed: seed of the order.
    """

    def __init__(self, photographs: LabeledFiles, batch_size: int, seed: int = 0) -> None:
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
        """Return the index of the file at a position of an epoch."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng((self._seed, self._epoch)).permutation(len(self._files))
        return int(self._order[position])


class DetectionSource(PhotographSource):
    """Photographs with objects, a window that contains some of them, and their boxes within the window.

    The source chooses window and mirroring, because the boxes depend on them; the pipeline applies them to the pixels.
    Random numbers depend only on the epoch and the sample. A sample consists of:

    - the encoded file: (bytes,), uint8
    - the boxes of the objects, as (left, top, right, bottom) in fractions of the window, mirrored like the image: (objects,
      4), float32
    - their labels: (objects,), int32
    - the start of the window, as (left, top) in fractions of the photograph, and its (width, height): (2,), float32
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
    """Return boxes and labels of a photograph's objects, as in `DetectionSource`, but in fractions of the whole
    photograph.
    """
    rng = np.random.default_rng(index)
    count = int(rng.integers(OBJECTS[0], OBJECTS[1] + 1))
    sides = rng.uniform(*OBJECT_SIDE, (count, 2))
    begins = rng.uniform(0, 1 - sides)
    labels = rng.integers(1, 81, count)
    return np.concatenate([begins, begins + sides], axis=1).astype(np.float32), labels.astype(np.int32)


def _window_with_objects(
    rng: np.random.Generator, boxes: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return start and size of a random window that contains the center of an object."""
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
    """Return the boxes in fractions of the window, clipped to its edges."""
    moved = ((boxes.reshape(-1, 2, 2) - anchor) / shape).clip(0, 1).reshape(-1, 4)
    return moved.astype(np.float32)
