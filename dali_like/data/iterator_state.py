"""The position of a loader iterator, and checks of the states that users load."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dali_like.common.json_state import ANYTHING, BOOLEAN, MAPPING, MOST, check, integer, list_of, mapping, optional
from dali_like.data.array_backends import mixed_seed
from dali_like.data.sampler_iterators import invalid_state

STATE_VERSION = 2


@dataclass(eq=False, repr=False)
class IteratorState:
    """The position of a loader iterator: everything that is needed to resume it. JSON can store all of it.

    Attributes:
        base_seed: seeds the random numbers of the samples, together with `number`.
        number: number of earlier iterators with the same base seed.
        generator: state of the loader's generator at the beginning; None without one.
        sampler: state of the sampler's iterator at the beginning; None for an iterable dataset.
        yielded: number of yielded batches without a gap.
        ahead: numbers of the batches behind a gap that were yielded out of order.
        steps: for an iterable dataset, the number of answered requests of each worker.
        turn: for an iterable dataset, the worker of the next batch.
        ended: for an iterable dataset, the workers at their end.
        shared_seed: see `ArrayBackend.draw_shared_seed`.
        reported_states: for an iterable dataset, the last reported state of each worker; see
            `dali_like.data.iterable_walk`.
        is_over: whether the iterator is at its end.
    """

    base_seed: int
    number: int
    generator: dict[str, Any] | None = None
    sampler: dict[str, Any] | None = None
    yielded: int = 0
    ahead: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    turn: int = 0
    ended: list[int] = field(default_factory=list)
    shared_seed: int | None = None
    reported_states: list[dict[str, Any]] = field(default_factory=list)
    is_over: bool = False

    @property
    def seed(self) -> int:
        """The seed of this epoch."""
        return mixed_seed(self.base_seed, self.number)

    def copied(self) -> dict[str, Any]:
        """Return a copy of all attributes. Pickling takes a tenth of the time of `copy.deepcopy`."""
        copied: dict[str, Any] = pickle.loads(pickle.dumps(vars(self), pickle.HIGHEST_PROTOCOL))
        return copied

    def deliver(self, number: int) -> None:
        """Record that a batch has been yielded."""
        if number == self.yielded and not self.ahead:
            self.yielded += 1
            return
        self.ahead.append(number)
        while self.yielded in self.ahead:
            self.ahead.remove(self.yielded)
            self.yielded += 1

    def note_reported(self, state: dict[str, Any] | None) -> None:
        """Record the reported state of a worker, if there is one."""
        if state is not None:
            self.reported_states = [old for old in self.reported_states if old["worker"] != state["worker"]] + [state]

    def reported_by(self, worker: int) -> dict[str, Any] | None:
        """Return the last reported state of a worker."""
        return next((state for state in self.reported_states if state["worker"] == worker), None)


_reported_state = mapping(worker=integer(), steps=integer(), ended=BOOLEAN, of_iterator=BOOLEAN, state=ANYTHING)
_iterator_state = mapping(
    base_seed=integer(),
    number=integer(0, MOST),
    generator=optional(MAPPING),
    sampler=optional(MAPPING),
    yielded=integer(0, MOST),
    ahead=list_of(integer(0, MOST)),
    steps=list_of(integer(0, MOST)),
    turn=integer(0, MOST),
    ended=list_of(integer(0, MOST)),
    shared_seed=optional(integer()),
    reported_states=list_of(_reported_state),
    is_over=BOOLEAN,
)
_loader_state = mapping(
    version=integer(),
    iterable=BOOLEAN,
    num_workers=integer(),
    batch_size=optional(integer()),
    generator=optional(MAPPING),
    iterator=optional(_iterator_state),
)


def checked_state(state: Any, is_iterable: bool, num_workers: int, batch_size: int | None) -> dict[str, Any]:
    """Return a copy of a loader's state.

    Raises:
        CheckpointError: it is not a state of such a loader.
    """
    if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
        raise invalid_state(f"this is not a state of a DataLoader: {state!r:.200}")
    check(state, _loader_state, "the state", invalid_state)
    if state["iterable"] != is_iterable:
        kinds = ("a map-style", "an iterable")
        raise invalid_state(f"it is of {kinds[not is_iterable]} dataset, and this is {kinds[is_iterable]} one")
    if is_iterable and state["num_workers"] != num_workers:
        raise invalid_state(
            f"{state['num_workers']} workers had divided the iterable dataset among themselves, "
            f"and this loader has {num_workers}: pass num_workers={state['num_workers']}"
        )
    if state["batch_size"] != batch_size:
        raise invalid_state(f"it counts batches of {state['batch_size']} samples, and this loader's have {batch_size}")
    return copy.deepcopy(dict(state))
