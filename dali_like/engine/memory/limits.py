"""Limits of memory, CPUs and processes, of the machine and of the process's control groups.

A process that exceeds the memory limit of a control group gets no error: it is killed. So that limit is read before memory
is taken. Sources: proc(5) on /proc/meminfo, the kernel's admin guide on control groups (v2 ``memory.max``,
``memory.current``, ``cpu.max``, ``pids.max``, ``pids.current``; v1 ``memory.limit_in_bytes``, ``memory.usage_in_bytes``,
``cpu.cfs_quota_us``, ``cpu.cfs_period_us``, and the same two of ``pids``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from dali_like.errors import ProcessLimitError

_Returned = TypeVar("_Returned")

#: Tests pass a tree of files. `pathlib` would take longer to import than this module.
_Path = str | os.PathLike[str]

#: A decoded image may always have this many bytes, at three bytes a pixel. Pillow refuses larger images.
LEAST_IMAGE_LIMIT_BYTES = 1 << 29

_USUAL_MEMORY_BYTES = 8 << 30
_UNLIMITED = 1 << 60  # version 1 of control groups has a larger number for "no limit"


def available_bytes(root: _Path = "/") -> int:
    """Return the bytes that can be allocated without evicting memory in use.

    Args:
        root: the folder of proc and sys.
    """
    return min([_available_in_machine(root), *_left_in_groups(root)])


def available_cpus(root: _Path = "/") -> float:
    """Return how many CPUs this process may keep busy, by its affinity and its control groups' quota of CPU time."""
    quota = cpu_quota(root)
    allowed = allowed_cpus()
    return allowed if quota is None else min(allowed, quota)


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on, by its affinity where the system has such."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, PermissionError):  # macOS and Windows; a sandbox
        return os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the memory of the machine; 8 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        return _USUAL_MEMORY_BYTES


def address_space_limit() -> int | None:
    """Return the limit of this process's address space (``ulimit -v``); None: no limit."""
    try:
        import resource  # noqa: PLC0415  # absent on Windows
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def oom_kills(root: _Path = "/") -> int:
    """Return how many processes the kernel's out-of-memory killer has killed since the machine started."""
    for line in read_file(os.path.join(root, "proc/vmstat")).splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0


def _available_in_machine(root: _Path) -> int:
    for line in read_file(os.path.join(root, "proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return _UNLIMITED


def cpu_quota(root: _Path = "/") -> float | None:
    """Return the CPU time that the control groups allow, in CPUs; None: no limit."""
    quotas = [quota for group, version in _groups(root, "cpu") if (quota := _quota(group, version)) is not None]
    return min(quotas, default=None)


def processes_left(root: _Path = "/") -> int | None:
    """Return how many more processes and threads the control groups allow; None: no limit."""
    limits = [(_number(f"{group}/pids.max"), _number(f"{group}/pids.current")) for group, _ in _groups(root, "pids")]
    return min((max(0, limit - used) for limit, used in limits if limit is not None and used is not None), default=None)


def within_process_limits(start: Callable[..., _Returned], *args: object) -> _Returned:
    """Call `start`, which starts a process, and return its result.

    Raises:
        ProcessLimitError: the system refuses another process.
    """
    try:
        return start(*args)
    except BlockingIOError as error:  # see fork(2)
        raise ProcessLimitError(
            error.errno,
            "no further process can be started for workers: end other processes, use fewer workers, or raise `ulimit -u` or "
            "`pids.max` of the control group",
        ) from error


def _quota(group: str, version: int) -> float | None:
    if version == 1:  # -1: no limit
        quota, period = (read_file(f"{group}/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    else:
        quota, _, period = read_file(f"{group}/cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _left_in_groups(root: _Path) -> Iterator[int]:
    """Yield the free memory of each control group of this process, and of each group above."""
    for group, version in _groups(root, "memory"):
        names = ("limit_in_bytes", "usage_in_bytes") if version == 1 else ("max", "current")
        limit, usage = (f"{group}/memory.{name}" for name in names)
        most = _number(limit)
        if most is not None and (used := _number(usage)) is not None:
            yield max(0, most - used + _reclaimable(group))


def _groups(root: _Path, controller: str) -> Iterator[tuple[str, int]]:
    """Yield the folders with files of a controller: of the control groups of this process, and of each group above.

    With each folder comes the version of control groups of these files.
    """
    for line in read_file(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            top = os.path.join(root, "sys/fs/cgroup")
        elif controller in controllers.split(","):
            top = os.path.join(root, "sys/fs/cgroup", controller)  # a link, if other controllers are mounted with it
        else:
            continue
        directory = os.path.join(top, group.strip("/")).rstrip("/")
        while True:
            yield directory, 1 if controllers else 2
            if directory == top:
                break
            directory = os.path.dirname(directory)


def _reclaimable(directory: str) -> int:
    """Return the bytes of a group's page cache that can be evicted. They count as used."""
    numbers = dict(line.split(" ", 1) for line in read_file(f"{directory}/memory.stat").splitlines())
    # Version 1 has both, and only total_inactive_file includes inner groups. In version 2, inactive_file includes them.
    return int(numbers.get("total_inactive_file") or numbers.get("inactive_file") or 0)


def _number(path: str) -> int | None:
    """Return the number in a file; None if it has "max", or does not exist."""
    text = read_file(path).strip()
    return int(text) if text.isdigit() else None


def read_file(path: str) -> str:
    """Return the text of one of the kernel's files; "" if it does not exist, for example because its process has ended."""
    try:
        with open(path, "rb", buffering=0) as file:  # twice as fast as text
            return (file.read() or b"").decode()
    except OSError:
        return ""
