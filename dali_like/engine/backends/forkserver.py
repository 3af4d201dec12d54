"""The forkserver: a small process with one thread, the parent of all workers of a pool. This module runs in it.

The main process starts the forkserver once, and forks no worker itself. Under ``fork``, the forkserver is a fork of the main
process at the start of the pool, with the sources at that time. Under ``spawn``, it is a fresh interpreter that imports
NumPy and this package while the main process pickles the sources. They arrive by the first `Message.RENEW`; the forkserver
imports their modules, and each worker unpickles them for itself. So replacements of dead workers equal the first workers,
independent of later changes in the main process, and start within milliseconds. Only another `Message.RENEW` changes the
sources of workers that start after it.

::

    main process --(socket: start, stop, signal, renew, reserve)--> forkserver --(fork)--> workers, reserve
                 <--(the same socket: started, ended)-------------- forkserver, workers
                 <--(a socket of its own, likewise)---------------> reserve

The forkserver watches the main process through a pidfd, and ends with it, after any kind of end. The kernel kills the
workers when the forkserver ends (PR_SET_PDEATHSIG, so the forkserver has one thread). The forkserver reaps the workers: the
main process gets their exit codes, and none stays a zombie.

The forkserver may be killed, too. Under ``spawn``, the main process starts another one from the source bundle, which it
keeps. Under ``fork``, nobody but the forkserver holds the sources as they were. So it forks a *reserve*: a process that runs
the same code, with a socket of its own to the main process, and without workers. The main process makes the reserve the
forkserver by starting workers through its socket, and has it fork the next reserve. If the reserve ends first, the
forkserver forks another one.

The first reserve is forked after `FIRST_RESERVE_S`: epochs that are shorter do without one. If the forkserver is killed
before, the main process, whose sources have hardly had time to change, forks another one.

- A reserve is a child of the forkserver, which reaps it. It watches the main process, and survives the forkserver. Then the
  init process adopts it, and reaps it at its end. So the main process does not learn the exit status of a forkserver that
  was a reserve. It sees the end through a pidfd.
- Each process announces itself to the main process with its pidfd (STARTED): a worker before it takes a task, on the socket
  of its forkserver. So after the end of a forkserver, the main process waits for all its workers before it posts their
  tasks again: no row ever has two writers. A worker that was killed before its announcement has taken no task.
- A reserve closes the forkserver's socket and the pidfds of its workers. A worker closes both sockets and all pidfds. So a
  socket is at end of file when its own process has ended.
- A reserve gets the same `Message.RENEW` as the forkserver, and a reserve that is forked later inherits the newest sources.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import select
import signal
import struct
import sys
import time
import warnings

# The functions under the same names in `signal` turn numbers into enums, by Python code that takes much longer.
from _signal import getsignal as _handler_of
from _signal import pthread_sigmask as _set_mask
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dali_like.engine.backends.inherited import enter_process, finish_queues
from dali_like.engine.memory.descriptor_messages import as_socket, receive, send
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import within_process_limits
from dali_like.engine.memory.protocol import CELL_PEAK, FORKSERVER, WORD_BYTES, cell_offset
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.exceptions import pack_exception
from dali_like.engine.worker.malloc import keep_freed_memory
from dali_like.engine.worker.output import LoggingSetup, end_output, flush_streams, log_as_in, mark_output, settle_logging
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.thread_limits import limit_threads
from dali_like.engine.worker.worker import (
    START_FAILED,
    Channels,
    answer_with_stack,
    forget_stack,
    leave_message,
    run_worker,
)

if TYPE_CHECKING:
    from dali_like.engine.backends.source_bundle import SourceBundle

#: Kind of message, worker, pid of the worker (STARTED, ENDED), and a value: the grace period of workers in milliseconds
#: (STOP), a signal's number (SIGNAL), the wait status of a worker (ENDED). STARTED comes with a pidfd; its worker may be
#: `FORKSERVER`. RENEW comes with descriptors of a source bundle; its value is the number of descriptors that come with
#: further RENEW messages. RESERVE comes with the reserve's end of its socket; its value is the delay in milliseconds. If the
#: forkserver cannot fork it, it answers with the same kind.
MESSAGE = struct.Struct("<iiii")

#: The kernel's limit of descriptors in one message (SCM_MAX_FD).
MOST_FDS = 253

#: Names of the processes, of 15 letters at most.
_NAME, RESERVE_NAME = "dali_like:start", "dali_like:spare"

#: The delay of the first reserve. A fork of a large process takes milliseconds, which short epochs cannot spare.
FIRST_RESERVE_S = 0.2

#: Loaded here, once for all workers.
_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_NAME = 15
#: See PR_SET_PDEATHSIG(2const).
PR_SET_PDEATHSIG = 1


class Message(IntEnum):
    """Kinds of messages. STARTED and ENDED go to the main process, the others to the forkserver; RESERVE in both ways."""

    START = 1
    STOP = 2
    SIGNAL = 3
    STARTED = 4
    ENDED = 5
    RENEW = 6
    RESERVE = 7


class Boot(NamedTuple):
    """Parameters of a forkserver under spawn."""

    main_pid: int
    control_fd: int
    tasks_fd: int
    own_tasks_fds: tuple[int, ...]
    done_fd: int
    space_fd: int
    space_bytes: int
    limit_bytes: int
    num_workers: int
    measures: bool
    threads: int | None
    logging: LoggingSetup


def prctl(option: int, value: Any) -> None:
    """Call prctl(2).

    Raises:
        OSError: it fails.
    """
    if _libc.prctl(option, value) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def spawned(boot: Boot, collects: bool) -> NoReturn:
    """Run a forkserver in a fresh interpreter.

    Args:
        collects: whether to turn the garbage collector on, which has been off during the imports.
    """
    gc.freeze()
    if collects:
        gc.enable()
    _reset_signals()
    for fd in (boot.control_fd, boot.tasks_fd, *boot.own_tasks_fds, boot.done_fd, boot.space_fd):
        os.set_inheritable(fd, False)  # programs that callbacks start must not inherit them
    control = Descriptor(boot.control_fd)
    space = SharedSpace(SharedFile(Descriptor(boot.space_fd), boot.space_bytes), boot.limit_bytes)
    channels = Channels(
        tasks=Descriptor(boot.tasks_fd),
        own_tasks=tuple(map(Descriptor, boot.own_tasks_fds)),
        done=Descriptor(boot.done_fd),
        space=space,
        num_workers=boot.num_workers,
        measures=boot.measures,
    )
    _close_stdin()
    log_as_in(boot.logging)
    announce(control, FORKSERVER)
    serve(boot.main_pid, control, channels, (), boot.threads)


def forked(
    main_pid: int, control: Descriptor, channels: Channels, sources: Sequence[Source], threads: int | None
) -> NoReturn:
    """Run a forkserver in a fork of the main process. The caller has closed all other descriptors."""
    forget_stack()  # the main process may be a worker of another pool
    _reset_signals()
    _close_stdin()
    announce(control, FORKSERVER)
    serve(main_pid, control, channels, sources, threads)


def serve(
    main_pid: int,
    control: Descriptor,
    channels: Channels,
    sources: Sequence[Source],
    threads: int | None,
) -> NoReturn:
    """Start workers on request, report their ends, and end with the main process.

    Args:
        sources: of forked workers. Spawned workers get theirs by `Message.RENEW`, before the first of them is started.
    """
    try:
        main = Descriptor(os.pidfd_open(main_pid))
    except ProcessLookupError:
        os._exit(0)
    if os.getppid() != main_pid:
        os._exit(0)
    _name_process(_NAME)
    limit_threads(threads)
    keep_freed_memory(channels.num_workers)
    gc.freeze()  # the collector of workers then leaves these objects alone, so their pages stay shared
    forkserver = Forkserver(main_pid, main, control, channels, sources, threads)
    status = 0
    try:
        while (reserve := forkserver.serve()) is not None:  # here: within `serve`, each reserve would add to the stack
            forkserver = reserve
    except ConnectionError:
        pass  # the main process has closed its end, or has ended
    except BaseException:
        status = 1
        sys.excepthook(*sys.exc_info())
    finally:
        flush_streams()
        os._exit(status)


class _Child(NamedTuple):
    """A worker with its number, or the reserve with the number FORKSERVER."""

    worker: int
    pid: int
    pidfd: Descriptor


class Forkserver:
    """A forkserver or a reserve: a reserve becomes the forkserver when it starts its first worker."""

    def __init__(
        self,
        main_pid: int,
        main: Descriptor,
        control: Descriptor,
        channels: Channels,
        sources: Sequence[Source] | SourceBundle,
        threads: int | None,
    ) -> None:
        self._main_pid = main_pid
        self._main = main
        self._control = control
        self._channels = channels
        self._sources = sources
        self._threads = threads
        self._children: dict[int, _Child] = {}  # by the number of the pidfd
        self._poll = select.poll()
        self._poll.register(main, select.POLLIN)
        self._poll.register(control, select.POLLIN)
        self._arrived: list[Descriptor] = []  # descriptors of a source bundle, so far
        self._stopping = False
        self._deadline_s = math.inf  # of the workers' grace period
        self._reserve: Descriptor | None = None  # the end of the socket of the reserve to fork
        self._reserve_due_s = math.inf

    def serve(self) -> Forkserver | None:
        """Obey the main process. Return None at its end, and in a new reserve, its first instruction."""
        while not self._stopping or self._children:
            ready = [fd for fd, _ in self._poll.poll(self._timeout_ms())]
            if self._main.fileno() in ready:
                return None
            for fd in ready:
                if fd == self._control.fileno():
                    message, arrived = self._receive()
                    if not message:
                        return None
                    kind, worker, _, value = MESSAGE.unpack(message)
                    self._obey(kind, worker, value, arrived)
                elif fd in self._children:
                    self._report_end(fd)
            if not self._stopping and time.monotonic() >= self._reserve_due_s:
                if (reserve := self._fork_reserve()) is not None:
                    return reserve
            elif time.monotonic() >= self._deadline_s:
                self._deadline_s = math.inf
                for child in self._children.values():
                    os.kill(child.pid, signal.SIGKILL)
        return None

    def _receive(self) -> tuple[bytes, list[Descriptor]]:
        """Return the next message and its descriptors, which a plain read would drop."""
        with as_socket(self._control) as control:
            message, fds = receive(control, MESSAGE.size, MOST_FDS)
        return message, list(map(Descriptor, fds))

    def _send(self, message: bytes) -> None:
        with as_socket(self._control) as control:
            control.send(message)

    def _timeout_ms(self) -> float | None:
        next_s = self._deadline_s if self._stopping else self._reserve_due_s
        return None if next_s == math.inf else max(0.0, next_s - time.monotonic()) * 1000

    def _obey(self, kind: int, worker: int, value: int, arrived: Sequence[Descriptor]) -> None:
        if kind == Message.START:
            self._start(worker)
        elif kind == Message.STOP:
            self._stopping = True
            self._deadline_s = time.monotonic() + value / 1000
        elif kind == Message.SIGNAL:
            for child in self._children.values():
                if child.worker == worker:
                    os.kill(child.pid, value)
        elif kind == Message.RESERVE:
            self._reserve = arrived[0] if arrived else None  # none was left here
            self._reserve_due_s = time.monotonic() + value / 1000
        elif kind == Message.RENEW:
            self._arrived += arrived
            if not value:
                from dali_like.engine.backends.source_bundle import SourceBundle  # forks rarely need it

                bundle = SourceBundle(*self._arrived)
                bundle.import_modules()
                if "dali_like.common.global_generators" in sys.modules:  # workers of loaders seed NumPy's generator
                    import numpy.random  # noqa: F401
                if self._channels.num_workers > 1:
                    bundle.load_plain_parts()
                limit_threads(self._threads)  # of libraries that came with the modules
                gc.freeze()  # as in `serve`
                if not isinstance(self._sources, Sequence):
                    self._sources.close()
                self._sources = bundle
                self._arrived = []

    def _start(self, index: int) -> None:
        _name_process(_NAME)  # from now on, if this was a reserve
        forkserver = os.getpid()
        try:
            pid = _fork()
        except OSError as error:
            leave_message(index, self._channels, pack_exception(error))
            self._send(MESSAGE.pack(Message.ENDED, index, 0, START_FAILED << 8))
            return
        if pid == 0:
            self._become_worker(index, forkserver)
        self._watch(index, pid)

    def _fork_reserve(self) -> Forkserver | None:
        """Fork a reserve, and return it there."""
        self._reserve_due_s = math.inf
        control, self._reserve = self._reserve, None
        pid = -1
        with contextlib.suppress(OSError):
            if control is not None:
                pid = _fork()
        if control is None or pid < 0:
            self._send(MESSAGE.pack(Message.RESERVE, 0, 0, 0))
        elif pid == 0:
            self._control.close()
            self._close_pidfds()
            _name_process(RESERVE_NAME)
            announce(control, FORKSERVER)
            return Forkserver(self._main_pid, self._main, control, self._channels, self._sources, self._threads)
        else:
            self._watch(FORKSERVER, pid)
        if control is not None:
            control.close()
        return None

    def _watch(self, index: int, pid: int) -> None:
        pidfd = Descriptor(os.pidfd_open(pid))
        self._children[pidfd.fileno()] = _Child(index, pid, pidfd)
        self._poll.register(pidfd, select.POLLIN)

    def _close_pidfds(self) -> None:
        for child in self._children.values():
            child.pidfd.close()

    def _make_sources(self) -> Sequence[Source]:
        if isinstance(self._sources, Sequence):
            return self._sources
        sources = self._sources.unpack()
        settle_logging()
        return sources

    def _report_end(self, fd: int) -> None:
        index, pid, pidfd = self._children.pop(fd)
        self._poll.unregister(pidfd)
        pidfd.close()
        _, status, usage = os.wait4(pid, 0)
        if index != FORKSERVER:  # the main process sees the end of the reserve
            word = cell_offset(index) + CELL_PEAK  # for messages about memory
            self._channels.space.map[word : word + WORD_BYTES] = usage.ru_maxrss.to_bytes(WORD_BYTES, "little")
            self._send(MESSAGE.pack(Message.ENDED, index, pid, status))

    def _become_worker(self, index: int, forkserver: int) -> NoReturn:
        status = 1
        try:
            prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != forkserver:
                os._exit(0)
            _name_process(f"dali_like:{index}")
            self._close_pidfds()
            with contextlib.suppress(ConnectionError):  # the main process has ended
                announce(self._control, index)
            self._control.close()
            if self._reserve is not None:
                self._reserve.close()
            for worker, pipe in enumerate(self._channels.own_tasks):
                if worker != index:
                    pipe.close()
            enter_process(index, self._main_pid, self._main.fileno())
            os.register_at_fork(after_in_child=_restore_interrupts)
            mark_output(index)
            answer_with_stack(index, self._channels)
            status = run_worker(index, self._channels, self._make_sources)
            finish_queues()
        except SystemExit as stop:
            status = exit_status(stop)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            end_output()
            os._exit(status)


def announce(control: Descriptor, worker: int) -> None:
    """Send the pidfd of this process to the main process."""
    pidfd = os.pidfd_open(os.getpid())
    try:
        with as_socket(control) as channel:
            send(channel, MESSAGE.pack(Message.STARTED, worker, os.getpid(), 0), [pidfd])
    finally:
        os.close(pidfd)


def _fork() -> int:
    """Fork. Returns 0 in the child.

    Raises:
        OSError: the system refuses.
    """
    with warnings.catch_warnings():
        # Python 3.12 warns about forks with threads. Libraries may have some; see `SourceBundle.import_modules`.
        warnings.simplefilter("ignore", DeprecationWarning)
        return within_process_limits(os.fork)


def exit_status(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)  # as Python does
    return 1


def _reset_signals() -> None:
    """Reset the signal handlers and masks of the main process. Ctrl-C has no effect: the main process handles it."""
    ignores_interrupts = _handler_of(signal.SIGINT) == signal.SIG_IGN
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if callable(_handler_of(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not ignores_interrupts:
        # A handler, because programs that callbacks start would inherit SIG_IGN, and could not be stopped by SIGINT.
        signal.signal(signal.SIGINT, _ignore_interrupt)
        signal.siginterrupt(signal.SIGINT, False)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a write error shows a closed pipe
    _set_mask(signal.SIG_SETMASK, ())


def _ignore_interrupt(*_: object) -> None:
    """Handle SIGINT in forkservers and workers."""


def _restore_interrupts() -> None:
    """Let a process that a callback has forked handle SIGINT as Python does."""
    if signal.getsignal(signal.SIGINT) is _ignore_interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _close_stdin() -> None:
    """Replace stdin by /dev/null: input is for the main process."""
    try:
        null = os.open(os.devnull, os.O_RDONLY)
    except OSError:  # in a folder of chroot(2), say: a pipe is at end of file, too
        null, other = os.pipe()
        os.close(other)
    if null != 0:
        os.dup2(null, 0)
        os.close(null)


def _name_process(name: str) -> None:
    _libc.prctl(_PR_SET_NAME, name.encode()[:15])
