"""Dynamic mode: operators as functions of tensors, batches and arrays, as in ``nvidia.dali.experimental.dynamic``.

>>> import numpy as np
>>> import dali_like.experimental.dynamic as ndd
>>> image = ndd.as_tensor(np.arange(6, dtype=np.uint8).reshape(1, 2, 3), layout="HWC")
>>> np.asarray(ndd.flip(image)).tolist()
[[[3, 4, 5], [0, 1, 2]]]
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.stability import warn_unstable
from dali_like.experimental.dynamic import _modules, capture, checkpoint, pytorch
from dali_like.experimental.dynamic.data_types import (
    DataType,
    DType,
    ImageType,
    InterpType,
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    type_id,
    uint8,
    uint16,
    uint32,
    uint64,
)
from dali_like.experimental.dynamic.data_types import bool_ as bool
from dali_like.experimental.dynamic.evaluation import EvalContext, EvalMode
from dali_like.experimental.dynamic.item_source import ExternalSource
from dali_like.experimental.dynamic.placing import Device, device
from dali_like.experimental.dynamic.stream_handles import (
    Stream,
    get_current_stream,
    get_default_stream,
    set_current_stream,
    set_default_stream,
    stream,
)
from dali_like.experimental.dynamic.thread_pools import ThreadPool, get_num_threads, set_num_threads
from dali_like.experimental.dynamic.values import Batch, Tensor, as_batch, as_tensor, batch, tensor

# The functions made by `_modules` are not listed.
__all__ = [
    "Batch",
    "DType",
    "DataType",
    "Device",
    "EvalContext",
    "EvalMode",
    "ExternalSource",
    "ImageType",
    "InterpType",
    "Stream",
    "Tensor",
    "ThreadPool",
    "as_batch",
    "as_tensor",
    "batch",
    "bfloat16",
    "bool",
    "capture",
    "checkpoint",
    "device",
    "dtype",
    "float16",
    "float32",
    "float64",
    "get_current_stream",
    "get_default_stream",
    "get_num_threads",
    "imread",
    "int8",
    "int16",
    "int32",
    "int64",
    "pytorch",
    "set_current_stream",
    "set_default_stream",
    "set_num_threads",
    "stream",
    "tensor",
    "type_id",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

warn_unstable("dali_like.experimental.dynamic")
_modules.fill()

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # for type checkers: the functions that `_modules` makes


def imread(filepaths: Any, /, **options: Any) -> Any:
    """Read and decode images.

    Args:
        filepaths: a path, or a tensor with the bytes of one; or a list or batch of these.
        options: arguments of ``decoders.image``, such as ``device="mixed"``.

    Returns:
        A tensor, or a batch for a list or batch of paths.
    """
    from dali_like.experimental.dynamic import decoders, io  # made above

    if isinstance(filepaths, Sequence) and not isinstance(filepaths, (str, bytes)):
        paths: Any = as_batch([_path_bytes(path) for path in filepaths])
    else:
        paths = _path_bytes(filepaths)
    return decoders.image(io.file.read(paths), **options)


def _path_bytes(path: Any) -> Any:
    if isinstance(path, (Tensor, Batch)):
        return path
    return tensor(np.frombuffer(os.fsencode(path), np.uint8))
