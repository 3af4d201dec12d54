"""``nvidia.dali.fn``. Written by dali_like.operators.stubs from the descriptions of the operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
from dali_like.fn import decoders as decoders
from dali_like.fn import random as random
from dali_like.fn._external_source import external_source as external_source

_Constant: TypeAlias = float | Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def flip(
    image: DataNode,
    /,
    *,
    horizontal: int | DataNode = 1,
    vertical: int | DataNode = 0,
    depthwise: int | DataNode = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Mirror images and volumes.

    Args:
        image: any dtype.
        horizontal: exchange left and right.
        vertical: exchange top and bottom.
        depthwise: exchange front and back.
    """

@overload
def flip(
    image: Sequence[DataNode],
    /,
    *,
    horizontal: int | DataNode = 1,
    vertical: int | DataNode = 0,
    depthwise: int | DataNode = 0,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
