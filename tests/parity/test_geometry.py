"""Operators that move and scale pixels, against DALI's, on photographs.

Where DALI computes with integers, so do we, and every pixel is the same. Where values between pixels are made, a bound says
how far pixels may be apart:

* ``resize`` and ``random_resized_crop``: both filter in floating point. Sums in another order round another way where a
  value lies half way between two levels: 1, for very few pixels. DALI reads cubic, Lanczos and Gaussian filters from tables,
  which is 0.1 of a level; it also cuts off the ends of Gaussian filters otherwise: 2. Where the filter is that of OpenCV's
  ``resize`` (linear, and nothing is antialiased), that computes with integers: 1, for one pixel in eight.
* ``rotate`` and ``warp_affine``: OpenCV 5 and DALI both interpolate in floating point: 1, for one pixel in a hundred. The
  nearest pixel is another one where a position lies half way between two, for one pixel in a thousand. With volumes both
  sum up eight neighbours in single precision: 1.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("cv2")
skimage_data = pytest.importorskip("skimage.data")

from tests.parity.conftest import OURS  # noqa: E402
from tests.parity.operators import compare, error_of, outputs  # noqa: E402

pytestmark = pytest.mark.peers

#: Of different sizes, upright and not, and none a multiple of anything.
PHOTOGRAPHS = [
    np.ascontiguousarray(skimage_data.chelsea()[20:151, 100:323]),
    np.ascontiguousarray(skimage_data.astronaut()[:203, 150:301]),
    np.ascontiguousarray(skimage_data.coffee()[100:177, 200:400:2]),
]
VIDEO = [np.stack([picture[:60, :70], picture[5:65, 3:73]]) for picture in PHOTOGRAPHS]


def as_layout(layout: str, dtype: type = np.uint8) -> list[np.ndarray]:
    """The photographs, or two films of each, in any layout."""
    pictures = VIDEO if "F" in layout else PHOTOGRAPHS
    order = ["FHWC".index(letter) for letter in layout] if "F" in layout else ["HWC".index(letter) for letter in layout]
    return [np.ascontiguousarray(picture.transpose(order)).astype(dtype) for picture in pictures]


def case(operator: str, bound: float = 0, mean: float | None = None, **arguments: object) -> object:
    text = " ".join(f"{name}={value}" for name, value in arguments.items())
    return pytest.param(operator, arguments, bound, bound / 20 if mean is None else mean, id=f"{operator} {text}")


EXACT = [
    case("flip"),
    case("flip", horizontal=0, vertical=1),
    case("flip", horizontal=1.0, vertical=0.0, depthwise=None),
    case("flip", vertical=1),
    case("crop", crop=[50, 60]),
    case("crop", crop=[50.9, 60.5], crop_pos_x=0.3, crop_pos_y=0.123),
    case("crop", crop_w=33, crop_h=34, crop_pos_x=1.0, crop_pos_y=0.0, rounding="truncate"),
    case("crop", crop=[51, 62], rounding="truncate", dtype="FLOAT"),
    case("crop", crop=[0, 20]),
    case("crop", crop=[190, 120], out_of_bounds_policy="pad", fill_values=[1, 2, 3], crop_pos_y=0.3),
    case("crop", crop=[191, 121], out_of_bounds_policy="pad", fill_values=7.9),
    case("crop", crop=[190, 120], out_of_bounds_policy="trim_to_shape"),
    case("crop"),
    case("crop", crop=[1, 20, 30]),
    case("crop", crop=[20, 30], crop_pos_x=None, rounding=None),
    case("slice", start=[10, 20], end=[30, 60]),
    case("slice", start=[10, 20], shape=[30, 40]),
    case("slice", rel_start=[0.1, 0.2], rel_end=[0.5, 0.613]),
    case("slice", rel_start=[0.1, 0.2], rel_shape=[0.5, 0.613]),
    case("slice", start=[10, 20], rel_end=[0.5, 0.9]),
    case("slice", start=[10, 20]),
    case("slice", end=[10, 20]),
    case("slice", rel_shape=[0.3, 0.3]),
    case("slice", start=10, end=30, axes=[0]),
    case("slice", start=10, end=30),
    case("slice", start=[10, 20], rel_shape=[0.2]),
    case("slice", start=[10, 20, 1], end=[30, 40, 3], axes=[]),
    case("slice", start=[10], end=[30], axes=[-2]),
    case("slice", start=10, end=30, axis_names="H"),
    case("slice", start=[-3, 2], end=[10, 300], out_of_bounds_policy="pad", fill_values=[1, 2, 3]),
    case("slice", start=[-3, 2], end=[10, 300], out_of_bounds_policy="trim_to_shape", dtype="FLOAT"),
    case("pad", fill_value=9),
    case("pad", axes=[0], shape=[150]),
    case("pad", axes=[0, 1], align=[32, 48]),
    case("pad", axis_names="HW", align=[32]),
    case("pad", axes=[0, 1], shape=[150, -1], fill_value=255),
    case("pad", shape=[120, 160, 4]),
    case("pad", axes=[-1], align=4),
    case("pad", axes=[0, 1], shape=250),
    case("pad", axes=[1, 0], shape=[230, 210], align=[32, 1], fill_value=3),
    case("pad", axes=[], shape=[], align=5),
    case("paste", ratio=1.5, fill_value=[1, 2, 3]),
    case("paste", ratio=1.333, fill_value=7, paste_x=0.3, paste_y=0.7),
    case("paste", ratio=1.2, fill_value=[0], min_canvas_size=300),
    case("resize", size=[40, 50], interp_type="INTERP_NN"),
    case("resize", size=[301, 277], interp_type="INTERP_NN"),
    case("resize", size=[77.3, 90.8], interp_type="INTERP_NN", roi_start=[10.3, 60], roi_end=[80, 5.5]),
    case("warp_affine", matrix=[0.9, 0.2, -5.3, -0.15, 1.1, 7.7], interp_type="INTERP_NN", fill_value=300),
    case("warp_affine", matrix=[0.9, 0.2, -5.3, -0.15, 1.1, 7.7], interp_type="INTERP_NN"),
]

SIZES = [
    {"size": [60, 70]},
    {"size": 64},
    {"size": [250, 40]},
    {"size": [250, 300]},
    {"size": [0, 50]},
    {"size": [-30, 40]},
    {"size": [33.5, 44.4]},
    {"size": [33.5, 44.4], "subpixel_scale": False},
    {"resize_x": 50},
    {"resize_y": 33.7},
    {"resize_x": -50.5},
    {"resize_x": 50, "resize_y": 70},
    {"resize_x": 50, "mode": "stretch"},
    {"resize_shorter": 60},
    {"resize_longer": 60},
    {"resize_shorter": 60, "max_size": 70},
    {"size": [50, 60], "mode": "not_larger"},
    {"size": [50, 60], "mode": "not_smaller"},
    {"size": [50, 60], "mode": "not_smaller", "max_size": 55},
    {"size": [50, 60], "mode": "not_smaller", "max_size": [300, 52]},
    {"size": [500, 600], "max_size": [100, 90]},
    {"resize_x": 0.2},
    {"size": [40, 50], "roi_start": [10.3, 20.7], "roi_end": [60.2, 50.9]},
    {"size": [40, 50], "roi_start": [60.2, 50.9], "roi_end": [10.3, 20.7]},
    {"size": [40, 50], "roi_start": [-5, -7], "roi_end": [90, 120]},
    {"size": [40, 50], "roi_start": [0.1, 0.2], "roi_end": [0.5, 0.9], "roi_relative": True},
    {"resize_shorter": 50, "roi_start": [10, 20], "roi_end": [60, 50]},
]
FILTERS = [
    {"interp_type": "INTERP_LINEAR", "antialias": False},
    {"interp_type": "INTERP_CUBIC"},
    {"interp_type": "INTERP_CUBIC", "antialias": False},
    {"interp_type": "INTERP_LANCZOS3"},
    {"interp_type": "INTERP_GAUSSIAN"},
    {"interp_type": "INTERP_TRIANGULAR"},
    {"min_filter": "INTERP_NN", "mag_filter": "INTERP_CUBIC"},
    {"interp_type": "INTERP_NN", "mag_filter": "INTERP_LINEAR"},
]
CLOSE = [
    *(case("resize", 1, 0.2 if size == {"size": [250, 300]} else None, **size) for size in SIZES),
    *(
        case("resize", 2 if "GAUSS" in str(kind) else 1, 0.2 if kind == FILTERS[0] else None, **kind, **size)
        for kind, size in itertools.product(FILTERS, [{"size": [60, 70]}, {"size": [250, 90]}, {"size": [66, 0]}])
    ),
    # Of one row: a value half way between two levels comes in all rows.
    case("resize", 1, 0.3, size=[20, 30], roi_start=[10, 20], roi_end=[10, 50]),
    case("rotate", 1, angle=0.0),
    case("rotate", 255, 0.05, angle=30, interp_type="INTERP_NN", fill_value=5),
    *(case("rotate", 1, angle=angle, fill_value=0) for angle in (10, 30, 45, 77.3, 90, 180, -20, 271)),
    case("rotate", 1, angle=30, keep_size=True),
    case("rotate", 1, angle=-100, size=[50, 61], fill_value=128),
    case("warp_affine", 1, matrix=[0.9, 0.2, -5.3, -0.15, 1.1, 7.7]),
    case("warp_affine", 1, matrix=[0.9, 0.2, -5.3, -0.15, 1.1, 7.7], fill_value=42, size=[90, 130]),
    case("warp_affine", 1, matrix=[0.9, 0.2, -5.3, -0.15, 1.1, 7.7], inverse_map=False, fill_value=0),
]
#: In levels of 0 to 255, where the results are floats.
FLOATS = [
    *(case("resize", 0.05, dtype="FLOAT", **size) for size in SIZES[:4]),
    *(case("resize", 1.5 if "GAUSS" in str(kind) else 0.1, dtype="FLOAT", size=[60, 250], **kind) for kind in FILTERS),
    case("rotate", 0.1, angle=30, dtype="FLOAT", fill_value=0),
    case("warp_affine", 0.1, matrix=[0.9, 0.2, -5.3, -0.15, 1.1, 7.7], dtype="FLOAT"),
]


def program(operator, arguments):
    def define(library, *nodes):
        given = {
            name: getattr(library.types, value) if isinstance(value, str) and value.isupper() and len(value) > 3 else value
            for name, value in arguments.items()
        }
        return getattr(library.fn, operator)(*nodes, **given)

    return define


@pytest.mark.parametrize(("operator", "arguments", "bound", "mean"), [*EXACT, *CLOSE, *FLOATS])
def test_photographs(operator, arguments, bound, mean, dali):
    compare(dali, program(operator, arguments), [PHOTOGRAPHS], ["HWC"], bound=bound, mean=mean)


LAYOUTS = {
    "flip": ["HWC", "CHW", "FHWC", "FCHW"],
    "crop": ["HWC", "CHW", "FHWC", "FCHW", "CFHW"],
    "slice": ["HWC", "CHW", "FHWC", "FCHW", "CFHW"],
    "resize": ["HWC", "CHW", "FHWC", "FCHW", "CFHW"],
    "rotate": ["HWC", "FHWC"],
    "warp_affine": ["HWC", "FHWC"],
}
PLAIN = {
    "flip": {},
    "crop": {"crop": [20, 31]},
    "slice": {"start": [3, 5], "end": [20, 36]},
    "resize": {"size": [33, 40]},
    "rotate": {"angle": 20, "fill_value": 0},
    "warp_affine": {"matrix": [0.9, 0.2, -5.3, -0.15, 1.1, 7.7], "fill_value": 0},
}


@pytest.mark.parametrize(("operator", "layout"), [(name, layout) for name in LAYOUTS for layout in LAYOUTS[name]])
def test_layouts(operator, layout, dali):
    bound = 1 if operator in ("resize", "rotate", "warp_affine") else 0
    compare(dali, program(operator, PLAIN[operator]), [as_layout(layout)], [layout], bound=bound)


#: Two volumes of two channels, which are smooth as real ones are.
VOLUMES = [np.stack([picture[i : i + 20, i : i + 33, :2] for i in range(7)]) for picture in PHOTOGRAPHS]


@pytest.mark.parametrize("layout", ["DHWC", "CDHW"])
@pytest.mark.parametrize(
    ("operator", "arguments", "bound"),
    [
        ("flip", {"depthwise": 1}, 0),
        ("crop", {"crop": [4, 10, 12], "crop_pos_z": 0.2}, 0),
        ("crop", {"crop_d": 4, "crop_h": 9, "crop_w": 11, "crop_pos_z": 1.0}, 0),
        ("slice", {"start": [1, 2, 3], "end": [4, 9, 20], "axis_names": "DHW"}, 0),
        ("resize", {"size": [5, 30, 12]}, 1),
        ("resize", {"resize_z": 4}, 1),
        ("resize", {"resize_shorter": 12, "interp_type": "INTERP_CUBIC"}, 1),
        ("crop", {"crop": [10, 12]}, 0),
    ],
    ids=str,
)
def test_volumes(operator, arguments, bound, layout, dali):
    volumes = [volume if layout == "DHWC" else volume.transpose(3, 0, 1, 2) for volume in VOLUMES]
    compare(dali, program(operator, arguments), [volumes], [layout], bound=bound)


@pytest.mark.parametrize("layout", ["FHWC", "FCHW", "CFHW"])
@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("crop", {"crop": [4, 10, 12], "crop_pos_z": 0.2}),
        ("crop", {"crop_d": 4, "crop_h": 9, "crop_w": 11, "crop_pos_z": 1.0}),
        ("crop", {"crop": [9, 10, 12], "out_of_bounds_policy": "pad"}),
        ("crop_mirror_normalize", {"crop": [4, 10, 12], "crop_pos_z": 0.2, "output_layout": ""}),
        ("crop_mirror_normalize", {"crop_d": 4, "crop_h": 9, "crop_w": 11, "mirror": 1, "output_layout": ""}),
    ],
    ids=str,
)
def test_frames_are_the_depth_of_sequences(operator, arguments, layout, dali):
    sequences = [volume.transpose(["FHWC".index(letter) for letter in layout]) for volume in VOLUMES]
    compare(dali, program(operator, arguments), [sequences], [layout])


@pytest.mark.parametrize("mode", ["default", "stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("size", [[20, 21], [20, 0], [0, 21]], ids=str)
@pytest.mark.parametrize("shape", [(0, 0, 3), (0, 5, 3), (4, 0, 3), (4, 5, 0)], ids=str)
def test_empty_images_are_resized_to_empty_ones(shape, size, mode, dali):
    compare(dali, program("resize", {"size": size, "mode": mode}), [[np.zeros(shape, np.uint8)]], ["HWC"])


def test_sequences_without_frames_are_resized(dali):
    compare(dali, program("resize", {"size": [7, 8]}), [[np.zeros((0, 4, 5, 3), np.uint8)]], ["FHWC"])


@pytest.mark.parametrize("kind", ["INTERP_NN", "INTERP_LINEAR", "INTERP_LANCZOS3"])
def test_sizes_of_next_to_nothing_make_one_pixel(kind, dali):
    compare(dali, program("resize", {"size": 1e-10, "interp_type": kind}), [PHOTOGRAPHS], ["HWC"], bound=1, mean=1)


AXES = [[0, 0, 1], [0, -2, 0], [1, 0, 0], [1, 1, 1], [0.3, -1.2, 0.7]]


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        *(("rotate", {"angle": angle, "axis": axis}) for angle in (20.0, 45.0, -135.0) for axis in AXES),
        ("rotate", {"angle": 50.0, "axis": [1, 2, 3], "fill_value": 7.0}),
        ("rotate", {"angle": 50.0, "axis": [1, 2, 3], "keep_size": True}),
        ("rotate", {"angle": 50.0, "axis": [1, 2, 3], "size": [5, 6, 7.4], "interp_type": "INTERP_NN"}),
        ("warp_affine", {"matrix": [1, 0.1, 0, 0, 0.2, 1, 0, 1, 0, 0.1, 1.2, 0.3]}),
        ("warp_affine", {"matrix": [1, 0.1, 0, 0, 0.2, 1, 0, 1, 0, 0.1, 1.2, 0.3], "inverse_map": False, "size": [3, 9, 8]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["DHWC", "FDHWC"])
def test_warped_volumes(operator, arguments, layout, dali):
    volumes = [volume if layout == "DHWC" else np.stack([volume, volume[::-1]]) for volume in VOLUMES]
    compare(dali, program(operator, arguments), [volumes], [layout], bound=1)


@pytest.mark.parametrize("channels", [1, 2, 4, 6])
def test_channels(channels, dali):
    """OpenCV interpolates two channels less exactly than others."""
    pictures = [np.concatenate([picture, picture[::-1]], axis=2)[:, :, :channels] for picture in PHOTOGRAPHS]
    for operator in ("rotate", "warp_affine", "resize"):
        compare(dali, program(operator, PLAIN[operator]), [pictures], ["HWC"], bound=1)


def test_sizes_before_resizing(dali):
    def define(library, image, volume):
        return [
            *library.fn.resize(image, resize_shorter=20, save_attrs=True),
            library.fn.resize(volume, size=[3, 4, 5], save_attrs=True)[1],
        ]

    compare(dali, define, [PHOTOGRAPHS, VOLUMES], ["HWC", "DHWC"], bound=1)


@pytest.mark.parametrize("operator", ["flip", "crop", "slice", "resize", "rotate"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_dtypes(operator, dtype, dali):
    bound = {"resize": 1, "rotate": 1}.get(operator, 0)
    compare(dali, program(operator, PLAIN[operator]), [as_layout("HWC", dtype)], ["HWC"], bound=bound)


@pytest.mark.parametrize("operator", ["flip", "crop", "resize", "rotate"])
def test_without_a_layout(operator, dali):
    compare(dali, program(operator, PLAIN[operator]), [PHOTOGRAPHS], bound=1)


class TestArgumentsThatDifferFromSampleToSample:
    def test_of_flip_and_crop(self, dali):
        def define(library, image, turn, place, size):
            return [
                library.fn.flip(image, horizontal=turn, vertical=turn),
                library.fn.crop(image, crop=size, crop_pos_x=place, crop_pos_y=place),
            ]

        turns = [np.int32(i % 2) for i in range(3)]
        places = [np.float32(0.3 * i) for i in range(3)]
        sizes = [np.float32([20 + i, 30 - i]) for i in range(3)]
        compare(dali, define, [PHOTOGRAPHS, turns, places, sizes], ["HWC"])

    def test_of_slice(self, dali):
        def define(library, image, start, size, where, extent):
            fn = library.fn
            return [
                fn.slice(image, start, size),
                fn.slice(image, where, extent),
                fn.slice(image, where, extent, normalized_anchor=False, normalized_shape=False, out_of_bounds_policy="pad"),
                fn.slice(image, start=start, shape=size, axis_names="HW"),
            ]

        starts = [np.int32([i, 2 * i]) for i in range(3)]
        sizes = [np.int32([20 + i, 30]) for i in range(3)]
        places = [np.float32([0.1 * i, 0.2]) for i in range(3)]
        extents = [np.float32([0.5, 0.6 - 0.1 * i]) for i in range(3)]
        compare(dali, define, [PHOTOGRAPHS, starts, sizes, places, extents], ["HWC"])

    def test_of_resize_rotate_and_warp(self, dali):
        def define(library, image, size, angle, matrix):
            fn = library.fn
            return [
                fn.resize(image, size=size),
                fn.resize(image, resize_shorter=angle),
                fn.rotate(image, angle=angle, fill_value=3),
                fn.warp_affine(image, matrix, fill_value=3),
            ]

        sizes = [np.float32([40 + i, 50 - 7 * i]) for i in range(3)]
        angles = [np.float32(20 + 30 * i) for i in range(3)]
        matrices = [np.float32([[1, 0.1 * i, 3], [0.1, 1, i]]) for i in range(3)]
        compare(dali, define, [PHOTOGRAPHS, sizes, angles, matrices], ["HWC"], bound=1)

    def test_of_pad_and_paste(self, dali):
        def define(library, image, ratio, place, shape):
            fn = library.fn
            return [fn.paste(image, ratio=ratio, paste_x=place, fill_value=3), fn.pad(image, axes=[0, 1], shape=shape)]

        ratios = [np.float32(1 + 0.2 * i) for i in range(3)]
        places = [np.float32(0.4 * i) for i in range(3)]
        shapes = [np.int32([200, 100 * i]) for i in range(3)]
        compare(dali, define, [PHOTOGRAPHS, ratios, places, shapes], ["HWC"])


def test_random_resized_crop_resizes_as_resize_does(dali):
    """The window of a whole image is no longer random."""
    arguments = {"size": [50, 60], "random_area": [1.0, 1.0], "random_aspect_ratio": [0.01, 100.0], "num_attempts": 1}
    whole = {"size": [50, 60]}
    square = [np.ascontiguousarray(picture[:70, :70]) for picture in PHOTOGRAPHS]
    del arguments["random_aspect_ratio"]
    arguments["random_aspect_ratio"] = [1.0, 1.0]

    (ours,) = outputs(OURS, program("random_resized_crop", arguments), [square], ["HWC"])
    (theirs,) = outputs(dali, program("resize", whole), [square], ["HWC"])

    for one, other in zip(ours.samples, theirs.samples, strict=True):
        assert np.abs(one.astype(int) - other).max() <= 1


def test_windows_of_random_resized_crop_are_distributed_alike(dali):
    """Of ramps: the first and the last pixel of the result say where the window lay."""
    ramp = np.arange(200, dtype=np.float32)
    image = np.stack(np.broadcast_arrays(ramp[:150, None], ramp[None, :]), axis=2)
    arguments = {"size": [2, 2], "interp_type": "INTERP_NN", "random_area": [0.1, 0.9], "seed": 1}

    def windows(library):
        (result,) = outputs(library, program("random_resized_crop", arguments), [[image] * 5000], ["HWC"])
        corners = np.array(result.samples)
        sides = 2 * (corners[:, 1, 1] - corners[:, 0, 0])  # from the middle of the first quarter to that of the last
        return np.column_stack([sides, sides.prod(axis=1), sides[:, 1] / sides[:, 0], corners[:, 0, 0]])

    ours, theirs = windows(OURS), windows(dali)

    for percent in (5, 25, 50, 75, 95):
        spread = np.percentile(theirs, 95, axis=0) - np.percentile(theirs, 5, axis=0)
        apart = np.abs(np.percentile(ours, percent, axis=0) - np.percentile(theirs, percent, axis=0))
        assert (apart <= 0.05 * spread).all(), percent


WRONG = [
    ("rotate", {"angle": 30, "size": [3, 4, 5]}),
    ("rotate", {"angle": float("nan")}),
    ("pad", {"align": 0}),
    ("paste", {"ratio": 1.5, "fill_value": 0, "paste_x": -0.1}),
    ("flip", {"horizontal": "a"}),
    ("flip", {"sideways": 1}),
    ("crop", {"crop_h": 50}),
    ("crop", {"crop": 40}),
    ("crop", {"crop": [40, 40], "crop_h": 3}),
    ("crop", {"crop": [300, 300]}),
    ("crop", {"crop": [40, 40], "crop_pos_x": 1.5}),
    ("crop", {"crop": [40, 40], "rounding": "up"}),
    ("slice", {"start": [1, 1], "rel_start": [0.1, 0.1]}),
    ("slice", {"end": [5, 5], "shape": [3, 3]}),
    ("slice", {"start": [30, 30], "end": [10, 10]}),
    ("slice", {"start": [-3, 2], "end": [10, 10]}),
    ("resize", {}),
    ("resize", {"size": [30, 30], "resize_x": 3}),
    ("resize", {"size": [30, 30, 30]}),
    ("resize", {"size": [30, 30], "mode": "smaller"}),
    ("resize", {"resize_shorter": 30, "mode": "not_larger"}),
    ("resize", {"size": [30, 30], "roi_start": [0, 0]}),
    ("resize", {"size": [30, 30], "dtype": "INT16"}),
    ("rotate", {}),
    ("warp_affine", {}),
    ("warp_affine", {"matrix": [1, 0, 0]}),
    ("warp_affine", {"matrix": [1, 0, 0, 0, 1, 0], "size": [3]}),
    ("warp_affine", {"matrix": [1, 0, 0, 0, 1, 0], "interp_type": "INTERP_CUBIC"}),
    ("paste", {"ratio": 0.5, "fill_value": 0}),
    ("paste", {"ratio": 1.5, "fill_value": [1, 2, 3, 4]}),
    ("pad", {"axes": [0, 5]}),
    ("pad", {"axis_names": "Z"}),
    ("random_resized_crop", {}),
]


@pytest.mark.parametrize(("operator", "arguments"), WRONG)
def test_wrong_arguments_are_errors_in_both_libraries(operator, arguments, dali):
    define = program(operator, arguments)

    assert error_of(dali, define, [PHOTOGRAPHS[:1]]) is not None
    assert f"{operator}" in str(ours := error_of(OURS, define, [PHOTOGRAPHS[:1]])) + str(getattr(ours, "__notes__", ""))
