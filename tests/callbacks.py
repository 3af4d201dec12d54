"""Callbacks that several tests use. They travel to spawned workers by name, so this module imports nothing of pytest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.types import SampleInfo


def number(info: SampleInfo) -> np.int64:
    """Return the index in the epoch."""
    return np.int64(info.idx_in_epoch)


def ragged(info: SampleInfo) -> NDArray[Any]:
    """Return an int32 array of one to three rows of five, filled with the index in the epoch."""
    return np.full((info.idx_in_epoch % 3 + 1, 5), info.idx_in_epoch, np.int32)
