"""Start a forkserver: by fork, or as a fresh interpreter. Runs in the main process."""

from __future__ import annotations

import gc
import marshal
import os
import pickle
import signal
import sys
import warnings

# The function under the same name in `signal` turns numbers into enums, by Python code that may be interrupted.
from _signal import pthread_sigmask as _set_mask
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from dali_like.engine.backends.forkserver import Boot, forked
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.limits import within_process_limits
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.memory.system_calls import anonymous_file
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.output import LoggingSetup, flush_streams, logging_setup
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.thread_limits import find_libraries, thread_variables
from dali_like.engine.worker.worker import Channels
from dali_like.errors import UnsupportedSystemError

#: The program of the fresh interpreter. It does not import the main module of the user's program: pickles of sources carry
#: the needed parts by value. So programs need no ``if __name__ == "__main__"``.
#: Before it has the program's `sys.path`, it imports only built-in modules: -P keeps the current folder out of the path, but
#: the path of the program may have other modules under the names of those in the standard library.
#: The garbage collector is off during the imports, whose objects stay for ever.
_PROGRAM = (
    "import gc, marshal, sys; collects = gc.isenabled(); gc.disable(); "
    "file = open({fd}, 'rb'); sys.path[:] = marshal.load(file); import pickle; sys.argv[:] = pickle.load(file); "
    "import dali_like.engine.backends.source_bundle; from dali_like.engine.backends.forkserver import spawned; "
    "boot = pickle.load(file); file.close(); spawned(boot, collects)"
)

#: Signals to block: all but the signals of crashes, which cannot be delayed.
_BLOCKABLE = signal.valid_signals() - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class ForkserverEnds(NamedTuple):
    """The forkserver's ends of its socket and of the pipes; see `Channels`."""

    control: Descriptor
    tasks: Descriptor
    own_tasks: tuple[Descriptor, ...]
    done: Descriptor

    @property
    def all(self) -> tuple[Descriptor, ...]:
        return (self.control, self.tasks, *self.own_tasks, self.done)


class SpawnSetup(NamedTuple):
    """State of the main process at the start of the pool, for fresh interpreters.

    A replacement starts with the same setup as the first forkserver, whatever the program has changed meanwhile.

    Attributes:
        executable: the interpreter.
        path, argv: `sys.path`, of which imports use the texts only, and `sys.argv`.
        flags: flags of the interpreter.
        environment: environment variables.
        folder: the current folder; None: it has been removed.
        logging: the setup of the `logging` module.
    """

    executable: str
    path: list[str]
    argv: list[str]
    flags: list[str]
    environment: dict[str, str]
    folder: str | None
    logging: LoggingSetup

    @classmethod
    def of_this_process(cls) -> SpawnSetup:
        """Return the setup of this process.

        Raises:
            UnsupportedSystemError: there is no interpreter to start.
        """
        return cls(
            executable=_interpreter(),
            path=[str(entry) for entry in sys.path if isinstance(entry, str)],
            argv=list(sys.argv),
            flags=_interpreter_flags(),
            environment=dict(os.environ),
            folder=_current_folder(),
            logging=logging_setup(),
        )


def fork_forkserver(
    sources: Sequence[Source], options: WorkerOptions, space: SharedSpace, ends: ForkserverEnds, pids: list[int]
) -> None:
    """Fork the forkserver, and append its process id to `pids`. A return value could be lost: signal handlers may raise.

    Raises:
        ProcessLimitError: the system refuses another process.
    """
    within_process_limits(_fork, sources, options, space, ends, pids)


def spawn_forkserver(
    setup: SpawnSetup,
    options: WorkerOptions,
    space: SharedSpace,
    ends: ForkserverEnds,
    pids: list[int],
) -> None:
    """Start a forkserver as a fresh interpreter, without sources, and append its process id to `pids`.

    Raises:
        ProcessLimitError: the system refuses another process.
    """
    within_process_limits(_spawn, setup, options, space, ends, pids)


def _fork(
    sources: Sequence[Source], options: WorkerOptions, space: SharedSpace, ends: ForkserverEnds, pids: list[int]
) -> None:
    main_pid = os.getpid()
    if options.threads is not None:
        find_libraries()
    flush_streams()
    # The child must not run the finalizers of this process's garbage. So it freezes all objects before its first collection.
    collects = gc.isenabled()
    blocked = _block_signals()
    pid = -1
    try:
        gc.disable()
        with warnings.catch_warnings():
            # Python 3.12 warns about forks of processes with threads. The child runs no code of these threads. The
            # documentation of py_start_method covers sources with threads.
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
        channels = Channels(
            tasks=ends.tasks,
            own_tasks=ends.own_tasks,
            done=ends.done,
            space=space,
            num_workers=options.num_workers,
            measures=options.measures,
        )
        forked(main_pid, ends.control, channels, sources, options.threads)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _spawn(
    setup: SpawnSetup,
    options: WorkerOptions,
    space: SharedSpace,
    ends: ForkserverEnds,
    pids: list[int],
) -> None:
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
        logging=setup.logging,
    )
    boot_fd = anonymous_file("dali_like_boot")
    try:
        with open(boot_fd, "wb", closefd=False) as file:
            marshal.dump(setup.path, file)
            pickle.dump(setup.argv, file)
            pickle.dump(boot, file)
        os.lseek(boot_fd, 0, os.SEEK_SET)
        kept = (boot_fd, boot.space_fd, *(pipe.fileno() for pipe in ends.all))
        command = [setup.executable, *setup.flags, "-P", "-c", _PROGRAM.format(fd=boot_fd)]
        threads = thread_variables(options.threads) if options.threads is not None else {}
        _launch(command, {**setup.environment, **threads}, setup.folder, kept, pids)
    finally:
        os.close(boot_fd)


def _launch(
    command: list[str], environment: dict[str, str], folder: str | None, kept: Sequence[int], pids: list[int]
) -> None:
    import subprocess  # forks do not need it

    if folder == _current_folder() or not os.path.isdir(folder or ""):
        folder = None  # the interpreter starts in the current folder
    blocked = _block_signals()
    try:
        environment.pop("DALI_LIKE_RUN", None)  # `dali_like.running` is for processes of the program
        process = subprocess.Popen(command, env=environment, cwd=folder, pass_fds=kept)
        pids.append(process.pid)
        process.returncode = 0  # the pool waits for it, so the destructor must not warn
    finally:
        _set_mask(signal.SIG_SETMASK, blocked)


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _block_signals() -> set[int]:
    """Block signals, so that no handler runs between the start of a process and the record of its id. Return the mask
    before.

    The child inherits the mask, so that Ctrl-C has no effect on it from its first instruction on.
    """
    before: set[int] = _set_mask(signal.SIG_BLOCK, ())
    try:
        _set_mask(signal.SIG_BLOCK, _BLOCKABLE)
    except BaseException:  # a handler ran just before, and raised
        _set_mask(signal.SIG_SETMASK, before)
        raise
    return before


def _interpreter() -> str:
    """Return the path of the Python interpreter.

    Raises:
        UnsupportedSystemError: the program has none: it is frozen, and would start itself, or Python is embedded in it.
    """
    if not getattr(sys, "frozen", False) and sys.executable:
        return sys.executable
    what = f"sys.executable is {sys.executable!r}"
    if getattr(sys, "frozen", False):
        what = f"this program is frozen, so {sys.executable} is the program itself"
    raise UnsupportedSystemError(
        f'spawned workers need a Python interpreter to start, and {what}; use py_start_method="fork" or "thread" '
        '(multiprocessing_context="fork" or "thread" of a DataLoader)'
    )


def _interpreter_flags() -> list[str]:
    import subprocess

    # As in multiprocessing: the child gets the parent's flags for warnings, optimization and isolation.
    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined,no-any-return]
