"""Pauses of Python's garbage collector while modules of this package are imported.

An import creates thousands of objects that live for ever, which makes Python look for garbage. Behind ``import torch``, one
look at all objects takes 90 ms, as long as importing all that a loader needs.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["paused_collector"]


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Pause automatic collections within a ``with`` block that only imports. It must not fork, or call code of the user."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
