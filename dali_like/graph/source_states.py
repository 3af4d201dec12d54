"""States of a pipeline's sources, in the main process: kept for checkpoints, and sent to workers with their requests.

`dali_like.engine.worker.streams` describes how the state travels. Sources work ahead of the user, and a checkpoint needs the
state before the batch that the user takes next. So the last states are kept, each by its batch: in a `LocalState` for a
source that this process calls, in a `WorkerState` for an iterable in a worker.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.worker.state_output import state_text
from dali_like.engine.worker.streams import StatefulCallable, Stream, request_text
from dali_like.types import BatchInfo, SampleInfo

#: Epoch and number of a batch.
BatchNumber = tuple[int, int]


class SourceState(Protocol):
    """The state of one source. One thread at a time may use it."""

    def before(self, batch: BatchNumber | None, upcoming: Callable[[], Batch | None]) -> Any:
        """Return the state before the batch that the user takes next; None if the source has no state.

        Args:
            batch: that batch; None: the first of the next epoch.
            upcoming: submits that batch, if need be, and returns it.

        Raises:
            CheckpointError: JSON cannot hold the state.
            Exception: the batch could not be waited for.
        """

    def restore(self, state: Any) -> None:
        """Let the source resume from a state at the next batch; None: the checkpoint has no state of it.

        Raises:
            CheckpointError: it is no state of this source.
        """


class RecentStates:
    """The states before the last batches.

    Args:
        limit: how many are kept: at least as many as batches are computed ahead.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._states: dict[BatchNumber, Any] = {}

    def add(self, batch: BatchNumber, state: Any) -> None:
        """Keep the state before a batch, in place of an earlier one."""
        self._states.pop(batch, None)
        self._states[batch] = state
        while len(self._states) > self._limit:
            del self._states[next(iter(self._states))]

    def get(self, batch: BatchNumber | None) -> Any:
        """Return the state before a batch; None if it is not known."""
        return None if batch is None else self._states.get(batch)

    def clear(self) -> None:
        """Forget all states."""
        self._states.clear()


class LocalState:
    """The state of a source that this process calls; see `SourceState`.

    Args:
        name: of the source, for messages.
        callback: of the source.
        limit: see `RecentStates`; 0: no checkpoints will be taken, so that the source is not asked for its state.
    """

    def __init__(self, name: str, callback: Stream | StatefulCallable, limit: int) -> None:
        self._name = name
        self._callback = callback
        self._recent = RecentStates(limit)
        if limit:
            callback.reporter = self

    def report(self, info: SampleInfo | BatchInfo, saved: dict[str, Any]) -> None:
        """See `dali_like.engine.worker.streams.Reporter`."""
        self._recent.add((info.epoch_idx, info.iteration), copy.deepcopy(saved))

    def attach(self, batch: Any, report: Any) -> Any:
        """See `dali_like.engine.worker.streams.Reporter`."""
        return batch

    def before(self, batch: BatchNumber | None, upcoming: Callable[[], Batch | None]) -> Any:
        state = self._recent.get(batch)
        if state is None:  # the source has not begun that batch
            state = copy.deepcopy(self._callback.save())
        if state["state"] is None:
            return None
        state_text(self._name, state)
        return state

    def restore(self, state: Any) -> None:
        self._recent.clear()
        if state is None:
            self._callback.forget()
        else:
            self._callback.restore(state)


class WorkerState:
    """The state of an iterable in a worker; see `SourceState`. Also the pool that computes its batches.

    Args:
        name: of the source, for messages.
        stream: this process's copy of the source's callback.
        num_outputs: of the source, without its state.
        limit: see `RecentStates`.
        reports: whether states come with batches.
    """

    def __init__(self, name: str, stream: Stream, num_outputs: int, limit: int, *, reports: bool) -> None:
        self._name = name
        self._stream = stream
        self._num_outputs = num_outputs
        self._reports = reports
        self._recent = RecentStates(limit)
        self._generation = 0
        #: The latest state, and the epoch of the batch before which it was; None: that of the batch submitted next. A new
        #: worker can resume from it in that epoch only: other epochs begin from another state.
        self._latest = b""
        self._latest_epoch: int | None = None
        self._pool: Pool

    def over(self, pool: Pool) -> WorkerState:
        """Compute batches in a pool of workers."""
        self._pool = pool
        return self

    # As a pool

    def submit(self, key: BatchKey) -> Batch:
        if self._latest_epoch is None:
            self._latest_epoch = key.epoch
        state = self._latest if key.epoch == self._latest_epoch else b""
        return self._pool.submit(key._replace(request=request_text(self._generation, state)))

    def poll(self) -> None:
        self._pool.poll()

    def wait(self, batch: Batch) -> Sequence[Output]:
        outputs = self._pool.wait(batch)
        if len(outputs) > self._num_outputs:  # a batch that was put back has had its state removed
            if len(reported := outputs[-1]):
                self._latest, self._latest_epoch = bytes(reported[0]), batch.key.epoch
                self._recent.add((batch.key.epoch, batch.key.iteration), self._latest)
            outputs = outputs[: self._num_outputs]
        return outputs

    def cancel(self, batch: Batch) -> None:
        self._pool.cancel(batch)

    def close(self) -> None:
        self._recent.clear()

    # As a state

    def before(self, batch: BatchNumber | None, upcoming: Callable[[], Batch | None]) -> Any:
        if not self._reports:
            return None
        text = self._recent.get(batch)
        for _ in range(2):  # the upcoming batch may turn out to be the end of the epoch: then the next one
            if text is None and (coming := upcoming()) is not None:
                text = self._peek(coming)
        if text is None:
            return None
        import json  # noqa: PLC0415  # few sources are stateful

        state = json.loads(text)
        return None if state["state"] is None else state

    def restore(self, state: Any) -> None:
        self._recent.clear()
        self._generation += 1
        self._latest, self._latest_epoch = b"", None
        if state is not None:
            self._stream.check(state)
            self._latest = state_text(self._name, state)

    def _peek(self, batch: Batch) -> Any:
        """Wait for a batch, and return the state before it; None if it cannot be computed."""
        try:
            self.wait(batch)
        except Exception as error:
            if batch.outcome is not error and not isinstance(error, StopIteration):
                raise
        return self._recent.get((batch.key.epoch, batch.key.iteration))
