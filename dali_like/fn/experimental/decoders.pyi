"""``nvidia.dali.fn.experimental.decoders``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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
def video(
    encoded: DataNode | _Constant,
    /,
    *,
    frames: _Ints | DataNode | None = None,
    start_frame: int | DataNode | None = None,
    end_frame: int | DataNode | None = None,
    sequence_length: int | DataNode | None = None,
    stride: int | DataNode | None = None,
    pad_mode: Literal["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"] | DataNode = "constant",
    fill_value: _Ints = (0,),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    build_index: Any = True,
) -> DataNode:
    """Decode videos, or some of their frames, by FFmpeg: any format and codec that PyAV has.

    Args:
        encoded: encoded files, each a one-dimensional uint8 array.
        frames: numbers of the frames, in any order.
        start_frame: the first frame. Default: 0.
        end_frame: the end of the range of frames. Default: the end of the video.
        sequence_length: number of frames, instead of `end_frame`.
        stride: distance of the frames. Default: 1.
        pad_mode: treatment of frames outside of the video. "none": they are left out; in `frames` they are an error.
            "constant": they are filled with `fill_value`. "edge" or "repeat": the last frame is repeated. "reflect_1001" or
            "symmetric", "reflect_101" or "reflect": frames follow in reverse order, with or without the last one.
        fill_value: one value for each channel, or one for all.

    Returns:
        The frames in RGB, of shape (frames, height, width, 3), dtype UINT8 and layout FHWC.
    """

@overload
def video(
    encoded: _Sequence[DataNode],
    /,
    *,
    frames: _Ints | DataNode | None = None,
    start_frame: int | DataNode | None = None,
    end_frame: int | DataNode | None = None,
    sequence_length: int | DataNode | None = None,
    stride: int | DataNode | None = None,
    pad_mode: Literal["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"] | DataNode = "constant",
    fill_value: _Ints = (0,),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    build_index: Any = True,
) -> list[DataNode]:
    ...
