"""What the pool knows of its workers: options, the `Workers` protocol that each backend implements, and exits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.source import PickledSource, Source, SourcePickler

#: In the place of a worker: the forkserver itself has ended, and all workers with it.
FORKSERVER = -1


class WorkerOptions(NamedTuple):
    """How workers are made.

    Attributes:
        num_workers: how many there may be.
        start_method: "fork", "spawn", "thread" or "ray".
        threads: for the numerical libraries in each worker; None leaves them alone.
        timeout_s: how long a worker may be on one sample; None: for ever.
        restarts: how often a minute a worker that has died is replaced; None: always.
        pickle_source: pickles what a source consists of, given a name for messages; used under spawn, and for sources that
            are renewed.
        resources: what each worker needs, where Ray finds places for them.
        first_workers: how many are started at first; None: all.
        measures: whether workers say how long their tasks take.
    """

    num_workers: int
    start_method: str
    threads: int | None
    timeout_s: float | None
    restarts: int | None
    pickle_source: SourcePickler
    resources: Mapping[str, Any] = MappingProxyType({})
    first_workers: int | None = None
    measures: bool = False

    @property
    def num_first(self) -> int:
        """How many workers are started at first."""
        return self.num_workers if self.first_workers is None else self.first_workers

    @property
    def unit(self) -> str:
        """What the ids of workers are, for messages."""
        return "thread" if self.start_method == "thread" else "pid"


class End(NamedTuple):
    """A worker has ended: which, its process id, and its exit code, minus the signal's number if it was killed.

    A thread cannot be killed. One that hangs counts as ended and goes on, and may still write to the slot that it was
    writing to; `keep` then keeps something until the thread has really ended.
    """

    worker: int
    pid: int
    exitcode: int
    keep: Callable[[Any], None] | None = None


class Workers(Protocol):
    """The workers of a pool, wherever they are: a `ProcessWorkers` of processes, of threads, or of actors.

    Attributes:
        exitcodes: how those have ended that have, by process id, where that is known: the exit status, or minus the number
            of the signal.
    """

    exitcodes: dict[int, int]

    @property
    def control(self) -> Descriptor:
        """Becomes readable when there is news."""

    @property
    def pids(self) -> list[int]:
        """The process id of each worker; 0 before it has started."""

    @property
    def has_waiting_tasks(self) -> bool:
        """Whether there are tasks that have been taken, and that nobody is on yet: no cell names them."""

    def start(self, worker: int) -> None:
        """Start a worker that is not running."""

    def signal(self, worker: int, number: int) -> None:
        """Send a signal to a worker, if it is there."""

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Give workers that are started from now on other sources; see `ProcessWorkers.renew`."""

    def read_news(self) -> None:
        """Take note of the news."""

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until there is news, and take note of it."""

    def take_end(self) -> End | None:
        """The next end that has not been taken, if there is one."""

    def describe_exit(self, end: End) -> str:
        """How a worker ended, in words."""

    def stop(self) -> None:
        """End all workers, and wait until they are gone."""


class StartWorkers(Protocol):
    """Start the workers of a pool; each backend has one such function or class.

    Args:
        tasks, done: the workers' ends of the pipes. The first task pipe is read by all workers, each other one by one
            worker.
        farewell: called before the workers are stopped, so that they read end-of-file. Must not refer to the workers.
    """

    def __call__(
        self,
        sources: Sequence[Source],
        options: WorkerOptions,
        space: SharedSpace,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        farewell: Callable[[], None],
    ) -> Workers: ...
