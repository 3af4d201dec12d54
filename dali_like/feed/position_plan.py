"""Plan of a composed dataset with random access in a pipeline: where batches begin, and the state for checkpoints.

The state is a position. So a pipeline can resume with any number of ranks and any batch size.
"""

from __future__ import annotations

from typing import Any

from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.feed.source_feed import SourcePlan
from dali_like.feed.source_states import BatchNumber, SourceState, another_kind
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.positions import Steps
from dali_like.sources.composed.states import make_state
from dali_like.sources.state_format import SourceProgress


class PositionState(SourceState):
    """The state of a composed dataset with random access.

    Args:
        dataset: the dataset.
        steps: of this rank.
    """

    def __init__(self, dataset: ComposedDataset, steps: Steps) -> None:
        self.steps = steps
        self._dataset = dataset
        #: An epoch, an iteration, and the position where its step begins. Other epochs begin at position 0.
        self._known = 0, 0, 0

    def begin(self, epoch: int, iteration: int) -> int:
        """Return the position where a step begins, the same on all ranks."""
        _, known_iteration, position = self._known if self._known[0] == epoch else (epoch, 0, 0)
        return position + (iteration - known_iteration) * self.steps.size

    def first(self, epoch: int, iteration: int) -> int:
        """Return the position of the rank's first element in a step."""
        return self.steps.first(self.begin(epoch, iteration))

    def before(self, batch: BatchNumber | None) -> SourceProgress:
        epoch, iteration = batch or (0, 0)
        position = 0 if batch is None else self.begin(epoch, iteration)
        dataset = self._dataset
        state = make_state(dataset.description, dataset.seed, dataset.shards, epoch, position, {}, self.steps.rank)
        return SourceProgress(iteration, dataset=state)

    def restore(self, progress: SourceProgress) -> None:
        self._known = 0, 0, 0
        if progress.has_state:
            checked = dataset_state(progress, self._dataset)
            self._known = checked["epoch"], progress.position, checked["position"]


def dataset_state(progress: SourceProgress, dataset: ComposedDataset) -> dict[str, Any]:
    """Return the state of a composed dataset.

    Raises:
        CheckpointError: it is not a state of this dataset.
    """
    if progress.dataset is None:
        raise another_kind("it is not of a composed dataset")
    return dataset.checked_state(progress.dataset)


class PositionPlan(SourcePlan):
    """The batches of a composed dataset with random access.

    Args:
        source: the number of the source in its pool.
        state: decides where batches begin.
        worker: the only worker that can compute it, or ANY_WORKER.
    """

    def __init__(self, source: int, state: PositionState, *, worker: int = ANY_WORKER) -> None:
        super().__init__(source, state.steps.batch_size, worker=worker, state=state)
        self._positions = state

    def key(self, epoch: int, iteration: int, turn: int) -> BatchKey:
        positions = self._positions
        begin = positions.begin(epoch, iteration)
        first, size = positions.steps.first(begin), positions.steps.count(begin)
        return BatchKey(self.source, epoch, iteration, first, size, self.worker, turn)
