"""``nvidia.dali.ops``. Written by dali_like.operators.stubs from the descriptions of the operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
from dali_like.ops import decoders as decoders
from dali_like.ops import random as random
from dali_like.ops._external_source import ExternalSource as ExternalSource

_Constant: TypeAlias = float | Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

class Flip:
    """Mirror images and volumes.

    Args:
        image: any dtype.
        horizontal: exchange left and right.
        vertical: exchange top and bottom.
        depthwise: exchange front and back.
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
        image: DataNode,
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
        image: Sequence[DataNode],
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
    
