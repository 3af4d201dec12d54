"""Workers as threads of the main process, for callbacks that release the GIL, and for a Python without one.

They run the loop of worker processes (`dali_like.engine.worker.worker.run_worker`) over the same pipes, cells and slots, so
that to the pool they are like processes. What is different:

- Nothing is copied and nothing travels: all threads share the sources, as the user has made them.
- A thread cannot be killed. One that hangs is given up: it counts as ended, another takes its place, and the slot that it
  may still write to is not used again before it has ended. It is asked to end by SystemExit, which Python raises in it when
  it next runs Python code; code that blocks outside of Python is not reached by that.
- The cells hold the threads' native ids in the place of process ids.

Race: a thread may finish its task at the very moment when it is given up. It then must not take another, whose report would
be mixed up with those of its successor. So giving up and beginning to wait for a task exclude each other, by a lock that
nobody holds while waiting. A thread that is no longer at a task when it is to be given up ends after its next one instead.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # it must have registered what it does at the end: see below
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dali_like.engine.backends.processes import finish
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import End, EndQueue, WorkerOptions
from dali_like.engine.worker.info import become_worker_thread
from dali_like.engine.worker.source import PickledSource, Source
from dali_like.engine.worker.worker import STACK_SIGNAL, Channels, Take, leave_message, run_worker

#: Of each workers that has not been stopped, what its threads share with it.
_not_stopped: weakref.WeakSet[_Shared] = weakref.WeakSet()

#: How long threads have to finish their tasks when they are told to stop; and their callbacks, when they have been asked to
#: end at once.
_GRACE_S = 0.5
_LAST_GRACE_S = 2.0


class _Shared:
    """What the threads of a workers share with it. It does not refer to the workers, which can so be dropped."""

    def __init__(self, channels: Channels, pipes: Sequence[Descriptor], send_stop: Callable[[], None]) -> None:
        self.channels = channels
        self.pid = os.getpid()
        self.ends = EndQueue()
        self.threads: set[_WorkerThread] = set()
        self.send_stop = send_stop
        self._pipes = pipes  # open for as long as a thread may use them
        _not_stopped.add(self)


_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_SYSTEM_EXIT = ctypes.py_object(SystemExit)


class _WorkerThread(threading.Thread):
    """One worker."""

    def __init__(self, index: int, shared: _Shared, sources: Sequence[Source]) -> None:
        super().__init__(name=f"dali_like:{index}", daemon=True)
        self.index = index
        self._shared = shared
        self._sources = sources
        self._lock = threading.Lock()
        self._is_busy = True  # with its start
        self._is_dismissed = False
        self._is_given_up = False
        self._has_begun = False
        self._is_interrupted = False
        self._has_ended = False
        self._kept: Any = None

    def run(self) -> None:
        status = 1
        try:
            try:
                with self._lock:
                    self._has_begun = True
                become_worker_thread()
                status = run_worker(self.index, self._shared.channels, self._make_sources, self._guarded)
            except SystemExit as stop:
                status = _exit_status(stop)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            self._leave(status)
        except SystemExit:  # asked to end when it was about to; that happens once
            self._leave(status)

    def _leave(self, status: int) -> None:
        with self._lock:
            self._has_ended = True
            kept, self._kept = self._kept, None
        # From here on it is not asked to end any more; if it has been while it waited for the lock, that has come: the
        # interpreter looks for it after each call, and that which gives the lock back is one.
        del kept
        if not self._is_given_up:
            self._shared.ends.add(End(self.index, self.native_id or 0, status))

    def give_up(self) -> None:
        """Let another thread take its place, now or when it has ended."""
        with self._lock:
            self._is_dismissed = True
            if not self._is_busy or self._has_ended:
                return
            self._is_given_up = True
            self._interrupt()
        self._shared.ends.add(End(self.index, self.native_id or 0, 0, self._keep))

    def dismiss(self) -> None:
        """Let it take no task any more, and end as soon as it can."""
        with self._lock:
            self._is_dismissed = True
            self._interrupt()

    def _interrupt(self) -> None:
        """Raise SystemExit in it when it next runs Python code; once."""
        # Not while `threading` begins and ends it, which would be left undone.
        if self._has_begun and not (self._has_ended or self._is_interrupted):
            self._is_interrupted = True
            _raise_in(ctypes.c_ulong(self.ident or 0), _SYSTEM_EXIT)
            if sys.version_info < (3, 12):
                # Until it has come, which takes long where C code hangs, all threads look for it, and one that calls a
                # function under a profiler does nothing else. They stop looking when one comes, and a thread looks for
                # its own again when it goes on: so let one come here.
                try:
                    _raise_in(ctypes.c_ulong(threading.get_ident()), _SYSTEM_EXIT)
                    for _ in range(100):
                        pass
                except SystemExit:
                    pass

    def stack(self) -> str:
        """Its Python stack, as `faulthandler` would write it."""
        lines = [f"Thread {self.native_id} (most recent call first):"]
        frame = sys._current_frames().get(self.ident or 0)
        while frame is not None:
            lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
            frame = frame.f_back
        return "\n".join(lines) + "\n"

    def _keep(self, thing: Any) -> None:
        with self._lock:
            if not self._has_ended:
                self._kept = thing

    def _make_sources(self) -> Sequence[Source]:
        return [source.for_thread() for source in self._sources]

    def _guarded(self, take: Take) -> Take:
        def take_unless_dismissed() -> int:
            with self._lock:
                if self._is_dismissed:
                    return 0
                self._is_busy = False
            taken = take()
            with self._lock:
                self._is_busy = True
            return taken

        return take_unless_dismissed


class ThreadWorkers:
    """The threads of a pool; see `dali_like.engine.pool.workers.Workers`, and the module's text.

    They are ended by `stop`, or when the workers is dropped, or at the end of the program.

    Args:
        tasks, done: the workers' ends of the pipes, as of `dali_like.engine.backends.processes.ProcessWorkers`.
        send_stop: called before the threads are waited for, so that they find the end. Must not refer to the workers.
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
        shared, *own = (pipe.fileno() for pipe in tasks)
        channels = Channels(shared, tuple(own), done.fileno(), space, options.num_workers, options.measures)
        self.exitcodes: dict[int, int] = {}
        self.pids = [0] * options.num_workers
        self.has_waiting_tasks = False  # what a thread has taken is in its cell
        self._sources = sources
        self._shared = _Shared(channels, (*tasks, done), send_stop)
        ends = self._shared.ends
        self.control, self.read_news, self.wait_for_news = ends.control, ends.read_news, ends.wait_for_news
        self.take_end = ends.take_end
        self._workers: dict[int, _WorkerThread] = {}
        self._finalizer = weakref.finalize(self, _stop, self._shared)
        for worker in range(options.num_first):
            self.start(worker)

    def start(self, worker: int) -> None:
        """Start a worker that is not running, or that has been given up."""
        thread = self._workers[worker] = _WorkerThread(worker, self._shared, self._sources)
        thread.start()
        self._shared.threads = {thread, *filter(threading.Thread.is_alive, self._shared.threads)}
        self.pids[worker] = thread.native_id or 0

    def signal(self, worker: int, number: int) -> None:
        """Give a thread up, or let its stack be written where a process would write it; other signals do not reach it."""
        if number == STACK_SIGNAL:
            leave_message(worker, self._shared.channels, self._workers[worker].stack().encode())
        elif number == signal.SIGKILL:
            self._workers[worker].give_up()

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Give threads that are started from now on other sources."""
        self._sources = sources

    def describe_exit(self, end: End) -> str:
        """How a thread ended, in words."""
        return f"ended with exit code {end.exitcode}"

    def stop(self) -> None:
        """End all threads, and wait until they are gone; warn of those whose callbacks do not return."""
        for thread in finish(self._finalizer) or ():
            warnings.warn(
                f"{thread.name} (thread {thread.native_id}) is in a callback that does not return, and Python cannot "
                f"end a thread from outside; it ends when the callback does:\n{thread.stack()}",
                RuntimeWarning,
                stacklevel=2,
            )


def _stop(shared: _Shared) -> Sequence[_WorkerThread]:
    """Let threads finish their tasks, ask those to end at once that do not, and wait; those that go on nevertheless."""
    if shared.pid != os.getpid() or shared not in _not_stopped:
        return ()
    with contextlib.suppress(OSError):  # they have been told before, and that has been interrupted
        shared.send_stop()
    _join(shared, _GRACE_S)
    for thread in list(shared.threads):
        if thread is not threading.current_thread():
            thread.dismiss()
    _join(shared, _LAST_GRACE_S)
    _not_stopped.discard(shared)
    return [thread for thread in list(shared.threads) if thread.is_alive() and thread is not threading.current_thread()]


def _join(shared: _Shared, most_s: float) -> None:
    deadline_s = time.monotonic() + most_s
    for thread in list(shared.threads):
        if thread is not threading.current_thread():  # whose callback closes the pipeline, say
            thread.join(max(0.0, deadline_s - time.monotonic()))


def _stop_all() -> None:
    for shared in list(_not_stopped):
        _stop(shared)


# When the program ends, before the thread pools that callbacks may use: these functions are called in the reverse order of
# their registration, and those of `atexit` after them.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


def _exit_status(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    return stop.code & 0xFF if isinstance(stop.code, int) else 1
