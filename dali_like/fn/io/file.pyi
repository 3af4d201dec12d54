"""``nvidia.dali.fn.io.file``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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
def read(
    filepaths: DataNode | _Constant,
    /,
    *,
    remote_options: Any = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    dont_use_mmap: Any = False,
    use_o_direct: Any = False,
) -> DataNode:
    """Read whole files.

    Args:
        filepaths: path or URL of each file as a one-dimensional uint8 array, such as
            ``np.frombuffer(path.encode(), np.uint8)``.
        remote_options: a dict of arguments of `dali_like.remote.RemoteFiles`, for URLs.

    Returns:
        The bytes of the file, of shape (number of bytes,) and dtype UINT8.
    """

@overload
def read(
    filepaths: _Sequence[DataNode],
    /,
    *,
    remote_options: Any = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    dont_use_mmap: Any = False,
    use_o_direct: Any = False,
) -> list[DataNode]:
    ...
