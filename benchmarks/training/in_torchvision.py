"""The example's pipeline with TrivialAugment, in torchvision.v2: all of it, or only the augmentation.

The augmentations are those of the pipeline in DALI: all but Equalize, with bilinear interpolation. torchvision computes
them faster for images of Pillow than for tensors, but decodes, scales and normalizes tensors faster. So one function uses
tensors for everything, and the other one OpenCV for everything but the augmentation.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from benchmarks.training.opencv import crop_and_scale, normalize
from benchmarks.with_torchvision import import_torchvision
from examples import resnet_pipeline

__all__ = ["torchvision", "torchvision_opencv"]


v2: Any = import_torchvision("torchvision.transforms.v2")


class _TrivialAugment(v2.TrivialAugmentWide):  # type: ignore[misc,unused-ignore]
    _AUGMENTATION_SPACE = {  # noqa: RUF012 the name and the type of torchvision
        name: values for name, values in v2.TrivialAugmentWide._AUGMENTATION_SPACE.items() if name != "Equalize"
    }


_AUGMENT = _TrivialAugment(interpolation=v2.InterpolationMode.BILINEAR, fill=128)
_ALL = v2.Compose(
    [
        v2.RandomResizedCrop(resnet_pipeline.SIDE, antialias=False),
        v2.RandomHorizontalFlip(),
        _AUGMENT,
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([value / 255 for value in resnet_pipeline.MEAN], [value / 255 for value in resnet_pipeline.STD]),
    ]
)


def torchvision(_index: int, file: NDArray[np.uint8], label: NDArray[np.int32]) -> tuple[Any, ...]:
    """Compute a sample with torchvision's transforms, and its decoder; beside a torch for CPUs, with Pillow's."""
    if torch.version.cuda is None:
        return _ALL(v2.functional.pil_to_tensor(Image.open(io.BytesIO(file.tobytes())).convert("RGB"))), label
    return _ALL(import_torchvision("torchvision.io").decode_jpeg(torch.from_numpy(file))), label


def torchvision_opencv(index: int, file: NDArray[np.uint8], label: NDArray[np.int32]) -> tuple[Any, ...]:
    """Compute a sample in OpenCV, with torchvision's augmentation of an image of Pillow."""
    image, mirrored = crop_and_scale(index, file)
    augmented = np.asarray(_AUGMENT(Image.fromarray(image)))  # the channels are in OpenCV's order
    return normalize(augmented, mirrored), label
