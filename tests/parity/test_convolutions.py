"""Filters with windows of weights: the same as DALI's, and volumes, which DALI filters on the GPU alone, as SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import dali_like
from tests.parity.alike import assert_both_refuse
from tests.parity.covering import combinations
from tests.parity.side_by_side import assert_alike, run_one

RNG = np.random.default_rng(1)
NOISE = RNG.random((17, 23, 3), np.float32)
WINDOWS = {size: RNG.normal(size=size) for size in ((3, 5), (2, 4), (1, 1), (21, 3))}
FILTERS = combinations(
    {
        "window": [*WINDOWS],
        "precision": ["float32", "float64"],
        "border": ["reflect_101", "reflect_1001", "wrap", "clamp", "constant"],
        "anchor": [-1, 0, (0, -1), (0, 2)],
        "dtype": [None, "FLOAT"],
        "mode": ["same", "valid"],
    }
)


def filters(library: Any, data: Any) -> dict[str, Any]:
    outputs = {}
    for row in FILTERS:
        size, anchor, dtype = row["window"], row["anchor"], row["dtype"]
        if (anchor == (0, 2) and size[1] < 3) or (row["mode"] == "valid" and size[0] > len(NOISE)):
            continue
        outputs[f"{'exact' if dtype is None else 'float'} {row}"] = library.fn.experimental.filter(
            data,
            WINDOWS[size].astype(row["precision"]),
            anchor=anchor,
            border=row["border"],
            mode=row["mode"],
            **({} if dtype is None else {"dtype": getattr(library.types, dtype)}),
        )
    return outputs


@pytest.mark.parametrize(("dtype", "bound"), [("uint8", 0), ("uint16", 1), ("int16", 1), ("float32", 2**-16)])
def test_filtered_images(dtype, bound):
    """OpenCV filters with large windows by Fourier transforms, with errors of rounding."""
    scale = {"uint8": 255, "uint16": 65535, "int16": 32767, "float32": 1}[dtype]
    images = [(NOISE * scale).astype(dtype), (NOISE[:, 4:, :1] * scale).astype(dtype)]

    assert_alike(filters, images, layouts=["HWC"], bounds={"exact": bound, "float": scale * 2**-16})


def test_filtered_layouts():
    layouts = ["HWC", "CHW", "FHWC", "FCHW", "HW", "FHW", ""]
    shapes = [(9, 11, 3), (3, 9, 11), (2, 9, 11, 3), (2, 3, 9, 11), (9, 11), (4, 9, 11), (9, 11)]
    data = [[RNG.integers(0, 256, shape, np.uint8)] for shape in shapes]

    def define(library: Any, *nodes: Any) -> dict[str, Any]:
        return {
            f"{i} {mode}": library.fn.experimental.filter(node, np.float32([[1, 2, 3], [4, 5, -14]]), mode=mode)
            for i, node in enumerate(nodes)
            for mode in ("same", "valid")
        }

    assert_alike(define, *data, layouts=layouts)


def test_filters_of_samples_and_frames():
    videos = [RNG.integers(0, 256, (3, 9, 11, 2), np.uint8) for _ in range(2)]
    images = [video[0] for video in videos]
    windows = [RNG.normal(size=size).astype(np.float32) for size in ((3, 3), (2, 5))]
    of_frames = [RNG.normal(size=(3, 2, 2)).astype(np.float32) for _ in range(2)]
    anchors = [np.int32([0, 1]), np.int32([1, -1])]
    fills = [np.uint8(100), np.uint8(3)]
    fills_of_frames = [np.uint8([0, 100, 200]), np.uint8([1, 2, 3])]

    def define(library: Any, image: Any, video: Any, window: Any, frames: Any, anchor: Any, fill: Any, fills: Any) -> Any:
        filter, per_frame = library.fn.experimental.filter, library.fn.per_frame
        corner = per_frame(np.zeros((3, 2), np.int32))
        return {
            "samples": filter(image, window, fill, anchor=anchor, border="constant"),
            "filled": filter(image, window, fill, border="constant", dtype=library.types.FLOAT),
            "ignored": filter(image, window, fill),
            "frames": filter(video, per_frame(frames), border="wrap"),
            "all": filter(video, per_frame(frames), per_frame(fills), border="constant", anchor=corner),
            "valid": filter(video, window, mode="valid"),
        }

    assert_alike(
        define, images, videos, windows, of_frames, anchors, fills, fills_of_frames, layouts=["HWC", "FHWC"], bounds=2**-9
    )


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", "uint8"])
@pytest.mark.parametrize("layout", ["DHWC", "CDHW", "FDHWC"])
def test_volumes(layout, dtype):
    volume = RNG.integers(0, 100, {"DHWC": (5, 6, 7, 2), "CDHW": (2, 5, 6, 7), "FDHWC": (2, 5, 6, 7, 2)}[layout])
    window = RNG.normal(size=(3, 2, 4)).astype(np.float32)
    modes = {"reflect_101": "mirror", "reflect_1001": "reflect", "wrap": "wrap", "clamp": "nearest", "constant": "constant"}

    def define(library: Any, data: Any) -> dict[str, Any]:
        filter, kind = library.fn.experimental.filter, library.types.FLOAT
        outputs = {border: filter(data, window, border=border, dtype=kind) for border in modes}
        return outputs | {"same": filter(data, window), "valid": filter(data, window, mode="valid", dtype=kind)}

    results = {name: out.samples[0] for name, out in run_one(dali_like, define, [[volume.astype(dtype)]], [layout]).items()}

    spatial = [int(letter in "DHW") for letter in layout]
    sizes = iter(window.shape)
    full = window.reshape([next(sizes) if is_spatial else 1 for is_spatial in spatial]).astype(np.float64)
    for border, mode in modes.items():
        expected = scipy.ndimage.correlate(volume.astype(np.float64), full, mode=mode)
        np.testing.assert_allclose(results[border], expected, atol=1e-3)
    expected = scipy.ndimage.correlate(volume.astype(np.float64), full, mode="mirror")
    inside = [slice(1, -1), slice(1, None), slice(2, -1)]
    parts = iter(inside)
    np.testing.assert_allclose(
        results["valid"], expected[tuple(next(parts) if is_spatial else slice(None) for is_spatial in spatial)], atol=1e-3
    )
    if dtype != "float16":
        expected = np.clip(expected, np.iinfo(dtype).min, np.iinfo(dtype).max)
    np.testing.assert_allclose(results["same"], expected, atol=0.51 if dtype != "float16" else 1)


@pytest.mark.parametrize(
    ("match", "window", "fill", "arguments"),
    [
        ("as many dimensions", (3,), None, {}),
        ("as many dimensions", (1, 3, 3), None, {}),
        ("as many dimensions", (0, 3), None, {}),
        ("FLOAT or FLOAT64", np.ones((3, 3), np.uint8), None, {}),
        ("anchor must lie within", (3, 3), None, {"anchor": (3, 0)}),
        ("anchor must be", (3, 3), None, {"anchor": (-2, 0)}),
        ("anchor must have", (3, 3), None, {"anchor": (1, 1, 1)}),
        ("scalar of the dtype", (3, 3), np.float32(1), {"border": "constant"}),
        ("scalar of the dtype", (3, 3), np.uint8([1]), {"border": "constant"}),
        ("larger than", (20, 3), None, {"mode": "valid"}),
        ("border must be one of", (3, 3), None, {"border": "reflect"}),
        ("mode must be one of", (3, 3), None, {"mode": "full"}),
        ("dtype must be FLOAT", (3, 3), None, {"dtype": "INT16"}),
    ],
)
def test_wrong_filters(match, window, fill, arguments):
    weights = np.ones(window, np.float32) if isinstance(window, tuple) else window
    image = np.zeros((9, 11, 3), np.uint8)

    def define(library: Any, data: Any, fill_value: Any) -> Any:
        given = {**arguments, **({"dtype": library.types.INT16} if "dtype" in arguments else {})}
        return library.fn.experimental.filter(data, weights, *([] if fill is None else [fill_value]), **given)

    assert_both_refuse(define, [image], [np.uint8(0) if fill is None else fill], layouts=["HWC"], match=match)


LAPLACIANS = (
    {},
    {"window_size": 5},
    {"window_size": [3, 7]},
    {"smoothing_size": 1},
    {"window_size": [5, 7], "smoothing_size": [3, 1]},
    {"window_size": 9, "smoothing_size": 3, "normalized_kernel": True},
    {"window_size": [3, 5], "normalized_kernel": True},
    {"scale": [0.3, -0.7]},
    {"scale": 0.01, "window_size": 5},
)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32"])
def test_laplacians(dtype):
    """DALI computes with half precision if the data has it."""
    images = [(image * 100).astype(dtype) for image in (NOISE, NOISE[3:, :4])]
    exact, single = {"float16": (2.0**7, 2.0**7), "float32": (2.0**-9, 2.0**-9)}.get(dtype, (1, 2.0**-9))

    def define(library: Any, data: Any) -> dict[str, Any]:
        fn, kind = library.fn, library.types.FLOAT
        same = {f"same {given}": fn.laplacian(data, **given) for given in LAPLACIANS}
        return same | {f"float {given}": fn.laplacian(data, dtype=kind, **given) for given in LAPLACIANS}

    assert_alike(define, images, layouts=["HWC"], bounds={"same": exact, "float": single})


def test_laplacians_of_layouts():
    shapes = {
        "CHW": (3, 9, 11),
        "FHWC": (2, 9, 11, 3),
        "FCHW": (2, 3, 9, 11),
        "CFHW": (3, 2, 9, 11),
        "HW": (9, 11),
        "W": (9,),
    }
    volumes = {"DHW": (5, 6, 7), "DHWC": (5, 9, 11, 2), "CDHW": (2, 5, 9, 11), "FDHWC": (2, 5, 4, 3, 2), "": (3, 4, 5)}
    data = [[RNG.integers(0, 256, shape, np.uint8)] for shape in (shapes | volumes).values()]

    def define(library: Any, *nodes: Any) -> dict[str, Any]:
        kind = library.types.FLOAT
        outputs = {str(i): library.fn.laplacian(node, dtype=kind) for i, node in enumerate(nodes)}
        return outputs | {
            f"{i} axes": library.fn.laplacian(node, window_size=[3, 5, 7], smoothing_size=[5, 1, 3], scale=[1.0, 0.5, 2.0])
            for i, node in enumerate(nodes)
            if i >= len(shapes)
        }

    assert_alike(define, *data, layouts=[*shapes, *volumes], bounds=2**-9)


def test_laplacians_of_samples_and_frames():
    videos = [RNG.integers(0, 256, (3, 9, 11, 2), np.uint8) for _ in range(2)]
    windows, smoothings = [np.int32([3]), np.int32([3, 5])], [np.int32([1, 3]), np.int32([5])]
    scales = [np.float32([1]), np.float32([0.5, 2])]
    of_frames = [np.int32([[3], [5], [7]]), np.int32([[5], [3], [3]])]

    def define(library: Any, video: Any, window: Any, smoothing: Any, scale: Any, frames: Any) -> dict[str, Any]:
        fn, kind = library.fn, library.types.FLOAT
        return {
            "samples": fn.laplacian(video, window_size=window, smoothing_size=smoothing, scale=scale, dtype=kind),
            "frames": fn.laplacian(video, window_size=fn.per_frame(frames), normalized_kernel=True, dtype=kind),
        }

    assert_alike(define, videos, windows, smoothings, scales, of_frames, layouts=["FHWC"], bounds=2**-9)


@pytest.mark.parametrize(
    ("match", "arguments"),
    [
        ("window_size must be odd numbers from 3", {"window_size": 4}),
        ("window_size must be odd numbers from 3", {"window_size": 1}),
        ("window_size must be", {"window_size": 33}),
        ("smoothing_size must be odd numbers from 1", {"smoothing_size": [1, 2]}),
        ("smoothing_size must be", {"smoothing_size": 0}),
        ("window_size must have", {"window_size": [3, 5, 7]}),
        ("scale must have", {"scale": [1.0, 2.0, 3.0]}),
        ("scale must be", {"scale": []}),
        ("exclude each other", {"scale": 1.0, "normalized_kernel": True}),
    ],
)
def test_wrong_laplacians(match, arguments):
    image = np.zeros((9, 11, 3), np.uint8)

    assert_both_refuse(lambda library, data: library.fn.laplacian(data, **arguments), [image], layouts=["HWC"], match=match)
