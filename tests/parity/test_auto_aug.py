"""Automatic augmentation beside DALI's: each augmentation at each magnitude, and the published suites and policies."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import cv2
import numpy as np
import pytest

from tests.parity.conftest import OURS, Library
from tests.parity.operators import outputs

pytest.importorskip("nvidia.dali")
pytestmark = pytest.mark.peers

BINS, HEIGHT, WIDTH = 11, 30, 40
#: Maximum difference in gray levels. Interpolated positions are rounded differently.
BOUNDS = {"shear_x": 1, "shear_y": 1, "rotate": 1}
#: All but `equalize`, which DALI has on the GPU alone.
NAMES = [
    *("shear_x", "shear_y", "translate_x", "translate_x_no_shape", "translate_y", "translate_y_no_shape", "rotate"),
    *("brightness", "contrast", "color", "sharpness", "posterize", "solarize", "solarize_add", "invert"),
    *("auto_contrast", "identity"),
]
SUITES = [
    *("trivial_augment.get_trivial_augment_wide_suite", "rand_augment.get_rand_augment_suite"),
    "rand_augment.get_rand_augment_non_monotonic_suite",
]
POLICIES = ["get_image_net_policy", "get_reduced_image_net_policy", "get_svhn_policy", "get_reduced_cifar10_policy"]


def augmented(library: str, image: Any, layout: str = "HWC") -> list[Any]:
    package = importlib.import_module(library)
    fn = importlib.import_module(f"{library}.fn")
    augmentations = importlib.import_module(f"{library}.auto_aug.augmentations")
    signed_bin = importlib.import_module(f"{library}.auto_aug.core").signed_bin

    @package.pipeline_def(batch_size=2 * BINS, num_threads=1, device_id=None, enable_conditionals=True)
    def define() -> Any:
        data = fn.external_source(lambda _: image, batch=False, layout=layout)
        number = fn.external_source(lambda info: np.int32(info.idx_in_batch // 2), batch=False)
        sign = fn.external_source(lambda info: np.int32(info.idx_in_batch % 2), batch=False)
        options = {"magnitude_bin": signed_bin(number, sign), "num_magnitude_bins": BINS, "shape": [HEIGHT, WIDTH]}
        return tuple(getattr(augmentations, name)(data, **options) for name in NAMES)

    pipe = define()
    pipe.build()
    results = [[np.array(output.at(i)) for i in range(2 * BINS)] for output in pipe.run()]
    if hasattr(pipe, "close"):
        pipe.close()
    return results


def test_augmentations_at_each_magnitude() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (6, 7, 3), np.uint8)
    image = cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dalis = augmented("nvidia.dali", image)
    for name, mine, theirs in zip(NAMES, augmented("dali_like", image), dalis, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            assert np.abs(one.astype(int) - other).max() <= BOUNDS.get(name, 0), name


@pytest.mark.parametrize("fill_value", [None, 128])
def test_translations_by_halves_of_pixels_are_exact(dali: Library, fill_value: int | None) -> None:
    image = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)

    def define(library: Library, data: Any) -> Any:
        options = {"fill_value": fill_value, "inverse_map": False}
        offsets = [(7.5, 0), (-3.5, 0), (0, 2.5), (0, -29.5), (4, 0)]
        return [library.fn.warp_affine(data, matrix=[1, 0, x, 0, 1, y], **options) for x, y in offsets]

    for mine, theirs in zip(*(outputs(each, define, [[image]], ["HWC"]) for each in (OURS, dali)), strict=True):
        np.testing.assert_array_equal(mine.samples[0], theirs.samples[0])


def test_augmentations_of_sequences() -> None:
    small = np.random.default_rng(1).integers(0, 256, (2, 6, 7, 3), np.uint8)
    frames = np.stack([cv2.resize(frame, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC) for frame in small])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dalis = augmented("nvidia.dali", frames, "FHWC")
    for name, mine, theirs in zip(NAMES, augmented("dali_like", frames, "FHWC"), dalis, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            assert np.abs(one.astype(int) - other).max() <= BOUNDS.get(name, 0), name


@pytest.mark.parametrize("layout", ["HWC", "FHWC"])
def test_equal_seeds_give_equal_results(layout: str) -> None:
    image = np.random.default_rng(1).integers(0, 256, (2, HEIGHT, WIDTH, 3)[-len(layout) :], np.uint8)

    def define(_: Library, data: Any) -> Any:
        trivial = importlib.import_module("dali_like.auto_aug.trivial_augment")
        return [trivial.trivial_augment_wide(data, shape=[HEIGHT, WIDTH], seed=seed) for seed in (5, 5, 6)]

    same, again, different = (result.samples for result in outputs(OURS, define, [[image] * 16], [layout]))

    np.testing.assert_array_equal(same, again)
    assert any(not np.array_equal(one, other) for one, other in zip(same, different, strict=True))


def parameters(augmentation: Any) -> Any:
    magnitudes = np.linspace(*augmentation.mag_range, BINS, dtype=np.float32) if augmentation.mag_range else []
    results = [np.asarray(augmentation.mag_to_param(magnitude)).tolist() for magnitude in magnitudes]
    return augmentation.name, augmentation.randomly_negate, results


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("arguments", [(), (True,), (True, None, 0.5), (False, (3, 4))], ids=str)
def test_suites(name: str, arguments: tuple[Any, ...]) -> None:
    module, function = name.split(".")
    mine, theirs = (
        getattr(importlib.import_module(f"{library}.auto_aug.{module}"), function)(*arguments)
        for library in ("dali_like", "nvidia.dali")
    )
    assert [*map(parameters, mine)] == [*map(parameters, theirs)]


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str) -> None:
    mine, theirs = (
        [
            [(parameters(augmentation), p, magnitude_bin) for augmentation, p, magnitude_bin in steps]
            for steps in getattr(importlib.import_module(f"{library}.auto_aug.auto_augment"), name)().sub_policies
        ]
        for library in ("dali_like", "nvidia.dali")
    )
    assert mine == theirs
