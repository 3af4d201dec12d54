"""The shared space: one sparse anonymous file, mapped once by each process. It has all memory shared between processes.

The file (`memfd_create`) has no name: no other program can open it, nothing stays behind after a crash, and the size of
/dev/shm does not matter. The file is far larger than the memory that is ever used: only touched pages cost memory. So
nothing is ever remapped: growth takes another extent of the address space. The file is sealed against shrinking, so that no
process can remove pages that another one uses.

The process that creates the space, the main process, allocates and frees extents. All others only map it.

Where the system has no such file, a space that no worker process shares is a plain anonymous mapping.
`dali_like.engine.memory.system_calls` has the fallbacks for other missing calls.
"""

from __future__ import annotations

import errno
import gc
import mmap
import os
import threading
import weakref
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import address_space_limit, available_bytes, read_file
from dali_like.engine.memory.protocol import align
from dali_like.engine.memory.system_calls import (
    advise_on_shortage,
    anonymous_file,
    free_pages,
    map_memory,
    put_memory_behind,
    seal,
)
from dali_like.errors import OutOfMemoryError, UnsupportedSystemError

#: Address space for each byte of the memory limit: slots with varying samples touch only a small part of their extents.
_SPACE_PER_LIMIT = 64
_LEAST_USUAL_BYTES = 1 << 36
_MOST_BYTES = 1 << 42
_LEAST_BYTES = 1 << 26
#: A process has at most 47 bits of address space on x86-64. A space takes 1/32 of the free part, so that a hundred pipelines
#: fit. Drivers of GPUs reserve address space for all memory of the machine, so some must be left for them as well.
_PROCESS_BYTES = 1 << 47
_SHARE_OF_FREE = 32
#: The same where `ulimit -v` limits the address space. Programs that set it have few pipelines.
_SHARE_OF_LIMIT = 4
#: A limit suffices for buffers if it has room for this many more of them, and for twice the memory used already.
_MORE_BUFFERS = 4
_BLOCK_BYTES = 512  # the unit of st_blocks, see inode(7)
#: Mappings of deleted spaces with pages that a GPU has not given up. The kernel must map no other memory at their addresses.
_kept_maps: list[mmap.mmap] = []


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

    def freed(self, address: int) -> bool:
        """Take note that the extent at an address, if `made` has named it, is about to lose its memory.

        Returns:
            False if the GPU cannot give up the pages. Then the extent must keep them, and must not be reused.
        """


class SharedSpace:
    """The address space that a pipeline and its workers share.

    Attributes:
        has_file: whether there is a file, and not only a mapping of this process.
        fd: descriptor of the file.
        size: address space, in bytes.
        limit_bytes: maximum memory behind it.
        map: the mapping.
        bytes: the mapping as one array; every view of it keeps the mapping alive.
        address: address of the mapping in this process.
        observer: hooks of a GPU; None without one.
        serves_operators: whether operators of the main process have their results here. Their sizes are not known ahead.
        is_lent: whether other programs read batches here for as long as they like. Then no pages are freed anymore.
    """

    _creator = 0
    _existing: ClassVar[weakref.WeakSet[SharedSpace]] = weakref.WeakSet()

    def __init__(self, fd: Descriptor, size: int, limit_bytes: int) -> None:
        self.fd = fd
        self.has_file = fd.fileno() >= 0
        self.size = size
        self.limit_bytes = limit_bytes
        self.map = map_memory(fd.fileno(), size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.map, np.uint8)
        self.address: int = self.bytes.__array_interface__["data"][0]
        self.observer: Observer | None = None
        self.serves_operators = False
        self.is_lent = False
        self._lock = threading.Lock()
        #: Held from the check of the limit to the commitment: else two threads could exceed the limit together. The kernel
        #: gives memory to one file in one thread at a time in any case.
        self._commit_lock = threading.Lock()
        self._free = [(0, size)]
        self._extents: dict[int, int] = {}  # offsets and sizes that `observer.made` has got
        #: Offset and size of freed extents whose pages the GPU has not given up.
        self._kept: list[tuple[int, int]] = []
        self._committed: dict[int, int] = {}  # without a file: sizes of the parts with memory, by offset
        self._keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()
        self._existing.add(self)

    def __del__(
        self,
        getpid: Callable[[], int] = os.getpid,
        free: Callable[..., bool] = free_pages,
        kept_maps: list[mmap.mmap] = _kept_maps,
    ) -> None:
        # Free the pages now: forked processes, such as workers of other pipelines, may keep their mappings for long.
        # The defaults above keep names alive: at the exit of a program that keeps ``__main__`` alive, modules may be empty.
        if self._creator == getpid() and not self.is_lent:
            begin = 0
            for offset, nbytes in sorted(self._extents.items()):
                if self.observer is not None and not self.observer.freed(self.address + offset):
                    if offset > begin:
                        free(self.map, begin, offset - begin)
                    begin = offset + nbytes
            if self.size > begin:
                free(self.map, begin, self.size - begin)
            if begin:
                kept_maps.append(self.map)

    @classmethod
    def create(cls, limit_bytes: int | None = None, *, for_processes: bool = True) -> SharedSpace:
        """Create a space, as large as the limits of this process allow.

        Args:
            limit_bytes: maximum memory behind it; None: half of the memory that is available now.
            for_processes: whether worker processes will map it.

        Raises:
            OutOfMemoryError: less than 64 MiB of address space are free.
            UnsupportedSystemError: the system refuses a file for worker processes.
        """
        if limit_bytes is None:
            limit_bytes = available_bytes() // 2
        size = _affordable_bytes(_wanted_bytes(limit_bytes))
        fd = _file(for_processes=for_processes)
        has_collected = False
        while True:
            try:
                if fd.fileno() >= 0:
                    os.ftruncate(fd.fileno(), size)
                space = cls(fd, size, limit_bytes)
                space._creator = os.getpid()
                break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                if not has_collected:
                    has_collected = True
                    gc.collect()  # as in `_affordable_bytes`
                    continue
                if size <= _LEAST_BYTES:
                    raise OutOfMemoryError(
                        f"cannot map {size >> 20} MiB of address space for shared memory: other pipelines use it, or "
                        "`ulimit -v` limits it; drop the batches of other pipelines, or raise `ulimit -v`"
                    ) from None
                size = align(size // 2)
        if fd.fileno() >= 0:
            seal(fd.fileno(), "SHRINK", "GROW")
        return space

    @classmethod
    def of_address(cls, address: int) -> SharedSpace | None:
        """Return the space of this process with a file and with an address in it; None if there is none."""
        found = (space for space in list(cls._existing) if space.has_file and 0 <= address - space.address < space.size)
        return next(found, None)

    @property
    def used_bytes(self) -> int:
        """The memory behind the space, in bytes."""
        if not self.has_file:
            return sum(list(self._committed.values()))
        return os.fstat(self.fd.fileno()).st_blocks * _BLOCK_BYTES

    def take(self, nbytes: int, committed: int) -> int:
        """Allocate an extent of at least `nbytes`, commit its first `committed` bytes, and return its offset. Thread-safe.

        Raises:
            OutOfMemoryError: as for `allocate` and `commit`.
        """
        if self._kept:
            self._free_kept()
        offset = self.allocate(nbytes)
        try:
            with self._commit_lock:
                self.commit(offset, committed)
        except BaseException:
            self.free(offset, nbytes)
            raise
        if self.observer is not None:
            self._extents[offset] = align(committed)
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
        if not self.discard(offset, nbytes):
            return
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
        if not self.has_file:
            self._committed[offset] = nbytes
            return
        try:
            put_memory_behind(self.fd.fileno(), offset, nbytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            advice = advise_on_shortage(self.fd.fileno())
            raise OutOfMemoryError(f"batches need {mib(nbytes)} more, which the system refuses{advice}") from error

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
            f"batches take {mib(used)} and need {mib(nbytes)} more; the limit is {mib(self.limit_bytes)}. Hold fewer "
            f"batches, lower the prefetch depths or the batch size, or {advice}"
        )

    def discard(self, offset: int, nbytes: int) -> bool:
        """Free the pages of an extent, where the system can do that; return whether the extent may be used again.

        If the pages are freed, the extent reads as zeros afterwards. A GPU that cannot give up the pages would read them
        instead of later ones. So the space keeps such an extent, with its pages and address space, and tries again when it
        allocates the next one.
        """
        if self.is_lent:
            return False
        if self.observer is not None:
            if not self.observer.freed(self.address + offset):
                self._kept.append((offset, nbytes))
                return False
            self._extents.pop(offset, None)
        for start in [start for start in list(self._committed) if offset <= start < offset + nbytes]:
            self._committed.pop(start, None)
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


def _wanted_bytes(limit_bytes: int) -> int:
    """Return the address space that a pipeline with this limit of memory can use: a power of two."""
    return min(max(1 << (_SPACE_PER_LIMIT * limit_bytes - 1).bit_length(), _LEAST_USUAL_BYTES), _MOST_BYTES)


def _affordable_bytes(wanted: int) -> int:
    """Return the address space to ask for, of the wanted bytes."""
    if _free_share_bytes() < wanted // 2:
        gc.collect()  # closed pipelines may be uncollected garbage that holds address space
    return min(wanted, _free_share_bytes())


def _free_share_bytes() -> int:
    """Return the part of this process's address space that one more pipeline may take."""
    limit = address_space_limit()
    if limit is not None:
        return align(limit // _SHARE_OF_LIMIT)
    pages = read_file("/proc/self/statm").split()
    used = int(pages[0]) * mmap.PAGESIZE if pages else 0
    return max(align((_PROCESS_BYTES - used) // _SHARE_OF_FREE), _LEAST_BYTES)


def _file(*, for_processes: bool) -> Descriptor:
    try:
        return Descriptor(anonymous_file("dali_like"))
    except UnsupportedSystemError:
        if for_processes:
            raise
        return Descriptor(-1)  # `mmap` then makes an anonymous mapping


def mib(nbytes: int) -> str:
    """Format a number of bytes for messages."""
    return f"{nbytes / (1 << 20):.1f} MiB"
