"""The roles of the columns of a batch: pictures, masks, boxes, labels, sounds, texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.errors import ArgumentError
from dali_like.showing.batch_columns import CHANNELS, BatchColumn

#: Possible roles of a column.
ROLES = ("image", "clip", "mask", "boxes", "label", "audio", "tokens", "segments", "text", "value", "skip")
#: Parts of names that tell the role of a column; the first that occurs counts.
_NAMES = (
    ("mask", "mask"),
    ("box", "boxes"),
    ("segment", "segments"),
    ("_positions", "skip"),  # of tokens in a pack, and the ends of its sequences: the colors show them
    ("cu_seqlens", "skip"),
    ("label", "label"),
    ("class", "label"),
    ("target", "label"),
    ("token", "tokens"),
    ("input_ids", "tokens"),
    ("audio", "audio"),
    ("wave", "audio"),
    ("text", "text"),
    ("caption", "text"),
    ("video", "clip"),
    ("clip", "clip"),
)
#: An array without a name that has at least so many numbers is a sound.
_SOUND_LENGTH = 1000


def roles_of(columns: Sequence[BatchColumn], given: Mapping[str, str]) -> dict[str, str]:
    """Return the role of each column: the given one, or the one that names, shapes and dtypes suggest.

    Raises:
        ArgumentError: a given name or role is unknown.
    """
    names = [column.name for column in columns]
    for name, role in given.items():
        if name not in names:
            raise ArgumentError(f"roles: the batch has no column {name!r}; it has {', '.join(map(repr, names))}")
        if role not in ROLES:
            raise ArgumentError(f"roles: {name!r} is to be {role!r}; it may be one of {', '.join(map(repr, ROLES))}")
    roles = {column.name: given.get(column.name) or _role_of(column) for column in columns}
    pictures = next((column for column in columns if roles[column.name] == "image"), None)
    boxes = next((column for column in columns if roles[column.name] == "boxes"), None)
    for column in columns:
        if column.name in given or column is pictures:
            continue
        if pictures is not None and _fits_as_mask(column, pictures):
            roles[column.name] = "mask"
        elif boxes is not None and roles[column.name] == "tokens" and len(column.values[0]) == len(boxes.values[0]):
            roles[column.name] = "label"
    return roles


def picture_axes(shape: tuple[int, ...], layout: str) -> tuple[int, int, int | None] | None:
    """Return the dimensions of height, width and channels of a picture; None for other shapes."""
    if len(layout) == len(shape) and {"H", "W"} <= {*layout}:
        return layout.index("H"), layout.index("W"), layout.index("C") if "C" in layout else None
    if len(shape) == 2:
        return 0, 1, None
    if len(shape) != 3:
        return None
    if shape[2] in CHANNELS:  # also of a square picture: most are interleaved
        return 0, 1, 2
    return (1, 2, 0) if shape[0] in CHANNELS else None


def _role_of(column: BatchColumn) -> str:
    if not column.values:
        return "skip"
    first = column.values[0]
    if isinstance(first, str | bytes):
        return "text"
    if not isinstance(first, np.ndarray):
        return "value"
    named = next((role for part, role in _NAMES if part in column.name.lower()), None)
    if named is not None and _may_be(named, first):
        return named
    return _role_by_shape(first, column.layout)


def _role_by_shape(value: np.ndarray[Any, Any], layout: str) -> str:
    """Return the role of an array whose name tells nothing."""
    is_number = value.dtype.kind in "iu"
    if value.ndim == 0:
        return "label" if is_number or value.dtype.kind == "b" else "value"
    if value.ndim == 1:
        is_sound = value.dtype.kind == "f" and value.size >= _SOUND_LENGTH
        return "audio" if is_sound else "tokens" if is_number else "value"
    if value.ndim == 2 and value.shape[1] == 4 and value.shape[0] != 4:
        return "boxes"
    if value.ndim == 4 and picture_axes(value.shape[1:], layout[1:]) is not None:
        return "clip"
    return "image" if picture_axes(value.shape, layout) is not None else "value"


def _may_be(role: str, value: np.ndarray[Any, Any]) -> bool:
    """Return whether an array can have the role that its name suggests."""
    fits = {
        "mask": value.ndim >= 2,
        "boxes": value.ndim == 2 and value.shape[1] == 4,
        "label": value.ndim <= 1 and value.dtype.kind in "iub",
        "segments": value.ndim == 1,
        "tokens": value.ndim == 1 and value.dtype.kind in "iu",
        "audio": value.ndim <= 2 and value.dtype.kind in "fi",
        "clip": value.ndim == 4,
        "text": False,
        "skip": True,
    }
    return fits[role]


def _fits_as_mask(column: BatchColumn, pictures: BatchColumn) -> bool:
    """Return whether a column of flat arrays of integers has the size of the pictures."""
    value, picture = column.values[0], pictures.values[0]
    axes = picture_axes(picture.shape, pictures.layout)
    is_flat = isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "iub"
    return is_flat and axes is not None and value.shape == (picture.shape[axes[0]], picture.shape[axes[1]])
