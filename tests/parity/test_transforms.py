"""``fn.transforms``, points and displaced images, against DALI's on the CPU.

Matrices and points differ by the order of sums in single precision: 1e-5. Displaced images: the same pixels, or 1 where
values are interpolated. ``experimental.remap`` and ``jitter`` exist only on DALI's GPU:
tests/operators/geometry/test_transforms.py.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("cv2")

from tests.parity.conftest import OURS
from tests.parity.operators import compare, error_of

pytestmark = pytest.mark.peers

MATRICES = [np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([[0.5, 0, 1], [-1, 2, 0]], np.float32)]
SOLID = [np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)]
PAIRS = [np.array([0.25, -3], np.float32), np.array([2, 0.5], np.float32)]
PLANAR = [
    ("translation", {"offset": (1.5, -2)}),
    ("scale", {"scale": (2, 0.3)}),
    ("scale", {"scale": (2, 0.3), "center": (5, 6)}),
    ("rotation", {"angle": 30.0}),
    ("rotation", {"angle": -75.0, "center": (5, 6)}),
    ("rotation", {"angle": 30.0, "center": 3}),
    ("shear", {"shear": (0.5, 2)}),
    ("shear", {"angles": (30, -40), "center": (1, 2)}),
    ("crop", {"from_start": (0.1, 0.2), "from_end": (0.8, 1.2), "to_start": (0.2, 0.3), "to_end": (0.8, 0.5)}),
    ("crop", {"from_start": (1, 2), "from_end": (0, 1), "absolute": True}),
]
SPATIAL = [
    ("translation", {"offset": (1.5, -2, 7)}),
    ("scale", {"scale": 2, "ndim": 3}),
    ("scale", {"scale": (2, 3, 4), "center": (5, 6, 7)}),
    ("rotation", {"angle": 30.0, "axis": (1, 2, 3)}),
    ("rotation", {"angle": 30.0, "axis": (1, 2, 3), "center": (4, 5, 6)}),
    ("shear", {"shear": (1, 2, 3, 4, 5, 6), "center": (1, 2, 3)}),
    ("crop", {"from_end": (2, 3, 4)}),
]


@pytest.mark.parametrize("reverse_order", [False, True])
@pytest.mark.parametrize(("given", "cases"), [(MATRICES, PLANAR), (SOLID, SPATIAL)], ids=["2D", "3D"])
def test_transforms(dali, given, cases, reverse_order):
    def define(library, matrix):
        transforms = library.fn.transforms
        made = [getattr(transforms, name)(**arguments) for name, arguments in cases]
        applied = [getattr(transforms, name)(matrix, reverse_order=reverse_order, **arguments) for name, arguments in cases]
        return [*made, *applied, transforms.combine(matrix, made[0], made[1], reverse_order=reverse_order)]

    compare(dali, define, [given], bound=3e-5, mean=1e-5)


@pytest.mark.filterwarnings("ignore:.*transform_translation.*deprecated:DeprecationWarning")
def test_values_per_sample_and_per_frame(dali):
    angles = [np.float32(10), np.float32(50)]
    films = [np.array([[1, 2], [3, 4], [5, 6]], np.float32), np.array([[7, 8], [9, 1]], np.float32)]

    def define(library, matrix, pair, angle, film):
        transforms, frames = library.fn.transforms, library.fn.per_frame(film)
        angle = library.fn.squeeze(angle, axes=0)
        moved = transforms.translation(offset=frames)
        return [
            transforms.translation(offset=pair),
            transforms.scale(matrix, scale=pair, center=pair),
            transforms.rotation(angle=angle, center=pair),
            transforms.shear(shear=pair),
            transforms.crop(from_end=pair),
            library.fn.transform_translation(offset=pair),
            moved,
            transforms.rotation(moved, angle=angle),
            transforms.scale(scale=frames, center=frames),
            transforms.combine(matrix, moved),
        ]

    compare(dali, define, [MATRICES, PAIRS, angles, films], bound=3e-5, mean=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("translation", {"offset": (1, 2, 3)}),
        ("scale", {"scale": (2, 3), "center": (1, 2, 3)}),
        ("rotation", {"angle": 30.0, "axis": (1, 0)}),
        ("shear", {"shear": (1, 2), "angles": (3, 4)}),
        ("shear", {}),
        ("shear", {"angles": (95, 0)}),
        ("crop", {"from_start": (1, 2, 3), "from_end": (1, 3)}),
    ],
)
def test_wrong_transforms(dali, name, arguments):
    for library in (OURS, dali):
        assert error_of(library, lambda lib, matrix: getattr(lib.fn.transforms, name)(matrix, **arguments), [MATRICES])


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int32])
def test_coord_transform(dali, dtype):
    points = [np.array([[1, 2], [3, 4], [50, 60]], dtype), np.array([[7, 8]], dtype)]

    def define(library, points, matrix):
        kind = getattr(library.types, {"float32": "FLOAT", "uint8": "UINT8", "int32": "INT32"}[np.dtype(dtype).name])
        arguments = [
            {},
            {"M": (1, 2, 3, 4)},
            {"M": (1, 2, 3, 4, 5, 6), "T": (1, 2, 3)},
            {"M": (1, 2)},
            {"M": 2, "T": 1},
            {"T": (1, 2)},
            {"MT": (1, 2, 3, 4, 5, 6)},
            {"MT": 2},
            {"MT": matrix},
            {"MT": library.fn.transforms.rotation(angle=30.0)},
            {"M": (0.3, 0, 0, -2), "dtype": kind},
        ]
        return [library.fn.coord_transform(points, **given) for given in arguments]

    compare(dali, define, [points, MATRICES], bound=1e-4)


def test_points_of_sequences(dali):
    points = [np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.ones((3, 2, 2), np.float32)]
    offsets = [np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 2], [3, 4], [5, 6]], np.float32)]

    def define(library, points, offsets):
        frames = library.fn.per_frame(offsets)
        matrices = library.fn.transforms.translation(offset=frames)
        return [library.fn.coord_transform(points, T=frames), library.fn.coord_transform(points, MT=matrices)]

    compare(dali, define, [points, offsets], ["FNX"], bound=1e-4)


def test_coord_flip(dali):
    flat, solid = [np.array([[0.1, 0.2], [0.3, 0.9]], np.float32)] * 2, [np.array([[0.1, 0.2, 0.7]], np.float32)] * 2
    flags, centers = [np.int32(1), np.int32(0)], [np.float32(1), np.float32(3)]

    def define(library, flat, solid, flag, center):
        flip = library.fn.coord_flip
        return [
            flip(flat),
            flip(flat, flip_y=1, center_y=2),
            flip(flat, layout="yx"),
            flip(solid, flip_z=1, center_z=center),
            flip(solid, layout="zyx", flip_x=flag),
        ]

    compare(dali, define, [flat, solid, flags, centers], bound=1e-6)


@pytest.mark.parametrize("arguments", [{"layout": "xz"}, {"layout": "ab"}])
def test_wrong_points(dali, arguments):
    points = [np.zeros((2, 2), np.float32)]
    for library in (OURS, dali):
        assert error_of(library, lambda lib, node: lib.fn.coord_flip(node, **arguments), [points])
        assert error_of(library, lambda lib, node: lib.fn.coord_transform(node, M=(1, 2, 3)), [points])
        assert error_of(library, lambda lib, node: lib.fn.coord_transform(node, M=2, MT=2), [points])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_displaced(dali, dtype):
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, shape).astype(dtype) for shape in ((40, 61, 3), (51, 30, 3))]

    def define(library, image):
        fn, linear = library.fn, library.types.INTERP_LINEAR
        return [
            fn.sphere(image),
            fn.sphere(image, interp_type=linear, fill_value=7),
            fn.water(image),
            fn.water(image, ampl_x=3.0, ampl_y=2.0, freq_x=0.5, freq_y=0.3, phase_x=0.2, interp_type=linear, fill_value=9.6),
        ]

    compare(dali, define, [images], ["HWC"], bound=0.01 if dtype is np.float32 else 1, mean=0.01)


@pytest.mark.parametrize("layout", ["HWC", "CHW", "FHWC"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_warp_perspective(dali, dtype, layout):
    rng = np.random.default_rng(1)
    shape = {"HWC": (40, 61, 3), "CHW": (3, 40, 61), "FHWC": (2, 40, 61, 3)}[layout]
    images = [rng.integers(0, 256, shape).astype(dtype) for _ in range(2)]
    matrix = [1.0, 0.3, -4, 0.1, 1.2, -3, 0.001, 0.002, 1]

    def define(library, image, second):
        warp, types = library.fn.experimental.warp_perspective, library.types
        arguments = [
            {},
            {"inverse_map": False, "fill_value": 9.0},
            {"border_mode": "reflect_101", "pixel_origin": "center"},
            {"border_mode": "wrap", "size": (30, 50)},
            {"interp_type": types.INTERP_CUBIC, "fill_value": 7.0 if layout == "CHW" else (1.0, 2.0, 3.0)},
            {"interp_type": types.INTERP_CUBIC, "border_mode": "reflect"},
        ]
        return [*(warp(image, matrix=matrix, **given) for given in arguments), warp(image, second)]

    given = [np.array(matrix, np.float32).reshape(3, 3)] * 2
    compare(dali, define, [images, given], [layout], bound=0.01 if dtype is np.float32 else 1, mean=0.01)


@pytest.mark.parametrize("inverse_map", [True, False])
def test_warp_perspective_by_a_singular_matrix(dali, inverse_map):
    images = [np.random.default_rng(1).integers(0, 256, (40, 61, 3), np.uint8)]

    def define(library, image):
        return [library.fn.experimental.warp_perspective(image, matrix=[0.0] * 9, inverse_map=inverse_map)]

    compare(dali, define, [images], ["HWC"], bound=0, mean=0)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_warp_perspective_without_interpolation(dali, dtype):
    images = [np.random.default_rng(1).integers(0, 256, (40, 61, 3)).astype(dtype)]
    matrix = [0.7, -0.3, 14.3, 0.4, 0.8, -3.3, -0.004, 0.002, 1]

    def define(library, image):
        options = {"interp_type": library.types.INTERP_NN, "fill_value": (1.0, 2.0, 3.0)}
        return [library.fn.experimental.warp_perspective(image, matrix=matrix, **options)]

    compare(dali, define, [images], ["HWC"], bound=0, mean=0)
