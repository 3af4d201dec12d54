"""Page-lock the memory of a shared space, once per extent instead of once per batch.

Only the main process does so, because only it uses the GPU. Extents with permanent memory are locked: rows of slots,
and buffers. Regions of slots are not: their address space is large, and only the parts that a batch has touched have
memory.
"""

from __future__ import annotations

import contextlib

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

    Attributes:
        fenced: as given. May become True later.
    """

    def __init__(self, pinning: Pinning, *, fenced: bool) -> None:
        self._pinning = pinning
        self.fenced = fenced
        self._has_warned = False
        self._has_warned_of_kept = False
        #: The sizes of page-locked extents, by address.
        self._registered: dict[int, int] = {}

    def made(self, address: int, nbytes: int) -> None:
        """Lock an extent. If CUDA refuses, warn once; the next extent is tried again."""
        try:
            self._pinning.register(address, nbytes)
        except DeviceError as error:
            if not self._has_warned:
                self._has_warned = True
                warn(
                    f"batches are not page-locked, so copies to the GPU are slower: CUDA refused to lock {mib(nbytes)} "
                    f"({error}). Hold fewer or smaller batches, or raise the kernel's limit of memory mappings: "
                    "`sysctl -w vm.max_map_count=262144`",
                    UserWarning,
                )
            return
        self._registered[address] = nbytes

    def is_locked(self, address: int) -> bool:
        """Whether the extent at an address is page-locked."""
        return address in self._registered

    def covers(self, address: int, nbytes: int) -> bool:
        """Whether memory lies in one page-locked extent."""
        extents = list(self._registered.items())  # other threads may add and remove some
        return any(begin <= address and address + nbytes <= begin + size for begin, size in extents)

    def fence(self) -> Fence | None:
        """Return the fence that must pass before memory dropped by the user is reused."""
        return self._pinning.fence() if self.fenced and self._registered else None

    def freed(self, address: int) -> bool:
        """Unlock an extent, and return whether that worked. The owner has waited for all copies from it."""
        if address not in self._registered:
            return True
        if self._pinning.unregister(address):
            self._registered.pop(address, None)
            return True
        if not self._has_warned_of_kept:
            self._has_warned_of_kept = True
            with contextlib.suppress(UserWarning):  # finalizers must not raise, even if warnings are errors
                warn(
                    "CUDA refused to unlock memory of batches, so this memory is kept and not used again. If the memory of "
                    "this process grows too large, start the program again",
                    UserWarning,
                )
        return False
