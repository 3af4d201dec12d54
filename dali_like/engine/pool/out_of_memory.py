"""Deaths of workers by the kernel's out-of-memory killer: recognize and explain them. Runs in the main process."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

from dali_like.engine.memory.limits import memory_limit, oom_kills, oom_kills_in_machine, read_file
from dali_like.engine.memory.space import mib

#: Messages name this many workers, those with the most memory.
_MOST_NAMED = 8

_ADVICE = (
    "Use fewer workers (py_num_workers; num_workers of a DataLoader), compute fewer batches ahead (prefetch_queue_depth; "
    "prefetch_factor), make batches or samples smaller, or allow more memory"
)


class Shortage(NamedTuple):
    """The reason of a death.

    Attributes:
        is_certain: whether the kernel says that memory was the reason.
        how: the end of the worker, for messages, as `Workers.describe_exit` describes others.
    """

    is_certain: bool
    how: str


class OutOfMemoryWatch:
    """Compares the kernel's counters of killed processes with the deaths of workers."""

    def __init__(self) -> None:
        self._kills = oom_kills()
        self._kills_in_machine = oom_kills_in_machine()

    def explain(self, exitcode: int | None) -> Shortage | None:
        """Return the reason if a process has, or may have, died for lack of memory. Call it once for each death.

        Args:
            exitcode: minus the signal's number if a signal has killed the process.
        """
        if exitcode != -signal.SIGKILL:
            return None
        kills = oom_kills()
        if kills is not None and self._kills is not None:
            if kills <= self._kills:
                return None
            self._kills += 1  # not `= kills`: another worker may have died as well
            return Shortage(True, "was killed by the kernel: out of memory,")
        kills = oom_kills_in_machine()
        if kills is not None and self._kills_in_machine is not None:
            if kills <= self._kills_in_machine:
                return None
            self._kills_in_machine += 1
        return Shortage(False, "was killed by SIGKILL, possibly by the kernel: out of memory,")


def describe_memory(dead: str, peak_bytes: int, others: Mapping[int, int], batch_bytes: int) -> str:
    """Describe the limit of memory and its use after the death of a process, and how to use less.

    Args:
        dead: the dead process, such as "worker 1".
        peak_bytes: its largest resident memory; 0 if it is unknown.
        others: the process ids of the other workers, by number.
        batch_bytes: the memory of all batches.
    """
    limit_bytes, file = memory_limit()
    limit = mib(limit_bytes)
    limit = f"The limit of the control group is {limit} ({file})" if file else f"The machine has {limit}"
    used = [f"{dead} {mib(peak_bytes)} at most"] if peak_bytes else []
    resident = {f"worker {number}": _resident_bytes(pid) for number, pid in others.items()}
    by_size = sorted(((name, nbytes) for name, nbytes in resident.items() if nbytes), key=lambda pair: -pair[1])
    used += [f"{name} {mib(nbytes)}" for name, nbytes in by_size[:_MOST_NAMED]]
    if rest := by_size[_MOST_NAMED:]:
        used.append(f"{len(rest)} further workers {mib(sum(nbytes for _, nbytes in rest))} together")
    used.append(f"the main process {mib(_resident_bytes(os.getpid()))}")
    return f"{limit}. Resident memory: {', '.join(used)}; {mib(batch_bytes)} of it is shared memory of batches. {_ADVICE}"


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process (proc(5), statm); 0 if it has ended."""
    pages = read_file(f"/proc/{pid}/statm").split()
    return int(pages[1]) * mmap.PAGESIZE if pages else 0
