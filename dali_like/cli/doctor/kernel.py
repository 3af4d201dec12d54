"""What the engine needs of the kernel, tried: each check does once what workers do for every task, or at their start.

Sandboxes that stand in for a kernel, seccomp filters and old kernels may lack one or another, see memfd_create(2),
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
    """The memory that batches lie in: sealed, given memory, and without it again."""
    space = SharedSpace.create(limit_bytes=1 << 20)
    if fcntl.fcntl(space.fd, fcntl.F_GET_SEALS) != _SEALS:
        raise OSError("seals are not kept")
    offset = space.take(PAGE_BYTES, PAGE_BYTES)
    space.bytes[offset] = 1
    if space.used_bytes < PAGE_BYTES:
        raise OSError("posix_fallocate puts no memory there")
    space.free(offset, PAGE_BYTES)
    if space.used_bytes or space.bytes[offset]:
        raise OSError("MADV_REMOVE gives no memory back")


def taking_tasks() -> None:
    """A worker takes a task: from a pipe into its own cell of a mapped file."""
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
    """One process notices that another has ended, and the kernel ends the children of a process with it."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with warnings.catch_warnings():
        # Python 3.12 warns of forks with threads about, as BLAS may have started; the child runs nothing of theirs.
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
                raise OSError("poll does not tell of a process that has ended")
        finally:
            os.close(pidfd)
    finally:
        _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise OSError("PR_SET_PDEATHSIG is refused")


def _try(subject: str, calls: str, attempt: Callable[[], None]) -> Finding:
    try:
        attempt()
    except (AttributeError, MemoryError, OSError) as error:  # the first: of a Python that was built without
        return failure(subject, f"{calls}: {error}", _NEWER)
    return ok(subject, calls)


CHECKS: tuple[Check, ...] = (
    partial(_try, "anonymous memory", "memfd_create, seals, posix_fallocate, MADV_REMOVE", anonymous_memory),
    partial(_try, "taking tasks", "splice from a pipe into a memfd", taking_tasks),
    partial(_try, "watching processes", "pidfd_open, poll, PR_SET_PDEATHSIG", watching_processes),
)
