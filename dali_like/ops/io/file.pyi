"""``nvidia.dali.ops.io.file``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class Read:
    """Read whole files.

    Args:
        filepaths: path or URL of each file as a one-dimensional uint8 array, such as
            ``np.frombuffer(path.encode(), np.uint8)``.
        remote_options: a dict of arguments of `dali_like.remote.RemoteFiles`, for URLs.

    Returns:
        The bytes of the file, of shape (number of bytes,) and dtype UINT8.
    """
    def __init__(
        self,
        *,
        remote_options: Any = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: Any = ...,
        use_o_direct: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        filepaths: DataNode | _Constant,
        /,
        *,
        remote_options: Any = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: Any = ...,
        use_o_direct: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        filepaths: _Sequence[DataNode],
        /,
        *,
        remote_options: Any = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: Any = ...,
        use_o_direct: Any = ...,
    ) -> list[DataNode]:
        ...
    
