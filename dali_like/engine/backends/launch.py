"""Starting the forkserver: by fork, or as a fresh interpreter."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import warnings

# The function under the same name in `signal` turns numbers into enums, by Python code that may be interrupted.
from _signal import pthread_sigmask as _set_mask  # type: ignore[import-not-found]
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from dali_like.engine.backends.forkserver import Boot, forked
from dali_like.engine.backends.source_bundle import pack, pickle_sources
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import within_process_limits
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.exceptions import announce_exceptions
from dali_like.engine.worker.output import flush_streams, logging_setup
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.worker import Channels, find_libraries, thread_variables

#: What the fresh interpreter runs. The main module of the program is not imported: sources carry with them what they need
#: of it, so that programs need no ``if __name__ == "__main__"``.
_PROGRAM = (
    "import os, pickle, sys; file = os.fdopen({fd}, 'rb'); sys.path[:], sys.argv[:] = pickle.load(file); "
    "from dali_like.engine.backends.forkserver import spawned; boot = pickle.load(file); file.close(); spawned(boot)"
)


#: All that a handler of the program's may be called for; those that a crash sends come when they come.
_BLOCKABLE = signal.valid_signals() - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class ForkserverEnds(NamedTuple):
    """The forkserver's ends of what connects it and its workers with the main process; see `Channels`."""

    control: Descriptor
    tasks: Descriptor
    own_tasks: tuple[Descriptor, ...]
    done: Descriptor

    @property
    def all(self) -> tuple[Descriptor, ...]:
        return (self.control, self.tasks, *self.own_tasks, self.done)

    def close(self) -> None:
        """Close what the main process does not need."""
        for descriptor in (self.control, self.tasks, self.done):
            descriptor.close()


def start_forkserver(
    sources: Sequence[Source], options: WorkerOptions, space: SharedSpace, ends: ForkserverEnds, pids: list[int]
) -> None:
    """Start the forkserver, and add its process id to a list: a handler of some signal may raise before this returns.

    Raises:
        PicklingError: a source cannot be pickled for spawn.
        OutOfMemoryError: there is no memory for what has been pickled.
        ProcessLimitError: no further process may be started.
    """
    start = _fork if options.start_method == "fork" else _spawn
    within_process_limits(start, sources, options, space, ends, pids)


def _fork(
    sources: Sequence[Source], options: WorkerOptions, space: SharedSpace, ends: ForkserverEnds, pids: list[int]
) -> None:
    main_pid = os.getpid()
    if options.threads is not None:
        find_libraries()
    flush_streams()
    announce_exceptions()
    # The child must not run the finalizers of this process's garbage: it freezes what is there before it collects anything.
    collects = gc.isenabled()
    blocked = _block_signals()
    pid = -1
    try:
        gc.disable()
        with warnings.catch_warnings():
            # Python 3.12 warns of forks with threads about. The child runs nothing of theirs, and what a source does is
            # documented with py_start_method.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        pids.append(pid)
    finally:  # also where the system refuses to fork
        if pid == 0:
            gc.freeze()
        if collects:
            gc.enable()
        if pid != 0:
            _set_mask(signal.SIG_SETMASK, blocked)
    if pid == 0:
        _run_fork(main_pid, sources, options, space, ends)


def _run_fork(
    main_pid: int, sources: Sequence[Source], options: WorkerOptions, space: SharedSpace, ends: ForkserverEnds
) -> NoReturn:
    try:
        Descriptor.close_all_but((space.fd, *ends.all))
        own_tasks = tuple(pipe.fileno() for pipe in ends.own_tasks)
        channels = Channels(ends.tasks.fileno(), own_tasks, ends.done.fileno(), space, options.num_workers, options.measures)
        forked(main_pid, ends.control.fileno(), channels, sources, options.threads)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _spawn(
    sources: Sequence[Source], options: WorkerOptions, space: SharedSpace, ends: ForkserverEnds, pids: list[int]
) -> None:
    pickled = pickle_sources(sources, options.pickle_source)
    bundle = pack(sources, pickled)
    boot = Boot(
        main_pid=os.getpid(),
        control_fd=ends.control.fileno(),
        tasks_fd=ends.tasks.fileno(),
        own_tasks_fds=tuple(pipe.fileno() for pipe in ends.own_tasks),
        done_fd=ends.done.fileno(),
        space_fd=space.fd.fileno(),
        space_bytes=space.size,
        limit_bytes=space.limit_bytes,
        num_workers=options.num_workers,
        measures=options.measures,
        threads=options.threads,
        logging=logging_setup(),
        bundle_fds=(bundle.fileno(), *(descriptor.fileno() for source in pickled for descriptor in source.descriptors)),
    )
    boot_fd = os.memfd_create("dali_like_boot", os.MFD_CLOEXEC)
    try:
        with open(boot_fd, "wb", closefd=False) as file:
            pickle.dump((sys.path, sys.argv), file)
            pickle.dump(boot, file)
        os.lseek(boot_fd, 0, os.SEEK_SET)
        kept = (boot_fd, *boot.bundle_fds, boot.space_fd, *(pipe.fileno() for pipe in ends.all))
        command = [sys.executable, *_interpreter_flags(), "-c", _PROGRAM.format(fd=boot_fd)]
        threads = thread_variables(options.threads) if options.threads is not None else {}
        _launch(command, {**os.environ, **threads}, kept, pids)
    finally:
        os.close(boot_fd)
        bundle.close()


def _launch(command: list[str], environment: dict[str, str], kept: Sequence[int], pids: list[int]) -> None:
    import subprocess  # noqa: PLC0415  # for forks it is not needed

    blocked = _block_signals()
    try:
        process = subprocess.Popen(command, env=environment, pass_fds=kept)
        pids.append(process.pid)
        process.returncode = 0  # the pool waits for it, so the destructor need not warn that nobody does
    finally:
        _set_mask(signal.SIG_SETMASK, blocked)


def _block_signals() -> set[int]:
    """Let no handler of the program's come between the start of a process and the note of it. Returns what was blocked.

    Ctrl-C is the main process's affair from the child's first instruction on, too: what is blocked stays so in the child.
    """
    before: set[int] = _set_mask(signal.SIG_BLOCK, ())
    try:
        _set_mask(signal.SIG_BLOCK, _BLOCKABLE)
    except BaseException:  # a handler has come just before
        _set_mask(signal.SIG_SETMASK, before)
        raise
    return before


def _interpreter_flags() -> list[str]:
    import subprocess  # noqa: PLC0415

    # As multiprocessing does: the child warns, optimises and isolates itself as the parent does.
    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined,no-any-return]
