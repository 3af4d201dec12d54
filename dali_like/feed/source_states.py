"""States of a pipeline's sources, from which another process resumes.

Runs in the main process. A state belongs to the plan of its source (`dali_like.feed.feed`), and knows no pool.
`dali_like.engine.worker.streams` describes how the state of an iterable in a worker travels. Sources work ahead of the user,
and a checkpoint needs the state before the batch that the user takes next. So the last states are kept, each by its batch.
"""

from __future__ import annotations

import abc
import copy
from typing import Any

from dali_like.common.json_state import Schema, check
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.streams import StatefulCallable, Stream, reporting, request_text, state_text
from dali_like.errors import CheckpointError
from dali_like.sources.state_format import CALLABLE, WALK, ShardState, SourceProgress, state_of_walk, walk_of_state
from dali_like.types import BatchInfo, SampleInfo

#: Epoch and number of a batch, as its source counts them.
BatchNumber = tuple[int, int]


class SourceState(abc.ABC):
    """The state of one source. One thread at a time may use it.

    Attributes:
        travels: whether it goes with requests, and comes with batches.
    """

    travels = False

    def request(self, epoch: int) -> bytes:
        """Return the bytes of the request for a batch of an epoch."""
        return b""

    def note(self, batch: Batch) -> None:  # noqa: B027  # most states do not travel
        """Keep the state that came with a batch, if one did."""

    def knows(self, batch: BatchNumber | None) -> bool:
        """Return whether `before` has an answer; otherwise, that batch must be computed first."""
        return True

    @abc.abstractmethod
    def before(self, batch: BatchNumber | None) -> SourceProgress:
        """Return the state before the batch that the user takes next, if the source has one.

        Args:
            batch: that batch; None: the first of the next epoch.

        Raises:
            CheckpointError: JSON cannot hold the state.
        """

    @abc.abstractmethod
    def restore(self, progress: SourceProgress) -> None:
        """Let the source resume from its state at the next batch, if the checkpoint has one.

        Raises:
            CheckpointError: it is not a state of this source.
        """


class RecentStates:
    """The states before the last batches.

    Args:
        limit: how many states are kept, at least as many as batches are computed ahead; 0: no checkpoints will be taken.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._states: dict[BatchNumber, Any] = {}

    def keep(self, batch: BatchNumber, state: Any) -> None:
        """Keep the state before a batch, in place of an earlier one."""
        self._states.pop(batch, None)
        self._states[batch] = state
        while len(self._states) > self.limit:
            del self._states[next(iter(self._states))]

    def get(self, batch: BatchNumber | None) -> Any:
        """Return the state before a batch; None: it is not kept."""
        return None if batch is None else self._states.get(batch)

    def clear(self) -> None:
        """Forget all states."""
        self._states.clear()


class LocalState(SourceState):
    """The state of a source that this process calls.

    Args:
        name: of the source, for messages.
        callback: of the source.
        limit: see `RecentStates`.
    """

    def __init__(self, name: str, callback: Stream | StatefulCallable, limit: int) -> None:
        self._name = name
        self._callback = callback
        self._recent = RecentStates(limit)
        if limit:
            callback.on_state = self._on_state

    def before(self, batch: BatchNumber | None) -> SourceProgress:
        saved = self._recent.get(batch)
        if saved is None:  # the source has not begun that batch
            saved = copy.deepcopy(self._callback.save())
        if saved["state"] is None:
            return SourceProgress()
        state_text(self._name, saved)
        if isinstance(self._callback, StatefulCallable):
            return SourceProgress(states={0: ShardState(0, saved)})
        return SourceProgress(states={0: state_of_walk(saved)})

    def restore(self, progress: SourceProgress) -> None:
        self._recent.clear()
        if not progress.has_state:
            self._callback.forget()
        elif isinstance(self._callback, StatefulCallable):
            self._callback.restore(only_state(progress, CALLABLE).state)
        else:
            self._callback.restore(walk_of_state(only_state(progress, WALK)))

    def _on_state(self, info: SampleInfo | BatchInfo, saved: dict[str, Any]) -> None:
        self._recent.keep((info.epoch_idx, info.iteration), copy.deepcopy(saved))


class ReportedState(SourceState):
    """The state of an iterable in a worker. It comes with batches, and goes back with the requests for the next ones.

    Args:
        name: of the source, for messages.
        stream: this process's copy of the source's callback. Workers are started later.
        limit: see `RecentStates`.
        reports: whether states are to come with batches.

    Attributes:
        reports: as given.
    """

    travels = True

    # Invariants between calls
    # - `_latest` is the state before the last batch taken in the epoch `_latest_epoch`, or a restored state. A new worker
    #   that resumes from it can compute all later batches of that epoch. Requests for other epochs carry no state.
    # - `_latest_epoch` is None from `restore` until the next request, to whose epoch the restored state belongs.
    # - The generation grows with each `restore`. Workers then drop their walks.

    def __init__(self, name: str, stream: Stream, limit: int, *, reports: bool) -> None:
        self._name = name
        self._stream = stream
        self._recent = RecentStates(limit)
        self._generation = 0
        self._latest = b""
        self._latest_epoch: int | None = None
        self.reports = reports
        if reports:
            stream.on_state = reporting(name)

    def request(self, epoch: int) -> bytes:
        if self._latest_epoch is None:
            self._latest_epoch = epoch
        state = self._latest if epoch == self._latest_epoch else b""
        return request_text(self._generation, state, reports=self.reports)

    def note(self, batch: Batch) -> None:
        if (state := getattr(batch, "state", None)) is not None:
            self._latest, self._latest_epoch = state, batch.key.epoch
            self._recent.keep((batch.key.epoch, batch.key.iteration), state)

    def knows(self, batch: BatchNumber | None) -> bool:
        return not self.reports or self._recent.get(batch) is not None

    def before(self, batch: BatchNumber | None) -> SourceProgress:
        text = self._recent.get(batch)
        if text is None:
            return SourceProgress()
        import json  # few sources are stateful

        saved = json.loads(text)
        return SourceProgress(states={} if saved["state"] is None else {0: state_of_walk(saved)})

    def restore(self, progress: SourceProgress) -> None:
        self._recent.clear()
        self._generation += 1
        self._latest, self._latest_epoch = b"", None
        if progress.has_state:
            saved = walk_of_state(only_state(progress, WALK))
            self._stream.check(saved)
            self._latest = state_text(self._name, saved)


def only_state(progress: SourceProgress, schema: Schema) -> ShardState:
    """Return the state of a source that is called in one place.

    Raises:
        CheckpointError: it is not of this kind of source.
    """
    state = progress.states.get(0)
    if state is None or len(progress.states) > 1 or progress.dataset is not None:
        raise another_kind("it has no such state")
    check(state.state, schema, "the state", another_kind)
    return state


def another_kind(problem: str) -> CheckpointError:
    """Return the exception for the state of another kind of source."""
    return CheckpointError(f"the checkpoint has a state of another kind of source: {problem}")
