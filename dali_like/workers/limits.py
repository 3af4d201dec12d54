"""How much memory a process may still take: what the machine has, and what the process's control groups allow.

A process that exceeds the limit of a control group gets no error, it is killed. So the limits are read before memory is
taken. Sources: proc(5) on /proc/meminfo, the kernel's admin guide on memory controllers (cgroup v2 ``memory.max`` and
``memory.current``, v1 ``memory.limit_in_bytes`` and ``memory.usage_in_bytes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = 1 << 60  # version 1 says "no limit" by a number larger than any memory


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that can be had without pushing anything out that is in use.

    Args:
        root: where /proc and /sys are found.
    """
    return min([_available_in_machine(root), *_left_in_groups(root)])


def oom_kills(root: Path = Path("/")) -> int:
    """How often the kernel's out-of-memory killer has killed a process since the machine has started."""
    for line in _read(root / "proc/vmstat").splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0


def _available_in_machine(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return _UNLIMITED


def _left_in_groups(root: Path) -> Iterator[int]:
    """What each memory control group that this process is in, and each above it, has left."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            top, limit_name, usage_name = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            limit_name, usage_name = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        directory = top / group.strip("/")
        while True:
            limit, usage = _read(directory / limit_name).strip(), _read(directory / usage_name).strip()
            if limit.isdigit() and usage.isdigit() and int(limit) < _UNLIMITED:
                yield max(0, int(limit) - int(usage) + _reclaimable(directory))
            if directory == top:
                break
            directory = directory.parent


def _reclaimable(directory: Path) -> int:
    """The page cache of a group: it counts as used, but gives way."""
    numbers = dict(line.split(" ", 1) for line in _read(directory / "memory.stat").splitlines())
    # Version 1 has both, and only the second counts the groups within; version 2 has the first, and it does.
    return int(numbers.get("total_inactive_file") or numbers.get("inactive_file") or 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # another version of control groups, or none
        return ""
