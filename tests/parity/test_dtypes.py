"""Rounding and saturation: operators with `dtype` or a fill value, applied to the limits and halves of each data type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.parity.alike import assert_same

#: Integers, halves, and numbers beyond the range of small data types. float16 rounds 2049 and 2051, and ends at 65504.
NUMBERS = [0, 0.5, 1, 1.5, 2.5, 2.6, 127.5, 128, 254.5, 255.5, 300, -0.5, -0.6, -1.5, -2.5, -129, 2049, 2051, 32767.5, 40000]
NUMBERS += [65504, 65519, 65520, 70000, -70000, 1e6, -1e6]
NAMES = {"uint8": "UINT8", "int16": "INT16", "int32": "INT32", "float16": "FLOAT16", "float32": "FLOAT"}

#: Names of results, after the dtypes of the input. "own": the dtype of the input.
WINDOWS = {name: ["own", "uint8", "float16", "float32"] for name in NAMES}
WARPED = {"uint8": ["own", "float32"], "int16": ["own", "float32"], "float32": ["own", "uint8", "int16", "int32"]}
ANY = {"uint8": ["own", "int16", "float32"], "int16": ["own", "uint8", "float32"], "float32": ["own", "uint8", "int16"]}
SCALED = {name: ["own", "float32"] for name in ("uint8", "int16", "float32")}
OWN = {name: ["own"] for name in NAMES}

#: Given a library, a node and `dtype`: a node. A window that is padded has one fill value for all channels, because DALI has
#: other rules for more of them.
Case = Callable[[Any, Any, Any], Any]


def _paste(library: Any, x: Any, dtype: Any) -> Any:
    return library.fn.paste(x, ratio=1.5, fill_value=300)


def _warp(kind: str, shift: float, fill: float) -> Case:
    def case(library: Any, x: Any, dtype: Any) -> Any:
        matrix = [1, 0, 0, 0, 1, shift]
        kinds = library.types
        return library.fn.warp_affine(x, matrix=matrix, fill_value=fill, interp_type=getattr(kinds, kind), dtype=dtype)

    return case


def _padded(fill: float) -> Case:
    def case(library: Any, x: Any, dtype: Any) -> Any:
        window = {"start": [-2], "end": [len(NUMBERS) + 1], "axes": [0], "out_of_bounds_policy": "pad"}
        return library.fn.slice(x, **window, fill_values=[fill], dtype=dtype)

    return case


CASES: dict[str, tuple[Case, Mapping[str, list[str]]]] = {
    "crop": (lambda library, x, dtype: library.fn.crop(x, crop=[len(NUMBERS) - 4, 1], dtype=dtype), WINDOWS),
    "slice": (lambda library, x, dtype: library.fn.slice(x, rel_start=[0], rel_end=[1], axes=[0], dtype=dtype), WINDOWS),
    "slice fill 300.7": (_padded(300.7), WINDOWS),
    "slice fill -2.5": (_padded(-2.5), WINDOWS),
    "slice fill -70000.7": (_padded(-70000.7), WINDOWS),
    "pad fill 300": (lambda library, x, dtype: library.fn.pad(x, axes=[0], shape=[40], fill_value=300), OWN),
    "pad fill -2.5": (lambda library, x, dtype: library.fn.pad(x, axes=[0], shape=[40], fill_value=-2.5), OWN),
    "paste": (_paste, {"uint8": ["own"]}),
    "warp nearest": (_warp("INTERP_NN", 2, 300.7), WARPED),
    "warp linear": (_warp("INTERP_LINEAR", 2, -2.5), WARPED),
    "warp halves": (_warp("INTERP_LINEAR", 0.5, 301), WARPED),
    "rotate": (
        lambda library, x, dtype: library.fn.rotate(
            x, angle=90, fill_value=2.6, keep_size=True, interp_type=library.types.INTERP_NN, dtype=dtype
        ),
        WARPED,
    ),
    "resize": (
        lambda library, x, dtype: library.fn.resize(x, size=[len(NUMBERS) * 2, 1], interp_type=0, dtype=dtype),
        SCALED,
    ),
    "multi_paste": (
        lambda library, x, dtype: library.fn.multi_paste(
            x, in_ids=library.types.Constant(np.int32([0]), device="cpu"), output_size=[30, 2], dtype=dtype
        ),
        ANY,
    ),
    "cast": (lambda library, x, dtype: library.fn.cast(x, dtype=dtype), {name: [*NAMES] for name in NAMES}),
    "brightness": (lambda library, x, dtype: library.fn.brightness(x, brightness=1.0, dtype=dtype), ANY),
    "contrast": (lambda library, x, dtype: library.fn.contrast(x, contrast=0.5, contrast_center=0.0, dtype=dtype), ANY),
    "crop_mirror_normalize": (
        lambda library, x, dtype: library.fn.crop_mirror_normalize(x, mean=[0.25], std=[0.5], dtype=dtype),
        {name: ["uint8", "float16", "float32"] for name in ("uint8", "int16", "float32")},
    ),
    "normalize": (
        lambda library, x, dtype: library.fn.normalize(x, mean=0.25, stddev=2.0, dtype=dtype),
        {name: ["uint8", "int16", "float32"] for name in ("uint8", "int16", "float32")},
    ),
    "reductions.mean": (lambda library, x, dtype: library.fn.reductions.mean(x, axes=[1], dtype=dtype), SCALED),
    "coord_transform": (
        lambda library, x, dtype: library.fn.coord_transform(x, M=[1.0], T=[0.5], dtype=dtype),
        {"int16": ["own", "float32"], "float32": ["own"]},
    ),
}


@pytest.mark.parametrize("given", NAMES)
def test_numbers_at_the_limits_and_halves_of_data_types_become_the_same(given: str) -> None:
    def define(library: Any, x: Any) -> dict[str, Any]:
        outputs = {}
        for name, (case, results) in CASES.items():
            for result in results.get(given, ()):
                dtype = getattr(library.types, NAMES[given if result == "own" else result])
                outputs[f"{name} to {result}"] = case(library, x, dtype)
        return outputs

    assert_same(define, [_numbers(np.dtype(given))], layouts=["HWC"])


def _numbers(dtype: np.dtype[Any]) -> np.ndarray:
    """All numbers within the range of the dtype; as many for each dtype."""
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    inside = [number for number in NUMBERS if float(limits.min) <= number <= float(limits.max)]
    return np.resize(np.array(inside), len(NUMBERS)).astype(dtype).reshape(-1, 1, 1)
