"""The machine: processors, memory, and what this process may use of them.

Sources: cgroups(7) and the kernel's admin guide on control groups (version 2 ``cpu.max`` and ``pids.max``, version 1
``cpu.cfs_quota_us`` and ``pids.max``), getrlimit(2), and pipe(7) on ``pipe-user-pages-soft``.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path

from dali_like.cli.doctor.findings import Check, Finding, failure, note, ok, warning
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import available_bytes, cpu_quota, processes_left
from dali_like.engine.memory.protocol import PAGE_BYTES
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.pipes import pipe_bytes

_ROOT = Path("/")
_GIB = 1 << 30
#: What a pipeline needs beside its workers, and each worker, see `dali_like.engine.memory.descriptors`; and a program of its
#: own.
_FILES, _FILES_PER_WORKER, _FILES_OF_PROGRAM = 8, 3, 64
#: What pipes hold unless their user has too many of them.
_PIPE_BYTES = 1 << 16
_LEAST_MEMORY_BYTES = _GIB
#: Below that, not every pipeline has room for its slots.
_LEAST_SPACE_BYTES = 16 * _GIB


def system() -> Finding:
    """The operating system and the interpreter."""
    found = f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    if sys.platform != "linux":
        return failure("system", found, "run it on Linux, in a virtual machine or a container where need be")
    return ok("system", found)


def cpus(root: Path = _ROOT) -> Finding:
    """How many processors workers can use."""
    allowed, there, quota = len(os.sched_getaffinity(0)), os.cpu_count(), cpu_quota(root)
    found = f"{allowed} of {there} by affinity"
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


def memory(root: Path = _ROOT) -> Finding:
    """How much memory batches can have."""
    available, there = available_bytes(root), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"{_gib(available)} available of {_gib(there)}; batches take half of it at most unless max_held_bytes says more"
    if available < _LEAST_MEMORY_BYTES:
        return warning(
            "memory", found, "end other programs, raise the limit of the container, or hold fewer and smaller batches"
        )
    return ok("memory", found)


def shared_memory_folder(root: Path = _ROOT) -> Finding:
    """/dev/shm, which matters to others."""
    try:
        there = os.statvfs(root / "dev/shm")
    except OSError:
        return ok("/dev/shm", "there is none, and none is needed here; PyTorch's and DALI's loaders need one")
    size = there.f_frsize * there.f_blocks
    return ok("/dev/shm", f"{_gib(size)}, not needed here, whatever its size (PyTorch's and DALI's loaders need it)")


def open_files() -> Finding:
    """How many descriptors this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = len(os.sched_getaffinity(0))
    needed = _FILES + _FILES_PER_WORKER * workers + _FILES_OF_PROGRAM
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ok("open files", f"up to {_count(soft)}")
    return warning(
        "open files",
        f"up to {soft}; a pipeline with {workers} workers in a program of some size has {needed}",
        f"ulimit -n {_count(hard) if hard != resource.RLIM_INFINITY else 4096}",
    )


def processes(root: Path = _ROOT) -> Finding:
    """How many processes may be started."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    left, workers = processes_left(root), len(os.sched_getaffinity(0))
    if left is not None and left <= workers:
        return warning(
            "processes",
            f"{left} more by control groups",
            f"{workers} workers and the process that starts them would not fit: raise pids.max (docker run --pids-limit)",
        )
    if soft != resource.RLIM_INFINITY and soft <= workers:
        return warning("processes", f"up to {soft} of this user", f"raise the limit for {workers} workers: ulimit -u")
    by_groups = "no limit" if left is None else f"{left} more"
    return ok("processes", f"up to {_count(soft)} of this user, {by_groups} by control groups")


def locked_memory() -> Finding:
    """How much memory this process may lock by itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    found = "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft >> 10} KiB"
    return ok("locked memory", f"{found}; CUDA's driver does not count its page-locked memory against it on most machines")


def address_space() -> Finding:
    """How much address space there is for slots."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    size = SharedSpace.create(limit_bytes=PAGE_BYTES).size
    found = f"{_gib(size)} for each pipeline"
    if limit == resource.RLIM_INFINITY or size >= _LEAST_SPACE_BYTES:
        return ok("address space", found)
    return warning("address space", f"{found}, since `ulimit -v` says {_gib(limit)}", "ulimit -v unlimited")


def pipes(root: Path = _ROOT) -> Finding:
    """How much a new pipe holds: the kernel makes those of a user who has many of them small."""
    ends = [Descriptor(fd) for fd in os.pipe()]
    held = pipe_bytes(ends[0])
    for end in ends:
        end.close()
    pages = _number(root / "proc/sys/fs/pipe-user-pages-soft")
    found = (
        f"{held >> 10} KiB each, as long as this user has fewer than {pages} pages of them"
        if pages
        else f"{held >> 10} KiB each"
    )
    if held < _PIPE_BYTES:
        return warning(
            "pipes",
            f"{found}: fewer tasks are on their way at a time",
            "this user has too many pipes open: close some, or sysctl fs.pipe-user-pages-soft=0",
        )
    return ok("pipes", found)


def sandbox(root: Path = _ROOT) -> Finding:
    """Whether this is a Linux kernel, or something that stands in for one."""
    version = _text(root / "proc/version")
    if "gvisor" in version.lower() or _GVISOR_VERSION in version:
        return warning(
            "kernel",
            "gVisor, which carries out system calls itself",
            "look at the checks above and below: what they call ok works, but each call costs several times as much",
        )
    if "microsoft" in version.lower():
        is_first = "wsl2" not in version.lower() and "microsoft-standard" not in version.lower()
        if is_first:
            return failure("kernel", "WSL 1, which is no Linux kernel", "wsl --set-version <distribution> 2")
        return note(
            "kernel", "WSL 2", "keep data in the Linux file system; CUDA can page-lock less memory here than on Linux"
        )
    return ok("kernel", "Linux")


#: gVisor's kernel calls itself 4.4.0, built on that day, see its pkg/sentry/syscalls/linux/linux64.go.
_GVISOR_VERSION = "#1 SMP Sun Jan 10 15:06:54 PST 2016"


def _gib(nbytes: int) -> str:
    return f"{nbytes / _GIB:.1f} GiB" if nbytes >= _GIB // 10 else f"{nbytes >> 10:,} KiB"


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else str(limit)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


CHECKS: tuple[Check, ...] = (
    *(system, sandbox, cpus, memory, shared_memory_folder),
    *(open_files, processes, locked_memory, address_space, pipes),
)
