"""Operators that choose random windows for images with bounding boxes, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import operator as operator_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.common.stability import warn_deprecated
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.arrays._boxes import Floats64, areas, check_labels, check_rows, parse_layout, ratios
from dali_like.operators.geometry._windows import round_half_up
from dali_like.operators.machinery.axes import for_each_axis
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import ASCENDING, SOME, Floats, Ints, PerSample, at_least, between, count

_Measure: TypeAlias = Literal["iou", "overlap"]
#: Boxes that Python looks at one by one.
_FEW = 16
#: Tolerance of box coordinates beyond the image.
_ROUNDING = 1e-5


class _CropWindow(NamedTuple):
    """A part of an image, as fractions of it, by axis (x, y, z)."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class _Box(NamedTuple):
    """One box, as fractions of an image, and its area."""

    low: Sequence[float]
    high: Sequence[float]
    size: float

    def part_in(self, window: _CropWindow) -> float:
        """Return the area inside a window."""
        part = 1.0
        for low, high, begin, end in zip(self.low, self.high, *window, strict=True):
            extent = (high if high < end else end) - (low if low > begin else begin)
            if extent <= 0:
                return 0.0
            part *= extent
        return part

    def has_center_in(self, window: _CropWindow) -> bool:
        """Return whether the center is in a window."""
        for low, high, begin, end in zip(self.low, self.high, *window, strict=True):
            if not begin <= (low + high) / 2 <= end:
                return False
        return True


class _Boxes(NamedTuple):
    """Boxes as fractions of an image.

    Attributes:
        low, high: a row for each.
        sizes: their areas.
        few: the first ones. Many windows are refused, or allowed, because of one box: Python finds it in less time than
            NumPy computes all.
    """

    low: Floats64
    high: Floats64
    sizes: Floats64
    few: Sequence[_Box]

    @classmethod
    def of(cls, low: Floats64, high: Floats64) -> _Boxes:
        """Return boxes with these corners."""
        sizes = areas(low, high)
        few = [*map(_Box, low[:_FEW].tolist(), high[:_FEW].tolist(), sizes[:_FEW].tolist())]
        return cls(low, high, sizes, few)

    def parts_in(self, window: _CropWindow) -> Floats64:
        """Return the areas inside a window."""
        return areas(np.maximum(self.low, window.low), np.minimum(self.high, window.high))

    def overlaps(self, window: _CropWindow, measure: _Measure) -> Floats64:
        """Return the overlap of each box with a window."""
        parts = self.parts_in(window)
        return ratios(parts, self.sizes if measure == "overlap" else self.sizes + _area(window) - parts)

    def few_overlaps(self, window: _CropWindow, measure: _Measure) -> Iterator[float]:
        """Yield the overlaps of the first boxes."""
        area = _area(window)
        for box in self.few:
            part = box.part_in(window)
            whole = box.size if measure == "overlap" else box.size + area - part
            yield part / whole if whole > 0 else 0.0

    def with_center_in(self, window: _CropWindow) -> Array:
        """Return whether the center of each box is in a window."""
        center = (self.low + self.high) / 2
        return np.asarray(((center >= window.low) & (center <= window.high)).all(1))

    def seen_from(self, window: _CropWindow, kept: Array) -> tuple[Array, Array]:
        """Return the corners of the parts of some boxes inside a window, as fractions of the window."""
        begin = np.array(window.low)
        size = window.high - begin
        low, high = (
            np.minimum(np.maximum((corner[kept] - begin) / size, 0), 1)  # np.clip takes twice as long for few numbers
            for corner in (self.low, self.high)
        )
        return low, high


def _area(window: _CropWindow) -> float:
    area = 1.0
    for low, high in zip(*window, strict=True):
        area *= max(high - low, 0.0)
    return area


# random_bbox_crop


def _check_random_crop(given: Mapping[str, Any]) -> None:
    if "crop_shape" in given:
        if "input_shape" not in given:
            raise ArgumentError("crop_shape needs input_shape, the shape of the image; pass both")
        if both := [name for name in ("scaling", "aspect_ratio") if name in given]:
            raise ArgumentClashError(f"crop_shape and {' and '.join(both)} exclude each other")
    if "ltrb" in given:
        warn_deprecated("fn.random_bbox_crop: ltrb", 'bbox_layout="xyXY" or "xyWH"')
        if "bbox_layout" in given:
            raise ArgumentClashError("ltrb and bbox_layout exclude each other; pass bbox_layout alone")
    bounds = given.get("aspect_ratio", (1.0, 1.0))
    if any(least <= 0 or most < least for least, most in zip(bounds[::2], bounds[1::2], strict=True)):
        raise ArgumentError(f"aspect_ratio must have pairs of positive numbers, the lower one first, not {list(bounds)}")
    if given.get("total_num_attempts", -1) == 0:
        raise ArgumentError("total_num_attempts must be positive, or negative for no limit")


def _num_outputs(given: Mapping[str, Any]) -> int:
    return 3 + ("labels" in given) + bool(given["output_bbox_indices"])


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Random search for a window that the boxes allow.

    Attributes:
        thresholds: minimum overlaps; one of them is drawn for each round of attempts. None: take the whole image.
        measure, every: how overlaps are measured, and whether all boxes must reach the threshold, or one.
        prune_threshold: smallest part of a box in the window that is kept; None: boxes are kept if their center is inside.
        attempts_per_threshold, total_attempts: numbers of attempts; a negative total: no limit.
    """

    thresholds: Sequence[float | None]
    measure: _Measure
    every: bool
    prune_threshold: float | None
    attempts_per_threshold: int
    total_attempts: int

    def run(
        self, rng: np.random.Generator, boxes: _Boxes, draw: Callable[[np.random.Generator], _CropWindow | None]
    ) -> _CropWindow:
        """Return the first window that satisfies the conditions, or the best one after all attempts.

        Args:
            draw: function of `rng` that returns a window, or None if its shape is not allowed.

        Raises:
            SampleError: no window had an allowed shape.
        """
        best: tuple[float, _CropWindow] | None = None
        rank, attempts = boxes.low.shape[1], 0
        while self.total_attempts < 0 or attempts < self.total_attempts:
            threshold = self.thresholds[int(rng.integers(len(self.thresholds)))]
            if threshold is None:
                return _CropWindow((0.0,) * rank, (1.0,) * rank)
            for _ in range(self.attempts_per_threshold):
                if attempts == self.total_attempts:
                    break
                attempts += 1
                window = draw(rng)
                if window is None:
                    continue
                if self._reaches(boxes, window, threshold) and self._keeps_any(boxes, window):
                    return window
                if self.total_attempts >= 0 and (best is None or self._overlap(boxes, window) > best[0]):
                    best = (self._overlap(boxes, window), window)
        if best is None:
            raise SampleError(
                f"none of {attempts} random windows had an allowed aspect ratio; widen scaling or aspect_ratio, or pass a "
                "larger total_num_attempts"
            )
        return best[1]

    def _reaches(self, boxes: _Boxes, window: _CropWindow, threshold: float) -> bool:
        """Whether the overlap with a window is at least a threshold."""
        if threshold <= 0:
            return True
        few = (overlap >= threshold for overlap in boxes.few_overlaps(window, self.measure))
        if len(boxes.few) == len(boxes.low):
            return all(few) if self.every else any(few) or not boxes.few
        if not all(few) if self.every else any(few):
            return not self.every
        return self._overlap(boxes, window) >= threshold

    def _overlap(self, boxes: _Boxes, window: _CropWindow) -> float:
        overlaps = boxes.overlaps(window, self.measure)
        if not overlaps.size:
            return float("inf")
        return float(overlaps.min() if self.every else overlaps.max())

    def _keeps_any(self, boxes: _Boxes, window: _CropWindow) -> bool:
        """Whether a window keeps a box, if there are any."""
        if self.prune_threshold is None and any(box.has_center_in(window) for box in boxes.few):
            return True
        return not len(boxes.low) or bool(self.kept(boxes, window).any())

    def kept(self, boxes: _Boxes, window: _CropWindow) -> Array:
        """Return whether each box is kept."""
        if self.prune_threshold is None:
            return boxes.with_center_in(window)
        parts = boxes.parts_in(window)
        return np.asarray((parts > 0) & (ratios(parts, boxes.sizes) >= self.prune_threshold))


@operator(
    random=True,
    num_outputs=_num_outputs,
    output_layout="",
    check=_check_random_crop,
    ignored={"quiet": False},
    kernel="arrays.array_kernels.random_bbox_crop",
    kernel_for_large=True,
)
def random_bbox_crop(
    call: OperatorCall,
    boxes: Array,
    labels: Array | None = None,
    *,
    all_boxes_above_threshold: bool = True,
    allow_no_crop: bool = True,
    aspect_ratio: Annotated[Floats, count(2, 6)] = (1.0, 1.0),
    bbox_layout: SavedText | None = None,
    bbox_prune_threshold: Annotated[float, between(0, 1)] | None = None,
    crop_shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    input_shape: PerSample[Annotated[Ints, at_least(1)]] | None = None,
    ltrb: bool = True,
    num_attempts: Annotated[int, at_least(1)] = 1,
    output_bbox_indices: bool = False,
    scaling: Annotated[Floats, count(2), at_least(0), ASCENDING] = (1.0, 1.0),
    shape_layout: SavedText | None = None,
    threshold_type: _Measure = "iou",
    thresholds: Annotated[Floats, SOME, between(0, 1)] = (0.0,),
    total_num_attempts: int = -1,
) -> tuple[Array, ...]:
    """Choose a random window of an image by the overlap with its bounding boxes, and transform the boxes.

    Results are the anchor and the shape of the window, by (x, y) or (x, y, z), for ``fn.slice``; the boxes that are kept, as
    fractions of the window; their labels, if labels are given; and their indices, with `output_bbox_indices`. Anchor and
    shape are fractions of the image. With `crop_shape` they are in pixels, as floats: pass ``normalized_anchor=False`` and
    ``normalized_shape=False`` to ``fn.slice``.

    Args:
        boxes: float32 of shape (N, 4), or (N, 6) for volumes, as fractions of the image.
        labels: integers of shape (N,) or (N, 1).
        all_boxes_above_threshold: whether all boxes must reach the threshold, not only one.
        allow_no_crop: whether the whole image is one of the possible results, as if it were one more threshold.
        aspect_ratio: minimum and maximum of x / y; for volumes also of x / z and of y / z. Without `input_shape`, relative
            to the image.
        bbox_layout: order of the coordinates, such as "xyXY" (starts and ends) or "xyWH" (starts and extents). Default:
            "xyXY" or "xyzXYZ".
        bbox_prune_threshold: smallest part of a box inside the window that is kept. Default: boxes with their center in the
            window are kept.
        crop_shape: size of the window in pixels, in the order of `shape_layout`. Needs `input_shape`.
        input_shape: shape of the image, in the order of `shape_layout`.
        ltrb: deprecated; True for "xyXY", False for "xyWH".
        num_attempts: number of windows to try with a threshold, before another one is drawn.
        output_bbox_indices: whether to return the indices of the kept boxes.
        scaling: minimum and maximum extent of the window, relative to the image.
        shape_layout: order of `crop_shape` and `input_shape`. Default: "WH" or "WHD".
        threshold_type: "iou": intersection over union of box and window; "overlap": part of the box inside the window.
        thresholds: minimum overlaps; one of them is drawn.
        total_num_attempts: number of windows to try, before the best of them is taken. Default: no limit. If no window can
            satisfy the conditions, the operator then never returns.
    """
    check_rows(boxes, 4, 6)
    check_labels(labels, len(boxes))
    rank = boxes.shape[1] // 2
    starts, ends, are_extents = parse_layout(bbox_layout or "xyz"[:rank] + ("XYZ" if ltrb else "WHD")[:rank], rank)
    low, high = boxes[:, starts].astype(np.float64), boxes[:, ends].astype(np.float64)
    given = _Boxes.of(low, low + high if are_extents else high)
    _check_inside(given)
    search = _Search(
        thresholds=[*thresholds, *([None] if allow_no_crop and crop_shape is None else [])],
        measure=threshold_type,
        every=all_boxes_above_threshold,
        prune_threshold=bbox_prune_threshold,
        attempts_per_threshold=num_attempts,
        total_attempts=total_num_attempts,
    )
    image = np.ones(rank) if input_shape is None else _by_axis("input_shape", input_shape, shape_layout, rank)
    if crop_shape is None:
        window = search.run(call.rng(), given, _Shapes(scaling, _pairs(aspect_ratio, rank), image.tolist()).draw)
        place = window
    else:
        size = _by_axis("crop_shape", crop_shape, shape_layout, rank)
        window = search.run(call.rng(), given, lambda rng: _placed(rng, size, image))
        place = _CropWindow(*(tuple(np.rint(corner * image).tolist()) for corner in map(np.array, window)))
    kept = np.flatnonzero(search.kept(given, window))
    seen = given.seen_from(window, kept)
    out = np.empty((len(kept), 2 * rank), np.float32)
    out[:, starts] = seen[0]
    out[:, ends] = seen[1] - seen[0] if are_extents else seen[1]
    extents = [end - begin for begin, end in zip(*place, strict=True)]
    results = [np.array(place.low, np.float32), np.array(extents, np.float32), out]
    results += [] if labels is None else [labels[kept]]
    results += [kept.astype(np.int32)] if output_bbox_indices else []
    return tuple(results)


def _check_inside(boxes: _Boxes) -> None:
    corners = np.concatenate((boxes.low, boxes.high))
    if corners.size and (np.minimum.reduce(corners, None) < -_ROUNDING or np.maximum.reduce(corners, None) > 1 + _ROUNDING):
        raise SampleError("boxes must be fractions of the image, from 0 to 1; divide pixels by the size of the image")


def _by_axis(name: str, shape: Ints, layout: str | None, rank: int) -> Floats64:
    """Return a shape by (x, y, z)."""
    letters = layout or "WHD"[:rank]
    if sorted(letters) != sorted("WHD"[:rank]):
        raise ArgumentError(
            f"shape_layout={layout!r} must have the letters {'WHD'[:rank]!r}, for boxes of {2 * rank} coordinates"
        )
    if len(shape) != rank:
        raise ArgumentError(f"{name} must have {rank} elements, not {len(shape)}")
    return np.array([shape[letters.index(letter)] for letter in "WHD"[:rank]], np.float64)


class _Pair(NamedTuple):
    """Allowed ratio of the extents in two axes."""

    first: int
    second: int
    least: float
    most: float


def _pairs(aspect_ratio: Floats, rank: int) -> list[_Pair]:
    """Return the allowed ratios of all pairs of axes; a single range is for each of them."""
    bounds = list(zip(aspect_ratio[::2], aspect_ratio[1::2], strict=True))
    axes = [(first, second) for first in range(rank) for second in range(first + 1, rank)]
    return [_Pair(*pair, *bounds[i % len(bounds)]) for i, pair in enumerate(axes)]


@dataclass(frozen=True)
class _Shapes:
    """Windows of random shape at random places.

    Attributes:
        scaling: minimum and maximum extent, relative to the image.
        pairs: allowed aspect ratios.
        image: shape of the image, to which the aspect ratios refer.
    """

    scaling: Floats
    pairs: Sequence[_Pair]
    image: Sequence[float]

    def draw(self, rng: np.random.Generator) -> _CropWindow | None:
        """Return a window; None if its aspect ratio is not allowed.

        Numbers are computed as by `numpy.random.Generator.uniform`, in a tenth of the time.
        """
        random, (least_scale, most_scale) = rng.random, self.scaling
        drawn = [(least_scale + (most_scale - least_scale) * random()) * whole for whole in self.image]
        extents = self._with_fixed_ratios(rng, drawn)
        for first, second, least, most in self.pairs:
            if least < most and not least <= extents[first] / extents[second] <= most:
                return None
        shape = [extent / whole for extent, whole in zip(extents, self.image, strict=True)]
        lows, highs = [], []
        for extent in shape:
            slack = 1 - extent
            low = min(slack, 0.0) + abs(slack) * random()
            lows.append(low)
            highs.append(low + extent)
        return _CropWindow(tuple(lows), tuple(highs))

    def _with_fixed_ratios(self, rng: np.random.Generator, extents: list[float]) -> list[float]:
        """Return extents with the ratios that have only one allowed value; the largest extent stays the same."""
        fixed = {(pair.first, pair.second): pair.least for pair in self.pairs if pair.least == pair.most}
        if not fixed:
            return extents
        fixed |= {(second, first): 1 / ratio for (first, second), ratio in fixed.items()}
        changed = extents.copy()
        order = rng.permutation(len(extents)).tolist()
        for i, one in enumerate(order):
            for other in order[i + 1 :]:
                if (one, other) in fixed:
                    changed[one] = changed[other] * fixed[one, other]
        factor = max(extents) / max(changed)
        return [extent * factor for extent in changed]


def _placed(rng: np.random.Generator, size: Floats64, image: Floats64) -> _CropWindow:
    """Return a window of a size in pixels, at a random pixel."""
    slack = (image - size).astype(int)
    low = rng.integers(np.minimum(slack, 0), np.maximum(slack, 0), endpoint=True)
    low, high = ((corner / image).astype(np.float32).astype(np.float64) for corner in (low, low + size))
    return _CropWindow(tuple(low.tolist()), tuple(high.tolist()))


# ssd_random_crop

#: Minimum overlaps, one of which is drawn; None: the whole image.
_SSD_THRESHOLDS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, None)


def _warn_deprecated(_: Mapping[str, Any]) -> None:
    warn_deprecated("fn.ssd_random_crop", "fn.random_bbox_crop and fn.slice")


@operator(
    layouts="HWC",
    random=True,
    num_outputs=3,
    output_layout=lambda layout, _: (layout, "", ""),
    check=_warn_deprecated,
)
def ssd_random_crop(
    call: OperatorCall,
    image: Array,
    boxes: Array,
    labels: Array,
    *,
    num_attempts: Annotated[int, at_least(1)] = 1,
) -> tuple[Array, Array, Array]:
    """Cut a random window out of an image by the overlap with its bounding boxes. Deprecated: use ``fn.random_bbox_crop``.

    Results are the window, the boxes with their center in it, as fractions of the window, and their labels. The intersection
    over union of the window with each box is at least 0, 0.1, 0.3, 0.5, 0.7 or 0.9; one of these is drawn, or the whole
    image. Sides of the window are 0.3 to 1 of the image's.

    Args:
        image: any dtype.
        boxes: float32 of shape (N, 4), as (left, top, right, bottom), fractions of the image.
        labels: integers of shape (N,) or (N, 1).
        num_attempts: number of windows to try with a threshold, before another one is drawn.
    """
    check_rows(boxes, 4)
    check_labels(labels, len(boxes))
    given = _Boxes.of(boxes[:, :2].astype(np.float64), boxes[:, 2:].astype(np.float64))
    search = _Search(
        thresholds=_SSD_THRESHOLDS,
        measure="iou",
        every=True,
        prune_threshold=None,
        attempts_per_threshold=num_attempts,
        total_attempts=-1,
    )
    shapes = _Shapes((0.3, 1.0), _pairs((0.5, 2.0), 2), (1.0, 1.0))
    window = search.run(call.rng(), given, shapes.draw)
    if not any(window.low) and window.high == (1, 1):
        return image, boxes, labels
    height, width = image.shape[:2]
    left, top, right, bottom = (
        round_half_up(part * extent) for corner in window for part, extent in zip(corner, (width, height), strict=True)
    )
    kept = np.flatnonzero(search.kept(given, window))
    seen = np.hstack(given.seen_from(window, kept)).astype(np.float32)
    return image[top:bottom, left:right], seen, labels[kept]


# roi_random_crop


def _check_roi(given: Mapping[str, Any]) -> None:
    if ("roi_end" in given) == ("roi_shape" in given):
        raise ArgumentClashError("pass one of roi_end and roi_shape")
    if "data" in given and "in_shape" in given:
        raise ArgumentClashError("in_shape and the input data exclude each other")


@operator(
    random=True, output_layout="", check=_check_roi, kernel="arrays.array_kernels.roi_random_crop", kernel_for_large=True
)
def roi_random_crop(
    call: OperatorCall,
    data: Array | None = None,
    *,
    crop_shape: PerSample[Annotated[Ints, at_least(0)]],
    roi_start: PerSample[Ints],
    roi_end: PerSample[Ints] | None = None,
    roi_shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    in_shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
) -> Array:
    """Choose the start of a random window of fixed size that contains as much as possible of a region of interest.

    A window larger than the region contains it; a smaller one lies inside it. The result is an int64 array with the start of
    the window in each axis, for ``fn.slice``.

    Args:
        data: the window stays inside the bounds of this input; its values are ignored.
        crop_shape: size of the window.
        roi_start: start of the region.
        roi_end: end of the region.
        roi_shape: size of the region, instead of its end.
        in_shape: shape of the data, instead of `data`. Without both, the window may reach beyond the data.
    """
    rank = len(crop_shape)
    start = for_each_axis("roi_start", roi_start, rank)
    if roi_end is not None:
        end: Sequence[int] = for_each_axis("roi_end", roi_end, rank)
    else:
        end = [*map(sum, zip(start, for_each_axis("roi_shape", roi_shape or (), rank), strict=True))]
    least = [min(first, last - extent) for first, last, extent in zip(start, end, crop_shape, strict=True)]
    most = [max(first, last - extent) for first, last, extent in zip(start, end, crop_shape, strict=True)]
    if (bounds := in_shape if data is None else data.shape) is not None:
        limits = for_each_axis("in_shape", bounds, rank)
        if any(map(operator_module.gt, crop_shape, limits)):
            raise SampleError(f"crop_shape={crop_shape} is larger than the input of shape {tuple(bounds)}")
        if min(start, default=0) < 0 or any(map(operator_module.gt, end, limits)):
            raise SampleError(
                f"the region from {list(start)} to {list(end)} is not inside the input of shape {tuple(bounds)}"
            )
        least = [max(number, 0) for number in least]
        most = [min(number, limit - extent) for number, limit, extent in zip(most, limits, crop_shape, strict=True)]
    rng = call.rng()
    # The numbers of one call for all axes; that would take longer.
    return np.array([rng.integers(*bounds, endpoint=True) for bounds in zip(least, most, strict=True)], np.int64)
