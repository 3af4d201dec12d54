"""Operators on segmentation masks, as in ``nvidia.dali.fn.segmentation``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dali_like.common.extras import optional
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.operator_interface import Array, OperatorCall
from dali_like.operators.axes import for_each_axis
from dali_like.operators.description import operator
from dali_like.operators.parameters import DISTINCT, SOME, Floats, Ints, PerSample, at_least, between

_Format: TypeAlias = Literal["anchor_shape", "start_end", "box"]


def _check_pixel(given: Mapping[str, Any]) -> None:
    if "value" in given and "threshold" in given:
        raise ArgumentClashError("value and threshold exclude each other")


@operator(module="segmentation", random=True, output_layout="", check=_check_pixel)
def random_mask_pixel(
    call: OperatorCall,
    mask: Array,
    *,
    foreground: PerSample[int] = 0,
    threshold: PerSample[float] = 0.0,
    value: PerSample[int] | None = None,
) -> Array:
    """Draw the position of a pixel of a mask, each with the same probability.

    The result is an int64 array with the position in each axis.

    Args:
        mask: any dtype and number of dimensions.
        foreground: whether to draw from foreground pixels only. Without foreground pixels, all pixels are drawn from.
        threshold: pixels with a greater value are foreground.
        value: pixels with this value are foreground, instead.
    """
    if not mask.size:
        raise SampleError(f"the mask of shape {mask.shape} has no pixel")
    rng = call.rng()
    if foreground:
        pixels = np.flatnonzero(mask > threshold if value is None else mask == value)
        if len(pixels):
            return np.array(np.unravel_index(pixels[rng.integers(len(pixels))], mask.shape), np.int64)
    return np.array(np.unravel_index(rng.integers(mask.size), mask.shape), np.int64)


@operator(module="segmentation", num_outputs=2, output_layout=lambda _, __: ("", ""))
def select_masks(
    call: OperatorCall, mask_ids: Array, polygons: Array, vertices: Array, *, reindex_masks: bool = False
) -> tuple[Array, Array]:
    """Select the polygons of some masks, in the format of ``fn.readers.coco``.

    Results are the polygons of the masks, in the order of `mask_ids`, and their vertices.

    Args:
        mask_ids: integers, each only once.
        polygons: integers of shape (N, 3): number of the mask, index of the first vertex, index behind the last vertex. A
            mask may have several polygons.
        vertices: coordinates, of shape (M, any).
        reindex_masks: whether to number the masks by their positions in `mask_ids`.
    """
    wanted: list[int] = mask_ids.ravel().tolist()
    _check_polygons(wanted, polygons, vertices)
    rows, parts, count = [], [vertices[:0]], 0
    for index, mask in enumerate(wanted):
        for first, last in polygons[polygons[:, 0] == mask, 1:].tolist():
            rows.append((index if reindex_masks else mask, count, count + last - first))
            parts.append(vertices[first:last])
            count += last - first
    return np.array(rows, polygons.dtype).reshape(-1, 3), np.concatenate(parts)


def _check_polygons(wanted: list[int], polygons: Array, vertices: Array) -> None:
    if polygons.ndim != 2 or polygons.shape[1] != 3 or polygons.dtype.kind not in "iu":
        raise SampleError(f"polygons must be integers of shape (N, 3), not {polygons.dtype} of shape {polygons.shape}")
    if vertices.ndim != 2:
        raise SampleError(f"vertices must have two dimensions, not the shape {vertices.shape}")
    if len(set(wanted)) < len(wanted):
        raise SampleError(f"mask_ids must have each mask only once, not {wanted}")
    if missing := set(wanted) - set(polygons[:, 0].tolist()):
        raise SampleError(f"there is no polygon of the mask {min(missing)}")
    used = polygons[np.isin(polygons[:, 0], wanted)]
    if ((used[:, 1] < 0) | (used[:, 2] < used[:, 1]) | (used[:, 2] > len(vertices))).any():
        raise SampleError(f"polygons must have ascending indices of the {len(vertices)} vertices, not {used.tolist()}")


# random_object_bbox


class _Box(NamedTuple):
    """An object: its bounding box, and its label."""

    start: Ints
    end: Ints
    label: int

    @property
    def shape(self) -> Ints:
        return tuple(np.subtract(self.end, self.start).tolist())


def _check_object(given: Mapping[str, Any]) -> None:
    # The values may be nodes, which have neither a truth value nor an equal.
    of_classes = [name for name in ("classes", "class_weights") if given.get(name) is not None]
    of_classes += ["output_class"] * bool(given.get("output_class"))
    if given.get("ignore_class") and of_classes:
        raise ArgumentClashError(f"ignore_class and {' and '.join(of_classes)} exclude each other")
    classes, weights = given.get("classes"), given.get("class_weights")
    if isinstance(classes, tuple) and isinstance(weights, tuple):
        _check_weights(classes, weights)
    background = given.get("background")
    if isinstance(classes, tuple) and isinstance(background, int) and background in classes:
        raise ArgumentError(f"the background, {background}, must not be one of the classes {list(classes)}")


def _check_weights(classes: Ints, weights: Floats) -> None:
    if len(classes) != len(weights):
        raise ArgumentError(f"class_weights has {len(weights)} elements for {len(classes)} classes; pass one for each")


def _num_outputs(given: Mapping[str, Any]) -> int:
    return (1 if given["format"] == "box" else 2) + bool(given["output_class"])


@operator(
    module="segmentation",
    random=True,
    num_outputs=_num_outputs,
    output_layout="",
    check=_check_object,
    ignored={"cache_objects": False},
)
def random_object_bbox(
    call: OperatorCall,
    mask: Array,
    *,
    background: PerSample[int] | None = None,
    class_weights: PerSample[Annotated[Floats, SOME, at_least(0)]] | None = None,
    classes: PerSample[Annotated[Ints, SOME, DISTINCT]] | None = None,
    foreground_prob: PerSample[Annotated[float, between(0, 1)]] = 1.0,
    format: _Format = "anchor_shape",  # DALI's name
    ignore_class: bool = False,
    k_largest: Annotated[int, at_least(1)] | None = None,
    output_class: bool = False,
    threshold: PerSample[Annotated[Ints, at_least(0)]] | None = None,
) -> Any:
    """Draw an object of a mask, and return its bounding box.

    A class is drawn first, then one of its objects: regions of connected pixels, without diagonals. Results are int32; the
    box is that of the whole mask, and the class is the background, if no object is drawn. Requires the extra "segmentation".

    Args:
        mask: labels of pixels; integers, any number of dimensions.
        background: label of the background. Default: 0, or a number below all `classes` if they have 0.
        class_weights: relative probabilities of the classes. Without `classes`, they are for the labels 1, 2 and so on.
        classes: labels of objects. Default: all labels but the background.
        foreground_prob: probability to draw an object at all.
        format: "anchor_shape" or "start_end", for two outputs, or "box", for one with the start and the end.
        ignore_class: whether to draw from all objects, without drawing a class first.
        k_largest: draw from this number of objects of the class, those with the largest boxes. Default: from all.
        output_class: whether to return the class, too.
        threshold: minimum extents of boxes: one number for all axes, or one for each.
    """
    if mask.dtype.kind not in "biu":
        raise SampleError(f"the mask must be of integers, not {mask.dtype}; convert it with fn.cast")
    if classes is None and class_weights is not None:
        classes = tuple(range(1, len(class_weights) + 1))
    if background is None:
        background = min(classes) - 1 if classes and 0 in classes else 0
    weights = dict(zip(classes, class_weights or [1.0] * len(classes), strict=False)) if classes else None
    if classes and class_weights:
        _check_weights(classes, class_weights)
    if weights is not None and background in weights:
        raise SampleError(f"the background, {background}, must not be one of the classes {sorted(weights)}")
    sides = for_each_axis("threshold", threshold or (), mask.ndim)
    rng = call.rng()
    drawn = None
    if rng.random() < foreground_prob:
        labels = np.unique(mask).tolist()
        found = {label: 1.0 if weights is None else weights.get(label, 0.0) for label in labels if label != background}
        drawn = _drawn(
            rng, mask, {label: weight for label, weight in found.items() if weight}, sides, k_largest, ignore_class
        )
    box = drawn or _Box((0,) * mask.ndim, mask.shape, background)
    results = [box.start + box.end] if format == "box" else [box.start, box.shape if format == "anchor_shape" else box.end]
    outputs = [np.array(result, np.int32) for result in (*results, *([box.label] if output_class else []))]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _drawn(
    rng: np.random.Generator,
    mask: Array,
    weights: dict[int, float],
    sides: Any,
    k_largest: int | None,
    ignore_class: bool,
) -> _Box | None:
    """Draw an object of sufficient size, or return None."""
    if ignore_class:
        return _one_of(rng, [box for label in weights for box in _objects(mask, label, sides)], k_largest)
    while weights:
        total = sum(weights.values())
        label = list(weights)[rng.choice(len(weights), p=[weight / total for weight in weights.values()])]
        if box := _one_of(rng, _objects(mask, label, sides), k_largest):
            return box
        del weights[label]
    return None


def _one_of(rng: np.random.Generator, boxes: list[_Box], k_largest: int | None) -> _Box | None:
    if k_largest is not None:
        boxes = sorted(boxes, key=lambda box: -int(np.prod(box.shape)))[:k_largest]
    return boxes[rng.integers(len(boxes))] if boxes else None


def _objects(mask: Array, label: int, sides: Any) -> list[_Box]:
    """Return the objects of a class whose boxes have sufficient extents."""
    ndimage = optional("scipy.ndimage", "fn.segmentation.random_object_bbox", "segmentation")
    windows = ndimage.find_objects(ndimage.label(mask == label)[0])
    boxes = [_Box(tuple(part.start for part in window), tuple(part.stop for part in window), label) for window in windows]
    return [
        box for box in boxes if all(extent >= least for extent, least in zip(box.shape, sides or box.shape, strict=True))
    ]
