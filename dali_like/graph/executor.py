"""Delivers the batches of a pipeline, in order: asks for those of the sources, and has them computed ahead of the user.

While the user works on a batch, the operators that run in threads (see `dali_like.graph.computation`) work on the next ones,
as many as the pipeline's prefetch_queue_depth says and as their source data is there; on one at a time if there are
operators that must see the batches in order, as functions of the user's. Copies to a GPU are begun in the same way. Where
there is neither, batches go from the sources to the user as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from concurrent.futures import Future, wait
from copy import copy
from time import monotonic_ns

from dali_like.common.interrupts import POLL_INTERVAL_S, check_interrupts
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.worker.exceptions import without_frames
from dali_like.engine.worker.meters import Recorder
from dali_like.errors import OutOfMemoryError
from dali_like.graph.computation import BatchId, Computation, TensorList
from dali_like.graph.lockstep import Lockstep, PipelinePosition
from dali_like.sources.sharding import ALONE, Shard


class _Work:
    """An iteration that operators work on, with what the sources have given for it."""

    def __init__(self, outputs: list[Sequence[Output]], batch_id: BatchId) -> None:
        self.outputs = outputs
        self.batch_id = batch_id
        self.operators_ns = 0  # how long these have taken
        self.future: Future[tuple[TensorList, ...]] = Future()


class Executor:
    """Delivers the outputs of a pipeline's graph.

    Args:
        computation: makes the batches.
        lockstep: of the graph's sources, in their order.
        depth: how many batches operators work, or copies to a GPU are begun, ahead.
        capacity: the largest batch.
        shard: which of the batches of an epoch are this process's.
        ended: whether the end of that epoch has been seen.

    Attributes:
        operator_times: told how long the operators have taken that run in threads, for each batch.
        waited_ns: how long `run` has waited for them.
    """

    def __init__(
        self,
        computation: Computation,
        lockstep: Lockstep,
        depth: int,
        capacity: int,
        *,
        shard: Shard = ALONE,
        ended: bool = False,
    ) -> None:
        self._computation = computation
        self._lockstep = lockstep
        self._depth = 1 if computation.in_order else depth
        self._capacity = capacity
        self._shard = shard
        self._queue: deque[_Work] = deque()
        self._ended = ended
        self.operator_times = Recorder()
        self.waited_ns = 0

    @property
    def position(self) -> PipelinePosition:
        """How far the user has come."""
        taken = self._lockstep.iteration
        iteration = self._queue[0].batch_id.iteration if self._queue else taken
        return PipelinePosition(self._lockstep.epoch, iteration, self._lockstep.delivered(taken - iteration))

    @property
    def has_threads(self) -> bool:
        """Whether there are operators that run in threads."""
        return self._computation.threads is not None

    @property
    def ended(self) -> bool:
        """Whether the user has seen the end of the epoch."""
        return self._ended

    def number(self, source: int, position: PipelinePosition) -> tuple[int, int]:
        """See `Lockstep.number`."""
        return self._lockstep.number(source, position)

    def upcoming(self, source: int) -> Batch | None:
        """See `Lockstep.upcoming`."""
        return self._lockstep.upcoming(source)

    def run(self) -> tuple[TensorList, ...]:
        """The next batch.

        Raises:
            StopIteration: the epoch has ended.
            Exception: what a callback or an operator raised. The next call goes on with the next batch.
        """
        if self._ended:
            raise StopIteration
        try:
            if self._computation.is_trivial:
                return self._computation.deliver(self._lockstep.next())
            return self._next_computed()
        except StopIteration:
            self._ended = True
            raise

    def reset(self) -> None:
        """Begin the next epoch, unless nothing has been taken from this one yet."""
        if self.position.iteration or self._ended:
            self._put_back()
            self._lockstep.reset()
            self._ended = False

    def go_to(self, position: PipelinePosition, restored: Container[int], *, ended: bool) -> None:
        """Go on from anywhere; see `Lockstep.go_to`."""
        self._put_back()
        self._lockstep.go_to(position, restored)
        self._ended = ended

    def _put_back(self) -> None:
        """Drop what has been computed ahead, but for what cannot be had again."""
        for work in reversed(self._queue):
            if not work.future.cancel() and self._computation.in_order:
                self._wait_for(work)
            self._lockstep.put_back(work.outputs)
        self._queue.clear()

    def end_epoch(self) -> None:
        """Let the epoch end here, whatever the sources still have."""
        self._ended = True

    def close(self) -> None:
        """End the threads, and wait for the copies."""
        self._computation.end_threads()
        self._queue.clear()
        self._computation.close()

    def _next_computed(self) -> tuple[TensorList, ...]:
        self._computation.settle()
        if not self._queue:
            batch_id = self._next_id()
            self._begin(_Work(self._lockstep.next(), batch_id))
        self._work_ahead()
        work = self._queue[0]
        if not self.has_threads and not work.future.done():  # it was interrupted
            self._start(work)
        self._wait_for(work)
        for of_garbage in (False, True):
            if _shortage(work) is not None:
                # What has been released meanwhile may do. If not, the batch waits for the next call.
                self._computation.make_room(of_garbage=of_garbage)
                self._start(work)
                self._wait_for(work)
        while (shortage := _shortage(work)) is not None:
            if not self._retract(shortage):
                raise copy(shortage)
            self._computation.make_room(of_garbage=False)
            self._start(work)
            self._wait_for(work)
        self._queue.popleft()
        if work.operators_ns:
            self.operator_times.add(work.operators_ns)
        try:
            self._work_ahead()
        except BaseException:  # an interrupt
            self._queue.appendleft(work)
            raise
        future = work.future
        del work
        try:
            return future.result()
        finally:
            del future  # what has been raised above, for a later batch, keeps this frame

    def _retract(self, shortage: OutOfMemoryError) -> bool:
        """Give up the last of the batches that have been made ahead, as if it had met the shortage; whether there is one."""
        for work in reversed([*self._queue][1:]):
            if self.has_threads:
                self._wait_for(work)
            if work.future.done() and _shortage(work) is None and work.future.exception() is None:
                work.future = Future()
                work.future.set_exception(shortage)
                return True
        return False

    def _wait_for(self, work: _Work) -> None:
        begin_ns = monotonic_ns()
        while not wait((work.future,), POLL_INTERVAL_S).done:
            check_interrupts()
        self.waited_ns += monotonic_ns() - begin_ns

    def _work_ahead(self) -> None:
        """Start the operators on batches that the sources have finished."""
        while len(self._queue) < self._depth and not self._lockstep.finished:
            batch_id = self._next_id()
            try:
                outputs = self._lockstep.next_if_ready()
            except Exception as error:
                # To be raised when it is its turn; StopIteration cannot travel in a future and is raised again then.
                if isinstance(error, StopIteration):
                    return
                work = _Work([], batch_id)
                work.future.set_exception(error)
                self._queue.append(work)
                continue
            if outputs is None:
                return
            self._begin(_Work(outputs, batch_id))

    def _let_go(self) -> None:
        """Drop what batches have been made of that will not be made again: a slot is free when its copy has ended.

        Called whenever one has been made, in whatever thread.
        """
        if self._lockstep.any_persists:
            return  # it may be put back
        for work in list(self._queue):
            if not work.future.done() or work.future.cancelled() or _shortage(work) is not None:
                return
            work.outputs = []

    def _next_id(self) -> BatchId:
        iteration = self._lockstep.iteration
        return BatchId(self._lockstep.epoch, iteration, self._shard.first(iteration, self._capacity))

    def _begin(self, work: _Work) -> None:
        self._computation.heed_layouts()
        self._queue.append(work)
        self._start(work)

    def _start(self, work: _Work) -> None:
        if (threads := self._computation.threads) is not None:
            work.future = threads.submit(self._compute, work)
            work.future.add_done_callback(lambda _: self._let_go())
            return
        future: Future[tuple[TensorList, ...]] = Future() if work.future.done() else work.future
        try:
            future.set_result(self._compute(work))
        except Exception as error:
            traceback = error.__traceback__  # without this frame, which has the future that is to keep the error
            future.set_exception(error.with_traceback(traceback and traceback.tb_next))
        work.future = future
        self._let_go()

    def _compute(self, work: _Work) -> tuple[TensorList, ...]:
        """Make a batch; in a thread, if there are any."""
        batch, work.operators_ns = self._computation.compute(work.outputs, work.batch_id)
        return batch


def _shortage(work: _Work) -> OutOfMemoryError | None:
    """Why there was no memory for what operators make, if that is what has become of an iteration."""
    error = work.future.exception()
    return without_frames(error) if isinstance(error, OutOfMemoryError) else None
