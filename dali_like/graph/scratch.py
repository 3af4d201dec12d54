"""Memory that each thread keeps for what is between a sample and the result: within operators, and between them.

The C library gives large blocks back to the system when they are freed, and each new one costs a page fault for every 4 KiB:
more than many operators do with it. Threads of the main process and workers alike come back to the same sizes again and
again.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Blocks of less than this are as cheap from the C library, and those of more are too much to be kept.
_LEAST_BYTES = 1 << 14
_MOST_BYTES = 1 << 28


class _Blocks(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[Hashable, NDArray[Any]] = {}


_blocks = _Blocks()


def scratch(name: Hashable, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An uninitialised array, good until the thread asks for the next one of that name."""
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if not _LEAST_BYTES <= nbytes <= _MOST_BYTES:
        return np.empty(shape, dtype)
    block = _blocks.by_name.get(name)
    if block is None or block.nbytes < nbytes:
        block = _blocks.by_name[name] = np.empty(nbytes, np.uint8)
    array: NDArray[Any] = block[:nbytes].view(dtype).reshape(shape)
    return array
