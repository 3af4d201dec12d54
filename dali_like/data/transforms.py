"""Transforms of images as NumPy arrays, with the names, arguments and defaults of ``torchvision.transforms``.

They call the operators ``fn.resize``, ``fn.slice`` and ``fn.flip`` on one image. `ToTensor` and `Normalize` divide, as
torchvision does; the operators multiply by factors, which rounds differently.

An image is an array (height, width) or (height, width, channels), as from `ImageFolder`. `ToTensor` converts it to
(channels, height, width) for `Normalize`; all other transforms come before. Other objects with the array interface, such as
Pillow's images, are converted to arrays.

Random transforms draw from NumPy's global generator, or from a `generator`: a `numpy.random.Generator`, or a seed for one.
Prefer the global one in worker processes: a loader seeds it differently in each. A `generator` is copied to all workers,
which then draw the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.notices import warn
from dali_like.common.suggestions import suggest_arguments
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.images.array_images import InterpolationMode, as_image, as_interpolation, averaged, is_array
from dali_like.operators.geometry.geometry import flip
from dali_like.operators.geometry.geometry import slice as slice_part
from dali_like.operators.geometry.resizing import resize
from dali_like.operators.machinery.description import Description
from dali_like.operators.machinery.immediate import prepare
from dali_like.types import INTERP_CUBIC, INTERP_LANCZOS3, INTERP_LINEAR, INTERP_NN

__all__ = [
    "CenterCrop",
    "Compose",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToTensor",
]

#: Attempts to draw a part that fits into the image.
_CROP_TRIES = 10
#: Of the operator. As in torchvision, both nearest modes take the pixel at the center.
_FILTERS = {
    InterpolationMode.NEAREST: INTERP_NN,
    InterpolationMode.NEAREST_EXACT: INTERP_NN,
    InterpolationMode.BILINEAR: INTERP_LINEAR,
    InterpolationMode.BICUBIC: INTERP_CUBIC,
    InterpolationMode.BOX: INTERP_NN,
    InterpolationMode.LANCZOS: INTERP_LANCZOS3,
}


class Compose:
    """Several transforms, one after the other.

    Args:
        transforms: the callables; each gets the result of the previous one.

    >>> Compose([CenterCrop(2), ToTensor()])(np.zeros((4, 4, 3), np.uint8)).shape
    (3, 2, 2)
    """

    @suggest_arguments
    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return "\n    ".join([f"{type(self).__name__}(", *map(repr, self.transforms)]) + "\n)"


class ToTensor:
    """Converts an image to an array (channels, height, width): uint8 becomes float32 in [0, 1], other dtypes are kept.

    Raises:
        ArgumentTypeError: the image is not an array.
        ArgumentError: the image does not have two or three dimensions.

    >>> ToTensor()(np.full((1, 2, 3), 255, np.uint8))[0]
    array([[1., 1.]], dtype=float32)
    """

    def __call__(self, pic: Any) -> NDArray[Any]:
        if not is_array(pic):
            raise ArgumentTypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
        pixels = np.asarray(pic)
        if pixels.ndim not in (2, 3):
            raise ArgumentError(f"pic should be 2/3 dimensional. Got {pixels.ndim} dimensions.")
        planes = pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        if pixels.dtype != np.uint8:
            return np.array(planes, order="C")
        scaled: NDArray[np.float32] = np.divide(planes, np.float32(255), dtype=np.float32, order="C")
        return scaled

    def __repr__(self) -> str:
        return "ToTensor()"


class Normalize:
    """Subtracts a mean from each channel, and divides it by a standard deviation. Comes after `ToTensor`.

    Args:
        mean: a number for each channel, or one for all.
        std: the same.
        inplace: whether to write the result into the given array.

    Raises:
        ArgumentTypeError: the image is not an array of floating-point numbers.
        ArgumentError: the image is not (..., channels, height, width), it has another number of channels, or a standard
            deviation is 0 in its dtype.

    >>> Normalize(mean=[0.5], std=[0.25])(np.ones((1, 1, 2), np.float32))
    array([[[2., 2.]]], dtype=float32)
    """

    @suggest_arguments
    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def __call__(self, tensor: NDArray[Any]) -> NDArray[Any]:
        if not isinstance(tensor, np.ndarray):
            raise ArgumentTypeError(f"img should be Tensor Image. Got {type(tensor)}")
        if tensor.dtype.kind != "f":
            raise ArgumentTypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
        if tensor.ndim < 3:
            raise ArgumentError(
                f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tuple(tensor.shape)}"
            )
        mean, std = self._planes("mean", self.mean, tensor), self._planes("std", self.std, tensor)
        if not std.all():
            raise ArgumentError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero.")
        result: NDArray[Any] = np.subtract(tensor, mean, out=tensor if self.inplace else None)
        result /= std
        return result

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"

    @staticmethod
    def _planes(name: str, values: Sequence[float], tensor: NDArray[Any]) -> NDArray[Any]:
        numbers = np.asarray(values, tensor.dtype).reshape(-1, 1, 1)
        if len(numbers) not in (1, tensor.shape[-3]):
            raise ArgumentError(f"{name} has {len(numbers)} numbers, the image has {tensor.shape[-3]} channels")
        return numbers


class CenterCrop:
    """Cuts out the center of an image. Pads a smaller image with zeros.

    Args:
        size: height and width, or one number for both.

    Raises:
        ArgumentError: `size` does not have one or two numbers.

    >>> CenterCrop(2)(np.arange(16).reshape(4, 4))
    array([[ 5,  6],
           [ 9, 10]])
    """

    @suggest_arguments
    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _two_sizes(size)

    def __call__(self, img: Any) -> NDArray[Any]:
        image = as_image(img)
        pairs = zip(image.shape, self.size, strict=False)
        anchor = [round((old - new) / 2) if old >= new else -((new - old) // 2) for old, new in pairs]
        policy = "pad" if min(anchor) < 0 or any(map(int.__lt__, image.shape, self.size)) else "error"
        arguments = {"start": anchor, "shape": self.size, "axes": (0, 1), "out_of_bounds_policy": policy}
        return _computed(slice_part, image, arguments)

    def __repr__(self) -> str:
        return f"CenterCrop(size={self.size})"


class Resize:
    """Resizes an image.

    Args:
        size: height and width; or one number for the shorter edge, with the same aspect ratio.
        interpolation: the interpolation mode.
        max_size: limit of the longer edge, if `size` is one number.
        antialias: whether to filter along an edge that becomes shorter, instead of interpolating between distant pixels.
            Without effect for BOX, NEAREST and NEAREST_EXACT. The result is close to Pillow's: photographs differ by less
            than 1 of 255 on average.

    Raises:
        ArgumentTypeError: `size` or `interpolation` has a wrong type. When called: the argument is not an image, or, for
            BOX, OpenCV does not support its dtype or number of channels.
        ArgumentError: `size` does not have one or two numbers, or `max_size` is not greater. When called: the image or the
            result has no pixels.
        ArgumentClashError: `max_size` is given, and `size` has two numbers.

    >>> Resize(2)(np.zeros((4, 6, 3), np.uint8)).shape
    (2, 3, 3)
    """

    @suggest_arguments
    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: InterpolationMode | str = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        if not isinstance(size, (int, Sequence)):
            raise ArgumentTypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ArgumentError("If size is a sequence, it should have 1 or 2 values")
        self.size = size
        self.max_size = max_size
        self.interpolation = as_interpolation(interpolation)
        self.antialias = antialias
        if self.max_size is None:
            return
        short = self._short_edge()
        if short is None:
            raise ArgumentClashError(
                "max_size should only be passed if size specifies the length of the smaller edge, "
                "i.e. size should be an int or a sequence of length 1."
            )
        if self.max_size <= short:
            raise ArgumentError(
                f"max_size = {self.max_size} must be strictly greater than the requested size for the smaller edge "
                f"size = {self.size}"
            )

    def __call__(self, img: Any) -> NDArray[Any]:
        image = as_image(img)
        height, width = self._target(*image.shape[:2])
        return _resized(image, height, width, self.interpolation, bool(self.antialias))

    def __repr__(self) -> str:
        return (
            f"Resize(size={self.size}, interpolation={self.interpolation.value}, max_size={self.max_size}, "
            f"antialias={self.antialias})"
        )

    def _short_edge(self) -> int | None:
        if isinstance(self.size, Sequence):
            return self.size[0] if len(self.size) == 1 else None
        return self.size

    def _target(self, height: int, width: int) -> tuple[int, int]:
        short = self._short_edge()
        if short is None:
            given: Any = self.size
            return given[0], given[1]
        long = int(short * max(height, width) / min(height, width))
        if self.max_size is not None and long > self.max_size:
            short, long = int(self.max_size * short / long), self.max_size
        return (short, long) if height <= width else (long, short)


class RandomHorizontalFlip:
    """Flips an image left to right, with a given probability.

    Args:
        p: the probability.
        generator: see `dali_like.data.transforms`.

    Raises:
        ArgumentError: `p` is not in [0, 1].

    >>> RandomHorizontalFlip(p=1)(np.array([[1, 2]]))
    array([[2, 1]])
    """

    @suggest_arguments
    def __init__(self, p: float = 0.5, *, generator: np.random.Generator | int | None = None) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError(f"p should be a probability, from 0 to 1, but got p={p}")
        self.p = p
        self.generator = _generator(generator)

    def __call__(self, img: Any) -> NDArray[Any]:
        image = as_image(img)
        return _computed(flip, image, {}) if _uniform(self.generator) < self.p else image

    def __repr__(self) -> str:
        return f"RandomHorizontalFlip(p={self.p})"


class RandomResizedCrop:
    """Cuts out a random part of an image, and resizes it to a fixed size.

    If ten attempts to draw a part do not fit into the image, the center of the image is used.

    Args:
        size: height and width of the result, or one number for both.
        scale: range of the part's area, relative to the area of the image.
        ratio: range of the part's aspect ratio, width to height.
        interpolation, antialias: see `Resize`.
        generator: see `dali_like.data.transforms`.

    Raises:
        ArgumentError: `size` does not have one or two numbers.
        ArgumentTypeError: `scale` or `ratio` is not a sequence, or `interpolation` has a wrong type.

    Warns about a `scale` or `ratio` whose second number is smaller than its first.

    >>> RandomResizedCrop(8, generator=1)(np.zeros((10, 20, 3), np.uint8)).shape
    (8, 8, 3)
    """

    @suggest_arguments
    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: InterpolationMode | str = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
        *,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        self.size = _two_sizes(size)
        if not isinstance(scale, Sequence):
            raise ArgumentTypeError("Scale should be a sequence")
        if not isinstance(ratio, Sequence):
            raise ArgumentTypeError("Ratio should be a sequence")
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            warn("Scale and ratio should be of kind (min, max)", UserWarning)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = as_interpolation(interpolation)
        self.antialias = antialias
        self.generator = _generator(generator)

    def __call__(self, img: Any) -> NDArray[Any]:
        image = as_image(img)
        top, left, height, width = self._part(*image.shape[:2])
        part = image[top : top + height, left : left + width]
        return _resized(part, *self.size, self.interpolation, bool(self.antialias))

    def __repr__(self) -> str:
        scale, ratio = (tuple(round(value, 4) for value in values) for values in (self.scale, self.ratio))
        return (
            f"RandomResizedCrop(size={self.size}, scale={scale}, ratio={ratio}, "
            f"interpolation={self.interpolation.value}, antialias={self.antialias})"
        )

    def _part(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Draw a part: top, left, height, width."""
        for _ in range(_CROP_TRIES):
            area = height * width * self._between(*self.scale)
            ratio = math.exp(self._between(math.log(self.ratio[0]), math.log(self.ratio[1])))
            part_width, part_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < part_width <= width and 0 < part_height <= height:
                top = int(_uniform(self.generator) * (height - part_height + 1))
                left = int(_uniform(self.generator) * (width - part_width + 1))
                return top, left, part_height, part_width
        part_width = min(width, max(1, round(height * max(self.ratio))))
        part_height = min(height, max(1, round(width / min(self.ratio))))
        return (height - part_height) // 2, (width - part_width) // 2, part_height, part_width

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * _uniform(self.generator)


def _computed(description: Description, image: NDArray[Any], arguments: Mapping[str, Any]) -> NDArray[Any]:
    """Return the result of an operator for one image."""
    pixels = image[..., np.newaxis] if image.ndim == 2 else image
    made: NDArray[Any] = prepare(description, ("HWC",), arguments, {}).apply((pixels,))[0]
    return made[..., 0] if image.ndim == 2 else made


def _resized(image: NDArray[Any], height: int, width: int, mode: InterpolationMode, antialias: bool) -> NDArray[Any]:
    if image.shape[:2] == (height, width):
        return image
    if 0 in image.shape or min(height, width) < 1:
        raise ArgumentError(f"an image of shape {image.shape} cannot be resized to height {height} and width {width}")
    if mode is InterpolationMode.BOX:
        image = averaged(image, min(height, image.shape[0]), min(width, image.shape[1]))
    arguments = {"size": (height, width), "interp_type": _FILTERS[mode], "antialias": antialias}
    return _computed(resize, image, arguments)


def _two_sizes(size: Any) -> tuple[int, int]:
    if not isinstance(size, Sequence):
        return int(size), int(size)
    if len(size) not in (1, 2):
        raise ArgumentError("Please provide only two dimensions (h, w) for size.")
    return int(size[0]), int(size[-1])


def _generator(generator: Any) -> np.random.Generator | None:
    return None if generator is None else np.random.default_rng(generator)


def _uniform(generator: np.random.Generator | None) -> float:
    return np.random.random() if generator is None else generator.random()
