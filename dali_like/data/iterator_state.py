"""The position of a loader iterator, and checks of the states that users load."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from dali_like.data.array_backends import mixed_seed
from dali_like.data.iterable_walk import TOLD
from dali_like.errors import CheckpointError

STATE_VERSION = 2


@dataclass
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

    def deliver(self, number: int) -> None:
        """Record that a batch has been yielded."""
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


def checked_state(state: Mapping[str, Any], is_iterable: bool, num_workers: int, batch_size: int | None) -> dict[str, Any]:
    """Return a copy of a loader's state, if this kind of loader can resume from it.

    Raises:
        CheckpointError: it cannot.
    """
    if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
        raise CheckpointError(
            f"Invalid state_dict: this is not the state of a DataLoader in format {STATE_VERSION}: {state!r:.200}; "
            "pass a result of DataLoader.state_dict()"
        )
    missing = {"iterable", "num_workers", "batch_size", "generator", "iterator"} - set(state)
    if missing:
        raise CheckpointError(
            f"Invalid state_dict: {', '.join(sorted(missing))} is missing; pass a result of DataLoader.state_dict() as it is"
        )
    if bool(state["iterable"]) != is_iterable:
        kinds = ("a map-style", "an iterable")
        raise CheckpointError(
            f"Invalid state_dict: it is of a loader with {kinds[not is_iterable]} dataset, and this loader has "
            f"{kinds[is_iterable]} one; load it into a loader of the same kind"
        )
    if is_iterable and state["num_workers"] != num_workers:
        raise CheckpointError(
            f"Invalid state_dict: {state['num_workers']} workers had divided the iterable dataset among themselves, "
            f"and this loader has {num_workers}; use num_workers={state['num_workers']}"
        )
    if state["batch_size"] != batch_size:
        raise CheckpointError(
            f"Invalid state_dict: it counts batches of {state['batch_size']} samples, and this loader's have {batch_size}; "
            f"use batch_size={state['batch_size']}"
        )
    if not isinstance(state["generator"], (Mapping, NoneType)) or not _is_iterator_state(state["iterator"]):
        raise CheckpointError(
            "Invalid state_dict: a field of 'iterator' or 'generator' has a wrong type; pass a result of "
            "DataLoader.state_dict() as it is"
        )
    return copy.deepcopy(dict(state))


def _is_iterator_state(state: Any) -> bool:
    """Return whether a value is None, or has the fields of an `IteratorState` with the right types."""
    if state is None:
        return True
    return (
        isinstance(state, Mapping)
        and set(state) == {field.name for field in dataclasses.fields(IteratorState)}
        and all(_is_count(state[name]) for name in ("base_seed", "number", "yielded", "turn"))
        and all(isinstance(state[name], (list, tuple)) for name in ("ahead", "steps", "ended"))
        and all(_is_count(number) for name in ("ahead", "steps", "ended") for number in state[name])
        and all(isinstance(state[name], (Mapping, NoneType)) for name in ("generator", "sampler"))
        and isinstance(state["reported_states"], (list, tuple))
        and all(map(_is_reported_state, state["reported_states"]))
        and isinstance(state["is_over"], bool)
        and (state["shared_seed"] is None or _is_count(state["shared_seed"]))
    )


def _is_reported_state(state: Any) -> bool:
    return (
        isinstance(state, Mapping)
        and set(state) == set(TOLD)
        and all(isinstance(state[name], kind) for name, kind in TOLD.items())
        and _is_count(state["worker"])
        and _is_count(state["steps"])
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
