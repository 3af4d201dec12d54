"""``nvidia.dali.fn.segmentation``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType

_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def random_mask_pixel(
    mask: DataNode | _Constant,
    /,
    *,
    foreground: int | DataNode = 0,
    threshold: float | DataNode = 0.0,
    value: int | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Draw the position of a pixel of a mask, each with the same probability.

    The result is an int64 array with the position in each axis.

    Args:
        mask: any dtype and number of dimensions.
        foreground: whether to draw from foreground pixels only. If there are none, all pixels are drawn from.
        threshold: pixels with a greater value are foreground.
        value: pixels with this value are foreground, instead.
    """

@overload
def random_mask_pixel(
    mask: _Sequence[DataNode],
    /,
    *,
    foreground: int | DataNode = 0,
    threshold: float | DataNode = 0.0,
    value: int | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def select_masks(
    mask_ids: DataNode | _Constant,
    polygons: DataNode | _Constant,
    vertices: DataNode | _Constant,
    /,
    *,
    reindex_masks: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    """Select the polygons of some masks, in the format of ``fn.readers.coco``.

    Results are the polygons of the masks, in the order of `mask_ids`, and their vertices.

    Args:
        mask_ids: integers, each only once.
        polygons: integers of shape (N, 3): number of the mask, index of the first vertex, index behind the last vertex. A
            mask may have several polygons.
        vertices: coordinates, of shape (M, any).
        reindex_masks: whether to number the masks by their positions in `mask_ids`.
    """

@overload
def select_masks(
    mask_ids: _Sequence[DataNode],
    polygons: _Sequence[DataNode] | _Constant,
    vertices: _Sequence[DataNode] | _Constant,
    /,
    *,
    reindex_masks: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[list[DataNode]]:
    ...

@overload
def random_object_bbox(
    mask: DataNode | _Constant,
    /,
    *,
    background: int | DataNode | None = None,
    class_weights: _Floats | DataNode | None = None,
    classes: _Ints | DataNode | None = None,
    foreground_prob: float | DataNode = 1.0,
    format: Literal["anchor_shape", "start_end", "box"] = "anchor_shape",
    ignore_class: bool = False,
    k_largest: int | None = None,
    output_class: Literal[True],
    threshold: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    cache_objects: Any = False,
) -> list[DataNode]:
    ...

@overload
def random_object_bbox(
    mask: _Sequence[DataNode],
    /,
    *,
    background: int | DataNode | None = None,
    class_weights: _Floats | DataNode | None = None,
    classes: _Ints | DataNode | None = None,
    foreground_prob: float | DataNode = 1.0,
    format: Literal["anchor_shape", "start_end", "box"] = "anchor_shape",
    ignore_class: bool = False,
    k_largest: int | None = None,
    output_class: Literal[True],
    threshold: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    cache_objects: Any = False,
) -> list[list[DataNode]]:
    ...

@overload
def random_object_bbox(
    mask: DataNode | _Constant,
    /,
    *,
    background: int | DataNode | None = None,
    class_weights: _Floats | DataNode | None = None,
    classes: _Ints | DataNode | None = None,
    foreground_prob: float | DataNode = 1.0,
    format: Literal["anchor_shape", "start_end", "box"] = "anchor_shape",
    ignore_class: bool = False,
    k_largest: int | None = None,
    output_class: Literal[False] = False,
    threshold: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    cache_objects: Any = False,
) -> DataNode:
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

@overload
def random_object_bbox(
    mask: _Sequence[DataNode],
    /,
    *,
    background: int | DataNode | None = None,
    class_weights: _Floats | DataNode | None = None,
    classes: _Ints | DataNode | None = None,
    foreground_prob: float | DataNode = 1.0,
    format: Literal["anchor_shape", "start_end", "box"] = "anchor_shape",
    ignore_class: bool = False,
    k_largest: int | None = None,
    output_class: Literal[False] = False,
    threshold: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    cache_objects: Any = False,
) -> list[DataNode]:
    ...
