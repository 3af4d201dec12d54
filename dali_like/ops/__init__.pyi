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
from dali_like.ops import noise as noise
from dali_like.ops import random as random
from dali_like.ops import readers as readers
from dali_like.ops import reductions as reductions
from dali_like.ops import segmentation as segmentation
from dali_like.ops import transforms as transforms
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
    

class AudioResample:
    """Change the sample rate of audio signals.

    The result is DALI's: that of a sinc filter with a Hann window. Like DALI, it has no low-pass filter: at a lower rate,
    frequencies above half of the new rate turn up at others. `decoders.audio` with ``sample_rate=`` removes them.

    Args:
        signal: shape (frames,) or (frames, channels); INT8, UINT8, INT16, UINT16, INT32, UINT32 or FLOAT.
        in_rate, out_rate: sample rates of input and result, in the same unit.
        scale: ratio of the rates, instead.
        out_length: number of frames of the result, instead.
        quality: from 0, for a filter with 3 lobes, to 100, with 64 lobes.
        dtype: data type of the result. Default: that of the input. The ranges of values correspond: -1 to 1 for FLOAT, the
            whole range for integers. Zero of signed types is the middle of unsigned ones.
    """
    def __init__(
        self,
        *,
        in_rate: float | DataNode | None = ...,
        out_rate: float | DataNode | None = ...,
        scale: float | DataNode | None = ...,
        out_length: int | DataNode | None = ...,
        quality: float = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        signal: DataNode | _Constant,
        /,
        *,
        in_rate: float | DataNode | None = ...,
        out_rate: float | DataNode | None = ...,
        scale: float | DataNode | None = ...,
        out_length: int | DataNode | None = ...,
        quality: float = ...,
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
        signal: _Sequence[DataNode],
        /,
        *,
        in_rate: float | DataNode | None = ...,
        out_rate: float | DataNode | None = ...,
        scale: float | DataNode | None = ...,
        out_length: int | DataNode | None = ...,
        quality: float = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class PreemphasisFilter:
    """Amplify high frequencies: subtract a part of the previous sample from each sample.

    ``out[t] = signal[t] - preemph_coeff * signal[t - 1]``

    Args:
        signal: integers, FLOAT or FLOAT64. Arrays of several dimensions are filtered as one sequence of numbers, in the
            order of memory, as DALI does.
        preemph_coeff: part of the previous sample.
        border: sample before the first one: "zero", or the first one ("clamp"), or the second one ("reflect").
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """
    def __init__(
        self,
        *,
        preemph_coeff: float | DataNode = ...,
        border: Literal["zero", "clamp", "reflect"] = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        signal: DataNode | _Constant,
        /,
        *,
        preemph_coeff: float | DataNode = ...,
        border: Literal["zero", "clamp", "reflect"] = ...,
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
        signal: _Sequence[DataNode],
        /,
        *,
        preemph_coeff: float | DataNode = ...,
        border: Literal["zero", "clamp", "reflect"] = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class NonsilentRegion:
    """Find the part of a signal between silence at its beginning and at its end.

    The signal is silent where its mean power in a window is less than ``reference_power * 10 ** (cutoff_db / 10)``.

    Args:
        signal: one dimension; integers or FLOAT.
        cutoff_db: power of the threshold relative to `reference_power`, in decibels.
        window_length: length of the window in samples, at most that of the signal.
        reference_power: mean power that has 0 decibels. Default: the maximum of the signal.
        reset_interval: number of samples after which the power of FLOAT signals is computed anew, since rounding errors of
            its changes accumulate; a multiple of `window_length`. -1: never.

    Returns:
        Index of the first sample, and number of samples of the region; both INT32 scalars. Number 0: all is silent.
    """
    def __init__(
        self,
        *,
        cutoff_db: float = ...,
        window_length: int = ...,
        reference_power: float = ...,
        reset_interval: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        signal: DataNode | _Constant,
        /,
        *,
        cutoff_db: float = ...,
        window_length: int = ...,
        reference_power: float = ...,
        reset_interval: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
    @overload
    def __call__(
        self,
        signal: _Sequence[DataNode],
        /,
        *,
        cutoff_db: float = ...,
        window_length: int = ...,
        reference_power: float = ...,
        reset_interval: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[list[DataNode]]:
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
        fill_value: value outside the image, rounded to the dtypes of image and result, or for INTERP_NN to that of the
            result only. Default: the nearest edge pixel.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or the type of the input, which is the default. Images of FLOAT may become UINT8, INT16 or INT32, too.
            Integers are rounded and saturate.
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
        fill_value: value outside the image, rounded to the dtypes of image and result, or for INTERP_NN to that of the
            result only. Default: the nearest edge pixel.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or the type of the input, which is the default. Images of FLOAT may become UINT8, INT16 or INT32, too.
            Integers are rounded and saturate.
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
    

class Laplacian:
    """Compute the Laplacian of images, volumes and signals: the sum of the second derivatives along their axes.

    A derivative is a convolution with a derivative window along its axis, and with smoothing windows along the others. All
    axes except "F" and "C" count. Channels must come first or last, frames first. Values are mirrored at the edges. Sums are
    computed in single precision; integers are rounded and saturate.

    Args:
        data: any dtype.
        dtype: FLOAT, or the type of the data, which is the default.
        normalized_kernel: whether to scale each derivative by ``2 ** (n + 2 - s)``, with n axes and the sum s of the lengths
            of its windows.
        scale: factor for each derivative: one for all axes, or one for each.
        smoothing_size: lengths of the smoothing windows, odd numbers: one for all axes, or one for each; 1: not smoothed.
            Default: for each derivative, the length of its derivative window.
        window_size: lengths of the derivative windows, odd numbers from 3 on: one for all axes, or one for each.
    """
    def __init__(
        self,
        *,
        dtype: _DataType | None = ...,
        normalized_kernel: bool = ...,
        scale: _Floats | DataNode = ...,
        smoothing_size: _Ints | DataNode | None = ...,
        window_size: _Ints | DataNode = ...,
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
        dtype: _DataType | None = ...,
        normalized_kernel: bool = ...,
        scale: _Floats | DataNode = ...,
        smoothing_size: _Ints | DataNode | None = ...,
        window_size: _Ints | DataNode = ...,
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
        dtype: _DataType | None = ...,
        normalized_kernel: bool = ...,
        scale: _Floats | DataNode = ...,
        smoothing_size: _Ints | DataNode | None = ...,
        window_size: _Ints | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class CoordTransform:
    """Apply affine transforms to points or vectors: ``M @ point + T``.

    Each argument may have a value for each frame of a sequence.

    Args:
        points: any number of points in the last dimension, at least 2 dimensions, any dtype.
        M: matrix with a column for each element of a point, and any number of rows, or one factor for all elements.
            Default: 1.
        T: summand for each row of `M`, or one for all. Default: 0.
        MT: matrix with a further column, which is `T`, or one factor for all elements.
        dtype: FLOAT, or the type of the points; integers are rounded and saturate.
    """
    def __init__(
        self,
        *,
        M: _Floats | DataNode | None = ...,
        T: _Floats | DataNode | None = ...,
        MT: _Floats | DataNode | None = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        points: DataNode | _Constant,
        /,
        *,
        M: _Floats | DataNode | None = ...,
        T: _Floats | DataNode | None = ...,
        MT: _Floats | DataNode | None = ...,
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
        points: _Sequence[DataNode],
        /,
        *,
        M: _Floats | DataNode | None = ...,
        T: _Floats | DataNode | None = ...,
        MT: _Floats | DataNode | None = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class CoordFlip:
    """Mirror points.

    Args:
        points: points of 1 to 3 elements in 2 dimensions, FLOAT.
        flip_x, flip_y, flip_z: whether to mirror horizontally, vertically, in depth.
        center_x, center_y, center_z: coordinate that stays in place.
        layout: order of the elements of a point, by the letters x, y and z. Default: "x", "xy" or "xyz".
    """
    def __init__(
        self,
        *,
        flip_x: int | DataNode = ...,
        flip_y: int | DataNode = ...,
        flip_z: int | DataNode = ...,
        center_x: float | DataNode = ...,
        center_y: float | DataNode = ...,
        center_z: float | DataNode = ...,
        layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        points: DataNode | _Constant,
        /,
        *,
        flip_x: int | DataNode = ...,
        flip_y: int | DataNode = ...,
        flip_z: int | DataNode = ...,
        center_x: float | DataNode = ...,
        center_y: float | DataNode = ...,
        center_z: float | DataNode = ...,
        layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        points: _Sequence[DataNode],
        /,
        *,
        flip_x: int | DataNode = ...,
        flip_y: int | DataNode = ...,
        flip_z: int | DataNode = ...,
        center_x: float | DataNode = ...,
        center_y: float | DataNode = ...,
        center_z: float | DataNode = ...,
        layout: str = ...,
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
        fill_values: one for all channels, or one for each. Beyond the range of integers, they wrap around.
        dtype: UINT8, FLOAT16, FLOAT or another data type of the result. Numbers beyond its range saturate, and fractions of
            integers are cut off. Default: that of the input.
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
        fill_values: one for all channels, or one for each. Beyond the range of integers, they wrap around.
        dtype: UINT8, FLOAT16, FLOAT or another data type of the result. Numbers beyond its range saturate, and fractions of
            integers are cut off. Default: that of the input.
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
    

class Sphere:
    """Make images look like a sphere: magnify their center.

    Args:
        image: UINT8 or FLOAT.
        mask: 0 leaves the image unchanged.
        interp_type: INTERP_NN or INTERP_LINEAR.
        fill_value: value outside the image.
    """
    def __init__(
        self,
        *,
        mask: int | DataNode = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
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
        mask: int | DataNode = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
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
        mask: int | DataNode = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Water:
    """Make images look as if they were under water: shift rows and columns along waves.

    Args:
        image: UINT8 or FLOAT.
        mask: 0 leaves the image unchanged.
        ampl_x, ampl_y: amplitudes of the waves, in pixels.
        freq_x, freq_y: frequencies, in radians per pixel.
        phase_x, phase_y: phases, in radians.
        interp_type: INTERP_NN or INTERP_LINEAR.
        fill_value: value outside the image.
    """
    def __init__(
        self,
        *,
        mask: int | DataNode = ...,
        ampl_x: float = ...,
        ampl_y: float = ...,
        freq_x: float = ...,
        freq_y: float = ...,
        phase_x: float = ...,
        phase_y: float = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
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
        mask: int | DataNode = ...,
        ampl_x: float = ...,
        ampl_y: float = ...,
        freq_x: float = ...,
        freq_y: float = ...,
        phase_x: float = ...,
        phase_y: float = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
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
        mask: int | DataNode = ...,
        ampl_x: float = ...,
        ampl_y: float = ...,
        freq_x: float = ...,
        freq_y: float = ...,
        phase_x: float = ...,
        phase_y: float = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Jitter:
    """Move each pixel by random amounts in both directions.

    Args:
        image: UINT8 or FLOAT.
        mask: 0 leaves the image unchanged.
        nDegree: the pixels move by whole numbers from ``-nDegree / 2`` to ``nDegree / 2``, all with the same probability.
        interp_type: INTERP_NN or INTERP_LINEAR; both give the same result.
        fill_value: value outside the image.
    """
    def __init__(
        self,
        *,
        mask: int | DataNode = ...,
        nDegree: int = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
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
        /,
        *,
        mask: int | DataNode = ...,
        nDegree: int = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
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
        image: _Sequence[DataNode],
        /,
        *,
        mask: int | DataNode = ...,
        nDegree: int = ...,
        interp_type: DALIInterpType = ...,
        fill_value: float = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Zeros:
    """Return an array of zeros.

    Args:
        shape: shape of the result. Default: a single number.
        dtype: data type of the result.
    """
    def __init__(
        self,
        *,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    

class Ones:
    """Return an array of ones.

    Args:
        shape: shape of the result. Default: a single number.
        dtype: data type of the result.
    """
    def __init__(
        self,
        *,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        shape: _Ints | DataNode | None = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    

class ZerosLike:
    """Return an array of zeros with the shape of another array.

    Args:
        data_like: array whose shape the result has; its values are ignored.
        dtype: data type of the result. Default: that of `data_like`.
    """
    def __init__(
        self,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data_like: DataNode | _Constant,
        /,
        *,
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
        data_like: _Sequence[DataNode],
        /,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class OnesLike:
    """Return an array of ones with the shape of another array.

    Args:
        data_like: array whose shape the result has; its values are ignored.
        dtype: data type of the result. Default: that of `data_like`.
    """
    def __init__(
        self,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data_like: DataNode | _Constant,
        /,
        *,
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
        data_like: _Sequence[DataNode],
        /,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Full:
    """Repeat a value, or an array, to a shape.

    Args:
        fill_value: a number, or an array that is broadcast to the shape as in NumPy. The result has its dtype.
        shape: shape of the result. Default: a single number.
    """
    def __init__(
        self,
        *,
        shape: _Ints | DataNode | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        fill_value: DataNode | _Constant,
        /,
        *,
        shape: _Ints | DataNode | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        fill_value: _Sequence[DataNode],
        /,
        *,
        shape: _Ints | DataNode | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class FullLike:
    """Repeat a value, or an array, to the shape of another array.

    Args:
        data_like: array whose shape and dtype the result has; its values are ignored.
        fill_value: a number, or an array that is broadcast to the shape as in NumPy. It is rounded and saturates if the
            result has integers.
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
        data_like: DataNode | _Constant,
        fill_value: DataNode | _Constant,
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
        data_like: _Sequence[DataNode],
        fill_value: _Sequence[DataNode] | _Constant,
        /,
        *,
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
    

class GridMask:
    """Set squares of a regular grid to zero, as in the augmentation "GridMask".

    Args:
        image: any dtype.
        angle: rotation of the grid about the upper left corner, in radians.
        ratio: side of the squares, as a fraction of `tile`.
        shift_x, shift_y: translation of the rotated grid, in pixels.
        tile: distance between the squares, from the beginning of one to the next, in pixels.
    """
    def __init__(
        self,
        *,
        angle: float | DataNode = ...,
        ratio: float | DataNode = ...,
        shift_x: float | DataNode = ...,
        shift_y: float | DataNode = ...,
        tile: int | DataNode = ...,
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
        ratio: float | DataNode = ...,
        shift_x: float | DataNode = ...,
        shift_y: float | DataNode = ...,
        tile: int | DataNode = ...,
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
        ratio: float | DataNode = ...,
        shift_x: float | DataNode = ...,
        shift_y: float | DataNode = ...,
        tile: int | DataNode = ...,
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
    

class DumpImage:
    """Write images to files in the current directory, for debugging, and return them.

    The image at position 3 in the batch goes to the file "3-suffix-0.ppm". It has the text format of PPM, or of PGM if there
    is one channel. The next batch overwrites the files.

    Args:
        input: uint8 images of one or three channels.
        suffix: a part of the file names.
        input_layout: "HWC".
    """
    def __init__(
        self,
        *,
        suffix: str = ...,
        input_layout: str = ...,
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
        suffix: str = ...,
        input_layout: str = ...,
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
        suffix: str = ...,
        input_layout: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class GetProperty:
    """Return a property of each sample, as an array of bytes.

    Args:
        input: any dtype.
        key: "layout": the letters of the layout. "source_info": the name of the file that a reader has read the sample from,
            directly or with operators between; empty for other samples.

    Returns:
        Text as a one-dimensional array of uint8.
    """
    def __init__(
        self,
        *,
        key: Literal["source_info", "layout"] = ...,
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
        key: Literal["source_info", "layout"] = ...,
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
        key: Literal["source_info", "layout"] = ...,
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
    

class BatchPermutation:
    """Draw the numbers of the samples of the batch in random order, one number for each sample.

    Args:
        allow_repetitions: whether numbers are drawn independently, so that some may repeat and others be missing.
        no_fixed_points: whether no sample gets its own number. It has no effect on a batch of one sample.
    """
    def __init__(
        self,
        *,
        allow_repetitions: bool = ...,
        no_fixed_points: bool = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        allow_repetitions: bool = ...,
        no_fixed_points: bool = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    

class PermuteBatch:
    """Return samples of the batch in another order.

    Args:
        input: any dtype.
        indices: number of the sample of the batch to return, for each sample: a list with as many numbers as samples, or a
            node, for example of `batch_permutation`. Numbers may repeat.
    """
    def __init__(
        self,
        *,
        indices: _Ints | DataNode = ...,
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
        indices: _Ints | DataNode = ...,
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
        indices: _Ints | DataNode = ...,
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
    

class DLTensorPythonFunction:
    """Call a Python function with DLPack capsules; see `python_function`.

    Args:
        inputs: any dtypes.
        function: receives a list of all samples of each input as DLPack capsules, or one sample of each input. It returns a
            list of capsules or a capsule, or a tuple of these for several outputs. Objects with the method ``__dlpack__``
            are accepted as well. It must not modify its arguments.
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
        synchronize_stream: Any = ...,
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
        synchronize_stream: Any = ...,
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
        synchronize_stream: Any = ...,
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
    

class ResizeCropMirror:
    """Scale, crop and mirror images and volumes in one step.

    The result is that of `resize`, `crop` and `flip`, but only the pixels of the window are computed.

    Args:
        image: any dtype.
        size, resize_x, resize_y, resize_z, resize_shorter, resize_longer: size of the scaled image, see `resize`.
        mode, max_size, subpixel_scale, roi_start, roi_end, roi_relative: see `resize`.
        crop, crop_w, crop_h, crop_d: size of the window in the scaled image, see `crop`; the depth applies to volumes. A
            window larger than the image repeats the pixels at its edges.
        crop_pos_x, crop_pos_y, crop_pos_z, rounding: position of the window, see `crop`.
        mirror: sum of 1 to exchange left and right, 2 to exchange top and bottom, 4 to exchange front and back.
        interp_type, min_filter, mag_filter, antialias, dtype: see `resize`.
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
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        mirror: int | DataNode = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
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
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        mirror: int | DataNode = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
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
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        mirror: int | DataNode = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class FastResizeCropMirror:
    """Scale, crop and mirror images and volumes in one step, by default without antialiasing.

    The result is that of `resize`, `crop` and `flip`, but only the pixels of the window are computed.

    Args:
        image: any dtype.
        size, resize_x, resize_y, resize_z, resize_shorter, resize_longer: size of the scaled image, see `resize`.
        mode, max_size, subpixel_scale, roi_start, roi_end, roi_relative: see `resize`.
        crop, crop_w, crop_h, crop_d: size of the window in the scaled image, see `crop`; the depth applies to volumes. A
            window larger than the image repeats the pixels at its edges.
        crop_pos_x, crop_pos_y, crop_pos_z, rounding: position of the window, see `crop`.
        mirror: sum of 1 to exchange left and right, 2 to exchange top and bottom, 4 to exchange front and back.
        interp_type, min_filter, mag_filter, antialias, dtype: see `resize`.
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
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        mirror: int | DataNode = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
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
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        mirror: int | DataNode = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
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
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        mirror: int | DataNode = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        minibatch_size: Any = ...,
        temp_buffer_hint: Any = ...,
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
    

class RandomCropGenerator:
    """Draw windows of random area and aspect ratio, for example for `slice`.

    Args:
        shape: shapes of images, as (height, width) or (height, width, channels); integers.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.

    Returns:
        Position and size of the window, as (top, left) and (height, width); INT32.
    """
    def __init__(
        self,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
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
        shape: DataNode | _Constant,
        /,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
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
        shape: _Sequence[DataNode],
        /,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        seed: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[list[DataNode]]:
        ...
    

class ElementExtract:
    """Return elements of sequences, each as an output of its own.

    Args:
        input: sequences of any dtype: arrays whose first dimension counts the elements, with a layout that begins with F or
            none.
        element_map: numbers of the elements, one for each output.

    Returns:
        As many outputs as `element_map` has numbers. They have one dimension less than the input.
    """
    def __init__(
        self,
        *,
        element_map: _Ints = ...,
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
        element_map: _Ints = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> Any:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        element_map: _Ints = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[Any]:
        ...
    

class SequenceRearrange:
    """Reorder, repeat or drop elements of sequences.

    Args:
        input: sequences of any dtype: arrays whose first dimension counts the elements, with a layout that begins with F or
            none.
        new_order: for each element of the result, its number in the input.
    """
    def __init__(
        self,
        *,
        new_order: _Ints | DataNode = ...,
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
        new_order: _Ints | DataNode = ...,
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
        new_order: _Ints | DataNode = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
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
    

class Spectrogram:
    """Compute the spectra of windows of a signal.

    Args:
        signal: FLOAT; at most one dimension with an extent other than 1.
        nfft: length of the Fourier transform; windows are padded with zeros. The result has ``nfft // 2 + 1`` frequencies.
            Default: `window_length`.
        window_length: length of a window in samples.
        window_step: distance between windows in samples.
        window_fn: factor for each sample of a window. Default: a Hann window.
        power: 2 for the power, 1 for the magnitude of each frequency.
        center_windows: whether the middle of the first window is the first sample. Otherwise windows lie within the signal.
        reflect_padding: whether centered windows mirror the signal at its ends. Otherwise it continues with zeros.
        layout: "ft" for frequencies by windows, "tf" for windows by frequencies.
    """
    def __init__(
        self,
        *,
        nfft: int | None = ...,
        window_length: int = ...,
        window_step: int = ...,
        window_fn: _Floats | None = ...,
        power: int = ...,
        center_windows: bool = ...,
        reflect_padding: bool = ...,
        layout: Literal["ft", "tf"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        signal: DataNode | _Constant,
        /,
        *,
        nfft: int | None = ...,
        window_length: int = ...,
        window_step: int = ...,
        window_fn: _Floats | None = ...,
        power: int = ...,
        center_windows: bool = ...,
        reflect_padding: bool = ...,
        layout: Literal["ft", "tf"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        signal: _Sequence[DataNode],
        /,
        *,
        nfft: int | None = ...,
        window_length: int = ...,
        window_step: int = ...,
        window_fn: _Floats | None = ...,
        power: int = ...,
        center_windows: bool = ...,
        reflect_padding: bool = ...,
        layout: Literal["ft", "tf"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class PowerSpectrum:
    """Compute the spectra of signals along an axis.

    Args:
        data: FLOAT; from one to three dimensions.
        axis: axis of time, which becomes that of frequency; -1: the last one.
        nfft: length of the Fourier transform: longer signals are cut off, shorter ones padded with zeros. The result has
            ``nfft // 2 + 1`` frequencies. Default, or with 0 or less: the length of the signals.
        power: 2 for the power, 1 for the magnitude of each frequency.
    """
    def __init__(
        self,
        *,
        axis: int = ...,
        nfft: int | None = ...,
        power: int = ...,
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
        axis: int = ...,
        nfft: int | None = ...,
        power: int = ...,
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
        axis: int = ...,
        nfft: int | None = ...,
        power: int = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class MelFilterBank:
    """Convert spectra to the mel scale, with triangular filters.

    Args:
        spectrum: FLOAT; the axis "f" of its layout has the frequencies from 0 to half of the sample rate. Without a layout,
            the last but one axis has them, or the only one.
        nfilter: number of filters, and of elements in this axis of the result.
        sample_rate: sample rate of the signal in Hz.
        freq_low: lowest frequency in Hz.
        freq_high: highest frequency in Hz. Default: half of the sample rate.
        normalize: whether the integral of each filter is 1. Otherwise its peak is 1.
        mel_formula: "slaney", linear below 1000 Hz and logarithmic above, as in librosa; or "htk", ``2595 * log10(1 + f /
            700)``.
    """
    def __init__(
        self,
        *,
        nfilter: int = ...,
        sample_rate: float = ...,
        freq_low: float = ...,
        freq_high: float = ...,
        normalize: bool = ...,
        mel_formula: Literal["slaney", "htk"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        spectrum: DataNode | _Constant,
        /,
        *,
        nfilter: int = ...,
        sample_rate: float = ...,
        freq_low: float = ...,
        freq_high: float = ...,
        normalize: bool = ...,
        mel_formula: Literal["slaney", "htk"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        spectrum: _Sequence[DataNode],
        /,
        *,
        nfilter: int = ...,
        sample_rate: float = ...,
        freq_low: float = ...,
        freq_high: float = ...,
        normalize: bool = ...,
        mel_formula: Literal["slaney", "htk"] = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class MFCC:
    """Compute mel-frequency cepstral coefficients: the discrete cosine transform of spectra on the mel scale.

    Args:
        spectrum: FLOAT; from two to four dimensions, on the mel scale, usually in decibels.
        axis: axis of frequencies.
        n_mfcc: number of coefficients, at most the number of frequencies.
        dct_type: type of the transform, from 1 to 4.
        normalize: whether the transform is orthonormal.
        lifter: if positive, coefficient ``i`` is multiplied by ``1 + sin(pi * (i + 1) / lifter) * lifter / 2``.
    """
    def __init__(
        self,
        *,
        axis: int = ...,
        n_mfcc: int = ...,
        dct_type: int = ...,
        normalize: bool = ...,
        lifter: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        spectrum: DataNode | _Constant,
        /,
        *,
        axis: int = ...,
        n_mfcc: int = ...,
        dct_type: int = ...,
        normalize: bool = ...,
        lifter: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        spectrum: _Sequence[DataNode],
        /,
        *,
        axis: int = ...,
        n_mfcc: int = ...,
        dct_type: int = ...,
        normalize: bool = ...,
        lifter: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class ToDecibels:
    """Convert magnitudes or powers to decibels.

    ``out = multiplier * log10(max(data / reference, 10 ** (cutoff_db / multiplier)))``

    Args:
        data: FLOAT; positive numbers of any shape.
        multiplier: factor of the logarithm: 10 for powers, 20 for magnitudes.
        reference: magnitude or power that has 0 decibels. Default: the maximum of each input.
        cutoff_db: least value of the result.
    """
    def __init__(
        self,
        *,
        multiplier: float = ...,
        reference: float = ...,
        cutoff_db: float = ...,
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
        multiplier: float = ...,
        reference: float = ...,
        cutoff_db: float = ...,
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
        multiplier: float = ...,
        reference: float = ...,
        cutoff_db: float = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
