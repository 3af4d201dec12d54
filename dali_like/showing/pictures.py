"""`dali_like.show`: a batch as a picture."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.checks import positive
from dali_like.common.suggestions import suggest_arguments
from dali_like.errors import ArgumentError
from dali_like.showing.batch_columns import BatchColumn, columns_of
from dali_like.showing.roles import roles_of

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Picture", "show"]

_BOX_FORMATS = ("ltrb", "ltwh", "cxcywh")


@dataclass(frozen=True)
class Picture:
    """A picture of a batch. Notebooks show it.

    Attributes:
        image: the picture, as a ``PIL.Image.Image``.
        roles: the role of each column of the batch in the picture.
    """

    image: Image
    roles: Mapping[str, str]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, in the format that its name ends with."""
        self.image.save(path)

    def print(self) -> None:
        """Draw the picture in the terminal."""
        from dali_like.showing.terminal import in_terminal

        sys.stdout.write(in_terminal(self.image, os.environ))
        sys.stdout.flush()

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.image.save(file, "PNG")
        return file.getvalue()


@suggest_arguments
def show(
    batch: Any,
    *,
    roles: Mapping[str, str] | None = None,
    classes: Sequence[str] | Mapping[int, str] | None = None,
    decode: Callable[[Any], str] | None = None,
    box_format: str = "ltrb",
    normalization: tuple[Any, Any] | None = None,
    samples: int = 16,
    columns: int | None = None,
    size: int = 160,
) -> Picture:
    """Draw the samples of a batch in a grid.

    Pictures of all layouts and dtypes, normalized ones too, with their masks, boxes and labels; clips as strips of frames;
    sounds as a wave above a spectrogram; texts; tokens, in one color for each sequence of a pack. Other values are written
    under the sample. In a terminal the picture is printed, too.

    Args:
        batch: of a pipeline or loader: arrays, tensors or TensorLists in nested tuples and dicts; or a list of samples.
        roles: roles of columns, by their names, where names and shapes do not tell: "image", "clip", "mask", "boxes",
            "label", "audio", "tokens", "segments" (the sequence of a pack that each token belongs to, from 1 on; 0 for
            padding), "text", "value", or "skip". A column has the name of its place in a sample: ``image``, ``0``,
            ``target.boxes``; "" if a sample is one value.
        classes: names of the labels.
        decode: returns the text of a token.
        box_format: "ltrb" (left, top, right, bottom), "ltwh" (left, top, width, height) or "cxcywh" (center, width, height).
            In pixels, or from 0 to 1.
        normalization: mean and standard deviation with which pictures with values from 0 to 1 have been normalized. None:
            ImageNet's, if the result fits.
        samples: how many samples to draw at most.
        columns: samples in a row; None: about as many as rows.
        size: longer side of a picture in pixels.

    Raises:
        ArgumentError, ArgumentTypeError: the batch or an argument has a wrong value or type.
        MissingExtraError: Pillow is not installed.
    """
    picture = picture_of(
        batch,
        roles=roles,
        classes=classes,
        decode=decode,
        box_format=box_format,
        normalization=normalization,
        samples=samples,
        columns=columns,
        size=size,
    )
    if sys.stdout.isatty() and "ipykernel" not in sys.modules:
        picture.print()
    return picture


def picture_of(
    batch: Any,
    *,
    roles: Mapping[str, str] | None = None,
    classes: Sequence[str] | Mapping[int, str] | None = None,
    decode: Callable[[Any], str] | None = None,
    box_format: str = "ltrb",
    normalization: tuple[Any, Any] | None = None,
    samples: int = 16,
    columns: int | None = None,
    size: int = 160,
) -> Picture:
    """Return the picture of `show`, and print nothing."""
    from dali_like.showing import drawing  # needs Pillow

    if box_format not in _BOX_FORMATS:
        raise ArgumentError(f"box_format must be one of {', '.join(map(repr, _BOX_FORMATS))}, not {box_format!r}")
    found = columns_of(batch)
    chosen = roles_of(found, roles or {})
    count = min(positive("samples", samples), *(len(column.values) for column in found)) if found else 0
    settings = _ShowSettings(classes, decode, box_format, normalization, positive("size", size))
    tiles = [_tile_of(number, found, chosen, settings) for number in range(count)]
    if columns is None:
        columns = 1 if "clip" in chosen.values() else max(math.ceil(math.sqrt(count)), 1)
    return Picture(drawing.grid(tiles, positive("columns", columns)), chosen)


@dataclass(frozen=True)
class _ShowSettings:
    """Arguments of `show` for each sample."""

    classes: Sequence[str] | Mapping[int, str] | None
    decode: Callable[[Any], str] | None
    box_format: str
    normalization: tuple[Any, Any] | None
    size: int

    def name_of(self, label: Any) -> str:
        """Return the name of a label; its number if it has no name."""
        if isinstance(self.classes, Mapping):
            return self.classes.get(int(label), str(label))
        names = self.classes or ()
        return names[int(label)] if 0 <= int(label) < len(names) else str(label)


def _tile_of(number: int, columns: Sequence[BatchColumn], roles: Mapping[str, str], settings: _ShowSettings) -> Image:
    """Draw one sample."""
    from dali_like.showing import drawing

    by_role: dict[str, list[tuple[BatchColumn, Any]]] = {}
    for column in columns:
        by_role.setdefault(roles[column.name], []).append((column, column.values[number]))
    values = {role: [value for _, value in found] for role, found in by_role.items()}
    labels = [np.atleast_1d(value) for value in values.get("label", ())]
    boxes = [_as_corners(np.asarray(value), settings.box_format) for value in values.get("boxes", ())]
    of_boxes = next((label for label in labels if boxes and len(label) == len(boxes[0]) and label.size != 1), None)
    parts = []
    for column, value in by_role.get("image", ()):
        pixels = drawing.picture_of(value, column.layout, settings.normalization)
        original = (pixels.shape[1], pixels.shape[0])
        for mask in values.get("mask", ()):
            pixels = drawing.with_mask(pixels, mask)
        image = drawing.scaled(pixels, settings.size)
        for rows in boxes:
            known = [] if of_boxes is None else of_boxes.tolist()
            drawing.draw_boxes(image, rows, original, [settings.name_of(label) for label in known], known)
        parts.append(image)
    if "image" not in values:
        for mask in values.get("mask", ()):
            empty = np.zeros((*np.shape(np.squeeze(mask))[-2:], 3), np.uint8)
            parts.append(drawing.scaled(drawing.with_mask(empty, mask), settings.size))
    for column, value in by_role.get("clip", ()):
        parts.append(drawing.strip(value, column.layout[1:], settings.normalization, settings.size // 2))
    parts += [drawing.sound(value, settings.size) for value in values.get("audio", ())]
    packs = next(iter(values.get("segments", ())), None)
    for value in values.get("tokens", ()):
        words = None if settings.decode is None else [settings.decode(token) for token in value.tolist()]
        parts.append(drawing.tokens(value.tolist(), words, packs, settings.size))
    for value in values.get("text", ()):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        parts.append(drawing.text(text, settings.size))
    captions = [", ".join(map(settings.name_of, label.tolist())) for label in labels if label is not of_boxes]
    captions += [_value_text(column.name, value) for column, value in by_role.get("value", ())]
    return drawing.tile(parts, "  ".join(captions), settings.size)


def _as_corners(boxes: np.ndarray[Any, Any], box_format: str) -> np.ndarray[Any, Any]:
    """Return boxes as left, top, right and bottom."""
    boxes = boxes.reshape(-1, 4)
    if box_format == "ltrb":
        return boxes
    first, size = boxes[:, :2], boxes[:, 2:]
    begin = first - size / 2 if box_format == "cxcywh" else first
    return np.concatenate([begin, begin + size], axis=1)


def _value_text(name: str, value: Any) -> str:
    """Return a short text of a value: small arrays in full, of others the shape and range."""
    if not isinstance(value, np.ndarray):
        shown = repr(value)[:60]
    elif value.size <= 4:
        shown = np.array2string(value, precision=3)
    else:
        shown = f"{value.dtype} {value.shape}"
    return f"{name}: {shown}" if name else shown
