"""CPU time and memory of a tree of live processes: proc(5), clock_getcpuclockid(3).

``RUSAGE_CHILDREN`` counts only children that have been waited for, not live workers. The whole tree is walked, because a
worker may be a grandchild of the consumer's process.

CPU time is read from the CPU-time clock of each process, in nanoseconds, because ``/proc/<pid>/stat`` has clock ticks,
usually of 10 ms. Limitations: the machine's busy time is only available in ticks. Shared memory that no process maps at the
moment is in no process's PSS.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["adopt_orphans", "cpu_s", "descendants", "machine_busy_s", "pss_bytes", "session_of"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_LIBC = ctypes.CDLL(None)
_PR_SET_CHILD_SUBREAPER = 36


def descendants(root: int) -> frozenset[int]:
    """Return the processes below ``root``, at any depth."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # exited between listing and reading
        # "pid (name) state ppid ...", where the name may contain spaces and parentheses
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry))
    found: set[int] = set()
    unvisited = [root]
    while unvisited:
        below = children.get(unvisited.pop(), [])
        found.update(below)
        unvisited.extend(below)
    return frozenset(found)


def session_of(leader: int) -> frozenset[int]:
    """Return the processes of a session, orphans included."""
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(entry)) == leader:
                found.add(int(entry))
    return frozenset(found)


def adopt_orphans() -> None:
    """Make orphans below this process its children, so that `descendants` finds them (PR_SET_CHILD_SUBREAPER)."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds, user and system, of all threads of these live processes since they began."""
    total = 0.0
    for pid in pids:
        clock = ctypes.c_int()
        if _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
            raise ProcessLookupError(f"process {pid} has exited: its CPU time is lost")
        total += time.clock_gettime(clock.value)
    return total


def machine_busy_s() -> float:
    """Return the CPU seconds that the machine's cores have been busy since boot."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = (int(field) for field in file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def pss_bytes(pids: Iterable[int]) -> int:
    """Return the total proportional set size of these processes: memory shared by n processes counts 1/n in each."""
    total_kib = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total_kib += int(line.split()[1])
    return total_kib * 1024
