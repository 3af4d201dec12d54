"""The examples of training pipelines are programs for DALI, but for one line."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("skimage")

import cv2
import skimage.data

from examples.demo_data import LabeledFiles, make_folders
from examples.photograph_source import DetectionSource, PhotographSource
from tests.parity.conftest import OURS, Library

pytestmark = pytest.mark.peers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BATCH_SIZE = 6
#: Values between pixels differ by a grey level, and a chain of operators adds up two of them.
GREY_LEVELS = 3
STD = 57.0


def example(name: str, library: Library, pipeline: str = "training") -> Any:
    """The pipeline of an example, with the names of a library."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    module = ModuleType(name)
    if library is not OURS:
        text = text.replace("from dali_like", "from nvidia.dali")
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module.__dict__[pipeline]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> LabeledFiles:
    """Squares of photographs, so that a crop of the whole area is the whole image."""
    folder = tmp_path_factory.mktemp("squares")
    files = []
    for i, side in enumerate((180, 224, 250, 299, 300, 280)):
        files.append(folder / f"{i}.jpg")
        cv2.imwrite(str(files[-1]), skimage.data.chelsea()[:side, 20 * i : 20 * i + side])
    return LabeledFiles(files, np.arange(len(files), dtype=np.int32), list(map(str, range(len(files)))))


def first_batch(training: Any, *arguments: Any, **options: Any) -> list[list[np.ndarray]]:
    pipe = training(*arguments, batch_size=BATCH_SIZE, num_threads=2, device_id=None, seed=3, **options)
    pipe.build()
    try:
        return [[np.array(output.at(i)) for i in range(len(output))] for output in pipe.run()]
    finally:
        if hasattr(pipe, "close"):
            pipe.close()


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray], bound: float = 0.0) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)


@pytest.mark.parametrize("antialias", [True, False])
def test_resnet(dali: Library, photographs: LabeledFiles, antialias: bool) -> None:
    source = PhotographSource(photographs, BATCH_SIZE)
    whole = {"least_area": 1.0, "mirrored": 1.0, "antialias": antialias}

    ours, theirs = (first_batch(example("resnet_pipeline", library), source, False, **whole) for library in (OURS, dali))

    assert_same(ours[0], theirs[0], GREY_LEVELS / STD)
    assert_same(ours[1], theirs[1])


def test_ssd(dali: Library, photographs: LabeledFiles) -> None:
    source = DetectionSource(photographs, BATCH_SIZE)

    ours, theirs = (first_batch(example("ssd_pipeline", library), source, False, jitter=1e-6) for library in (OURS, dali))

    assert_same(ours[0], theirs[0], GREY_LEVELS / STD)
    assert_same(ours[1], theirs[1])
    assert_same(ours[2], theirs[2])


def test_imagenet(dali: Library, photographs: LabeledFiles, tmp_path: Path) -> None:
    options = {"data_dir": str(make_folders(photographs, tmp_path / "classes")), "crop": 64, "size": 80, "dali_cpu": True}
    shard = {"shard_id": 1, "num_shards": 2, "is_training": False}

    ours, theirs = (
        first_batch(example("imagenet_pipeline", library, "create_dali_pipeline"), **options, **shard)
        for library in (OURS, dali)
    )

    assert_same(ours[0], theirs[0], GREY_LEVELS / STD)
    assert_same(ours[1], theirs[1])
    assert [label.item() for label in ours[1]] == [3, 4, 5, 5, 5, 5]  # the shard is padded
