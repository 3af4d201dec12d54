"""Input of a detector: pictures of made-up shapes, random windows by the overlap with their boxes, and encoded boxes.

The pictures are drawn in the source. Operators choose a window with objects in it, transform boxes and pixels alike, and
assign the boxes to anchors, as for an SSD. Everything runs in the workers. The import
``from nvidia.dali import fn, pipeline_def, types`` makes the pipeline one of NVIDIA DALI.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like import fn, pipeline_def, types

SIDE = 64
#: Labels of boxes and disks; 0 is the background.
BOX, DISK = 1, 2
#: Side of the grid of anchors, and sides of the anchors at each place, as fractions of the image.
GRID = 8
SIDES = (0.25, 0.45)


def anchors() -> NDArray[np.float32]:
    """Return the anchors, as (left, top, right, bottom) in fractions of the image: row by row, for each place by size."""
    centers = (np.arange(GRID) + 0.5) / GRID
    rows, columns, sides = np.meshgrid(centers, centers, SIDES, indexing="ij")
    corners = [columns - sides / 2, rows - sides / 2, columns + sides / 2, rows + sides / 2]
    return np.stack(corners, axis=-1).reshape(-1, 4).astype(np.float32)


class ShapeSource:
    """Pictures with one to three boxes and disks on noise; each depends on its position alone.

    A sample consists of the picture, (SIDE, SIDE, 3), uint8; the bounding boxes as (left, top, right, bottom) in fractions
    of the picture, (objects, 4), float32; and their labels, (objects,), int32.
    """

    def __init__(self, batches: int, seed: int) -> None:
        self._batches = batches
        self._seed = seed

    def __call__(self, sample: Any) -> tuple[NDArray[Any], ...]:
        if sample.iteration >= self._batches:
            raise StopIteration
        rng = np.random.default_rng((self._seed, sample.epoch_idx, sample.idx_in_epoch))
        picture = rng.integers(0, 60, (SIDE, SIDE, 3), np.uint8)
        boxes, labels = [], []
        for _ in range(int(rng.integers(1, 4))):
            side = int(rng.integers(14, 30))
            left, top = rng.integers(0, SIDE - side, 2).tolist()
            label = int(rng.integers(BOX, DISK + 1))
            part = picture[top : top + side, left : left + side]
            part[_inside(label, side)] = rng.integers(120, 256, 3)
            boxes.append([left, top, left + side, top + side])
            labels.append(label)
        return picture, np.array(boxes, np.float32) / SIDE, np.array(labels, np.int32)


def _inside(label: int, side: int) -> NDArray[np.bool_]:
    """Return the pixels of a shape."""
    if label == BOX:
        return np.ones((side, side), np.bool_)
    rows, columns = np.ogrid[:side, :side]
    middle = (side - 1) / 2
    return np.asarray((rows - middle) ** 2 + (columns - middle) ** 2 <= (side / 2) ** 2)


@pipeline_def  # type: ignore[untyped-decorator,unused-ignore]
def detection(source: ShapeSource, augment: bool, parallel: bool = True) -> Any:
    """Define a pipeline of images of shape (3, SIDE, SIDE), float32; offsets of the boxes from their anchors, (anchors, 4),
    float32; and the label of each anchor, (anchors,), int32.

    Args:
        source: source of pictures, boxes and labels.
        augment: whether to take random windows, and to mirror them.
        parallel: whether worker processes call the source and apply the operators.
    """
    images, boxes, labels = fn.external_source(
        source=source,
        num_outputs=3,
        batch=False,
        parallel=parallel,
        dtype=[types.UINT8, types.FLOAT, types.INT32],
        layout=["HWC", "", ""],
    )
    if augment:
        window: Any = fn.random_bbox_crop(
            boxes,
            labels,
            thresholds=[0.0, 0.1],
            scaling=[0.7, 1.0],
            aspect_ratio=[0.8, 1.25],
            num_attempts=10,
            total_num_attempts=50,
        )
        starts, shapes, boxes, labels = window
        images = fn.slice(images, starts, shapes)
        images = fn.resize(images, size=[SIDE, SIDE])
        mirrored = fn.random.coin_flip()
        images = fn.flip(images, horizontal=mirrored)
        boxes = fn.bb_flip(boxes, horizontal=mirrored, ltrb=True)
    frames = anchors().ravel().tolist()
    offsets, classes = fn.box_encoder(boxes, labels, anchors=frames, offset=True, stds=[0.1, 0.1, 0.2, 0.2])
    images = fn.crop_mirror_normalize(images, mean=64.0, std=64.0, dtype=types.FLOAT, output_layout="CHW")
    return images, offsets, classes
