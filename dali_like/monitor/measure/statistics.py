"""The results of `Pipeline.statistics` and `DataLoader.statistics`: immutable plain numbers.

Counts and times cover the whole life of the pipeline or loader. `Statistics.since` limits them to a part of it::

    before = pipe.statistics()
    ...
    part = pipe.statistics().since(before)

docs/statistics.md explains how to read them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from dali_like.engine.memory.sample_cache import CacheStatistics, EpochCounts
from dali_like.engine.pool.settings import ChosenSettings
from dali_like.engine.worker.meters import SlowCall
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.loops import BatchTimes

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "BalanceStatistics",
    "BatchTimes",
    "CacheStatistics",
    "ChosenSettings",
    "CopyStatistics",
    "Durations",
    "EpochCounts",
    "LoopStatistics",
    "MemoryStatistics",
    "OperatorStatistics",
    "OperatorTime",
    "RingStatistics",
    "Settings",
    "SlowCall",
    "SourceStatistics",
    "Statistics",
    "WorkerStatistics",
]

_T = TypeVar("_T", bound="DataclassInstance")


def _adds_up(default: Any = 0) -> Any:
    """Declare a counter: `Statistics.since` subtracts the earlier value."""
    return field(default=default, metadata={"adds up": True})


@dataclass(frozen=True)
class Settings:
    """Arguments of the pipeline or loader that matter for speed.

    Attributes:
        kind: "pipeline" or "loader".
        batch_size: samples in a full batch; 0 where a batch sampler decides it.
        num_workers: number of started workers.
        start_method: start method of the workers; "" without workers.
        num_threads: number of threads for operators; 0 if no operator runs in threads.
        prefetch: batches computed ahead, for each source.
        num_cpus: number of CPUs available to this process.
        chosen: for arguments that are "auto": the current choice and its reason; else None.
        foreign: why the batches come from PyTorch's iterator, which measures no workers; "" for this library's.
    """

    kind: str = "pipeline"
    batch_size: int = 0
    num_workers: int = 0
    start_method: str = ""
    num_threads: int = 0
    prefetch: int = 0
    num_cpus: int = 1
    chosen: ChosenSettings | None = None
    foreign: str = ""


@dataclass(frozen=True)
class LoopStatistics:
    """The training loop. Time between epochs counts neither as work nor as waiting.

    Attributes:
        batches: delivered batches.
        epochs: finished epochs.
        errors: calls for a batch that raised any other exception, such as a callback's error.
        first_batch_s: seconds until the very first batch, including the start of the workers. No other number includes it.
        wait: waiting time per batch.
        work: working time between two batches.
        waited_for_workers_s: the part of the waiting that was sleep until a worker reported.
        waited_for_operators_s: the part of the waiting for operators in threads of the main process.
        recent: times of the last 256 batches, the latest last.
    """

    batches: int = _adds_up()
    epochs: int = _adds_up()
    errors: int = _adds_up()
    first_batch_s: float = _adds_up(0.0)
    wait: Durations = field(default_factory=Durations)
    work: Durations = field(default_factory=Durations)
    waited_for_workers_s: float = _adds_up(0.0)
    waited_for_operators_s: float = _adds_up(0.0)
    recent: tuple[BatchTimes, ...] = field(default=(), repr=False)

    @property
    def seconds(self) -> float:
        """Waiting and working time together."""
        return self.wait.total_s + self.work.total_s

    @property
    def wait_share(self) -> float:
        """Waiting as a share of `seconds`, from 0 to 1."""
        return self.wait.total_s / self.seconds if self.seconds else 0.0

    @property
    def batches_per_s(self) -> float:
        """Batches per second."""
        return self.wait.count / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class RingStatistics:
    """The current slots of one source. The first four numbers add up to the fifth.

    Attributes:
        making: slots of batches that workers compute.
        ready: slots of finished batches that the loop has not taken yet.
        held: slots in use by operators, GPU copies, or the user.
        free: unused slots.
        slots: number of slots.
        mean_ready: mean number of ready batches whenever the loop took one, including that one. Near `Settings.prefetch`
            the workers are ahead of the loop; near 1 or below, the loop waits for them.
    """

    making: int = 0
    ready: int = 0
    held: int = 0
    free: int = 0
    slots: int = 0
    mean_ready: float = 0.0


@dataclass(frozen=True)
class BalanceStatistics:
    """How equal the costs of the ranks are, with ``balance="cost"``: sums over steps that have been dealt.

    Attributes:
        steps: how many.
        dearest: the cost of the dearest rank.
        in_order: the same if each rank had its positions in order.
        mean: the mean cost of the ranks.
        bound: the lower bound of the cost of the dearest rank; see `dali_like.data.balancing.lower_bound`.
        batches: of this rank, whose elements have been chosen in logical shards.
        deviations: absolute deviations of their costs from the mean cost so far, as parts of it.
        deviations_in_order: the same if the elements came in order.
    """

    steps: int = _adds_up()
    dearest: float = _adds_up(0.0)
    in_order: float = _adds_up(0.0)
    mean: float = _adds_up(0.0)
    bound: float = _adds_up(0.0)
    batches: int = _adds_up()
    deviations: float = _adds_up(0.0)
    deviations_in_order: float = _adds_up(0.0)


@dataclass(frozen=True)
class OperatorTime:
    """Time of one operator.

    Attributes:
        name: as in `Pipeline.operator_places`, for example "fn.resize_1".
        seconds: time of all its calls, in all workers or threads together.
    """

    name: str
    seconds: float = _adds_up(0.0)


@dataclass(frozen=True)
class SourceStatistics:
    """One source: a node of a pipeline, or the dataset of a loader.

    Attributes:
        name: the name used in messages.
        place: where the source is called: "workers" or "main process".
        unit: result of one call: "sample" or "batch".
        concurrency: simultaneous calls of a coroutine function in each worker; 0 for other sources.
        is_bound: whether a single worker computes all batches, as with iterables.
        logical_shards: of this rank, each of one worker, so other workers are idle; None: any worker computes any sample.
        batches: computed batches, including batches ahead of the loop.
        samples: samples in these batches.
        made_bytes: approximate size of their arrays, in bytes.
        callback: durations of calls. If calls take less than 200 us on average, one task in 251 is measured and
            weighted accordingly.
        slowest: the longest calls, the longest first.
        busy_s: work of the workers or the main process: callback, fused operators, and writing.
        callback_s: the part of `busy_s` inside the callback.
        operators_s: the part of `busy_s` inside fused operators.
        operator_times: the parts of `operators_s`, in the order of execution.
        cpu_s: CPU time within `busy_s`.
        delayed_s: upper estimate of the time within `busy_s` that was lost to other processes on the CPUs. The rest is
            waiting, for disks or networks.
        ring: the slots of the source.
        large_containers: lists and dicts of the source with 100,000 objects or more, of which each worker has a copy;
            `SharedList` and `SharedDict` of `dali_like.data` avoid that.
        caches: content and accesses of its sample caches, and of those behind it in a pipeline.
        balance: the costs of the ranks in a step; zeros without ``balance="cost"``.
        cacheable_bytes: memory for the outputs of all samples, if there is no cache, and the memory is available; else 0.
    """

    name: str
    place: str = "workers"
    unit: str = "sample"
    concurrency: int = 0
    is_bound: bool = False
    logical_shards: int | None = None
    batches: int = _adds_up()
    samples: int = _adds_up()
    made_bytes: int = _adds_up()
    callback: Durations = field(default_factory=Durations)
    slowest: tuple[SlowCall, ...] = ()
    busy_s: float = _adds_up(0.0)
    callback_s: float = _adds_up(0.0)
    operators_s: float = _adds_up(0.0)
    operator_times: tuple[OperatorTime, ...] = ()
    cpu_s: float = _adds_up(0.0)
    delayed_s: float = _adds_up(0.0)
    ring: RingStatistics = RingStatistics()
    large_containers: tuple[str, ...] = ()
    caches: tuple[CacheStatistics, ...] = ()
    balance: BalanceStatistics = BalanceStatistics()
    cacheable_bytes: int = 0

    def completed_by(self, whole: SourceStatistics) -> SourceStatistics:
        """Fill in the callback figures of a part without measured calls, in proportion to the whole."""
        if self.callback.count or not whole.busy_s:
            return self
        share = self.busy_s / whole.busy_s
        return dataclasses.replace(
            self,
            callback=whole.callback,
            callback_s=share * whole.callback_s,
            operators_s=share * whole.operators_s,
            operator_times=tuple(OperatorTime(each.name, share * each.seconds) for each in whole.operator_times),
            cpu_s=share * whole.cpu_s,
            delayed_s=share * whole.delayed_s,
        )

    @property
    def writing_s(self) -> float:
        """The part of `busy_s` spent on writing results into batches; in loaders, also on collation."""
        return max(0.0, self.busy_s - self.callback_s - self.operators_s)


@dataclass(frozen=True)
class WorkerStatistics:
    """One worker, together with the dead workers that it replaced.

    Attributes:
        number: from 0 on.
        pid: process id; 0 if the worker has not started or has exited.
        tasks: number of computed tasks.
        busy_s: working time on these tasks.
        alive_s: time since the worker became ready.
        cpu_s: CPU time within `busy_s`.
        on_task_s: time since the start of the current task; 0 without one.
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
        """Working time as a share of `alive_s`, from 0 to 1. Idle time between epochs counts as idle."""
        return min(1.0, self.busy_s / self.alive_s) if self.alive_s else 0.0


@dataclass(frozen=True)
class OperatorStatistics:
    """Operators that run in threads of the main process. Operators fused into workers count for their source.

    Attributes:
        batches: durations per batch.
        operator_times: time of each operator; in several threads together, it may exceed that of the batches.
    """

    batches: Durations = field(default_factory=Durations)
    operator_times: tuple[OperatorTime, ...] = ()


@dataclass(frozen=True)
class CopyStatistics:
    """Copies to the GPU.

    Attributes:
        batches: number of started copies.
        copied_bytes: number of bytes.
        host_s: time of the main process, including packing of scattered samples and `waited_s`.
        waited_s: time in which too many copies were pending: the GPU or the bus is behind.
    """

    batches: int = _adds_up()
    copied_bytes: int = _adds_up()
    host_s: float = _adds_up(0.0)
    waited_s: float = _adds_up(0.0)


@dataclass(frozen=True)
class MemoryStatistics:
    """Proportional set sizes: a page shared by n processes counts 1/n for each. 0 where the system does not report them.

    Attributes:
        main_bytes: memory of the main process.
        worker_bytes: memory of each worker on this machine.
        forkserver_bytes: memory of the forkserver and, under fork, of its reserve.
    """

    main_bytes: int = 0
    worker_bytes: tuple[int, ...] = ()
    forkserver_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Sum over all processes."""
        return self.main_bytes + sum(self.worker_bytes) + self.forkserver_bytes


@dataclass(frozen=True)
class Statistics:
    """Statistics of a pipeline or loader since its start, or over a part of that time.

    Attributes:
        seconds: time since the first request for a batch; 0 before.
        settings: arguments that matter for speed.
        loop: the training loop.
        sources: the sources, without inputs that the user feeds.
        workers: the workers.
        operators: operators in threads.
        copies: copies to the GPU.
        worker_restarts: number of replaced workers.
        oom_kills: number of workers that the kernel has killed for lack of memory.
        replaced_samples: samples that ``on_error`` replaced or skipped, including samples not delivered yet.
        held_bytes: memory of all slots: being computed, ready, held by the user, or free.
        cpu_s: CPU time of the main process since the first batch.
        load_average: threads of all programs that run or wait for a CPU, mean of the last minute; 0: unknown.
        memory: memory of all processes; None unless requested.
    """

    seconds: float = _adds_up(0.0)
    settings: Settings = Settings()
    loop: LoopStatistics = LoopStatistics()
    sources: tuple[SourceStatistics, ...] = ()
    workers: tuple[WorkerStatistics, ...] = ()
    operators: OperatorStatistics = OperatorStatistics()
    copies: CopyStatistics = CopyStatistics()
    worker_restarts: int = _adds_up()
    oom_kills: int = _adds_up()
    replaced_samples: int = _adds_up()
    held_bytes: int = 0
    cpu_s: float = _adds_up(0.0)
    load_average: float = 0.0
    memory: MemoryStatistics | None = None

    @property
    def samples_per_s(self) -> float:
        """Samples per second, counting full batches."""
        return self.loop.batches_per_s * self.settings.batch_size

    def since(self, earlier: Statistics) -> Statistics:
        """Return the statistics since an earlier moment.

        Counts and times are differences. Other values, such as the slots of a ring and the slowest calls, are the current
        ones. So are the durations of a callback without measured calls in between.
        """
        difference = _since(self, earlier)
        pairs = zip(difference.sources, self.sources, strict=True)
        return dataclasses.replace(difference, sources=tuple(part.completed_by(whole) for part, whole in pairs))


def _since(now: _T, earlier: _T) -> _T:
    """Return the difference between two dataclasses of one kind, field by field."""
    changes: dict[str, Any] = {}
    for each in dataclasses.fields(now):
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
    return dataclasses.replace(now, **changes)
