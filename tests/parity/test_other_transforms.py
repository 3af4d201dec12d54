"""Transforms of torchvision and Albumentations in sources, composed datasets and loaders; and ours beside torchvision's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dali_like import data, fn, pipeline_def
from dali_like.data import ComposedDataset
from dali_like.plugin.pytorch import DataLoader
from tests.documents import DOCS, run_program_of
from tests.image_files import RGB_PIXELS
from tests.parity.other_transforms import import_albumentations, import_torchvision

pytestmark = pytest.mark.peers

PHOTO = np.ascontiguousarray(RGB_PIXELS[:48, :62])
BATCH_SIZE = 4

#: A random transform: an image and a generator of its own give a result.
Transform = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def of_torchvision() -> Transform:
    v2 = import_torchvision("torchvision.transforms.v2")
    recipe = v2.Compose(
        [
            v2.RandomResizedCrop((8, 9), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )

    def transform(image: np.ndarray, rng: np.random.Generator) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(1 << 63)))
            return recipe(torch.from_numpy(image).permute(2, 0, 1))

    return transform


def of_albumentations() -> Transform:
    albumentations = import_albumentations()
    recipe = albumentations.Compose(
        [albumentations.RandomCrop(8, 9), albumentations.HorizontalFlip(), albumentations.RandomBrightnessContrast(p=1)]
    )

    def transform(image: np.ndarray, rng: np.random.Generator) -> Any:
        recipe.set_random_seed(int(rng.integers(1 << 32)))
        return recipe(image=image)["image"]

    return transform


LIBRARIES = pytest.mark.parametrize("make", [of_torchvision, of_albumentations])


@LIBRARIES
def test_in_a_source(make: Callable[[], Transform]) -> None:
    """Samples depend on their position only: in this process and in workers they are equal."""
    transform = make()

    def batches(**options: Any) -> list[Any]:
        @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, seed=3, py_num_workers=2)
        def pipeline() -> Any:
            return fn.external_source(lambda info: transform(PHOTO, info.rng()), batch=False, **options)

        with closing(pipeline()) as pipe:
            return [np.array(pipe.run()[0].as_array()) for _ in range(2)]

    serial, parallel = batches(), batches(parallel=True)
    assert np.array_equal(serial, parallel)
    assert len({sample.tobytes() for batch in serial for sample in batch}) == 2 * BATCH_SIZE


@LIBRARIES
def test_in_a_composed_dataset(make: Callable[[], Transform]) -> None:
    transform = make()
    dataset = ComposedDataset.source([PHOTO] * 8, name="photos").map(transform, rng=True).with_options(seed=7)
    loaders = [DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=number) for number in (0, 2)]
    serial, parallel = [[batch.numpy().tolist() for batch in loader] for loader in loaders]
    assert serial == parallel
    assert serial[0] != serial[1]


@LIBRARIES
def test_in_a_dataset_of_torch(make: Callable[[], Transform]) -> None:
    transform = make()

    class Photos(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return transform(PHOTO, np.random.default_rng((5, index)))

    ours = [batch.tolist() for batch in DataLoader(Photos(), batch_size=BATCH_SIZE, num_workers=2)]
    theirs = [batch.tolist() for batch in torch.utils.data.DataLoader(Photos(), batch_size=BATCH_SIZE)]
    assert ours == theirs


MODES = ["nearest", "bilinear", "bicubic", "lanczos", "box"]


@pytest.mark.parametrize("size", [(12, 15), (24, 31), (16, 90), 17, (48, 62), (96, 124)])
@pytest.mark.parametrize("mode", MODES)
def test_resize(size: Any, mode: str) -> None:
    transforms = import_torchvision("torchvision.transforms")
    expected = np.asarray(transforms.Resize(size, transforms.InterpolationMode(mode))(Image.fromarray(PHOTO)))
    resized = data.Resize(size, mode)(PHOTO)
    assert resized.shape == expected.shape
    difference = np.abs(resized.astype(int) - expected)
    assert difference.mean() <= {"nearest": 0, "box": 3}.get(mode, 0.7)  # of a box, Pillow takes whole pixels only
    if mode == "box" and size in ((24, 31), (96, 124)):
        assert difference.max() <= 1


@pytest.mark.parametrize("size", [10, (7, 8), (24, 31), (30, 20), (10, 40), (33, 33)])
def test_center_crop(size: Any) -> None:
    transforms = import_torchvision("torchvision.transforms")
    assert np.array_equal(data.CenterCrop(size)(PHOTO), transforms.CenterCrop(size)(Image.fromarray(PHOTO)))


def test_tensors_have_the_same_bits() -> None:
    transforms = import_torchvision("torchvision.transforms")
    arguments = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    theirs = transforms.Compose([transforms.ToTensor(), transforms.Normalize(*arguments)])(PHOTO)
    ours = data.Compose([data.ToTensor(), data.Normalize(*arguments)])(PHOTO)
    assert np.array_equal(ours, theirs.numpy())


@pytest.mark.parametrize("library", ["torchvision", "albumentations"])
def test_programs_of_the_page_run(library: str) -> None:
    (import_torchvision if library == "torchvision" else import_albumentations)()
    run_program_of(DOCS / "how-to" / "operators-in-datasets.md", f"python {library}")
