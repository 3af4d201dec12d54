"""Operators on segmentation masks, as in ``nvidia.dali.fn.segmentation``."""

from __future__ import annotations

import itertools
import math
import operator as operator_module
from bisect import bisect_right
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dali_like.common.extras import optional
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.axes import for_each_axis
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import DISTINCT, SOME, Floats, Ints, PerSample, at_least, between

#: Labels that are at most so far from each other are found by a table.
_MOST_NEAR = 1 << 16

_Format: TypeAlias = Literal["anchor_shape", "start_end", "box"]


def _check_pixel(given: Mapping[str, Any]) -> None:
    if "value" in given and "threshold" in given:
        raise ArgumentClashError("value and threshold exclude each other")


@operator(
    module="segmentation",
    random=True,
    output_layout="",
    check=_check_pixel,
    kernel="arrays.mask_kernels.random_mask_pixel",
    kernel_for_large=True,
)
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


@operator(
    module="segmentation",
    num_outputs=2,
    output_layout=lambda _, __: ("", ""),
    kernel="arrays.mask_kernels.select_masks",
    kernel_for_large=True,
)
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
    _check_kinds(wanted, polygons, vertices)
    places = {mask: place for place, mask in enumerate(wanted)}
    masks: list[int] = polygons[:, 0].tolist()
    if missing := places.keys() - masks:
        raise SampleError(f"there is no polygon of the mask {min(missing)}")
    order = sorted([i for i, mask in enumerate(masks) if mask in places], key=lambda i: places[masks[i]])
    begins, ends = polygons[order, 1].astype(np.int64), polygons[order, 2].astype(np.int64)
    if ((begins < 0) | (ends < begins) | (ends > len(vertices))).any():
        used = polygons[sorted(order)]
        raise SampleError(f"polygons must have ascending indices of the {len(vertices)} vertices, not {used.tolist()}")
    behind = (ends - begins).cumsum()
    starts = behind - (ends - begins)
    names = [places[masks[i]] if reindex_masks else masks[i] for i in order]
    rows = [*zip(names, starts.tolist(), behind.tolist(), strict=True)]
    taken = np.repeat(begins - starts, ends - begins) + np.arange(behind[-1] if len(behind) else 0)
    return np.array(rows, polygons.dtype).reshape(-1, 3), vertices[taken]


def _check_kinds(wanted: list[int], polygons: Array, vertices: Array) -> None:
    if polygons.ndim != 2 or polygons.shape[1] != 3 or polygons.dtype.kind not in "iu":
        raise SampleError(f"polygons must be integers of shape (N, 3), not {polygons.dtype} of shape {polygons.shape}")
    if vertices.ndim != 2:
        raise SampleError(f"vertices must have two dimensions, not the shape {vertices.shape}")
    if len(set(wanted)) < len(wanted):
        raise SampleError(f"mask_ids must have each mask only once, not {wanted}")


# random_object_bbox


class _LabeledBox(NamedTuple):
    """An object: its bounding box, and its label."""

    start: Ints
    end: Ints
    label: int

    @property
    def shape(self) -> Ints:
        return tuple(np.subtract(self.end, self.start).tolist())


#: The window of an object, by axis, and its label.
_Object: TypeAlias = tuple[tuple[slice, ...], int]


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
    kernel="arrays.mask_kernels.random_object_bbox",
    kernel_for_large=True,
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
        labels = _labels_of(mask)
        found = {label: 1.0 if weights is None else weights.get(label, 0.0) for label in labels if label != background}
        drawn = _drawn(
            rng, mask, {label: weight for label, weight in found.items() if weight}, sides, k_largest, ignore_class
        )
    box = drawn or _LabeledBox((0,) * mask.ndim, mask.shape, background)
    results = [box.start + box.end] if format == "box" else [box.start, box.shape if format == "anchor_shape" else box.end]
    outputs = [np.array(result, np.int32) for result in (*results, *([box.label] if output_class else []))]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _labels_of(mask: Array) -> list[int]:
    """Return the different labels, in order. Where they are near each other, this takes a tenth of the time of np.unique."""
    if not mask.size:
        return []
    least, most = int(mask.min()), int(mask.max())
    if most - least > _MOST_NEAR:
        found: list[int] = np.unique(mask).tolist()
        return found
    is_used = np.zeros(most - least + 1, bool)
    is_used[mask.astype(np.intp) - least if least or mask.dtype.kind == "b" else mask] = True
    return [least + place for place in np.flatnonzero(is_used).tolist()]


def _drawn(
    rng: np.random.Generator,
    mask: Array,
    weights: dict[int, float],
    sides: Any,
    k_largest: int | None,
    ignore_class: bool,
) -> _LabeledBox | None:
    """Draw an object of sufficient size, or return None."""
    if ignore_class:
        return _one_of(rng, [each for label in weights for each in _objects(mask, label, sides)], k_largest)
    while weights:
        label = _chosen(rng, weights)
        if box := _one_of(rng, _objects(mask, label, sides), k_largest):
            return box
        del weights[label]
    return None


def _chosen(rng: np.random.Generator, weights: Mapping[int, float]) -> int:
    """Return a label, by weights: that of `Generator.choice`, which takes ten times as long."""
    total = sum(weights.values())
    bounds = [*itertools.accumulate(weight / total for weight in weights.values())]
    return list(weights)[bisect_right([bound / bounds[-1] for bound in bounds], rng.random())]


def _one_of(rng: np.random.Generator, objects: list[_Object], k_largest: int | None) -> _LabeledBox | None:
    if k_largest is not None:
        objects = sorted(objects, key=lambda each: -math.prod(_extents(each[0])))[:k_largest]
    if not objects:
        return None
    window, label = objects[rng.integers(len(objects))]
    return _LabeledBox(tuple([part.start for part in window]), tuple([part.stop for part in window]), label)


def _extents(window: tuple[slice, ...]) -> list[int]:
    return [part.stop - part.start for part in window]


def _objects(mask: Array, label: int, sides: Any) -> list[_Object]:
    """Return the objects of a class whose boxes have sufficient extents."""
    ndimage = optional("scipy.ndimage", "fn.segmentation.random_object_bbox", "segmentation")
    windows = ndimage.find_objects(ndimage.label(mask == label)[0])
    if any(sides):
        windows = [window for window in windows if all(map(operator_module.ge, _extents(window), sides))]
    return [(window, label) for window in windows]
