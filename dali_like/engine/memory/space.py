"""The shared space of a pipeline: extents of a file that its processes share, with memory behind them up to a limit.

The process that creates the space, the main process, allocates and frees extents. All others only map the file, see
`dali_like.engine.memory.shared_file`. Each pipeline with workers has a file of its own. Sources without workers need no
process to see it, so their spaces may share one file: thousands of small pipelines take few descriptors and little address
space.
"""

from __future__ import annotations

import errno
import gc
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.limits import available_bytes
from dali_like.engine.memory.protocol import align
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.system_calls import advise_on_shortage, free_pages, put_memory_behind
from dali_like.errors import OutOfMemoryError

#: A limit suffices for buffers if it has room for this many more of them, and for twice the memory used already.
_MORE_BUFFERS = 4
_HOLD_FEWER = "Hold fewer batches (one view of a sample holds its whole batch: copy what you keep)"
_BLOCK_BYTES = 512  # the unit of st_blocks, see inode(7)
#: Files of deleted spaces with pages that a GPU has not given up. The kernel must map no other memory at their addresses.
_kept_files: list[SharedFile] = []


class Keeper(Protocol):
    """Holder of unused memory of a space, for reuse: a `dali_like.engine.memory.ring.Ring`."""

    def drop_free(self) -> None:
        """Free the unused memory. The thread that uses the pool calls it when memory is short; it may wait for fences."""


class Fence(Protocol):
    """Accesses to memory that may go on after the memory is released: copies by a GPU.

    `Observer.fence` makes a fence when memory is released. A ring asks it before it reuses the memory. Valid in any thread.
    """

    def passed(self) -> bool:
        """Return whether the accesses have ended. Must not raise or wait."""

    def wait(self) -> None:
        """Wait until the accesses have ended. Must not raise."""


class Observer(Protocol):
    """Hooks of a GPU into the memory of slots: it pins them, and delays their reuse.

    The space calls the methods in any thread. Finalizers call `fence` and `freed`, so these must not take a lock that the
    same thread may hold.
    """

    def made(self, address: int, nbytes: int) -> None:
        """Take note of a new extent whose first `nbytes` have memory until `freed`."""

    def fence(self) -> Fence | None:
        """Return a fence behind all accesses to memory that is being released; None without accesses."""

    def freed(self, address: int) -> bool:
        """Take note that the extent at an address, if `made` has named it, is about to lose its memory.

        Returns:
            False if the GPU cannot give up the pages. Then the extent must keep them, and must not be reused.
        """


class SharedSpace:
    """The memory that a pipeline and its workers share.

    Args:
        file: the file.
        limit_bytes: maximum memory of this space.
        shares_file: whether other spaces of this process use the file, too.

    Attributes:
        file, limit_bytes, shares_file: as given.
        fd, has_file, size, map, bytes, address: those of the file.
        observer: hooks of a GPU; None without one.
        serves_operators: whether operators of the main process have their results here. Their sizes are not known ahead.
    """

    def __init__(self, file: SharedFile, limit_bytes: int, *, shares_file: bool = False) -> None:
        self.file = file
        self.fd = file.fd
        self.has_file = file.has_file
        self.size = file.size
        self.limit_bytes = limit_bytes
        self.map = file.map
        self.bytes: NDArray[np.uint8] = file.bytes
        self.address = file.address
        self.observer: Observer | None = None
        self.serves_operators = False
        #: Held from the check of the limit to the commitment: else two threads could exceed the limit together. The kernel
        #: gives memory to one file in one thread at a time in any case.
        self._commit_lock = threading.Lock()
        self.shares_file = shares_file
        self._taken: dict[int, int] = {}  # offsets and sizes of the extents of `take`
        #: Of a shared file, the kernel cannot tell what this space uses of it. So memory is counted: by extent, and in total
        #: with all changes that have not been added yet. Finalizers append to these, because they must not take the lock.
        self._is_counted = shares_file or not file.has_file
        self._memory: dict[int, int] = {}
        self._changes: deque[int] = deque()
        self._total_bytes = 0
        self._count_lock = threading.Lock()
        self._observed: set[int] = set()  # offsets that `observer.made` has got
        #: Offset and size of freed extents whose pages the GPU has not given up.
        self._kept: list[tuple[int, int]] = []
        self._keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()

    def __del__(
        self,
        getpid: Callable[[], int] = os.getpid,
        free: Callable[..., bool] = free_pages,
        kept_files: list[SharedFile] = _kept_files,
    ) -> None:
        # The defaults above keep names alive: at the exit of a program that keeps ``__main__`` alive, modules may be empty.
        # The file frees the pages if it ends with this space.
        file = self.file
        if file.creator != getpid() or file.is_lent:
            return
        kept = {
            offset
            for offset in self._observed
            if self.observer is not None and not self.observer.freed(self.address + offset)
        }
        if kept or self.shares_file:
            for offset, nbytes in self._taken.items():
                if offset not in kept:
                    free(self.map, offset, nbytes)
                    file.returned.append((offset, nbytes))
        if kept:
            file.keeps_pages = True
            kept_files.append(file)

    @classmethod
    def create(cls, limit_bytes: int | None = None, *, for_processes: bool = True) -> SharedSpace:
        """Create a space with a file of its own.

        Args:
            limit_bytes: maximum memory behind it; None: half of the memory that is available now.
            for_processes: whether worker processes will map it.

        Raises:
            OutOfMemoryError: less than 64 MiB of address space are free, or `ulimit -f` is lower.
            UnsupportedSystemError: the system refuses a file for worker processes.
        """
        if limit_bytes is None:
            limit_bytes = available_bytes() // 2
        return cls(SharedFile.create(limit_bytes, for_processes=for_processes), limit_bytes)

    @classmethod
    def create_in_common(cls, limit_bytes: int | None = None) -> SharedSpace:
        """Create a space for sources without workers, in a file that such spaces share. Takes the argument of `create`.

        Raises:
            OutOfMemoryError: there is no such file yet, and less than 64 MiB of address space are free.
        """
        if limit_bytes is None:
            limit_bytes = available_bytes() // 2
        return cls(SharedFile.in_common(limit_bytes), limit_bytes, shares_file=True)

    @property
    def used_bytes(self) -> int:
        """The memory behind the space, in bytes."""
        if not self._is_counted:
            return os.fstat(self.fd.fileno()).st_blocks * _BLOCK_BYTES
        with self._count_lock:
            while self._changes:
                self._total_bytes += self._changes.popleft()
            return self._total_bytes

    def take(self, nbytes: int, committed: int) -> int:
        """Allocate an extent of at least `nbytes`, commit its first `committed` bytes, and return its offset. Thread-safe.

        Raises:
            OutOfMemoryError: as for `allocate` and `commit`.
        """
        if self._kept:
            self._free_kept()
        offset = self.allocate(nbytes)
        self._taken[offset] = align(nbytes)
        try:
            with self._commit_lock:
                self.commit(offset, committed)
        except BaseException:
            self.free(offset, nbytes)
            raise
        if self.observer is not None:
            self._observed.add(offset)
            self.observer.made(self.address + offset, committed)
        return offset

    def fence(self) -> Fence | None:
        """Return the fence to wait for before memory that is being released is reused; None: no fence."""
        return self.observer.fence() if self.observer is not None else None

    def allocate(self, nbytes: int) -> int:
        """Allocate an extent of at least `nbytes`, without memory, and return its offset. Thread-safe.

        Raises:
            OutOfMemoryError: no free extent is that large.
        """
        return self.file.allocate(nbytes)

    def free(self, offset: int, nbytes: int) -> None:
        """Free an extent and its pages. Thread-safe."""
        nbytes = align(nbytes)
        if self.discard(offset, nbytes):
            self._taken.pop(offset, None)
            self.file.free(offset, nbytes)

    def shrink(self, offset: int, nbytes: int) -> None:
        """Free the end of an extent of `take`, and keep its first `nbytes`. The end must have no memory."""
        nbytes = align(nbytes)
        if (rest := self._taken[offset] - nbytes) > 0:
            self._taken[offset] = nbytes
            self.file.free(offset + nbytes, rest)

    def register(self, keeper: Keeper) -> None:
        """Add a keeper for `drop_free`. The space holds a weak reference."""
        self._keepers.add(keeper)

    def drop_free(self) -> None:
        """Let all keepers free their unused memory."""
        for keeper in list(self._keepers):
            keeper.drop_free()

    def reclaim(self) -> None:
        """Collect garbage, which may hold batches, and free unused memory. Slow: the last attempt before an error."""
        gc.collect()
        self.drop_free()

    def commit(self, offset: int, nbytes: int, part: int | None = None) -> None:
        """Put memory behind an extent now, so that touching it later cannot fail.

        Args:
            part: the offset that `discard` frees this memory by; default: `offset`.

        Raises:
            OutOfMemoryError: the limit of the space, of the machine or of a control group would be exceeded.
        """
        self.check(nbytes)
        if self.has_file:
            try:
                put_memory_behind(self.fd.fileno(), offset, nbytes)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                    raise
                advice = advise_on_shortage(self.fd.fileno())
                raise OutOfMemoryError(f"batches need {mib(nbytes)} more, which the system refuses{advice}") from error
        if self._is_counted:
            key = offset if part is None else part
            with self._count_lock:
                self._memory[key] = self._memory.get(key, 0) + align(nbytes)
                self._changes.append(align(nbytes))

    def check(self, nbytes: int) -> None:
        """Check that `nbytes` more could be committed now.

        Raises:
            OutOfMemoryError: as for `commit`.
        """
        used = self.used_bytes
        if used + nbytes > self.limit_bytes:
            raise OutOfMemoryError(self.limit_text(nbytes, 2 * used + _MORE_BUFFERS * nbytes))
        available = available_bytes()
        if nbytes > available:
            raise OutOfMemoryError(
                f"batches need {mib(nbytes)} more, and {mib(available)} are available (they take {mib(used)} now). "
                f"{_HOLD_FEWER}, lower the prefetch depths or the batch size, or give the process more memory"
            )

    def limit_text(self, nbytes: int, sufficient_bytes: int) -> str:
        """Return the message for a need of `nbytes` more than the limit allows.

        Args:
            sufficient_bytes: a limit that suffices, except for results of operators that have not run yet.
        """
        in_mib = -(-max(sufficient_bytes, self.limit_bytes + 1) >> 20)
        used, available = self.used_bytes, available_bytes()
        certainty = "; operators in the main process may need more" if self.serves_operators else ", which suffices"
        advice = (
            f"pass max_held_bytes={in_mib} << 20 ({in_mib} MiB){certainty}"
            if (in_mib << 20) - used <= available
            else f"give the process more memory: about {in_mib} MiB suffice, and {mib(used + available)} are available"
        )
        return (
            f"batches take {mib(used)} and need {mib(nbytes)} more; the limit is {mib(self.limit_bytes)}. "
            f"{_HOLD_FEWER}, lower the prefetch depths or the batch size, or {advice}"
        )

    def discard(self, offset: int, nbytes: int) -> bool:
        """Free the pages of an extent, where the system can do that; return whether the extent may be used again.

        If the pages are freed, the extent reads as zeros afterwards. A GPU that cannot give up the pages would read them
        instead of later ones. So the space keeps such an extent, with its pages and address space, and tries again when it
        allocates the next one.
        """
        if self.file.is_lent:
            return False
        if self.observer is not None:
            if not self.observer.freed(self.address + offset):
                self._kept.append((offset, nbytes))
                return False
            self._observed.discard(offset)
        if (freed := self._memory.pop(offset, 0)) > 0:
            self._changes.append(-freed)
        free_pages(self.map, offset, nbytes)
        return True

    def _free_kept(self) -> None:
        """Try again to free the extents that `discard` has kept."""
        kept, self._kept = self._kept, []
        for offset, nbytes in kept:
            self.free(offset, nbytes)

    def clear(self, offset: int, nbytes: int) -> None:
        """Fill a small extent with zeros, and free its pages where the system can do that."""
        if not free_pages(self.map, offset, nbytes):
            self.map[offset : offset + nbytes] = bytes(nbytes)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array over the space."""
        return np.ndarray(shape, dtype, self.map, offset)


def mib(nbytes: int) -> str:
    """Format a number of bytes for messages."""
    return f"{nbytes / (1 << 20):.1f} MiB"
