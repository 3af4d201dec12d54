"""The shared space: one sparse anonymous file, mapped once by each process. It has all memory shared between processes.

The file (`memfd_create`) has no name: no other program can open it, nothing stays behind after a crash, and the size of
/dev/shm does not matter. The file is far larger than the memory that is ever used: only touched pages cost memory. So
nothing is
ever remapped: growth takes another extent of the address space. The file is sealed against shrinking, so that no process can
remove pages that another one uses.

The process that creates the space, the main process, allocates and frees extents. All others only map it.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import resource
import threading
import weakref
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import available_bytes
from dali_like.engine.memory.protocol import align
from dali_like.errors import OutOfMemoryError

#: Address space for each byte of the machine's memory. It suffices for slots with a small touched part, and for a hundred
#: pipelines in one process.
_SPACE_PER_MEMORY = 32
_LEAST_SPACE_BYTES = 1 << 26
#: A limit suffices for buffers if it has room for this many more of them, and for twice the memory used already.
_MORE_BUFFERS = 4
_BLOCK_BYTES = 512  # the unit of st_blocks, see inode(7)


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
        """Return a fence behind all accesses to memory that is being released; None if there are none."""

    def freed(self, address: int) -> None:
        """Take note that the extent at an address, if `made` has named it, is about to lose its memory."""


class SharedSpace:
    """The address space that a pipeline and its workers share.

    Attributes:
        fd: descriptor of the file.
        size: address space, in bytes.
        limit_bytes: maximum memory behind it.
        map: the mapping.
        bytes: the mapping as one array; every view of it keeps the mapping alive.
        address: address of the mapping in this process.
        observer: hooks of a GPU; None without one.
    """

    _creator = 0

    def __init__(self, fd: Descriptor, size: int, limit_bytes: int) -> None:
        self.fd = fd
        self.size = size
        self.limit_bytes = limit_bytes
        self.map = mmap.mmap(fd.fileno(), size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.map, np.uint8)
        self.address: int = self.bytes.__array_interface__["data"][0]
        self.observer: Observer | None = None
        self._lock = threading.Lock()
        self._free = [(0, size)]
        self._extents: set[int] = set()  # offsets that `observer.made` has got
        self._keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()

    def __del__(self, getpid: Callable[[], int] = os.getpid, remove: int = mmap.MADV_REMOVE) -> None:
        # Free the pages now: forked processes, such as workers of other pipelines, may keep their mappings for long.
        # The defaults above keep names alive: at the exit of a program that keeps ``__main__`` alive, modules may be empty.
        if self._creator == getpid():
            while self.observer is not None and self._extents:
                self.observer.freed(self.address + self._extents.pop())
            self.map.madvise(remove, 0, self.size)

    @classmethod
    def create(cls, limit_bytes: int | None = None) -> SharedSpace:
        """Create a space, as large as the limits of this process allow.

        Args:
            limit_bytes: maximum memory behind it; None: half of the memory that is available now.

        Raises:
            OutOfMemoryError: less than 64 MiB of address space are free.
        """
        if limit_bytes is None:
            limit_bytes = available_bytes() // 2
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        size = 1 << (_SPACE_PER_MEMORY * memory_bytes).bit_length()
        if limit != resource.RLIM_INFINITY:
            size = min(size, align(limit // 4))
        fd = Descriptor(os.memfd_create("dali_like", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        has_collected = False
        while True:
            os.ftruncate(fd.fileno(), size)
            try:
                space = cls(fd, size, limit_bytes)
                space._creator = os.getpid()
                break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                if not has_collected:
                    has_collected = True
                    gc.collect()  # closed pipelines may be uncollected garbage that holds address space
                    continue
                if limit == resource.RLIM_INFINITY or size <= _LEAST_SPACE_BYTES:
                    raise OutOfMemoryError(
                        f"cannot map {size >> 20} MiB of address space for shared memory: other pipelines use it, or "
                        "`ulimit -v` limits it; drop the batches of other pipelines, or raise `ulimit -v`"
                    ) from None
                size //= 2
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return space

    @property
    def used_bytes(self) -> int:
        """The memory behind the space, in bytes."""
        return os.fstat(self.fd.fileno()).st_blocks * _BLOCK_BYTES

    def take(self, nbytes: int, committed: int) -> int:
        """Allocate an extent of at least `nbytes`, commit its first `committed` bytes, and return its offset. Thread-safe.

        Raises:
            OutOfMemoryError: as for `allocate` and `commit`.
        """
        offset = self.allocate(nbytes)
        try:
            self.commit(offset, committed)
        except BaseException:
            self.free(offset, nbytes)
            raise
        if self.observer is not None:
            self._extents.add(offset)
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
        nbytes = align(nbytes)
        with self._lock:
            for i, (offset, free_bytes) in enumerate(self._free):
                if free_bytes >= nbytes:
                    if free_bytes == nbytes:
                        del self._free[i]
                    else:
                        self._free[i] = (offset + nbytes, free_bytes - nbytes)
                    return offset
        raise OutOfMemoryError(
            f"no {nbytes >> 20} MiB are left of {self.size >> 20} MiB of shared address space; "
            "hold fewer batches, make batches smaller, or raise `ulimit -v`"
        )

    def free(self, offset: int, nbytes: int) -> None:
        """Free an extent and its pages. Thread-safe."""
        nbytes = align(nbytes)
        self.discard(offset, nbytes)
        with self._lock:
            i = bisect_left(self._free, (offset, 0))
            if i < len(self._free) and self._free[i][0] == offset + nbytes:
                nbytes += self._free.pop(i)[1]
            if i > 0 and sum(self._free[i - 1]) == offset:
                offset, before = self._free.pop(i - 1)
                nbytes += before
            insort(self._free, (offset, nbytes))

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

    def commit(self, offset: int, nbytes: int) -> None:
        """Put memory behind an extent now, so that touching it later cannot fail.

        Raises:
            OutOfMemoryError: the limit of the space, of the machine or of a control group would be exceeded.
        """
        self.check(nbytes)
        try:
            os.posix_fallocate(self.fd.fileno(), offset, nbytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise OutOfMemoryError(f"batches need {mib(nbytes)} more, which the system refuses") from error

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
                "Hold fewer batches, lower the prefetch depths or the batch size, or give the process more memory"
            )

    def limit_text(self, nbytes: int, sufficient_bytes: int) -> str:
        """Return the message for a need of `nbytes` more than the limit allows.

        Args:
            sufficient_bytes: a limit that suffices.
        """
        in_mib = -(-max(sufficient_bytes, self.limit_bytes + 1) >> 20)
        used, available = self.used_bytes, available_bytes()
        advice = (
            f"pass max_held_bytes={in_mib} << 20 ({in_mib} MiB), which suffices"
            if (in_mib << 20) - used <= available
            else f"give the process more memory: about {in_mib} MiB suffice, and {mib(used + available)} are available"
        )
        return (
            f"batches take {mib(used)} and need {mib(nbytes)} more; the limit is {mib(self.limit_bytes)}. Hold fewer "
            f"batches, lower the prefetch depths or the batch size, or {advice}"
        )

    def discard(self, offset: int, nbytes: int) -> None:
        """Free the pages of an extent. It reads as zeros afterwards."""
        if self.observer is not None:
            self._extents.discard(offset)
            self.observer.freed(self.address + offset)
        self.map.madvise(mmap.MADV_REMOVE, offset, nbytes)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array over the space."""
        return np.ndarray(shape, dtype, self.map, offset)


def mib(nbytes: int) -> str:
    """Format a number of bytes for messages."""
    return f"{nbytes / (1 << 20):.1f} MiB"
