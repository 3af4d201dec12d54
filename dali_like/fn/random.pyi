"""``nvidia.dali.fn.random``. Written by tools.operator_stubs from the descriptions of the operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType

_Constant: TypeAlias = _Fixed | float | Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def uniform(
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    range: _Floats | DataNode = (-1.0, 1.0),
    values: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Numbers that are equally likely everywhere in a range, or among some values.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        range: the least number, and the one that all are below.
        values: the numbers that there are, instead of a range.
        shape: of the result. Default: a single number.
        dtype: of the result; integers are rounded, and limited to what they can hold. Default: FLOAT.
    """

@overload
def uniform(
    shape_like: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    range: _Floats | DataNode = (-1.0, 1.0),
    values: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def coin_flip(
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    probability: float | DataNode = 0.5,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """1 with a probability, otherwise 0.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        probability: of 1.
        shape: of the result. Default: a single number.
        dtype: of the result. Default: INT32.
    """

@overload
def coin_flip(
    shape_like: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    probability: float | DataNode = 0.5,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def normal(
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Numbers that are normally distributed.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        mean: of the numbers.
        stddev: their standard deviation.
        shape: of the result. Default: a single number.
        dtype: of the result; integers are rounded, and limited to what they can hold. Default: FLOAT.
    """

@overload
def normal(
    shape_like: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    shape: _Ints | DataNode | None = None,
    dtype: _DataType | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def choice(  # type: ignore[overload-overlap]
    a: DataNode | _Constant,
    shape_like: DataNode | _Constant | None = None,
    /,
    *,
    p: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Elements of an array, drawn with replacement.

    Args:
        a: what to draw from: the elements along the first axis. Or an integer: the numbers from 0 to that, without itself.
        shape_like: as many are drawn as this has elements, and in its shape; its values do not matter.
        p: how probable each of them is. Default: all alike.
        shape: how many are drawn, and in what shape. Default: one, whose shape is that of an element of `a`.
    """

@overload
def choice(
    a: Sequence[DataNode] | _Constant,
    shape_like: Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    p: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    seed: int = -1,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
