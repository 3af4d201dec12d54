"""Operators that read files, as in ``fn.io.file``."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

from dali_like.errors import SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator
from dali_like.sources.readers.stored_files import StoredFiles


@operator(module="io.file", output_layout="", ignored={"dont_use_mmap": False, "use_o_direct": False})
def read(call: OperatorCall, filepaths: Array, *, remote_options: Any = None) -> Array:
    """Read whole files.

    Args:
        filepaths: path or URL of each file as a one-dimensional uint8 array, such as
            ``np.frombuffer(path.encode(), np.uint8)``.
        remote_options: a dict of arguments of `dali_like.remote.RemoteFiles`, for URLs.

    Returns:
        The bytes of the file, of shape (number of bytes,) and dtype UINT8.
    """
    if filepaths.ndim != 1 or filepaths.dtype.itemsize != 1:
        raise SampleTypeError(
            f"filepaths must be one-dimensional arrays of bytes, not of {filepaths.dtype} and shape {filepaths.shape}: "
            "encode a path with np.frombuffer(path.encode(), np.uint8)"
        )
    files = _files(json.dumps(remote_options, default=str))
    return files.read_now(os.fsdecode(filepaths.tobytes()), empty=lambda nbytes: call.empty((nbytes,), "u1"))


@functools.lru_cache(16)
def _files(options: str) -> StoredFiles:
    return StoredFiles(json.loads(options))
