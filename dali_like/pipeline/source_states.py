"""What the sources of a pipeline say of their states, for checkpoints; and what checkpoints say to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dali_like.engine.worker.iterable_states import Remembered, StateRecorder
from dali_like.engine.worker.streams import Stream
from dali_like.errors import CheckpointError
from dali_like.sources.external_source import ExternalSource

if TYPE_CHECKING:
    from dali_like.graph.executor import Executor
    from dali_like.graph.state_pool import SentStatesPool


class SourceStates:
    """The states of the sources of a pipeline, by their numbers; None stands for a source that does not know its own.

    Args:
        externals: the sources.
    """

    def __init__(self, externals: Sequence[ExternalSource]) -> None:
        self._externals = externals
        self._knowers = [_knower_of(external) for external in externals]

    def remember(self, limit: int) -> None:
        """From now on take note of what the states are before each batch; `limit` is how many are made ahead."""
        for external, knower in zip(self._externals, self._knowers, strict=True):
            if knower is not None and not external.parallel:
                knower.recorder = StateRecorder(knower.save, limit)

    def are_sent(self, source: int) -> bool:
        """Whether it is an iterable in a worker, which may be asked for its state there."""
        external, knower = self._externals[source], self._knowers[source]
        is_asked = external.parallel and not external.sharded and external.options["on_error"] == "raise"
        return is_asked and isinstance(knower, Stream) and knower.owner is not None

    def before(self, batches: Sequence[tuple[int, int] | None]) -> tuple[Any, ...]:
        """The states of sources in this process before batches of these epochs and numbers; None: those of this moment.

        Raises:
            CheckpointError: JSON cannot hold one.
        """
        states = []
        for external, recorder, batch in zip(self._externals, self._recorders(), batches, strict=True):
            state = None
            if recorder is not None:
                state = recorder.now() if batch is None else recorder.before(*batch)
            states.append(_checked(external, state))
        return tuple(states)

    def restorable(self, states: Sequence[Any], *, started: bool) -> set[int]:
        """The sources that can be brought to these states; those in workers cannot where these have been started."""
        return {
            i
            for i, (external, knower, state) in enumerate(zip(self._externals, self._knowers, states, strict=True))
            if state is not None and knower is not None and not (external.parallel and (started or external.sharded))
        }

    def restore(self, states: Sequence[Any], *, started: bool = False) -> None:
        """Bring the sources to these states, as far as they can be. Others are walked through up to their places.

        Raises:
            CheckpointError: one is no state of its source.
        """
        for recorder in filter(None, self._recorders()):
            recorder.clear()
        restorable = self.restorable(states, started=started)
        for i, knower in enumerate(self._knowers):
            if knower is not None and i in restorable:
                knower.restore(states[i])
            elif isinstance(knower, Stream):
                knower.forget()

    def _recorders(self) -> list[StateRecorder | None]:
        return [None if knower is None else knower.recorder for knower in self._knowers]


def _checked(external: ExternalSource, state: Any) -> Any:
    """What a source has said of its state, if it can be stored; None if it knows none."""
    known = None if state is None or state["state"] is None else state
    import json  # noqa: PLC0415  # few programs ask for states

    try:
        json.dumps(known)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{external.name}: state_dict() must return what JSON can hold: {error}") from None
    return known


def state_before(executor: Executor, pool: SentStatesPool, source: int, batch: tuple[int, int] | None) -> Any:
    """The state of an iterable in a worker before the batch that comes next, which may have to be waited for.

    Args:
        batch: its epoch and number; None: it is the first of the next epoch.
    """
    state = None if batch is None else pool.before(*batch)
    for _ in range(2):  # what comes next may turn out to be the end of the epoch; then it is the batch behind that
        if state is None and (coming := executor.upcoming(source)) is not None:
            state = pool.peek(coming)
    return None if state is None or state["state"] is None else state


def _knower_of(external: ExternalSource) -> Stream | Remembered | None:
    callback = None if external.kind is None else external.kind.callback
    return callback if isinstance(callback, (Stream, Remembered)) else None
