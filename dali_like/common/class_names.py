"""Names of classes in ``ops``, from the names of functions in ``fn``."""

from __future__ import annotations

#: Words that are not capitalized as usual.
_ACRONYMS = {
    "bbox": "BBox",
    "coco": "COCO",
    "dl": "DL",
    "mfcc": "MFCC",
    "mxnet": "MXNet",
    "rms": "RMS",
    "roi": "ROI",
    "ssd": "SSD",
    "tfrecord": "TFRecord",
}


def class_name(name: str) -> str:
    """Return the class name in ``ops`` for a function of ``fn``."""
    return "".join(_ACRONYMS.get(part, part.capitalize()) for part in name.split("_"))
