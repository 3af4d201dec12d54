"""Checks of the system calls that the engine needs. Each check makes the calls once, as workers do.

Old kernels and sandboxes such as gVisor may lack some calls, and seccomp filters may refuse them. See memfd_create(2),
splice(2), pidfd_open(2), madvise(2) and PR_SET_PDEATHSIG(2const).
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import signal
import warnings
from collections.abc import Callable
from functools import partial

from dali_like.cli.doctor.findings import Check, Finding, failure, ok
from dali_like.engine.backends.forkserver import PR_SET_PDEATHSIG
from dali_like.engine.memory.protocol import PAGE_BYTES, TASK
from dali_like.engine.memory.space import SharedSpace

_NEWER = "use a newer kernel, or a sandbox or seccomp profile that allows it"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_DEADLINE_MS = 10_000


def anonymous_memory() -> None:
    """Check the shared space of batches: seal an anonymous file, allocate a page and free it."""
    space = SharedSpace.create(limit_bytes=1 << 20)
    if fcntl.fcntl(space.fd, fcntl.F_GET_SEALS) != _SEALS:
        raise OSError("seals are not kept")
    offset = space.take(PAGE_BYTES, PAGE_BYTES)
    space.bytes[offset] = 1
    if space.used_bytes < PAGE_BYTES:
        raise OSError("posix_fallocate allocates no memory")
    space.free(offset, PAGE_BYTES)
    if space.used_bytes or space.bytes[offset]:
        raise OSError("MADV_REMOVE frees no memory")


def taking_tasks() -> None:
    """Check that a worker can take a task: move it from a pipe into the worker's cell of a mapped file."""
    file = os.memfd_create("dali_like_doctor", os.MFD_CLOEXEC)
    read, write = os.pipe()
    try:
        os.ftruncate(file, PAGE_BYTES)
        task, cell = b"t" * TASK.size, 2 * TASK.size
        with mmap.mmap(file, PAGE_BYTES) as memory:
            os.write(write, task)
            taken = os.splice(read, file, TASK.size, offset_dst=cell)
            if taken != TASK.size or memory[cell : cell + TASK.size] != task:
                raise OSError("the bytes do not arrive")
    finally:
        for fd in (file, read, write):
            os.close(fd)


def watching_processes() -> None:
    """Check that a process gets notified of a child's exit, and that the kernel can kill children with their parent."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork with threads, which BLAS may have started. The child does not use them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0)
    try:
        pidfd = os.pidfd_open(child)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(_DEADLINE_MS):
                os.kill(child, signal.SIGKILL)
                raise OSError("poll does not report the exit of a process")
        finally:
            os.close(pidfd)
    finally:
        _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise OSError("PR_SET_PDEATHSIG is refused")


def _try(subject: str, calls: str, attempt: Callable[[], None]) -> Finding:
    try:
        attempt()
    except (AttributeError, MemoryError, OSError) as error:  # AttributeError: Python was built without the call
        return failure(subject, f"{calls}: {error}", _NEWER)
    return ok(subject, calls)


CHECKS: tuple[Check, ...] = (
    partial(_try, "anonymous memory", "memfd_create, seals, posix_fallocate, MADV_REMOVE", anonymous_memory),
    partial(_try, "taking tasks", "splice from a pipe into a memfd", taking_tasks),
    partial(_try, "watching processes", "pidfd_open, poll, PR_SET_PDEATHSIG", watching_processes),
)
