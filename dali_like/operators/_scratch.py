"""Memory that each thread keeps for what is between the input and the result of an operator.

The C library gives large blocks back to the system when they are freed, and each new one costs a page fault for every 4 KiB:
more than many operators do with it. Threads of the main process and workers alike come back to the same sizes again and
again.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from dali_like.graph.operators import Array

#: Blocks of more than this are not kept.
_MOST_BYTES = 1 << 28


class _Blocks(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, Array] = {}


_blocks = _Blocks()


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised array, good until the thread asks for the next one of that name."""
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > _MOST_BYTES:
        return np.empty(shape, dtype)
    block = _blocks.by_name.get(name)
    if block is None or block.nbytes < nbytes:
        block = _blocks.by_name[name] = np.empty(nbytes, np.uint8)
    array: Array = block[:nbytes].view(dtype).reshape(shape)
    return array
