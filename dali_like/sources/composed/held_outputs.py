"""Outputs of a logical shard that are delivered in another order: they are read ahead, and held until they are wanted.

A loader with ``balance="cost"`` delivers so. Each output is delivered once, and a state tells which ones have been. Another
process continues from it: it delivers the outputs that are left, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dali_like.common.foreign_errors import add_note
from dali_like.errors import CheckpointError
from dali_like.sources.composed.stage import Sharded, ShardWalk, is_anything, is_count, is_list_of
from dali_like.sources.state_format import ENDED

__all__ = ["HeldState", "HoldingWalk", "held_state", "open_shard"]

#: The only key of such a state: no stage has one like it.
_KEY = "read_ahead"


class HeldState(NamedTuple):
    """The state of a shard whose outputs are delivered in another order.

    Attributes:
        state: of the walk before an output; None at the beginning.
        number: the number of this output. All outputs before it have been delivered.
        delivered: the numbers of outputs from this one on that have been delivered, ascending.
        until: the positions below this one could have been chosen, in the latest step.
        cost: the sum of the costs of outputs before `number`, as far as they are known.
        measured: how many are.
    """

    state: Any
    number: int
    delivered: Sequence[int] = ()
    until: int = 0
    cost: float = 0.0
    measured: int = 0

    def plain(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {_KEY: [self.state, self.number, list(self.delivered), self.until, self.cost, self.measured]}


def held_state(state: Any) -> HeldState | None:
    """Return the state of a shard with outputs in another order; None: it is the state of a walk.

    Raises:
        CheckpointError: it is damaged.
    """
    if not isinstance(state, dict) or state.keys() != {_KEY}:
        return None
    parts = state[_KEY]
    if not is_list_of(parts, is_anything, is_count, _are_counts, is_count, _is_cost, is_count):
        raise CheckpointError(f"this is not a state of a shard that is read ahead: {parts!r:.200}")
    return HeldState(*parts)


def _are_counts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(is_count, value)) and list(value) == sorted(set(value))


def _is_cost(value: Any) -> bool:
    return isinstance(value, (int, float)) and value >= 0


def open_shard(evaluator: Sharded, shard: int, epoch: int, state: Any) -> ShardWalk:
    """Open a walk through a shard, also from a state with outputs in another order: those that are left come first."""
    held = held_state(state)
    if held is None:
        return evaluator.open(shard, epoch, state)
    return _RestWalk(evaluator.open(shard, epoch, held.state), held)


class _HeldError(NamedTuple):
    """An output that is an exception."""

    error: Exception


class _RestWalk(ShardWalk):
    """Delivers the outputs that are left, in order. The state is a `HeldState` until it has passed all that were delivered.

    It reads them at once: so a mixture has been drawn as far as it had been before the state.
    """

    def __init__(self, walk: ShardWalk, held: HeldState) -> None:
        self._walk, self._held = walk, held
        self._delivered = list(held.delivered)
        self._rest: deque[tuple[int, Any]] = deque()
        gone = set(held.delivered)
        for number in range(held.number, max(gone, default=held.number - 1) + 1):
            try:
                if number in gone:
                    walk.skip()
                else:
                    self._rest.append((number, next(walk)))
            except StopIteration:
                break
            except Exception as error:
                if number not in gone:
                    self._rest.append((number, _HeldError(error)))

    def __next__(self) -> Any:
        if not self._rest:
            return next(self._walk)
        number, output = self._rest.popleft()
        self._delivered.append(number)
        if type(output) is _HeldError:
            raise output.error
        return output

    def skip(self) -> None:
        if not self._rest:
            self._walk.skip()
            return
        number, _ = self._rest.popleft()
        self._delivered.append(number)

    def begin(self) -> None:
        self._walk.begin()

    def state(self) -> Any:
        if not self._rest:
            return self._walk.state()
        return self._held._replace(delivered=sorted(self._delivered)).plain()


class HoldingWalk:
    """A walk through a shard that reads ahead, and holds its outputs. Used by one thread.

    Args:
        walk: before an output; None: it is at its end.
        number: of this output.

    Attributes:
        number: of the next output to be read.
        has_ended: whether the last one has been read.
    """

    def __init__(self, walk: ShardWalk | None, number: int) -> None:
        self._walk = walk
        self.number = number
        self.has_ended = walk is None
        self._held: dict[int, Any] = {}
        self._costs: dict[int, float] = {}

    def begin(self) -> None:
        """Begin reads for the next outputs, without waiting for them."""
        if self._walk is not None and not self.has_ended:
            self._walk.begin()

    def read_to(
        self, number: int, cost: Callable[[Any], float], timed: Callable[[Callable[[int], Any]], Callable[[int], Any]]
    ) -> None:
        """Read all outputs before this one. Exceptions are outputs without a cost.

        Args:
            cost: returns the cost of an output.
            timed: returns a function with a time measurement.
        """
        walk = self._walk
        take = timed(lambda _: next(walk))  # type: ignore[arg-type]
        while self.number < number and not self.has_ended:
            try:
                output: Any = take(self.number)
                price = cost(output)
            except StopIteration:
                self.has_ended = True
                return
            except Exception as error:  # raised when the output is delivered
                add_note(error, f"raised while output {self.number} of a logical shard was read ahead")
                output, price = _HeldError(error), 0.0
            self._held[self.number], self._costs[self.number] = output, price
            self.number += 1

    def can_give(self, number: int) -> bool:
        """Whether an output is held, or has not been read yet."""
        return number >= self.number or number in self._held

    def take(self, number: int) -> Any:
        """Return an output that has been read, and let go of it.

        Raises:
            Exception: the output is an exception.
        """
        output = self._held.pop(number)
        if type(output) is _HeldError:
            raise output.error
        return output

    def forget(self, number: int) -> None:
        """Let go of all outputs before this one."""
        for old in [each for each in self._costs if each < number]:
            del self._costs[old]
            self._held.pop(old, None)

    def costs(self, first: int, end: int) -> list[float]:
        """Return the costs of outputs that have been read: those from the first one on, up to an unknown one."""
        known: list[float] = []
        for number in range(first, min(end, self.number)):
            if number not in self._costs:
                break
            known.append(self._costs[number])
        return known

    def state(self) -> Any:
        """Return the state before the next output to be read; `ENDED` at the end."""
        if self.has_ended or self._walk is None:
            return ENDED
        return self._walk.state()
