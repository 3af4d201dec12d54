"""A pool with played workers: they take, compute, report and die in this process, step by step, as the test decides.

Everything of the pool is there but its processes: pipes, cells, slots, the code that computes tasks. So whatever can happen
between a pool and its workers can be made to happen, in any order and every time again, in microseconds; and a pool that
waits for an event that will not come is an error at once, and not a test that hangs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pytest

from dali_like.common.hooks import PoolHooks
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import (
    CELL_PID,
    CELL_SAMPLE,
    DONE,
    FORKSERVER,
    NO_TICKET,
    TASK,
    WORD_BYTES,
    Status,
    cell_offset,
)
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.workers import End, WorkerOptions
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.worker import report_error
from tests.internals import dispatcher_of, recovery_of, space_of, unfinished_task_of

_pids = itertools.count(1000)

#: More steps than any terminating test takes.
_MOST_STEPS = 20_000


class Death(BaseException):
    """Raised by a callback: ends its worker."""


class PlayedWorker:
    """One worker.

    Attributes:
        pid: its number, which no other one has had.
        task: the record that it has taken and not reported.
        has_read: whether it has read a record that is not in its cell yet, where workers do not splice.
    """

    def __init__(self, index: int, sources: Sequence[Source], workers: PlayedWorkers) -> None:
        self.index = index
        self.pid = next(_pids)
        self.task: tuple[int, int, int] | None = None
        self._workers = workers
        self._report: bytes | None = None
        self._record = b""
        space = workers.space
        self._cell = cell = cell_offset(index)
        self._runner = TaskRunner(space, sources, memoryview(space.map)[cell + CELL_SAMPLE : cell + CELL_PID].cast("q"))
        space.map[cell + CELL_PID : cell + CELL_PID + WORD_BYTES] = self.pid.to_bytes(WORD_BYTES, "little")

    @property
    def has_read(self) -> bool:
        return bool(self._record)

    def step(self) -> bool:
        """Take a task, or compute it, or report it. Return whether there was anything to do."""
        if self._record:
            space = self._workers.space
            space.map[self._cell : self._cell + TASK.size], self._record = self._record, b""
            return self._begin()
        if self.task is None:
            return self._take()
        if self._report is None:
            self._compute(*self.task)
        else:
            os.write(self._workers.done.fileno(), self._report)
            self._runner.note()
            self.task = self._report = None
        return True

    def _take(self) -> bool:
        fd = self._workers.space.fd.fileno()
        for pipe in self._workers.pipes_of(self.index):
            with contextlib.suppress(BlockingIOError):
                if os.get_blocking(pipe):
                    os.splice(pipe, fd, TASK.size, offset_dst=self._cell, flags=os.SPLICE_F_NONBLOCK)
                    return self._begin()
                self._record = os.read(pipe, TASK.size)
                return True
        return False

    def _begin(self) -> bool:
        self.task = TASK.unpack_from(self._workers.space.map, self._cell)
        if self.task[0] == NO_TICKET:
            self._workers.end(self.index, 0)
        return True

    def _compute(self, ticket: int, page: int, task: int) -> None:
        try:
            status, value = self._runner.run(page, task)
        except Death:
            self._workers.end(self.index, -signal.SIGKILL)
            return
        if status is Status.FAILED:
            status, value = report_error(self._runner, page, task, value)
        self._report = DONE.pack(ticket, task, self.index, status, value)


class PlayedWorkers:
    """These workers for a pool. Implements `dali_like.engine.pool.workers.Workers`.

    Args:
        make_sources: makes the copies of the sources that a worker has.

    Attributes:
        running: the workers that there are.
    """

    def __init__(
        self, make_sources: Callable[[], Sequence[Source]], options: WorkerOptions, space: SharedSpace, tasks: Any, done: Any
    ) -> None:
        self.space = space
        self.done: Descriptor = done
        self.exitcodes: dict[int, int] = {}
        self.pids = [0] * options.num_workers
        self.has_waiting_tasks = False
        self.control = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self.running: dict[int, PlayedWorker] = {}
        self._make_sources = make_sources
        self._tasks: Sequence[Descriptor] = tasks
        self._ends: list[End] = []
        self._is_lost = False
        for worker in range(options.num_first):
            self.start(worker)

    def pipes_of(self, worker: int) -> list[int]:
        """Return the task pipes of a worker, its own first."""
        shared, *own = (pipe.fileno() for pipe in self._tasks)
        return [*own[worker : worker + 1], shared]

    def end(self, worker: int, exitcode: int, keep: Callable[[Any], None] | None = None) -> None:
        """End a worker. With `keep`, it plays a hanging thread, which is abandoned."""
        self._ends.append(End(worker, self.running.pop(worker).pid, exitcode, keep))
        os.eventfd_write(self.control.fileno(), 1)

    def end_forkserver(self) -> None:
        """End all workers without an end of each, as if the process had ended that starts them."""
        self.running.clear()
        self._is_lost = True
        self._ends.append(End(FORKSERVER, next(_pids), None, restart=self._restart_forkserver))
        os.eventfd_write(self.control.fileno(), 1)

    def _restart_forkserver(self) -> None:
        self._is_lost = False

    def start(self, worker: int) -> None:
        if self._is_lost:
            return
        assert worker not in self.running, "it is running already"
        self.running[worker] = played = PlayedWorker(worker, self._make_sources(), self)
        self.pids[worker] = played.pid

    def signal(self, worker: int, number: int) -> None:
        if number == signal.SIGKILL and worker in self.running:
            self.end(worker, -number)

    def renew(self, sources: Sequence[Source], pickled: Any = None) -> NoReturn:
        raise NotImplementedError

    def read_news(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.control.fileno())

    def wait_for_news(self, timeout_s: float) -> None:
        for worker in list(self.running.values()):
            worker.step()
        self.read_news()

    def take_end(self) -> End | None:
        return self._ends.pop(0) if self._ends else None

    def describe_exit(self, end: End) -> str:
        return f"ended with exit code {end.exitcode}"

    def stop(self) -> None:
        self.running.clear()
        for pipe in self._tasks:
            pipe.close()
        self.done.close()
        self.control.close()


class PlayedPool(WorkerPool):
    """A pool with such workers. They work while it waits for events.

    Args:
        make_sources: makes the sources; each worker has its own.
        deaths: how likely a worker is to be killed rather than to do its next step; at most two of one task.
        forkserver_deaths: how likely all are to end with their forkserver instead.
        seed: of the order in which workers get their turns, and of their deaths.

    Attributes:
        workers: the workers.
        on_step: called before each step of a worker.
        recovery, dispatcher, space: the parts of the pool.
    """

    def __init__(
        self,
        make_sources: Callable[[], Sequence[Source]],
        capacity: int,
        *,
        num_workers: int = 2,
        first_workers: int | None = None,
        limit_bytes: int | None = None,
        restarts: int | None = None,
        timeout_s: float | None = None,
        deaths: float = 0.0,
        forkserver_deaths: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._make_sources = make_sources
        self._random = random.Random(seed)
        self._deaths = deaths
        self._forkserver_deaths = forkserver_deaths
        self._num_steps = 0
        self._victims: Counter[tuple[BatchKey, int]] = Counter()
        self.on_step: Callable[[PlayedWorker], None] = lambda worker: None
        options = WorkerOptions(
            num_workers=num_workers,
            start_method="fork",
            threads=None,
            timeout_s=timeout_s,
            restarts=restarts,
            pickle_source=lambda *_: b"",  # type: ignore[arg-type,return-value]
            first_workers=first_workers,
        )
        sources = [(source, (OutputSchema(),) * source.output_count) for source in make_sources()]
        super().__init__(sources, capacity, SharedSpace.create(limit_bytes), options, start_workers=self._start_played)
        self.hooks = PoolHooks(wait=self._play_instead)
        self.recovery = recovery_of(self)
        self.dispatcher = dispatcher_of(self)
        self.space = space_of(self)

    def _start_played(
        self,
        sources: Sequence[Source],
        options: WorkerOptions,
        space: SharedSpace,
        *,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        send_stop: Callable[[], None],
    ) -> PlayedWorkers:
        self.workers = PlayedWorkers(self._make_sources, options, space, tasks, done)
        return self.workers

    def _play_instead(self, wait: Callable[[float | None], Any], wait_ms: float | None) -> list[tuple[int, int]]:
        ready = self._poll.poll(0)
        if not ready and not self.play():
            pytest.fail("the pool waits for workers that have nothing to do")
        return ready

    def play(self) -> bool:
        """Let one worker do its next step, or die. Return whether any had something to do."""
        self._num_steps += 1
        if self._num_steps > _MOST_STEPS:
            pytest.fail("the same is done again and again")
        workers = list(self.workers.running.values())
        if workers and self._forkserver_deaths and self._random.random() < self._forkserver_deaths:
            self.workers.end_forkserver()
            return True
        for worker in self._random.sample(workers, len(workers)):
            self.on_step(worker)
            if self._random.random() < self._deaths and self._may_die(worker):
                self.workers.end(worker.index, -signal.SIGKILL)
                return True
            if worker.step():
                return True
        return False

    def _may_die(self, worker: PlayedWorker) -> bool:
        """Return whether this death would not be the third of the same task, which the pool would give up."""
        unfinished = unfinished_task_of(self, worker.index)
        if unfinished is None:
            return True
        self._victims[unfinished.batch.key, unfinished.task] += 1
        return self._victims[unfinished.batch.key, unfinished.task] <= 2

    def play_until(self, condition: Callable[[], Any]) -> None:
        """Let workers work, and handle their events, until a condition holds."""
        while not condition():
            self.play()
            self.poll()
            self.recovery.look()

    def play_on(self) -> None:
        """Let workers do all work without deaths, and handle their events."""
        self._deaths = self._forkserver_deaths = 0.0
        while self.play() or self._poll.poll(0):
            self.workers.read_news()
            self.poll()
            self.recovery.look()

    def begin(self, iteration: int, size: int, *, source: int = 0, worker: int = -1) -> Batch:
        """Submit a batch. Samples have consecutive numbers in the epoch, `size` in each batch."""
        return self.submit(BatchKey(source, 0, iteration, iteration * size, size, worker, iteration))

    @property
    def is_settled(self) -> bool:
        """Whether no task is open, and all slots are free."""
        work = self.dispatcher
        return work.num_open_tasks == 0 and all(
            work.occupancy(i) == (0, 0) and stage.ring.num_free == stage.ring.num_slots
            for i, stage in enumerate(self.assemblers)
        )
