"""A worker, which is a process or a thread: takes tasks, computes them, reports.

Taking a task and recording who has it is one system call: ``splice`` moves the record from the pipe that all workers read
into the worker's own cell of the shared space. Read-then-record would lose the tasks of workers that die between the two.
The record stays in the cell until the next task overwrites it, after the last one has been reported. So the main process
always knows what a dead worker owes: what its cell names and no report has said.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.engine.memory.protocol import (
    CELL_BUSY,
    CELL_PID,
    CELL_SAMPLE,
    CELL_SQUARES,
    CELL_UNMEASURED,
    DONE,
    MESSAGE_BYTES,
    NO_TICKET,
    START_MESSAGE_BYTES,
    TASK,
    WORD_BYTES,
    Status,
    cell_offset,
    message_offset,
    start_message_offset,
)
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.exceptions import SHORT_BYTES, pack_exception, read_message, write_message
from dali_like.engine.worker.info import WorkerInfo, set_worker_info
from dali_like.engine.worker.meters import meter_of
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.streams import Stream
from dali_like.engine.worker.task import NoMemoryError, RegionFullError
from dali_like.engine.worker.task_log import TaskLog

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

#: Asks a worker for its Python stack. Rarely used by others: not the first nor the last of the real-time signals.
STACK_SIGNAL = signal.SIGRTMAX - 1

#: A task that takes longer costs nothing to measure, to speak of.
_QUICK_NS = 1_000_000

#: Exit status of a worker that could not start; its message area says why.
START_FAILED = 70


class Channels(NamedTuple):
    """What a worker shares with the main process and its siblings: the ends of the pipes, and the space.

    Attributes:
        tasks: where tasks come from that any worker can do.
        own_tasks: for each worker, where those come from that it alone can do; empty if there are no such tasks.
        done: where reports go.
        num_workers: how many there may be.
        measures: whether workers say how long their tasks take.
    """

    tasks: int
    own_tasks: tuple[int, ...]
    done: int
    space: SharedSpace
    num_workers: int
    measures: bool = False


#: The numerical libraries of this process, and by which modules it is known whether there may be others by now: how many
#: there are, and the last one.
_libraries: tuple[tuple[int, str], ThreadpoolController] | None = None

#: Takes the next task into a worker's cell; returns 0 if there will be none.
Take = Callable[[], int]


def run_worker(
    index: int,
    channels: Channels,
    make_sources: Callable[[], Sequence[Source]],
    guard: Callable[[Take], Take] = lambda take: take,
) -> int:
    """The life of a worker; returns its exit status.

    Args:
        guard: makes of what takes tasks something that may also say that there are none.
    """
    space = channels.space
    cell = cell_offset(index)
    try:
        set_worker_info(WorkerInfo(index, channels.num_workers))
        sources = make_sources()
        # Another task may begin only when the last one has been reported, so one cell is enough.
        meters = [meter_of(space, source, index, channels.num_workers) for source in range(len(sources))]
        runner = TaskRunner(space, sources, memoryview(space.map)[cell + CELL_SAMPLE : cell + CELL_PID].cast("q"), meters)
        for source in sources:
            if source.requests:
                source.callback.begin(index, channels.num_workers, _notice_of(channels))  # type: ignore[attr-defined]
            if isinstance(source.callback, Stream):
                source.callback.on_skip = runner.note_skip
            if source.worker_setup is not None:
                runner.call(source.worker_setup)
    except Exception as error:  # whatever a user's class does when unpickled, or its worker_setup
        leave_message(index, channels, pack_exception(error, MESSAGE_BYTES - WORD_BYTES))
        return START_FAILED
    # In a process of its own that is the process's id.
    space.map[cell + CELL_PID : cell + CELL_PID + WORD_BYTES] = threading.get_native_id().to_bytes(WORD_BYTES, "little")
    take = guard(_make_take(index, channels, cell))
    write, unpack, pack, done, buffer = os.write, TASK.unpack_from, DONE.pack, channels.done, space.map
    run = _measured(runner.run, memoryview(space.map)[cell + CELL_BUSY :]) if channels.measures else runner.run
    log = TaskLog(space, index, channels.num_workers)
    is_traced = log.words
    while take():
        ticket, page, task = unpack(buffer, cell)
        if ticket == NO_TICKET:
            break
        status, value = log.run(run, page, task) if is_traced[0] else run(page, task)
        if status is Status.FAILED:
            status, value = report_error(runner, page, task, value)
        try:
            write(done, pack(ticket, task, index, status, value))
        except BrokenPipeError:  # the main process is gone, and this one will be in a moment
            break
        if runner.unnoted is not None:
            runner.note()
    for source in sources:
        if source.worker_teardown is not None:
            runner.call(source.worker_teardown)
    runner.close()
    return 0


def _measured(run: Callable[[int, int], tuple[Status, int]], cell: memoryview) -> Callable[[int, int], tuple[Status, int]]:
    """What computes a task, and then adds to the worker's cell how long it has taken; not if that would be wasted on it."""
    words, squares = cell[: CELL_SQUARES - CELL_BUSY].cast("q"), cell[CELL_SQUARES - CELL_BUSY :][: 2 * WORD_BYTES].cast("d")
    is_unmeasured = cell[CELL_UNMEASURED - CELL_BUSY :][:WORD_BYTES].cast("q")
    is_quick = False

    def run_measured(page: int, task: int) -> tuple[Status, int]:
        nonlocal is_quick
        if is_quick and is_unmeasured[0]:
            return run(page, task)
        began_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        try:
            return run(page, task)
        finally:
            took_ns, computed_ns = time.monotonic_ns() - began_ns, time.thread_time_ns() - cpu_ns
            words[0] += took_ns
            words[1] += computed_ns
            words[2] += 1
            squares[0] += (took_ns / 1e9) ** 2
            squares[1] += (computed_ns / 1e9) ** 2
            is_quick = took_ns < _QUICK_NS

    return run_measured


def _notice_of(channels: Channels) -> bytes:
    return read_message(channels.space, start_message_offset(channels.num_workers), START_MESSAGE_BYTES - WORD_BYTES)


def _make_take(index: int, channels: Channels, cell: int) -> Take:
    tasks, fd, splice, size = channels.tasks, channels.space.fd.fileno(), os.splice, TASK.size
    if not channels.own_tasks:
        return lambda: splice(tasks, fd, size, offset_dst=cell)
    own = channels.own_tasks[index]
    poll = select.poll()
    poll.register(own, select.POLLIN)
    poll.register(tasks, select.POLLIN)

    def take() -> int:
        while True:
            poll.poll()
            for pipe in (own, tasks):
                with contextlib.suppress(BlockingIOError):  # there is none there, or a sibling was faster
                    return splice(pipe, fd, size, offset_dst=cell, flags=os.SPLICE_F_NONBLOCK)

    return take


def report_error(runner: TaskRunner, page: int, task: int, sample: int) -> tuple[Status, int]:
    error = runner.error
    runner.error = None
    assert error is not None
    try:
        try:
            runner.write_message(page, task, pack_exception(error))
        except RegionFullError:
            runner.write_message(page, task, pack_exception(error, SHORT_BYTES))
    except NoMemoryError as shortage:  # not even for this
        return Status.NO_MEMORY, shortage.missing
    return Status.FAILED, sample


def answer_with_stack(index: int, channels: Channels) -> None:
    """Let a worker process write its Python stack into the message area whenever it is asked for, and when it crashes."""
    try:
        fd = os.open(f"/proc/self/fd/{channels.space.fd.fileno()}", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # no /proc, or no descriptor left: hangs are then noticed without a stack
        return
    os.lseek(fd, message_offset(index, channels.num_workers) + WORD_BYTES, os.SEEK_SET)
    faulthandler.register(STACK_SIGNAL, file=fd, all_threads=True)
    if not faulthandler.is_enabled():  # else the program wants to be told where it has said
        faulthandler.enable(file=fd, all_threads=False)


def leave_message(index: int, channels: Channels, message: bytes) -> None:
    """Write into the message area of a worker: why it could not start, or its stack."""
    start = message_offset(index, channels.num_workers)
    write_message(channels.space, start, MESSAGE_BYTES - WORD_BYTES, message)


def limit_threads(threads: int | None) -> None:
    """Set the threads of the numerical libraries of this process; None leaves them alone.

    Libraries that are loaded later follow the environment; those that are loaded already are told.
    """
    if threads is None:
        return
    os.environ.update(thread_variables(threads))
    find_libraries().limit(limits=threads)
    if (cv2 := sys.modules.get("cv2")) is not None:
        cv2.setNumThreads(threads if threads > 1 else 0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)


def find_libraries() -> ThreadpoolController:
    """The numerical libraries of this process. To look for them takes milliseconds, so that forks inherit what was found."""
    global _libraries  # noqa: PLW0603
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  # loads ctypes, which few other things here need

    modules = len(sys.modules), next(reversed(sys.modules))
    if _libraries is None or _libraries[0] != modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about combinations of OpenMP libraries, which are the user's affair
            _libraries = modules, ThreadpoolController()
    return _libraries[1]


def thread_variables(threads: int) -> dict[str, str]:
    """The environment variables by which libraries learn how many threads to use."""
    names: tuple[Any, ...] = (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "OPENCV_FOR_THREADS_NUM",
    )
    return dict.fromkeys(names, str(threads))
