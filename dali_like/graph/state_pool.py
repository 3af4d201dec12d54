"""States of iterables in workers, as the main process gets them with batches; see `dali_like.engine.worker.state_sender`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.worker.iterable_states import StatesBefore


class SentStatesPool:
    """Makes the batches of one such source, and takes the states off them. See `dali_like.engine.pool.base.Pool`.

    Args:
        pool: of the workers.
        num_outputs: of the source, without the state.
        limit: how many states are kept; see `StatesBefore`.
    """

    def __init__(self, pool: Pool, num_outputs: int, limit: int) -> None:
        self._pool = pool
        self._num_outputs = num_outputs
        self._states = StatesBefore(limit)

    def submit(self, key: BatchKey) -> Batch:
        return self._pool.submit(key)

    def poll(self) -> None:
        self._pool.poll()

    def wait(self, batch: Batch) -> Sequence[Output]:
        outputs = self._pool.wait(batch)
        if len(outputs) > self._num_outputs:  # not of one that had been taken, and was put back
            if len(sent := outputs[-1]):
                self._states.note(batch.key.epoch, batch.key.iteration, bytes(sent[0]))
            outputs = outputs[: self._num_outputs]
        return outputs

    def cancel(self, batch: Batch) -> None:
        self._pool.cancel(batch)

    def close(self) -> None:
        self._states.clear()

    def before(self, epoch: int, iteration: int) -> Any:
        """What the state was before a batch that has come; None if it has not."""
        text = self._states.before(epoch, iteration)
        return None if text is None else json.loads(text)

    def peek(self, batch: Batch) -> Any:
        """What the state was before a batch, which is waited for; None if it cannot be made."""
        try:
            self.wait(batch)
        except Exception as error:
            if batch.outcome is not error and not isinstance(error, StopIteration):
                raise
        return self.before(batch.key.epoch, batch.key.iteration)
