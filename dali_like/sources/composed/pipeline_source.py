"""Composed datasets as sources of pipelines.

With random access, a dataset is a callable: any worker computes the element at any position. The main process decides at
which position a batch begins, and how many elements it has (`dali_like.feed.position_plan`).

In logical shards, a dataset is an iterable of batches. One process walks through all shards of its rank, and the state of
the walk travels as `dali_like.engine.worker.streams` describes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from dali_like.engine.worker.streams import Stream, Walk
from dali_like.errors import SampleTypeError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.positions import owned_shards, step_positions
from dali_like.sources.composed.states import make_state, shard_states
from dali_like.sources.composed.stream import Elements, ShardEndedError, ShardState, outputs_ahead
from dali_like.sources.sharding import Shard
from dali_like.types import SampleInfo

__all__ = ["ElementCallback", "RankStream", "RankWalks"]


class ElementCallback:
    """Returns the element at a position, in any thread.

    Args:
        dataset: has random access.
        takes_dicts: whether an element may be a dict.
    """

    def __init__(self, dataset: ComposedDataset, *, takes_dicts: bool) -> None:
        self.dataset = dataset
        self.takes_dicts = takes_dicts
        self._local = threading.local()

    def __call__(self, info: SampleInfo) -> Any:
        try:
            elements: Elements = self._local.elements
        except AttributeError:
            elements = self._local.elements = self.dataset.elements()
        length = self.dataset.length
        position = info.idx_in_epoch if length is None else info.idx_in_epoch % length  # beyond the end is padding
        element = elements.at(info.epoch_idx, position)
        if element.__class__ is dict and not self.takes_dicts:
            refuse_dict(element)
        return element

    def __reduce__(self) -> Any:
        return _element_callback, (self.dataset, self.takes_dicts)


def _element_callback(dataset: ComposedDataset, takes_dicts: bool) -> ElementCallback:
    return ElementCallback(dataset, takes_dicts=takes_dicts)


def refuse_dict(element: Mapping[Any, Any]) -> None:
    """Refuse an element with named fields.

    Raises:
        SampleTypeError: always.
    """
    names = ", ".join(f"element[{name!r}]" for name in element)
    raise SampleTypeError(
        "an element of the composed dataset is a dict, and the outputs of a pipeline have an order instead of names. Pass "
        f"dataset.map(lambda element: ({names})) and num_outputs={len(element)}, or dtype=types.OBJECT"
    )


class RankWalks:
    """Begins walks through the batches of a rank. Also the state before the first walk.

    Args:
        dataset: runs in logical shards.
        rank: of this process.
        num_outputs: elements are tuples of so many outputs; None: the element is the output.
        takes_dicts: whether an element may be a dict.
        drops: whether to drop batches that are not full.

    Attributes:
        batch_size: positions in a batch; set before the first walk.
        epoch: of the next walk.
    """

    def __init__(
        self, dataset: ComposedDataset, rank: Shard, num_outputs: int | None, *, takes_dicts: bool, drops: bool
    ) -> None:
        self.dataset = dataset
        self.rank = rank
        self.num_outputs = num_outputs
        self.takes_dicts = takes_dicts
        self.drops = drops
        self.batch_size = 0
        self.epoch = 0
        self.owned = owned_shards(dataset.shards or 1, rank)

    def __call__(self) -> Iterator[Any]:
        return _RankBatches(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the state before the first element."""
        return self.state(0, 0, {})

    def load_state_dict(self, state: Any) -> None:
        """Check the state: it is of the beginning."""
        self.dataset.checked_state(state)

    def state(self, epoch: int, position: int, states: Mapping[int, ShardState]) -> dict[str, Any]:
        """Return a state of this rank."""
        dataset = self.dataset
        return make_state(dataset.description, dataset.seed, dataset.shards, epoch, position, states, self.rank)

    def states_of(self, state: Any) -> tuple[dict[str, Any], dict[int, ShardState]]:
        """Return a checked state, and the states of the shards of this rank in it.

        Raises:
            CheckpointError: it is of another stream, or lacks a shard.
        """
        checked = self.dataset.checked_state(state)
        return checked, shard_states(checked, self.owned)


class _RankBatches(Iterator[Any]):
    """The batches of a rank in an epoch. The positions of ended shards are empty, so batches may be smaller.

    A step in which all positions of the rank are empty is left out.
    """

    def __init__(self, walks: RankWalks) -> None:
        self._walks = walks
        self._elements = walks.dataset.elements()
        self._epoch = walks.epoch
        self._position = 0
        self._states: dict[int, ShardState] = {}
        self._ahead: dict[int, int] = {}
        self._ended: set[int] = set()

    def __next__(self) -> Any:
        walks = self._walks
        while len(self._ended) < len(walks.owned):
            begin = self._position
            self._position += walks.batch_size * walks.rank.count
            batch = self._elements_at(step_positions(begin, walks.batch_size, walks.rank))
            if batch and not (walks.drops and len(batch) < walks.batch_size):
                return batch if walks.num_outputs is None else self._transposed(batch, walks.num_outputs)
        raise StopIteration

    def _elements_at(self, positions: range) -> list[Any]:
        num_shards = self._walks.dataset.shards
        assert num_shards is not None
        batch = []
        for position in positions:
            if position % num_shards in self._ended or position // num_shards < self._ahead.get(position % num_shards, 0):
                continue
            try:
                element = self._elements.at(self._epoch, position, self._states)
            except ShardEndedError:
                self._ended.add(position % num_shards)
                continue
            if element.__class__ is dict and not self._walks.takes_dicts:
                refuse_dict(element)
            batch.append(element)
        return batch

    def _transposed(self, batch: list[Any], num_outputs: int) -> tuple[list[Any], ...]:
        for element in batch:
            if not isinstance(element, (tuple, list)) or len(element) != num_outputs:
                parts = f" of {len(element)}" if isinstance(element, (tuple, list)) else ""
                raise SampleTypeError(
                    f"an element of the composed dataset is a {type(element).__qualname__}{parts}; with "
                    f"num_outputs={num_outputs} it is a tuple of {num_outputs} arrays. Return that from the last stage"
                )
        return tuple(list(column) for column in zip(*batch, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the state before the next batch."""
        epoch, position = self._epoch, self._position
        ahead = outputs_ahead(self._states, position, self._walks.dataset.shards or 1) if self._ahead else ()
        states = {
            shard: self._states[shard] if shard in ahead else self._elements.state(epoch, shard, position, self._states)
            for shard in self._walks.owned
        }
        return self._walks.state(epoch, position, states)

    def load_state_dict(self, state: Any) -> None:
        """Continue from a state.

        Raises:
            CheckpointError: it is of another stream, or lacks a shard.
        """
        checked, self._states = self._walks.states_of(state)
        self._epoch, self._position, self._ended = checked["epoch"], checked["position"], set()
        self._ahead = outputs_ahead(self._states, self._position, checked["shards"])


class RankStream(Stream):
    """A composed dataset in logical shards: a stream whose walks depend on the epoch, and whose state is checked at once.

    Args:
        begin: begins walks.
        owner: the same.
    """

    begin: RankWalks

    def check(self, saved: Any) -> None:
        super().check(saved)
        if saved["of_iterator"]:
            self.begin.states_of(saved["state"])
        else:
            self.begin.load_state_dict(saved["state"])

    def _begin_walk(self, epoch: int) -> Walk:
        self.begin.epoch = epoch
        return super()._begin_walk(epoch)
