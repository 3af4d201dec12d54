"""The contract between a pool and its worker backends: options, ends of workers, and the `Workers` protocol.

All of it runs in the main process. `dali_like.engine.backends` implements the protocol for processes, threads and Ray
actors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from dali_like.engine.memory.descriptors import Alarm, Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.backend_traits import BACKENDS, BackendTraits
from dali_like.engine.worker.source import PickledSource, Source, SourcePickler


class WorkerOptions(NamedTuple):
    """Options of the workers of a pool. Build it with keywords.

    Attributes:
        num_workers: the maximum number of workers.
        start_method: the name of the backend.
        threads: threads of the numerical libraries in each worker; None: the libraries' default.
        timeout_s: the longest time for one sample; None: no limit.
        restarts: replacements of each worker within a minute; None: no limit.
        pickle_source: pickles the functions of a source, given a name for messages. Used under spawn and Ray, and for
            renewed sources.
        resources: Ray's options for each actor.
        first_workers: workers to start at first; None: all.
        measures: whether workers measure the times of their tasks.
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
        """The number of workers to start at first."""
        return self.num_workers if self.first_workers is None else self.first_workers

    @property
    def backend(self) -> BackendTraits:
        """The properties of the backend."""
        return BACKENDS[self.start_method]


class End(NamedTuple):
    """The end of a worker.

    A thread cannot be killed. When it hangs, the pool treats it as ended, but it runs on, and may still write to its slot.

    Attributes:
        worker: its number, or `FORKSERVER`.
        pid: its process id, or native thread id; 0 if it is unknown.
        exitcode: its exit code, or minus the signal's number if a signal has killed it; None if it is unknown.
        keep: for a hanging thread: holds an object, such as a lease, until the thread has really ended. None otherwise.
        restart: for `FORKSERVER`: starts another one, with the newest sources. It raises a WorkerStartError if that is not
            possible. None otherwise.
    """

    worker: int
    pid: int
    exitcode: int | None
    keep: Callable[[Any], None] | None = None
    restart: Callable[[], None] | None = None


class EndQueue:
    """Ends of workers that have no forkserver (threads, Ray actors), on their way to the main thread.

    Backends use its attribute and its methods, except `add`, as their parts of `Workers` with the same names.

    Attributes:
        control: readable when there are ends.
    """

    def __init__(self) -> None:
        self.control = Alarm()
        self._ends: deque[End] = deque()

    def add(self, end: End) -> None:
        """Add the end of a worker. Any thread may call it."""
        self._ends.append(end)
        self.control.ring()

    def read_news(self) -> None:
        """Make `control` unreadable until the next end."""
        self.control.clear()

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until there are ends, or until the timeout."""
        self.control.wait(timeout_s)
        self.read_news()

    def take_end(self) -> End | None:
        """Return the next end, or None."""
        return self._ends.popleft() if self._ends else None


class Workers(Protocol):
    """The workers of a pool: processes, threads or Ray actors.

    The pool calls all methods, in the one thread that uses the pool, but `stop`, which a thread that closes the pool may
    call. Events of workers (starts and ends) make `control` readable. `read_news` reads them; then `take_end` and `pids`
    show them.

    Attributes:
        exitcodes: exit codes of ended workers by process id, where the backend knows them; minus the signal's number after
            a signal.
    """

    exitcodes: dict[int, int]

    @property
    def control(self) -> Descriptor:
        """Readable when there are events. Its number is -1 after `stop`."""

    @property
    def pids(self) -> list[int]:
        """The process id of each worker; 0 before its start."""

    @property
    def has_waiting_tasks(self) -> bool:
        """Whether the backend has taken tasks from the pipes that are in no cell yet."""

    def start(self, worker: int) -> None:
        """Start a worker that is not running. Does not wait for the start. Does nothing if the forkserver has ended."""

    def signal(self, worker: int, number: int) -> None:
        """Send a signal to a worker. Does nothing if the worker has ended."""

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Replace the sources of workers that start from now on. Running workers keep theirs.

        Args:
            sources: as many as before, and of the same kinds. Only their functions, and the objects in these, may differ.
            pickled: the sources, if the caller has pickled them already.

        Raises:
            PicklingError: a source cannot be pickled.
            OutOfMemoryError: there is no memory for the pickles.
        """

    def read_news(self) -> None:
        """Read all events, without waiting."""

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait for an event, or until the timeout, and read all events."""

    def take_end(self) -> End | None:
        """Return the next end of a worker or of `FORKSERVER`, or None. Each end is returned once.

        Workers that end with the forkserver have no end of their own. The end of `FORKSERVER` comes when they are gone.
        """

    def describe_exit(self, end: End) -> str:
        """Describe the end of a worker, for messages: "ended with exit code 1"."""

    def stop(self) -> None:
        """Stop all workers, and wait until they have ended. Calling it again does nothing."""


class StartWorkers(Protocol):
    """Start the workers of a pool. Each backend has one such function or class.

    Args:
        sources: the sources.
        options: the options of the workers.
        space: the shared space of the pool.
        tasks: the read ends of the task pipes. All workers read the first; each other one belongs to one worker.
        done: the write end of the pipe for reports.
        send_stop: tells the workers to stop. The backend calls it first when it stops them. It must not refer to the
            workers.
    """

    def __call__(
        self,
        sources: Sequence[Source],
        options: WorkerOptions,
        space: SharedSpace,
        *,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        send_stop: Callable[[], None],
    ) -> Workers: ...
