"""Deliver the batches of a pipeline in order, and compute them ahead of the user.

Runs in the main process. While the user works on a batch, operators in threads (`dali_like.graph.execution.computation`)
work on the next ones: as many as prefetch_queue_depth allows, and as soon as their source data is complete. If an
operator must see the batches in order, as functions of the user's must, only one batch is in progress. Copies to a GPU
start the same way. Batches that take so little time that the calling thread computes them are begun ahead, too: the time of
operators must not change when a source is called. Without operators and copies, batches go from the sources straight to the
user.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from copy import copy
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.foreign_errors import is_a, traceback_of, with_traceback
from dali_like.common.interrupts import POLL_INTERVAL_S, check_interrupts
from dali_like.engine.pool.batch import Output
from dali_like.engine.worker.exceptions import without_frames
from dali_like.engine.worker.meters import Recorder
from dali_like.errors import OutOfMemoryError
from dali_like.feed.lockstep import Lockstep, PipelinePosition
from dali_like.graph.execution.batch_runs import BatchId
from dali_like.graph.execution.computation import Computation, TensorList
from dali_like.sources.sharding import ALONE, Shard

if TYPE_CHECKING:
    from concurrent.futures import Future


class _DoneFuture(NamedTuple):
    """The outcome of a batch that no thread computes, as a future that is done."""

    batch: tuple[TensorList, ...] = ()
    error: BaseException | None = None

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return self.error

    def result(self) -> tuple[TensorList, ...]:
        try:
            if self.error is not None:
                raise self.error
            return self.batch
        finally:
            del self  # the traceback of the exception keeps this frame


class _PendingBatch:
    """One iteration in progress, with the outputs of the sources for it.

    Attributes:
        future: of the thread that computes it, or its outcome. None: the caller of `Executor.run` computes it, and has not
            finished.
    """

    def __init__(self, outputs: list[Sequence[Output]], batch_id: BatchId) -> None:
        self.outputs = outputs
        self.batch_id = batch_id
        self.operators_ns = 0
        self.future: Future[tuple[TensorList, ...]] | _DoneFuture | None = None


class Executor:
    """Delivers the outputs of a pipeline's graph.

    Args:
        computation: computes the batches.
        lockstep: the graph's sources, in the order of the graph.
        depth: number of batches in operators, or in copies to a GPU, at a time.
        capacity: the largest batch, in samples.
        shard: this process's share of the batches of an epoch.
        first: returns the position of the first sample, given an epoch and an iteration, if the positions of ranks
            interleave; see `dali_like.sources.composed.positions`.
        ended: whether the user has seen the end of the current epoch.

    Attributes:
        operator_times: duration of the operators in threads, for each batch.
        waited_ns: total time that `run` has waited for the operators.
    """

    def __init__(
        self,
        computation: Computation,
        lockstep: Lockstep,
        depth: int,
        capacity: int,
        *,
        shard: Shard = ALONE,
        first: Callable[[int, int], int] | None = None,
        ended: bool = False,
    ) -> None:
        self._computation = computation
        self._lockstep = lockstep
        self._depth = 1 if computation.in_order else depth
        self._capacity = capacity
        self._shard = shard
        self._first = first
        self._queue: deque[_PendingBatch] = deque()
        self._ended = ended
        self.operator_times = Recorder()
        self.waited_ns = 0

    @property
    def position(self) -> PipelinePosition:
        """The position of the user."""
        taken = self._lockstep.iteration
        iteration = self._queue[0].batch_id.iteration if self._queue else taken
        return PipelinePosition(self._lockstep.epoch, iteration, self._lockstep.delivered(taken - iteration))

    @property
    def computation(self) -> Computation:
        """Computes the batches."""
        return self._computation

    @property
    def has_threads(self) -> bool:
        """Whether any operators run in threads."""
        return self._computation.threads is not None

    @property
    def ended(self) -> bool:
        """Whether the user has seen the end of the epoch."""
        return self._ended

    def state(self, source: int, position: PipelinePosition, *, ended: bool) -> Any:
        """Return the state of a source for a checkpoint; see `Lockstep.state`."""
        return self._lockstep.state(source, position, ended=ended)

    def run(self) -> tuple[TensorList, ...]:
        """Return the next batch.

        Raises:
            StopIteration: the epoch has ended.
            Exception: the exception of a callback or an operator. The next call continues with the following batch.
        """
        if self._ended:
            raise StopIteration
        try:
            if self._computation.is_trivial:
                if not self._computation.names_files:
                    return self._computation.deliver(self._lockstep.next())
                batch_id = self.id_of(self._lockstep.iteration)
                batch = self._computation.deliver(self._lockstep.next())
                self._computation.name_files(batch, batch_id)
                return batch
            return self._next_computed()
        except StopIteration:
            self._ended = True
            raise

    def start_prefetch(self) -> None:
        """Begin the batches of sources in workers that are due, as `run` does."""
        self._lockstep.begin_ahead()

    def reset(self) -> None:
        """Begin the next epoch, unless nothing has been taken from this one."""
        if self.position.iteration or self._ended:
            self._put_back()
            self._lockstep.reset()
            self._ended = False

    def go_to(self, position: PipelinePosition, restored: Container[int], *, ended: bool) -> None:
        """Continue from another position; see `Lockstep.go_to`.

        Raises:
            CheckpointError: a source cannot go back to it. Nothing has changed.
        """
        # A failed batch has no outputs to put back.
        self._lockstep.check_reachable(position, restored, sum(bool(pending.outputs) for pending in self._queue))
        self._put_back()
        self._lockstep.go_to(position, restored)
        self._ended = ended

    def _put_back(self) -> None:
        """Drop the batches computed ahead; batches of sources that persist go back to the lockstep."""
        for pending in reversed(self._queue):
            # A batch that a thread has begun runs to its end. An operator in order must not see the next epoch before.
            if pending.future is not None and not pending.future.cancel() and self._computation.in_order:
                self._wait_for(pending)
            self._lockstep.put_back(pending.outputs)
        self._queue.clear()

    def end_epoch(self) -> None:
        """End the epoch for the user, even if the sources have more batches."""
        self._ended = True

    def close(self) -> None:
        """Stop the threads, and wait for the copies."""
        self._computation.end_threads()
        self._queue.clear()
        self._computation.close()

    def _next_computed(self) -> tuple[TensorList, ...]:
        self._computation.settle()
        if not self._queue:
            batch_id = self.id_of(self._lockstep.iteration)
            self._begin(_PendingBatch(self._lockstep.next(), batch_id))
        self._work_ahead()
        pending = self._queue[0]
        if pending.future is None:  # an interrupt cut the previous call short
            self._start(pending)
        if pending.future.__class__ is not _DoneFuture or pending.future.error is not None:
            self._wait_for(pending)
            self._make_room_for(pending)
        self._queue.popleft()
        if pending.operators_ns:
            self.operator_times.add(pending.operators_ns)
        try:
            self._work_ahead()
        except BaseException:  # an interrupt
            self._queue.appendleft(pending)
            raise
        future = pending.future
        assert future is not None
        del pending
        try:
            return future.result()
        finally:
            del future  # the traceback of an exception raised above keeps this frame

    def _make_room_for(self, pending: _PendingBatch) -> None:
        """Compute a batch again that memory was short for.

        Raises:
            OutOfMemoryError: it is still short.
        """
        for collect_garbage in (False, True):
            if _shortage(pending) is not None:
                # Memory released in the meantime may suffice. If not, the batch stays in the queue for the next call.
                self._computation.free_unused(collect_garbage=collect_garbage)
                self._start(pending)
                self._wait_for(pending)
        while (shortage := _shortage(pending)) is not None:
            if not self._retract(shortage):
                raise copy(shortage)
            self._computation.free_unused(collect_garbage=False)
            self._start(pending)
            self._wait_for(pending)

    def _retract(self, shortage: OutOfMemoryError) -> bool:
        """Discard the last batch computed ahead, as if it had met the shortage; return whether there was one."""
        for pending in reversed([*self._queue][1:]):
            self._wait_for(pending)
            if pending.future is not None and pending.future.exception() is None:
                pending.future = _DoneFuture(error=shortage)
                return True
        return False

    def _wait_for(self, pending: _PendingBatch) -> None:
        if pending.future is None or pending.future.done():
            return
        begin_ns = monotonic_ns()
        if (hook := self._computation.hooks.wait) is None:
            _wait(pending.future)
        else:
            hook(_wait, pending.future)
        self.waited_ns += monotonic_ns() - begin_ns

    def _work_ahead(self) -> None:
        """Start the operators on batches that the sources have finished."""
        while len(self._queue) < self._depth and not self._lockstep.finished:
            batch_id = self.id_of(self._lockstep.iteration)
            try:
                outputs = self._lockstep.next_if_ready()
            except Exception as error:
                # Raised when it is this batch's turn. A future cannot hold StopIteration; the lockstep raises that again.
                if is_a(error, StopIteration):
                    return
                pending = _PendingBatch([], batch_id)
                pending.future = _DoneFuture(error=error)
                self._queue.append(pending)
                continue
            if outputs is None:
                return
            self._begin(_PendingBatch(outputs, batch_id))

    def _drop_source_outputs(self) -> None:
        """Release the source outputs of computed batches, which frees their slots once the copies have ended.

        Runs after each computed batch, in any thread.
        """
        if self._lockstep.any_persists:
            return  # `put_back` may need them
        for pending in list(self._queue):  # a copy: the main thread may change the queue meanwhile
            future = pending.future
            if future is None or not future.done() or future.cancelled() or _shortage(pending) is not None:
                return
            pending.outputs = []

    def id_of(self, iteration: int) -> BatchId:
        """Return the place of a batch of this epoch."""
        epoch = self._lockstep.epoch
        if self._first is not None:
            return BatchId(epoch, iteration, self._first(epoch, iteration), self._shard.count)
        return BatchId(epoch, iteration, self._shard.first(iteration, self._capacity))

    def _begin(self, pending: _PendingBatch) -> None:
        self._computation.heed_layouts()
        self._queue.append(pending)
        self._start(pending)

    def _start(self, pending: _PendingBatch) -> None:
        # Waking a thread takes longer than the operators of a short batch.
        if (threads := self._computation.threads) is not None and not self._computation.is_short:
            pending.future = future = threads.submit(self._compute, pending)
            future.add_done_callback(lambda _: self._drop_source_outputs())
            return
        pending.future = None
        try:
            pending.future = _DoneFuture(self._compute(pending))
        except Exception as error:
            traceback = traceback_of(error)  # drop this frame: it refers to the batch, which refers to the error
            pending.future = _DoneFuture(error=with_traceback(error, traceback and traceback.tb_next))
        self._drop_source_outputs()

    def _compute(self, pending: _PendingBatch) -> tuple[TensorList, ...]:
        """Compute a batch; runs in a thread if there are any."""
        compute, hook = self._computation.compute, self._computation.hooks.compute
        if hook is None:
            batch, pending.operators_ns = compute(pending.outputs, pending.batch_id)
        else:
            batch, pending.operators_ns = hook(compute, pending.outputs, pending.batch_id)
        self._computation.name_files(batch, pending.batch_id)
        return batch


def _wait(future: Any) -> None:
    from concurrent.futures import wait  # loaded by now

    while not wait((future,), POLL_INTERVAL_S).done:
        check_interrupts()


def _shortage(pending: _PendingBatch) -> OutOfMemoryError | None:
    """Return the memory error of an iteration if it failed with one, otherwise None."""
    assert pending.future is not None
    error = pending.future.exception()
    return without_frames(error) if type(error) is OutOfMemoryError else None
