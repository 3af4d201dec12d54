"""Worker backend of threads in the main process, for callbacks that release the GIL, and for free-threaded Python.

Threads run the loop of worker processes (`dali_like.engine.worker.worker.run_worker`) over the same pipes, cells and slots.
The differences to processes:

- With "thread", nothing is copied or pickled: all threads share the user's sources. With "thread_copies", each thread has
  copies from a source bundle, as spawned workers have. Large arrays in it are shared until a thread writes to them.
- A thread cannot be killed. A hanging thread is abandoned: it counts as ended, and another thread takes its place. Its
  slot is not reused before it has really ended. It gets a SystemExit, which Python raises when the thread next runs Python
  code. Code that blocks outside of Python does not see it.
- The cells hold the threads' native ids in place of process ids.

Race: a thread may finish its task at the moment when it is abandoned. Then it must not take another task: its report would
be confused with a report of its successor. So abandoning a thread and waiting for a task exclude each other, by a lock that
no thread holds while waiting. A thread that has finished its task before it is abandoned ends after its next task instead.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # registers its exit handler before ours, see below
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

from dali_like.engine.backends.processes import finish, to_the_end
from dali_like.engine.backends.source_bundle import SourceBundle, pack, pickle_sources
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import End, EndQueue, WorkerOptions
from dali_like.engine.worker.info import become_worker_thread
from dali_like.engine.worker.source import PickledSource, Source
from dali_like.engine.worker.worker import STACK_SIGNAL, Channels, Take, leave_message, run_worker

#: The shared state of all `ThreadWorkers` that have not been stopped.
_not_stopped: weakref.WeakSet[_Shared] = weakref.WeakSet()

#: Threads have this long to finish their tasks after a request to stop, and then this long after a SystemExit.
_GRACE_S = 0.5
_LAST_GRACE_S = 2.0


class _Shared:
    """State shared by a `ThreadWorkers` and its threads. It does not refer to the former, which can become garbage."""

    def __init__(self, channels: Channels, send_stop: Callable[[], None]) -> None:
        self.channels = channels  # keeps the pipes open while a thread may use them
        self.pid = os.getpid()
        self.ends = EndQueue()
        self.threads: set[WorkerThread] = set()
        self.send_stop = send_stop
        _not_stopped.add(self)


_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_SYSTEM_EXIT = ctypes.py_object(SystemExit)


class WorkerThread(threading.Thread):
    """The thread of one worker."""

    def __init__(self, index: int, shared: _Shared, make_sources: Callable[[], Sequence[Source]]) -> None:
        super().__init__(name=f"dali_like:{index}", daemon=True)
        self.index = index
        self._shared = shared
        self._make_sources = make_sources
        self._lock = threading.Lock()
        self._is_busy = True  # it is starting
        self._is_dismissed = False
        self._is_abandoned = False
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
        except SystemExit:  # it came when the thread was about to end; there is one at most
            self._leave(status)

    def _leave(self, status: int) -> None:
        with self._lock:
            self._has_ended = True
            kept, self._kept = self._kept, None
        # No SystemExit is requested from here on. One that was requested while this thread waited for the lock has been
        # raised: the interpreter checks after each call, and the release of the lock is one.
        del kept
        if not self._is_abandoned:
            self._shared.ends.add(End(self.index, self.native_id or 0, status))

    def abandon(self) -> None:
        """Report the end of this thread, now or when it really ends, so that another takes its place."""
        with self._lock:
            self._is_dismissed = True
            if not self._is_busy or self._has_ended:
                return
            self._is_abandoned = True
            self._interrupt()
        self._shared.ends.add(End(self.index, self.native_id or 0, 0, self._keep))

    def dismiss(self) -> None:
        """Take no more tasks, and end as soon as possible."""
        with self._lock:
            self._is_dismissed = True
            self._interrupt()

    def _interrupt(self) -> None:
        """Raise SystemExit in this thread when it next runs Python code, once."""
        # Not while `threading` starts or ends the thread, which would stay incomplete.
        if self._has_begun and not (self._has_ended or self._is_interrupted):
            self._is_interrupted = True
            _raise_in(ctypes.c_ulong(self.ident or 0), _SYSTEM_EXIT)
            if sys.version_info < (3, 12):
                # While the exception is pending, all threads check for it, and a thread under a profiler does nothing else.
                # It stays pending for long if C code hangs. The checks stop when any exception comes, so raise one here.
                # The other thread checks for its own when it continues.
                try:
                    _raise_in(ctypes.c_ulong(threading.get_ident()), _SYSTEM_EXIT)
                    for _ in range(100):
                        pass
                except SystemExit:
                    pass

    def stack(self) -> str:
        """Return its Python stack, in the format of `faulthandler`."""
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

    def _guarded(self, take: Take, waits: bool) -> Take:
        def go_on_unless_dismissed() -> int:
            with self._lock:
                return 0 if self._is_dismissed else take()

        def take_unless_dismissed() -> int:
            with self._lock:
                if self._is_dismissed:
                    return 0
                self._is_busy = False
            taken = take()
            with self._lock:
                self._is_busy = True
            return taken

        return take_unless_dismissed if waits else go_on_unless_dismissed


class ThreadWorkers:
    """The threads of a pool. Implements `dali_like.engine.pool.workers.Workers`.

    They end with `stop`, when this object is garbage, or at the exit of the program. Takes the arguments of
    `dali_like.engine.pool.workers.StartWorkers`.
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
        channels = Channels(
            tasks=tasks[0],
            own_tasks=tuple(tasks[1:]),
            done=done,
            space=space,
            num_workers=options.num_workers,
            measures=options.measures,
        )
        self.exitcodes: dict[int, int] = {}
        self.pids = [0] * options.num_workers
        self.has_waiting_tasks = False  # a thread moves a task from the pipe to its cell at once
        self._options = options
        self._make_sources = self._maker_of(sources)
        self._shared = _Shared(channels, send_stop)
        ends = self._shared.ends
        self.control, self.read_news, self.wait_for_news = ends.control, ends.read_news, ends.wait_for_news
        self.take_end = ends.take_end
        self._workers: dict[int, WorkerThread] = {}
        self._finalizer = weakref.finalize(self, to_the_end, _stop, self._shared)
        for worker in range(options.num_first):
            self.start(worker)

    def start(self, worker: int) -> None:
        """Start a worker that is not running, or whose thread has been abandoned."""
        thread = self._workers[worker] = WorkerThread(worker, self._shared, self._make_sources)
        thread.start()
        self._shared.threads = {thread, *filter(threading.Thread.is_alive, self._shared.threads)}
        self.pids[worker] = thread.native_id or 0

    def signal(self, worker: int, number: int) -> None:
        """Abandon a thread on SIGKILL, or write its stack to the message area on STACK_SIGNAL. Ignore other signals."""
        if number == STACK_SIGNAL:
            leave_message(worker, self._shared.channels, self._workers[worker].stack().encode())
        elif number == signal.SIGKILL:
            self._workers[worker].abandon()

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Replace the sources of threads that start from now on.

        Raises:
            PicklingError: a source cannot be copied.
            OutOfMemoryError: there is no memory for the copies.
        """
        self._make_sources = self._maker_of(sources, pickled)

    def _maker_of(
        self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None
    ) -> Callable[[], Sequence[Source]]:
        """Return the function that makes the sources of a thread, in that thread."""
        if self._options.backend.shares_objects:
            return lambda: [source.for_thread() for source in sources]
        bundle = pack(sources, pickled or pickle_sources(sources, self._options.pickle_source))
        return SourceBundle(*bundle).copy

    def describe_exit(self, end: End) -> str:
        """Describe the end of a thread."""
        return f"ended with exit code {end.exitcode}"

    def stop(self) -> None:
        """Stop all threads, and wait for their ends. Warn about threads whose callbacks do not return."""
        for thread in finish(self._finalizer) or ():
            warnings.warn(
                f"{thread.name} (thread {thread.native_id}) is in a callback that does not return, and Python cannot "
                f"end a thread from outside; it ends when the callback does:\n{thread.stack()}",
                RuntimeWarning,
                stacklevel=2,
            )


def _stop(shared: _Shared) -> Sequence[WorkerThread]:
    """Tell the threads to stop, raise SystemExit in the slow ones, and return the threads that still run."""
    if shared.pid != os.getpid() or shared not in _not_stopped:
        return ()
    with contextlib.suppress(OSError):  # an interrupted call has already closed the pipe
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
        if thread is not threading.current_thread():  # the callback of a worker may close the pipeline
            thread.join(max(0.0, deadline_s - time.monotonic()))


def _stop_all() -> None:
    for shared in list(_not_stopped):
        _stop(shared)


# Runs at the exit of the program, before the thread pools that callbacks may use end: Python calls these functions in the
# reverse order of their registration, and the functions of `atexit` after them.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


def _exit_status(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    return stop.code & 0xFF if isinstance(stop.code, int) else 1
