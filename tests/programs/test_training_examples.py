"""The training examples run as programs, and boxes match pixels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")

import cv2

from examples.demo_data import LabeledFiles
from examples.photograph_source import DetectionSource, made_up_objects
from examples.ssd_pipeline import MEAN, SIDE, STD, training
from tests.conftest import skip_without, without_notes_of_libpng

ROOT = Path(__file__).resolve().parents[2]
#: Width in pixels of box edges, where colors mix.
EDGE = 4


@pytest.mark.parametrize(
    ("example", "rows"), [("resnet_pipeline", ["16     3x224x224"]), ("ssd_pipeline", ["16     3x300x300"])]
)
def test_example_runs(example: str, rows: list[str], tmp_path: Path) -> None:
    skip_without("skimage", "sklearn")
    options = ["--epochs", "1", "--workers", "1", "--batch-size", "8", "--per-photograph", "2", "--data", tmp_path]
    command = [sys.executable, "-W", "error", "-m", f"examples.{example}", *map(str, options)]

    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert (finished.returncode, without_notes_of_libpng(finished.stderr)) == (0, "")
    heading, *lines = finished.stdout.splitlines()
    assert heading.split()[:3] == ["epoch", "images", "each"]
    assert [row in line for row, line in zip(rows, lines, strict=True)] == [True]


def test_the_imagenet_example_reads_folders(tmp_path: Path) -> None:
    skip_without("skimage", "sklearn")
    options = ["--workers", "1", "--batch-size", "8", "--per-photograph", "2", "--scratch", tmp_path]
    command = [sys.executable, "-W", "error", "-m", "examples.imagenet_pipeline", *map(str, options)]

    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert (finished.returncode, without_notes_of_libpng(finished.stderr)) == (0, "")
    rows = [line.split()[:3] for line in finished.stdout.splitlines()]
    assert rows[1:] == [["0", "20", "3x224x224"], ["1", "20", "3x224x224"]]


def painted(folder: Path, count: int) -> LabeledFiles:
    """Return black images with white objects."""
    files = []
    for index in range(count):
        image = np.zeros((240, 320, 3), np.uint8)
        for left, top, right, bottom in made_up_objects(index)[0] * [320, 240, 320, 240]:
            image[round(top) : round(bottom), round(left) : round(right)] = 255
        files.append(folder / f"{index}.png")
        cv2.imwrite(str(files[-1]), image)
    return LabeledFiles(files, np.zeros(count, np.int32), ["painted"])


def test_boxes_go_where_the_pixels_go(tmp_path: Path) -> None:
    source = DetectionSource(painted(tmp_path, 24), batch_size=24)

    with training(source, False, jitter=0.0, batch_size=24, device_id=None) as pipe:
        images, boxes, labels = pipe.run()
        white = [np.array(images.at(i)) * np.reshape(STD, (3, 1, 1)) + np.reshape(MEAN, (3, 1, 1)) > 250 for i in range(24)]
        objects = [np.array(boxes.at(i)) for i in range(24)]
        counts = [len(labels.at(i)) for i in range(24)]

    assert counts == [len(each) for each in objects]
    assert min(counts) > 0
    for image, found in zip(white, objects, strict=True):
        for left, top, right, bottom in np.rint(found * SIDE).astype(int):
            assert image[:, top + EDGE : bottom - EDGE, left + EDGE : right - EDGE].all()
    assert np.mean(white) < 0.6


def test_samples_of_a_detector_depend_on_epoch_and_index_only(tmp_path: Path) -> None:
    source, other = (DetectionSource(painted(tmp_path, 4), batch_size=4) for _ in range(2))

    first, again, next_epoch = source(info(2, 0)), [other(info(i, 0)) for i in (3, 2)][1], source(info(2, 1))

    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert not np.array_equal(first[3], next_epoch[3])


def info(index: int, epoch: int):
    from dali_like.types import SampleInfo

    return SampleInfo(index, index, 0, epoch)
