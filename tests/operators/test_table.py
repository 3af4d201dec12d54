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
from dali_like.operators.machinery.description import description_of, own_descriptions
from tools.operator_examples import CALLS
from tools.operator_pictures import EXAMPLES, name_of

ROOT = Path(dali_like.__file__).parents[1]

#: Operators with the test files that compare them with DALI. These files give tolerances and reasons.
TABLE = {
    "decoding": (
        "decoders.image decoders.image_crop decoders.image_random_crop decoders.image_slice peek_image_shape decoders.numpy",
        "test_image_decoder.py test_decoding.py",
    ),
    "decoding of any depth": (
        "experimental.decoders.image experimental.decoders.image_crop experimental.decoders.image_random_crop "
        "experimental.decoders.image_slice experimental.peek_image_shape",
        "test_experimental_decoders.py",
    ),
    "geometry": (
        "resize random_resized_crop crop slice flip rotate warp_affine paste pad",
        "test_geometry.py",
    ),
    "scaling in other ways": (
        "resize_crop_mirror fast_resize_crop_mirror experimental.resize experimental.tensor_resize random_crop_generator",
        "test_resizing.py",
    ),
    "displacement": (
        "sphere water jitter experimental.warp_perspective experimental.remap",
        "test_transforms.py",
    ),
    "transforms": (
        "transforms.translation transforms.scale transforms.rotation transforms.shear transforms.crop transforms.combine "
        "coord_transform coord_flip",
        "test_transforms.py",
    ),
    "color and filters": (
        "crop_mirror_normalize normalize brightness_contrast brightness contrast hsv hue saturation color_twist "
        "color_space_conversion gaussian_blur jpeg_compression_distortion erase",
        "test_color.py test_filters.py test_normalizing.py",
    ),
    "convolutions": ("experimental.filter laplacian", "test_convolutions.py"),
    "blurs and grids": (
        "experimental.median_blur experimental.dilate experimental.erode grid_mask",
        "test_morphology.py test_filters.py",
    ),
    "noise": ("noise.gaussian noise.salt_and_pepper noise.shot", "test_noises.py"),
    "batches": ("batch_permutation permute_batch", "test_permutations.py"),
    "histograms and mosaics": ("experimental.equalize clahe experimental.debayer", "test_color.py test_dali_2.py"),
    "filling": ("zeros ones full zeros_like ones_like full_like", "test_filling.py"),
    "sequences": ("per_frame element_extract sequence_rearrange", "test_frames.py test_sequences.py"),
    "inspection": ("get_property dump_image", "test_inspection.py"),
    "compression": ("experimental.inflate", "test_inflate.py"),
    "boxes and masks": (
        "bb_flip bbox_paste bbox_rotate box_encoder random_bbox_crop ssd_random_crop roi_random_crop "
        "segmentation.random_mask_pixel segmentation.random_object_bbox segmentation.select_masks multi_paste",
        "test_boxes.py",
    ),
    "arrays": (
        "cast cast_like reshape reinterpret squeeze expand_dims transpose stack cat one_hot lookup_table copy shapes "
        "constant reductions.sum reductions.mean reductions.mean_square reductions.rms reductions.min reductions.max "
        "reductions.variance reductions.std_dev",
        "test_arrays.py test_reductions.py",
    ),
    "random": ("random.uniform random.normal random.coin_flip random.choice random.beta", "test_randoms.py"),
    "files": ("io.file.read", "test_file_access.py"),
    "audio": (
        "decoders.audio audio_resample experimental.audio_resample preemphasis_filter nonsilent_region spectrogram "
        "power_spectrum mel_filter_bank mfcc to_decibels",
        "test_audio.py test_spectra.py",
    ),
    "videos": ("experimental.decoders.video", "test_video_reader.py"),
    "Python": ("python_function torch_python_function dl_tensor_python_function", "test_python_functions.py"),
    "Numba": ("experimental.numba_function", "test_numba_functions.py"),
}
OPERATORS = [(path, files.split()) for paths, files in TABLE.values() for path in paths.split()]
#: Groups of operators on images or sounds.
WITH_PICTURES = [
    "decoding",
    "decoding of any depth",
    "geometry",
    "displacement",
    "scaling in other ways",
    "color and filters",
    "convolutions",
    "blurs and grids",
    "histograms and mosaics",
    "noise",
    "audio",
]
#: Operators in these groups whose results are not images or sounds, and a second name.
WITHOUT_PICTURES = {
    *("decoders.numpy", "peek_image_shape", "experimental.peek_image_shape"),
    *("random_crop_generator", "experimental.remap", "experimental.debayer"),
    *("decoders.audio", "experimental.audio_resample"),
}
PICTURED = [path for name in WITH_PICTURES for path in TABLE[name][0].split()]


def test_table_lists_all_operators_of_the_registry():
    assert {path for path, _ in OPERATORS} == {*own_descriptions()}


@pytest.mark.parametrize(("path", "files"), OPERATORS)
def test_each_operator_has_a_function_a_class_and_a_section_of_a_page(path, files):
    description = description_of(path)

    assert callable(operator.attrgetter(path)(fn))
    assert operator.attrgetter(description.class_path)(ops).description is description
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "operators").glob("*.md")]
    assert sum(f"## fn.{path}\n" in page for page in pages) == 1
    name = (
        path.removeprefix("reductions.")
        .removeprefix("random.")
        .removeprefix("transforms.")
        .removeprefix("experimental.")
        .removeprefix("segmentation.")
    )
    compared = [(ROOT / "tests" / "parity" / file).read_text(encoding="utf-8") for file in files]
    assert any(re.search(rf"\b{re.escape(name)}\b", text) for text in compared)


def test_the_others_have_an_example():
    without = {
        *("dump_image", "io.file.read", "torch_python_function", "experimental.decoders.video"),
        *("experimental.numba_function", "experimental.audio_resample", "ssd_random_crop"),
    }

    assert {*own_descriptions()} - {*EXAMPLES} == {*CALLS} | without


@pytest.mark.parametrize("path", [path for path in PICTURED if path not in WITHOUT_PICTURES])
def test_pictures(path):
    assert path in EXAMPLES
    assert (ROOT / "docs" / "operators" / "pictures" / name_of(path)).exists()
