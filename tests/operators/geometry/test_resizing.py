"""Scaling, cropping and mirroring in one step; scaling of arrays; random windows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2")

from dali_like import fn, types
from dali_like.errors import ArgumentError, DaliLikeError, SampleError
from dali_like.operators.geometry._resampling import WEIGHT_UNITS, Axis, Filters, neighbors, resample
from tests.compiled import kernels_from, library
from tests.operators.running import WAYS, run

IMAGE = np.random.default_rng(0).uniform(0, 255, (20, 30, 3)).astype(np.float32)


@pytest.mark.parametrize("mirror", [0, 1, 2, 3])
@pytest.mark.parametrize("antialias", [False, True])
def test_one_step_is_three(antialias: bool, mirror: int) -> None:
    def define(image: Any) -> list[Any]:
        size, crop = {"resize_shorter": 15.5, "antialias": antialias}, {"crop": [7, 9], "crop_pos_x": 0.3}
        fused = fn.resize_crop_mirror(image, **size, **crop, mirror=mirror)
        fast = fn.fast_resize_crop_mirror(image, **size, **crop, mirror=mirror)
        steps = fn.crop(fn.resize(image, **size), **crop)
        return [fused, fast, fn.flip(steps, horizontal=mirror & 1, vertical=mirror >> 1)]

    [[fused], [fast], [steps]] = run(define, [IMAGE], layouts=["HWC"])[0]

    np.testing.assert_allclose(fused, steps, atol=1e-3)
    np.testing.assert_allclose(fast, steps, atol=1e-3)


@pytest.mark.parametrize("size", [[60, -90], [-60, 90], [5, -6]])
@pytest.mark.parametrize("channels", [3, 5])
@pytest.mark.parametrize("antialias", [False, True])
def test_a_negative_size_mirrors_an_image(size: list[int], channels: int, antialias: bool) -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 30, channels), np.uint8)

    def define(given: Any) -> list[Any]:
        whole = fn.resize(given, size=[*map(abs, size)], antialias=antialias)
        mirrored = fn.resize(given, size=size, antialias=antialias)
        return [mirrored, fn.flip(whole, horizontal=int(size[1] < 0), vertical=int(size[0] < 0))]

    [[mirrored], [flipped]] = run(define, [image], layouts=["HWC"])[0]

    np.testing.assert_allclose(mirrored.astype(int), flipped.astype(int), atol=1)


def test_an_image_without_pixels_has_no_random_window() -> None:
    with pytest.raises(SampleError, match="has no window to scale"):
        run(lambda image: fn.random_resized_crop(image, size=[4, 4]), [np.zeros((0, 5, 3), np.uint8)], layouts=["HWC"])


def test_the_fast_one_skips_pixels_by_default() -> None:
    def define(image: Any) -> list[Any]:
        return [
            fn.fast_resize_crop_mirror(image, size=[5, 6]),
            fn.resize(image, size=[5, 6], antialias=False),
            fn.resize_crop_mirror(image, size=[5, 6]),
            fn.resize(image, size=[5, 6]),
        ]

    [[fast], [skipping], [fused], [filtered]] = run(define, [IMAGE], layouts=["HWC"])[0]

    np.testing.assert_array_equal(fast, skipping)
    np.testing.assert_array_equal(fused, filtered)
    assert np.abs(fast - fused).max() > 10


def test_windows_beyond_the_image_repeat_its_edges() -> None:
    [[[result]]] = run(lambda image: fn.resize_crop_mirror(image, size=[20, 30], crop=[24, 30]), [IMAGE], layouts=["HWC"])

    np.testing.assert_allclose(result[2:22], IMAGE, atol=1e-3)
    np.testing.assert_allclose(result[0], IMAGE[0], atol=1e-3)
    np.testing.assert_allclose(result[-1], IMAGE[-1], atol=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_arrays_are_scaled_along_any_axes(way: str) -> None:
    samples = [IMAGE, IMAGE[:9]]

    def define(image: Any) -> list[Any]:
        return [
            fn.experimental.tensor_resize(image, sizes=[7, 4], axes=[-1, 0]),
            fn.experimental.tensor_resize(image, scales=2, axis_names="W", interp_type=types.INTERP_NN),
            fn.experimental.tensor_resize(image, sizes=[0, 0, 0]),
        ]

    sized, doubled, same = run(define, samples, layouts=["HWC"], way=way)[0]

    assert [sample.shape for sample in sized] == [(4, 30, 7)] * 2
    for result, other, sample in zip(doubled, same, samples, strict=True):
        np.testing.assert_array_equal(result, sample.repeat(2, axis=1))
        np.testing.assert_array_equal(other, sample)


def test_four_axes_at_once() -> None:
    data = np.zeros((4, 5, 6, 7), np.uint8)

    [[[result]]] = run(lambda data: fn.experimental.tensor_resize(data, scales=2), [data])
    assert result.shape == (8, 10, 12, 14)


@pytest.mark.parametrize("point", [0.0, 0.5, 1.0])
def test_the_point_that_keeps_its_place(point: float) -> None:
    """Two elements of size 1 / 0.7 cover 2.86 of 3 elements: at the start, in the middle, or at the end."""
    ramp, size = np.arange(3, dtype=np.float32) + 0.5, 1 / 0.7

    [[[result]]] = run(
        lambda data: fn.experimental.tensor_resize(data, scales=0.7, alignment=point, antialias=False), [ramp]
    )
    np.testing.assert_allclose(result, point * (3 - 2 * size) + size * (np.arange(2) + 0.5), atol=1e-5)


def test_random_windows_are_inside_and_depend_on_the_seed() -> None:
    shapes = [np.int32([40, 60, 3])] * 20

    def windows(seed: int) -> list[list[np.ndarray]]:
        return run(lambda shape: fn.random_crop_generator(shape, random_area=[0.1, 0.5], seed=seed), shapes)[0]

    (starts, sizes), again, other = windows(1), windows(1), windows(2)
    assert all((start >= 0).all() and (start + size <= [40, 60]).all() for start, size in zip(starts, sizes, strict=True))
    assert len({tuple(start) for start in starts}) > 10
    np.testing.assert_array_equal(again, [starts, sizes])
    assert not np.array_equal(other[0], starts)
    areas = [size.prod() / 2400 for size in sizes]
    assert 0.08 < min(areas) < max(areas) < 0.55


def test_windows_cut_with_slice() -> None:
    def define(image: Any) -> Any:
        start, shape = fn.random_crop_generator(image.shape(), seed=1)
        return [fn.slice(image, start=start, shape=shape, axes=[0, 1]), shape]

    [[part], [shape]] = run(define, [IMAGE], layouts=["HWC"])[0]
    assert part.shape == (*shape, 3)


MESSAGES = [
    ({"sizes": 3, "scales": 2}, ArgumentError, "pass either sizes or scales"),
    ({"sizes": 3, "axes": [0], "axis_names": "H"}, ArgumentError, "axes and axis_names exclude each other"),
    ({"sizes": [3, 4]}, ArgumentError, "sizes must have one element, or one for each of the 3 axes, not 2"),
    ({"scales": 3, "mode": "not_larger"}, ArgumentError, "mode='not_larger' needs sizes, not scales"),
    ({"scales": 3, "roi_start": 0}, ArgumentError, "roi_start and roi_end must be given together"),
    ({"scales": 3, "axes": [3]}, DaliLikeError, r"axes=\[3\]: the input has 3 dimensions"),
    ({"scales": 3, "dtype": types.INT16}, SampleError, "dtype must be FLOAT or that of the input, float32, not int16"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), MESSAGES, ids=[text for *_, text in MESSAGES])
def test_messages_of_tensor_resize(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(lambda data: fn.experimental.tensor_resize(data, **arguments), [IMAGE], layouts=["HWC"])


def test_other_messages() -> None:
    with pytest.raises(SampleError, match="the input must have at least one dimension, but it is a single number"):
        run(lambda data: fn.experimental.tensor_resize(data, scales=2), [np.float32(3)])
    with pytest.raises(
        SampleError, match=r"the shape of an image, 2 or 3 integers .* not an array of float32 and shape \(2,\)"
    ):
        run(fn.random_crop_generator, [np.float32([3, 4])])
    with pytest.raises(ArgumentError, match="crop_w and crop_h must be given together"):
        run(lambda data: fn.resize_crop_mirror(data, size=3, crop_w=2), [IMAGE])


@pytest.mark.parametrize("kind", [types.INTERP_LINEAR, types.INTERP_GAUSSIAN, types.INTERP_CUBIC])
@pytest.mark.parametrize("size", [[32, 45], [37, 81], [101, 50]], ids=str)
def test_bytes_are_the_rounded_floats_but_for_exact_sums(kind, size):
    """Weights of positive filters are rounded, so that sums are exact: that moves a few bytes by one."""
    image = np.random.default_rng(1).choice(np.array([0, 1, 2, 254, 255], np.uint8), (64, 90, 3))

    ((rounded,), (exact,)) = run(
        lambda data: [
            fn.resize(data, size=size, interp_type=kind),
            fn.resize(data, size=size, interp_type=kind, dtype=types.FLOAT),
        ],
        [image],
    )[0]

    differences = np.abs(rounded.astype(int) - np.rint(exact).clip(0, 255))
    assert differences.max() <= (kind != types.INTERP_CUBIC)
    assert differences.mean() < 0.03


def random_scaling(rng: np.random.Generator) -> tuple[Any, list[Axis], Filters]:
    """Return an image, small or large, with or without a gap behind its rows, and how to scale it."""
    most = 40 if rng.random() < 0.5 else 300
    height, width = (int(extent) for extent in rng.integers(1, most, 2))
    channels, gap = int(rng.choice([1, 2, 3, 3, 3, 4, 5])), int(rng.choice([0, 0, 7]))
    image = rng.integers(0, 256, (height, width + gap, channels), np.uint8)[:, :width]
    axes = []
    for extent in (height, width):
        size, way = int(rng.integers(1, most)), rng.integers(5)
        start, end = sorted(rng.uniform(-3, extent + 3, 2)) if way > 2 else (0.0, float(extent))
        start, end = (start, max(end, start + 0.5)) if rng.random() < 0.7 else (max(end, start + 0.5), start)
        axes.append(Axis(extent if way == 2 else size, start, end))
    kind = (types.INTERP_LINEAR, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN)[rng.integers(3)]
    return image, axes, Filters(kind, kind, bool(rng.random() < 0.7))


def scaled(image: Any, axes: list[Axis], filters: Filters) -> Any:
    out = np.empty((axes[0].size, axes[1].size, image.shape[2]), np.uint8)
    resample(image, axes, filters, out)
    return out


def test_compiled_loops_and_matrices_scale_bytes_to_the_same_bits() -> None:
    rng = np.random.default_rng(5)
    for _ in range(3000 if os.environ.get("PARITY") == "full" else 150):
        given = random_scaling(rng)
        with kernels_from("0"):
            expected = scaled(*given)
        with kernels_from(library()):
            np.testing.assert_array_equal(scaled(*given), expected)


def test_sums_of_bytes_are_those_of_integers() -> None:
    """So neither the order of a matrix product nor the processor changes a bit."""
    image = np.random.default_rng(2).integers(0, 256, (130, 170, 3), np.uint8)
    filters = Filters(types.INTERP_GAUSSIAN, types.INTERP_GAUSSIAN, True)
    firsts, weights = neighbors(Axis(61, 0.0, 130.0), 130, types.INTERP_GAUSSIAN, True, WEIGHT_UNITS)

    with kernels_from("0"):
        result = scaled(image, [Axis(61, 0.0, 130.0), Axis(170, 0.0, 170.0)], filters)

    assert (weights.sum(axis=1) == WEIGHT_UNITS).all()
    whole = np.zeros((61, 130), np.int64)
    whole[np.arange(61)[:, np.newaxis], firsts[:, np.newaxis] + np.arange(weights.shape[1])] = weights
    exact = np.tensordot(whole, image.astype(np.int64), 1) / WEIGHT_UNITS
    np.testing.assert_array_equal(result, np.rint(exact))


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("side", [40, 120], ids=["shrinks", "grows"])
def test_negative_sizes_mirror_the_image(side: int, antialias: bool) -> None:
    """As `flip` does, whatever computes the pixels."""
    image = np.random.default_rng(3).integers(0, 256, (70, 80, 3), np.uint8)
    mirroring = [[side, -side - 3], [-side, side + 3], [-side, -side - 3]]

    def sizes(data: Any) -> list[Any]:
        plain = fn.resize(data, size=[side, side + 3], antialias=antialias)
        return [
            *(fn.resize(data, size=size, antialias=antialias) for size in mirroring),
            fn.flip(plain, horizontal=1, vertical=0),
            fn.flip(plain, horizontal=0, vertical=1),
            fn.flip(plain, horizontal=1, vertical=1),
        ]

    made = [column[0] for column in run(sizes, [image])[0]]
    for mirrored, expected in zip(made[:3], made[3:], strict=True):
        np.testing.assert_array_equal(mirrored, expected)
