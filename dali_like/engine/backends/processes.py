"""Worker backend of processes. Runs in the main process; starts, watches and stops the workers through their forkserver."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dali_like.common.interrupts import deferred_interrupts
from dali_like.engine.backends.forkserver import MESSAGE, MOST_FDS, Message, check_process_calls
from dali_like.engine.backends.launch import ForkserverEnds, start_forkserver
from dali_like.engine.backends.source_bundle import pack, pickle_sources
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.memory.system_calls import required
from dali_like.engine.pool.workers import FORKSERVER, End, WorkerOptions
from dali_like.engine.worker.source import PickledSource, Source

#: Workers have this long to finish their sample after a request to stop. Then they are killed.
_GRACE_S = 0.5
#: The forkserver then has this long to end.
_FORKSERVER_GRACE_S = 2.0


class ProcessWorkers:
    """The worker processes of a pool. Implements `dali_like.engine.pool.workers.Workers`.

    They end with `stop`, when this object is garbage, or at the exit of the program. Takes the arguments of
    `dali_like.engine.pool.workers.StartWorkers`.

    Attributes:
        control: the socket to the forkserver.
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
        self.pids = [0] * options.num_workers
        self.exitcodes: dict[int, int] = {}
        self.has_waiting_tasks = False  # a worker moves a task from the pipe to its cell at once
        self._options = options
        self._ends: list[End] = []
        self._unsent: deque[bytes] = deque()
        check_process_calls()
        with required("socketpair(SOCK_SEQPACKET)", "to talk to the process that starts them"):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = Descriptor(ours.detach())
        os.set_blocking(self.control.fileno(), False)
        ends = ForkserverEnds(Descriptor(theirs.detach()), tasks[0], tuple(tasks[1:]), done)
        _check_descriptors(done, options.num_workers)
        forkserver: list[int] = []
        self._finalizer = weakref.finalize(
            self, _stop, os.getpid(), forkserver, self.control, send_stop, self.pids, self.exitcodes
        )
        start_forkserver(sources, options, space, ends, forkserver)
        ends.close()
        for worker in range(options.num_first):
            self.start(worker)

    def start(self, worker: int) -> None:
        """Start a worker that is not running."""
        self._send(Message.START, worker)

    def signal(self, worker: int, number: int) -> None:
        """Send a signal to a worker. Does nothing if the worker has ended."""
        self._send(Message.SIGNAL, worker, number)

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
        pickled = pickled or pickle_sources(sources, self._options.pickle_source)
        bundle = pack(sources, pickled)
        fds = [bundle.fileno(), *(descriptor.fileno() for source in pickled for descriptor in source.descriptors)]
        try:
            with _socket(self.control) as control, contextlib.suppress(ConnectionError):  # as in `_send`
                for start in range(0, len(fds), MOST_FDS):
                    missing = max(0, len(fds) - start - MOST_FDS)
                    socket.send_fds(control, [MESSAGE.pack(Message.RENEW, 0, missing)], fds[start : start + MOST_FDS])
        finally:
            bundle.close()

    def read_news(self) -> None:
        """Read all messages of the forkserver."""
        while True:
            try:
                message = os.read(self.control.fileno(), MESSAGE.size)
            except BlockingIOError:
                self._send_rest()
                return
            except ConnectionResetError:
                message = b""
            except OSError:
                if self.control.fileno() >= 0:
                    raise
                return  # the program is exiting, and this is a daemon thread
            if not message:
                self._ends.append(End(FORKSERVER, 0, 0))
                return
            kind, worker, value = MESSAGE.unpack(message)
            if kind == Message.STARTED:
                self.pids[worker] = value
            elif kind == Message.ENDED:
                end = End(worker, self.pids[worker], os.waitstatus_to_exitcode(value))
                self.exitcodes[end.pid] = end.exitcode
                self._ends.append(end)

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait for a message, or until the timeout, and read all messages."""
        self.control.wait(timeout_s)
        self.read_news()

    def take_end(self) -> End | None:
        """Return the next end of a worker; None if there is none."""
        return self._ends.pop(0) if self._ends else None

    def describe_exit(self, end: End) -> str:
        """Describe the end of a worker."""
        return _describe_exit(end.exitcode)

    def stop(self) -> None:
        """Stop all workers and the forkserver, and wait for their ends."""
        finish(self._finalizer)

    def _send(self, kind: Message, worker: int, value: int = 0) -> None:
        self._unsent.append(MESSAGE.pack(kind, worker, value))
        self._send_rest()

    def _send_rest(self) -> None:
        """Send queued messages. The socket has room for under 300; `read_news` sends the rest."""
        # If the forkserver has ended, `read_news` reports it.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self._unsent:
                os.write(self.control.fileno(), self._unsent[0])
                self._unsent.popleft()


@contextlib.contextmanager
def _socket(descriptor: Descriptor) -> Iterator[socket.socket]:
    """Use a descriptor as a socket inside of the context."""
    made = socket.socket(fileno=descriptor.fileno())
    try:
        made.setblocking(False)
        yield made
    finally:
        made.detach()


def _check_descriptors(some: Descriptor, num_workers: int) -> None:
    """Check that a descriptor for each worker is free: the forkserver needs them, and has the same limit.

    Raises:
        OSError: there are too few.
    """
    taken: list[int] = []
    try:
        for _ in range(num_workers):
            taken.append(os.dup(some.fileno()))  # not a comprehension: after an error, the list has the ones to close
    finally:
        for fd in taken:
            os.close(fd)


def _describe_exit(exitcode: int) -> str:
    if exitcode >= 0:
        return f"ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"was killed by {name}"


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


def _stop(
    pid: int,
    forkserver: Sequence[int],
    control: Descriptor,
    send_stop: Callable[[], None],
    pids: list[int],
    exitcodes: dict[int, int],
) -> None:
    """Let the workers finish their sample, then kill them, and wait for the end of the forkserver."""
    with deferred_interrupts():
        if os.getpid() == pid and control.fileno() >= 0:
            with contextlib.suppress(OSError):  # an interrupted call has already closed the pipe
                send_stop()
            with contextlib.suppress(OSError):
                os.write(control.fileno(), MESSAGE.pack(Message.STOP, 0, int(_GRACE_S * 1000)))
            deadline_s = time.monotonic() + _GRACE_S + _FORKSERVER_GRACE_S
            for forkserver_pid in forkserver:
                _reap(forkserver_pid, control, deadline_s, pids, exitcodes)
        control.close()


def _reap(forkserver_pid: int, control: Descriptor, deadline_s: float, pids: list[int], exitcodes: dict[int, int]) -> None:
    """Wait for the end of the forkserver, or kill it, and record the exit codes of workers."""
    while control.wait(max(0.0, deadline_s - time.monotonic())):
        try:
            if not (message := os.read(control.fileno(), MESSAGE.size)):
                break
            kind, worker, value = MESSAGE.unpack(message)
            if kind == Message.STARTED:
                pids[worker] = value
            elif kind == Message.ENDED:
                exitcodes[pids[worker]] = os.waitstatus_to_exitcode(value)
        except BlockingIOError:  # a waiting thread has read the message
            continue
        except ConnectionResetError:
            break
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(forkserver_pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # the program has waited for all its children
        os.waitpid(forkserver_pid, 0)
