"""System calls that old kernels, sandboxes and other systems may lack, each with its fallback or its error.

Seccomp filters refuse a call with EPERM or ENOSYS. Kernels, and emulations such as gVisor, return ENOSYS, EINVAL or
EOPNOTSUPP. Modules and functions that only Linux has are imported and looked up where they are used, so that the package can
be imported elsewhere. docs/containers.md lists the effect of each missing call.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from functools import cache

from dali_like.errors import UnsupportedSystemError

#: Error numbers of a call that the system lacks or refuses.
_REFUSALS = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP})
#: Folder for shared files where `memfd_create` is refused. Its files are memory, and count as shared memory.
SHARED_MEMORY_FOLDER = "/dev/shm"
#: Size of a write, where `posix_fallocate` is refused.
_WRITE_BYTES = 1 << 20
#: See mmap(2). Python 3.11 does not have it.
_MAP_NORESERVE = 0x4000
_MADV_REMOVE: int | None = getattr(mmap, "MADV_REMOVE", None)
#: See madvise(2). Python does not have it.
_MADV_POPULATE_READ = 22

USE_THREADS = 'use py_start_method="thread" (multiprocessing_context="thread" of a DataLoader)'
USE_NO_WORKERS = "use parallel=False (num_workers=0 of a DataLoader)"
_ALLOW = "a newer kernel, or a sandbox or seccomp profile that allows the call"


def is_refusal(error: Exception) -> bool:
    """Return whether an error means that the system lacks or refuses a call. AttributeError: Python lacks it."""
    return isinstance(error, AttributeError) or (isinstance(error, OSError) and error.errno in _REFUSALS)


def describe_refusal(error: Exception) -> str:
    """Describe the error of a refused call: "ENOSYS, errno 38"."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{errno.errorcode.get(error.errno, 'unknown error')}, errno {error.errno}"
    return "Python has no such function here"


class required:  # noqa: N801  # it is used like those of contextlib
    """Context manager around a call without a fallback: turns a refusal into an error with advice.

    Args:
        call: the call, for the message.
        purpose: why workers need it, for the message.
        remedy: what works without it.

    Raises:
        UnsupportedSystemError: the system refuses the call.
    """

    __slots__ = ("_call", "_purpose", "_remedy")

    def __init__(self, call: str, purpose: str, remedy: str = USE_THREADS) -> None:
        self._call = call
        self._purpose = purpose
        self._remedy = remedy

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if isinstance(error, (AttributeError, OSError)) and is_refusal(error):
            whose = "worker processes" if self._remedy == USE_THREADS else "workers"
            raise UnsupportedSystemError(
                getattr(error, "errno", None) or errno.ENOSYS,
                f"the system refuses {self._call} ({describe_refusal(error)}), and {whose} need it {self._purpose}; "
                f"{self._remedy}, or {_ALLOW}",
            ) from error


def check_platform(start_method: str, *, needs_linux: bool) -> None:
    """Check that this operating system can run workers.

    Args:
        start_method: the name of their backend.
        needs_linux: whether the backend runs on Linux only. No backend runs on Windows.

    Raises:
        UnsupportedSystemError: it cannot.
    """
    if sys.platform == "linux" or (sys.platform != "win32" and not needs_linux):
        return
    serial = USE_NO_WORKERS.removeprefix("use ")
    remedy = serial if sys.platform == "win32" else f"{serial}, or {USE_THREADS.removeprefix('use ')}"
    kind = "workers need" if sys.platform == "win32" else f"py_start_method={start_method!r} needs"
    raise UnsupportedSystemError(
        f"{kind} Linux, and this system is {sys.platform}; use {remedy}, or run the program on Linux"
    )


def anonymous_file(name: str) -> int:
    """Create a file in memory that has no name in any folder, and return its descriptor.

    Where `memfd_create` is refused, it is a file in /dev/shm whose name is removed at once, and it cannot be sealed.

    Args:
        name: shown in /proc.

    Raises:
        UnsupportedSystemError: the system refuses both.
    """
    try:
        return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (AttributeError, OSError) as error:
        if not is_refusal(error):
            raise
        return _unlinked_file(name, error)


def is_anonymous_file(target: str, name: str) -> bool:
    """Return whether a link of /proc leads to an anonymous file with this name."""
    return target.startswith((f"/memfd:{name} ", f"{SHARED_MEMORY_FOLDER}/{name}."))


def _unlinked_file(name: str, refusal: Exception) -> int:
    path = f"{SHARED_MEMORY_FOLDER}/{name}.{os.urandom(8).hex()}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise UnsupportedSystemError(
            getattr(refusal, "errno", None) or errno.ENOSYS,
            f"the system refuses memfd_create ({describe_refusal(refusal)}) and a file in {SHARED_MEMORY_FOLDER} "
            f"({describe_refusal(error)}), and worker processes share their batches in one of them; {USE_THREADS}, or "
            f"{_ALLOW}, or mount {SHARED_MEMORY_FOLDER}",
        ) from error
    os.unlink(path)
    return fd


def map_memory(fd: int, nbytes: int) -> mmap.mmap:
    """Map a file, or with the number -1 anonymous memory. Memory is taken only for touched pages."""
    if fd < 0 and sys.platform == "linux":  # without a flag, the kernel would count all of it
        return mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    return mmap.mmap(fd, nbytes)


def seal(fd: int, *names: str) -> None:
    """Add seals to an anonymous file: "SHRINK" for F_SEAL_SHRINK, and so on. Where they are refused, do without.

    Then a callback that changes the size of the file crashes the other processes.
    """
    import fcntl  # absent on Windows

    try:
        seals = sum(int(getattr(fcntl, f"F_SEAL_{name}")) for name in (*names, "SEAL"))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except (AttributeError, OSError) as error:
        if not is_refusal(error):
            raise


def put_memory_behind(fd: int, offset: int, nbytes: int) -> None:
    """Put memory behind a part of a file, without changing its content. No other process may write to it meanwhile.

    Raises:
        OSError: there is no memory (ENOSPC or ENOMEM).
    """
    try:
        os.posix_fallocate(fd, offset, nbytes)
    except (AttributeError, OSError) as error:
        if not is_refusal(error):
            raise
        end = offset + nbytes
        while offset < end:  # a write may be short
            offset += os.pwrite(fd, os.pread(fd, min(_WRITE_BYTES, end - offset), offset), offset)


def advise_on_shortage(fd: int) -> str:
    """Return advice for a message about a file without room; "" for a file of `memfd_create`, which has no limit."""
    try:
        is_in_folder = os.fstat(fd).st_dev == os.stat(SHARED_MEMORY_FOLDER).st_dev
    except OSError:
        return ""
    return f"; they lie in {SHARED_MEMORY_FOLDER}: enlarge that (docker run --shm-size)" if is_in_folder else ""


def map_pages(mapping: mmap.mmap, offset: int, nbytes: int) -> None:
    """Map the pages of a part of a mapping in this process now, by one call, rather than one by one as they are written.

    As far as another process has written the pages, the kernel maps 16 of them by one page fault: writing each first would
    take a fault each. Kernels before Linux 5.14 refuse the call; then pages are mapped one by one.
    """
    begin = offset - offset % mmap.PAGESIZE
    with contextlib.suppress(OSError):
        mapping.madvise(_MADV_POPULATE_READ, begin, offset + nbytes - begin)


def free_pages(mapping: mmap.mmap, offset: int, nbytes: int, remove: int | None = _MADV_REMOVE) -> bool:
    """Free the pages of a part of a mapping, which then reads as zeros. Return whether the system can do that.

    gVisor cannot.
    """
    if remove is None:
        return False
    try:
        mapping.madvise(remove, offset, nbytes)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
            raise  # EINVAL is a wrong argument
        return False
    return True


@cache
def can_splice() -> bool:
    """Return whether one call can move a record from a pipe into a shared file."""
    try:
        fds = [anonymous_file("dali_like_probe")]
    except UnsupportedSystemError:
        return False
    try:
        fds += os.pipe()
        file, read, write = fds
        os.write(write, b"t")
        return os.splice(read, file, 1, offset_dst=0) == 1 and os.pread(file, 1, 0) == b"t"
    except (AttributeError, OSError) as error:
        if not is_refusal(error):
            raise
        return False
    finally:
        for fd in fds:
            os.close(fd)
