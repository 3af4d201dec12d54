"""Checks of the system calls that the engine uses. Each check makes the calls once, as workers do.

Old kernels and sandboxes such as gVisor may lack some calls, and seccomp filters may refuse them. Most have a replacement:
see `dali_like.engine.memory.system_calls`, and memfd_create(2), splice(2), pidfd_open(2), madvise(2) and
PR_SET_PDEATHSIG(2const).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import warnings
from collections.abc import Callable
from functools import partial

from dali_like.cli.doctor.findings import Check, Finding, failure, ok, warning
from dali_like.engine.memory.protocol import PAGE_BYTES, TASK
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.memory.system_calls import SHARED_MEMORY_FOLDER, USE_THREADS, describe_refusal

with contextlib.suppress(ImportError):  # on Windows, which has no checks of the kernel
    import fcntl

_NEWER = "use a newer kernel, or a sandbox or seccomp profile that allows the call"
_DEADLINE_MS = 10_000


def anonymous_file() -> None:
    """Check that a file without a name can be created."""
    os.close(os.memfd_create("dali_like_doctor", os.MFD_CLOEXEC))


def shared_file() -> None:
    """Check that worker processes can share the memory of batches: in an anonymous file, or in its replacement."""
    SharedSpace.create(limit_bytes=PAGE_BYTES)


def seals() -> None:
    """Check that an anonymous file can be sealed."""
    wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    if fcntl.fcntl(SharedSpace.create(limit_bytes=PAGE_BYTES).fd, fcntl.F_GET_SEALS) != wanted:
        raise OSError("the seals are not kept")


def allocation() -> None:
    """Check that memory can be put behind a file."""
    space = SharedSpace.create(limit_bytes=1 << 20)
    os.posix_fallocate(space.fd.fileno(), 0, PAGE_BYTES)
    if space.used_bytes < PAGE_BYTES:
        raise OSError("no memory is allocated")


def freeing() -> None:
    """Check that memory behind a file can be freed."""
    space = SharedSpace.create(limit_bytes=1 << 20)
    offset = space.take(PAGE_BYTES, PAGE_BYTES)
    space.bytes[offset] = 1
    space.map.madvise(mmap.MADV_REMOVE, offset, PAGE_BYTES)
    if space.used_bytes or space.bytes[offset]:
        raise OSError("no memory is freed")


def taking_tasks() -> None:
    """Check that a worker can take a task: move it from a pipe into the worker's cell of the shared file."""
    space = SharedSpace.create(limit_bytes=PAGE_BYTES)
    read, write = os.pipe()
    try:
        task, cell = b"t" * TASK.size, 2 * TASK.size
        os.write(write, task)
        taken = os.splice(read, space.fd.fileno(), TASK.size, offset_dst=cell)
        if taken != TASK.size or space.map[cell : cell + TASK.size] != task:
            raise OSError("the bytes do not arrive")
    finally:
        for fd in (read, write):
            os.close(fd)


def watching_processes() -> None:
    """Check that processes can learn of each other's end."""
    from dali_like.engine.backends.required_calls import check_process_calls, check_waiting_calls  # Linux

    check_waiting_calls()
    check_process_calls()
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork with threads, which BLAS may have started. The child does not use them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0)
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
        os.waitpid(child, 0)


def _try(subject: str, call: str, attempt: Callable[[], None], effect: str) -> Finding:
    """Make a call. If it fails, that is a warning with the effect, or without a replacement of the call, a failure."""
    try:
        attempt()
    except (AttributeError, MemoryError, OSError) as error:  # AttributeError: Python was built without the call
        has_number = isinstance(error, OSError) and error.errno is not None
        found = f"{call}: {describe_refusal(error) if has_number else error}"
        if effect:
            return warning(subject, f"{found}; {effect}", _NEWER)
        return failure(subject, found, f"{USE_THREADS}, or {_NEWER}")
    return ok(subject, call)


CHECKS: tuple[Check, ...] = (
    partial(
        _try,
        "anonymous memory",
        "memfd_create",
        anonymous_file,
        f"worker processes share a file in {SHARED_MEMORY_FOLDER} instead, whose size limits their batches",
    ),
    partial(_try, "shared memory", f"memfd_create, or a file in {SHARED_MEMORY_FOLDER}", shared_file, ""),
    partial(
        _try,
        "seals",
        "F_ADD_SEALS",
        seals,
        "a callback that changes the size of the shared file crashes the program",
    ),
    partial(_try, "allocating memory", "posix_fallocate", allocation, "memory is allocated by writing, more slowly"),
    partial(
        _try,
        "freeing memory",
        "MADV_REMOVE",
        freeing,
        "memory of large batches is returned when the pipeline is closed, not before",
    ),
    partial(
        _try,
        "taking tasks",
        "splice from a pipe into the shared file",
        taking_tasks,
        "each worker has a queue of its own, so the tasks of a slow worker wait for it",
    ),
    partial(_try, "watching processes", "pidfd_open, poll, PR_SET_PDEATHSIG", watching_processes, ""),
)
