"""Transforms: the resulting images, and the random distributions."""

from __future__ import annotations

import collections
import itertools
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like.data import (
    CenterCrop,
    Compose,
    InterpolationMode,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToTensor,
)
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, MissingExtraError
from dali_like.tensors import TensorCPU
from tests.internals import part_of

cv2 = pytest.importorskip("cv2")

RGB = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
DTYPES = ["uint8", "uint16", "int16", "float32", "float64"]
OTHER_DTYPES = ["bool", "int8", "int32", "int64", "uint64", "float16", ">u2"]
SHAPES = [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)]


def gradient(height: int, width: int) -> NDArray[np.float64]:
    """Each pixel is its own (row, column)."""
    return np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1).astype(np.float64)


# Compose


def test_composed_transforms_are_applied_in_order() -> None:
    assert Compose([lambda image: image + 1, lambda image: image * 2])(3) == 8


# ToTensor


def test_bytes_become_fractions_channels_first() -> None:
    tensor = ToTensor()(RGB)

    assert (tensor.shape, tensor.dtype) == ((3, 5, 7), np.float32)
    assert np.array_equal(tensor, RGB.transpose(2, 0, 1).astype(np.float32) / np.float32(255))
    assert tensor.flags.c_contiguous


def test_an_image_without_channels_gets_one() -> None:
    assert ToTensor()(RGB[..., 0]).shape == (1, 5, 7)


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint16", "float64"])
def test_other_dtypes_are_kept(dtype: str) -> None:
    image = RGB.astype(dtype)

    tensor = ToTensor()(image)

    assert tensor.dtype == dtype
    assert np.array_equal(tensor, image.transpose(2, 0, 1))
    assert not np.shares_memory(tensor, image)


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        ([[1]], ArgumentTypeError, "pic should be PIL Image or ndarray. Got <class 'list'>"),
        (np.ndarray, ArgumentTypeError, "Got <class 'type'>"),
        (np.zeros(3), ArgumentError, "pic should be 2/3 dimensional. Got 1 dimensions."),
        (np.zeros((1, 1, 1, 1)), ArgumentError, "Got 4 dimensions"),
    ],
)
def test_to_tensor_refuses_other_objects(image: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ToTensor()(image)


# Normalize


def test_channels_are_normalized() -> None:
    tensor = np.ones((2, 3, 4), np.float32) * np.array([4, 9], np.float32).reshape(2, 1, 1)

    result = Normalize(mean=(2, 3), std=(1, 2))(tensor)

    assert result[:, 0, 0].tolist() == [2, 3]
    assert result.dtype == np.float32
    assert tensor[:, 0, 0].tolist() == [4, 9]


def test_one_number_is_for_all_channels_and_batches_are_tensors_too() -> None:
    assert Normalize([1], [2])(np.ones((5, 3, 2, 2))).tolist() == np.zeros((5, 3, 2, 2)).tolist()


def test_in_place() -> None:
    tensor = np.ones((1, 2, 2))

    assert Normalize([1], [1], inplace=True)(tensor) is tensor
    assert not tensor.any()


@pytest.mark.parametrize(
    ("tensor", "std", "error", "message"),
    [
        ([1.0], [1], ArgumentTypeError, "img should be Tensor Image. Got <class 'list'>"),
        (RGB, [1], ArgumentTypeError, "Input tensor should be a float tensor. Got uint8."),
        (np.zeros((2, 2)), [1], ArgumentError, r"size \(..., C, H, W\). Got tensor.size\(\) = \(2, 2\)"),
        (np.zeros((2, 2, 2)), [1, 0], ArgumentError, "std evaluated to zero after conversion to float64"),
        (np.zeros((2, 2, 2), np.float32), [1e-60], ArgumentError, "std evaluated to zero after conversion to float32"),
        (np.zeros((2, 2, 2)), [1, 1, 1], ArgumentError, "std has 3 numbers, the image has 2 channels"),
    ],
)
def test_normalize_refuses_other_objects_and_zero_deviations(
    tensor: Any, std: list[float], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Normalize([0], std)(tensor)


# CenterCrop


@pytest.mark.parametrize(
    ("shape", "size", "top", "left"),
    [
        ((6, 8), (2, 4), 2, 2),
        ((7, 7), (4, 4), 2, 2),  # 1.5 is rounded to 2: halves go to the even number
        ((5, 5), (4, 4), 0, 0),  # 0.5 to 0
        ((5, 7), 3, 1, 2),
        ((5, 7), [3], 1, 2),
        ((5, 7), 3.0, 1, 2),
        ((5, 7), (5, 7), 0, 0),
    ],
)
def test_the_middle_is_cut_out(shape: tuple[int, int], size: Any, top: int, left: int) -> None:
    image = CenterCrop(size)(gradient(*shape))

    assert image[0, 0].tolist() == [top, left]
    assert image.shape == (*(size if isinstance(size, tuple) else (3, 3)), 2)


def test_a_small_image_is_surrounded_with_zeros() -> None:
    image = CenterCrop((4, 2))(np.ones((1, 4), np.uint8))

    assert image.tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]


@given(st.tuples(*[st.integers(1, 9)] * 4), st.booleans())
@settings(max_examples=50, deadline=None)
def test_crops_have_their_size(sizes: tuple[int, int, int, int], colour: bool) -> None:
    height, width, *size = sizes

    image = CenterCrop(size)(np.ones((height, width, 3) if colour else (height, width)))

    assert image.shape[:2] == tuple(size)
    assert image.sum() == min(height, size[0]) * min(width, size[1]) * (3 if colour else 1)


# Resize


@pytest.mark.parametrize(
    ("shape", "size", "max_size", "expected"),
    [
        ((40, 60), 20, None, (20, 30)),
        ((60, 40), 20, None, (30, 20)),
        ((40, 60), [20], None, (20, 30)),
        ((40, 60), (20, 10), None, (20, 10)),
        ((40, 61), 20, None, (20, 30)),  # 30.5 is rounded down
        ((40, 60), 20, 25, (16, 25)),
        ((60, 40), 20, 25, (25, 16)),
        ((40, 60), 20, 30, (20, 30)),
        ((40, 60), 40, None, (40, 60)),
        ((40, 60), 80, None, (80, 120)),
    ],
)
def test_sizes(shape: tuple[int, int], size: Any, max_size: int | None, expected: tuple[int, int]) -> None:
    assert Resize(size, max_size=max_size)(np.zeros(shape, np.uint8)).shape == expected


@pytest.mark.parametrize("mode", [mode.value for mode in InterpolationMode])
def test_every_mode_takes_every_shape(mode: str) -> None:
    for size, shape in itertools.product([(3, 4), (10, 14), (10, 4), (3, 14), (5, 4)], SHAPES):
        image = np.full(shape, 9, np.uint8)

        assert np.array_equal(Resize(size, mode)(image), np.full((*size, *shape[2:]), 9, np.uint8)), (size, shape)


@pytest.mark.parametrize("dtype", [*DTYPES, *OTHER_DTYPES])
def test_dtypes_are_kept(dtype: str) -> None:
    assert Resize((2, 3))(RGB.astype(dtype)).dtype == dtype


@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_box_refuses_dtypes_that_opencv_cannot_average(dtype: str) -> None:
    with pytest.raises(ArgumentTypeError, match="OpenCV averages images of the dtypes float32, float64, int16, uint16"):
        Resize((2, 3), "box")(RGB.astype(dtype))


def test_many_channels() -> None:
    image = np.random.default_rng(2).integers(0, 256, (5, 7, 9), np.uint8)
    assert np.array_equal(Resize((2, 3))(image)[..., 8], Resize((2, 3))(image[..., 8]))
    with pytest.raises(ArgumentTypeError, match=r"up to 4 channels. Got uint8 and shape \(5, 7, 5\)"):
        Resize((2, 3), "box")(image[..., :5])


def test_shrinking_averages() -> None:
    stripes = np.tile(np.array([0, 0, 0, 200], np.uint8), (8, 8))

    assert set(Resize((8, 8), "box")(stripes).ravel()) == {50}
    assert Resize((8, 8))(stripes)[:, 1:-1].max() < 60
    assert set(Resize((8, 8), antialias=False)(stripes).ravel()) == {0}
    assert set(Resize((8, 8), "nearest")(stripes).ravel()) <= {0, 200}


def test_box_repeats_pixels_of_growing_sides() -> None:
    """The image becomes lower, by averaging, and wider."""
    image = np.zeros((8, 2), np.float32)
    image[:, 1] = 8
    image[::2] += 1

    assert Resize((4, 4), "box")(image)[0].tolist() == [0.5, 0.5, 8.5, 8.5]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(75, 113), (224, 224), (340, 500), (40, 600)])
def test_resized_photos_are_those_of_pillow(mode: str, size: tuple[int, int]) -> None:
    photo = pytest.importorskip("skimage.data").chelsea()
    from PIL import Image

    expected = np.asarray(Image.fromarray(photo).resize(size[::-1], Image.Resampling[mode.upper()]))

    difference = np.abs(Resize(size, mode)(photo).astype(int) - expected)

    assert difference.mean() <= (0 if mode == "nearest" else 0.5)
    assert difference.max() <= (0 if mode == "nearest" else 10)


def test_an_image_of_the_right_size_is_left_alone() -> None:
    assert Resize((5, 7))(RGB) is RGB


@pytest.mark.parametrize(
    "image",
    [RGB[::-1, ::-1], np.asfortranarray(RGB), np.frombuffer(RGB.tobytes(), np.uint8).reshape(RGB.shape)],
    ids=["strides", "columns first", "read-only"],
)
def test_images_may_lie_in_memory_as_they_like(image: NDArray[np.uint8]) -> None:
    expected = np.ascontiguousarray(image).copy()

    assert np.array_equal(Resize((3, 4))(image), Resize((3, 4))(expected))
    assert np.array_equal(RandomHorizontalFlip(1)(image), expected[:, ::-1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.5,), ArgumentTypeError, "Size should be int or sequence. Got <class 'float'>"),
        (((1, 2, 3),), ArgumentError, "If size is a sequence, it should have 1 or 2 values"),
        ((8, "linear"), ArgumentTypeError, "one of nearest, nearest-exact, bilinear, bicubic, box, lanczos. Got 'linear'"),
        ((8, "bilinear", 8), ArgumentError, "max_size = 8 must be strictly greater than the requested size"),
        (((8, 9), "bilinear", 10), ArgumentClashError, "max_size should only be passed if size specifies the length"),
    ],
)
def test_sizes_that_cannot_be(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Resize(*arguments)


@pytest.mark.parametrize(("shape", "size"), [((0, 3), (2, 2)), ((3, 3), (0, 2)), ((3, 3), -1)])
def test_without_pixels_nothing_can_be_resized(shape: tuple[int, int], size: Any) -> None:
    with pytest.raises(ArgumentError, match=r"an image of shape \(., 3\) cannot be resized to height"):
        Resize(size)(np.zeros(shape, np.uint8))


# RandomHorizontalFlip


@pytest.mark.parametrize("dtype", [*DTYPES, *OTHER_DTYPES])
def test_flips_mirror(dtype: str) -> None:
    for shape in [*SHAPES, (5, 7, 300), (0, 3, 3), (3, 0)]:
        image = np.arange(np.prod(shape)).reshape(shape).astype(dtype)

        flipped = RandomHorizontalFlip(p=1)(image)

        assert np.array_equal(flipped, image[:, ::-1]), shape
        assert (flipped.dtype, flipped.flags.c_contiguous) == (np.dtype(dtype), True)


def test_large_integers_survive_a_flip() -> None:
    image = np.array([[2**40, 1]])

    assert RandomHorizontalFlip(p=1)(image).tolist() == [[1, 2**40]]


@pytest.mark.parametrize(("p", "flips"), [(0, range(1)), (0.25, range(190, 311)), (1, range(1000, 1001))])
def test_flips_are_as_frequent_as_told(p: float, flips: range) -> None:
    flip = RandomHorizontalFlip(p, generator=1)
    image = np.array([[0, 1]], np.uint8)

    assert sum(int(flip(image)[0, 0]) for _ in range(1000)) in flips


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_random_flip_refuses_other_values_than_probabilities(p: float) -> None:
    with pytest.raises(ArgumentError, match="p should be a probability, from 0 to 1"):
        RandomHorizontalFlip(p)


# RandomResizedCrop


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_parts_lie_in_the_image(height: int, width: int, seed: int) -> None:
    top, left, part_height, part_width = part_of(RandomResizedCrop(8, generator=seed), height, width)

    assert 0 <= top < top + part_height <= height
    assert 0 <= left < left + part_width <= width


def test_parts_have_the_scale_and_the_ratio_that_were_asked_for() -> None:
    crop = RandomResizedCrop(8, scale=(0.1, 0.3), ratio=(0.5, 1.5), generator=1)

    parts = [part_of(crop, 1000, 1000)[2:] for _ in range(300)]

    areas = [height * width / 1e6 for height, width in parts]
    ratios = [width / height for height, width in parts]
    assert 0.099 < min(areas) < 0.105
    assert 0.295 < max(areas) < 0.301
    assert 0.499 < min(ratios) < 0.51
    assert 1.45 < max(ratios) < 1.505


def test_parts_are_anywhere() -> None:
    crop = RandomResizedCrop(8, scale=(0.25, 0.25), ratio=(1, 1), generator=1)

    tops = collections.Counter(part_of(crop, 4, 4)[0] for _ in range(300))

    assert set(tops) == {0, 1, 2}
    assert min(tops.values()) > 70


@pytest.mark.parametrize(
    ("shape", "expected"), [((10, 100), (0, 43, 10, 13)), ((100, 10), (43, 0, 13, 10)), ((10, 10), (0, 0, 10, 10))]
)
def test_the_middle_is_taken_if_nothing_fits(shape: tuple[int, int], expected: tuple[int, ...]) -> None:
    assert part_of(RandomResizedCrop(8, scale=(4, 5), generator=1), *shape) == expected


def test_the_part_is_resized() -> None:
    image = gradient(20, 30)
    crop, same = (RandomResizedCrop((4, 6), generator=3) for _ in range(2))

    top, left, height, width = part_of(same, 20, 30)

    part = image[top : top + height, left : left + width]
    assert np.array_equal(crop(image), Resize((4, 6))(part))


def test_limits_in_the_wrong_order_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"Scale and ratio should be of kind \(min, max\)") as caught:
        RandomResizedCrop(8, scale=(1, 0.5))

    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((1, 2, 3),), ArgumentError, r"Please provide only two dimensions \(h, w\) for size."),
        ((8, 0.5), ArgumentTypeError, "Scale should be a sequence"),
        ((8, (0.5, 1), 1.0), ArgumentTypeError, "Ratio should be a sequence"),
        ((8, (0.5, 1), (1, 2), 2), ArgumentTypeError, "Interpolation should be"),
    ],
)
def test_crops_that_cannot_be(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RandomResizedCrop(*arguments)


# Random distributions


@pytest.fixture(params=[RandomHorizontalFlip, lambda **options: RandomResizedCrop((5, 7), **options)], ids=["flip", "crop"])
def chance(request: pytest.FixtureRequest) -> Any:
    """Makes a random transform."""
    return request.param


def outcomes(transform: Any) -> list[bytes]:
    return [transform(RGB).tobytes() for _ in range(20)]


def test_without_a_generator_the_seed_of_numpy_decides(chance: Any) -> None:
    transform = chance()
    np.random.seed(1)
    first = outcomes(transform)
    np.random.seed(1)

    assert outcomes(transform) == first
    assert outcomes(transform) != first


def test_a_generator_is_independent_of_the_global_state(chance: Any) -> None:
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()

    assert outcomes(chance(generator=5)) == outcomes(chance(generator=np.random.default_rng(5)))
    assert np.random.get_state()[1].tolist() == before


# All transforms


@pytest.mark.parametrize("transform", [CenterCrop(3), Resize(3), RandomHorizontalFlip(1), RandomResizedCrop(3)])
@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        ("image", ArgumentTypeError, "img should be PIL Image or ndarray. Got <class 'str'>"),
        (np.zeros((1, 2, 3, 4)), ArgumentError, r"Got shape \(1, 2, 3, 4\)"),
    ],
)
def test_objects_that_are_not_images_are_refused(transform: Any, image: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        transform(image)


@pytest.mark.parametrize("transform", [CenterCrop(3), Resize(3), RandomHorizontalFlip(1), ToTensor()])
def test_objects_with_the_array_interface_are_images(transform: Any) -> None:
    assert np.array_equal(transform(TensorCPU(RGB)), transform(RGB))


def test_transforms_show_their_arguments() -> None:
    transforms = [
        CenterCrop(3),
        Resize(3),
        RandomHorizontalFlip(),
        RandomResizedCrop(8),
        ToTensor(),
        Normalize([0.5], [0.25]),
    ]

    assert repr(Compose(transforms)).splitlines() == [
        "Compose(",
        "    CenterCrop(size=(3, 3))",
        "    Resize(size=3, interpolation=bilinear, max_size=None, antialias=True)",
        "    RandomHorizontalFlip(p=0.5)",
        "    RandomResizedCrop(size=(8, 8), scale=(0.08, 1.0), ratio=(0.75, 1.3333), "
        "interpolation=bilinear, antialias=True)",
        "    ToTensor()",
        "    Normalize(mean=[0.5], std=[0.25])",
        ")",
    ]


def test_transforms_can_be_pickled() -> None:
    transform = Compose([RandomResizedCrop(4, generator=1), RandomHorizontalFlip(generator=2), ToTensor()])
    copied = pickle.loads(pickle.dumps(transform))

    assert np.array_equal(copied(RGB), transform(RGB))


@pytest.mark.parametrize("transform", [Resize(3), Resize(3, "box")])
def test_without_opencv_the_extra_is_named(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)

    with pytest.raises(MissingExtraError, match=r"needs cv2: pip install 'simplejpeg>=1\.8' 'opencv-python-headless>=4\."):
        transform(RGB)


@pytest.mark.parametrize("transform", [CenterCrop(3), ToTensor(), RandomHorizontalFlip(1)])
def test_transforms_that_need_no_opencv_work_without_it(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)

    transform(RGB)
