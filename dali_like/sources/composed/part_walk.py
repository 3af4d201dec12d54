"""Evaluates parts of batches in logical shards: some positions, and the states of their shards before and behind them.

A part carries the latest known states of its shards, so any process can evaluate it. Workers of loaders do so in
`dali_like.feed.shards`, workers of pipelines in `dali_like.sources.composed.pipeline_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dali_like.sources.composed.stream import Elements
from dali_like.sources.state_format import ShardState

__all__ = ["PartWalk"]


class PartWalk:
    """Goes through the positions of one part.

    Args:
        elements: of the dataset.
        num_shards: logical shards of the dataset; an attribute, too.
        epoch: of the part.
        states: known states of its shards.

    Attributes:
        ended: the shards that turned out to be at their end.
    """

    def __init__(self, elements: Elements, num_shards: int, epoch: int, states: Mapping[int, ShardState]) -> None:
        self._elements = elements
        self.num_shards = num_shards
        self._epoch = epoch
        self._states = states
        self._positions: list[int] = []
        self.ended: list[int] = []

    def note(self, positions: Iterable[int]) -> None:
        """Note positions that the part goes through; `states` are those behind them."""
        self._positions.extend(positions)

    def taker(self) -> Callable[[int], Any]:
        """Return `Elements.at` for this part. It is valid until `keep_state`."""
        return self._elements.taker(self._epoch, self._states)

    def keep_state(self, position: int) -> None:
        """Keep the state behind a failed element: others, which may replace it, move the shard."""
        shard = position % self.num_shards
        self._states = {**self._states, shard: self._elements.state(self._epoch, shard, position + 1, self._states)}

    def states(self) -> dict[int, ShardState]:
        """Return the states of the shards behind the positions."""
        elements, epoch, num_shards = self._elements, self._epoch, self.num_shards
        last = {position % num_shards: position for position in sorted(self._positions)}  # repeated ones may descend
        return {shard: elements.state(epoch, shard, position + 1, self._states) for shard, position in last.items()}
