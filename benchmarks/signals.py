"""Send random signals to the processes of a program, for `soak` and `storm`."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Storm", "is_alive", "target_pids", "worker_pids"]

#: Other processes of loaders: dali_like's forkserver and its reserve, and helpers of multiprocessing.
_FORKSERVER, _RESERVE = "dali_like:start", "dali_like:spare"
_HELPERS = (_FORKSERVER, _RESERVE, "resource_tracker", "forkserver")

#: Interval of looks at a killed process.
_LOOK_S = 0.001


def worker_pids(pids: Iterable[int]) -> list[int]:
    """Return the live worker processes among some processes, of any library."""
    return sorted(pid for pid in pids if is_alive(pid) and not _is_helper(pid))


def target_pids(pids: Iterable[int], *, have_reserves: bool) -> list[int]:
    """Return the live workers of dali_like, its forkservers and their reserves.

    Args:
        have_reserves: whether forkservers have reserves, that is under fork. Then a forkserver and its reserve are targets
            only while both exist: only a forkserver that dies together with its reserve is not replaced. A reserve is the
            child of its forkserver. Numbers of processes do not show the pairs, because a process has the name of its
            parent between its fork and its first instructions.
    """
    names = {pid: _read(pid, "comm").strip() for pid in pids if is_alive(pid)}
    helpers = [pid for pid, name in names.items() if name in (_FORKSERVER, _RESERVE)]
    targets = {pid for pid, name in names.items() if name.startswith("dali_like:") and pid not in helpers}
    if not have_reserves:
        return sorted(targets.union(helpers))
    for pid in helpers:
        parent = _parent(pid)
        if names[pid] == _RESERVE and names.get(parent) == _FORKSERVER:
            targets |= {pid, parent}
    return sorted(targets)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    return _stat(pid)[:1] not in ([], ["Z"])


def _parent(pid: int) -> int:
    """Return the parent of a process; 0 if the process has exited."""
    return int((_stat(pid)[1:2] or ["0"])[0])


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` after the name: state, parent and so on. Empty if the process has exited."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _is_helper(pid: int) -> bool:
    names = _read(pid, "comm") + _read(pid, "cmdline")
    return any(helper in names for helper in _HELPERS)


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it has exited
        return ""


class Storm:
    """Context that sends signals to random processes at random times, from its own thread.

    Args:
        find: returns the processes that may get a signal now.
        signals: average number of each signal per second.
        least_gaps_s: minimum time between two signals of a kind.
        seed: seed of the random numbers.

    Attributes:
        sent: number of signals sent, for each kind.
    """

    def __init__(
        self,
        find: Callable[[signal.Signals], Sequence[int]],
        signals: Mapping[signal.Signals, float],
        *,
        least_gaps_s: Mapping[signal.Signals, float] | None = None,
        seed: int = 0,
    ) -> None:
        self.sent: Counter[signal.Signals] = Counter()
        self._find = find
        self._signals = signals
        self._least_gaps_s = least_gaps_s or {}
        self._last_s: dict[signal.Signals, float] = {}
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="storm", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        numbers, rates = list(self._signals), list(self._signals.values())
        while not self._over.wait(self._random.expovariate(sum(rates))):
            (number,) = self._random.choices(numbers, rates)
            now = time.monotonic()
            if now - self._last_s.get(number, 0.0) < self._least_gaps_s.get(number, 0.0):
                continue
            if targets := self._find(number):
                target = self._random.choice(targets)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(target, number)
                    self.sent[number] += 1
                    self._last_s[number] = now
                while number == signal.SIGKILL and is_alive(target) and not self._over.wait(_LOOK_S):
                    pass  # until it has ended, a forkserver looks as if its reserve could be killed
