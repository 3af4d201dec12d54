"""Page-lock the memory of a shared space, once per extent instead of once per batch.

Only the main process does so, because only it uses the GPU. Extents with permanent memory are locked: rows of slots,
and buffers. Regions of slots are not: their address space is large, and only the parts that a batch has touched have
memory.
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
        pinning: locks the pages.
        fenced: whether users see the memory. They may start a copy to a GPU and drop the array before the copy has
            ended.
    """

    def __init__(self, pinning: Pinning, *, fenced: bool) -> None:
        self._pinning = pinning
        self._fenced = fenced
        self._lock = threading.Lock()
        self._is_refused = False
        self._registered: set[int] = set()

    def made(self, address: int, nbytes: int) -> None:
        """Lock an extent. If the system refuses, warn once and lock nothing from then on."""
        if self._is_refused:
            return
        try:
            self._pinning.register(address, nbytes)
        except DeviceError as error:
            with self._lock:
                is_first, self._is_refused = not self._is_refused, True
            if is_first:
                warn(
                    f"batches are not page-locked, so copies to the GPU are slower: locking {mib(nbytes)} was refused "
                    f"({error}). Raise the limit of locked memory (`ulimit -l`), or hold fewer batches",
                    UserWarning,
                )
            return
        self._registered.add(address)

    def fence(self) -> Fence | None:
        """Return the fence that must pass before memory dropped by the user is reused."""
        return self._pinning.fence() if self._fenced and self._registered else None

    def freed(self, address: int) -> None:
        """Unlock an extent. The owner has waited for all copies from it."""
        if address in self._registered:
            self._registered.discard(address)
            self._pinning.unregister(address)
