"""The main process's side of iterables in workers that say what their state is; see `dali_like.workers.telling`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dali_like.workers.base import Pool
from dali_like.workers.batch import Batch, BatchKey, Output


class TellingPool:
    """Makes the batches of one such source, and takes the states off them. See `dali_like.workers.base.Pool`.

    Args:
        pool: of the workers.
        num_outputs: of the source, without the state.
        limit: how many states are kept: of as many batches as are made ahead.
    """

    def __init__(self, pool: Pool, num_outputs: int, limit: int) -> None:
        self._pool = pool
        self._num_outputs = num_outputs
        self._limit = limit
        self._states: dict[tuple[int, int], bytes] = {}

    def submit(self, key: BatchKey) -> Batch:
        return self._pool.submit(key)

    def poll(self) -> None:
        self._pool.poll()

    def wait(self, batch: Batch) -> Sequence[Output]:
        outputs = self._pool.wait(batch)
        if len(outputs) > self._num_outputs:  # not of one that had been taken, and was put back
            if len(told := outputs[-1]):
                self._note(batch.key, bytes(told[0]))
            outputs = outputs[: self._num_outputs]
        return outputs

    def cancel(self, batch: Batch) -> None:
        self._pool.cancel(batch)

    def close(self) -> None:
        self._states.clear()

    def before(self, epoch: int, iteration: int) -> Any:
        """What the state was before a batch that has come; None if it has not."""
        text = self._states.get((epoch, iteration))
        return None if text is None else json.loads(text)

    def peek(self, batch: Batch) -> Any:
        """What the state was before a batch, which is waited for; None if it cannot be made."""
        try:
            self.wait(batch)
        except Exception as error:
            if batch.outcome is not error and not isinstance(error, StopIteration):
                raise
        return self.before(batch.key.epoch, batch.key.iteration)

    def _note(self, key: BatchKey, text: bytes) -> None:
        self._states[key.epoch, key.iteration] = text
        while len(self._states) > self._limit:
            del self._states[next(iter(self._states))]
