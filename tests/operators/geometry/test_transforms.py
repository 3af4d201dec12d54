"""Transforms, points and displaced images: tests that have no counterpart among DALI's CPU operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import fn, ops, pipeline_def
from dali_like.errors import DaliLikeError, SampleError
from tests.operators.running import run

pytest.importorskip("cv2")

IMAGE = np.arange(20 * 24 * 3, dtype=np.uint32).reshape(20, 24, 3).astype(np.uint8)


def single(define, *inputs, layouts=()):
    return run(define, *([value] for value in inputs), layouts=layouts)[0][0][0]


def test_a_class_makes_the_same_matrix():
    @pipeline_def(batch_size=1)
    def program():
        return fn.transforms.rotation(angle=30.0), ops.transforms.Rotation(angle=30.0)()

    with program() as pipe:
        one, other = (np.array(batch[0]) for batch in pipe.run())

    assert np.array_equal(one, other)


def test_angles_are_exact():
    assert single(lambda _: fn.transforms.rotation(angle=90.0), IMAGE) == pytest.approx(
        np.array([[0, -1, 0], [1, 0, 0]]), abs=1e-7
    )


@pytest.mark.parametrize("operator", ["sphere", "water", "jitter"])
def test_mask_zero_leaves_images(operator):
    assert np.array_equal(single(lambda node: getattr(fn, operator)(node, mask=0), IMAGE, layouts=["HWC"]), IMAGE)


def test_jitter_moves_pixels_evenly_and_not_far():
    rows, columns = np.mgrid[:60, :70].astype(np.float32)
    image = np.stack([rows, columns], -1)
    moved = single(lambda node: fn.jitter(node, nDegree=4, seed=3, fill_value=-1.0), image, layouts=["HWC"])
    inner = (moved - image)[2:-2, 2:-2].reshape(-1, 2)

    for direction in inner.T:
        values, counts = np.unique(direction, return_counts=True)
        assert values.tolist() == [-2, -1, 0, 1, 2]
        assert np.abs(counts / len(inner) - 0.2).max() < 0.04
    assert abs(np.corrcoef(inner.T)[0, 1]) < 0.06


@pytest.mark.parametrize(("origin", "shift"), [("center", 0.0), ("corner", 0.5)])
def test_remap_takes_pixels_from_their_positions(origin, shift):
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(-2, 22, (9, 8)), rng.integers(-2, 26, (9, 8))
    result = single(
        lambda image, x, y: fn.experimental.remap(image, x, y, pixel_origin=origin),
        IMAGE,
        (columns + shift).astype(np.float32),
        (rows + shift).astype(np.float32),
        layouts=["HWC"],
    )
    inside = (rows >= 0) & (rows < 20) & (columns >= 0) & (columns < 24)

    assert np.array_equal(result, np.where(inside[..., None], IMAGE[rows.clip(0, 19), columns.clip(0, 23)], 0))


def test_remap_of_sequences_has_a_map_for_each_frame():
    film = np.stack([IMAGE, IMAGE[::-1]])
    y, x = np.mgrid[:20, :24].astype(np.float32) + 0.5
    maps = np.stack([x, x[:, ::-1]])
    result = single(fn.experimental.remap, film, maps, np.stack([y, y]), layouts=["FHWC", "FHW", "FHW"])

    assert np.array_equal(result, np.stack([film[0], film[1][:, ::-1]]))


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda node: fn.transforms.translation(node, offset=(1, 2)), "must be of dtype float32"),
        (lambda node: fn.transforms.rotation(angle=1.0, axis=(0, 0, 0)), "axis must have 3 elements"),
        (lambda node: fn.transforms.shear(), "pass either shear or angles"),
        (lambda node: fn.coord_transform(node, M=(1, 2)), "rows of 3 elements"),
        (fn.experimental.warp_perspective, "pass matrix= or a second input"),
    ],
)
def test_messages(define, message):
    with pytest.raises(DaliLikeError, match=message):
        single(define, IMAGE, layouts=["HWC"])


def test_a_perspective_transform_of_an_empty_image_is_empty_or_an_error() -> None:
    def define(image: Any) -> Any:
        return fn.experimental.warp_perspective(image, matrix=[1, 0, 0, 0, 1, 0, 0, 0, 1])

    [[result]] = run(define, [np.zeros((0, 4, 3), np.uint8)], layouts=["HWC"])[0]

    assert result.shape == (0, 4, 3)
    with pytest.raises(SampleError, match="cannot be mapped"):
        run(
            lambda image: fn.experimental.warp_perspective(image, matrix=[1, 0, 0, 0, 1, 0, 0, 0, 1], size=[2, 2]),
            [np.zeros((0, 4, 3), np.uint8)],
            layouts=["HWC"],
        )
