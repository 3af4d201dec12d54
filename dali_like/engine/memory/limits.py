"""What a process may still take: what the machine has, and what the process's control groups allow.

A process that exceeds the memory limit of a control group gets no error, it is killed. So that limit is read before memory
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

#: A tree of files that is not the machine's is given by tests. `pathlib` would take longer to import than all of this.
_Path = str | os.PathLike[str]

#: What an image that is decoded may take in any case, three bytes a pixel: those that are larger Pillow refuses.
LEAST_IMAGE_LIMIT_BYTES = 1 << 29

_UNLIMITED = 1 << 60  # version 1 of control groups says "no limit" by a larger number


def available_bytes(root: _Path = "/") -> int:
    """Bytes that can be had without pushing anything out that is in use.

    Args:
        root: where /proc and /sys are found.
    """
    return min([_available_in_machine(root), *_left_in_groups(root)])


def available_cpus(root: _Path = "/") -> float:
    """How many CPUs this process may keep busy: those of its affinity, or its control groups' quota of CPU time."""
    quota = cpu_quota(root)
    allowed = len(os.sched_getaffinity(0))
    return allowed if quota is None else min(allowed, quota)


def oom_kills(root: _Path = "/") -> int:
    """How often the kernel's out-of-memory killer has killed a process since the machine has started."""
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
    """How many processors' time the control groups allow; None: all there is."""
    quotas = [quota for group, version in _groups(root, "cpu") if (quota := _quota(group, version)) is not None]
    return min(quotas, default=None)


def processes_left(root: _Path = "/") -> int | None:
    """How many processes and threads the control groups still allow; None: any number."""
    limits = [(_number(f"{group}/pids.max"), _number(f"{group}/pids.current")) for group, _ in _groups(root, "pids")]
    return min((max(0, limit - used) for limit, used in limits if limit is not None and used is not None), default=None)


def within_process_limits(start: Callable[..., _Returned], *args: object) -> _Returned:
    """What `start`, which starts a process, returns.

    Raises:
        ProcessLimitError: the system refuses it.
    """
    try:
        return start(*args)
    except BlockingIOError as error:  # see fork(2)
        raise ProcessLimitError(
            error.errno,
            "no further process can be started for workers: end some, ask for fewer workers, or raise `ulimit -u`, or "
            "`pids.max` of the control group",
        ) from error


def _quota(group: str, version: int) -> float | None:
    if version == 1:  # where -1 says "no limit"
        quota, period = (read_file(f"{group}/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    else:
        quota, _, period = read_file(f"{group}/cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _left_in_groups(root: _Path) -> Iterator[int]:
    """What each memory control group that this process is in, and each above it, has left."""
    for group, version in _groups(root, "memory"):
        names = ("limit_in_bytes", "usage_in_bytes") if version == 1 else ("max", "current")
        limit, usage = (f"{group}/memory.{name}" for name in names)
        most = _number(limit)
        if most is not None and (used := _number(usage)) is not None:
            yield max(0, most - used + _reclaimable(group))


def _groups(root: _Path, controller: str) -> Iterator[tuple[str, int]]:
    """The folders of the control groups that this process is in, and of each above, which have files of a controller.

    Each with the version of control groups that these files are of.
    """
    for line in read_file(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            top = os.path.join(root, "sys/fs/cgroup")
        elif controller in controllers.split(","):
            top = os.path.join(root, "sys/fs/cgroup", controller)  # where others are mounted with it, this is a link
        else:
            continue
        directory = os.path.join(top, group.strip("/")).rstrip("/")
        while True:
            yield directory, 1 if controllers else 2
            if directory == top:
                break
            directory = os.path.dirname(directory)


def _reclaimable(directory: str) -> int:
    """The page cache of a group: it counts as used, but gives way."""
    numbers = dict(line.split(" ", 1) for line in read_file(f"{directory}/memory.stat").splitlines())
    # Version 1 has both, and only the second counts the groups within; version 2 has the first, and it does.
    return int(numbers.get("total_inactive_file") or numbers.get("inactive_file") or 0)


def _number(path: str) -> int | None:
    """What a file says; None: "max", or there is no such file."""
    text = read_file(path).strip()
    return int(text) if text.isdigit() else None


def read_file(path: str) -> str:
    """What one of the kernel's files says; nothing if there is no such file, be it that its process has ended."""
    try:
        with open(path, "rb", buffering=0) as file:  # half of the time that text takes
            return (file.read() or b"").decode()
    except OSError:
        return ""
