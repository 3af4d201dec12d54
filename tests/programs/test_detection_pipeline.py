"""The input of the detection example: windows, boxes and anchors belong together."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")

from examples.detection_pipeline import SIDE, ShapeSource, anchors, detection


def first_batch(*, augment: bool) -> list[np.ndarray]:
    with detection(ShapeSource(1, 3), augment, False, batch_size=16, num_threads=1, device_id=None, seed=2) as pipe:
        return [np.array(output.as_array()) for output in pipe.run()]


@pytest.mark.parametrize("augment", [False, True])
def test_boxes_contain_the_bright_pixels(augment: bool) -> None:
    """Decoded boxes cover most bright pixels: all of them without windows, which drop objects at their borders."""
    images, offsets, labels = first_batch(augment=augment)

    assert images.shape == (16, 3, SIDE, SIDE)
    assert offsets.shape == (16, len(anchors()), 4)
    covered = bright = 0
    for image, moved, classes in zip(images, offsets, labels, strict=True):
        assert set(classes.tolist()) <= {0, 1, 2}
        assert classes.any()
        frames = anchors()[classes > 0]
        size = frames[:, 2:] - frames[:, :2]
        centers = (frames[:, :2] + frames[:, 2:]) / 2 + moved[classes > 0, :2] * 0.1 * size
        half = np.exp(moved[classes > 0, 2:] * 0.2) * size / 2
        seen = np.zeros((SIDE, SIDE), bool)
        for low, high in zip(centers - half, centers + half, strict=True):
            left, top, right, bottom = np.rint(np.concatenate([low, high]) * SIDE).astype(int)
            seen[max(top, 0) : bottom, max(left, 0) : right] = True
        pixels = image.min(0) > 0.9
        bright += pixels.sum()
        covered += (pixels & seen).sum()
    assert covered / bright > (0.75 if augment else 0.95)
