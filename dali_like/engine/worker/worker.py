"""The life of a worker, which is a process or a thread: take tasks, compute them, report them.

One system call takes a task and records its owner: ``splice`` moves the task record from the pipe that all workers read into
the worker's own cell of the shared space. To read first and record then would lose the tasks of workers that die in between.
The record stays in the cell until the next task overwrites it, after this one was reported. So the main process always knows
the unfinished task of a dead worker: its cell names it, and no report does. Where the system refuses ``splice``, a worker
reads the tasks from a pipe of its own, and the main process keeps account: see `dali_like.engine.pool.assignments`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import (
    CELL_PID,
    CELL_SAMPLE,
    CELL_SHARE,
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
from dali_like.engine.worker.coroutines import NO_READS
from dali_like.engine.worker.exceptions import SHORT_BYTES, pack_exception, read_message, write_message
from dali_like.engine.worker.info import WorkerInfo, is_worker_thread, set_worker_info
from dali_like.engine.worker.meters import worker_meters
from dali_like.engine.worker.runner import BegunTask, TaskRunner
from dali_like.engine.worker.source import Source, SourceType
from dali_like.engine.worker.task import NoMemoryError, RegionFullError

#: Makes a worker write its Python stack. Programs rarely use it: they take the first or the last of the real-time signals.
#: Systems without any have no worker processes, and threads get no signal.
STACK_SIGNAL = int(getattr(signal, "SIGRTMAX", 64)) - 1

#: In a worker process: the file for its stack, and whether crashes write to it, too.
_stack_file: Descriptor | None = None
_shows_crashes = False

#: A worker that rests, or waits for its share of CPU time, looks at it again after this time.
_PAUSE_S = 0.02
#: Smaller debts are not worth a pause.
_TINY_S = 1e-6
#: CPU time beyond the share that a worker makes up for: after a task of seconds, it need not wait for minutes.
_MOST_DEBT_S = 5.0

#: Exit status of a worker that could not start. Its message area holds the exception.
START_FAILED = 70


class Channels(NamedTuple):
    """The ends of the pipes and the space, which a worker shares with the main process and the other workers.

    Attributes:
        tasks: the pipe with tasks for any worker.
        own_tasks: for each worker, the pipe with tasks that only this worker can compute; or empty. If these
            pipes do not block, workers read them, and do not splice. Then the pipe for any worker has records to stop only.
        done: the pipe for reports.
        space: the shared space.
        num_workers: the largest number of workers.
        measures: whether workers write the time of their tasks to their cells, for a tuner.
    """

    tasks: Descriptor
    own_tasks: tuple[Descriptor, ...]
    done: Descriptor
    space: SharedSpace
    num_workers: int
    measures: bool = False


#: Takes the next task into a worker's cell. Returns 0 if there are no more tasks, and NOTHING if it does not wait for one.
Take = Callable[[], int]
NOTHING = -1
#: Wraps a function that takes tasks, so that another thread can end the worker. The second argument: whether the function
#: waits for a task.
Guard = Callable[[Take, bool], Take]


def run_worker(
    index: int,
    channels: Channels,
    make_sources: Callable[[], Sequence[Source]],
    guard: Guard = lambda take, _: take,
) -> int:
    """Compute tasks until there are no more. Return the exit status of the worker."""
    space = channels.space
    cell = cell_offset(index)
    try:
        set_worker_info(WorkerInfo(index, channels.num_workers))
        sources = make_sources()
        # A task begins only after the last one was reported, so one cell is enough.
        meters = worker_meters(
            space,
            num_sources=len(sources),
            worker=index,
            num_workers=channels.num_workers,
            is_tuned=channels.measures,
        )
        runner = TaskRunner(space, sources, memoryview(space.map)[cell + CELL_SAMPLE : cell + CELL_PID].cast("q"), meters)
        for source in sources:
            if source.type is SourceType.REQUEST:
                source.handler.begin(index, channels.num_workers, _start_message_of(channels))
            elif source.type is SourceType.STREAM:
                source.stream.on_skip = runner.note_skip
            if source.worker_setup is not None:
                runner.call(source.worker_setup)
    except Exception as error:  # unpickling and worker_setup run the user's code
        leave_message(index, channels, pack_exception(error, MESSAGE_BYTES - WORD_BYTES))
        return START_FAILED
    # The main thread of a process has the id of the process.
    space.map[cell + CELL_PID : cell + CELL_PID + WORD_BYTES] = threading.get_native_id().to_bytes(WORD_BYTES, "little")
    several = [source for source in sources if source.reads_ahead(in_threads=is_worker_thread())]
    if several and channels.own_tasks:
        _work_on_several(index, channels, runner, guard, several)
    else:
        _work(index, channels, runner, guard)
    for source in sources:
        if source.worker_teardown is not None:
            runner.call(source.worker_teardown)
    for meter in meters[:1]:  # all of them have the same profile
        meter.close()
    runner.close()
    return 0


def _work(index: int, channels: Channels, runner: TaskRunner, guard: Guard) -> None:
    """Compute one task after another."""
    cell = cell_offset(index)
    take = guard(_make_take(index, channels, cell), True)
    if channels.measures:
        words = memoryview(channels.space.map)[cell + CELL_SHARE : cell + CELL_SHARE + WORD_BYTES].cast("q")
        take = within_share(take, words, time.thread_time if is_worker_thread() else time.process_time)
    write, unpack, pack, done, buffer = os.write, TASK.unpack_from, DONE.pack, channels.done.fileno(), channels.space.map
    run = runner.run
    while take():
        ticket, page, task = unpack(buffer, cell)
        if ticket == NO_TICKET:
            break
        status, value = run(page, task)
        if status is Status.FAILED:
            status, value = report_error(runner, page, task, value)
        try:
            write(done, pack(ticket, task, index, status, value))
        except BrokenPipeError:  # the main process has died; this one is about to be killed
            break
        if runner.unnoted is not None:
            runner.note()


def within_share(
    take: Take, words: Sequence[int], cpu_time: Callable[[], float], sleep: Callable[[float], None] = time.sleep
) -> Take:
    """Return a function that takes tasks, but waits while the worker has used more CPU time than its share, or is to rest.

    Args:
        words: the share; see `dali_like.engine.memory.protocol.CELL_SHARE`.
        cpu_time: returns the CPU time of the worker.
    """
    was_unlimited, credit_s, then_s, used_s = True, 0.0, 0.0, 0.0

    def wait() -> None:
        nonlocal was_unlimited, credit_s, then_s, used_s
        if was_unlimited:
            was_unlimited, credit_s, then_s, used_s = False, 0.0, time.monotonic(), cpu_time()
        while share := words[0]:
            now_s, cpu_s = time.monotonic(), cpu_time()
            credit_s += (now_s - then_s) * max(share, 0) / 1000 - (cpu_s - used_s)
            then_s, used_s = now_s, cpu_s
            # Little credit: a worker that has waited for its loop must not catch up at the expense of others.
            credit_s = min(max(credit_s, -_MOST_DEBT_S), _PAUSE_S)
            if share > 0 and credit_s >= -_TINY_S:
                return
            sleep(_PAUSE_S if share < 0 else min(_PAUSE_S, -credit_s * 1000 / share))
        was_unlimited = True

    def take_within_share() -> int:
        nonlocal was_unlimited
        if words[0]:
            wait()
        else:
            was_unlimited = True
        return take()

    return take_within_share


def _work_on_several(index: int, channels: Channels, runner: TaskRunner, guard: Guard, sources: Sequence[Source]) -> None:
    """Take further tasks while the reads of others run. Tasks end in the order in which they were taken.

    The main process keeps account of the tasks that a worker has taken. The cell belongs to the first of them.
    """
    cell, buffer, done = cell_offset(index), channels.space.map, channels.done.fileno()
    files = channels.own_tasks[index].fileno(), channels.tasks.fileno()
    take = _make_take(index, channels, cell)
    take_first, take_more = guard(take, True), guard(functools.partial(take, False), False)
    go_on = guard(lambda: 1, False)
    sizes = [source.max_read_bytes for source in sources if source.max_read_bytes is not None]
    reads = runner.new_reads(max(source.concurrency or 1 for source in sources), min(sizes, default=None))
    taken: deque[tuple[int, int, int, BegunTask]] = deque()
    is_stopped = False
    while True:
        while not (is_stopped or (taken and (reads.is_first_done or not reads.has_room))):
            found = take_more() if taken else take_first()
            if found == NOTHING:
                break
            ticket, page, task = TASK.unpack_from(buffer, cell) if found else (NO_TICKET, 0, 0)
            if ticket == NO_TICKET:
                is_stopped = True
                break
            begun = runner.begin(page, task)
            taken.append((ticket, page, task, begun))
            if len(taken) == 1:
                runner.begin_first(begun)
            reads.add(begun.group or NO_READS)
        if not taken or (is_stopped and not go_on()):
            break
        if is_stopped and all(runner.is_cancelled(begun) for *_, begun in taken):
            os.write(done, b"".join(DONE.pack(ticket, task, index, Status.SKIPPED, 0) for ticket, _, task, _ in taken))
            break
        reads.wait(() if is_stopped else files)
        while taken and reads.is_first_done:
            if not go_on():
                return
            ticket, page, task, begun = taken.popleft()
            status, value = runner.finish(begun)
            reads.remove_first()
            if status is Status.FAILED:
                status, value = report_error(runner, page, task, value)
            try:
                os.write(done, DONE.pack(ticket, task, index, status, value))
            except BrokenPipeError:  # see `_work`
                return
            runner.note()
            if taken:
                runner.begin_first(taken[0][3])
    reads.close()


def _start_message_of(channels: Channels) -> bytes:
    return read_message(channels.space, start_message_offset(channels.num_workers), START_MESSAGE_BYTES - WORD_BYTES)


def _read_only(*_: object, **__: object) -> NoReturn:
    """Stand in for `os.splice` where Python lacks it. There, no pipe is spliced."""
    raise NotImplementedError


def _make_take(index: int, channels: Channels, cell: int) -> Callable[..., int]:
    tasks, fd, size = channels.tasks.fileno(), channels.space.fd.fileno(), TASK.size
    splice: Callable[..., int] = getattr(os, "splice", _read_only)
    if not channels.own_tasks:
        return lambda: splice(tasks, fd, size, offset_dst=cell)
    own = channels.own_tasks[index].fileno()
    poll = select.poll()
    poll.register(own, select.POLLIN)
    poll.register(tasks, select.POLLIN)
    memory = channels.space.map

    def move(pipe: int) -> int:
        return splice(pipe, fd, size, offset_dst=cell, flags=os.SPLICE_F_NONBLOCK)

    def read(pipe: int) -> int:
        if record := os.read(pipe, size):
            memory[cell : cell + size] = record
        return len(record)

    take_from = move if os.get_blocking(own) else read

    def take(waits: bool = True) -> int:
        while poll.poll(None if waits else 0):
            for pipe in (own, tasks):
                with contextlib.suppress(BlockingIOError):  # the pipe is empty, or another worker was faster
                    return take_from(pipe)
        return NOTHING

    return take


def report_error(runner: TaskRunner, page: int, task: int, sample: int) -> tuple[Status, int]:
    """Write the exception of a failed task into its region. Return the status and value to report."""
    error = runner.error
    runner.error = None
    assert error is not None
    try:
        try:
            runner.write_message(page, task, pack_exception(error))
        except RegionFullError:
            runner.write_message(page, task, pack_exception(error, SHORT_BYTES))
    except NoMemoryError as shortage:  # there is no memory for the exception either
        return Status.NO_MEMORY, shortage.missing
    return Status.FAILED, sample


def answer_with_stack(index: int, channels: Channels) -> None:
    """Make this worker process write its Python stack into its message area, on STACK_SIGNAL and when it crashes."""
    global _stack_file, _shows_crashes  # noqa: PLW0603
    try:
        _stack_file = Descriptor(os.open(f"/proc/self/fd/{channels.space.fd.fileno()}", os.O_WRONLY | os.O_CLOEXEC))
    except OSError:  # no /proc, or no descriptor left: reports of hangs then have no stack
        return
    fd = _stack_file.fileno()
    with contextlib.suppress(OSError):  # the system refuses lseek or sigaltstack: the same
        os.lseek(fd, message_offset(index, channels.num_workers) + WORD_BYTES, os.SEEK_SET)
        faulthandler.register(STACK_SIGNAL, file=fd, all_threads=True)
        _shows_crashes = not faulthandler.is_enabled()  # else the program has chosen a file for it
        if _shows_crashes:
            faulthandler.enable(file=fd, all_threads=False)


def forget_stack() -> None:
    """Undo `answer_with_stack` in a process that a callback of a worker has forked."""
    global _stack_file, _shows_crashes  # noqa: PLW0603
    if _stack_file is None:
        return
    faulthandler.unregister(STACK_SIGNAL)
    if _shows_crashes:
        faulthandler.disable()
        _shows_crashes = False
    _stack_file.close()
    _stack_file = None


def leave_message(index: int, channels: Channels, message: bytes) -> None:
    """Write into the message area of a worker: the exception of its start, or its stack."""
    start = message_offset(index, channels.num_workers)
    write_message(channels.space, start, MESSAGE_BYTES - WORD_BYTES, message)
