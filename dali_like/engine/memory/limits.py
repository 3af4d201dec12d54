"""Limits of memory, CPUs and processes, of the machine and of the process's control groups.

A process that exceeds the memory limit of a control group gets no error: it is killed. So that limit is read before memory
is taken. Afterwards, counters of the out-of-memory killer show whether a process was killed for lack of memory. Sources:
proc(5) on /proc/meminfo and /proc/vmstat, the kernel's admin guide on control groups (v2 ``memory.max``, ``memory.current``,
``memory.events``, ``cpu.max``, ``pids.max``, ``pids.current``; v1 ``memory.limit_in_bytes``, ``memory.usage_in_bytes``,
``memory.oom_control``, ``cpu.cfs_quota_us``, ``cpu.cfs_period_us``, and the same two of ``pids``).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from dali_like.engine.memory.system_calls import is_refusal
from dali_like.errors import ProcessLimitError

_Returned = TypeVar("_Returned")

#: Tests pass a tree of files. `pathlib` would take longer to import than this module.
_Path = str | os.PathLike[str]

#: A decoded image may always have this many bytes, at three bytes a pixel. Pillow refuses larger images.
LEAST_IMAGE_LIMIT_BYTES = 1 << 29

_USUAL_MEMORY_BYTES = 8 << 30

_RECENT_S = 1.0
#: Time and result of the last look at the available memory.
_last_look = -math.inf, 0


def available_bytes(root: _Path = "/") -> int:
    """Return the bytes that can be allocated without evicting memory in use.

    Args:
        root: the folder of proc and sys.
    """
    global _last_look  # noqa: PLW0603
    available = min([_in_meminfo(root, "MemAvailable"), *_left_in_groups(root)])
    if root == "/":
        _last_look = time.monotonic(), available
    return available


def recently_available_bytes() -> int:
    """Return the bytes that could be allocated within the last second: a dozen files of the kernel are read for each look.

    A forked process knows the last look of its parent.
    """
    looked_s, available = _last_look
    return available if time.monotonic() - looked_s < _RECENT_S else available_bytes()


def available_cpus(root: _Path = "/") -> float:
    """Return how many CPUs this process may keep busy, by its affinity and its control groups' quota of CPU time."""
    quota = cpu_quota(root)
    allowed = allowed_cpus()
    return allowed if quota is None else min(allowed, quota)


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on, by its affinity where the system has such."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError) as error:  # macOS and Windows; a sandbox
        if not is_refusal(error):
            raise
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
        import resource  # absent on Windows
    except ImportError:
        return None
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    except OSError as error:
        if not is_refusal(error):
            raise
        return None
    return None if limit == resource.RLIM_INFINITY else limit


def oom_kills(root: _Path = "/") -> int | None:
    """Return how many processes of this control group the out-of-memory killer has killed; None: the kernel does not say.

    This includes kills for the limits of groups above, and for shortage in the whole machine.
    """
    for group, version in _groups(root, "memory"):
        kills = _counter(f"{group}/memory.{'oom_control' if version == 1 else 'events'}", "oom_kill")
        if kills is not None:
            return kills
    return None


def oom_kills_in_machine(root: _Path = "/") -> int | None:
    """Return how many processes of the machine the out-of-memory killer has killed; None: the kernel does not say."""
    return _counter(os.path.join(root, "proc/vmstat"), "oom_kill")


def memory_limit(root: _Path = "/") -> tuple[int, str]:
    """Return the least memory that this process and its workers may use together, and the file with that limit.

    The file is "" if it is the memory of the machine.
    """
    limits = [(_in_meminfo(root, "MemTotal"), "")]
    for group, version in _groups(root, "memory"):
        file = f"{group}/memory.{'limit_in_bytes' if version == 1 else 'max'}"
        if (limit := _number(file)) is not None:
            limits.append((limit, file))
    return min(limits, key=lambda limit: limit[0])


def _in_meminfo(root: _Path, wanted: str) -> int:
    """Return a number of /proc/meminfo in bytes; the memory of the machine if the file cannot be read."""
    _, found, rest = f"\n{read_file(os.path.join(root, 'proc/meminfo'))}".partition(f"\n{wanted}:")
    return int(rest.split(None, 1)[0]) * 1024 if found else memory_bytes()


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
    # Version 1 has both, and only total_inactive_file includes inner groups. In version 2, inactive_file includes them.
    return _counter(f"{directory}/memory.stat", "total_inactive_file", "inactive_file") or 0


def _counter(path: str, *names: str) -> int | None:
    """Return the value of the first of some names in a file of names and values; None if it has none of them.

    The text is searched: the file has forty lines, and is read for each slot that gets memory.
    """
    text = f"\n{read_file(path)}"
    for name in names:
        _, found, rest = text.partition(f"\n{name} ")
        if found:
            return int(rest.partition("\n")[0])
    return None


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
