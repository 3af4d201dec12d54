"""Properties of every operator, for all shapes, dtypes and layouts. A new operator needs a line in `CASES`.

Each operator is compared with itself: on views, on sequences, with other layouts, and with given memory. Other tests check
its results against formulas and against DALI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cv2 = pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")

from dali_like import types  # noqa: E402
from dali_like.graph.language.operator_interface import OperatorCall  # noqa: E402
from dali_like.graph.language.operator_random import key_of  # noqa: E402
from dali_like.operators.machinery.description import description_of, own_descriptions  # noqa: E402
from dali_like.types import SampleInfo  # noqa: E402
from tests.operators.test_table import TABLE  # noqa: E402

NUMBERS = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float32", "float64")
PIXELS = ("uint8", "int16", "float32")
INTEGERS = ("uint8", "int8", "uint16", "int32", "int64", "uint64")


class Case(NamedTuple):
    """A way to call an operator.

    Attributes:
        arguments: constant arguments, with which results have other shapes than inputs.
        dtypes: dtypes of the first input.
        inputs: number of inputs.
        channels: number of channels of images; 0: any number.
        arrays: whether it accepts arrays without a layout.
    """

    arguments: Mapping[str, Any] = MappingProxyType({})
    dtypes: Sequence[str] = PIXELS
    inputs: int = 1
    channels: int = 0
    arrays: bool = False


def arrays(arguments: dict[str, Any] | None = None, dtypes: Sequence[str] = NUMBERS, inputs: int = 1) -> Case:
    return Case(arguments or {}, dtypes, inputs, 0, arrays=True)


COLORS = Case({}, PIXELS, channels=3)
CASES = {
    "brightness": Case({"brightness": 1.3, "brightness_shift": 0.1}),
    "brightness_contrast": Case({"brightness": 1.3, "contrast": 0.7}),
    "cast": arrays({"dtype": types.INT16}),
    "cast_like": arrays(inputs=2),
    "cat": arrays({"axis": 1}, inputs=3),
    "clahe": Case({"tiles_x": 2, "tiles_y": 1, "clip_limit": 2.0}, ["uint8"], channels=3),
    "color_space_conversion": Case({"image_type": types.RGB, "output_type": types.YCbCr}, ["uint8"], channels=3),
    "color_twist": COLORS._replace(arguments={"hue": 40.0, "saturation": 1.3, "contrast": 0.8}),
    "contrast": Case({"contrast": 0.7}),
    "copy": arrays(),
    "crop": Case({"crop": [3, 2], "crop_pos_x": 0.3, "crop_pos_y": 0.9}),
    "crop_mirror_normalize": Case({"crop": [3, 2], "mirror": 1, "mean": 3.0, "std": 2.0, "output_layout": ""}),
    "erase": Case({"anchor": [1, 1], "shape": [2, 2], "axis_names": "HW", "fill_value": 9.0}),
    "experimental.dilate": Case({"mask_size": [3, 2], "border_mode": "wrap"}),
    "experimental.equalize": Case({}, ["uint8"]),
    "experimental.erode": Case({"iterations": 2}),
    "experimental.median_blur": Case({"window_size": [3, 5]}, NUMBERS),
    "expand_dims": arrays({"axes": [0, 2]}),
    "experimental.resize": Case({"size": [5, 3]}),
    "experimental.tensor_resize": arrays({"sizes": [4, 5], "axes": [0, 2]}, PIXELS),
    "fast_resize_crop_mirror": Case({"size": [5, 6], "crop": [4, 3], "mirror": 3}),
    "flip": Case({"horizontal": 1, "vertical": 1}),
    "full_like": arrays(inputs=2),
    "gaussian_blur": Case({"sigma": 0.9}),
    "grid_mask": Case({"tile": 3, "angle": 0.4, "shift_x": 1.0}),
    "hsv": COLORS._replace(arguments={"hue": 40.0, "saturation": 1.3, "value": 0.8}),
    "hue": COLORS._replace(arguments={"hue": 40.0}),
    "jpeg_compression_distortion": Case({"quality": 30}, ["uint8"], channels=3),
    "laplacian": Case({"window_size": [3, 5]}),
    "lookup_table": arrays({"keys": [1, 3, 200], "values": [7, 8, 9]}, INTEGERS),
    "noise.gaussian": arrays({"stddev": 9.0}),
    "noise.salt_and_pepper": arrays({"prob": 0.5}),
    "noise.shot": arrays(),
    "mel_filter_bank": arrays({"nfilter": 5}, ["float32"]),
    "mfcc": arrays({"n_mfcc": 2}, ["float32"]),
    "normalize": Case({"axis_names": "HW"}),
    "one_hot": arrays({"num_classes": 5, "axis": 0}),
    "ones_like": arrays(),
    "pad": Case({"axis_names": "HW", "shape": [9, 10], "fill_value": 3.0}),
    "paste": Case({"ratio": 1.7, "fill_value": 3, "paste_x": 0.2}),
    "random.beta": arrays(),
    "power_spectrum": arrays({"nfft": 8, "axis": 1}, ["float32"]),
    "preemphasis_filter": arrays({"border": "reflect"}),
    "random.choice": arrays({"shape": [3]}),
    "random.coin_flip": arrays(),
    "random.normal": arrays(),
    "random.uniform": arrays(),
    "random_resized_crop": Case({"size": [4, 5]}),
    "reductions.max": arrays({"axes": [1]}),
    "reductions.mean": arrays({"axes": [0, 2]}),
    "reductions.mean_square": arrays({"axes": [0]}),
    "reductions.min": arrays({"axes": [2], "keep_dims": True}),
    "reductions.rms": arrays({"axes": [0, 1]}),
    "reductions.std_dev": arrays({"axes": [0, 1, 2]}, inputs=2),
    "reductions.sum": arrays({"axes": [0, 1]}),
    "reductions.variance": arrays({"axes": [0, 1, 2], "ddof": 1}, inputs=2),
    "reinterpret": arrays({"dtype": types.UINT8}),
    "reshape": arrays({"shape": [-1, 2]}),
    "resize": Case({"size": [5, 3]}),
    "resize_crop_mirror": Case({"size": [5, 6], "crop": [4, 3], "mirror": 3}),
    "rotate": Case({"angle": 25.0, "fill_value": 3.0}),
    "saturation": COLORS._replace(arguments={"saturation": 1.4}),
    "sequence_rearrange": arrays({"new_order": [0, 0]}),
    "shapes": arrays(),
    "slice": Case({"rel_start": [0.2, 0.3], "rel_end": [0.9, 0.6], "axis_names": "HW"}),
    "sphere": Case({}, ["uint8", "float32"]),
    "squeeze": arrays({"axes": []}),
    "stack": arrays({"axis": 2}, inputs=3),
    "to_decibels": arrays({"reference": 3.0}, ["float32"]),
    "transpose": arrays({"perm": [2, 0, 1]}),
    "water": Case({}, ["uint8", "float32"]),
    "warp_affine": Case({"matrix": [0.9, 0.2, -0.3, -0.15, 1.1, 0.7]}),
    "zeros_like": arrays(),
}
#: Operators whose inputs are files or arbitrary, or that have no inputs, and the files with their property tests.
OTHERS = {
    "batch_permutation": "tests/operators/arrays/test_permutations.py",
    "audio_resample": "tests/operators/sound/test_spectra.py",
    **dict.fromkeys(
        [f"transforms.{name}" for name in ("translation", "scale", "rotation", "shear", "crop", "combine")],
        "tests/operators/geometry/test_transforms.py",
    ),
    **dict.fromkeys(
        ["coord_transform", "coord_flip", "jitter", "experimental.warp_perspective", "experimental.remap"],
        "tests/operators/geometry/test_transforms.py",
    ),
    **dict.fromkeys(TABLE["boxes and masks"][0].split(), "tests/operators/arrays/test_boxes.py"),
    "constant": "tests/operators/arrays/test_arrays.py",
    "decoders.image": "tests/images/test_decode.py",
    "decoders.image_crop": "tests/operators/images/test_decoding.py",
    "decoders.image_random_crop": "tests/operators/images/test_decoding.py",
    "decoders.audio": "tests/operators/sound/test_audio.py",
    "decoders.image_slice": "tests/operators/images/test_decoding.py",
    "decoders.numpy": "tests/operators/images/test_decoding.py",
    "experimental.debayer": "tests/operators/photometry/test_color.py",
    "experimental.audio_resample": "tests/operators/sound/test_spectra.py",
    "experimental.decoders.video": "tests/sources/readers/test_video_reader.py",
    "experimental.filter": "tests/operators/photometry/test_convolutions.py",
    "full": "tests/operators/arrays/test_filling.py",
    "dl_tensor_python_function": "tests/operators/programs/test_python_functions.py",
    "dump_image": "tests/operators/arrays/test_inspection.py",
    "element_extract": "tests/operators/arrays/test_sequences.py",
    "experimental.decoders.image": "tests/operators/images/test_experimental_decoding.py",
    "experimental.decoders.image_crop": "tests/operators/images/test_experimental_decoding.py",
    "experimental.decoders.image_random_crop": "tests/operators/images/test_experimental_decoding.py",
    "experimental.decoders.image_slice": "tests/operators/images/test_experimental_decoding.py",
    "experimental.inflate": "tests/operators/arrays/test_inflating.py",
    "experimental.numba_function": "tests/operators/programs/test_numba_functions.py",
    "experimental.peek_image_shape": "tests/operators/images/test_experimental_decoding.py",
    "get_property": "tests/operators/arrays/test_inspection.py",
    "io.file.read": "tests/operators/programs/test_file_access.py",
    "ones": "tests/operators/arrays/test_filling.py",
    "nonsilent_region": "tests/operators/sound/test_spectra.py",
    "per_frame": "tests/operators/test_frames.py",
    "peek_image_shape": "tests/operators/images/test_decoding.py",
    "permute_batch": "tests/operators/arrays/test_permutations.py",
    "python_function": "tests/operators/programs/test_python_functions.py",
    "random_crop_generator": "tests/operators/geometry/test_resizing.py",
    "spectrogram": "tests/operators/sound/test_spectra.py",
    "torch_python_function": "tests/parity/test_python_functions.py",
    "zeros": "tests/operators/arrays/test_filling.py",
}
#: Layouts without depth; each image operator supports some.
LAYOUTS = ("HWC", "CHW", "FHWC", "FCHW", "CFHW")
#: Tolerance of pixel values: OpenCV scales some images with integers, and blurs rows in another order than columns.
APART = {
    **dict.fromkeys(["resize", "random_resized_crop", "resize_crop_mirror", "fast_resize_crop_mirror"], 1),
    **dict.fromkeys(["experimental.resize", "experimental.tensor_resize", "gaussian_blur"], 1),
}
#: Means over a sequence are summed in another order than means over an image. The products that scale small images are
#: summed in an order that depends on the number of channels.
CLOSE = {"normalize": 1e-5, "random_resized_crop": 1}


def test_every_operator_is_here():
    assert {*CASES, *OTHERS} == {*own_descriptions()}


def compute(path: str, layout: str, inputs: Sequence[np.ndarray], place: Any = None, position: int = 3) -> np.ndarray:
    """Return the operator's result for one sample."""
    operator = description_of(path).bind([layout], CASES[path].arguments)
    call = OperatorCall(SampleInfo(position, 1, 1, 0), [layout, *[""] * (len(inputs) - 1)], key_of(7, 1), place)
    (result,) = operator.compute(call, inputs, {})
    return np.asarray(result)


def compute_stack(path: str, layout: str, stacks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the operator's results for the samples of stacks, from one call."""
    operator = description_of(path).bind([layout], CASES[path].arguments)
    layouts = ["N" * bool(layout) + layout, *[""] * (len(stacks) - 1)]
    call = OperatorCall(
        SampleInfo(3, 1, 1, 0), layouts, key_of(7, 1), count=len(stacks[0]), positions=range(3, 3 + len(stacks[0]))
    )
    (result,) = operator.compute(call, stacks, {})
    return np.asarray(result)


def layouts_of(path: str) -> list[str]:
    allowed = description_of(path).layouts.split()
    return [layout for layout in LAYOUTS if not allowed or layout in allowed]


@st.composite
def samples(draw: Any, path: str) -> tuple[str, list[np.ndarray]]:
    """Draw a layout, and matching inputs."""
    case = CASES[path]
    layout = "" if case.arrays else draw(st.sampled_from(layouts_of(path)))
    extents = {letter: draw(st.integers(4, 8)) for letter in "HW"} | {"F": draw(st.integers(1, 3))}
    extents["C"] = case.channels or draw(st.integers(1, 5))
    shape = [extents[letter] for letter in layout] if layout else [draw(st.integers(1, 4)), draw(st.integers(1, 4)), 2]
    random = np.random.default_rng(draw(st.integers(0, 99)))
    dtype = draw(st.sampled_from(case.dtypes))
    inputs = [random.integers(0, 100, shape).astype(dtype) for _ in range(case.inputs)]
    if path in ("reductions.variance", "reductions.std_dev"):  # their second input is the mean
        inputs[1] = np.asarray(inputs[0].mean(dtype=np.float32))
    if path == "random.choice":
        inputs[0] = inputs[0][:, 0, 0]
    return layout, inputs


@pytest.mark.parametrize("path", CASES)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_views_and_memory_make_no_difference(path, data):
    """Inputs may be views with strides of any sign, and stay unchanged; the result may go to given memory."""
    layout, inputs = data.draw(samples(path))
    expected = compute(path, layout, inputs)
    before = [array.copy() for array in inputs]
    assert not any(np.may_share_memory(expected, array) for array in inputs) or np.array_equal(inputs[0], before[0])

    views = [np.ascontiguousarray(array[::-1].T).T[::-1] if array.ndim else array for array in inputs]
    of_views = compute(path, layout, views)
    assert (of_views.dtype, of_views.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(of_views.astype(float), expected.astype(float), rtol=0, atol=APART.get(path, 0))

    place = np.full(expected.shape, 77).astype(expected.dtype)
    placed = compute(path, layout, inputs, lambda shape, dtype: place)
    np.testing.assert_array_equal(placed, expected, strict=True)
    assert not any(np.may_share_memory(placed, array) for array in inputs)
    for array, same in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, same, strict=True)


def stackable(path: str) -> bool:
    return description_of(path).stacks is not None


@pytest.mark.parametrize("path", [path for path in CASES if stackable(path)])
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_a_stack_gives_the_bits_of_its_samples(path, data):
    layout, inputs = data.draw(samples(path))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    others = [[varied(array, random) for array in inputs] for _ in range(data.draw(st.integers(1, 4)))]

    stacks = [np.stack(arrays) for arrays in zip(inputs, *others, strict=True)]
    results = compute_stack(path, layout, stacks)

    for i, (result, one) in enumerate(zip(results, [inputs, *others], strict=True)):
        expected = compute(path, layout, one, position=3 + i)
        assert np.asarray(result).tobytes() == expected.tobytes()
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)


def varied(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return other elements; some fractions, infinite numbers and NaN among floating-point ones."""
    other = random.permuted(array.reshape(-1)).reshape(array.shape)
    if array.dtype.kind == "f":
        other = (other * random.choice([1, -0.37, 1e6])).astype(array.dtype)
        odd = random.random(array.shape) < 0.1
        other = np.where(odd, random.choice([np.nan, np.inf, -np.inf, 0.5], array.shape), other).astype(array.dtype)
    return np.asarray(other)


@pytest.mark.parametrize(
    "path", [path for path in CASES if {"HWC", "FHWC"} <= {*layouts_of(path)} and not CASES[path].arrays]
)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_films_are_pictures_one_behind_the_other(path, data):
    layout, (film, *_) = data.draw(samples(path).filter(lambda sample: sample[0] == "FHWC"))
    if path == "random_resized_crop":
        pictures = compute(path, "HWC", [np.ascontiguousarray(film.transpose(1, 2, 0, 3)).reshape(*film.shape[1:3], -1)])
        pictures = pictures.reshape(*pictures.shape[:2], len(film), -1).transpose(2, 0, 1, 3)
    else:
        pictures = np.stack([compute(path, "HWC", [picture]) for picture in film])

    np.testing.assert_allclose(compute(path, layout, [film]), pictures, rtol=0, atol=CLOSE.get(path, 0))


@pytest.mark.parametrize("path", [path for path in CASES if not CASES[path].arrays and "CHW" in layouts_of(path)])
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_the_order_of_axes_makes_no_difference(path, data):
    layout, (image, *_) = data.draw(samples(path).filter(lambda sample: sample[0] != "HWC"))
    if path == "gaussian_blur" and layout == "CFHW":
        return  # not supported by this operator
    plain = "FHWC" if "F" in layout else "HWC"
    order = [layout.index(letter) for letter in plain]

    turned = compute(path, layout, [image]).transpose(order)
    expected = compute(path, plain, [np.ascontiguousarray(image.transpose(order))])
    apart = APART.get(path, CLOSE.get(path, 0))
    np.testing.assert_allclose(turned.astype(float), expected.astype(float), rtol=0, atol=apart)
