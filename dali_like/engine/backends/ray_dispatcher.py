"""What forked workers do for themselves, a thread of the main process does for actors of Ray: the *dispatcher*.

::

    pool                     dispatcher (a thread)                             actor, anywhere
    ----                     ------------------                             ---------------
    task records --- pipe -> take some for an actor that has room
                             call its `compute`, with slots' headers -----> compute in slots of its own
                             put the parts into the slot   <--- Ray ------- rows, descriptors, region of each task
    reports <------- pipe -- report

Ray starts the actors, calls them, moves what they return through its object stores, and says when one is lost, with its
node or without. It does not make calls again: what a lost actor owes is the pool's affair, as with any worker that dies
(`dali_like.engine.pool.recovery`).

An actor has two calls at a time, so that it finds the next when it has ended one, and its results travel meanwhile. A call
is for one task, or for several where these take too little time for a call each: of one batch, or of some that wait, as far
as they are that actor's share. Nothing waits to share a call while an actor has room.

Of the tasks of an actor the first is named by its cell. If it is lost, the others go back to the front of the queue, and are
called for one by one: what may have ended an actor is not to take others with it. No actor is given a second call while what
is on its way would take more than a part of this node's object store.

Ray calls back in a thread of its own, which only notes what has come and wakes the dispatcher. What both the dispatcher and
the main thread touch is under a lock, which nobody holds while waiting.
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
from typing import Any

from dali_like.engine.backends.exit_events import Ends
from dali_like.engine.backends.ray_actor import Actor
from dali_like.engine.backends.ray_cluster import Cluster
from dali_like.engine.backends.ray_slots import Slots
from dali_like.engine.backends.ray_tasks import RayTask, RayTaskQueue
from dali_like.engine.backends.ray_worker import RayWorker, Report, Role, Started
from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import Alarm, Descriptor
from dali_like.engine.memory.protocol import (
    CELL_PID,
    CELL_REPLACED,
    CELL_SAMPLE,
    DONE,
    NO_TICKET,
    TASK,
    WORD_BYTES,
    Header,
    Status,
)
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import FORKSERVER, End, WorkerOptions
from dali_like.engine.worker.exceptions import SHORT_BYTES, pack_exception
from dali_like.engine.worker.worker import START_FAILED

#: A call costs some two milliseconds of CPU time, in all processes together. So long one should last, if there is the work.
_CALL_S = 0.01
#: Of so many batches it may be: an actor needs as many slots.
_MOST_BATCHES = 4
#: The weight of the last task in what is known of how long tasks take.
_NEWEST = 0.25
#: How long actors have to finish when they are told to end; then they are killed.
_GRACE_S = 2.0
#: Of what Ray says, which gives advice at length.
_MOST_LETTERS = 300


class RayDispatcher:
    """Hands tasks to actors and puts what they have made into the slots: see the module's text.

    Args:
        farewell: called when it is told to stop: nothing more is to be posted, also where that is since the program ends.

    Attributes:
        bundle: the sources, in the object store.
        thread: its own.
        reasons: why workers have ended, by worker.
        pids: of the workers.
    """

    def __init__(
        self,
        options: WorkerOptions,
        space: SharedSpace,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        cluster: Cluster,
        ends: Ends,
        farewell: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self._farewell = farewell
        self.bundle: Any = None
        self.thread = threading.Thread(target=self._run, name="dali_like_ray", daemon=True)
        self.reasons: dict[int, str] = {}
        self.pids = [0] * options.num_workers
        self._pid = os.getpid()
        self._options = options
        self._slots = Slots(space, options.num_workers)
        self._orders, self._done, self._ends = RayTaskQueue(tasks), done, ends
        self._class = cluster.actor_class(RayWorker, options.resources)
        self._lock = threading.Lock()
        self._actors: list[Actor | None] = [None] * options.num_workers
        #: By source: about how long a task takes.
        self._task_s: dict[int, float] = {}
        self._answers: deque[tuple[Actor, Callable[[Any], None], Future[Any]]] = deque()
        self._alarm = Alarm()
        self._bytes: dict[RayTask, int] = {}
        self._is_stopping = False
        #: The highest ticket of a task that an actor has been lost with. Up to that one, none shares a call.
        self._last_lost = NO_TICKET

    # For other threads

    @property
    def has_waiting_tasks(self) -> bool:
        """Whether there are tasks that have been taken from the pipes, and are in no cell."""
        with self._lock:
            return self._orders.has_waiting or any(len(actor.orders) > 1 for actor in self._actors if actor is not None)

    def hire(self, index: int) -> None:
        """Start an actor. It gets tasks when it is there, however long that takes."""
        role = Role(index, self._options.num_workers, self._options.threads, tuple(sys.path))
        with self._lock:
            actor = self._actors[index] = Actor(self._class.remote(), index)
            self._call(actor, "begin", partial(self._note_start, actor), role, self.bundle)

    def kill(self, index: int) -> None:
        """Kill an actor."""
        with self._lock:
            if (actor := self._actors[index]) is not None:
                self._end(actor.handle)

    def stop(self) -> None:
        """Let the actors and the thread end, soon."""
        if self._pid == os.getpid():
            if not self._is_stopping:
                self._is_stopping = True
                self._farewell()
            self._alarm.ring()

    def finish(self) -> None:
        """`stop`, and wait for it."""
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
                poll.poll()
                self._alarm.clear()
                with self._lock:
                    self._take_answers()
                    self._hand_out()
        finally:
            if not self._is_stopping:
                self._ends.add(End(FORKSERVER, 0, 0))
            self._wind_up()

    def _poll(self) -> select.poll:
        """What to wait for: answers, and tasks for those that have room."""
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        self._orders.watch(poll, [actor.index for actor in self._actors_with_room() if not actor.is_bound])
        return poll

    def _wind_up(self) -> None:
        """Let actors finish what they are at, and end them."""
        with self._lock:
            for actor in self._actors:
                if actor is not None and actor.is_ready:
                    self._tell_to_end(actor)
        deadline_s = time.monotonic() + _GRACE_S
        while self._is_anyone_ending() and (left_s := deadline_s - time.monotonic()) > 0:
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

    def _is_anyone_ending(self) -> bool:
        with self._lock:
            return any(actor is not None and actor.is_ending for actor in self._actors)

    # Calling actors

    def _call(self, actor: Actor, method: str, then: Callable[[Any], None], *args: Any) -> None:
        actor.num_calls += 1
        try:
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
            # All calls of an actor that is lost are answered, some of them with results.
            if actor.end is not None and not actor.num_calls:
                self._lose(actor, *actor.end)

    def _end_of(self, actor: Actor, error: BaseException) -> tuple[int, str]:
        if actor.pid or not self.cluster.is_task_error(error):
            return 0, _text_of(error)
        # It could not even begin: the package is not installed on its node, say.
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

    def _tell_to_end(self, actor: Actor) -> None:
        actor.is_ready, actor.is_ending = False, True
        self._call(actor, "end", partial(self._note_end, actor))

    def _note_end(self, actor: Actor, _: None) -> None:
        actor.end = 0, "it was told to end"

    def _lose(self, actor: Actor, exitcode: int, reason: str) -> None:
        """An actor has ended: the first task that it owes is named by its cell, the others nobody has begun."""
        self._end(actor.handle)
        if self._actors[actor.index] is actor:
            self._actors[actor.index] = None
        for order in actor.orders:
            self._bytes.pop(order, None)
        self._last_lost = max([self._last_lost, *(order.ticket for order in actor.orders)])
        self._orders.give_back(list(actor.orders)[1:])
        self.reasons[actor.index] = reason
        self._ends.add(End(actor.index, actor.pid, exitcode))

    def _end(self, handle: Any) -> None:
        with contextlib.suppress(Exception):  # it is gone already, or Ray is
            self.cluster.ray.kill(handle)

    # Handing out tasks

    def _actors_with_room(self) -> list[Actor]:
        """Those that may be given a task now, the least busy first."""
        # Which of its calls has ended an actor cannot be seen: one that may do that is its only one.
        is_wary = self._orders.any_waits(self._last_lost)
        needs_idle = is_wary or self._is_full
        free = [actor for actor in self._actors if actor is not None and actor.has_room]
        free = [actor for actor in free if not actor.orders or not (needs_idle or actor.is_watched(self._last_lost))]
        return sorted(free, key=lambda actor: actor.num_calls)

    def _hand_out(self) -> None:
        self._orders.take_posted()
        while not self._is_stopping and any(self._give_some(actor) for actor in self._actors_with_room()):
            pass

    def _give_some(self, actor: Actor) -> bool:
        """Give an actor what makes a call; whether there was anything to do."""
        order = self._orders.next_for(actor.index, actor.is_bound)
        if order is None:
            return False
        if order.ticket == NO_TICKET:
            self._tell_to_end(actor)
            return True
        if self._slots.header_of(order.page)[Header.CANCELLED]:
            self._report(order, actor.index, Status.SKIPPED, 0)
            return True
        if not actor.orders:
            actor.begin_ns = time.monotonic_ns()
        orders = self._take_more(order)
        actor.orders.extend(orders)
        self._name_first(actor)
        parts = [
            [self._slots.words_of(page), [each.task for each in tasks]]
            for page, tasks in itertools.groupby(orders, lambda each: each.page)
        ]
        self._call(actor, "compute", partial(self._note_made, actor, orders), parts)
        return True

    def _take_more(self, order: RayTask) -> list[RayTask]:
        """A task, and those that share a call with it.

        Those of its batch until the call is long enough, of further batches until it is an actor's share of what waits.
        """
        orders, posted = [order], self._orders.posted
        self._note_bytes(order)
        if order.worker != ANY_WORKER or order.ticket <= self._last_lost:
            return orders  # whose task has ended an actor is to be seen
        call_s, num_batches = self._task_s_of(order), 1
        num_ready = sum(actor is not None and actor.is_ready for actor in self._actors)
        share_s = min(_CALL_S, call_s * (1 + len(posted)) / num_ready)
        while posted and posted[0].ticket > max(self._last_lost, NO_TICKET):
            call_s += self._task_s_of(posted[0])
            if posted[0].ticket == orders[-1].ticket:
                is_enough = call_s > _CALL_S
            else:
                num_batches += 1
                is_enough = call_s > share_s or num_batches > _MOST_BATCHES or self._is_full
            if is_enough:
                break
            orders.append(posted.popleft())
            self._note_bytes(orders[-1])
        return orders

    def _task_s_of(self, order: RayTask) -> float:
        """About how long a task takes; of the first of a source, as long as a call should."""
        return self._task_s.get(self._slots.source_of(order.page), _CALL_S)

    def _note_bytes(self, order: RayTask) -> None:
        self._bytes[order] = self._slots.bytes_of(self._slots.header_of(order.page), order.task)

    @property
    def _is_full(self) -> bool:
        """Whether what is on its way takes all of its part of the object store."""
        return sum(self._bytes.values()) >= self.cluster.most_bytes

    def _name_first(self, actor: Actor) -> None:
        """Let the cell of a worker name the task that it is on."""
        first = actor.orders[0]
        self._slots.write_cell(actor.index, 0, TASK.pack(first.ticket, first.page, first.task))
        self._slots.write_cell(actor.index, CELL_SAMPLE, bytes(WORD_BYTES))  # which sample it is on shows only there

    # Taking results

    def _note_made(self, actor: Actor, orders: Sequence[RayTask], reports: Sequence[Sequence[Any]]) -> None:
        for order, report in zip(orders, reports, strict=True):
            self._note_report(actor, order, Report(*report))
        if actor.orders:
            self._name_first(actor)

    def _note_report(self, actor: Actor, order: RayTask, report: Report) -> None:
        actor.orders.remove(order)
        self._bytes.pop(order, None)
        source = self._slots.source_of(order.page)
        self._task_s[source] = _NEWEST * report.seconds + (1 - _NEWEST) * self._task_s.get(source, report.seconds)
        if self._is_stopping:
            return
        replaced = int.from_bytes(self._slots.read_cell(actor.index, CELL_REPLACED), "little") + report.num_replaced
        self._slots.write_cell(actor.index, CELL_REPLACED, replaced.to_bytes(WORD_BYTES, "little"))
        self._slots.note_measured(actor.index, order.page, report.measured)
        status, value = self._slots.store(order.page, order.task, report)
        self._slots.log(actor.index, actor.pid, order.page, order.task, actor.begin_ns, status)
        actor.begin_ns = time.monotonic_ns()
        self._report(order, actor.index, status, value)

    def _report(self, order: RayTask, worker: int, status: int, value: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody wants to know
            os.write(self._done.fileno(), DONE.pack(order.ticket, order.task, worker, status, value))


def _text_of(error: BaseException) -> str:
    """What Ray says of a lost actor, on one line and without what the actor is called there."""
    lines = [line for line in str(error).splitlines() if not line.startswith("\t") or line.startswith("\tip:")]
    return " ".join(map(str.strip, lines))[:_MOST_LETTERS] or repr(error)
