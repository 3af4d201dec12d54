"""``fn.readers.coco``: messages, URLs, differences from DALI. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import ArgumentError, BrokenFileError, MissingExtraError, MissingFileError

from .coco_writing import DATASET, with_annotation, with_masks, write_coco
from .reading import pipeline_with


def read(num_samples: int = 1, **options: Any) -> list[list[np.ndarray]]:
    with pipeline_with(fn.readers.coco, 1, **options) as pipe:
        return [[np.array(output.at(0)) for output in pipe.run()] for _ in range(num_samples)]


def test_boxes_and_polygons(tmp_path: Path) -> None:
    image, boxes, labels, polygons, vertices, number = read(
        4, **write_coco(tmp_path), polygon_masks=True, image_ids=True, ltrb=True
    )[3]

    assert image.tobytes() == b"aaa"
    assert boxes.tolist() == [[1, 2, 6.5, 8], [3, 3, 13, 8]]
    assert labels.tolist() == [1, 3]
    assert polygons.tolist() == [[0, 0, 4], [0, 4, 7], [1, 7, 11]]
    assert vertices[:2].tolist() == [[1, 2], [6, 2]]
    assert number.tolist() == [30]


def test_masks_are_drawn_in_pixels(tmp_path: Path) -> None:
    """DALI draws relative coordinates, so that all polygons are in one pixel."""
    options = {**write_coco(tmp_path), "pixelwise_masks": True}

    for plain, relative in zip(read(4, **options), read(4, ratio=True, **options), strict=True):
        np.testing.assert_array_equal(plain[3], relative[3])


def test_empty_runs_of_masks(tmp_path: Path) -> None:
    """DALI ends at an empty run in the middle of a mask."""
    masks = with_masks((5, [0, 30]), (1, [10, 5, 0, 5, 10]))
    mask = read(**write_coco(tmp_path, masks), pixelwise_masks=True)[0][3]

    assert mask[0, :, 0].tolist() == [1, 1, 2, 2, 1, 1]


def test_masks_of_original_categories(tmp_path: Path) -> None:
    """DALI frees memory twice here."""
    options = {**write_coco(tmp_path), "pixelwise_masks": True, "avoid_class_remapping": True}

    assert set(read(4, **options)[3][3].ravel()) == {0, 5, 90}


def test_urls(tmp_path: Path) -> None:
    given = write_coco(tmp_path)
    memory = fsspec.filesystem("memory")
    try:
        for path in tmp_path.iterdir():
            memory.pipe_file(f"/coco/{path.name}", path.read_bytes())
        remote = {"file_root": "memory://coco", "annotations_file": "memory://coco/annotations.json"}

        assert [sample[0].tobytes() for sample in read(4, **remote)] == [sample[0].tobytes() for sample in read(4, **given)]
    finally:
        memory.rm("/coco", recursive=True)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("{", r"annotations.json is not a JSON file: Expecting property name"),
        ("[]", "is not a COCO dataset"),
        (with_annotation("bbox"), "entry 0 of \"annotations\": 'bbox' is missing"),
        (with_annotation(bbox=[1, 2, 3]), "bbox must have 4 numbers"),
        (with_annotation(category_id="x"), 'entry 0 of "annotations": invalid literal'),
        ({**DATASET, "categories": [{}]}, "entry 0 of \"categories\": 'id' is missing"),
        (with_annotation(segmentation=[[1, 2, 3]]), "the segmentation of annotation 0"),
        (with_annotation(segmentation={"size": [3, 3], "counts": [1]}), "its runs have 1 pixels together"),
        (with_annotation(segmentation={"size": [3, 3], "counts": "0P"}), "compressed mask b'0P' is damaged"),
        (with_annotation(segmentation={"size": [3, 3]}), "'counts' is missing"),
        ({**DATASET, "images": [{"id": 1 << 40, "file_name": "a.jpg"}]}, "image ids do not fit into 32 bits"),
        ("[" * 100_000, "is not a JSON file: it is nested too deeply"),
        ({**DATASET, "images": 5}, '"images" must be a list, not 5'),
        ({**DATASET, "images": [[]]}, 'entry 0 of "images": it must be an object'),
        ({**DATASET, "images": [{"id": 1, "file_name": "\ud800"}]}, 'entry 0 of "images": .* surrogates not allowed'),
        (
            {**DATASET, "images": [{"id": math.inf, "file_name": "a.jpg"}]},
            'entry 0 of "images": cannot convert float infinity',
        ),
        (with_annotation(bbox=[1, 2, math.nan, 4]), 'entry 0 of "annotations": numbers must be finite'),
        (with_annotation(bbox=[1, 2, 1e39, 4]), 'entry 0 of "annotations": numbers must be finite'),
        (
            with_annotation(segmentation=[[0, math.inf, 1, 1, 0, 1]]),
            "the segmentation of annotation 0: numbers must be finite",
        ),
        (with_annotation(segmentation=[[0, 0, 1e9, 1, 0, 1]]), "image b.jpg are damaged: object 0 has a vertex far outside"),
        (with_annotation(segmentation={"size": [6, 8], "counts": [-5, 53]}), "annotation 0: counts must be integers from 0"),
        (
            with_annotation(segmentation={"size": [10**6, 10**6], "counts": [10**12]}),
            "annotation 0: counts must be integers",
        ),
        (with_annotation(segmentation={"size": [6, 8], "counts": [[48]]}), "annotation 0: counts must be integers"),
    ],
)
def test_broken_annotations(dataset: Any, message: str, tmp_path: Path) -> None:
    options = {**write_coco(tmp_path, dataset), "pixelwise_masks": True}
    with pytest.raises(BrokenFileError, match=message) as caught:
        read(**options)
    assert caught.value.file == options["annotations_file"]


@pytest.mark.parametrize("options", [{"ratio": True}, {"pixelwise_masks": True}], ids=str)
@pytest.mark.parametrize(
    "size", [{}, {"width": 8}, {"width": 8, "height": 0}, {"width": 1 << 20, "height": 1 << 20}], ids=str
)
def test_images_without_a_size_are_refused_if_outputs_depend_on_it(
    options: dict[str, Any], size: dict[str, int], tmp_path: Path
) -> None:
    images = [{"id": 2, "file_name": "b.jpg", **size}]
    given = write_coco(tmp_path, {**with_annotation(), "images": images})
    with pytest.raises(
        BrokenFileError, match=r"annotation 0: its image b.jpg with the id 2 has the width .* leave out ratio"
    ):
        read(**given, **options)
    assert len(read(1, **given)[0]) == 3


def test_an_empty_dataset_is_an_error_with_the_reason(tmp_path: Path) -> None:
    given = write_coco(tmp_path)
    with pytest.raises(ArgumentError, match=r"annotations.json has none of the images of images="):
        read(**given, images=["x.jpg"])
    with pytest.raises(ArgumentError, match=r"no image in .*annotations.json has objects that are wanted, and skip_empty"):
        read(**given, skip_empty=True, size_threshold=1000.0)
    with pytest.raises(ArgumentError, match=r"No files found: .*annotations.json has no images"):
        read(**write_coco(tmp_path, "{}"))


def test_masks_of_another_size(tmp_path: Path) -> None:
    dataset = with_annotation(segmentation={"size": [3, 3], "counts": [2, 7]})
    message = r"json: the masks of image b\.jpg are damaged: the mask of object 0 is of size \(3, 3\), but the image"
    with pytest.raises(BrokenFileError, match=message):
        read(**write_coco(tmp_path, dataset), pixelwise_masks=True)


def test_vanished_images(tmp_path: Path) -> None:
    options = write_coco(tmp_path)
    with pipeline_with(fn.readers.coco, 1, **options) as pipe:
        pipe.build()
        (tmp_path / "b.jpg").unlink()
        with pytest.raises(MissingFileError, match=r"b\.jpg does not exist"):
            pipe.run()


def test_broken_preprocessed_annotations(tmp_path: Path) -> None:
    given = write_coco(tmp_path)
    read(**given, save_preprocessed_annotations=True, save_preprocessed_annotations_dir=str(tmp_path))
    stored = {"file_root": str(tmp_path), "preprocessed_annotations": str(tmp_path)}

    with pytest.raises(BrokenFileError, match=r"polygon_offset\.dat has 0 rows for 4 images: save the annotations again"):
        read(**stored, polygon_masks=True)
    (tmp_path / "boxes.dat").write_bytes((tmp_path / "boxes.dat").read_bytes()[:-1])
    with pytest.raises(BrokenFileError, match=r"boxes\.dat of 67 bytes is truncated") as caught:
        read(**stored)
    assert caught.value.offset == 67


def test_masks_need_pycocotools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.mask", None)

    with pytest.raises(MissingExtraError, match=r"pixelwise_masks .* pip install 'pycocotools"):
        read(**write_coco(tmp_path), pixelwise_masks=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"annotations_file": ""}, "pass either annotations_file or preprocessed_annotations"),
        ({"preprocessed_annotations": "b"}, "annotations_file has no effect on preprocessed annotations"),
        ({"masks": True, "pixelwise_masks": True}, "mutually exclusive"),
        ({"save_preprocessed_annotations": True}, "should be provided together"),
        (
            {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": "memory://a"},
            "must be a local folder",
        ),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        fn.readers.coco(**{"file_root": "a", "annotations_file": "a.json", **options})


def test_deprecated_names() -> None:
    with (
        pytest.warns(DeprecationWarning, match="the argument save_img_ids is deprecated; use image_ids"),
        pytest.raises(ArgumentError, match="pass either annotations_file"),
    ):
        fn.readers.coco(file_root="a", save_img_ids=True)
