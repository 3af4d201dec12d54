"""One sparse anonymous file, mapped once a process: all memory that passes between processes.

The file (`memfd_create`) has no name: nobody else can open it, nothing stays behind whoever is killed, and the size of
/dev/shm does not matter. It is far larger than it will ever be used; only touched pages cost memory. So nothing is ever
remapped: growth takes another extent of the address space. It is sealed against shrinking, so that no process can pull
pages from under another.

The process that creates the space decides who uses which extent. All others map it and follow what they are told.
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

#: Address space for each byte of memory that the machine has: enough for slots of which a small part is touched, and for a
#: hundred pipelines in one process.
_SPACE_PER_MEMORY = 32
_LEAST_SPACE_BYTES = 1 << 26
_BLOCK_BYTES = 512  # the unit of st_blocks, see inode(7)


class Keeper(Protocol):
    """Keeps memory of a space that nobody uses."""

    def drop_free(self) -> None:
        """Give that memory back."""


class Fence(Protocol):
    """What may still be reading or writing memory that nobody holds any more: a GPU's copies, say."""

    def passed(self) -> bool:
        """Whether that has ended. Raises nothing, and does not wait."""

    def wait(self) -> None:
        """Wait until it has ended. Raises nothing."""


class Observer(Protocol):
    """Is told which extents of a space have memory for good, and says when such memory may be used again.

    Its methods are called in any thread; the last two by finalizers, too.
    """

    def made(self, address: int, nbytes: int) -> None:
        """Memory has been put behind an extent."""

    def fence(self) -> Fence | None:
        """Nobody holds some memory any more: what must have passed before it is used again; None: nothing."""

    def freed(self, address: int) -> None:
        """The memory of the extent that begins there, if there is one, is about to be given back."""


class SharedSpace:
    """The address space that a pipeline and its workers share.

    Attributes:
        fd: descriptor of the file.
        size: bytes of address space.
        limit_bytes: how much memory may be behind it.
        map: the mapping.
        bytes: the mapping as one array; every view of it keeps the mapping.
        address: where the mapping begins in this process.
        observer: is told of the extents that `take` has put memory behind.
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
        self._extents: set[int] = set()  # that the observer has been told of
        self._keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()

    def __del__(self, getpid: Callable[[], int] = os.getpid, remove: int = mmap.MADV_REMOVE) -> None:
        # Processes that were forked meanwhile, workers of other pipelines among them, may map it for as long as they live.
        # Whoever keeps ``__main__`` alive, as dill does, lets this happen when modules are empty already.
        if self._creator == getpid():
            while self.observer is not None and self._extents:
                self.observer.freed(self.address + self._extents.pop())
            self.map.madvise(remove, 0, self.size)

    @classmethod
    def create(cls, limit_bytes: int | None = None) -> SharedSpace:
        """A new space, as large as the limits of this process allow.

        Args:
            limit_bytes: how much memory may be behind it. Default: half of what is available now.

        Raises:
            OutOfMemoryError: not even 64 MiB of address space can be had.
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
                    gc.collect()  # pipelines that are closed may be garbage, which keeps their address space
                    continue
                if limit == resource.RLIM_INFINITY or size <= _LEAST_SPACE_BYTES:
                    raise OutOfMemoryError(
                        f"cannot map {size >> 20} MiB of address space for shared memory: other pipelines, whose batches "
                        "may still be held, have used it up, or `ulimit -v` limits it"
                    ) from None
                size //= 2
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return space

    @property
    def used_bytes(self) -> int:
        """How much memory is behind the space."""
        return os.fstat(self.fd.fileno()).st_blocks * _BLOCK_BYTES

    def take(self, nbytes: int, committed: int) -> int:
        """Take an extent of at least `nbytes`, put memory behind the first `committed` of them, and return its offset.

        Thread-safe.

        Raises:
            OutOfMemoryError: as `allocate` and `commit`.
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
        """Nobody holds some memory of this space any more: what must have passed before it is used again."""
        return self.observer.fence() if self.observer is not None else None

    def allocate(self, nbytes: int) -> int:
        """Take an extent of at least `nbytes`, without memory behind it, and return its offset. Thread-safe.

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
        """Give an extent back, its pages included. Thread-safe."""
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
        """Make somebody known who keeps memory for later use."""
        self._keepers.add(keeper)

    def drop_free(self) -> None:
        """Let all who keep memory for later use give it back."""
        for keeper in list(self._keepers):
            keeper.drop_free()

    def reclaim(self) -> None:
        """Let go of batches that nothing but garbage holds, too. That is slow, and the last thing before an error."""
        gc.collect()
        self.drop_free()

    def commit(self, offset: int, nbytes: int) -> None:
        """Put memory behind an extent now, so that touching it later cannot fail.

        Raises:
            OutOfMemoryError: the limit would be exceeded, or the machine or the control group does not have it.
        """
        self.check(nbytes)
        try:
            os.posix_fallocate(self.fd.fileno(), offset, nbytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise OutOfMemoryError(f"batches need {mib(nbytes)} more, which the system refuses") from error

    def check(self, nbytes: int) -> None:
        """Whether so much memory could be put behind the space now.

        Raises:
            OutOfMemoryError: as `commit`.
        """
        used = self.used_bytes
        if used + nbytes > self.limit_bytes:
            raise OutOfMemoryError(
                f"batches take {mib(used)} and need {mib(nbytes)} more; the limit is {mib(self.limit_bytes)}. "
                "Hold fewer batches, lower the prefetch depths or the batch size, or raise max_held_bytes"
            )
        available = available_bytes()
        if nbytes > available:
            raise OutOfMemoryError(
                f"batches need {mib(nbytes)} more, and {mib(available)} are available (they take {mib(used)} now). "
                "Hold fewer batches, lower the prefetch depths or the batch size, or give the process more memory"
            )

    def discard(self, offset: int, nbytes: int) -> None:
        """Give the pages of an extent back to the system; it reads as zeros afterwards."""
        if self.observer is not None:
            self._extents.discard(offset)
            self.observer.freed(self.address + offset)
        self.map.madvise(mmap.MADV_REMOVE, offset, nbytes)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A view of the space as an array."""
        return np.ndarray(shape, dtype, self.map, offset)


def mib(nbytes: int) -> str:
    """A number of bytes as messages show it."""
    return f"{nbytes / (1 << 20):.1f} MiB"
