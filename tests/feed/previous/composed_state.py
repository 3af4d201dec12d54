"""Composed datasets with random access in a pipeline: where batches begin, and the state for checkpoints.

The state is a position. So a pipeline can resume with any number of ranks and any batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.worker.streams import check_saved
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.positions import Steps
from dali_like.sources.composed.states import make_state
from tests.feed.previous.source_states import BatchNumber, SourceState

#: Fields of the state: the number of the next batch in its epoch, and the state of the dataset.
_SAVED = {"iteration": int, "state": object}


class ComposedState(SourceState):
    """The state of a composed dataset with random access. Also the pool that computes its batches.

    Args:
        name: of the source, for messages.
        dataset: the dataset.
        steps: of this rank.
    """

    def __init__(self, name: str, dataset: ComposedDataset, steps: Steps) -> None:
        super().__init__(name, 0)
        self._dataset = dataset
        self._steps = steps
        self._pool: Pool
        #: An epoch, an iteration, and the position where its step begins. Other epochs begin at position 0.
        self._known = 0, 0, 0

    def over(self, pool: Pool) -> ComposedState:
        """Compute batches in a pool."""
        self._pool = pool
        return self

    def begin(self, epoch: int, iteration: int) -> int:
        """Return the position where a step begins, the same on all ranks."""
        _, known_iteration, position = self._known if self._known[0] == epoch else (epoch, 0, 0)
        return position + (iteration - known_iteration) * self._steps.size

    def first(self, epoch: int, iteration: int) -> int:
        """Return the position of the rank's first element in a step."""
        return self._steps.first(self.begin(epoch, iteration))

    # As a pool

    def submit(self, key: BatchKey) -> Batch:
        begin = self.begin(key.epoch, key.iteration)
        size = self._steps.count(begin)
        if not size:
            batch = Batch(key)
            batch.outcome = StopIteration()
            return batch
        return self._pool.submit(key._replace(first_sample=self._steps.first(begin), size=size))

    def poll(self) -> None:
        self._pool.poll()

    def wait(self, batch: Batch) -> Sequence[Output]:
        if type(batch.outcome) is StopIteration:
            raise StopIteration
        return self._pool.wait(batch)

    def cancel(self, batch: Batch) -> None:
        if type(batch.outcome) is not StopIteration:
            self._pool.cancel(batch)

    def close(self) -> None:
        pass

    # As a state

    def before(self, batch: BatchNumber | None, upcoming: Callable[[], Batch | None]) -> dict[str, Any]:
        epoch, iteration = batch or (0, 0)
        position = 0 if batch is None else self.begin(epoch, iteration)
        dataset = self._dataset
        state = make_state(dataset.description, dataset.seed, dataset.shards, epoch, position, {}, self._steps.rank)
        return {"iteration": iteration, "state": state}

    def restore(self, state: Any) -> None:
        self._known = 0, 0, 0
        if state is not None:
            check_saved(state, _SAVED)
            checked = self._dataset.checked_state(state["state"])
            self._known = checked["epoch"], state["iteration"], checked["position"]
