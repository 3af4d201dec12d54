"""One budget of CPU time for the pools of a user on a host. Runs in main processes.

Each pool whose number of workers is "auto" has an entry: an anonymous file of its own process with one record. There is no
daemon and no name: others find the file among the descriptors in ``/proc``, so the end of a process removes its entry. Every
`_PERIOD_S`, while its loop asks for batches, a pool writes its entry, reads the others, and computes its own share
(`shares`). All compute the same, from the same entries. Pools whose number of workers is fixed count if they are published,
and give nothing.

Entries do not reach into other containers: these have processes and quotas of their own.

Cost: a record takes some 10 us to read. New entries are sought at most once a second, and in at most a hundredth of the
time: this reads the names of all descriptors of the user's processes. Until the others have found a new pool, it uses
`LEAST_CPUS`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import available_cpus, read_file
from dali_like.engine.memory.system_calls import anonymous_file, is_anonymous_file
from dali_like.errors import ArgumentError

_NAME = "dali_like_share"
#: A number at both ends, which differ while the record is being written.
_RECORD = struct.Struct("=q6q4dq")
#: How often a pool writes its entry and computes its share.
_PERIOD_S = 0.25
#: How long an entry is valid without another one, at least, and as a multiple of the time since the one before.
_VALID_S = 2.0
_VALID_PERIODS = 4.0
#: The time between two searches for new entries, at least, and as a multiple of the time that one takes.
_SEARCH_S = 1.0
_SEARCH_FACTOR = 100
#: The least share of a pool: each keeps one worker.
LEAST_CPUS = 0.05
#: A pool needs so much more than it has used, to leave headroom for jitter.
_MARGIN = 1.25
#: The loop's own time counts as at least this part of the time.
_LEAST_LOOP = 0.02


class Entry(NamedTuple):
    """The entry of one pool.

    Attributes:
        pid, number: process, and number of the pool in it.
        valid_ns: until when it counts, on the clock of `time.monotonic_ns`.
        num_workers, num_active: workers, and the number of them that do not rest.
        is_fixed: whether it gives nothing.
        budget: CPUs that all pools of the host may use, according to this process.
        needed, used, share: CPUs.
    """

    pid: int
    number: int
    valid_ns: int
    num_workers: int
    num_active: int
    is_fixed: int
    budget: float
    needed: float
    used: float
    share: float


def cpu_budget() -> float:
    """Return the CPUs that all pools of this user on this host may use: ``DALI_LIKE_CPUS``, or the CPUs of this process.

    Raises:
        ArgumentError: the variable has no positive number.
    """
    text, available = os.environ.get("DALI_LIKE_CPUS", ""), available_cpus()
    if not text:
        return available
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return min(number, available)
    raise ArgumentError(f"DALI_LIKE_CPUS must be a positive number of CPUs, not {text!r}")


def shares(needs: Sequence[float], budget: float) -> list[float]:
    """Return the CPUs of each pool: as many as it needs, or an equal part of the CPUs that others leave.

    >>> shares([0.5, 3.0, 9.0], 4.0)
    [0.5, 1.75, 1.75]
    """
    result = [0.0] * len(needs)
    left = budget
    for place, i in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        result[i] = min(needs[i], max(left, 0.0) / (len(needs) - place))
        left -= result[i]
    return result


def needed_cpus(used_s: float, own_s: float, elapsed_s: float, most: float) -> float:
    """Return the CPUs that the workers of a loop need so that it does not wait.

    Args:
        used_s: CPU time of the workers for the batches of a time.
        own_s: the loop's own time in it, without waiting.
        elapsed_s: that time.
        most: the largest result.
    """
    return min(max(_MARGIN * used_s / max(own_s, _LEAST_LOOP * elapsed_s), LEAST_CPUS), most)


class HostBudget:
    """The entry of a pool, and its share.

    Args:
        is_fixed: whether the pool gives nothing.

    Attributes:
        budget: the CPUs of the host, according to this process.

    Raises:
        UnsupportedSystemError: the system has no anonymous files.
        ArgumentError: see `cpu_budget`.
    """

    _numbers = itertools.count(1)

    def __init__(self, *, is_fixed: bool = False) -> None:
        self.budget = cpu_budget()
        self._is_fixed = is_fixed
        self._pid = os.getpid()
        self._number = next(self._numbers)
        self._file = Descriptor(anonymous_file(_NAME))
        self._places: list[tuple[int, int]] = []
        self._search_s = -math.inf
        self._written_s = time.monotonic()
        self._count = 0
        self._known_s = self._written_s + _SEARCH_S + _PERIOD_S

    def update(self, needed: float, used: float, num_workers: int, num_active: int) -> float | None:
        """Write the entry, and return the share of this pool; None: there is enough for all, or this is another process.

        Args:
            needed, used: CPUs, since the last call.
            num_workers, num_active: as in `Entry`.
        """
        if self._pid != os.getpid():
            return None
        now_s = time.monotonic()
        if now_s >= self._search_s and not self._is_fixed:
            self._places = places()
            self._search_s = now_s + max(_SEARCH_S, _SEARCH_FACTOR * (time.monotonic() - now_s))
        others = [
            entry
            for entry in read(self._places)
            if (entry.pid, entry.number) != (self._pid, self._number) and is_valid(entry)
        ]
        budget = min([self.budget, *(entry.budget for entry in others)])
        left = budget - sum(entry.used for entry in others if entry.is_fixed)
        needs = [needed, *(entry.needed for entry in others if not entry.is_fixed)]
        is_enough = self._is_fixed or sum(needs) <= left
        share = needed if is_enough else max(shares(needs, left)[0], LEAST_CPUS)
        if others and now_s < self._known_s and not is_enough:
            share = LEAST_CPUS
        valid_s = max(_VALID_S, _VALID_PERIODS * (now_s - self._written_s))
        self._written_s = now_s
        self._write(
            Entry(
                self._pid,
                self._number,
                int((now_s + valid_s) * 1e9),
                num_workers,
                num_active,
                self._is_fixed,
                self.budget,
                needed,
                used,
                share,
            )
        )
        return None if is_enough and budget >= available_cpus() else share

    def close(self) -> None:
        """Remove the entry."""
        self._file.close()

    def _write(self, entry: Entry) -> None:
        self._count += 1
        if self._file.fileno() >= 0:
            os.pwrite(self._file.fileno(), _RECORD.pack(self._count, *entry, self._count), 0)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process or thread; 0 if it has ended, or the kernel does not count."""
    try:
        return int(read_file(f"/proc/{pid}/schedstat").split()[0]) / 1e9
    except (IndexError, ValueError):
        return 0.0


def is_valid(entry: Entry) -> bool:
    """Return whether an entry counts: its loop has asked for batches lately."""
    return entry.valid_ns > time.monotonic_ns()


def places() -> list[tuple[int, int]]:
    """Return the processes and descriptors of all entries of this user."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if is_anonymous_file(os.readlink(f"/proc/{pid}/fd/{fd}"), _NAME):
                    found.append((int(pid), int(fd)))
    return found


def read(known: Sequence[tuple[int, int]]) -> list[Entry]:
    """Return the entries at some places, without ended ones. Children have copies of their parents' files."""
    found = []
    for pid, fd in known:
        with contextlib.suppress(OSError):
            if not is_anonymous_file(os.readlink(f"/proc/{pid}/fd/{fd}"), _NAME):
                continue
            opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                data = os.pread(opened, _RECORD.size, 0)
            finally:
                os.close(opened)
            if len(data) == _RECORD.size:
                begin, *words, end = _RECORD.unpack(data)
                entry = Entry(*words)
                if begin == end and entry.pid == pid and all(map(math.isfinite, words)):
                    found.append(entry)
    return found


def next_update_s(now_s: float) -> float:
    """Return when the next update is due."""
    return now_s + _PERIOD_S
