"""A small COCO dataset for tests of readers."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

#: Image b has a small object and a crowd, c nothing, d a mask in a string, a polygons.
DATASET: dict[str, Any] = {
    "images": [
        {"id": 30, "width": 20, "height": 10, "file_name": "a.jpg"},
        {"id": 2, "width": 8, "height": 6, "file_name": "b.jpg"},
        {"id": 7, "width": 5, "height": 5, "file_name": "c.jpg"},
        {"id": 8, "width": 5, "height": 5, "file_name": "d.jpg"},
    ],
    "categories": [{"id": 5, "name": "x"}, {"id": 1}, {"id": 90}],
    "annotations": [
        {
            "image_id": 30,
            "category_id": 5,
            "bbox": [1, 2, 5.5, 6],
            "iscrowd": 0,
            "segmentation": [[1, 2, 6, 2, 6, 8, 1, 8], [10, 1, 12, 1, 12, 4]],
            "area": 3,
        },
        {"image_id": 30, "category_id": 90, "bbox": [3, 3, 10, 5], "segmentation": [[3, 3, 13, 3, 13, 8, 3, 8]]},
        {"image_id": 2, "category_id": 1, "bbox": [0, 0, 0.05, 6], "segmentation": [[0, 0, 1, 0, 1, 5]]},
        {
            "image_id": 2,
            "category_id": 1,
            "bbox": [1, 1, 3, 3],
            "iscrowd": 1,
            "segmentation": {"size": [6, 8], "counts": [7, 3, 3, 3, 3, 3, 26]},
        },
        {
            "image_id": 8,
            "category_id": 5,
            "bbox": [1, 1, 2, 2],
            "iscrowd": 1,
            "segmentation": {"size": [5, 5], "counts": "62309"},
        },
        {"image_id": 99, "category_id": 5, "bbox": [1, 1, 2, 2]},
    ],
}


def write_coco(folder: Path, dataset: Any = DATASET) -> dict[str, str]:
    """Write images whose content is their name, and the annotations. Returns the arguments of the reader."""
    for name in "abcde":
        (folder / f"{name}.jpg").write_bytes(name.encode() * 3)
    path = folder / "annotations.json"
    path.write_text(dataset if isinstance(dataset, str) else json.dumps(dataset))
    return {"file_root": str(folder), "annotations_file": str(path)}


def with_annotation(*missing: str, **changes: Any) -> dict[str, Any]:
    """The dataset with one annotation, that of a polygon in image b, with these changes."""
    dataset = copy.deepcopy(DATASET)
    annotation = {**dataset["annotations"][0], "image_id": 2, **changes}
    dataset["annotations"] = [{name: value for name, value in annotation.items() if name not in missing}]
    return dataset


def with_masks(*masks: tuple[int, Any], height: int = 5, width: int = 6) -> dict[str, Any]:
    """An image with a mask for each category: a polygon, or a list of runs, as a list of numbers."""
    annotations = [
        {
            "image_id": 1,
            "category_id": category,
            "bbox": [0, 0, 1, 1],
            "segmentation": mask if isinstance(mask[0], list) else {"size": [height, width], "counts": mask},
        }
        for category, mask in masks
    ]
    images = [{"id": 1, "width": width, "height": height, "file_name": "d.jpg"}]
    return {"images": images, "categories": DATASET["categories"], "annotations": annotations}
