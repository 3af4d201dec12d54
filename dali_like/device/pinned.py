"""The memory that batches lie in, page-locked: registered once when it is made, not for each batch.

The main process alone registers, since it alone talks to the GPU. What is registered are the extents of a space that have
memory for good: the rows of slots, and buffers. Regions of slots are not: they are large in address space, and have memory
only where a batch has touched them.
"""

from __future__ import annotations

import threading

from dali_like.common.notices import warn
from dali_like.device.interface import Pinning
from dali_like.engine.memory.space import Fence, mib
from dali_like.errors import DeviceError


class PinnedMemory:
    """Page-locks the memory of a space; see `dali_like.engine.memory.space.Observer`.

    Args:
        pinning: what locks it.
        fenced: whether users get at it, who may let a GPU copy it and drop it while that goes on.
    """

    def __init__(self, pinning: Pinning, *, fenced: bool) -> None:
        self._pinning = pinning
        self._fenced = fenced
        self._lock = threading.Lock()
        self._is_refused = False
        self._registered: set[int] = set()

    def made(self, address: int, nbytes: int) -> None:
        """Lock an extent. When that is refused, it is said once, and nothing is locked from then on."""
        if self._is_refused:
            return
        try:
            self._pinning.register(address, nbytes)
        except DeviceError as error:
            with self._lock:
                is_first, self._is_refused = not self._is_refused, True
            if is_first:
                warn(
                    f"batches are not page-locked, and are copied to the GPU more slowly: {mib(nbytes)} were refused "
                    f"({error}). Raise the limit of locked memory (`ulimit -l`), or hold fewer batches",
                    UserWarning,
                )
            return
        self._registered.add(address)

    def fence(self) -> Fence | None:
        """What must have passed before memory is used again that users have let go of."""
        return self._pinning.fence() if self._fenced and self._registered else None

    def freed(self, address: int) -> None:
        """Unlock an extent. Whoever had it has waited for the copies from it."""
        if address in self._registered:
            self._registered.discard(address)
            self._pinning.unregister(address)
