"""Proportional set sizes of processes. The kernel walks all their pages, so statistics include them on request only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain

from dali_like.engine.memory.limits import read_file
from dali_like.monitor.measure.statistics import MemoryStatistics


def memory_of(worker_pids: Sequence[int], main_pid: int | None = None) -> MemoryStatistics:
    """Return the memory of a program, its workers, their forkserver and its reserve. Workers may be threads.

    Args:
        worker_pids: ids of the workers.
        main_pid: id of the program's process; None: this process.
    """
    main_pid = os.getpid() if main_pid is None else main_pid
    worker_pids = [pid for pid in worker_pids if not os.path.exists(f"/proc/{main_pid}/task/{pid}")]
    # The name of a command, in parentheses, may contain anything: the parent is counted from behind it.
    stats = filter(None, (read_file(f"/proc/{pid}/stat") for pid in worker_pids))
    forkservers = {int(stat.rpartition(")")[2].split()[1]) for stat in stats} - {0, main_pid}
    reserves = [reserve for forkserver in forkservers for reserve in _reserves_of(forkserver)]
    return MemoryStatistics(
        main_bytes=pss_bytes(main_pid),
        worker_bytes=tuple(map(pss_bytes, worker_pids)),
        forkserver_bytes=sum(map(pss_bytes, [*forkservers, *reserves])),
    )


def pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process (proc(5), smaps_rollup); 0 if it has exited, or the system has none."""
    lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def descendants_of(pid: int) -> list[int]:
    """Return the ids of the children of a process, of their children, and so on."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has exited
        return []
    children = [int(child) for thread in threads for child in read_file(f"/proc/{pid}/task/{thread}/children").split()]
    return [*children, *chain.from_iterable(map(descendants_of, children))]


def _reserves_of(forkserver: int) -> list[int]:
    children = map(int, read_file(f"/proc/{forkserver}/task/{forkserver}/children").split())
    from dali_like.engine.backends.forkserver import RESERVE_NAME  # for Linux only

    return [pid for pid in children if read_file(f"/proc/{pid}/comm").strip() == RESERVE_NAME]
