"""The state of walks through iterable datasets, as the loader's state has it; see `dali_like.engine.worker.streams`.

Runs in workers, and in the main process of a loader without workers. A state may take longer than a batch, and most programs
ask for few or none. So workers report one now and then, and with each batch only once the program has asked. A loader that
resumes from an older state takes the steps since then again.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

from dali_like.common.user_objects import is_stateful, log_lost_state
from dali_like.engine.worker.info import is_worker_thread
from dali_like.engine.worker.streams import Walk, resume
from dali_like.errors import CheckpointError

#: Of the time, at most, for reports that nobody has asked for. Sending them takes about as long again.
_SHARE_OF_REPORTS = 0.01


class DatasetWalk(Walk):
    """A walk through a dataset, whose steps are batches.

    Attributes:
        is_silent: ``state_dict()`` has raised, so that it is not called again.
    """

    is_silent = False
    _next_report_s = 0.0

    def report_if_due(self, dataset: Any) -> dict[str, Any] | None:
        """Return the state behind the last step if the reports so far have taken a small part of the time."""
        begin_s = time.monotonic()
        if begin_s < self._next_report_s:
            return None
        reported = self.report(dataset)
        end_s = time.monotonic()
        self._next_report_s = end_s + (end_s - begin_s) / _SHARE_OF_REPORTS
        return reported

    def report_of_dataset(self, dataset: Any) -> dict[str, Any] | None:
        """Return the state behind the end if it is that of the dataset; that of the iterator is of no use there."""
        return None if is_stateful(self.items) else self.report(dataset)

    def report(self, dataset: Any) -> dict[str, Any] | None:
        """Return the state behind the last step, with the position; None without a state."""
        owner = _owner(dataset)
        if self.is_silent or (owner is None and not is_stateful(self.items)):
            return None
        try:
            state = copy.deepcopy(self.state(owner))
        except Exception as error:
            self.is_silent = True
            stateful: Any = self.items if is_stateful(self.items) else owner
            log_lost_state(stateful, error, "walks through the dataset")
            return None
        if state["state"] is None:
            return None
        return {"epoch": None, "position": self.position, "end": self.end, **state}


def walk_from(reported: dict[str, Any], begin: Callable[[], Iterator[Any]], dataset: Any) -> DatasetWalk:
    """Return a walk that resumes from a reported state.

    Raises:
        CheckpointError: the dataset, or its iterator, is not stateful.
    """
    saved = {**reported, "state": copy.deepcopy(reported["state"])}
    owner = None if saved["of_iterator"] else _owner_for_state(dataset)
    return DatasetWalk(resume(begin, owner, saved, ended=saved["end"] is not None), saved["position"], saved["end"])


def restore(dataset: Any, state: Any) -> None:
    """Load the state of a dataset.

    Raises:
        CheckpointError: the dataset is not stateful.
    """
    _owner_for_state(dataset).load_state_dict(state)


def _owner_for_state(dataset: Any) -> Any:
    owner = _owner(dataset)
    if owner is None:
        why = "that threads share" if is_stateful(dataset) else "that has no load_state_dict()"
        raise CheckpointError(f"Invalid state_dict: it has the state of a dataset, and here is one {why}")
    return owner


def _owner(dataset: Any) -> Any:
    """The dataset, if it is stateful and has one walk only: threads share it, and walk through it at the same time."""
    return dataset if is_stateful(dataset) and not is_worker_thread() else None
