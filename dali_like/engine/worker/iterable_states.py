"""Sources that know their state: what it was before each batch that nobody has taken yet.

Sources work ahead of the user. So the state that a checkpoint needs is not the one that a source has at that moment, but the
one that it had before it began the batch that the user takes next. It is noted whenever a batch is begun.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from dali_like.errors import CheckpointError
from dali_like.types import BatchInfo, SampleInfo


def knows_its_state(source: Any) -> bool:
    """Whether an object has the two methods, ``state_dict()`` and ``load_state_dict(state)``."""
    return not isinstance(source, type) and all(
        callable(getattr(source, name, None)) for name in ("state_dict", "load_state_dict")
    )


def check_saved(saved: Any, fields: Mapping[str, Any]) -> None:
    """Whether a checkpoint has the fields of a source's state, of these types.

    Raises:
        CheckpointError: it has not.
    """
    if not isinstance(saved, Mapping) or set(saved) != set(fields) or not all(map(isinstance, *_pairs(saved, fields))):
        raise CheckpointError(f"the checkpoint has a state of a source that is none of this one: {saved!r:.200}")


def _pairs(saved: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    return [saved[name] for name in fields], list(fields.values())


class StatesBefore:
    """What the state of a source was before each of the last batches.

    Args:
        limit: how many are kept: of as many batches as are made ahead.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._states: dict[tuple[int, int], Any] = {}

    def note(self, epoch: int, iteration: int, state: Any) -> None:
        """Keep the state from before a batch."""
        self._states.pop((epoch, iteration), None)
        self._states[epoch, iteration] = state
        while len(self._states) > self._limit:
            del self._states[next(iter(self._states))]

    def before(self, epoch: int, iteration: int) -> Any:
        """The state from before a batch; None if it has not been noted."""
        return self._states.get((epoch, iteration))

    def clear(self) -> None:
        """Forget them all."""
        self._states.clear()


class StateRecorder:
    """Takes note of the state of a source in this process.

    Args:
        save: asks for the state.
        limit: as for `StatesBefore`.
    """

    def __init__(self, save: Callable[[], Any], limit: int) -> None:
        self._save = save
        self._states = StatesBefore(limit)

    def note(self, info: SampleInfo | BatchInfo) -> None:
        """Take note of the state, where a batch begins with what is asked for."""
        if not (isinstance(info, SampleInfo) and info.idx_in_batch):
            self._states.note(info.epoch_idx, info.iteration, self.now())

    def before(self, epoch: int, iteration: int) -> Any:
        """The state before a batch; that of now, if the batch has not been begun."""
        state = self._states.before(epoch, iteration)
        return self.now() if state is None else state

    def now(self) -> Any:
        """The state of this moment."""
        return copy.deepcopy(self._save())

    def clear(self) -> None:
        """Forget the states that there have been."""
        self._states.clear()


class Remembered:
    """A callable that knows its state."""

    def __init__(self, callback: Callable[[Any], Any], owner: Any) -> None:
        self._callback = callback
        self._owner = owner
        self.recorder: StateRecorder | None = None

    def __call__(self, info: Any) -> Any:
        if self.recorder is not None:
            self.recorder.note(info)
        return self._callback(info)

    def save(self) -> Any:
        """The state, in the form that `restore` takes."""
        return {"state": self._owner.state_dict()}

    def restore(self, saved: Any) -> None:
        """Go on from a state.

        Raises:
            CheckpointError: it is none.
        """
        check_saved(saved, {"state": object})
        self._owner.load_state_dict(saved["state"])
