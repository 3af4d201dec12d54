"""``nvidia.dali.ops.readers``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class File:
    """Reads files, and returns their bytes and labels.

    There are three ways to list the files:

    - `file_root` alone: each folder in it is a class. The folders, sorted by their names, have the labels 0, 1, 2 and so on,
      whether or not they contain files. The files in a folder are sorted by their names. Deeper folders are not read.
    - `file_list`: a text file with a name and a label per line, such as ``dog.jpg 0``.
    - `files`: the paths.

    Args:
        file_root: folder of the classes; with `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        labels: a label for each of `files`. Default: their numbers in `files`.
        file_list: path of a text file. Relative names in it begin from `file_root`, or else from the folder of this file.
        file_filters: shell patterns of file names in the folders; a name must match one of them. Default: images and audio
            files, by their extensions.
        dir_filters: shell patterns of names of folders. Default: all folders.
        case_sensitive_filter: whether patterns distinguish upper and lower case.

    Returns:
        The bytes of a file, of shape (number of bytes,) and dtype UINT8, and the label, of shape (1,) and dtype INT32.
    """
    def __init__(
        self,
        *,
        file_root: str | None = ...,
        files: _Strings | None = ...,
        labels: _Ints | None = ...,
        file_list: str | None = ...,
        file_filters: _Strings = ...,
        dir_filters: _Strings | None = ...,
        case_sensitive_filter: bool = ...,
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
        labels: _Ints | None = ...,
        file_list: str | None = ...,
        file_filters: _Strings = ...,
        dir_filters: _Strings | None = ...,
        case_sensitive_filter: bool = ...,
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
    ) -> list[DataNode]:
        ...
    
