"""What `Pipeline.statistics` and `DataLoader.statistics` return: plain numbers, which nothing changes any more.

All counts and times are of the whole life of the pipeline or loader. `Statistics.since` makes those of a part of it::

    before = pipe.statistics()
    ...
    part = pipe.statistics().since(before)

docs/statistics.md says how to read them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dali_like.engine.pool.settings import ChosenSettings
from dali_like.engine.worker.meters import SlowCall
from dali_like.monitor.durations import Durations
from dali_like.monitor.loops import BatchTimes

__all__ = [
    "BatchTimes",
    "ChosenSettings",
    "CopyStatistics",
    "Durations",
    "LoopStatistics",
    "MemoryStatistics",
    "OperatorStatistics",
    "RingStatistics",
    "Settings",
    "SlowCall",
    "SourceStatistics",
    "Statistics",
    "WorkerStatistics",
]

_T = TypeVar("_T")


def _adds_up(default: Any = 0) -> Any:
    """A field that grows: of a part of the time it is the difference."""
    return field(default=default, metadata={"adds up": True})


@dataclass(frozen=True)
class Settings:
    """What the pipeline or loader was told, as far as it matters for speed.

    Attributes:
        kind: "pipeline" or "loader".
        batch_size: samples in a full batch; 0 where the loader leaves that to somebody else.
        num_workers: workers that have been started.
        start_method: how these were started; "" without workers.
        num_threads: threads that operators run in; 0 if none do.
        prefetch: batches that are made ahead, of each source.
        num_cpus: CPUs that this process may use.
        chosen: where arguments are "auto", what has been chosen so far, and why; else None.
    """

    kind: str = "pipeline"
    batch_size: int = 0
    num_workers: int = 0
    start_method: str = ""
    num_threads: int = 0
    prefetch: int = 0
    num_cpus: int = 1
    chosen: ChosenSettings | None = None


@dataclass(frozen=True)
class LoopStatistics:
    """The loop that asks for the batches. What lies between epochs counts neither as its work nor as waiting.

    Attributes:
        batches: how many it has got.
        epochs: how often it has come to the end of an epoch.
        errors: how often a call for a batch has raised something else: a callback's error, say.
        first_batch_s: how long the first batch of all has taken, with the start of the workers; it is in no other number.
        wait: how long the loop has waited, for each batch.
        work: how long it has worked between two batches.
        waited_for_workers_s: of the waiting, the time in which it slept until a worker reported.
        waited_for_operators_s: the same, for operators that run in threads of the main process.
        recent: the last 256 batches, one by one, the latest last.
    """

    batches: int = _adds_up()
    epochs: int = _adds_up()
    errors: int = _adds_up()
    first_batch_s: float = _adds_up(0.0)
    wait: Durations = field(default_factory=Durations)
    work: Durations = field(default_factory=Durations)
    waited_for_workers_s: float = _adds_up(0.0)
    waited_for_operators_s: float = _adds_up(0.0)
    recent: tuple[BatchTimes, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it has waited and worked."""
        return self.wait.total_s + self.work.total_s

    @property
    def wait_share(self) -> float:
        """The share of its time that it has waited, from 0 to 1."""
        return self.wait.total_s / self.seconds if self.seconds else 0.0

    @property
    def batches_per_s(self) -> float:
        """Its rate."""
        return self.wait.count / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class RingStatistics:
    """The slots that batches of a source lie in, now. The first four add up to the fifth.

    Attributes:
        making: batches on their way.
        ready: batches that nobody has asked for yet.
        held: batches that operators, copies to a GPU or the user have.
        free: slots for the next batches.
        slots: all.
        mean_ready: how many batches were ready, on the average, whenever the loop took one, that one included: near
            `Settings.prefetch` the workers are ahead of the loop, near 1 or below it waits for them.
    """

    making: int = 0
    ready: int = 0
    held: int = 0
    free: int = 0
    slots: int = 0
    mean_ready: float = 0.0


@dataclass(frozen=True)
class SourceStatistics:
    """One source: a node of a pipeline, or the dataset of a loader.

    Attributes:
        name: as messages have it.
        place: where it is called: "workers" or "main process".
        unit: what one call makes: "sample" or "batch".
        concurrency: how many calls of a coroutine function are under way at once, in each worker; 0 for other sources.
        is_bound: whether a single worker makes all of its batches, as with iterables.
        batches: how many it has made, those ahead of the loop included.
        samples: how many are in them.
        made_bytes: how much their arrays take, about.
        callback: how long its calls have taken. Where they take less than 200 us on the average they are measured in one
            task of 251, and each counts for as many.
        slowest: the calls that took longest, the longest first.
        busy_s: how long workers, or the main process, have worked for it: callback, operators behind it, and writing.
        callback_s: how much of that was the callback's.
        operators_s: how much was that of operators behind it.
        cpu_s: how much of it the CPU has worked.
        delayed_s: how much of it it might have worked, had it not been busy with other processes: about, and at most. What
            is left is waiting, for disks or networks.
        ring: where its batches lie.
    """

    name: str
    place: str = "workers"
    unit: str = "sample"
    concurrency: int = 0
    is_bound: bool = False
    batches: int = _adds_up()
    samples: int = _adds_up()
    made_bytes: int = _adds_up()
    callback: Durations = field(default_factory=Durations)
    slowest: tuple[SlowCall, ...] = ()
    busy_s: float = _adds_up(0.0)
    callback_s: float = _adds_up(0.0)
    operators_s: float = _adds_up(0.0)
    cpu_s: float = _adds_up(0.0)
    delayed_s: float = _adds_up(0.0)
    ring: RingStatistics = RingStatistics()

    def completed_by(self, whole: SourceStatistics) -> SourceStatistics:
        """A part of the time, in which no call was measured, say: then what is known of the whole time holds for it."""
        if self.callback.count or not whole.busy_s:
            return self
        share = self.busy_s / whole.busy_s
        return dataclasses.replace(
            self,
            callback=whole.callback,
            callback_s=share * whole.callback_s,
            operators_s=share * whole.operators_s,
            cpu_s=share * whole.cpu_s,
            delayed_s=share * whole.delayed_s,
        )

    @property
    def writing_s(self) -> float:
        """How much of `busy_s` it took to write results into batches; in loaders, also to put batches together."""
        return max(0.0, self.busy_s - self.callback_s - self.operators_s)


@dataclass(frozen=True)
class WorkerStatistics:
    """One worker, and those that had its number before they died.

    Attributes:
        number: from 0 on.
        pid: its process id; 0 where it has ended, or not begun.
        tasks: parts of batches that it has made.
        busy_s: how long it has worked on them.
        alive_s: for how long there has been such a worker, ready for work.
        cpu_s: how much of `busy_s` the CPU has worked.
        on_task_s: how long it has been on its present task; 0 if it has none.
    """

    number: int
    pid: int = 0
    tasks: int = _adds_up()
    busy_s: float = _adds_up(0.0)
    alive_s: float = _adds_up(0.0)
    cpu_s: float = _adds_up(0.0)
    on_task_s: float = 0.0

    @property
    def busy_share(self) -> float:
        """The share of its life in which it has worked, from 0 to 1. It is idle between epochs, too."""
        return min(1.0, self.busy_s / self.alive_s) if self.alive_s else 0.0


@dataclass(frozen=True)
class OperatorStatistics:
    """Operators that run in threads of the main process, not behind a source in the workers.

    Attributes:
        batches: how long they have taken, for each batch.
    """

    batches: Durations = field(default_factory=Durations)


@dataclass(frozen=True)
class CopyStatistics:
    """Copies to the GPU.

    Attributes:
        batches: how many have been begun.
        copied_bytes: how much.
        host_s: how long the main process was at it, packing samples that lie scattered, and `waited_s`, included.
        waited_s: how long it has waited since too many copies were under way: the GPU, or the bus, is behind.
    """

    batches: int = _adds_up()
    copied_bytes: int = _adds_up()
    host_s: float = _adds_up(0.0)
    waited_s: float = _adds_up(0.0)


@dataclass(frozen=True)
class MemoryStatistics:
    """Memory by PSS: pages that several processes share count for each by its share. 0 where the system does not tell.

    Attributes:
        main_bytes: of the main process.
        worker_bytes: of each worker; none of those on other machines.
        forkserver_bytes: of the process that workers are forked from.
    """

    main_bytes: int = 0
    worker_bytes: tuple[int, ...] = ()
    forkserver_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All together."""
        return self.main_bytes + sum(self.worker_bytes) + self.forkserver_bytes


@dataclass(frozen=True)
class Statistics:
    """What has happened in a pipeline or loader so far, or in a part of that time.

    Attributes:
        seconds: how long ago the first batch was asked for; 0 before.
        settings: what it was told.
        loop: the loop that asks for the batches.
        sources: its sources; those that are fed are not among them.
        workers: its worker processes.
        operators: operators in threads.
        copies: copies to the GPU.
        worker_restarts: how often a worker that had died was replaced.
        replaced_samples: how many samples were replaced, or left out, as ``on_error`` says; those included that have been
            made, and not been delivered.
        held_bytes: memory behind the batches: being made, ready, held by the user, and kept for the next.
        memory: of all processes; None where it has not been asked for.
    """

    seconds: float = _adds_up(0.0)
    settings: Settings = Settings()
    loop: LoopStatistics = LoopStatistics()
    sources: tuple[SourceStatistics, ...] = ()
    workers: tuple[WorkerStatistics, ...] = ()
    operators: OperatorStatistics = OperatorStatistics()
    copies: CopyStatistics = CopyStatistics()
    worker_restarts: int = _adds_up()
    replaced_samples: int = _adds_up()
    held_bytes: int = 0
    memory: MemoryStatistics | None = None

    @property
    def samples_per_s(self) -> float:
        """The rate of the loop, in samples of full batches."""
        return self.loop.batches_per_s * self.settings.batch_size

    def since(self, earlier: Statistics) -> Statistics:
        """What has happened since an earlier moment.

        Counts and times are differences. What is not counted, such as the slots of a ring, is as it is now; so are the
        slowest calls, and so is what is known of a callback of which no call was measured meanwhile.
        """
        difference = _since(self, earlier)
        pairs = zip(difference.sources, self.sources, strict=True)
        return dataclasses.replace(difference, sources=tuple(part.completed_by(whole) for part, whole in pairs))


def _since(now: _T, earlier: _T) -> _T:
    """The difference between two dataclasses of the same kind, field by field."""
    changes: dict[str, Any] = {}
    for each in dataclasses.fields(now):  # type: ignore[arg-type]
        new, old = getattr(now, each.name), getattr(earlier, each.name)
        if each.metadata:
            changes[each.name] = max(type(new)(0), new - old)
        elif isinstance(new, Durations):
            changes[each.name] = new.since(old)
        elif each.name == "recent":
            changes[each.name] = tuple(batch for batch in new if not old or batch.end_ns > old[-1].end_ns)
        elif isinstance(new, tuple) and new and dataclasses.is_dataclass(new[0]) and len(new) >= len(old) > 0:
            changes[each.name] = (*map(_since, new, old), *new[len(old) :])  # workers may have been added
        elif dataclasses.is_dataclass(new) and old is not None:
            changes[each.name] = _since(new, old)
    return dataclasses.replace(now, **changes)  # type: ignore[type-var]
