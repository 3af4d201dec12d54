"""DALI's documented examples of dynamic mode, in small: "Getting started" and the augmentation gallery.

Source: getting_started/dynamic_mode and image_processing/augmentation_gallery/dynamic_mode of the examples in DALI's guide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import fn, pipeline_def, types
from tests.image_files import RGB_PIXELS, with_opencv

HEIGHT, WIDTH = RGB_PIXELS.shape[:2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two classes of three images each."""
    for name, offset in (("dogs", 0), ("kittens", 100)):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.png").write_bytes(with_opencv(RGB_PIXELS + np.uint8(offset + i), ".png"))
    return tmp_path


# Getting started


def test_reading_and_decoding(folder: Path) -> None:
    reader = ndd.readers.File(file_root=str(folder))
    files, labels = next(reader.next_epoch(batch_size=6))
    images = ndd.decoders.image(files, device="cpu")
    reader.close()
    assert images.batch_size == 6
    assert images.shape[0] == (HEIGHT, WIDTH, 3)
    assert np.asarray(labels).ravel().tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(np.asarray(images.tensors[4]), RGB_PIXELS + np.uint8(101))


def test_reading_sample_by_sample(folder: Path) -> None:
    reader = ndd.readers.File(file_root=str(folder))
    shapes = [ndd.decoders.image(file).shape for file, _ in reader.next_epoch()]
    reader.close()
    assert shapes == [(HEIGHT, WIDTH, 3)] * 6


def test_augmentations_of_a_batch(folder: Path) -> None:
    reader = ndd.readers.File(file_root=str(folder), random_shuffle=True, seed=1)
    rng = ndd.random.RNG(seed=42)
    for files, _ in reader.next_epoch(batch_size=3):
        images = ndd.decoders.image(files)
        angle = ndd.random.uniform(batch_size=3, range=[-10, 10], rng=rng)
        rotated = ndd.rotate(images, angle=angle, fill_value=0)
        mirrored = ndd.flip(rotated, horizontal=ndd.random.coin_flip(batch_size=3, rng=rng))
        output = ndd.resize(mirrored, size=(20, 30)) / 255
        assert output.shape == [(20, 30, 3)] * 3
        assert output.dtype == ndd.float32
    reader.close()


def test_samples_and_their_parts() -> None:
    positions = ndd.random.uniform(batch_size=4, range=[0, 1], shape=2, rng=ndd.random.RNG(seed=1))
    x, y = positions.slice[0], positions.slice[1]
    assert (x.batch_size, x.ndim) == (4, 0)
    assert float(y.tensors[2]) == float(positions.tensors[2][1])
    image = ndd.as_tensor(RGB_PIXELS, layout="HWC")
    crops = ndd.crop(image, crop=(10, 12), crop_pos_x=x, crop_pos_y=y)
    assert crops.shape == [(10, 12, 3)] * 4
    assert positions.select([0, 3]).batch_size == 2


def test_modes() -> None:
    with ndd.EvalMode.sync_full:
        assert ndd.EvalMode.current() is ndd.EvalMode.sync_full
        assert ndd.flip(RGB_PIXELS).evaluate().shape == RGB_PIXELS.shape


def test_generators() -> None:
    one, other = (ndd.random.RNG(seed=7) for _ in range(2))
    first = [float(ndd.random.uniform(range=[0, 1], rng=one)) for _ in range(3)]
    assert first == [float(ndd.random.uniform(range=[0, 1], rng=other)) for _ in range(3)]
    assert len(set(first)) == 3
    ndd.random.set_seed(3)
    drawn = float(ndd.random.normal())
    ndd.random.set_seed(3)
    assert float(ndd.random.normal()) == drawn


def test_plain_python_between_operators(folder: Path) -> None:
    """A program chooses operators by the values of a sample."""
    path = folder / "dogs" / "0.png"
    image = ndd.imread(str(path))
    sizes = []
    while image.shape[0] > 20:
        image = ndd.resize(image, size=(image.shape[0] // 2, image.shape[1] // 2))
        sizes.append(image.shape[:2])
    assert sizes == [(30, 44), (15, 22)]
    if float(ndd.reductions.mean(image)) > 0:
        image = ndd.brightness(image, brightness=0.0)
    assert not np.asarray(image).any()


# The augmentation gallery

#: Each call is compared with the operator in a pipeline.
GALLERY: dict[str, Callable[[Any, Any], Any]] = {
    "erase": lambda lib, image: lib.erase(
        image, anchor=[0.3, 0.2], shape=[0.5, 0.6], normalized_anchor=True, normalized_shape=True, axis_names="HW"
    ),
    "slice": lambda lib, image: lib.slice(image, rel_start=[0.3, 0.2], rel_shape=[0.5, 0.6], axis_names="HW"),
    "water": lambda lib, image: lib.water(image),
    "sphere": lambda lib, image: lib.sphere(image),
    "rotate": lambda lib, image: lib.rotate(image, angle=30.0, fill_value=0),
    "rotate, same size": lambda lib, image: lib.rotate(image, angle=30.0, keep_size=True, fill_value=0),
    "warp_affine": lambda lib, image: lib.warp_affine(image, matrix=[1.0, 0.8, 0.0, 0.0, 1.2, 0.0], fill_value=0),
    "transforms": lambda lib, image: lib.warp_affine(
        image, lib.transforms.rotation(angle=math.degrees(0.3), center=[WIDTH / 2, HEIGHT / 2]), fill_value=0
    ),
    "flip": lambda lib, image: lib.flip(image, vertical=1, horizontal=0),
    "resize": lambda lib, image: lib.resize(image, resize_shorter=30, interp_type=types.INTERP_CUBIC),
    "crop": lambda lib, image: lib.crop(image, crop=(20, 30), crop_pos_x=0.2),
    "crop_mirror_normalize": lambda lib, image: lib.crop_mirror_normalize(
        image, crop=(20, 30), mirror=1, mean=[128.0] * 3, std=[64.0] * 3
    ),
    "pad": lambda lib, image: lib.pad(image, axis_names="HW", shape=[70, 100], fill_value=100),
    "paste": lambda lib, image: lib.paste(image, ratio=1.2, fill_value=(55, 155, 155)),
    "brightness_contrast": lambda lib, image: lib.brightness_contrast(image, brightness=0.5, contrast=1.5),
    "color_twist": lambda lib, image: lib.color_twist(image, hue=45.0, saturation=1.3, brightness=0.9),
    "hsv": lambda lib, image: lib.hsv(image, hue=120, saturation=0.5),
    "color_space_conversion": lambda lib, image: lib.color_space_conversion(
        image, image_type=types.RGB, output_type=types.YCbCr
    ),
    "gaussian_blur": lambda lib, image: lib.gaussian_blur(image, window_size=5),
    "jitter": lambda lib, image: lib.jitter(image, nDegree=3, seed=5),
    "noise": lambda lib, image: lib.noise.gaussian(image, stddev=20.0, seed=5),
    "jpeg": lambda lib, image: lib.jpeg_compression_distortion(image, quality=10),
    "median": lambda lib, image: lib.experimental.median_blur(image, window_size=[3, 3]),
    "reductions": lambda lib, image: lib.reductions.mean(image, axis_names="HW"),
    "arithmetic": lambda lib, image: lib.cast(image * 0.5 + 30, dtype=types.UINT8),
}


@pytest.mark.parametrize("name", GALLERY)
def test_gallery(name: str) -> None:
    call = GALLERY[name]
    made = call(ndd, ndd.as_tensor(RGB_PIXELS, layout="HWC"))

    @pipeline_def(batch_size=1, num_threads=1, py_num_workers=0)
    def pipeline() -> Any:
        return call(fn, fn.external_source(lambda _: RGB_PIXELS, batch=False, layout="HWC"))

    with closing(pipeline()) as pipe:
        (expected,) = pipe.run()
        assert (made.layout or "") == expected.layout()
        assert np.array_equal(np.asarray(made), expected.at(0))
