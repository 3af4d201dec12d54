"""Give tasks to Ray actors, and copy their results into the slots. Runs in a thread of the main process.

::

    pool                     dispatcher (a thread)                          actor, on any node
    ----                     ---------------------                          ------------------
    task records --- pipe -> take tasks for an actor with room
                             call `compute` with the slots' headers ------> compute in slots of its own
                             copy the parts into the slot    <--- Ray ----- rows, descriptors, region of each task
    reports <------- pipe -- write a report

Ray starts the actors, calls them, and moves results through its object stores. It says when an actor is lost, alone or with
its node. It does not repeat calls: the pool posts the tasks of a lost actor again, like the tasks of any worker that dies
(`dali_like.engine.pool.recovery`).

An actor has up to two calls at a time. So it finds the next call when it finishes one, and results travel meanwhile. A call
is for one task, or for several if these are too short for a call each. The tasks of a call are of one batch, or of some
batches if that is not more than the actor's share of the waiting tasks. No task waits to share a call while an actor has
room.

The cell of a worker names the first task of its actor. If the actor is lost, its other tasks return to the front of the
queue, and each gets a call of its own: a task that may end actors must not take others with it. While the results on their
way would take more than their part of this node's object store, no actor gets a second call.

Ray calls back in a thread of its own. That only queues the answer and wakes the dispatcher. State that both the dispatcher
and the main thread touch is under a lock, which no thread holds while waiting.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn

from dali_like.engine.backends.ray.ray_actor import Actor, RayTask, RayTaskQueue
from dali_like.engine.backends.ray.ray_cluster import Cluster
from dali_like.engine.backends.ray.ray_slots import Slots
from dali_like.engine.backends.ray.ray_worker import RayWorker, Role, Started, TaskResult
from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import Alarm, Descriptor
from dali_like.engine.memory.protocol import (
    CELL_PID,
    CELL_REPLACED,
    CELL_SAMPLE,
    DONE,
    FORKSERVER,
    NO_TICKET,
    TASK,
    WORD_BYTES,
    Header,
    Status,
)
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import End, EndQueue, WorkerOptions
from dali_like.engine.worker.exceptions import SHORT_BYTES, pack_exception
from dali_like.engine.worker.worker import START_FAILED
from dali_like.errors import WorkerStartError

#: Target time of a call. A call costs about two milliseconds of CPU time, in all processes together.
_CALL_S = 0.01
#: Most batches in one call: an actor needs as many slots.
MOST_BATCHES = 4
#: Weight of the newest task in the moving average of task times.
_NEWEST = 0.25
#: Actors have this long to finish after a request to stop. Then they are killed.
_GRACE_S = 2.0
#: The thread looks this often whether the program is still connected to the cluster: no answer comes if it is not.
_CHECK_MS = 1000.0
#: Most letters of Ray's messages, which end with long advice.
_MOST_LETTERS = 300


class RayDispatcher:
    """Give tasks to actors, and copy their results into the slots.

    The main thread calls the methods under "For other threads". Any thread may call `stop` and `finish`.

    Args:
        options: the options of the workers.
        space: the shared space of the pool.
        tasks, done: the workers' ends of the pipes, as for `dali_like.engine.pool.workers.StartWorkers`.
        cluster: the cluster for the actors. The thread leaves it at its end.
        ends: the queue for ends of workers.
        send_stop: called once, by `stop`, so that no more tasks are posted.

    Attributes:
        bundle: reference to the sources in Ray's object store.
        thread: the dispatcher's thread; the caller starts it.
        reasons: the reason of the last end of each worker.
        pids: the process id of each worker.
    """

    def __init__(
        self,
        options: WorkerOptions,
        space: SharedSpace,
        *,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        cluster: Cluster,
        ends: EndQueue,
        send_stop: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self._send_stop = send_stop
        self.bundle: Any = None
        self.thread = threading.Thread(target=self._run, name="dali_like_ray", daemon=True)
        self.reasons: dict[int, str] = {}
        self.pids = [0] * options.num_workers
        self._pid = os.getpid()
        self._options = options
        self._slots = Slots(space, options.num_workers)
        self._queue, self._done, self._ends = RayTaskQueue(tasks), done, ends
        self._class = cluster.actor_class(RayWorker, options.resources)
        self._lock = threading.Lock()
        self._actors: list[Actor | None] = [None] * options.num_workers
        #: Moving average of the time of a task, by source.
        self._task_s: dict[int, float] = {}
        self._answers: deque[tuple[Actor, Callable[[Any], None], Future[Any]]] = deque()
        self._alarm = Alarm()
        self._bytes: dict[RayTask, int] = {}
        self._is_stopping = False
        #: The highest ticket of a task of a lost actor. Tasks up to this one do not share a call.
        self._last_lost = NO_TICKET

    # For other threads

    @property
    def has_waiting_tasks(self) -> bool:
        """Whether tasks have been taken from the pipes that are in no cell."""
        with self._lock:
            return self._queue.has_waiting or any(len(actor.tasks) > 1 for actor in self._actors if actor is not None)

    def start(self, index: int) -> None:
        """Start an actor. It gets tasks once it has started, however long that takes."""
        role = Role(index, self._options.num_workers, self._options.threads, tuple(sys.path))
        if not self.cluster.is_connected:
            return  # the thread reports it
        with self._lock:
            actor = self._actors[index] = Actor(self._class.remote(), index)
            self._call(actor, "begin", partial(self._note_start, actor), role, self.bundle)

    def kill(self, index: int) -> None:
        """Kill an actor."""
        with self._lock:
            if (actor := self._actors[index]) is not None:
                self._end(actor.handle)

    def stop(self) -> None:
        """Tell the actors and the thread to end. Does not wait."""
        if self._pid == os.getpid():
            if not self._is_stopping:
                self._is_stopping = True
                self._send_stop()
            self._alarm.ring()

    def finish(self) -> None:
        """Call `stop`, and wait for the end of the thread."""
        self.stop()
        if self._pid == os.getpid() and self.thread.ident not in (None, threading.get_ident()):
            self.thread.join()

    def _note_answer(self, actor: Actor, then: Callable[[Any], None], future: Future[Any]) -> None:
        self._answers.append((actor, then, future))
        self._alarm.ring()

    # The thread

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                with self._lock:
                    poll = self._poll()
                poll.poll(_CHECK_MS)
                self._alarm.clear()
                self.cluster.check()
                with self._lock:
                    self._take_answers()
                    self._hand_out()
        except Exception as error:  # any: it must not be lost with the thread
            has_left = isinstance(error, WorkerStartError)
            self.reasons[FORKSERVER] = "the program has left the cluster" if has_left else repr(error)
            self._ends.add(End(FORKSERVER, 0, None, restart=partial(_refuse_restart, error)))
        finally:
            self._wind_up()

    def _poll(self) -> select.poll:
        """Return a poll object for answers, and for tasks that actors with room can compute."""
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        self._queue.watch(poll, [actor.index for actor in self._actors_with_room() if not actor.is_bound])
        return poll

    def _wind_up(self) -> None:
        """Let the actors finish their calls, then end them."""
        with self._lock:
            for actor in self._actors:
                if actor is not None and actor.is_ready:
                    self._tell_to_stop(actor)
        deadline_s = time.monotonic() + _GRACE_S
        while self._is_any_stopping() and (left_s := deadline_s - time.monotonic()) > 0:
            self._alarm.wait(left_s)
            self._alarm.clear()
            with self._lock:
                self._take_answers()
        with self._lock:
            for actor in self._actors:
                if actor is not None:
                    self._end(actor.handle)
            self._actors = [None] * len(self._actors)
        self.bundle = None
        self._answers.clear()
        self._slots.forget()
        atexit.unregister(self.finish)
        self.cluster.leave()

    def _is_any_stopping(self) -> bool:
        with self._lock:
            return any(actor is not None and actor.is_stopping for actor in self._actors)

    # Calling actors

    def _call(self, actor: Actor, method: str, then: Callable[[Any], None], *args: Any) -> None:
        actor.num_calls += 1
        try:
            self.cluster.check()
            future = getattr(actor.handle, method).remote(*args).future()
        except Exception as error:  # Ray has been shut down, say
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._note_answer, actor, then))

    def _take_answers(self) -> None:
        while self._answers:
            actor, then, future = self._answers.popleft()
            actor.num_calls -= 1
            error = future.exception()
            if error is None:
                then(future.result())
            elif actor.end is None:
                actor.end = self._end_of(actor, error)
            # Ray answers all calls of a lost actor, some of them with results.
            if actor.end is not None and not actor.num_calls:
                self._lose(actor, *actor.end)

    def _end_of(self, actor: Actor, error: BaseException) -> tuple[int, str]:
        if actor.pid or not self.cluster.is_task_error(error):
            return 0, _text_of(error)
        # The actor could not be created, for example because the package is not installed on its node.
        self._slots.leave_message(actor.index, pack_exception(self.cluster.cause_of(error), SHORT_BYTES))
        return START_FAILED, "it could not start"

    def _note_start(self, actor: Actor, started: Started) -> None:
        actor.pid = self.pids[actor.index] = started.pid
        if started.error:
            self._slots.leave_message(actor.index, started.error)
            actor.end = START_FAILED, "it could not start"
            return
        actor.is_ready = True
        self._slots.note_ready(actor.index)
        self._slots.write_cell(actor.index, CELL_PID, started.pid.to_bytes(WORD_BYTES, "little"))

    def _tell_to_stop(self, actor: Actor) -> None:
        actor.is_ready, actor.is_stopping = False, True
        self._call(actor, "end", partial(self._note_stop, actor))

    def _note_stop(self, actor: Actor, _: None) -> None:
        actor.end = 0, "it was told to stop"

    def _lose(self, actor: Actor, exitcode: int, reason: str) -> None:
        """Handle the end of an actor. Its cell names its first task. The others, not begun, return to the queue."""
        self._end(actor.handle)
        if self._actors[actor.index] is actor:
            self._actors[actor.index] = None
        for task in actor.tasks:
            self._bytes.pop(task, None)
        self._last_lost = max([self._last_lost, *(task.ticket for task in actor.tasks)])
        self._queue.give_back(list(actor.tasks)[1:])
        self.reasons[actor.index] = reason
        self._ends.add(End(actor.index, actor.pid, exitcode))

    def _end(self, handle: Any) -> None:
        if not self.cluster.is_connected:
            return
        with contextlib.suppress(Exception):  # the actor or Ray has already ended
            self.cluster.ray.kill(handle)

    # Handing out tasks

    def _actors_with_room(self) -> list[Actor]:
        """Return the actors that can get a task now, the least busy first."""
        # Nothing shows which of its calls has ended an actor. So a suspicious call is the only one of its actor.
        is_wary = self._queue.any_waits(self._last_lost)
        needs_idle = is_wary or self._is_full
        free = [actor for actor in self._actors if actor is not None and actor.has_room]
        free = [actor for actor in free if not actor.tasks or not (needs_idle or actor.is_watched(self._last_lost))]
        return sorted(free, key=lambda actor: actor.num_calls)

    def _hand_out(self) -> None:
        self._queue.take_posted()
        while not self._is_stopping and any(self._give_some(actor) for actor in self._actors_with_room()):
            pass

    def _give_some(self, actor: Actor) -> bool:
        """Make one call of an actor, if tasks wait that it can compute. Return whether there was a task."""
        task = self._queue.next_for(actor.index, actor.is_bound)
        if task is None:
            return False
        if task.ticket == NO_TICKET:
            self._tell_to_stop(actor)
            return True
        if self._slots.header_of(task.page)[Header.CANCELLED]:
            self._report(task, actor.index, Status.SKIPPED, 0)
            return True
        if not actor.tasks:
            actor.begin_ns = time.monotonic_ns()
        tasks = self._take_more(task)
        actor.tasks.extend(tasks)
        self._name_first(actor)
        parts = [
            [self._slots.words_of(page), [each.task for each in group]]
            for page, group in itertools.groupby(tasks, lambda each: each.page)
        ]
        self._call(actor, "compute", partial(self._note_made, actor, tasks), parts)
        return True

    def _take_more(self, task: RayTask) -> list[RayTask]:
        """Return a task, and the tasks that share a call with it.

        Tasks of the same batch follow until the call is long enough, and tasks of further batches until the call is an
        actor's share of the waiting tasks.
        """
        tasks, posted = [task], self._queue.posted
        self._note_bytes(task)
        if task.worker != ANY_WORKER or task.ticket <= self._last_lost:
            return tasks  # alone, so that the cause of a death is clear
        call_s, num_batches = self._task_s_of(task), 1
        num_ready = sum(actor is not None and actor.is_ready for actor in self._actors)
        share_s = min(_CALL_S, call_s * (1 + len(posted)) / num_ready)
        while posted and posted[0].ticket > max(self._last_lost, NO_TICKET):
            call_s += self._task_s_of(posted[0])
            if posted[0].ticket == tasks[-1].ticket:
                is_enough = call_s > _CALL_S
            else:
                num_batches += 1
                is_enough = call_s > share_s or num_batches > MOST_BATCHES or self._is_full
            if is_enough:
                break
            tasks.append(posted.popleft())
            self._note_bytes(tasks[-1])
        return tasks

    def _task_s_of(self, task: RayTask) -> float:
        """Return the expected time of a task; for the first task of a source, the target time of a call."""
        return self._task_s.get(self._slots.source_of(task.page), _CALL_S)

    def _note_bytes(self, task: RayTask) -> None:
        self._bytes[task] = self._slots.bytes_of(self._slots.header_of(task.page), task.task)

    @property
    def _is_full(self) -> bool:
        """Whether the results on their way take their whole part of the object store."""
        return sum(self._bytes.values()) >= self.cluster.most_bytes

    def _name_first(self, actor: Actor) -> None:
        """Write the first task of an actor into the cell of its worker."""
        first = actor.tasks[0]
        self._slots.write_cell(actor.index, 0, TASK.pack(first.ticket, first.page, first.task))
        self._slots.write_cell(
            actor.index, CELL_SAMPLE, bytes(WORD_BYTES)
        )  # its progress within the task is known on its node only

    # Taking results

    def _note_made(self, actor: Actor, tasks: Sequence[RayTask], reports: Sequence[Sequence[Any]]) -> None:
        for task, report in zip(tasks, reports, strict=True):
            self._note_report(actor, task, TaskResult(*report))
        if actor.tasks:
            self._name_first(actor)

    def _note_report(self, actor: Actor, task: RayTask, report: TaskResult) -> None:
        actor.tasks.remove(task)
        self._bytes.pop(task, None)
        source = self._slots.source_of(task.page)
        self._task_s[source] = _NEWEST * report.seconds + (1 - _NEWEST) * self._task_s.get(source, report.seconds)
        if self._is_stopping:
            return
        replaced = int.from_bytes(self._slots.read_cell(actor.index, CELL_REPLACED), "little") + report.num_replaced
        self._slots.write_cell(actor.index, CELL_REPLACED, replaced.to_bytes(WORD_BYTES, "little"))
        self._slots.note_measured(actor.index, task.page, report.measured)
        status, value = self._slots.store(task.page, task.task, report)
        self._slots.log(actor.index, actor.pid, task.page, task.task, actor.begin_ns, status)
        actor.begin_ns = time.monotonic_ns()
        self._report(task, actor.index, status, value)

    def _report(self, task: RayTask, worker: int, status: int, value: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # the pool has closed its end
            os.write(self._done.fileno(), DONE.pack(task.ticket, task.task, worker, status, value))


def _refuse_restart(error: Exception) -> NoReturn:
    """Refuse to start another thread: this one shares all memory with the program, so the next would fail as well."""
    if isinstance(error, WorkerStartError):
        raise error
    raise WorkerStartError("it is not replaced: nothing kills it, and another one would fail in the same way") from error


def _text_of(error: BaseException) -> str:
    """Return Ray's text about a lost actor, on one line and without Ray's names of the actor."""
    lines = [line for line in str(error).splitlines() if not line.startswith("\t") or line.startswith("\tip:")]
    return " ".join(map(str.strip, lines))[:_MOST_LETTERS] or repr(error)
