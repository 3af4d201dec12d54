"""Checks of the machine: processors, memory, and the limits of this process.

Follows cgroups(7) and the kernel's admin guide on control groups (version 2 ``cpu.max`` and ``pids.max``, version 1
``cpu.cfs_quota_us`` and ``pids.max``), getrlimit(2), and pipe(7) on ``pipe-user-pages-soft``.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from pathlib import Path

from dali_like.cli.doctor.findings import Check, Finding, failure, note, ok, warning
from dali_like.cli.machine_load import busy_cpus, load_text
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import (
    allowed_cpus,
    available_bytes,
    cpu_quota,
    memory_bytes,
    processes_left,
)
from dali_like.engine.memory.protocol import PAGE_BYTES
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.pipes import pipe_bytes

with contextlib.suppress(ImportError):  # on Windows, where only `system` is checked
    import resource

_ROOT = Path("/")
_GIB = 1 << 30
#: File descriptors of a pipeline, of each worker (see `dali_like.engine.memory.descriptors`), and of the user's program.
_FILES, _FILES_PER_WORKER, _FILES_OF_PROGRAM = 13, 3, 64
#: Default capacity of a pipe. The kernel reduces it for users with many pipes.
_PIPE_BYTES = 1 << 16
_MIN_MEMORY_BYTES = _GIB
#: Below this size, the slots of large pipelines do not fit into the address space.
_MIN_SPACE_BYTES = 16 * _GIB


def system() -> Finding:
    """Check the operating system, and report the interpreter."""
    found = f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    if sys.platform != "linux":
        threads = "" if sys.platform == "win32" else " and worker threads"
        return warning(
            "system", f"{found}: untested; only sources without workers{threads} work", "run on Linux, or in a container"
        )
    return ok("system", found)


def cpus(root: Path = _ROOT) -> Finding:
    """Count the processors that workers can use."""
    allowed, total, quota = allowed_cpus(), os.cpu_count(), cpu_quota(root)
    found = f"{allowed} of {total} by affinity"
    if quota is None:
        return ok("processors", f"{found}, no quota")
    found += f", a quota of {quota:g} by control groups"
    if quota < allowed:
        return warning(
            "processors",
            found,
            f"workers beyond {max(1, int(quota))} share that quota: py_num_workers={max(1, int(quota))}, or raise it "
            "(docker run --cpus, resources.limits.cpu)",
        )
    return ok("processors", found)


def load(root: Path = _ROOT) -> Finding:
    """Check whether other programs use the CPUs now."""
    busy = busy_cpus(root)
    if busy is None:
        return ok("load", "unknown")
    if load_text(busy):
        return warning(
            "load",
            f"other programs use {busy:.1f} of {allowed_cpus()} CPUs now",
            "bench, tune and report measure their effect, too: repeat measurements on an idle machine",
        )
    return ok("load", f"other programs use {busy:.1f} of {allowed_cpus()} CPUs now")


def memory(root: Path = _ROOT) -> Finding:
    """Check how much memory is available for batches."""
    available, total = available_bytes(root), memory_bytes()
    found = f"{_gib(available)} available of {_gib(total)}; batches use at most half of it, unless max_held_bytes is set"
    if available < _MIN_MEMORY_BYTES:
        return warning(
            "memory", found, "end other programs, raise the memory limit of the container, or keep fewer or smaller batches"
        )
    return ok("memory", found)


def shared_memory_folder(root: Path = _ROOT) -> Finding:
    """Report the size of /dev/shm, which other loaders depend on."""
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError:
        return ok("/dev/shm", "absent, and not needed here (PyTorch's and DALI's loaders need it)")
    size = status.f_frsize * status.f_blocks
    return ok("/dev/shm", f"{_gib(size)}, not needed here (PyTorch's and DALI's loaders need it)")


def open_files() -> Finding:
    """Check the limit of open file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = allowed_cpus()
    needed = _FILES + _FILES_PER_WORKER * workers + _FILES_OF_PROGRAM
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ok("open files", f"up to {_count(soft)}")
    return warning(
        "open files",
        f"up to {soft}; a typical program with a pipeline of {workers} workers needs {needed}",
        f"ulimit -n {_count(hard) if hard != resource.RLIM_INFINITY else 4096}",
    )


def processes(root: Path = _ROOT) -> Finding:
    """Check the limits of processes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    left, workers = processes_left(root), allowed_cpus()
    if left is not None and left <= workers + 1:
        return warning(
            "processes",
            f"{left} more by control groups",
            f"{workers} workers, their forkserver and its reserve do not fit: raise pids.max (docker run --pids-limit)",
        )
    if soft != resource.RLIM_INFINITY and soft <= workers:
        return warning("processes", f"up to {soft} of this user", f"raise the limit for {workers} workers: ulimit -u")
    by_groups = "no limit" if left is None else f"{left} more"
    return ok("processes", f"up to {_count(soft)} of this user, {by_groups} by control groups")


def locked_memory() -> Finding:
    """Report the limit of locked memory."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    found = "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft >> 10} KiB"
    return ok("locked memory", f"{found}; on most machines, CUDA's page-locked memory does not count")


def address_space() -> Finding:
    """Check how much address space is available for slots."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    size = SharedSpace.create(limit_bytes=PAGE_BYTES, for_processes=False).size
    found = f"{_gib(size)} for each pipeline"
    if limit == resource.RLIM_INFINITY or size >= _MIN_SPACE_BYTES:
        return ok("address space", found)
    return warning("address space", f"{found}, because `ulimit -v` is {_gib(limit)}", "ulimit -v unlimited")


def pipes(root: Path = _ROOT) -> Finding:
    """Check the capacity of a new pipe. The kernel reduces it for users with many pipes."""
    ends = [Descriptor(fd) for fd in os.pipe()]
    capacity = pipe_bytes(ends[0])
    for end in ends:
        end.close()
    text = _text(root / "proc/sys/fs/pipe-user-pages-soft").strip()
    pages = int(text) if text.isdigit() else None
    found = (
        f"{capacity >> 10} KiB each, while the pipes of this user have fewer than {pages} pages"
        if pages
        else f"{capacity >> 10} KiB each"
    )
    if capacity < _PIPE_BYTES:
        return warning(
            "pipes",
            f"{found}: fewer tasks fit into the queue of the workers",
            "this user has too many open pipes: close some, or run sysctl fs.pipe-user-pages-soft=0",
        )
    return ok("pipes", found)


def sandbox(root: Path = _ROOT) -> Finding:
    """Check for a Linux kernel, as opposed to gVisor or WSL 1."""
    version = _text(root / "proc/version")
    if "gvisor" in version.lower() or _GVISOR_VERSION in version:
        return warning(
            "kernel",
            "gVisor, which emulates Linux system calls",
            "expect each system call to take several times as long; other findings show unsupported calls",
        )
    if "microsoft" in version.lower():
        is_wsl_1 = "wsl2" not in version.lower() and "microsoft-standard" not in version.lower()
        if is_wsl_1:
            return failure("kernel", "WSL 1, which is not a Linux kernel", "wsl --set-version <distribution> 2")
        return note(
            "kernel", "WSL 2", "keep data in the Linux file system; CUDA can page-lock less memory than on native Linux"
        )
    return ok("kernel", "Linux")


#: Build date that gVisor reports for its version 4.4.0; see its pkg/sentry/syscalls/linux/linux64.go.
_GVISOR_VERSION = "#1 SMP Sun Jan 10 15:06:54 PST 2016"


def _gib(nbytes: int) -> str:
    return f"{nbytes / _GIB:.1f} GiB" if nbytes >= _GIB // 10 else f"{nbytes >> 10:,} KiB"


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else str(limit)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


#: The checks that are for all systems.
EVERYWHERE: tuple[Check, ...] = (system,)

CHECKS: tuple[Check, ...] = (
    *(system, sandbox, load, cpus, memory, shared_memory_folder),
    *(open_files, processes, locked_memory, address_space, pipes),
)
