"""Operators that transform bounding boxes, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.arrays._boxes import Floats64, check_coordinates, check_labels, check_rows, parse_layout
from dali_like.operators.geometry.warping import canvas_of
from dali_like.operators.machinery.axes import axis_of
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, Floats, Ints, PerSample, above, at_least, between, count

Mode: TypeAlias = Literal["expand", "fixed", "halfway"]


def _corners_of(boxes: Array, lead: int = 0) -> Array:
    """Return boxes of any shape, four numbers each, as rows."""
    check_coordinates(boxes)
    if math.prod(boxes.shape[lead:]) % 4:
        raise SampleError(f"boxes have four coordinates each, but the input of shape {boxes.shape} has {boxes.size} numbers")
    return boxes.reshape(-1, 4)


@operator(output_layout="", stacks=(), rowwise=4)
def bb_flip(
    call: OperatorCall,
    boxes: Array,
    *,
    horizontal: PerSample[int] = 1,
    vertical: PerSample[int] = 0,
    ltrb: bool = False,
) -> Array:
    """Mirror bounding boxes, as ``fn.flip`` mirrors their image.

    Args:
        boxes: float32, four numbers for each box, as fractions of the image.
        horizontal: whether to exchange left and right.
        vertical: whether to exchange top and bottom.
        ltrb: whether boxes are (left, top, right, bottom), not (left, top, width, height).
    """
    rows = _corners_of(boxes, call.lead)
    out = call.empty(boxes.shape, boxes.dtype)
    flipped = out.reshape(-1, 4)
    flipped[:] = rows
    one = np.float32(1)
    for axis, mirrored in enumerate((horizontal, vertical)):
        if not mirrored:
            continue
        first, second = rows[:, axis], rows[:, axis + 2]
        flipped[:, axis] = one - second if ltrb else one - first - second
        if ltrb:
            flipped[:, axis + 2] = one - first
    return out


@operator(output_layout="", stacks=(), rowwise=4)
def bbox_paste(
    call: OperatorCall,
    boxes: Array,
    *,
    ratio: PerSample[Annotated[float, above(0)]],
    paste_x: PerSample[Annotated[float, FINITE]] = 0.5,
    paste_y: PerSample[Annotated[float, FINITE]] = 0.5,
    ltrb: bool = False,
) -> Array:
    """Move bounding boxes to where ``fn.paste`` pastes their image on a larger canvas.

    Args:
        boxes: float32, four numbers for each box, as fractions of the image.
        ratio: size of the canvas, relative to the image.
        paste_x: position of the image on the canvas, from 0 (left) to 1 (right).
        paste_y: the same, from top to bottom.
        ltrb: whether boxes are (left, top, right, bottom), not (left, top, width, height).
    """
    rows = _corners_of(boxes, call.lead)
    out = call.empty(boxes.shape, boxes.dtype)
    rest = np.float32((ratio - 1) / ratio)
    margin = np.minimum(np.array([paste_x, paste_y], np.float32) * rest, rest)
    pasted = out.reshape(-1, 4)
    np.divide(rows, np.float32(ratio), out=pasted)
    pasted[:, :2] += margin
    if ltrb:
        pasted[:, 2:] += margin
    return out


def _check_rotate(given: Mapping[str, Any]) -> None:
    if given.get("keep_size") and "size" in given:
        raise ArgumentClashError("keep_size and size exclude each other")
    if given.get("remove_threshold", 0.0) >= 1:
        raise ArgumentError("remove_threshold must be less than 1")
    if given.get("bbox_layout", "xyXY") not in ("xyXY", "xyWH"):
        raise ArgumentError(f"bbox_layout must be 'xyXY' or 'xyWH', not {given['bbox_layout']!r}")
    for letter in "HW":
        axis_of(letter, given.get("shape_layout", "HW"))


@operator(
    num_outputs=lambda given: 1 + ("labels" in given),
    output_layout="",
    check=_check_rotate,
    kernel="arrays.box_kernels.bbox_rotate",
    kernel_is_compiled=False,
    kernel_for_stacks=False,
    kernel_for_large=True,
)
def bbox_rotate(
    call: OperatorCall,
    boxes: Array,
    labels: Array | None = None,
    *,
    angle: PerSample[Annotated[float, FINITE]],
    input_shape: PerSample[Annotated[Ints, at_least(0)]],
    bbox_layout: SavedText = "xyXY",
    bbox_normalized: bool = True,
    keep_size: bool = False,
    mode: Mode = "expand",
    remove_threshold: Annotated[float, between(0, 1)] = 0.1,
    shape_layout: SavedText = "HW",
    size: PerSample[Annotated[Floats, count(2)]] | None = None,
) -> Any:
    """Rotate bounding boxes with their image, and remove those that leave it.

    Results are boxes around the rotated ones. Pass `labels` too, if boxes may be removed: their labels then go with them.

    Args:
        boxes: float32 of shape (N, 4).
        labels: integers of shape (N,) or (N, 1). With labels, the operator has a second output.
        angle: in degrees, counter-clockwise, as for ``fn.rotate``.
        input_shape: shape of the image before its rotation, in the order of `shape_layout`.
        bbox_layout: "xyXY" for (left, top, right, bottom), or "xyWH" for (left, top, width, height).
        bbox_normalized: whether boxes are fractions of the image, not pixels.
        keep_size: whether ``fn.rotate`` keeps the size of the image.
        mode: "expand": boxes enclose the rotated ones; "fixed": boxes keep their size; "halfway": halfway between.
        remove_threshold: smallest part of a box that must be inside the rotated image; boxes with less are removed.
        shape_layout: letters of the axes of `input_shape`.
        size: size of the rotated image, as (height, width), if ``fn.rotate`` has this argument.
    """
    check_rows(boxes, 4)
    check_labels(labels, len(boxes))
    turn = turn_of(angle, input_shape, shape_layout, size, keep_size=keep_size)
    rotated, kept = rotated_boxes(boxes, turn, bbox_layout, mode, remove_threshold, are_normalized=bbox_normalized)
    if not kept.all():
        rotated = rotated[kept]
        labels = None if labels is None else labels[kept]
    return rotated if labels is None else (rotated, labels)


class Turn(NamedTuple):
    """A rotation of images of one size, or one for each box.

    Attributes:
        image: width and height before.
        limits: width and height behind it.
        cosine: of the angle.
        sines: of the angle, and of its opposite.
    """

    image: Floats64
    limits: Floats64
    cosine: Floats64
    sines: Floats64


def rotated_boxes(
    boxes: Array, turn: Turn, layout: str, mode: Mode, remove_threshold: float, *, are_normalized: bool
) -> tuple[Array, Array]:
    """Return boxes around the rotated ones, and whether each is kept."""
    are_extents = parse_layout(layout, 2)[2]
    low, high = boxes[:, :2], boxes[:, 2:]
    if are_normalized:
        low, high = low * turn.image, high * turn.image
    else:
        low, high = low.astype(np.float64), high.astype(np.float64)
    if are_extents:
        high = low + high

    # Sums of products, not products of matrices: those have other bits for other numbers of boxes.
    middle, half = (low + high - turn.image) / 2, (high - low) / 2
    center = middle * turn.cosine + middle[:, ::-1] * turn.sines + turn.limits / 2
    extents = np.abs(half)
    reach = extents * np.abs(turn.cosine) + extents[:, ::-1] * np.abs(turn.sines)
    reach = _without_expansion(reach, half, mode)
    low = np.minimum(np.maximum(center - reach, 0), turn.limits)
    high = np.minimum(np.maximum(center + reach, 0), turn.limits)

    seen, whole = high - low, 2 * reach
    with np.errstate(divide="ignore", invalid="ignore"):  # empty boxes are removed
        kept: Array = seen[:, 0] * seen[:, 1] / (whole[:, 0] * whole[:, 1]) >= remove_threshold
    rotated = np.empty((len(boxes), 4), np.float32)
    for part, corner in (rotated[:, :2], low), (rotated[:, 2:], seen if are_extents else high):
        np.divide(corner, turn.limits if are_normalized else 1.0, out=part, casting="same_kind")
    return rotated, kept


def turn_of(angle: float, input_shape: Ints, shape_layout: str, size: Floats | None, *, keep_size: bool) -> Turn:
    """Return the rotation of an image.

    Raises:
        SampleError: the shape has too few elements.
    """
    height, width = _height_and_width(input_shape, shape_layout)
    return _turn_of(angle, height, width, None if keep_size else size, keep_size)


@functools.lru_cache(64)
def _turn_of(angle: float, height: int, width: int, size: Floats | None, keep_size: bool) -> Turn:
    radians = math.radians(angle)
    canvas = (height, width) if keep_size else size or canvas_of((height, width), radians)
    return Turn(
        np.array([width, height], np.float64),
        np.array([math.floor(canvas[1]), math.floor(canvas[0])], np.float64),
        np.array([math.cos(radians)]),
        np.array([math.sin(radians), -math.sin(radians)]),
    )


def _height_and_width(shape: Ints, layout: str) -> tuple[int, int]:
    places = [axis_of(letter, layout) for letter in "HW"]
    if len(shape) <= max(places):
        raise SampleError(f"input_shape has {len(shape)} elements, but shape_layout is {layout!r}")
    return shape[places[0]], shape[places[1]]


def _without_expansion(reach: Array, half: Array, mode: Mode) -> Array:
    """Return half of the extents of rotated boxes: as they are, of the size before the rotation, or halfway between."""
    if mode == "expand":
        return reach
    turned = (half[:, 0] < half[:, 1]) ^ (reach[:, 0] < reach[:, 1])
    original = np.where(turned[:, None], half[:, ::-1], half)
    return original if mode == "fixed" else (reach + original) / 2


def _check_encoder(given: Mapping[str, Any]) -> None:
    anchors = given["anchors"]
    if not anchors or len(anchors) % 4:
        raise ArgumentError(f"anchors must be some boxes of four numbers each, not {len(anchors)} numbers")
    if not all(given.get("stds", (1.0,))):
        raise ArgumentError(f"stds must not be zero, not {list(given['stds'])}")


@operator(
    num_outputs=2,
    output_layout=lambda _, __: ("", ""),
    check=_check_encoder,
    kernel="arrays.array_kernels.box_encoder",
    kernel_for_large=True,
)
def box_encoder(
    call: OperatorCall,
    boxes: Array,
    labels: Array,
    *,
    anchors: Floats,
    criteria: Annotated[float, between(0, 1)] = 0.5,
    offset: bool = False,
    means: Annotated[Floats, count(4), FINITE] = (0.0, 0.0, 0.0, 0.0),
    stds: Annotated[Floats, count(4), FINITE] = (1.0, 1.0, 1.0, 1.0),
    scale: float = 1.0,
) -> tuple[Array, Array]:
    """Assign bounding boxes to anchors, as in "SSD: Single Shot MultiBox Detector".

    Each anchor gets the box that overlaps it most, if the intersection over union is above `criteria`; each box gets the
    anchor that it overlaps most in any case. The other anchors get the label 0.

    Results are float32 boxes of shape (M, 4) as (center x, center y, width, height), and int32 labels of shape (M,), for M
    anchors.

    Args:
        boxes: float32 of shape (N, 4), as (left, top, right, bottom).
        labels: integers of shape (N,) or (N, 1).
        anchors: (left, top, right, bottom) of each.
        criteria: threshold of the intersection over union.
        offset: whether to return, instead of boxes, their offsets from the anchors: of the centers, divided by the anchor's
            size, and of the logarithms of width and height. Offsets are normalized by `means` and `stds`. They are 0 for
            anchors without a box.
        means: subtracted from the offsets.
        stds: divisors of the offsets.
        scale: factor for boxes and anchors before offsets are computed; it cancels out.
    """
    check_rows(boxes, 4)
    check_labels(labels, len(boxes))
    frames = frames_of(anchors)
    classes = np.zeros(len(frames.boxes), np.int32)
    out = np.zeros_like(frames.centered) if offset else frames.centered.copy()
    if len(boxes):
        overlaps = _intersection_over_union(boxes, frames)
        best_anchor = overlaps.shape[1] - 1 - overlaps[:, ::-1].argmax(1)
        overlaps[np.arange(len(boxes)), best_anchor] = 2
        best_box = len(boxes) - 1 - overlaps[::-1].argmax(0)
        matched = np.flatnonzero(overlaps[best_box, frames.numbers] > criteria)
        chosen = best_box[matched]
        found = _centered(boxes)[chosen]
        out[matched] = _offsets(found, frames.centered[matched], means, stds, scale) if offset else found
        classes[matched] = labels.ravel()[chosen]
    return out, classes


class _Frames(NamedTuple):
    """Anchors.

    Attributes:
        given: as an argument.
        boxes: (left, top, right, bottom) of each.
        centered: (center x, center y, width, height) of each.
        sizes: areas.
        numbers: 0, 1 and so on.
    """

    given: Floats
    boxes: Array
    centered: Array
    sizes: Array
    numbers: Array


_known: list[_Frames] = []
_MOST_KNOWN = 4


def frames_of(anchors: Floats) -> _Frames:
    """Return anchors, which are the same object for all samples. Comparing thousands of numbers would take long."""
    for frames in _known:
        if frames.given is anchors:
            return frames
    boxes = np.array(anchors, np.float32).reshape(-1, 4)
    frames = _Frames(anchors, boxes, _centered(boxes), _sizes_of(boxes), np.arange(len(boxes)))
    _known[:] = [frames, *_known[: _MOST_KNOWN - 1]]
    return frames


def _centered(boxes: Array) -> Array:
    centered = np.empty_like(boxes)
    np.add(boxes[:, :2], boxes[:, 2:], out=centered[:, :2])
    centered[:, :2] *= np.float32(0.5)
    np.subtract(boxes[:, 2:], boxes[:, :2], out=centered[:, 2:])
    return centered


def _sizes_of(boxes: Array) -> Array:
    sizes: Array = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return sizes


def _intersection_over_union(boxes: Array, frames: _Frames) -> Array:
    """Return the overlap of each box with each anchor, in single precision, so that ties are those of DALI."""
    anchors = frames.boxes
    common = np.minimum(boxes[:, 2:3], anchors[:, 2]) - np.maximum(boxes[:, :1], anchors[:, 0])
    np.maximum(common, 0, out=common)
    heights = np.minimum(boxes[:, 3:4], anchors[:, 3]) - np.maximum(boxes[:, 1:2], anchors[:, 1])
    common *= np.maximum(heights, 0, out=heights)
    union = np.add(_sizes_of(boxes)[:, None], frames.sizes)
    union -= common
    overlaps: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return overlaps


def _offsets(boxes: Array, frames: Array, means: Floats, stds: Floats, scale: float) -> Array:
    boxes, frames = boxes * np.float32(scale), frames * np.float32(scale)
    offsets = np.hstack([(boxes[:, :2] - frames[:, :2]) / frames[:, 2:], np.log(boxes[:, 2:] / frames[:, 2:])])
    return np.asarray((offsets - np.array(means, np.float32)) / np.array(stds, np.float32))
