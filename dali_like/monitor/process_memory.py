"""How much memory processes take, by PSS. The kernel goes through all their pages for it, so it is done when asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dali_like.engine.memory.limits import read_file
from dali_like.monitor.statistics import MemoryStatistics


def memory_of(worker_pids: Sequence[int]) -> MemoryStatistics:
    """The memory of this process, its workers, and what these were forked from. Workers may be threads of this process."""
    worker_pids = [pid for pid in worker_pids if not os.path.exists(f"/proc/self/task/{pid}")]
    others = {pid for pid in map(_parent_of, worker_pids) if pid} - {os.getpid()}
    return MemoryStatistics(
        main_bytes=pss_bytes(os.getpid()),
        worker_bytes=tuple(map(pss_bytes, worker_pids)),
        forkserver_bytes=sum(map(pss_bytes, others)),
    )


def pss_bytes(pid: int) -> int:
    """The proportional set size of a process (proc(5), smaps_rollup); 0 where it has ended, or the system does not tell."""
    lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _parent_of(pid: int) -> int:
    stat = read_file(f"/proc/{pid}/stat")
    return int(stat.rpartition(")")[2].split()[1]) if stat else 0
