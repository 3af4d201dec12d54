"""Operators that scale and crop in one step, and that scale arrays, beside the real DALI.

Both filter in floating point, in another order: 1 level, as for ``resize``. In windows of scaled images, the nearest pixel
is another one where a position lies halfway between two: a row or a column of a few images. DALI 1.53 scales only the first
array of a batch by ``tensor_resize``, and mirrors other axes than asked for if channels or frames come first; the
comparisons avoid both.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.parity.conftest import OURS, Library
from tests.parity.covering import covering_rows
from tests.parity.operators import compare, error_of, outputs

pytestmark = pytest.mark.peers

RNG = np.random.default_rng(0)


def picture(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    """Smooth shapes and some noise, with these extents."""
    grid = np.meshgrid(*(np.linspace(0, 3 + axis, extent) for axis, extent in enumerate(shape)), indexing="ij")
    waves = np.sin(sum(grid)) * 100 + 120
    return np.clip(waves + RNG.uniform(-20, 20, shape), 0, 255).astype(dtype)


IMAGES = [picture(40, 31, 3), picture(23, 37, 3)]


def with_rows(operator: str, rows: list[dict[str, Any]]) -> Any:
    """A program with an output for each row of arguments."""

    def define(library: Library, data: Any) -> list[Any]:
        function = library.fn
        for part in operator.split("."):
            function = getattr(function, part)
        return [function(data, **of_library(library, row)) for row in rows]

    return define


def of_library(library: Library, row: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in row.items() if value is not None}
    symbols = {name: getattr(library.types, given[name]) for name in ("dtype", "interp_type", "min_filter") if name in given}
    return {**given, **symbols}


SIZES = [
    {"size": [20.3, 19.7]},
    {"resize_shorter": 17},
    {"resize_x": 50},
    {"size": [-20, 25]},
    {"size": [30, 20], "mode": "not_larger", "max_size": [25, 30]},
    {"size": [20, 20], "roi_start": [0.9, 0.1], "roi_end": [0.2, 0.8], "roi_relative": True},
]
CROPS: list[dict[str, Any]] = [
    {},
    {"crop": [11, 9], "crop_pos_x": 0.3, "crop_pos_y": 0.8},
    {"crop": [10.6, 0], "rounding": "truncate"},
    {"crop_w": 8, "crop_h": 50},
    {"crop": [5, 9, 12], "crop_pos_z": 0.1, "crop_pos_x": 1.0},
]
FUSED = [
    {
        **row["size"],
        **row["crop"],
        **{name: row[name] for name in ("mirror", "interp_type", "antialias", "subpixel_scale", "dtype")},
    }
    for row in covering_rows(
        {
            "size": SIZES,
            "crop": CROPS,
            "mirror": [None, 1, 2, 3],
            "interp_type": [None, "INTERP_NN", "INTERP_CUBIC"],
            "antialias": [None, False, True],
            "subpixel_scale": [None, False],
            "dtype": [None, "FLOAT"],
        }
    )
]


@pytest.mark.parametrize("operator", ["resize_crop_mirror", "fast_resize_crop_mirror"])
def test_fused(operator: str, dali: Library) -> None:
    rows = [row for row in FUSED if row["interp_type"] != "INTERP_NN"]
    nearest = [row for row in FUSED if row["interp_type"] == "INTERP_NN"]

    compare(dali, with_rows(operator, rows), [IMAGES], ["HWC"], bound=1, mean=0.5)
    compare(dali, with_rows(operator, nearest), [IMAGES], ["HWC"], bound=80, mean=2)


@pytest.mark.parametrize("layout", ["CHW", "FHWC", "FCHW", "CFHW", None])
def test_layouts_of_fused(layout: str | None, dali: Library) -> None:
    rows = [{**row, "mirror": None} for row in FUSED[:6] if row["interp_type"] != "INTERP_NN"]

    compare(dali, with_rows("resize_crop_mirror", rows), [in_layout(layout or "FHWC")], [layout], bound=1, mean=0.5)


def in_layout(layout: str) -> list[np.ndarray]:
    """The images, or two frames of each, in a layout."""
    samples = [np.stack([image, image[::-1]]) if "F" in layout else image for image in IMAGES]
    letters = "FHWC" if "F" in layout else "HWC"
    return [np.ascontiguousarray(sample.transpose([letters.index(letter) for letter in layout])) for sample in samples]


@pytest.mark.parametrize("layout", ["CHW", "FHWC", "FCHW", "CFHW"])
def test_mirrored_layouts(layout: str) -> None:
    rows = [{"size": [21, 15], "crop": [9, 8], "mirror": mirror} for mirror in (1, 2, 3)]
    letters = "FHWC" if "F" in layout else "HWC"
    expected = outputs(OURS, with_rows("resize_crop_mirror", rows), [in_layout("HWC")], ["HWC"])
    results = outputs(OURS, with_rows("resize_crop_mirror", rows), [in_layout(layout)], [layout])

    for one, other in zip(expected, results, strict=True):
        back = other.samples[0].transpose([layout.index(letter) for letter in letters])
        np.testing.assert_array_equal(back[0] if "F" in layout else back, one.samples[0])


@pytest.mark.parametrize("layout", ["DHWC", "CDHW", "FDHWC"])
def test_volumes(layout: str, dali: Library) -> None:
    rows = [
        {"size": [7, 20.5, 30], "crop": [3, 10, 12], "mirror": 7, "crop_pos_z": 0.2},
        {"resize_shorter": 8, "crop_d": 5, "crop_h": 4, "crop_w": 6, "mirror": 4},
        {"resize_z": 4, "crop": [9, 8]},
    ]
    volume = picture(10, 14, 12, 2)
    samples = (
        [np.stack([volume] * 2)] if layout == "FDHWC" else [volume.transpose(["DHWC".index(letter) for letter in layout])]
    )
    if layout != "DHWC":
        rows = [{**row, "mirror": 0} for row in rows]

    compare(dali, with_rows("resize_crop_mirror", rows), [samples], [layout], bound=1, mean=0.5)


@pytest.mark.parametrize("layout", ["DHWC", "CDHW", "FDHWC", "FCDHW", "CFDHW"])
def test_normalized_volumes(layout: str, dali: Library) -> None:
    volume = np.stack([picture(10, 14, 12, 2)] * 2)
    sample = (volume if "F" in layout else volume[0]).transpose(
        [("FDHWC" if "F" in layout else "DHWC").index(x) for x in layout]
    )
    window = {"crop_d": 5, "crop_h": 4, "crop_w": 6, "crop_pos_z": 0.1, "mirror": 1, "mean": [1.0, 2.0], "std": [3.0, 4.0]}
    last, first = layout.replace("C", "") + "C", "C" + layout.replace("C", "")
    rows = [
        {**window, "output_layout": layout},
        {**window, "output_layout": last, "pad_output": True, "dtype": "INT8", "scale": 3.0},
        {"crop": [12, 20, 9], "out_of_bounds_policy": "pad", "fill_values": 7.0, "output_layout": first},
        {"crop": [12, 20, 9], "out_of_bounds_policy": "trim_to_shape", "output_layout": first, "dtype": "FLOAT16"},
        {"crop": [12, 9], "output_layout": "", "dtype": "UINT8", "shift": 3.0},
    ]

    compare(dali, with_rows("crop_mirror_normalize", rows), [[sample]], [layout], bound=1e-5, mean=1e-5)


def test_arguments_by_sample(dali: Library) -> None:
    def define(library: Library, image: Any, size: Any, *numbers: Any) -> list[Any]:
        fused = library.fn.resize_crop_mirror
        turn, place = (library.fn.squeeze(number, axes=[0]) for number in numbers)
        return [
            fused(image, size=size, crop=[10, 12], mirror=turn, crop_pos_x=place),
            fused(image, resize_shorter=20, crop=size, mirror=turn),
        ]

    sizes = [np.float32([20, 25.5]), np.float32([15, 14])]
    compare(
        dali,
        define,
        [IMAGES, sizes, [np.int32(1), np.int32(2)], [np.float32(0.2), np.float32(1)]],
        ["HWC"],
        bound=1,
        mean=0.5,
    )


TENSORS = [
    {"scales": 2.0},
    {"scales": [0.5, 1.7, 1.0]},
    {"scales": [-2.0, 1.0], "axes": [0, 1]},
    {"scales": [0.0, 0.5], "axes": [0, 1]},
    {"sizes": [20, 0, 3]},
    {"sizes": [0, 0, 0]},
    {"sizes": [20.7, 10.2], "axes": [0, 1], "size_rounding": "ceil"},
    {"sizes": [20.7, 10.2], "axes": [-2, 0], "size_rounding": "truncate"},
    {"sizes": [20, 10], "axis_names": "WH", "subpixel_scale": False},
    {"sizes": [20, 10], "axes": [0, 1], "mode": "not_larger"},
    {"sizes": [20, 10], "axes": [0, 1], "mode": "not_smaller"},
    {"sizes": [20, 0], "axes": [0, 1], "mode": "stretch"},
    {"scales": [2, 2], "axes": [0, 1], "max_size": [70, 50]},
    {"sizes": [20, 10], "axes": [0, 1], "roi_start": [30, 2], "roi_end": [1, 20]},
    {"sizes": [20, 10], "axes": [0, 1], "roi_start": [0.1, 0.2], "roi_end": [0.9, 0.8], "roi_relative": True},
    {"scales": [0.8, 0.7], "axes": [0, 1], "roi_start": [1, 2], "roi_end": [30, 20]},
    {"scales": [0.33, 0.33, 1], "alignment": [0.0, 1.0, 0.5]},
    {"scales": [0.33, 0.33, 1], "alignment": 0.2, "dtype": "FLOAT"},
    {"scales": [-0.33, 0.33, 1], "alignment": 0.2, "dtype": "FLOAT"},
    {
        "scales": [0.33, 0.33, 1],
        "alignment": 0.2,
        "size_rounding": "ceil",
        "antialias": False,
        "interp_type": "INTERP_CUBIC",
    },
    {"sizes": [20, 10, 3], "interp_type": "INTERP_NN"},
]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_tensor_resize(dtype: type, dali: Library) -> None:
    rows = [row for row in TENSORS if dtype == np.uint8 or "interp_type" not in row]

    compare(
        dali, with_rows("experimental.tensor_resize", rows), [[picture(40, 30, 3).astype(dtype)]], ["HWC"], bound=1, mean=0.5
    )


@pytest.mark.parametrize("shape", [(17,), (10, 12), (3, 5, 6, 4), (2, 4, 5, 6, 3), (0, 5)], ids=str)
def test_numbers_of_dimensions(shape: tuple[int, ...], dali: Library) -> None:
    rows = [{"sizes": [7], "axes": [0]}, {"sizes": [9], "axes": [-1]}, {"sizes": 5, "axes": list(range(min(len(shape), 3)))}]

    compare(dali, with_rows("experimental.tensor_resize", rows), [[picture(*shape)]], bound=1, mean=0.5)


def test_each_array_of_a_batch_is_scaled() -> None:
    """Unlike in DALI 1.53, which leaves the others as they are."""
    (result,) = outputs(OURS, with_rows("experimental.tensor_resize", [{"sizes": [6, 7], "axes": [0, 1]}]), [IMAGES])

    assert [sample.shape for sample in result.samples] == [(6, 7, 3)] * 2


def test_experimental_resize_is_that_of_opencv() -> None:
    """DALI has it on the GPU alone, by CV-CUDA."""
    rows = [{"size": [80, 62]}, {"size": [10, 12], "antialias": False}, {"size": [80, 62], "interp_type": "INTERP_NN"}]
    results = outputs(OURS, with_rows("experimental.resize", rows), [IMAGES[:1]], ["HWC"])

    for row, result in zip(rows, results, strict=True):
        height, width = row["size"]
        kind = cv2.INTER_NEAREST_EXACT if "interp_type" in row else cv2.INTER_LINEAR
        expected = cv2.resize(IMAGES[0], (width, height), interpolation=kind)
        assert np.abs(result.samples[0].astype(int) - expected).max() <= 1


def test_windows_of_random_crop_generator_are_distributed_alike(dali: Library) -> None:
    shapes = [np.int64([150, 200, 3])] * 4000

    def windows(library: Library) -> np.ndarray:
        def define(library: Library, shape: Any) -> Any:
            return library.fn.random_crop_generator(shape, random_area=[0.1, 0.9], seed=1)

        results = outputs(library, define, [shapes])
        assert [(result.layout, result.samples[0].dtype) for result in results] == [("", np.int32)] * 2
        anchors, sizes = (np.array(result.samples, np.float64) for result in results)
        assert (anchors >= 0).all()
        assert (anchors + sizes <= [150, 200]).all()
        return np.column_stack([anchors, sizes, sizes.prod(axis=1), sizes[:, 1] / sizes[:, 0]])

    ours, theirs = windows(OURS), windows(dali)

    for one, other in zip(ours.T, theirs.T, strict=True):
        numbers = np.union1d(one, other)
        levels = [np.searchsorted(np.sort(values), numbers, "right") / len(values) for values in (one, other)]
        assert np.abs(levels[0] - levels[1]).max() < 1.63 * np.sqrt(2 / len(one))  # Kolmogorov-Smirnov, 1 %


@pytest.mark.parametrize("shape", [[0, 200], [100, 200, 3], [1, 1]], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_shapes_of_whole_windows(shape: list[int], dtype: type, dali: Library) -> None:
    compare(
        dali,
        lambda library, shape: library.fn.random_crop_generator(
            shape, random_area=[1.0, 1.0], random_aspect_ratio=[2.0, 2.0], num_attempts=1
        ),
        [[np.array(shape, dtype)]],
    )


IMAGE = IMAGES[0]
WRONG = [
    ("resize_crop_mirror", IMAGE, {"crop": [10, 10]}),
    ("resize_crop_mirror", IMAGE, {"size": [20, 20], "crop": 10}),
    ("resize_crop_mirror", IMAGE, {"size": [20, 20], "crop": [5, 5], "crop_h": 3, "crop_w": 3}),
    ("resize_crop_mirror", IMAGE, {"size": [20, 20], "crop_h": 3}),
    ("resize_crop_mirror", IMAGE, {"size": [20, 20], "crop": [5, 5], "crop_pos_x": 1.5}),
    ("resize_crop_mirror", IMAGE, {"size": [20, 20], "save_attrs": True}),
    ("resize_crop_mirror", IMAGE, {"size": [20, 20], "rounding": "up"}),
    ("resize_crop_mirror", IMAGE[0], {"size": [20, 20]}),
    ("fast_resize_crop_mirror", IMAGE, {"size": [20, 20, 20]}),
    ("experimental.tensor_resize", IMAGE, {}),
    ("experimental.tensor_resize", IMAGE, {"sizes": 3, "scales": 2}),
    ("experimental.tensor_resize", IMAGE, {"sizes": [3, 4]}),
    ("experimental.tensor_resize", IMAGE, {"sizes": 3, "axes": [5]}),
    ("experimental.tensor_resize", IMAGE, {"sizes": 3, "axes": [0, 0]}),
    ("experimental.tensor_resize", IMAGE, {"sizes": 3, "axis_names": "H", "axes": [0]}),
    ("experimental.tensor_resize", IMAGE, {"sizes": 3, "axis_names": "X"}),
    ("experimental.tensor_resize", IMAGE, {"scales": 3, "mode": "not_larger"}),
    ("experimental.tensor_resize", IMAGE, {"scales": 3, "size_rounding": "up"}),
    ("experimental.tensor_resize", IMAGE, {"scales": 3, "max_size": [3, 4]}),
    ("experimental.tensor_resize", IMAGE, {"scales": 3, "roi_start": 2}),
    ("experimental.tensor_resize", IMAGE, {"scales": 3, "alignment": [0.0, 1.0]}),
    ("experimental.tensor_resize", IMAGE, {"scales": 3, "dtype": "INT16"}),
    ("random_crop_generator", np.int32([100]), {}),
    ("random_crop_generator", np.float32([100, 200]), {}),
    ("random_crop_generator", np.int32([[100, 200]]), {}),
    ("random_crop_generator", np.int32([100, 200]), {"random_area": [1.0, 0.5]}),
    ("random_crop_generator", np.int32([100, 200]), {"random_area": [0.1, 0.2, 0.3]}),
]


@pytest.mark.parametrize(
    ("operator", "sample", "arguments"), WRONG, ids=lambda value: "" if isinstance(value, np.ndarray) else str(value)
)
def test_errors(operator: str, sample: np.ndarray, arguments: dict[str, Any], dali: Library) -> None:
    for library in (dali, OURS):
        assert error_of(library, with_rows(operator, [arguments]), [[sample]]) is not None, library


@pytest.mark.parametrize(
    "region", [{}, {"roi_start": [0, 2.25], "roi_end": [1, 28.5]}, {"roi_start": [0, 27], "roi_end": [1, 3]}]
)
def test_nearest_pixels_at_borders_are_the_same(region: dict[str, Any], dali: Library) -> None:
    """Positions between two pixels are computed in single precision: some lie below the border, some above."""
    widths = [*range(-66, 0), *range(1, 67), 96, 299, 1000]

    def define(library: Library, row: Any, longer: Any, width: Any) -> list[Any]:
        options = {"resize_x": width, "resize_y": 1, "interp_type": library.types.INTERP_NN, **region}
        return [library.fn.resize(image, **options) for image in (row, longer)]

    rows = [np.arange(extent, dtype=np.uint16).reshape(1, extent, 1) for extent in (30, 224)]
    compare(dali, define, [*([row] * len(widths) for row in rows), np.float32(widths)], ["HWC", "HWC"])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resize_shorter", {}),
        ("resize_longer", {}),
        ("resize_x", {}),
        ("resize_y", {"resize_x": 100, "mode": "not_smaller"}),
        ("resize_x", {"resize_y": 60, "mode": "not_larger"}),
        ("resize_shorter", {"max_size": 133}),
    ],
    ids=str,
)
def test_sides_halfway_between_integers_are_the_same(name: str, options: dict[str, Any], dali: Library) -> None:
    """They are computed in single precision, which rounds 376.49998 to 376.5, and 376.5 to 376.49997."""
    images = [np.zeros((*shape, 1), np.uint8) for shape in ((60, 40), (48, 32), (33, 50), (45, 30), (77, 53), (64, 427))]
    wanted = np.arange(1, 128, 2, np.float32)

    def define(library: Library, *nodes: Any) -> list[Any]:
        *pictures, side = nodes
        given = {name: side, **options, "interp_type": library.types.INTERP_NN}
        return [library.fn.resize(picture, **given) for picture in pictures]

    compare(dali, define, [*([image] * len(wanted) for image in images), wanted], ["HWC"] * len(images))
