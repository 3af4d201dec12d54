"""Publish statistics of a running pipeline or loader to other programs of the same user.

``dali-like top`` and ``dali-like view`` read them. The loop writes its statistics as JSON into an anonymous file of its own
process (`memfd_create`), at most four times a second. There is no thread, no socket and no name in any file system, so
nothing stays behind after a kill. Readers find the file among the descriptors in ``/proc``, which the kernel shows only to
the same user and to root. Root reads processes of other users only if their id is given. What does not have the form of
statistics is skipped.

The first word of the file is a sequence number, odd during a write. The second word is the length of the text.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
import struct
import sys
import time
import weakref
from pathlib import Path
from typing import Any, NamedTuple

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.system_calls import anonymous_file, is_anonymous_file, seal
from dali_like.engine.pool.backend_traits import backend_named
from dali_like.engine.pool.host_budget import HostBudget, cpu_s
from dali_like.errors import ArgumentError, NotRunningError
from dali_like.monitor.measure.diagnosis import Bottleneck, diagnose
from dali_like.monitor.measure.durations import EDGES_S, Durations
from dali_like.monitor.measure.process_memory import memory_of
from dali_like.monitor.measure.stages import waiting_by_stage
from dali_like.monitor.measure.statistics import Statistics
from dali_like.monitor.monitoring import Monitored, Peek, StepsOfNext
from dali_like.monitor.show.batch_pictures import PICTURE_BYTES, PictureDesk, request_picture
from dali_like.monitor.show.live_schema import SNAPSHOT
from dali_like.sources.ranks import detect_shard
from dali_like.sources.sharding import ALONE, Shard

_NAME = "dali_like_live"
_VERSION = 2
_BYTES = 1 << 18
_HEADER = struct.Struct("=qq")
_PERIOD_NS = 250_000_000
_NUM_SLOWEST = 10
#: Diagnosis and waiting cover the last one or two of these times.
WINDOW_NS = 15_000_000_000
#: Memory is measured at most this often: the kernel walks all pages of the processes.
_MEMORY_PERIOD_S = 2.0
#: Attempts to read a text that is being written.
_TRIES = 100
_PAUSE_S = 0.001
_numbers = itertools.count(1)


class Publication:
    """Hook of a loop that publishes statistics until it is closed or garbage-collected.

    Args:
        whose: a pipeline or a loader; held by a weak reference.
        name: name shown to readers; "": kind and number within the program.
        peek, steps: for pictures of batches and of steps, see `dali_like.monitor.show.batch_pictures`. None: no pictures.
    """

    def __init__(self, whose: Monitored, name: str = "", peek: Peek | None = None, steps: StepsOfNext | None = None) -> None:
        self._whose = weakref.ref(whose)
        self._pid = os.getpid()
        self._written_ns = 0
        self._fd = Descriptor(anonymous_file(_NAME))
        os.ftruncate(self._fd.fileno(), _BYTES + (0 if peek is None else PICTURE_BYTES))
        self._pictures = None if peek is None else PictureDesk(self._fd.fileno(), _BYTES, peek, steps)
        seal(self._fd.fileno(), "SHRINK", "GROW")
        self._name = name or f"{whose.statistics().settings.kind} {next(_numbers)} of {Path(sys.argv[0]).name or 'python'}"
        self._change = 0
        self._entry: HostBudget | None = None
        self._used_s = 0.0
        self._window = RecentPast(whose.statistics())
        self(0)

    def close(self) -> None:
        """Stop publishing."""
        self._fd.close()
        if self._entry is not None:
            self._entry.close()

    def __call__(self, batches: int) -> None:
        """Publish the current statistics, if a period has passed."""
        now_ns = time.monotonic_ns()
        if now_ns - self._written_ns < _PERIOD_NS or self._pid != os.getpid() or self._fd.fileno() < 0:
            return
        whose = self._whose()
        if whose is not None:
            now = whose.statistics()
            try:
                shard = detect_shard()
            except ArgumentError:  # half of a pair of variables: shown as a program without ranks
                shard = ALONE
            recent = self._window.since(now, now_ns)
            self._note_cpus(now, now_ns)
            self._write(json.dumps(snapshot(now, self._name, now_ns, recent, shard)).encode())
            self._written_ns = now_ns
            if self._pictures is not None:
                self._pictures.look()

    def _note_cpus(self, now: Statistics, now_ns: int) -> None:
        """Let workers whose number is fixed count in the budget of the host; others have an entry of their own."""
        chosen = now.settings.chosen
        backend = backend_named(now.settings.start_method)
        if (chosen is not None and chosen.num_workers_reason) or backend is None or backend.is_remote:
            return
        pids = [worker.pid for worker in now.workers if worker.pid]
        total_s = sum(map(cpu_s, pids))
        used_s, self._used_s = max(total_s - self._used_s, 0.0), total_s
        if self._entry is None:
            self._entry = HostBudget(is_fixed=True)
        elif self._written_ns:
            used = used_s / max((now_ns - self._written_ns) / 1e9, _PERIOD_NS / 1e9)
            self._entry.update(used, used, len(pids), len(pids))

    def _write(self, text: bytes) -> None:
        if len(text) > _BYTES - _HEADER.size:
            return  # thousands of workers: keep the last text that fitted
        fd, self._change = self._fd.fileno(), self._change + 2
        os.pwrite(fd, _HEADER.pack(self._change - 1, len(text)), 0)
        os.pwrite(fd, text, _HEADER.size)
        os.pwrite(fd, _HEADER.pack(self._change, len(text)), 0)


class RecentPast:
    """The recent past of a loop, between one and two windows of time."""

    def __init__(self, statistics: Statistics) -> None:
        self._earlier = self._later = statistics
        self._begin_ns = 0

    def since(self, now: Statistics, now_ns: int) -> Statistics:
        """Return the statistics of the recent past."""
        if not self._begin_ns:
            self._begin_ns = now_ns
        elif now_ns - self._begin_ns >= WINDOW_NS:
            self._earlier, self._later, self._begin_ns = self._later, now, now_ns
        return now.since(self._earlier)


def snapshot(
    statistics: Statistics, name: str, now_ns: int, recent: Statistics | None = None, shard: Shard = ALONE
) -> dict[str, Any]:
    """Return the published part of statistics. Counts and times start with the pipeline, except under "recent".

    Args:
        statistics: of the whole life of the pipeline or loader.
        name: shown to readers.
        now_ns: of `time.monotonic_ns`.
        recent: statistics of the recent past; None: of the whole life.
        shard: rank of this process, and number of ranks.
    """
    loop, sources = statistics.loop, statistics.sources
    slowest = [(call, source.name) for source in sources for call in source.slowest]
    slowest.sort(key=lambda pair: pair[0].duration_ns, reverse=True)
    return {
        "version": _VERSION,
        "pid": os.getpid(),
        "rank": shard.id,
        "num_ranks": shard.count,
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
            {
                "number": worker.number,
                "pid": worker.pid,
                # With the current task: readers divide differences by their time, and a task may be longer than that.
                "busy_s": worker.busy_s + worker.on_task_s,
                "on_task_s": worker.on_task_s,
            }
            for worker in statistics.workers
        ],
        "slowest": [
            {"source": name, "sample": call.sample, "epoch": call.epoch, "duration_s": call.duration_ns / 1e9}
            for call, name in slowest[:_NUM_SLOWEST]
        ],
        "calls": [
            {"source": source.name, "unit": source.unit, **_histogram(source.callback)}
            for source in sources
            if source.callback.count
        ],
        "operators": [
            *(
                {"name": each.name, "place": "workers", "seconds": each.seconds}
                for source in sources
                for each in source.operator_times
            ),
            *(
                {"name": each.name, "place": "threads", "seconds": each.seconds}
                for each in statistics.operators.operator_times
            ),
        ],
        "recent": _recent(statistics if recent is None else recent, statistics),
    }


def _histogram(durations: Durations) -> dict[str, Any]:
    """Return the counts from the first bin with an event to the last, and the edges of these bins in seconds."""
    bins = [i for i, count in enumerate(durations.counts) if count]
    first, last = bins[0], bins[-1]
    return {"counts": list(durations.counts[first : last + 1]), "edges_s": list(EDGES_S[first : last + 2])}


def _recent(recent: Statistics, whole: Statistics) -> dict[str, Any]:
    """Return the diagnosis of the recent past; of the whole life, if there were too few batches."""
    found = diagnose(recent)
    if found.bottleneck is Bottleneck.UNKNOWN and recent is not whole:
        recent, found = whole, diagnose(whole)
    count = max(recent.loop.wait.count, 1)
    return {
        "seconds": recent.loop.seconds,
        "batches": recent.loop.batches,
        "wait_s": recent.loop.wait.total_s / count,
        "work_s": recent.loop.work.total_s / count,
        "wait_share": recent.loop.wait_share,
        "diagnosis": found.texts(recent.loop.batches_per_s),
        "stages": [stage._asdict() for stage in waiting_by_stage(recent)],
    }


class Live(NamedTuple):
    """A pipeline or loader that another process publishes.

    Attributes:
        pid: process id.
        fd: file descriptor in that process.
        name: name of the pipeline or loader.
    """

    pid: int
    fd: int
    name: str

    def read(self) -> dict[str, Any]:
        """Return the published statistics, and their age as ``age_s``.

        They grow old while the program requests no batch.

        Raises:
            NotRunningError: the pipeline has been closed, or its program has exited.
        """
        shown = _read(self.pid, self.fd)
        if shown is None:
            raise NotRunningError(f"{self.name} (process {self.pid}) has ended")
        return {**shown, "age_s": (time.monotonic_ns() - shown["at_ns"]) / 1e9}

    def picture(self, timeout_s: float, sample: int | None = None) -> dict[str, Any]:
        """Return a picture of the next batch, or the steps of one of its samples; see `request_picture`."""
        return request_picture(self.pid, self.fd, _BYTES, timeout_s, sample)

    def read_with_memory(self, earlier: dict[str, Any] | None = None) -> dict[str, Any]:
        """As `read`, with the proportional set sizes of all processes as ``memory``, at most two seconds old.

        Args:
            earlier: an earlier result, if any.

        Raises:
            NotRunningError: see `read`.
        """
        now_s = time.monotonic()
        shown = self.read()
        if earlier is not None and now_s - earlier["memory"]["at_s"] < _MEMORY_PERIOD_S:
            return {**shown, "memory": earlier["memory"]}
        sizes = memory_of([worker["pid"] for worker in shown["workers"] if worker["pid"]], self.pid)
        total, workers = sizes.total_bytes, sum(sizes.worker_bytes)
        return {**shown, "memory": {"at_s": now_s, "bytes": total, "main_bytes": sizes.main_bytes, "worker_bytes": workers}}


def find(pid: int | None = None, name: str | None = None) -> list[Live]:
    """Return the pipelines and loaders that processes of this user publish, or one process, filtered by name."""
    found = []
    for process in _processes() if pid is None else [str(pid)]:
        with contextlib.suppress(OSError):  # the process has exited, or belongs to another user
            for fd in os.listdir(f"/proc/{process}/fd"):
                if _is_publication(process, fd) and (shown := _read(int(process), int(fd))) is not None:
                    found.append(Live(int(process), int(fd), shown["name"]))
    return sorted(live for live in found if name in (None, live.name))


def read_all(pid: int | None = None, name: str | None = None) -> list[dict[str, Any]]:
    """Return the statistics of the pipelines and loaders that `find` returns, without those that end meanwhile."""
    shown = []
    for live in find(pid, name):
        with contextlib.suppress(NotRunningError):
            shown.append(live.read())
    return shown


def choose(pid: int | None = None, name: str | None = None) -> Live:
    """Return the only published pipeline or loader of a process or name.

    Raises:
        NotRunningError: none is published, or several are.
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


def _processes() -> list[str]:
    """Return the ids of the processes of this user. Root may read those of others, but these may publish anything."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has exited
            if os.stat(f"/proc/{pid}").st_uid == os.geteuid():
                found.append(pid)
    return found


def _is_publication(pid: str, fd: str) -> bool:
    try:
        return is_anonymous_file(os.readlink(f"/proc/{pid}/fd/{fd}"), _NAME)
    except OSError:  # closed meanwhile
        return False


def _read(pid: int, fd: int) -> dict[str, Any] | None:
    """Return the text of a publication; None if the descriptor is not, or no longer, a publication of that process."""
    try:
        if not _is_publication(str(pid), str(fd)):
            return None
        owner = os.stat(f"/proc/{pid}").st_uid
        opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would block
        try:
            status = os.fstat(opened)
            shown: Any = _content_of(opened) if stat.S_ISREG(status.st_mode) and status.st_uid == owner else None
        finally:
            os.close(opened)
    except OSError:
        return None
    if SNAPSHOT(shown, "") is not None:
        return None
    # A forked child inherits the publications of its parent.
    return shown if shown["pid"] == pid and shown["version"] == _VERSION else None


def _content_of(fd: int) -> Any:
    """Return the value of the JSON text in a publication; None if it is not JSON text, or is being written all the time."""
    for _ in range(_TRIES):
        data = os.pread(fd, _BYTES, 0)
        if len(data) < _HEADER.size:
            return None
        change, length = _HEADER.unpack_from(data)
        if change % 2 == 0 and os.pread(fd, _HEADER.size, 0) == data[: _HEADER.size]:
            try:
                return json.loads(data[_HEADER.size : _HEADER.size + max(0, length)])
            except (ValueError, RecursionError):
                return None
        time.sleep(_PAUSE_S)
    return None
