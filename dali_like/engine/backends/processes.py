"""The workers as processes: started, watched and ended through their forkserver."""

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
from dali_like.engine.backends.forkserver import MESSAGE, MOST_FDS, Message
from dali_like.engine.backends.launch import ForkserverEnds, start_forkserver
from dali_like.engine.backends.source_bundle import pack, pickle_sources
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import oom_kills
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import FORKSERVER, End, WorkerOptions
from dali_like.engine.worker.source import PickledSource, Source

#: How long workers have to finish their sample when they are told to stop; then they are killed.
_GRACE_S = 0.5
#: How long the forkserver has for the rest.
_FORKSERVER_GRACE_S = 2.0


class ProcessWorkers:
    """The worker processes of a pool.

    They are stopped by `stop`, or when the workers is dropped, or at the end of the program.

    Args:
        tasks, done: the workers' ends of the pipes. The first is for all workers, the others, if any, for one each.
        send_stop: called before the workers are stopped, so that they find the end. Must not refer to the workers.

    Attributes:
        control: becomes readable when there is news.
        pids: the process id of each worker; 0 before it has started.
        exitcodes: how those have ended that have, by process id: the exit status, or minus the number of the signal.
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
        self.has_waiting_tasks = False  # what a process has taken is in its cell
        self._options = options
        self._ends: list[End] = []
        self._unsent: deque[bytes] = deque()
        self._oom_kills_before = oom_kills()
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
        """Send a signal to a worker, if it is there."""
        self._send(Message.SIGNAL, worker, number)

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Give workers that are started from now on other sources. Those that run keep what they have.

        Under fork, too, these travel pickled, by value where that is needed.

        Args:
            sources: as many as before, and of the same kinds: only their functions, and what these hold, may differ.
            pickled: what the options' `pickle_source` has made of them, if it has.

        Raises:
            PicklingError: one of them cannot be pickled.
            OutOfMemoryError: there is no memory for what has been pickled.
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
        """Take note of what the forkserver has said."""
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
                return  # the program ends, and this is a thread that it has not waited for
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
        """Wait until there is news, and take note of it."""
        self.control.wait(timeout_s)
        self.read_news()

    def take_end(self) -> End | None:
        """The next end that has not been taken, if there is one."""
        return self._ends.pop(0) if self._ends else None

    def describe_exit(self, end: End) -> str:
        """How a worker ended, in words."""
        return _describe_exit(end.exitcode, oom_kills() > self._oom_kills_before)

    def stop(self) -> None:
        """End all workers and the forkserver, and wait until they are gone."""
        finish(self._finalizer)

    def _send(self, kind: Message, worker: int, value: int = 0) -> None:
        self._unsent.append(MESSAGE.pack(kind, worker, value))
        self._send_rest()

    def _send_rest(self) -> None:
        """Send what there is room for: less than 300 messages. The rest goes when the forkserver says what it has done."""
        # If the forkserver is gone, `read_news` will say so.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self._unsent:
                os.write(self.control.fileno(), self._unsent[0])
                self._unsent.popleft()


@contextlib.contextmanager
def _socket(descriptor: Descriptor) -> Iterator[socket.socket]:
    """A descriptor as a socket, meanwhile."""
    made = socket.socket(fileno=descriptor.fileno())
    try:
        made.setblocking(False)
        yield made
    finally:
        made.detach()


def _check_descriptors(some: Descriptor, num_workers: int) -> None:
    """The forkserver has this process's limits, and needs a descriptor for each worker.

    Raises:
        OSError: there are too few.
    """
    taken: list[int] = []
    try:
        for _ in range(num_workers):
            taken.append(os.dup(some.fileno()))  # what was taken before an error is to be closed
    finally:
        for fd in taken:
            os.close(fd)


def _describe_exit(exitcode: int, oom: bool) -> str:
    if exitcode >= 0:
        return f"ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    if oom and -exitcode == signal.SIGKILL:
        return f"was killed by {name}, probably by the out-of-memory killer, which has been at work,"
    return f"was killed by {name}"


def finish(finalizer: weakref.finalize[Any, Any]) -> Any:
    """Call a finalizer now; what it returns, or None if it has been called.

    It is called once: where a handler of some signal raises meanwhile, it is called again later, at the latest when the
    program ends.
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
    """Let workers finish their sample, kill those that do not, and wait for all of them to be gone."""
    with deferred_interrupts():
        if os.getpid() == pid and control.fileno() >= 0:
            with contextlib.suppress(OSError):  # they have been told before, and that has been interrupted
                send_stop()
            with contextlib.suppress(OSError):
                os.write(control.fileno(), MESSAGE.pack(Message.STOP, 0, int(_GRACE_S * 1000)))
            deadline_s = time.monotonic() + _GRACE_S + _FORKSERVER_GRACE_S
            for forkserver_pid in forkserver:
                _reap(forkserver_pid, control, deadline_s, pids, exitcodes)
        control.close()


def _reap(forkserver_pid: int, control: Descriptor, deadline_s: float, pids: list[int], exitcodes: dict[int, int]) -> None:
    """Wait for the forkserver to end, or end it, and note how the workers have ended."""
    while control.wait(max(0.0, deadline_s - time.monotonic())):
        try:
            if not (message := os.read(control.fileno(), MESSAGE.size)):
                break
            kind, worker, value = MESSAGE.unpack(message)
            if kind == Message.STARTED:
                pids[worker] = value
            elif kind == Message.ENDED:
                exitcodes[pids[worker]] = os.waitstatus_to_exitcode(value)
        except BlockingIOError:  # a thread that was waiting for news has read it
            continue
        except ConnectionResetError:
            break
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(forkserver_pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # somebody else has waited for all children
        os.waitpid(forkserver_pid, 0)
