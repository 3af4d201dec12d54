"""``nvidia.dali.ops.experimental.readers``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class Fits:
    """Reads images in FITS files with astropy. Images and files may be compressed.

    Args:
        file_root: folder of the files. Those in it come first, sorted by name, then those in each of its folders. With
            `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        file_list: path of a text file with a name per line. Relative names in it begin from `file_root`, or else from the
            folder of this file.
        file_filter: shell pattern of file names below `file_root`. Upper and lower case are distinguished.
        hdu_indices: numbers of the HDUs to read, from 1 on. Each is an output.
        dtypes: a data type for each output. As in DALI, it has no effect, because the files determine the data types.

    Returns:
        The image of each HDU, in the order of axes of NumPy: the last axis of the header comes first. Scaled integers have
        the dtype FLOAT or FLOAT64, those with an offset are unsigned, or INT8. Pixels that a header calls `BLANK` are NaN.
    """
    def __init__(
        self,
        *,
        file_root: str | None = ...,
        files: _Strings | None = ...,
        file_list: str | None = ...,
        file_filter: str = ...,
        hdu_indices: _Ints = ...,
        dtypes: _Ints | None = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        file_root: str | None = ...,
        files: _Strings | None = ...,
        file_list: str | None = ...,
        file_filter: str = ...,
        hdu_indices: _Ints = ...,
        dtypes: _Ints | None = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> DataNode:
        ...
    
