"""Dilation, erosion and medians of images. DALI has them on the GPU alone, so they are compared with NumPy and OpenCV.

DALI's own tests compare with OpenCV as well: rectangular masks of (width, height), anchors of (x, y).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

import dali_like
from dali_like.errors import DaliLikeError
from tests.parity.covering import combinations
from tests.parity.side_by_side import run_one

RNG = np.random.default_rng(1)
PADDING = {"replicate": "edge", "reflect": "symmetric", "reflect_101": "reflect", "wrap": "wrap", "constant": "constant"}
SHAPES = {"HW": (9, 11), "HWC": (9, 11, 3), "FHWC": (2, 9, 11, 6), "CHW": (3, 9, 11), "FCHW": (2, 3, 9, 11)}
CASES = combinations(
    {
        "name": ["dilate", "erode"],
        "layout": [*SHAPES],
        "dtype": ["uint8", "uint16", "float32"],
        "border_mode": [*PADDING],
        "mask_size": [(3, 3), (4, 2), (1, 5), 3],
        "anchor": [-1, (0, 1), (0, 0)],
        "iterations": [1, 3],
    }
)


def windows(image: np.ndarray, layout: str, size: tuple[int, int], first: tuple[int, int], mode: str, **options: Any) -> Any:
    """The windows of (width, height) of all elements, as the last two axes."""
    height, width = layout.index("H"), layout.index("W")
    edges = [(0, 0)] * image.ndim
    edges[height], edges[width] = ((at, extent - 1 - at) for at, extent in zip(first[::-1], size[::-1], strict=True))
    padded = np.pad(image, edges, mode, **options)
    return np.lib.stride_tricks.sliding_window_view(padded, size[::-1], (height, width))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_morphology(case):
    image = RNG.integers(0, 256, SHAPES[case["layout"]]).astype(case["dtype"])
    size = (case["mask_size"],) * 2 if isinstance(case["mask_size"], int) else case["mask_size"]
    anchor = (case["anchor"],) * 2 if isinstance(case["anchor"], int) else case["anchor"]
    arguments = {name: case[name] for name in ("border_mode", "mask_size", "anchor", "iterations")}
    if anchor[0] >= size[0] or anchor[1] >= size[1]:
        return

    def define(library: Any, data: Any) -> dict[str, Any]:
        return {"it": getattr(library.fn.experimental, case["name"])(data, **arguments)}

    (result,) = run_one(dali_like, define, [[image]], [case["layout"]])["it"].samples

    reduce, outside = (np.max, 0) if case["name"] == "dilate" else (np.min, 10**9)
    options = {"constant_values": outside} if case["border_mode"] == "constant" else {}
    first = tuple(extent // 2 if at == -1 else at for at, extent in zip(anchor, size, strict=True))
    # Repetitions are one mask that is larger by as much for each of them, as DALI's documentation says.
    size, first = (
        tuple((extent - 1) * case["iterations"] + 1 for extent in size),
        tuple(at * case["iterations"] for at in first),
    )
    wide = image.astype(np.float64)
    expected = reduce(windows(wide, case["layout"], size, first, PADDING[case["border_mode"]], **options), axis=(-2, -1))
    assert (result.dtype, result.shape) == (image.dtype, image.shape)
    np.testing.assert_array_equal(result, expected)


def test_morphology_of_samples_and_frames():
    videos = [RNG.integers(0, 256, (3, 9, 11, 2), np.uint8) for _ in range(2)]
    masks, of_frames = [np.int32([3, 5]), np.int32([1, 2])], [np.int32([[1, 1], [3, 2], [5, 5]])] * 2

    def define(library: Any, video: Any, mask: Any, frames: Any) -> dict[str, Any]:
        fn = library.fn
        dilate, erode = fn.experimental.dilate, fn.experimental.erode
        return {"samples": dilate(video, mask_size=mask), "frames": erode(video, mask_size=fn.per_frame(frames))}

    found = run_one(dali_like, define, [videos, masks, of_frames], ["FHWC"])
    for i, video in enumerate(videos):
        for j, frame in enumerate(video):
            for name, size in (("samples", masks[i]), ("frames", of_frames[i][j])):
                kernel = cv2.getStructuringElement(cv2.MORPH_RECT, size.tolist())
                morphed = cv2.dilate(frame, kernel) if name == "samples" else cv2.erode(frame, kernel)
                np.testing.assert_array_equal(found[name].samples[i][j], morphed)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32"])
@pytest.mark.parametrize("layout", SHAPES)
def test_medians(layout, dtype):
    image = RNG.integers(0, 256, SHAPES[layout]).astype(dtype)
    sizes = [(3, 3), (5, 5), (7, 7), (1, 1), (3, 5), (9, 1)]

    def define(library: Any, data: Any, size: Any) -> dict[str, Any]:
        blur = library.fn.experimental.median_blur
        outputs = {f"{sides}": blur(data, window_size=sides) for sides in sizes}
        return outputs | {"number": blur(data, window_size=3), "default": blur(data), "sample": blur(data, window_size=size)}

    found = run_one(dali_like, define, [[image], [np.int32([3, 5])]], [layout])
    for name, size in {**{f"{size}": size for size in sizes}, "number": (3, 3), "default": (3, 3), "sample": (3, 5)}.items():
        (result,) = found[name].samples
        around = windows(image, layout, size, (size[0] // 2, size[1] // 2), "edge")
        assert result.dtype == image.dtype
        np.testing.assert_array_equal(result, np.median(around, axis=(-2, -1)))


@pytest.mark.parametrize(
    ("match", "name", "arguments", "dtype"),
    [
        ("anchor must lie within", "dilate", {"anchor": (3, 0)}, "uint8"),
        ("anchor must be", "erode", {"anchor": (-2, 0)}, "uint8"),
        ("mask_size must be", "erode", {"mask_size": (0, 3)}, "uint8"),
        ("mask_size must be", "dilate", {"mask_size": (3, 3, 3)}, "uint8"),
        ("iterations must be", "dilate", {"iterations": 0}, "uint8"),
        ("border_mode must be one of", "dilate", {"border_mode": "clamp"}, "uint8"),
        ("images must be of dtype", "dilate", {}, "int64"),
        ("window_size must be odd", "median_blur", {"window_size": 4}, "uint8"),
        ("window_size must be", "median_blur", {"window_size": [3, 3, 3]}, "uint8"),
    ],
)
def test_wrong_arguments(match, name, arguments, dtype):
    with pytest.raises(DaliLikeError, match=match):
        run_one(
            dali_like,
            lambda library, data: {"it": getattr(library.fn.experimental, name)(data, **arguments)},
            [[np.zeros((4, 5, 3), dtype)]],
            ["HWC"],
        )
