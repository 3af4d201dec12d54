"""States of a pipeline's sources, in the main process: kept for checkpoints, and sent to workers with their requests.

`dali_like.engine.worker.streams` describes how the state travels. Sources work ahead of the user, and a checkpoint needs the
state before the batch that the user takes next. So the last states are kept, each by its batch: in a `LocalSourceState` for
a source that this process calls, in a `WorkerSourceState` for an iterable in a worker.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Sequence
from typing import Any

from dali_like.common.foreign_errors import is_a
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.worker.streams import StatefulCallable, Stream, reporting, request_text, state_text
from dali_like.types import BatchInfo, SampleInfo

#: Epoch and number of a batch.
BatchNumber = tuple[int, int]


class SourceState(abc.ABC):
    """The state of one source. One thread at a time may use it.

    Args:
        name: of the source, for messages.
        limit: how many states are kept, at least as many as batches are computed ahead; 0: no checkpoints will be taken.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._recent: dict[BatchNumber, Any] = {}

    @abc.abstractmethod
    def before(self, batch: BatchNumber | None, upcoming: Callable[[], Batch | None]) -> Any:
        """Return the state before the batch that the user takes next; None if the source has no state.

        Args:
            batch: that batch; None: the first of the next epoch.
            upcoming: submits that batch, if need be, and returns it.

        Raises:
            CheckpointError: JSON cannot hold the state.
            Exception: the batch could not be waited for.
        """

    @abc.abstractmethod
    def restore(self, state: Any) -> None:
        """Let the source resume from a state at the next batch; None: the checkpoint has no state of it.

        Raises:
            CheckpointError: it is not a state of this source.
        """

    def over(self, pool: Pool) -> Pool:
        """Return the pool that computes the batches of the source in a given pool: by default, that one."""
        return pool

    def keep(self, batch: BatchNumber, state: Any) -> None:
        """Keep the state before a batch, in place of an earlier one."""
        self._recent.pop(batch, None)
        self._recent[batch] = state
        while len(self._recent) > self._limit:
            del self._recent[next(iter(self._recent))]


class LocalSourceState(SourceState):
    """The state of a source that this process calls.

    Args:
        callback: of the source.
    """

    def __init__(self, name: str, callback: Stream | StatefulCallable, limit: int) -> None:
        super().__init__(name, limit)
        self._callback = callback
        if limit:
            callback.on_state = self._on_state

    def before(self, batch: BatchNumber | None, upcoming: Callable[[], Batch | None]) -> Any:
        state = None if batch is None else self._recent.get(batch)
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

    def _on_state(self, info: SampleInfo | BatchInfo, saved: dict[str, Any]) -> None:
        self.keep((info.epoch_idx, info.iteration), copy.deepcopy(saved))


class WorkerSourceState(SourceState):
    """The state of an iterable in a worker. Also the pool that computes its batches.

    Args:
        stream: this process's copy of the source's callback. Workers are started later.
        reports: whether states are to come with batches.
    """

    def __init__(self, name: str, stream: Stream, limit: int, *, reports: bool) -> None:
        super().__init__(name, limit)
        self._stream = stream
        self._pool: Pool
        self._generation = 0
        #: The latest state, and the epoch of the batch before which it was; None: that of the batch submitted next. A new
        #: worker can resume from it in that epoch only: other epochs begin from another state.
        self._latest = b""
        self._latest_epoch: int | None = None
        if reports:
            stream.on_state = reporting(name)

    def over(self, pool: Pool) -> WorkerSourceState:
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
        if (state := getattr(batch, "state", None)) is not None:
            self._latest, self._latest_epoch = state, batch.key.epoch
            self.keep((batch.key.epoch, batch.key.iteration), state)
        return outputs

    def cancel(self, batch: Batch) -> None:
        self._pool.cancel(batch)

    def close(self) -> None:
        self._recent.clear()

    # As a state

    def before(self, batch: BatchNumber | None, upcoming: Callable[[], Batch | None]) -> Any:
        if self._stream.on_state is None:
            return None
        text = None if batch is None else self._recent.get(batch)
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
            if batch.outcome is not error and not is_a(error, StopIteration):
                raise
        return self._recent.get((batch.key.epoch, batch.key.iteration))
