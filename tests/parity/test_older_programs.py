"""Programs for earlier versions of DALI, which 1.53 still runs: older names, and examples of older tutorials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali
import nvidia.dali.tensors
import pytest

import dali_like
import dali_like.tensors
from dali_like.common.class_names import class_name
from dali_like.operators.machinery.deprecations import OPERATORS
from tests.parity.alike import assert_same

#: Both libraries call all of this deprecated.
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

IMAGES = [np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3) + i for i in range(2)]
LIBRARIES = [nvidia.dali, dali_like]


def _crop_mirror_normalize(library: Any, image: Any) -> Any:
    normalized = library.ops.CropMirrorNormalize(
        device="cpu",
        output_dtype=library.types.FLOAT,
        output_layout=library.types.NCHW,
        crop=(4, 4),
        image_type=library.types.RGB,
        mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
        std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
    )
    centre = library.ops.Uniform(range=(0.5, 0.50000006))()
    mirror = library.ops.CoinFlip(probability=1.0)()
    return normalized(image, crop_pos_x=centre, crop_pos_y=centre, mirror=mirror)


OUTPUTS: dict[str, Callable[[Any, Any], Any]] = {
    "normalized": _crop_mirror_normalize,
    "cropped": lambda library, image: library.fn.crop(image, crop=(2, 2), output_dtype=library.types.FLOAT),
    "sliced": lambda library, image: library.fn.slice(image, 1, 1, axes=[0], output_dtype=library.types.FLOAT),
    "turned": lambda library, image: library.fn.rotate(image, angle=90.0, output_dtype=library.types.FLOAT),
    "mapped": lambda library, image: library.fn.warp_affine(image, matrix=np.float32([[1, 0, 1], [0, 1, 2]])),
    "looked up": lambda library, image: library.fn.lookup_table(
        image, keys=[1], values=[2], output_dtype=library.types.INT32
    ),
    "shapes": lambda library, image: library.fn.shapes(image, type=library.types.INT32),
    "seeded": lambda library, image: library.fn.flip(image, seed=3),
    "composed": lambda library, image: library.ops.Compose(
        [library.ops.Cast(dtype=library.types.FLOAT), library.ops.Flip(), library.ops.Reshape(shape=[-1])]
    )(image),
    "coins": lambda library, _: library.fn.coin_flip(probability=1.0),
    "constant": lambda library, _: library.fn.normal_distribution(mean=3.0, stddev=0.0, shape=[2]),
}


def test_older_names_make_the_same():
    def define(library: Any, image: Any) -> dict[str, Any]:
        return {name: output(library, image) for name, output in OUTPUTS.items()}

    assert_same(define, IMAGES, layouts=["HWC"], ulps={"normalized": 64, "turned": 8})


@pytest.mark.parametrize("name", OPERATORS)
def test_dali_has_the_older_names(name: str) -> None:
    assert hasattr(nvidia.dali.fn, name)
    assert hasattr(nvidia.dali.ops, class_name(name))


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "layouts": lambda library: [getattr(library.types, name) for name in ("NHWC", "NCHW", "NFHWC", "NFCHW", "SAME")],
    "values of constants": lambda library: [library.types.Constant(value).value for value in (3, 2.5, True)],
    "names of nodes": lambda library: library.fn.external_source(name="images").name,
    "bytes": lambda library: np.array(library.tensors.TensorCPU(b"abc")).tolist(),
    "capsules": lambda library: np.array(library.tensors.TensorCPU(IMAGES[0].__dlpack__(), "HWC")).tolist(),
    "lists of capsules": lambda library: library.tensors.TensorListCPU(IMAGES[0].__dlpack__(), "WC").shape(),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_older_questions_have_the_same_answers(name: str) -> None:
    theirs, ours = (QUESTIONS[name](library) for library in LIBRARIES)
    assert ours == theirs


BATCHES = [
    [np.arange(3)] * 2,
    [np.arange(i + 1) for i in range(20)],
    [np.zeros((i + 1, 1, 2)) for i in range(2)],
    [np.zeros((2, 40, 30 + i), np.uint8) for i in range(3)],
    [np.int32(i) for i in range(3)],
    [np.zeros(300 + i) for i in range(5)],
    [np.zeros(300 + i) for i in range(6)],
]


@pytest.mark.parametrize("batch", BATCHES)
def test_batches_are_shown_alike(batch: list[Any]) -> None:
    def text(library: Any) -> str:
        pipe = library.Pipeline(batch_size=len(batch), num_threads=1, device_id=None)
        with pipe:
            pipe.set_outputs(library.fn.external_source(lambda: batch))
        pipe.build()
        shown = str(pipe.run()[0])
        if library is dali_like:
            pipe.close()
        return shown

    theirs, ours = map(text, LIBRARIES)
    assert ours == theirs


def test_types_of_pytorch_are_data_types():
    torch = pytest.importorskip("torch")

    for name in ("uint8", "int32", "float16", "float32", "bool"):
        theirs, ours = (library.types.to_dali_type(getattr(torch, name)) for library in LIBRARIES)
        assert str(ours) == str(theirs)
