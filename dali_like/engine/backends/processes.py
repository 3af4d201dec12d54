"""Worker backend of processes. Runs in the main process; starts, watches and stops the workers through their forkserver.

The forkserver may die like a worker. Then `ProcessWorkers` reports the end of `FORKSERVER`, once the forkserver and all of
its workers are gone. The pool asks for another one: the reserve becomes the forkserver (fork; before the first reserve, this
process forks another one), or another forkserver starts with the newest source bundle (spawn). See
`dali_like.engine.backends.forkserver`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dali_like.common.interrupts import deferred_interrupts
from dali_like.engine.backends.forkserver import FIRST_RESERVE_S, MOST_FDS, Message
from dali_like.engine.backends.forkserver_link import ForkserverLink, News, kill, reap, reap_forkservers
from dali_like.engine.backends.launch import ForkserverEnds, SpawnSetup, fork_forkserver, spawn_forkserver
from dali_like.engine.memory.descriptors import Descriptor, DescriptorRoom, EventSet
from dali_like.engine.memory.protocol import FORKSERVER
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import End, WorkerOptions
from dali_like.engine.worker.source import PickledSource, Source, SourceType
from dali_like.errors import DaliLikeError, WorkerStartError

T = TypeVar("T")

#: Workers have this long to finish their sample after a request to stop. Then they are killed.
_GRACE_S = 0.5
#: The forkserver then has this long to end.
_FORKSERVER_GRACE_S = 2.0


class ProcessWorkers:
    """The worker processes of a pool. Implements `dali_like.engine.pool.workers.Workers`.

    They end with `stop`, when this object is garbage, or at the exit of the program. Takes the arguments of
    `dali_like.engine.pool.workers.StartWorkers`.

    Attributes:
        control: readable when there is news of the forkserver, its reserve, or the workers.
        pids: the process id of each worker; 0 before its start.
        exitcodes: the exit codes of ended workers by process id; minus the signal's number after a signal.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        options: WorkerOptions,
        space: SharedSpace,
        *,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        send_stop: Callable[[], None],
    ) -> None:
        self.has_waiting_tasks = False  # a worker moves a task from the pipe to its cell at once
        self._options = options
        self._space = space
        self._is_forked = options.backend.forks
        reap_forkservers()
        self._processes = processes = ProcessGroup(
            options.num_workers,
            tasks,
            done,
            send_stop,
            has_reserve=self._is_forked,
            is_short_lived=all(source.type is SourceType.REQUEST for source in sources),
        )
        self.control, self.pids, self.exitcodes = processes.events, processes.pids, processes.exitcodes
        self._finalizer = weakref.finalize(self, to_the_end, processes.stop)
        if self._is_forked:
            self._sources = sources
            self._fork()
        else:
            self._setup = SpawnSetup.of_this_process()
            self._bundle: Sequence[Descriptor] = ()
            self._spawn()
            try:  # the interpreter imports NumPy and the engine meanwhile
                self._bundle = self._pack(sources)
            except BaseException:
                processes.kill_forkserver()
                raise
            processes.renew(self._bundle)
        for worker in range(options.num_first):
            self.start(worker)

    def start(self, worker: int) -> None:
        """Start a worker that is not running. Does nothing if the forkserver has ended."""
        self._processes.send(Message.START, worker)

    def signal(self, worker: int, number: int) -> None:
        """Send a signal to a worker. Does nothing if the worker has ended."""
        self._processes.send(Message.SIGNAL, worker, number)

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Replace the sources of workers that start from now on. Running workers keep theirs.

        The sources travel pickled, under fork as well, and by value where that is needed.

        Args:
            sources: as many as before, and of the same kinds. Only their functions, and the objects in these, may differ.
            pickled: the results of the options' `pickle_source`, if the caller has them.

        Raises:
            PicklingError: a source cannot be pickled.
            OutOfMemoryError: there is no memory for the pickles.
        """
        bundle = self._pack(sources, pickled)
        if self._is_forked:
            self._sources = sources
        else:
            self._bundle = bundle
        self._processes.renew(bundle)

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait for news, or until the timeout, and read all news."""
        self.control.wait(timeout_s)
        self.read_news()

    def read_news(self) -> None:
        """Read all messages of forkservers and workers."""
        self._processes.read_news()

    def take_end(self) -> End | None:
        """Return the next end of a worker or of the forkserver, or None."""
        ends = self._processes.ends
        if not ends:
            return None
        end = ends.popleft()
        return end._replace(restart=self._restart_forkserver) if end.worker == FORKSERVER else end

    def describe_exit(self, end: End) -> str:
        """Describe the end of a worker."""
        exitcode = end.exitcode
        if exitcode is None:
            return "ended with an unknown exit status"
        if exitcode >= 0:
            return f"ended with exit code {exitcode}"
        try:
            name = signal.Signals(-exitcode).name
        except ValueError:
            name = f"signal {-exitcode}"
        return f"was killed by {name}"

    def stop(self) -> None:
        """Stop all workers and the forkserver, and wait for their ends; in loaders, for the ends of the workers only."""
        finish(self._finalizer)

    def _pack(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> Sequence[Descriptor]:
        from dali_like.engine.backends.source_bundle import pack, pickle_sources  # forks rarely need it

        return pack(sources, pickled or pickle_sources(sources, self._options.pickle_source))

    def _restart_forkserver(self) -> None:
        """Make the reserve the forkserver, or start another forkserver.

        Raises:
            WorkerStartError: there is no reserve, or the system refuses another process.
        """
        processes = self._processes
        if processes.unwatched:
            raise WorkerStartError(
                "it is not replaced, because no file descriptor was left to watch a worker; close some, or raise `ulimit -n`"
            )
        if self._is_forked and processes.promote_reserve():
            return
        if self._is_forked and not processes.awaits_first_reserve:
            raise WorkerStartError(
                "it cannot be replaced: its reserve has ended as well, and no other process has the sources as they were at "
                'the start; build the pipeline again, or use py_start_method="spawn" (multiprocessing_context="spawn" of a '
                "DataLoader)"
            )
        try:
            if self._is_forked:
                self._fork()
            else:
                self._spawn()
                processes.renew(self._bundle)
        except (DaliLikeError, OSError) as error:
            raise WorkerStartError(f"it could not be replaced: {error}") from error

    def _fork(self) -> None:
        link = self._processes.add_link()
        with self._processes.ends_for(link) as ends:
            fork_forkserver(self._sources, self._options, self._space, ends, link.pids)
        self._processes.request_reserve()

    def _spawn(self) -> None:
        link = self._processes.add_link()
        with self._processes.ends_for(link) as ends:
            spawn_forkserver(self._setup, self._options, self._space, ends, link.pids)


class ProcessGroup:
    """The forkserver of a pool, its reserve and its workers. Does not refer to `ProcessWorkers`, which can become garbage.

    Args:
        is_short_lived: whether to wait for the workers only, at the end: loaders may have many short epochs, and the exit of
            a large forkserver takes milliseconds.

    Attributes:
        events: readable when there is news.
        pids, exitcodes: see `ProcessWorkers`.
        ends: ends that nobody has taken.
        unwatched: workers without a pidfd, because this process had no descriptor left for it.
        awaits_first_reserve: whether no forkserver has forked a reserve, or has failed to do so.
    """

    def __init__(
        self,
        num_workers: int,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        send_stop: Callable[[], None],
        *,
        has_reserve: bool,
        is_short_lived: bool,
    ) -> None:
        self.events = EventSet()
        self._room = DescriptorRoom(done, num_workers + 1 + has_reserve)  # for a pidfd of each process
        self.pids = [0] * num_workers
        self.exitcodes: dict[int, int] = {}
        self.ends: deque[End] = deque()
        self.unwatched: set[int] = set()
        self.awaits_first_reserve = has_reserve
        self._pid = os.getpid()
        self._has_reserve = has_reserve
        self._is_short_lived = is_short_lived
        self._tasks, self._done = tasks, done  # kept open for a forkserver in the place of this one
        self._send_stop = send_stop
        self._forkserver: ForkserverLink | None = None
        self._reserve: ForkserverLink | None = None
        self._started: set[int] = set()  # workers whose end is not known
        self._pidfds: dict[int, Descriptor] = {}  # by worker
        self._lost: End | None = None  # of a forkserver that has ended, while its workers end
        self._is_stopping = False
        self._is_read = threading.Lock()

    # Forkservers

    def add_link(self) -> ForkserverLink:
        """Return the link to a forkserver that the caller starts."""
        link = self._forkserver = ForkserverLink(self.events, self._room)
        return link

    @contextlib.contextmanager
    def ends_for(self, link: ForkserverLink) -> Iterator[ForkserverEnds]:
        """Provide the descriptors for a forkserver inside of the context."""
        control = link.take_theirs()
        try:
            yield ForkserverEnds(control, self._tasks[0], tuple(self._tasks[1:]), self._done)
        finally:
            control.close()

    def request_reserve(self) -> None:
        """Let the forkserver fork a reserve, if it needs one and has not forked it."""
        if self._has_reserve and not self._is_stopping and self._forkserver is not None and self._reserve is None:
            self._reserve = ForkserverLink(self.events, self._room)
            delay_ms = round(FIRST_RESERVE_S * 1000) if self.awaits_first_reserve else 0
            self._forkserver.send(Message.RESERVE, value=delay_ms, descriptors=(self._reserve.take_theirs(),))

    def _try_reserve(self) -> None:
        with contextlib.suppress(OSError):  # no descriptor is left: the next start of a worker tries again
            self.request_reserve()

    def promote_reserve(self) -> bool:
        """Make the reserve the forkserver. Return False without a reserve."""
        self._forkserver, self._reserve = self._reserve, None
        self._try_reserve()
        return self._forkserver is not None

    def send(self, kind: Message, worker: int, value: int = 0) -> None:
        """Send a message to the forkserver, if there is one."""
        if self._forkserver is not None:
            if kind == Message.START:
                self._started.add(worker)
                self._try_reserve()  # if the last one could not be forked
            self._forkserver.send(kind, worker, value)

    def renew(self, bundle: Sequence[Descriptor]) -> None:
        """Send a source bundle to the forkserver and its reserve."""
        for link in self._links:
            for start in range(0, len(bundle), MOST_FDS):
                num_missing = max(0, len(bundle) - start - MOST_FDS)
                link.send(Message.RENEW, value=num_missing, descriptors=bundle[start : start + MOST_FDS])

    @property
    def _links(self) -> list[ForkserverLink]:
        return [link for link in (self._forkserver, self._reserve) if link is not None]

    # News

    def read_news(self) -> None:
        """Read all news, without waiting. Does nothing while another thread does that, for example to close the pool."""
        if not self._is_read.acquire(blocking=False):
            return
        try:
            if self.events.wait(0):
                self._read_forkserver()
                self._read_reserve()
                self._look_for_lost_workers()
            for link in self._links:
                link.send_rest()
        except (OSError, ValueError):
            if self.events.fileno() >= 0:
                raise
            # The program is exiting, and this is a daemon thread.
        finally:
            self._is_read.release()

    def _read_forkserver(self) -> None:
        if (link := self._forkserver) is None:
            return
        news, has_ended = link.receive()
        for message in news:
            self._note(message)
        if has_ended:
            self._forkserver = None
            self._lost = End(FORKSERVER, link.pid, link.reap())
            link.close()
            for pidfd in self._pidfds.values():
                kill(pidfd)  # the kernel does that, too, unless a callback has turned it off
                self.events.add(pidfd)

    def _read_reserve(self) -> None:
        if (link := self._reserve) is None:
            return
        _, has_ended = link.receive()
        if link.is_announced:
            self.awaits_first_reserve = False
        if has_ended:
            self._reserve = None
            link.close()
            if link.is_announced:  # else it could not be forked: the next start of a worker tries again
                self._try_reserve()

    def _look_for_lost_workers(self) -> None:
        """Report the end of the forkserver, if all of its workers have ended."""
        if self._lost is None:
            return
        for worker, pidfd in list(self._pidfds.items()):
            if pidfd.wait(0):
                reap(pidfd)  # this process may be their init process
                self._forget(worker)
        if not self._pidfds:
            self.ends.append(self._lost)
            self._lost = None
            self._started.clear()

    def _note(self, news: News) -> None:
        worker = news.worker
        if news.kind == Message.RESERVE:
            self.awaits_first_reserve = False
            return
        self._forget(worker)
        if news.kind == Message.STARTED:
            self.pids[worker] = news.pid
            if news.pidfd is not None:
                self._pidfds[worker] = news.pidfd
            else:
                self.unwatched.add(worker)
        elif news.kind == Message.ENDED:
            end = End(worker, news.pid, os.waitstatus_to_exitcode(news.status))
            self._started.discard(worker)
            self.exitcodes[news.pid] = os.waitstatus_to_exitcode(news.status)
            self.ends.append(end)

    def _forget(self, worker: int) -> None:
        self.unwatched.discard(worker)
        if (pidfd := self._pidfds.pop(worker, None)) is not None:
            self.events.remove(pidfd)
            pidfd.close()
            self._room.hold_one()

    # The end

    def stop(self) -> None:
        """Let the workers finish their sample, then kill them, and wait for the ends of the processes."""
        with deferred_interrupts():
            if os.getpid() == self._pid and self.events.fileno() >= 0:
                self._is_stopping = True
                with contextlib.suppress(OSError):  # an interrupted call has already closed the pipe
                    self._send_stop()
                self._stop_forkservers()
                for pidfd in list(self._pidfds.values()):
                    kill(pidfd)
                    pidfd.wait(_FORKSERVER_GRACE_S)
            for link in self._links:
                link.close()
            for worker in list(self._pidfds):
                self._forget(worker)
            self._room.close()
            self.events.close()
            for descriptor in (*self._tasks[:1], self._done):
                descriptor.close()

    def _stop_forkservers(self) -> None:
        """Stop the forkserver and its reserve, and record the exit codes of workers."""
        for link in self._links:
            link.send(Message.STOP, value=int(_GRACE_S * 1000))
        deadline_s = time.monotonic() + _GRACE_S + _FORKSERVER_GRACE_S
        while self._is_awaited and self.events.wait(max(0.0, deadline_s - time.monotonic())):
            self.read_news()
        for link in self._links:
            if self._is_awaited or not link.leave():
                link.kill()
                link.reap()
        reap_forkservers()

    def kill_forkserver(self) -> None:
        """Kill a forkserver that has no workers, and wait for its end."""
        if (link := self._forkserver) is not None:
            self._forkserver = None
            link.kill()
            link.reap()
            link.close()

    @property
    def _is_awaited(self) -> bool:
        """Whether the end of a process is to be waited for."""
        return bool(self._started if self._is_short_lived else self._links or self._lost)


def to_the_end(stop: Callable[..., T], *args: Any) -> T:
    """Call a function that stops workers, and call it again if a SystemExit interrupts it. Then raise the SystemExit.

    A pool of threads raises one in each thread that it ends, at any instruction. If that thread is just stopping a pool of
    its own, no other code would: a finalizer runs once, and its exceptions go nowhere.
    """
    try:
        return stop(*args)
    except SystemExit:
        stop(*args)
        raise


def finish(finalizer: weakref.finalize[Any, Any]) -> Any:
    """Call a finalizer now, and return its result; None if it has been called.

    If a signal handler raises meanwhile, the finalizer stays registered and runs again later, at the latest at the exit of
    the program.
    """
    with deferred_interrupts():
        if (call := finalizer.peek()) is None:
            return None
        _, function, args, _ = call
        result = function(*args)
        finalizer.detach()
        return result
