"""``nvidia.dali.ops``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
from dali_like.ops import decoders as decoders
from dali_like.ops import experimental as experimental
from dali_like.ops import io as io
from dali_like.ops import random as random
from dali_like.ops import readers as readers
from dali_like.ops import reductions as reductions
from dali_like.ops import segmentation as segmentation
from dali_like.ops._compose import Compose as Compose
from dali_like.ops._external_source import ExternalSource as ExternalSource
from dali_like.ops._registry import cpu_ops as cpu_ops
from dali_like.ops._registry import gpu_ops as gpu_ops
from dali_like.ops._registry import mixed_ops as mixed_ops

_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

class Cast:
    """Convert arrays to another type.

    Numbers outside the type's range become its minimum or maximum; fractions are rounded, halves away from zero.

    Args:
        input: any dtype.
        dtype: data type of the result.
    """
    def __init__(
        self,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class CastLike:
    """Convert arrays to the type of another input.

    Args:
        input_0: any dtype.
        input_1: gives the data type; its values and shape are ignored.
    """
    def __init__(
        self,
        *,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input_0: DataNode | _Constant,
        input_1: DataNode | _Constant,
        /,
        *,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input_0: _Sequence[DataNode],
        input_1: _Sequence[DataNode] | _Constant,
        /,
        *,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Copy:
    """Copy the input.

    Args:
        input: any dtype.
    """
    def __init__(
        self,
        *,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Shapes:
    """Return the shape of each sample as a one-dimensional array; see also `DataNode.shape`.

    Args:
        input: any dtype.
        dtype: data type of the result.
    """
    def __init__(
        self,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Stack:
    """Stack arrays of the same shape along a new dimension.

    Args:
        inputs: arrays of one type.
        axis: index of the new dimension in the result; negative values count from the end.
        axis_name: its letter in the layout. Default: the result has no layout.
    """
    def __init__(
        self,
        *,
        axis: int = ...,
        axis_name: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *inputs: DataNode | _Fixed | float,
        axis: int = ...,
        axis_name: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        *inputs: _Sequence[DataNode],
        axis: int = ...,
        axis_name: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Cat:
    """Join arrays along an existing dimension.

    Args:
        inputs: arrays of one type, and of the same shape except for that dimension.
        axis: index of the dimension; negative values count from the end.
        axis_name: its letter in the layout of the first input.
    """
    def __init__(
        self,
        *,
        axis: int = ...,
        axis_name: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *inputs: DataNode | _Fixed | float,
        axis: int = ...,
        axis_name: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        *inputs: _Sequence[DataNode],
        axis: int = ...,
        axis_name: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class OneHot:
    """Convert class indices to one-hot vectors.

    Args:
        input: integers.
        num_classes: length of the vectors.
        axis: dimension of the vectors in the result; -1: the last one. Default: likewise the last one, but a one-element
            array counts as a scalar, so the result is a vector.
        axis_name: its letter in the layout. Default: the result has no layout.
        dtype: data type of the result.
        on_value: value at the index of the class.
        off_value: value elsewhere, and everywhere if the class does not exist.
    """
    def __init__(
        self,
        *,
        num_classes: int = ...,
        axis: int | None = ...,
        axis_name: str | None = ...,
        dtype: _DataType = ...,
        on_value: float = ...,
        off_value: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        num_classes: int = ...,
        axis: int | None = ...,
        axis_name: str | None = ...,
        dtype: _DataType = ...,
        on_value: float = ...,
        off_value: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        num_classes: int = ...,
        axis: int | None = ...,
        axis_name: str | None = ...,
        dtype: _DataType = ...,
        on_value: float = ...,
        off_value: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class LookupTable:
    """Replace integers by values from a table.

    Args:
        input: integers.
        keys: integers from 0 to 65535 that have a value. The last of repeated keys counts.
        values: value for each key.
        default_value: value for all other integers.
        dtype: data type of the result.
    """
    def __init__(
        self,
        *,
        keys: _Ints = ...,
        values: _Floats = ...,
        default_value: float = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        keys: _Ints = ...,
        values: _Floats = ...,
        default_value: float = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        keys: _Ints = ...,
        values: _Floats = ...,
        default_value: float = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Constant:
    """Return the same array for every sample; see also `dali_like.types.Constant`.

    Args:
        fdata: the elements, as floating-point numbers.
        idata: the elements, as integers.
        shape: shape of the array; a single element fills it. Default: one dimension.
        dtype: data type of the array. Default: FLOAT or INT32.
        layout: one letter for each dimension.
    """
    def __init__(
        self,
        *,
        fdata: _Floats | None = ...,
        idata: _Ints | None = ...,
        shape: _Ints | None = ...,
        dtype: _DataType | None = ...,
        layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        fdata: _Floats | None = ...,
        idata: _Ints | None = ...,
        shape: _Ints | None = ...,
        dtype: _DataType | None = ...,
        layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    

class RandomBBoxCrop:
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
    def __init__(
        self,
        *,
        all_boxes_above_threshold: bool = ...,
        allow_no_crop: bool = ...,
        aspect_ratio: _Floats = ...,
        bbox_layout: str | None = ...,
        bbox_prune_threshold: float | None = ...,
        crop_shape: _Ints | DataNode | None = ...,
        input_shape: _Ints | DataNode | None = ...,
        ltrb: bool = ...,
        num_attempts: int = ...,
        output_bbox_indices: bool = ...,
        scaling: _Floats = ...,
        shape_layout: str | None = ...,
        threshold_type: Literal["iou", "overlap"] = ...,
        thresholds: _Floats = ...,
        total_num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        boxes: DataNode | _Constant,
        labels: DataNode | _Constant | None = None,
        /,
        *,
        all_boxes_above_threshold: bool = ...,
        allow_no_crop: bool = ...,
        aspect_ratio: _Floats = ...,
        bbox_layout: str | None = ...,
        bbox_prune_threshold: float | None = ...,
        crop_shape: _Ints | DataNode | None = ...,
        input_shape: _Ints | DataNode | None = ...,
        ltrb: bool = ...,
        num_attempts: int = ...,
        output_bbox_indices: Literal[True],
        scaling: _Floats = ...,
        shape_layout: str | None = ...,
        threshold_type: Literal["iou", "overlap"] = ...,
        thresholds: _Floats = ...,
        total_num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
    @overload
    def __call__(
        self,
        boxes: _Sequence[DataNode],
        labels: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        all_boxes_above_threshold: bool = ...,
        allow_no_crop: bool = ...,
        aspect_ratio: _Floats = ...,
        bbox_layout: str | None = ...,
        bbox_prune_threshold: float | None = ...,
        crop_shape: _Ints | DataNode | None = ...,
        input_shape: _Ints | DataNode | None = ...,
        ltrb: bool = ...,
        num_attempts: int = ...,
        output_bbox_indices: Literal[True],
        scaling: _Floats = ...,
        shape_layout: str | None = ...,
        threshold_type: Literal["iou", "overlap"] = ...,
        thresholds: _Floats = ...,
        total_num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[list[DataNode]]:
        ...
    
    @overload
    def __call__(
        self,
        boxes: DataNode | _Constant,
        labels: DataNode | _Constant | None = None,
        /,
        *,
        all_boxes_above_threshold: bool = ...,
        allow_no_crop: bool = ...,
        aspect_ratio: _Floats = ...,
        bbox_layout: str | None = ...,
        bbox_prune_threshold: float | None = ...,
        crop_shape: _Ints | DataNode | None = ...,
        input_shape: _Ints | DataNode | None = ...,
        ltrb: bool = ...,
        num_attempts: int = ...,
        output_bbox_indices: Literal[False] = ...,
        scaling: _Floats = ...,
        shape_layout: str | None = ...,
        threshold_type: Literal["iou", "overlap"] = ...,
        thresholds: _Floats = ...,
        total_num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        boxes: _Sequence[DataNode],
        labels: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        all_boxes_above_threshold: bool = ...,
        allow_no_crop: bool = ...,
        aspect_ratio: _Floats = ...,
        bbox_layout: str | None = ...,
        bbox_prune_threshold: float | None = ...,
        crop_shape: _Ints | DataNode | None = ...,
        input_shape: _Ints | DataNode | None = ...,
        ltrb: bool = ...,
        num_attempts: int = ...,
        output_bbox_indices: Literal[False] = ...,
        scaling: _Floats = ...,
        shape_layout: str | None = ...,
        threshold_type: Literal["iou", "overlap"] = ...,
        thresholds: _Floats = ...,
        total_num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class SSDRandomCrop:
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
    def __init__(
        self,
        *,
        num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        boxes: DataNode | _Constant,
        labels: DataNode | _Constant,
        /,
        *,
        num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        boxes: _Sequence[DataNode] | _Constant,
        labels: _Sequence[DataNode] | _Constant,
        /,
        *,
        num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[list[DataNode]]:
        ...
    

class ROIRandomCrop:
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
    def __init__(
        self,
        *,
        crop_shape: _Ints | DataNode = ...,
        roi_start: _Ints | DataNode = ...,
        roi_end: _Ints | DataNode | None = ...,
        roi_shape: _Ints | DataNode | None = ...,
        in_shape: _Ints | DataNode | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant | None = None,
        /,
        *,
        crop_shape: _Ints | DataNode = ...,
        roi_start: _Ints | DataNode = ...,
        roi_end: _Ints | DataNode | None = ...,
        roi_shape: _Ints | DataNode | None = ...,
        in_shape: _Ints | DataNode | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        crop_shape: _Ints | DataNode = ...,
        roi_start: _Ints | DataNode = ...,
        roi_end: _Ints | DataNode | None = ...,
        roi_shape: _Ints | DataNode | None = ...,
        in_shape: _Ints | DataNode | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class WarpAffine:
    """Apply affine transforms to images and volumes.

    Args:
        image: any dtype.
        matrix_input: the transform as a 2x3 matrix of floats, or 3x4 for volumes, instead of `matrix`.
        matrix: rows of the transform of (x, y), or (x, y, z), in pixels; the center of the first pixel is (0.5, 0.5).
        inverse_map: whether the transform maps the result to the image; otherwise it is inverted.
        size: size of the result, as (height, width) or (depth, height, width). Default: that of the image.
        fill_value: value outside the image. Default: the nearest edge pixel.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or the type of the input, which is the default.
    """
    def __init__(
        self,
        *,
        matrix: _Floats | DataNode | None = ...,
        inverse_map: bool = ...,
        size: _Floats | DataNode | None = ...,
        fill_value: float | None = ...,
        interp_type: DALIInterpType = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        matrix_input: DataNode | _Constant | None = None,
        /,
        *,
        matrix: _Floats | DataNode | None = ...,
        inverse_map: bool = ...,
        size: _Floats | DataNode | None = ...,
        fill_value: float | None = ...,
        interp_type: DALIInterpType = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        matrix_input: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        matrix: _Floats | DataNode | None = ...,
        inverse_map: bool = ...,
        size: _Floats | DataNode | None = ...,
        fill_value: float | None = ...,
        interp_type: DALIInterpType = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Rotate:
    """Rotate images and volumes about their center.

    Args:
        image: any dtype.
        angle: in degrees, counter-clockwise.
        axis: axis of rotation (x, y, z), for volumes.
        size: size of the result, as (height, width) or (depth, height, width). Default: large enough for the whole image.
        keep_size: whether to keep the size of the image, if `size` is not given.
        fill_value: value outside the image. Default: the nearest edge pixel.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or the type of the input, which is the default.
    """
    def __init__(
        self,
        *,
        angle: float | DataNode = ...,
        axis: _Floats | DataNode | None = ...,
        size: _Floats | DataNode | None = ...,
        keep_size: bool = ...,
        fill_value: float | None = ...,
        interp_type: DALIInterpType = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        angle: float | DataNode = ...,
        axis: _Floats | DataNode | None = ...,
        size: _Floats | DataNode | None = ...,
        keep_size: bool = ...,
        fill_value: float | None = ...,
        interp_type: DALIInterpType = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        angle: float | DataNode = ...,
        axis: _Floats | DataNode | None = ...,
        size: _Floats | DataNode | None = ...,
        keep_size: bool = ...,
        fill_value: float | None = ...,
        interp_type: DALIInterpType = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class BbFlip:
    """Mirror bounding boxes, as ``fn.flip`` mirrors their image.

    Args:
        boxes: float32, four numbers for each box, as fractions of the image.
        horizontal: whether to exchange left and right.
        vertical: whether to exchange top and bottom.
        ltrb: whether boxes are (left, top, right, bottom), not (left, top, width, height).
    """
    def __init__(
        self,
        *,
        horizontal: int | DataNode = ...,
        vertical: int | DataNode = ...,
        ltrb: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        boxes: DataNode | _Constant,
        /,
        *,
        horizontal: int | DataNode = ...,
        vertical: int | DataNode = ...,
        ltrb: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        boxes: _Sequence[DataNode],
        /,
        *,
        horizontal: int | DataNode = ...,
        vertical: int | DataNode = ...,
        ltrb: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class BBoxPaste:
    """Move bounding boxes to where ``fn.paste`` pastes their image on a larger canvas.

    Args:
        boxes: float32, four numbers for each box, as fractions of the image.
        ratio: size of the canvas, relative to the image.
        paste_x: position of the image on the canvas, from 0 (left) to 1 (right).
        paste_y: the same, from top to bottom.
        ltrb: whether boxes are (left, top, right, bottom), not (left, top, width, height).
    """
    def __init__(
        self,
        *,
        ratio: float | DataNode = ...,
        paste_x: float | DataNode = ...,
        paste_y: float | DataNode = ...,
        ltrb: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        boxes: DataNode | _Constant,
        /,
        *,
        ratio: float | DataNode = ...,
        paste_x: float | DataNode = ...,
        paste_y: float | DataNode = ...,
        ltrb: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        boxes: _Sequence[DataNode],
        /,
        *,
        ratio: float | DataNode = ...,
        paste_x: float | DataNode = ...,
        paste_y: float | DataNode = ...,
        ltrb: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class BBoxRotate:
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
    def __init__(
        self,
        *,
        angle: float | DataNode = ...,
        input_shape: _Ints | DataNode = ...,
        bbox_layout: str = ...,
        bbox_normalized: bool = ...,
        keep_size: bool = ...,
        mode: Literal["expand", "fixed", "halfway"] = ...,
        remove_threshold: float = ...,
        shape_layout: str = ...,
        size: _Floats | DataNode | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        boxes: DataNode | _Constant,
        labels: DataNode | _Constant | None = None,
        /,
        *,
        angle: float | DataNode = ...,
        input_shape: _Ints | DataNode = ...,
        bbox_layout: str = ...,
        bbox_normalized: bool = ...,
        keep_size: bool = ...,
        mode: Literal["expand", "fixed", "halfway"] = ...,
        remove_threshold: float = ...,
        shape_layout: str = ...,
        size: _Floats | DataNode | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> Any:
        ...
    
    @overload
    def __call__(
        self,
        boxes: _Sequence[DataNode],
        labels: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        angle: float | DataNode = ...,
        input_shape: _Ints | DataNode = ...,
        bbox_layout: str = ...,
        bbox_normalized: bool = ...,
        keep_size: bool = ...,
        mode: Literal["expand", "fixed", "halfway"] = ...,
        remove_threshold: float = ...,
        shape_layout: str = ...,
        size: _Floats | DataNode | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[Any]:
        ...
    

class BoxEncoder:
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
    def __init__(
        self,
        *,
        anchors: _Floats = ...,
        criteria: float = ...,
        offset: bool = ...,
        means: _Floats = ...,
        stds: _Floats = ...,
        scale: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        boxes: DataNode | _Constant,
        labels: DataNode | _Constant,
        /,
        *,
        anchors: _Floats = ...,
        criteria: float = ...,
        offset: bool = ...,
        means: _Floats = ...,
        stds: _Floats = ...,
        scale: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
    @overload
    def __call__(
        self,
        boxes: _Sequence[DataNode],
        labels: _Sequence[DataNode] | _Constant,
        /,
        *,
        anchors: _Floats = ...,
        criteria: float = ...,
        offset: bool = ...,
        means: _Floats = ...,
        stds: _Floats = ...,
        scale: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[list[DataNode]]:
        ...
    

class BrightnessContrast:
    """Make images brighter or darker, and their contrast higher or lower.

    ``out = brightness_shift * range + brightness * (contrast_center + contrast * (in - contrast_center))``, where the range
    is the largest number of the result's dtype, or 1 for floats.

    Args:
        image: any dtype and number of channels.
        brightness: factor for the brightness.
        brightness_shift: summand; 1 is the whole range.
        contrast: factor for the contrast; 0 makes everything gray.
        contrast_center: value that stays unchanged at any contrast. Default: half of the range of the image's dtype.
        dtype: data type of the result. Default: that of the image.
    """
    def __init__(
        self,
        *,
        brightness: float | DataNode = ...,
        brightness_shift: float | DataNode = ...,
        contrast: float | DataNode = ...,
        contrast_center: float | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        brightness: float | DataNode = ...,
        brightness_shift: float | DataNode = ...,
        contrast: float | DataNode = ...,
        contrast_center: float | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        brightness: float | DataNode = ...,
        brightness_shift: float | DataNode = ...,
        contrast: float | DataNode = ...,
        contrast_center: float | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Brightness:
    """Make images brighter or darker: ``out = brightness_shift * range + brightness * in``.

    Args:
        image: any dtype and number of channels.
        brightness: factor for the brightness.
        brightness_shift: summand; 1 is the largest number of the result's dtype, or 1 for floats.
        dtype: data type of the result. Default: that of the image.
    """
    def __init__(
        self,
        *,
        brightness: float | DataNode = ...,
        brightness_shift: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        brightness: float | DataNode = ...,
        brightness_shift: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        brightness: float | DataNode = ...,
        brightness_shift: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Contrast:
    """Make the contrast of images higher or lower: ``out = contrast_center + contrast * (in - contrast_center)``.

    Args:
        image: any dtype and number of channels.
        contrast: factor for the contrast; 0 makes everything gray.
        contrast_center: value that stays unchanged at any contrast. Default: half of the range of the image's dtype.
        dtype: data type of the result. Default: that of the image.
    """
    def __init__(
        self,
        *,
        contrast: float | DataNode = ...,
        contrast_center: float | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        contrast: float | DataNode = ...,
        contrast_center: float | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        contrast: float | DataNode = ...,
        contrast_center: float | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Hsv:
    """Change hue, saturation and value of RGB images, by a linear transformation of colors.

    Args:
        image: any dtype, three channels.
        hue: change of the hue, in degrees.
        saturation: factor for the saturation; 0 makes an image gray.
        value: factor for the brightness.
        dtype: data type of the result. Default: UINT8.
    """
    def __init__(
        self,
        *,
        hue: float | DataNode = ...,
        saturation: float | DataNode = ...,
        value: float | DataNode = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        hue: float | DataNode = ...,
        saturation: float | DataNode = ...,
        value: float | DataNode = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        hue: float | DataNode = ...,
        saturation: float | DataNode = ...,
        value: float | DataNode = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Hue:
    """Change the hue of RGB images.

    Args:
        image: any dtype, three channels.
        hue: change of the hue, in degrees.
        dtype: data type of the result. Default: that of the image.
    """
    def __init__(
        self,
        *,
        hue: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        hue: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        hue: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Saturation:
    """Change the saturation of RGB images.

    Args:
        image: any dtype, three channels.
        saturation: factor for the saturation; 0 makes an image gray.
        dtype: data type of the result. Default: that of the image.
    """
    def __init__(
        self,
        *,
        saturation: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        saturation: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        saturation: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class ColorTwist:
    """Change brightness, contrast, hue and saturation of RGB images.

    Args:
        image: any dtype, three channels.
        brightness: factor for the brightness.
        contrast: factor for the contrast, around 128 (0.5 for floats); 0 makes everything gray.
        hue: change of the hue, in degrees.
        saturation: factor for the saturation; 0 makes an image gray.
        dtype: data type of the result. Default: that of the image.
    """
    def __init__(
        self,
        *,
        brightness: float | DataNode = ...,
        contrast: float | DataNode = ...,
        hue: float | DataNode = ...,
        saturation: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        brightness: float | DataNode = ...,
        contrast: float | DataNode = ...,
        hue: float | DataNode = ...,
        saturation: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        brightness: float | DataNode = ...,
        contrast: float | DataNode = ...,
        hue: float | DataNode = ...,
        saturation: float | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class ColorSpaceConversion:
    """Convert images from one color model to another.

    Args:
        image: uint8, with one channel for GRAY, otherwise three.
        image_type: color model of the image: RGB, BGR, GRAY or YCbCr.
        output_type: color model of the result, different from `image_type`.
    """
    def __init__(
        self,
        *,
        image_type: DALIImageType = ...,
        output_type: DALIImageType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        image_type: DALIImageType = ...,
        output_type: DALIImageType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        image_type: DALIImageType = ...,
        output_type: DALIImageType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Flip:
    """Mirror images and volumes.

    Args:
        image: any dtype.
        horizontal: whether to exchange left and right.
        vertical: whether to exchange top and bottom.
        depthwise: whether to exchange front and back.
    """
    def __init__(
        self,
        *,
        horizontal: int | DataNode = ...,
        vertical: int | DataNode = ...,
        depthwise: int | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        horizontal: int | DataNode = ...,
        vertical: int | DataNode = ...,
        depthwise: int | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        horizontal: int | DataNode = ...,
        vertical: int | DataNode = ...,
        depthwise: int | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Crop:
    """Cut windows out of images and volumes.

    Args:
        image: any dtype.
        crop: size of the window, as (height, width) or (depth, height, width); 0 for the whole axis. The depth applies to
            volumes, or to the frames of sequences of images. Without it, the window has all of them.
        crop_w: width of the window, if `crop` is not given.
        crop_h: height of the window.
        crop_d: depth of the window.
        crop_pos_x: position of the window, from 0 (left edge) to 1 (right edge).
        crop_pos_y: the same, from top to bottom.
        crop_pos_z: the same, from front to back.
        rounding: how positions between pixels are rounded: "round" or "truncate".
        out_of_bounds_policy: treatment of a window larger than the image: "error", "pad" with `fill_values`, or
            "trim_to_shape".
        fill_values: one for all channels, or one for each.
        dtype: data type of the result. Default: that of the input.
    """
    def __init__(
        self,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Slice:
    """Cut windows out of arrays, given by start and end.

    The inputs `anchor` and `shape_input` give the window, or arguments do: its start, and its end or size. Arguments are in
    elements, or with ``rel_`` in fractions of the extent. Each has one number for all axes, or one for each.

    Args:
        data: any number of dimensions.
        anchor: start of the window in each of the axes.
        shape_input: size of the window.
        axes: axes to cut. Default: 1 and 0, for data without a layout.
        axis_names: the same as letters of the layout. Default: "WH".
        start, rel_start: start of the window. Default: the beginning.
        end, rel_end: end of the window. Default: the end.
        shape, rel_shape: size of the window, instead of its end.
        normalized_anchor: whether a floating-point `anchor` is a fraction of the extent.
        normalized_shape: the same for `shape_input`.
        out_of_bounds_policy: treatment of a window that lies partly outside: "error", "pad" with `fill_values`, or
            "trim_to_shape".
        fill_values: one for all channels, or one for each.
        dtype: data type of the result. Default: that of the input.
    """
    def __init__(
        self,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        start: _Ints | DataNode | None = ...,
        rel_start: _Floats | DataNode | None = ...,
        end: _Ints | DataNode | None = ...,
        rel_end: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        anchor: DataNode | _Constant | None = None,
        shape_input: DataNode | _Constant | None = None,
        /,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        start: _Ints | DataNode | None = ...,
        rel_start: _Floats | DataNode | None = ...,
        end: _Ints | DataNode | None = ...,
        rel_end: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        anchor: _Sequence[DataNode] | _Constant | None = None,
        shape_input: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        start: _Ints | DataNode | None = ...,
        rel_start: _Floats | DataNode | None = ...,
        end: _Ints | DataNode | None = ...,
        rel_end: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Pad:
    """Append elements so that all samples of a batch reach the size of the largest one, or a given size.

    Args:
        data: any number of dimensions.
        axes: axes to pad. Default: all axes.
        axis_names: the same as letters of the layout.
        shape: minimum extents, one for all axes or one for each. Larger samples stay as they are. -1 or 0: the largest
            extent in the batch.
        align: round extents up to multiples of this; one for all axes, or one for each.
        fill_value: value of the appended elements.
    """
    def __init__(
        self,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        shape: _Ints | DataNode | None = ...,
        align: _Ints | DataNode | None = ...,
        fill_value: float | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        shape: _Ints | DataNode | None = ...,
        align: _Ints | DataNode | None = ...,
        fill_value: float | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        shape: _Ints | DataNode | None = ...,
        align: _Ints | DataNode | None = ...,
        fill_value: float | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Paste:
    """Paste images onto larger canvases.

    Args:
        image: any dtype.
        ratio: size of the canvas relative to the image, at least 1.
        fill_value: color of the canvas: one value for all channels, or one for each.
        paste_x: position of the image, from 0 (left) to 1 (right).
        paste_y: the same, from top to bottom.
        min_canvas_size: minimum extent of the canvas, in pixels.
        n_channels: number of channels of the images, if `fill_value` has one value for each.
    """
    def __init__(
        self,
        *,
        ratio: float | DataNode = ...,
        fill_value: _Ints = ...,
        paste_x: float | DataNode = ...,
        paste_y: float | DataNode = ...,
        min_canvas_size: float | DataNode = ...,
        n_channels: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        ratio: float | DataNode = ...,
        fill_value: _Ints = ...,
        paste_x: float | DataNode = ...,
        paste_y: float | DataNode = ...,
        min_canvas_size: float | DataNode = ...,
        n_channels: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        ratio: float | DataNode = ...,
        fill_value: _Ints = ...,
        paste_x: float | DataNode = ...,
        paste_y: float | DataNode = ...,
        min_canvas_size: float | DataNode = ...,
        n_channels: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class PeekImageShape:
    """Return the shapes of encoded images. Reads only their headers.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        dtype: data type of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.

    Returns:
        (height, width, channels), as `image` with ANY_DATA would decode it.
    """
    def __init__(
        self,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class GaussianBlur:
    """Blur images, volumes and signals.

    All axes except "F" and "C" are blurred. Channels must come first or last, frames first. Without a layout, data may have
    up to three axes, and all are blurred. Values are mirrored at the edges.

    Args:
        image: any dtype.
        sigma: standard deviation of the Gaussian: one for all axes, or one for each, outermost first. Default: ``(radius -
            1) * 0.3 + 0.8`` with ``radius = (window_size - 1) / 2``.
        window_size: length of the kernel in elements, an odd number; one for all axes, or one for each. Default: ``2 *
            ceil(3 * sigma) + 1``.
        dtype: data type of the result: FLOAT. Default: that of the image.
    """
    def __init__(
        self,
        *,
        sigma: _Floats | DataNode = ...,
        window_size: _Ints | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        sigma: _Floats | DataNode = ...,
        window_size: _Ints | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        sigma: _Floats | DataNode = ...,
        window_size: _Ints | DataNode = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class JpegCompressionDistortion:
    """Add the artifacts of JPEG compression to images.

    Args:
        image: uint8, RGB.
        quality: from 1 (worst) to 100 (best); values outside are clipped.
    """
    def __init__(
        self,
        *,
        quality: int | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        quality: int | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        quality: int | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Erase:
    """Fill regions with a value.

    Args:
        data: any dtype and layout.
        anchor: start of each region, such as (y, x, y, x, ...). Default: 0.
        shape: size of each region, in the same order. Regions may extend beyond the data.
        fill_value: one value, or one for each channel.
        axes: axes of the numbers in `anchor` and `shape`. Default: all but the channels.
        axis_names: the same as letters of the layout, such as "HW"; takes precedence over `axes`.
        normalized: whether `anchor` and `shape` are fractions of the extents, from 0 to 1.
        normalized_anchor: the same for `anchor` alone.
        normalized_shape: the same for `shape` alone.
        centered_anchor: whether `anchor` is the center of the regions.
    """
    def __init__(
        self,
        *,
        anchor: _Floats | DataNode = ...,
        shape: _Floats | DataNode = ...,
        fill_value: _Floats | DataNode = ...,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        normalized: bool = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        centered_anchor: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        anchor: _Floats | DataNode = ...,
        shape: _Floats | DataNode = ...,
        fill_value: _Floats | DataNode = ...,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        normalized: bool = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        centered_anchor: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        anchor: _Floats | DataNode = ...,
        shape: _Floats | DataNode = ...,
        fill_value: _Floats | DataNode = ...,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        normalized: bool = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        centered_anchor: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class CropMirrorNormalize:
    """Crop, mirror and normalize images, and change their layout and dtype, in one step.

    ``out = scale * (in - mean) / std + shift``

    Args:
        image: any dtype.
        crop: size of the window, as (height, width) or (depth, height, width); 0 for the whole axis. The depth applies to
            volumes, or to the frames of sequences of images. Default: the whole image.
        crop_w: width of the window, if `crop` is not given.
        crop_h: height of the window.
        crop_d: depth of the window.
        crop_pos_x: position of the window, from 0 (left edge) to 1 (right edge).
        crop_pos_y: the same, from top to bottom.
        crop_pos_z: the same, from front to back.
        rounding: how positions between pixels are rounded: "round" or "truncate".
        out_of_bounds_policy: treatment of a window larger than the image: "error", "pad" with `fill_values`, or
            "trim_to_shape".
        fill_values: one for all channels of the result, or one for each. They are not normalized.
        mirror: whether to exchange left and right.
        mean: mean to subtract; one for all channels, or one for each.
        std: standard deviation to divide by; one for all channels, or one for each.
        scale: factor.
        shift: summand, added last.
        pad_output: add channels, filled with `fill_values`, until their number is a power of two.
        output_layout: order of the axes of the result; "": that of the image.
        dtype: data type of the result. Default: FLOAT.
    """
    def __init__(
        self,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        mirror: int | DataNode = ...,
        mean: _Floats | DataNode = ...,
        std: _Floats | DataNode = ...,
        scale: float = ...,
        shift: float = ...,
        pad_output: bool = ...,
        output_layout: str = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        mirror: int | DataNode = ...,
        mean: _Floats | DataNode = ...,
        std: _Floats | DataNode = ...,
        scale: float = ...,
        shift: float = ...,
        pad_output: bool = ...,
        output_layout: str = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_values: _Floats = ...,
        mirror: int | DataNode = ...,
        mean: _Floats | DataNode = ...,
        std: _Floats | DataNode = ...,
        scale: float = ...,
        shift: float = ...,
        pad_output: bool = ...,
        output_layout: str = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Normalize:
    """Subtract the mean and divide by the standard deviation, both computed or given.

    ``out = scale * (in - mean) / stddev + shift``

    Args:
        data: any dtype and layout.
        axes: axes over which mean and standard deviation are computed. Default: all, or the axes in which `mean` and
            `stddev` have one element.
        axis_names: the same as letters of the layout.
        mean: a number, or an array with as many dimensions as the data and one element in the `axes`. Default: the mean of
            the data.
        stddev: the same for the standard deviation. Default: that of the data.
        batch: whether mean and standard deviation are computed over all samples of the batch together.
        ddof: number subtracted from the element count in the divisor of the variance.
        epsilon: summand for the variance.
        scale: factor.
        shift: summand, added last.
        dtype: data type of the result. Default: FLOAT.

    Data with zero variance becomes `shift`.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        mean: _Floats | DataNode | None = ...,
        stddev: _Floats | DataNode | None = ...,
        batch: bool = ...,
        ddof: int = ...,
        epsilon: float = ...,
        scale: float = ...,
        shift: float = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        mean: _Floats | DataNode | None = ...,
        stddev: _Floats | DataNode | None = ...,
        batch: bool = ...,
        ddof: int = ...,
        epsilon: float = ...,
        scale: float = ...,
        shift: float = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        mean: _Floats | DataNode | None = ...,
        stddev: _Floats | DataNode | None = ...,
        batch: bool = ...,
        ddof: int = ...,
        epsilon: float = ...,
        scale: float = ...,
        shift: float = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class MultiPaste:
    """Paste regions of several images of a batch into each image of the result, for example for mosaics.

    Each argument for regions is an array of shape (regions, 2), with a number for height and width. Later regions cover
    earlier ones; the rest is 0. The operator needs the whole batch, and so runs in the main process.

    Args:
        images: uint8, int16, int32 or float32, with the layout HWC or FHWC. One input with `in_ids`; otherwise, sample i of
            each input is pasted into sample i of the result.
        in_ids: numbers of the samples of the batch that are pasted, for each region.
        in_anchors: start of the regions in the input, in pixels. Default: 0.
        in_anchors_rel: the same, as fractions of the input.
        shapes: sizes of the regions, in pixels. Default: to the end of the input.
        shapes_rel: the same, as fractions of the input.
        out_anchors: place of the regions in the result, in pixels. Default: 0.
        out_anchors_rel: the same, as fractions of the result.
        output_size: height and width of the result. Default: those of the inputs, if they all have the same.
        dtype: UINT8, INT16, INT32 or FLOAT. Default: that of the input.
    """
    def __init__(
        self,
        *,
        in_ids: _Ints | DataNode | None = ...,
        in_anchors: _Floats | DataNode | None = ...,
        in_anchors_rel: _Floats | DataNode | None = ...,
        shapes: _Floats | DataNode | None = ...,
        shapes_rel: _Floats | DataNode | None = ...,
        out_anchors: _Floats | DataNode | None = ...,
        out_anchors_rel: _Floats | DataNode | None = ...,
        output_size: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *images: DataNode | _Fixed | float,
        in_ids: _Ints | DataNode | None = ...,
        in_anchors: _Floats | DataNode | None = ...,
        in_anchors_rel: _Floats | DataNode | None = ...,
        shapes: _Floats | DataNode | None = ...,
        shapes_rel: _Floats | DataNode | None = ...,
        out_anchors: _Floats | DataNode | None = ...,
        out_anchors_rel: _Floats | DataNode | None = ...,
        output_size: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        *images: _Sequence[DataNode],
        in_ids: _Ints | DataNode | None = ...,
        in_anchors: _Floats | DataNode | None = ...,
        in_anchors_rel: _Floats | DataNode | None = ...,
        shapes: _Floats | DataNode | None = ...,
        shapes_rel: _Floats | DataNode | None = ...,
        out_anchors: _Floats | DataNode | None = ...,
        out_anchors_rel: _Floats | DataNode | None = ...,
        output_size: _Ints | DataNode | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class PythonFunction:
    """Call a Python function with NumPy arrays.

    The main process calls it in a separate thread, ahead of `Pipeline.run`. Calls come one at a time and in the order of the
    samples, even if the outputs are unused. A pipeline with this operator cannot be serialized.

    Args:
        inputs: any dtypes.
        function: receives one sample of each input, or a list of all samples of each input. It returns an array or a list of
            arrays, or a tuple of these for several outputs. It must not modify its arguments.
        num_outputs: number of outputs.
        output_layouts: one layout for all outputs, or a list of layouts for the first outputs.
        batch_processing: whether the function is called once per batch, with lists.
    """
    def __init__(
        self,
        *,
        function: Callable[..., Any] = ...,
        num_outputs: int = ...,
        output_layouts: _Strings | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *inputs: DataNode | _Fixed | float,
        function: Callable[..., Any] = ...,
        num_outputs: int = ...,
        output_layouts: _Strings | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> Any:
        ...
    
    @overload
    def __call__(
        self,
        *inputs: _Sequence[DataNode],
        function: Callable[..., Any] = ...,
        num_outputs: int = ...,
        output_layouts: _Strings | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[Any]:
        ...
    

class TorchPythonFunction:
    """Call a Python function with PyTorch tensors; see `python_function`.

    Args:
        inputs: any dtypes.
        function: receives a list of all samples of each input as tensors, or one sample of each input. It returns a list of
            tensors or a tensor, or a tuple of these for several outputs. It must not modify its arguments.
        num_outputs: number of outputs.
        output_layouts: one layout for all outputs, or a list of layouts for the first outputs.
        batch_processing: whether the function is called once per batch, with lists.
    """
    def __init__(
        self,
        *,
        function: Callable[..., Any] = ...,
        num_outputs: int = ...,
        output_layouts: _Strings | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *inputs: DataNode | _Fixed | float,
        function: Callable[..., Any] = ...,
        num_outputs: int = ...,
        output_layouts: _Strings | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> Any:
        ...
    
    @overload
    def __call__(
        self,
        *inputs: _Sequence[DataNode],
        function: Callable[..., Any] = ...,
        num_outputs: int = ...,
        output_layouts: _Strings | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[Any]:
        ...
    

class Resize:
    """Scale images and volumes.

    Args:
        image: any dtype. Empty images stay empty.
        size: size of the result, as (height, width) or (depth, height, width), or one number for all axes; 0: follows from
            the others and `mode`; negative: mirrored.
        resize_x: width of the result.
        resize_y: height of the result.
        resize_z: depth of the result.
        resize_shorter: length of the shorter side; keeps proportions.
        resize_longer: length of the longer side; keeps proportions.
        mode: "default": sides without a size are scaled like the others. "stretch": they are not scaled. "not_larger",
            "not_smaller": proportions are kept, and no side is larger, or smaller, than given.
        max_size: maximum length of the sides; one for all axes, or one for each.
        subpixel_scale: where a side of the result is not an integer, use slightly more or less of the image, to keep
            proportions exactly. False: use the whole image.
        roi_start: start of the region to scale, in pixels, in the order of `size`. Default: the whole image.
        roi_end: end of the region; an end before the start mirrors the image.
        roi_relative: whether the region is given in fractions of the image's extents.
        interp_type: interpolation between pixels.
        min_filter: interpolation where the image shrinks.
        mag_filter: interpolation where the image grows.
        antialias: whether to filter where the image shrinks, so that no pixel is skipped.
        dtype: FLOAT, or the type of the input, which is the default.
        save_attrs: whether to return the original size as a second result, as (height, width) or (depth, height, width),
            INT32.
    """
    def __init__(
        self,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[True],
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[True],
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[list[DataNode]]:
        ...
    
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[False] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        save_attrs: Literal[False] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
        image_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class RandomResizedCrop:
    """Cut random windows out of images, and scale them to one size.

    Args:
        image: any dtype.
        size: size of the result, as (height, width), or one number for both.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.
        interp_type, min_filter, mag_filter, antialias, dtype: see `resize`.
    """
    def __init__(
        self,
        *,
        size: _Ints = ...,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        image: DataNode | _Constant,
        /,
        *,
        size: _Ints = ...,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        image: _Sequence[DataNode],
        /,
        *,
        size: _Ints = ...,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class PerFrame:
    """Mark the first dimension of arguments as the frames of sequences, by a layout that begins with F.

    `rotate`, `warp_affine`, `gaussian_blur` and the color operators accept such arguments for sequences: each frame gets its
    own value. A single value applies to all frames.

    Args:
        input: as many values as the sequence of the same sample has frames.
        replace: whether to replace another first letter of the layout. Default: it is an error.
    """
    def __init__(
        self,
        *,
        replace: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        replace: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        replace: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Reshape:
    """Give arrays another shape or layout; the elements stay.

    Args:
        data: any dtype.
        shape_input: the same as `shape`.
        shape: shape of the result. One extent may be negative: it is computed from the number of elements.
        rel_shape: extents of the result divided by those of the input. One may be negative: it is computed. If that is the
            last one, there may be one more than the input has dimensions.
        src_dims: dimensions of the input to which `rel_shape` refers, or the dimensions of the result without it; -1: a new
            one.
        layout: layout of the result. Default: that of the input, if it has as many dimensions.
    """
    def __init__(
        self,
        *,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        src_dims: _Ints | None = ...,
        layout: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        shape_input: DataNode | _Constant | None = None,
        /,
        *,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        src_dims: _Ints | None = ...,
        layout: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        shape_input: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        src_dims: _Ints | None = ...,
        layout: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Reinterpret:
    """Give arrays another type, shape or layout; the bytes stay.

    Args:
        data: any dtype.
        shape_input: the same as `shape`.
        shape: see `reshape`; in elements of the new type. Default: that of the input, with an adjusted last extent.
        rel_shape: see `reshape`.
        src_dims: see `reshape`.
        layout: see `reshape`.
        dtype: data type of the result. Default: that of the input.
    """
    def __init__(
        self,
        *,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        src_dims: _Ints | None = ...,
        layout: str | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        shape_input: DataNode | _Constant | None = None,
        /,
        *,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        src_dims: _Ints | None = ...,
        layout: str | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        shape_input: _Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        src_dims: _Ints | None = ...,
        layout: str | None = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Squeeze:
    """Remove dimensions of extent 1.

    Args:
        data: any dtype.
        axes: dimensions to remove. Other extents are allowed if the array is empty and stays empty.
        axis_names: the same as letters of the layout.
    """
    def __init__(
        self,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        axes: _Ints | None = ...,
        axis_names: str | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class ExpandDims:
    """Insert dimensions of extent 1.

    Args:
        data: any dtype.
        axes: positions of the new dimensions in the result.
        new_axis_names: their letters in the layout. Default: the result has no layout.
    """
    def __init__(
        self,
        *,
        axes: _Ints = ...,
        new_axis_names: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        axes: _Ints = ...,
        new_axis_names: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        axes: _Ints = ...,
        new_axis_names: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Transpose:
    """Reorder the dimensions of arrays.

    Args:
        input: any dtype.
        perm: for each dimension of the result, the dimension of the input. Default: reversed order.
        transpose_layout: whether the letters of the layout move with their dimensions; otherwise the layout stays.
        output_layout: layout of the result, instead.
    """
    def __init__(
        self,
        *,
        perm: _Ints | None = ...,
        transpose_layout: bool = ...,
        output_layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        perm: _Ints | None = ...,
        transpose_layout: bool = ...,
        output_layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        perm: _Ints | None = ...,
        transpose_layout: bool = ...,
        output_layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
