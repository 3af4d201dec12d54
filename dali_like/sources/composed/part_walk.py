"""Evaluates parts of batches in logical shards: some positions, and the states of their shards before and behind them.

A part carries the latest known states of its shards, so any process can evaluate it. Workers of loaders do so in
`dali_like.feed.shards`, workers of pipelines in `dali_like.sources.composed.pipeline_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dali_like.sources.composed.held_outputs import HoldingWalk
from dali_like.sources.composed.stream import Elements, ShardEndedError
from dali_like.sources.state_format import ShardState

__all__ = ["HoldingPartWalk", "PartWalk"]

#: Returns a function with a time measurement.
Timed = Callable[[Callable[[int], Any]], Callable[[int], Any]]


def _untimed(function: Callable[[int], Any]) -> Callable[[int], Any]:
    return function


class PartWalk:
    """Goes through the positions of one part.

    Args:
        elements: of the dataset.
        num_shards: logical shards of the dataset; an attribute, too.
        epoch: of the part.
        states: known states of its shards.
        timed: returns a function with a time measurement.

    Attributes:
        ended: the shards that turned out to be at their end.
    """

    def __init__(
        self, elements: Elements, num_shards: int, epoch: int, states: Mapping[int, ShardState], timed: Timed = _untimed
    ) -> None:
        self._timed = timed
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

    def timed_taker(self) -> Callable[[int], Any]:
        """Return `taker` with a time measurement."""
        return self._timed(self.taker())

    def keep_state(self, position: int) -> None:
        """Keep the state behind a failed element: others, which may replace it, move the shard."""
        shard = position % self.num_shards
        self._states = {**self._states, shard: self._elements.state(self._epoch, shard, position + 1, self._states)}

    def others(self, position: int, most: int) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Return replacements of a failed element; see `Elements.others`."""
        return self._elements.others(self._epoch, position, most)

    def costs(self) -> dict[int, tuple[int, list[float]]]:
        """Return the costs of outputs that have been read ahead, behind `states`."""
        return {}

    def states(self) -> dict[int, ShardState]:
        """Return the states of the shards behind the positions."""
        state_behind, epoch, num_shards, states = self._elements.state_behind, self._epoch, self.num_shards, self._states
        positions = sorted(self._positions)  # those that repeat may descend
        last = {position % num_shards: position // num_shards for position in positions}
        return {shard: state_behind(epoch, shard, number, states) for shard, number in last.items()}


class HoldingPartWalk(PartWalk):
    """Goes through positions in any order, and reads ahead behind them.

    Args:
        elements, num_shards, epoch, timed: see `PartWalk`.
        states: known states of its shards. Outputs before them are not wanted any more.
        ahead: for each shard, the first output whose cost is wanted, and the end of those to be read.
        cost: returns the cost of an output.
    """

    def __init__(
        self,
        elements: Elements,
        num_shards: int,
        epoch: int,
        states: Mapping[int, ShardState],
        timed: Timed,
        ahead: Mapping[int, tuple[int, int]],
        cost: Callable[[Any], float],
    ) -> None:
        super().__init__(elements, num_shards, epoch, states, timed)
        self._ahead, self._cost = ahead, cost

    def taker(self) -> Callable[[int], Any]:
        return self._take

    def timed_taker(self) -> Callable[[int], Any]:
        return self._take  # reading is measured

    def _take(self, position: int) -> Any:
        number, shard = divmod(position, self.num_shards)
        walk = self._walk_of(shard, number)
        self._read(walk, shard, number + 1)
        if number >= walk.number:
            raise ShardEndedError
        return walk.take(number)

    def keep_state(self, position: int) -> None:
        """The walks hold their outputs, and others, which may replace a failed one, have walks of their own."""

    def others(self, position: int, most: int) -> Iterator[tuple[str, Callable[[], Any]]]:
        return self._elements.others(self._epoch, position, most, self._states)

    def states(self) -> dict[int, ShardState]:
        """Read ahead, and return the states behind all that has been read."""
        walks = {shard: self._walk_of(shard, first) for shard, (first, _) in self._ahead.items()}
        for walk in walks.values():
            walk.begin()
        for shard, walk in walks.items():
            self._read(walk, shard, self._ahead[shard][1])
        self.ended = [shard for shard, walk in walks.items() if walk.has_ended]
        return {shard: ShardState(walk.number, walk.state()) for shard, walk in walks.items()}

    def costs(self) -> dict[int, tuple[int, list[float]]]:
        return {shard: (first, self._walk_of(shard, first).costs(first, end)) for shard, (first, end) in self._ahead.items()}

    def _walk_of(self, shard: int, number: int) -> HoldingWalk:
        known = self._states.get(shard, ShardState(0, None))
        return self._elements.holding(self._epoch, shard, number, known)

    def _read(self, walk: HoldingWalk, shard: int, end: int) -> None:
        try:
            walk.read_to(end, self._cost, self._timed)
        except BaseException:  # an interrupt
            self._elements.drop_holding(self._epoch, shard)
            raise
