"""The operators by group, with required parts: a function, a class, a page, a picture, and a comparison with DALI.

Constants, arithmetic, comparison, logic and indices are in test_arithmetic.py.
"""

from __future__ import annotations

import operator
import re
from pathlib import Path

import pytest

import dali_like
from dali_like import fn, ops
from dali_like.operators.description import description_of, descriptions
from tools.operator_pictures import EXAMPLES, name_of

ROOT = Path(dali_like.__file__).parents[1]

#: Operators with the test files that compare them with DALI. These files give tolerances and reasons.
TABLE = {
    "decoding": (
        "decoders.image decoders.image_crop decoders.image_random_crop decoders.image_slice peek_image_shape decoders.numpy",
        "test_image_decoder.py test_decoding.py",
    ),
    "geometry": (
        "resize random_resized_crop crop slice flip rotate warp_affine paste pad",
        "test_geometry.py",
    ),
    "color and filters": (
        "crop_mirror_normalize normalize brightness_contrast brightness contrast hsv hue saturation color_twist "
        "color_space_conversion gaussian_blur jpeg_compression_distortion erase",
        "test_color.py test_filters.py test_normalizing.py",
    ),
    "boxes and masks": (
        "bb_flip bbox_paste bbox_rotate box_encoder random_bbox_crop ssd_random_crop roi_random_crop "
        "segmentation.random_mask_pixel segmentation.random_object_bbox segmentation.select_masks multi_paste",
        "test_boxes.py",
    ),
    "sequences": ("per_frame", "test_frames.py"),
    "arrays": (
        "cast cast_like reshape reinterpret squeeze expand_dims transpose stack cat one_hot lookup_table copy shapes "
        "constant reductions.sum reductions.mean reductions.mean_square reductions.rms reductions.min reductions.max "
        "reductions.variance reductions.std_dev",
        "test_arrays.py test_reductions.py",
    ),
    "random": ("random.uniform random.normal random.coin_flip random.choice", "test_randoms.py"),
    "files": ("io.file.read", "test_file_access.py"),
    "audio": ("decoders.audio", "test_audio.py"),
    "videos": ("experimental.decoders.video", "test_video_reader.py"),
    "Python": ("python_function torch_python_function", "test_python_functions.py"),
}
OPERATORS = [(path, files.split()) for paths, files in TABLE.values() for path in paths.split()]
#: Operators in image groups whose results are not images.
WITHOUT_PICTURES = {"decoders.numpy", "peek_image_shape"}
PICTURED = [path for name in ("decoding", "geometry", "color and filters") for path in TABLE[name][0].split()]


def test_it_is_the_registry():
    assert {path for path, _ in OPERATORS} == {*descriptions()}


@pytest.mark.parametrize(("path", "files"), OPERATORS)
def test_what_belongs_to_each(path, files):
    description = description_of(path)

    assert callable(operator.attrgetter(path)(fn))
    assert operator.attrgetter(description.class_path)(ops).description is description
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "operators").glob("*.md")]
    assert sum(f"## fn.{path}\n" in page for page in pages) == 1
    name = path.removeprefix("reductions.").removeprefix("random.").removeprefix("segmentation.")
    compared = [(ROOT / "tests" / "parity" / file).read_text(encoding="utf-8") for file in files]
    assert any(re.search(rf"\b{re.escape(name)}\b", text) for text in compared)


@pytest.mark.parametrize("path", [path for path in PICTURED if path not in WITHOUT_PICTURES])
def test_pictures(path):
    assert path in EXAMPLES
    assert (ROOT / "docs" / "operators" / "pictures" / name_of(path)).exists()
