"""``nvidia.dali.fn.noise``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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
def gaussian(
    data: DataNode | _Constant,
    /,
    *,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Add normally distributed noise.

    Args:
        data: any dtype; integers are rounded and saturate.
        mean: mean of the noise.
        stddev: standard deviation of the noise.
    """

@overload
def gaussian(
    data: _Sequence[DataNode],
    /,
    *,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def salt_and_pepper(
    data: DataNode | _Constant,
    /,
    *,
    pepper_val: float | DataNode | None = None,
    per_channel: bool = False,
    prob: float | DataNode = 0.05,
    salt_val: float | DataNode | None = None,
    salt_vs_pepper: float | DataNode = 0.5,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Replace some pixels by two values, "salt" and "pepper".

    Args:
        data: any dtype. Without a layout, the channels are the last dimension.
        pepper_val: value of pepper. Default: the smallest number of the dtype, or -1 for floats.
        per_channel: whether to replace single elements; otherwise all channels of a pixel are replaced together.
        prob: probability of a replacement.
        salt_val: value of salt. Default: the largest number of the dtype, or 1 for floats.
        salt_vs_pepper: probability that a replacement is salt.
    """

@overload
def salt_and_pepper(
    data: _Sequence[DataNode],
    /,
    *,
    pepper_val: float | DataNode | None = None,
    per_channel: bool = False,
    prob: float | DataNode = 0.05,
    salt_val: float | DataNode | None = None,
    salt_vs_pepper: float | DataNode = 0.5,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...

@overload
def shot(
    data: DataNode | _Constant,
    /,
    *,
    factor: float | DataNode = 12.0,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Replace elements by Poisson-distributed multiples of a factor, as an image sensor that counts photons.

    The mean of the distribution is the element, and its variance is the element times the factor. Negative elements become
    zero.

    Args:
        data: any dtype; integers are rounded and saturate.
        factor: value of a single event; 0: no noise. The default is the one that DALI uses, not that of its documentation.
    """

@overload
def shot(
    data: _Sequence[DataNode],
    /,
    *,
    factor: float | DataNode = 12.0,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
