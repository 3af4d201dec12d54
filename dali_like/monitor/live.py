"""What a running pipeline or loader shows to other programs of the same user: ``dali-like top`` and ``dali-like view``.

A pipeline that is published writes its statistics, as JSON, into an anonymous file of its own process (`memfd_create`), at
most four times a second and from within the loop: there is no thread, no socket and no name in any file system, and nothing
is left behind, whoever is killed. Others find it among the descriptors of the user's processes in ``/proc``, which the
kernel shows to that user, and to root, alone.

The first word of the file is odd while the text behind it is being changed, and grows with each change; the second is the
text's length.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import struct
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.errors import NotRunningError
from dali_like.monitor.statistics import Statistics

_NAME = "dali_like_live"
_VERSION = 1
_BYTES = 1 << 18
_HEADER = struct.Struct("=qq")
_PERIOD_NS = 250_000_000
_NUM_SLOWEST = 10
#: So often a text is read that may be changing meanwhile.
_TRIES = 100
_PAUSE_S = 0.001
_numbers = itertools.count(1)


class Published(Protocol):
    """What can be published."""

    def statistics(self) -> Statistics:
        """What has happened so far."""


class Publication:
    """Shows the statistics of something until it is closed, or dropped; one of the loop's hooks.

    Args:
        whose: a pipeline or a loader, which is not kept.
        name: what it is shown as; "": as the first, second, ... of its program.
    """

    def __init__(self, whose: Published, name: str = "") -> None:
        self._whose = weakref.ref(whose)
        self._pid = os.getpid()
        self._written_ns = 0
        self._fd = Descriptor(os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        os.ftruncate(self._fd.fileno(), _BYTES)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._name = name or f"{whose.statistics().settings.kind} {next(_numbers)} of {Path(sys.argv[0]).name or 'python'}"
        self._change = 0
        self(0)

    def close(self) -> None:
        """Show nothing any more."""
        self._fd.close()

    def __call__(self, batches: int) -> None:
        """Show what there is now, if it is time to."""
        now_ns = time.monotonic_ns()
        if now_ns - self._written_ns < _PERIOD_NS or self._pid != os.getpid() or self._fd.fileno() < 0:
            return
        whose = self._whose()
        if whose is not None:
            self._write(json.dumps(snapshot(whose.statistics(), self._name, now_ns)).encode())
            self._written_ns = now_ns

    def _write(self, text: bytes) -> None:
        if len(text) > _BYTES - _HEADER.size:
            return  # thousands of workers: the last text that there was room for stays
        fd, self._change = self._fd.fileno(), self._change + 2
        os.pwrite(fd, _HEADER.pack(self._change - 1, len(text)), 0)
        os.pwrite(fd, text, _HEADER.size)
        os.pwrite(fd, _HEADER.pack(self._change, len(text)), 0)


def snapshot(statistics: Statistics, name: str, now_ns: int) -> dict[str, Any]:
    """What is shown of statistics. All counts and times are those since the beginning."""
    loop, sources = statistics.loop, statistics.sources
    slowest = [(call, source.name) for source in sources for call in source.slowest]
    slowest.sort(key=lambda pair: pair[0].duration_ns, reverse=True)
    return {
        "version": _VERSION,
        "pid": os.getpid(),
        "name": name,
        "at_ns": now_ns,
        "batches": loop.batches,
        "samples": loop.batches * statistics.settings.batch_size,
        "epochs": loop.epochs,
        "errors": loop.errors,
        "wait_s": loop.wait.total_s + loop.first_batch_s,
        "restarts": statistics.worker_restarts,
        "replaced": statistics.replaced_samples,
        "bytes": statistics.held_bytes,
        "ready": sum(source.ring.ready for source in sources),
        "slots_in_use": sum(source.ring.slots - source.ring.free for source in sources),
        "workers": [
            {"number": worker.number, "pid": worker.pid, "busy_s": worker.busy_s, "on_task_s": worker.on_task_s}
            for worker in statistics.workers
        ],
        "slowest": [
            {"source": name, "sample": call.sample, "epoch": call.epoch, "duration_s": call.duration_ns / 1e9}
            for call, name in slowest[:_NUM_SLOWEST]
        ],
    }


class Live(NamedTuple):
    """A pipeline or loader that another process shows.

    Attributes:
        pid: of that process.
        fd: the number of the descriptor there.
        name: what it is, and of which program.
    """

    pid: int
    fd: int
    name: str

    def read(self) -> dict[str, Any]:
        """What it shows, and ``age_s``: how old that is. Nothing is written while its program asks for no batch.

        Raises:
            NotRunningError: it has been closed, or its program has ended.
        """
        shown = _read(self.pid, self.fd)
        if shown is None:
            raise NotRunningError(f"{self.name} (process {self.pid}) has ended")
        return {**shown, "age_s": (time.monotonic_ns() - shown["at_ns"]) / 1e9}


def find(pid: int | None = None, name: str | None = None) -> list[Live]:
    """What processes of this user show: all of it, or what one of them does, or what has a certain name."""
    found = _find(os.listdir("/proc") if pid is None else [str(pid)])
    return sorted(live for live in found if name in (None, live.name))


def choose(pid: int | None = None, name: str | None = None) -> Live:
    """The only one that there is of a process, or of a name.

    Raises:
        NotRunningError: there is none, or there are several.
    """
    found = find(pid, name)
    if len(found) == 1:
        return found[0]
    if found:
        those = "; ".join(f"--pid {live.pid} --name {live.name!r}" for live in found)
        raise NotRunningError(f"several pipelines are shown; choose one: {those}")
    where = "no program of this user shows" if pid is None else f"process {pid} does not show"
    what = "a pipeline" if name is None else f"a pipeline called {name!r}"
    raise NotRunningError(f"{where} {what}: call publish() on one, or start the program with DALI_LIKE_PUBLISH=1")


def _find(pids: list[str]) -> Iterator[Live]:
    for pid in filter(str.isdigit, pids):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if _is_publication(pid, fd) and (shown := _read(int(pid), int(fd))) is not None:
                    yield Live(int(pid), int(fd), shown["name"])


def _is_publication(pid: str, fd: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}").startswith(f"/memfd:{_NAME} ")
    except OSError:  # closed meanwhile
        return False


def _read(pid: int, fd: int) -> dict[str, Any] | None:
    """What a publication says; None if it is none of that process, any more at least."""
    try:
        if not _is_publication(str(pid), str(fd)):
            return None
        with open(f"/proc/{pid}/fd/{fd}", "rb", buffering=0) as file:
            shown = _text_of(file.fileno())
    except OSError:
        return None
    # A forked child has its parent's publications, too.
    return shown if shown is not None and shown["pid"] == pid and shown["version"] == _VERSION else None


def _text_of(fd: int) -> dict[str, Any] | None:
    for _ in range(_TRIES):
        data = os.pread(fd, _BYTES, 0)
        change, length = _HEADER.unpack_from(data)
        if change % 2 == 0 and os.pread(fd, _HEADER.size, 0) == data[: _HEADER.size]:
            text: dict[str, Any] = json.loads(data[_HEADER.size : _HEADER.size + length])
            return text
        time.sleep(_PAUSE_S)
    return None
