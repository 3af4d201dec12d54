"""Anonymous files in memory, each mapped once by each process, and the allocation of their address space.

The file (`memfd_create`) has no name: no other program can open it, nothing stays behind after a crash, and the size of
/dev/shm does not matter. The file is far larger than the memory that is ever used: only touched pages cost memory. So
nothing is ever remapped: growth takes another extent of the address space. The file is sealed against shrinking, so that no
process can remove pages that another one uses.

Where the system has no such file, memory that no worker process shares is a plain anonymous mapping.
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
from collections import deque
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import address_space_limit, read_file
from dali_like.engine.memory.protocol import align
from dali_like.engine.memory.system_calls import (
    USE_THREADS,
    anonymous_file,
    describe_refusal,
    free_pages,
    is_refusal,
    map_memory,
    seal,
)
from dali_like.errors import OutOfMemoryError, UnsupportedSystemError

#: Address space for each byte of the memory limit: slots with varying samples touch only a small part of their extents.
_SPACE_PER_LIMIT = 64
_LEAST_USUAL_BYTES = 1 << 36
_MOST_BYTES = 1 << 42
_LEAST_BYTES = 1 << 26
#: A process has at most 47 bits of address space on x86-64. A file takes 1/32 of the free part, so that a hundred fit.
#: Drivers of GPUs reserve address space for all memory of the machine, so some must be left for them as well.
_PROCESS_BYTES = 1 << 47
_SHARE_OF_FREE = 32
#: The same where `ulimit -v` limits the address space, of the whole limit. Programs that set it have few pipelines.
_SHARE_OF_LIMIT = 4
#: Files of sources without workers. Further pipelines share them: a process may have thousands of small ones.
MOST_COMMON_FILES = 4


class SharedFile:
    """An anonymous file with its mapping in this process.

    Attributes:
        fd: descriptor of the file.
        has_file: whether there is a file, and not only a mapping of this process.
        size: address space, in bytes.
        map: the mapping.
        bytes: the mapping as one array; every view of it keeps the mapping alive.
        address: address of the mapping in this process.
        creator: the process that has created the file, and allocates from it; 0 in processes that only map it.
        is_lent: whether other programs read batches here for as long as they like. Then no pages are freed anymore.
        keeps_pages: whether a GPU has not given up some pages. Then the file must not free them at its end.
        free_bytes: address space that is not allocated.
    """

    creator = 0
    _existing: ClassVar[weakref.WeakSet[SharedFile]] = weakref.WeakSet()
    #: Those of `in_common`, by address. `valuerefs` returns a copy, whatever other threads do.
    _common: ClassVar[weakref.WeakValueDictionary[int, SharedFile]] = weakref.WeakValueDictionary()
    #: Files since garbage was collected, and how many there were then.
    _num_created = 0
    _num_live = 0

    def __init__(self, fd: Descriptor, size: int) -> None:
        self.fd = fd
        self.has_file = fd.fileno() >= 0
        self.size = self.free_bytes = size
        self.map = map_memory(fd.fileno(), size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.map, np.uint8)
        self.address: int = self.bytes.__array_interface__["data"][0]
        self.is_lent = self.keeps_pages = False
        self._lock = threading.Lock()
        self._free = [(0, size)]
        #: Extents of spaces that have ended, with their sizes. Finalizers append to it, because they must not take the lock.
        self.returned: deque[tuple[int, int]] = deque()
        self._existing.add(self)

    def __del__(self, getpid: Callable[[], int] = os.getpid, free: Callable[..., bool] = free_pages) -> None:
        # Free the pages now: forked processes, such as workers of other pipelines, may keep their mappings for long.
        # The defaults above keep names alive: at the exit of a program that keeps ``__main__`` alive, modules may be empty.
        if self.creator == getpid() and not (self.is_lent or self.keeps_pages):
            free(self.map, 0, self.size)

    @classmethod
    def create(cls, limit_bytes: int, *, for_processes: bool = True, divisor: int = 1) -> SharedFile:
        """Create a file, as large as the limits of this process allow.

        Args:
            limit_bytes: maximum memory behind it.
            for_processes: whether worker processes will map it.
            divisor: divides the part of the free address space that it takes.

        Raises:
            OutOfMemoryError: less than 64 MiB of address space are free, or `ulimit -f` is lower.
            UnsupportedSystemError: the system refuses a file for worker processes.
        """
        size = wanted = cls._affordable_bytes(_wanted_bytes(limit_bytes), divisor)
        fd = _open(for_processes=for_processes)
        is_last = False
        while True:
            try:
                if fd.fileno() >= 0:
                    os.ftruncate(fd.fileno(), size)
                file = cls(fd, size)
                file.creator = os.getpid()
                break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                if cls._collect_garbage():
                    continue
                if size <= _LEAST_BYTES and not is_last:
                    is_last = True
                    gc.collect()
                    continue
                if size <= _LEAST_BYTES:
                    if fd.fileno() < 0 or for_processes or error.errno == errno.ENOMEM:
                        raise _no_space(size, error) from None
                    fd, size = Descriptor(-1), wanted  # without a file, as where the system has none
                    continue
                size = align(size // 2)
        SharedFile._num_created += 1
        if fd.fileno() >= 0:
            seal(fd.fileno(), "SHRINK", "GROW")
        return file

    @classmethod
    def in_common(cls, limit_bytes: int) -> SharedFile:
        """Return a file for sources without workers: a new one, or beyond a few the one with most free address space.

        Raises:
            OutOfMemoryError: the file does not exist yet, and no address space is free.
        """
        pid = os.getpid()  # a forked child must not allocate from files of its parent
        files = [file for ref in cls._common.valuerefs() if (file := ref()) is not None and file.creator == pid]
        files = [file for file in files if not file.is_lent]
        if len(files) < MOST_COMMON_FILES:
            try:
                file = cls.create(limit_bytes, for_processes=False, divisor=1 << len(files))
            except (OutOfMemoryError, OSError):
                if not files:
                    raise
            else:
                cls._common[file.address] = file
                return file
        return max(files, key=lambda file: file.free_bytes)

    @classmethod
    def of_address(cls, address: int) -> SharedFile | None:
        """Return the file of this process that an address lies in, or None."""
        found = (file for file in list(cls._existing) if file.has_file and 0 <= address - file.address < file.size)
        return next(found, None)

    @classmethod
    def _affordable_bytes(cls, wanted: int, divisor: int) -> int:
        """Return the address space to ask for, of the wanted bytes."""
        if _free_share_bytes(divisor) < wanted // 2:
            cls._collect_garbage()
        return min(wanted, _free_share_bytes(divisor))

    @classmethod
    def _collect_garbage(cls) -> bool:
        """Collect garbage if it may hold much address space: files of closed pipelines. Return whether it was collected.

        A collection takes time in proportion to all objects of the process. So it runs when as many files have been created
        as it had left the last time: of n live files, only log n creations are slow.
        """
        if SharedFile._num_created < min(SharedFile._num_live, max(len(cls._existing), 1)):
            return False
        gc.collect()
        SharedFile._num_created, SharedFile._num_live = 0, max(len(cls._existing), 1)
        return True

    def allocate(self, nbytes: int) -> int:
        """Allocate an extent of at least `nbytes`, without memory, and return its offset. Thread-safe.

        Raises:
            OutOfMemoryError: no free extent is that large.
        """
        nbytes = align(nbytes)
        with self._lock:
            while self.returned:
                self._insert(*self.returned.popleft())
            for i, (offset, free_bytes) in enumerate(self._free):
                if free_bytes >= nbytes:
                    if free_bytes == nbytes:
                        del self._free[i]
                    else:
                        self._free[i] = (offset + nbytes, free_bytes - nbytes)
                    self.free_bytes -= nbytes
                    return offset
        raise OutOfMemoryError(
            f"no {nbytes >> 20} MiB are left of {self.size >> 20} MiB of shared address space; "
            "hold fewer batches, make batches smaller, or raise `ulimit -v`"
        )

    def free(self, offset: int, nbytes: int) -> None:
        """Free the address space of an extent, whose pages have been freed. Thread-safe."""
        with self._lock:
            self._insert(offset, align(nbytes))

    def _insert(self, offset: int, nbytes: int) -> None:
        self.free_bytes += nbytes
        i = bisect_left(self._free, (offset, 0))
        if i < len(self._free) and self._free[i][0] == offset + nbytes:
            nbytes += self._free.pop(i)[1]
        if i > 0 and sum(self._free[i - 1]) == offset:
            offset, before = self._free.pop(i - 1)
            nbytes += before
        insort(self._free, (offset, nbytes))


def _wanted_bytes(limit_bytes: int) -> int:
    """Return the address space that a pipeline with this limit of memory can use: a power of two."""
    return min(max(1 << (_SPACE_PER_LIMIT * limit_bytes - 1).bit_length(), _LEAST_USUAL_BYTES), _MOST_BYTES)


def _free_share_bytes(divisor: int) -> int:
    """Return the part of this process's address space that one more file may take."""
    limit = address_space_limit()
    if limit is not None:
        share = limit // _SHARE_OF_LIMIT
        return align(max(share // divisor, min(share, _LEAST_BYTES)))
    pages = read_file("/proc/self/statm").split()
    used = int(pages[0]) * mmap.PAGESIZE if pages else 0
    return max(align((_PROCESS_BYTES - used) // _SHARE_OF_FREE // divisor), _LEAST_BYTES)


def _no_space(size: int, error: OSError) -> OutOfMemoryError | UnsupportedSystemError:
    """Return the error for a file of this size that could not be made or mapped."""
    if error.errno == errno.EFBIG:
        return OutOfMemoryError(
            f"shared memory needs a file of {size >> 20} MiB or more, and the limit of file sizes of this process is lower; "
            "raise `ulimit -f` (RLIMIT_FSIZE)"
        )
    if is_refusal(error):
        return UnsupportedSystemError(
            error.errno,
            f"the system refuses ftruncate, fcntl or mmap for a file in memory ({describe_refusal(error)}), and worker "
            f"processes share their batches in one; {USE_THREADS}",
        )
    return OutOfMemoryError(
        f"cannot map {size >> 20} MiB of address space for shared memory: other pipelines use it, or `ulimit -v` limits it; "
        "drop the batches of other pipelines, or raise `ulimit -v`"
    )


def _open(*, for_processes: bool) -> Descriptor:
    try:
        return Descriptor(anonymous_file("dali_like"))
    except UnsupportedSystemError:
        if for_processes:
            raise
        return Descriptor(-1)  # `mmap` then makes an anonymous mapping
