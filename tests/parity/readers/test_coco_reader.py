"""``fn.readers.coco`` beside the real DALI."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import nvidia.dali
import pytest

import dali_like
from tests.parity.readers.epochs import delivered
from tests.sources.readers.coco_writing import DATASET, with_annotation, with_masks, write_coco

pytestmark = pytest.mark.peers

BOX_OPTIONS: list[dict[str, Any]] = [{}, {"ltrb": True}, {"ratio": True}, {"ltrb": True, "ratio": True}]
CHOICES: list[dict[str, Any]] = [
    {},
    {"include_iscrowd": False},
    {"skip_empty": True},
    {"size_threshold": 5.5},
    {"size_threshold": 0.05},
    {"avoid_class_remapping": True, "image_ids": True},
    {"images": ["c.jpg", "a.jpg", "c.jpg", "missing.jpg"]},
]
OTHER_DATASETS: dict[str, Any] = {
    "category that does not exist": with_annotation(category_id=77),
    "no segmentation": with_annotation("segmentation"),
    "empty segmentation": with_annotation(segmentation=[]),
    "segmentation of another type": with_annotation(segmentation="x"),
    "a category twice": {**DATASET, "categories": [{"id": 5}, {"id": 5}, {"id": 1}]},
    "no categories": {name: value for name, value in DATASET.items() if name != "categories"},
    "a file twice": {
        **DATASET,
        "images": [*DATASET["images"], {"id": 50, "width": 1, "height": 1, "file_name": "a.jpg"}],
    },
    "an id twice": {**DATASET, "images": [*DATASET["images"], {"id": 2, "width": 1, "height": 1, "file_name": "e.jpg"}]},
    "annotations first": dict(reversed(DATASET.items())),
}
SQUARE = [[0, 0, 3, 0, 3, 3, 0, 3]]
MASKS: dict[str, Any] = {
    "overlap": with_masks(
        (5, SQUARE), (1, [[2, 2, 6, 2, 6, 5, 2, 5]]), (90, [[1, 1, 5, 1, 5, 4, 1, 4]]), (5, [[4, 0, 6, 0, 6, 2, 4, 2]])
    ),
    "overlap at the end": with_masks((5, [[2, 2, 6, 2, 6, 5, 2, 5]]), (1, [[3, 0, 6, 0, 6, 5, 3, 5]])),
    "three at the end": with_masks(
        (5, [[2, 2, 6, 2, 6, 5, 2, 5]]), (1, [[3, 0, 6, 0, 6, 5, 3, 5]]), (90, [[4, 4, 6, 4, 6, 5, 4, 5]])
    ),
    "polygon and runs": with_masks((5, [[0, 0, 2, 0, 2, 2, 0, 2]]), (5, [15, 15]), (5, [10, 3, 17])),
    "runs twice": with_masks((5, [15, 15]), (5, [10, 3, 17])),
    "runs at the end": with_masks((5, [15, 15]), (1, [10, 20])),
    "runs at the beginning": with_masks((5, [0, 15, 15]), (1, [0, 20, 10])),
    "two points": with_masks((5, [[1, 1, 4, 4]])),
    "beyond the image": with_masks((5, [[-3, -3, 9, -3, 9, 2, -3, 2]])),
    "fractions": with_masks((5, [[0.4, 0.6, 4.7, 1.2, 3.1, 4.9]]), (90, [[2.5, 2.5, 5.5, 2.5, 5.5, 4.5]])),
}


def assert_alike(**options: Any) -> None:
    assert delivered(dali_like, "coco", **options) == delivered(nvidia.dali, "coco", **options)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("outputs", [{}, {"polygon_masks": True}, {"pixelwise_masks": True}], ids=str)
def test_outputs(outputs: dict[str, Any], choice: dict[str, Any], tmp_path: Path) -> None:
    options = {**write_coco(tmp_path), **outputs, **choice}
    if "pixelwise_masks" in outputs and "avoid_class_remapping" in choice:
        options.pop("avoid_class_remapping")  # DALI 1.53 frees memory twice
    for boxes in BOX_OPTIONS:
        if not ("pixelwise_masks" in outputs and "ratio" in boxes):  # see test_masks_are_drawn_in_pixels
            assert_alike(**options, **boxes)


@pytest.mark.parametrize("name", OTHER_DATASETS)
def test_other_datasets(name: str, tmp_path: Path) -> None:
    options = write_coco(tmp_path, OTHER_DATASETS[name])
    for outputs in ({}, {"polygon_masks": True}, {"pixelwise_masks": True}):
        if name != "an id twice" or "pixelwise_masks" not in outputs:  # DALI 1.53 writes beyond the smaller image
            assert_alike(**options, **outputs)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, tmp_path: Path) -> None:
    assert_alike(**write_coco(tmp_path, MASKS[name]), pixelwise_masks=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:fn.readers.coco")
@pytest.mark.parametrize("options", [{"masks": True}, {"save_img_ids": True}], ids=str)
def test_deprecated_arguments(options: dict[str, Any], tmp_path: Path) -> None:
    assert_alike(**write_coco(tmp_path), **options)


@pytest.mark.parametrize("outputs", [{}, {"polygon_masks": True}, {"pixelwise_masks": True, "image_ids": True}], ids=str)
def test_preprocessed_annotations(outputs: dict[str, Any], tmp_path: Path) -> None:
    options = write_coco(tmp_path)
    expected = delivered(nvidia.dali, "coco", **options, **outputs)
    contents = []
    for dali in (nvidia.dali, dali_like):
        folder = tmp_path / dali.__name__
        folder.mkdir()
        saving = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": str(folder)}

        assert delivered(dali, "coco", **options, **outputs, **saving) == expected
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1]
    for dali, saved in itertools.product((nvidia.dali, dali_like), ("nvidia.dali", "dali_like")):
        stored = {"file_root": str(tmp_path), "preprocessed_annotations": str(tmp_path / saved)}
        assert delivered(dali, "coco", **stored, **outputs) == expected


@pytest.mark.parametrize("options", [{"num_shards": 3, "shard_id": 1}, {"num_shards": 2, "pad_last_batch": True}], ids=str)
def test_shards(options: dict[str, Any], tmp_path: Path) -> None:
    options = {**write_coco(tmp_path), "batch_size": 3, **options}

    assert delivered(dali_like, "coco", 6, **options) == delivered(nvidia.dali, "coco", 6, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"file_root": None},
        {"annotations_file": ""},
        {"annotations_file": "/missing.json"},
        {"polygon_masks": True, "pixelwise_masks": True},
        {"images": ["missing.jpg"]},
        {"save_preprocessed_annotations": True},
        {"save_preprocessed_annotations_dir": "/tmp"},
        {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": "/missing/folder"},
        {"preprocessed_annotations": "/missing"},
        *(
            {"annotations_file": "", "preprocessed_annotations": "/missing", **each}
            for each in (
                {},
                {"ltrb": True},
                {"ratio": True},
                {"skip_empty": True},
                {"size_threshold": 4.0},
                {"images": ["a"]},
            )
        ),
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any], tmp_path: Path) -> None:
    given = {name: value for name, value in {**write_coco(tmp_path), **options}.items() if value not in (None, "")}
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            delivered(dali, "coco", **given)


@pytest.mark.parametrize(
    "dataset",
    [
        *("{", "[]", "x", "", "{}"),
        {"annotations": []},
        {**DATASET, "categories": [{}]},
        {**DATASET, "images": [{"id": 1, "width": 2, "height": 2, "file_name": "missing.jpg"}]},
        {**DATASET, "images": [{"id": 1 << 40, "width": 2, "height": 2, "file_name": "a.jpg"}]},
        with_annotation(segmentation={"counts": [1]}),
        with_annotation(segmentation={"size": [6, 8]}),
    ],
    ids=lambda dataset: str(dataset)[:40],
)
def test_wrong_datasets(dataset: Any, tmp_path: Path) -> None:
    options = {**write_coco(tmp_path, dataset), "pixelwise_masks": True, "image_ids": True}
    for dali in (nvidia.dali, dali_like):
        with warnings.catch_warnings(), pytest.raises(RuntimeError):
            delivered(dali, "coco", **options)
