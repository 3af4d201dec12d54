"""What a pass over a loader is to do, how far it has come, and whether what a user gives is a state of that."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, NamedTuple

from dali_like.data.array_backends import ArrayBackend, mixed_seed
from dali_like.data.iterable_walk import REPORTED
from dali_like.errors import CheckpointError

STATE_VERSION = 1


class Plan(NamedTuple):
    """What a loader has been told, as it is when a pass begins; see `dali_like.data.options.LoaderOptions`."""

    dataset: Any
    is_iterable: bool
    batched: bool
    batch_size: int | None
    drop_last: bool
    index_sampler: Iterable[Any]
    num_workers: int
    num_ahead: int
    timeout_s: float
    in_order: bool
    seeded_by_task: bool
    pins: bool
    announced_length: int | None
    array_backend: ArrayBackend


@dataclass
class IteratorState:
    """How far a pass has come: all that there is to resume from.

    Attributes:
        base_seed: what the random numbers of its samples depend on.
        number: and this: which pass it is, of those with this base seed.
        generator: the state of the loader's generator at its beginning; None if it has none.
        sampler: the state of the pass over the sampler at its beginning; of an iterable dataset, None.
        yielded: how many batches have been delivered, of which there is none missing.
        ahead: the batches behind them that have been delivered already.
        steps: of an iterable dataset, how many each worker has been asked for and has delivered or ended.
        turn: of an iterable dataset, the worker whose batch comes next.
        ended: of an iterable dataset, the workers that have come to the end.
        shared_seed: what copies of the dataset have in common; see `ArrayBackend.draw_shared_seed`.
        told: of an iterable dataset, what has been said last of the state of each worker's walk; see
            `dali_like.data.iterable_walk`.
        is_over: whether the pass has ended.
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
    told: list[dict[str, Any]] = field(default_factory=list)
    is_over: bool = False

    @property
    def seed(self) -> int:
        """What the random numbers of its samples depend on."""
        return mixed_seed(self.base_seed, self.number)

    def deliver(self, number: int) -> None:
        """Take note of a batch that has been delivered."""
        self.ahead.append(number)
        while self.yielded in self.ahead:
            self.ahead.remove(self.yielded)
            self.yielded += 1

    def tell(self, told: dict[str, Any] | None) -> None:
        """Take note of what is said of the state of a worker's walk, if anything is."""
        if told is not None:
            self.told = [old for old in self.told if old["worker"] != told["worker"]] + [told]

    def told_by(self, worker: int) -> dict[str, Any] | None:
        """What has been said of the state of a worker's walk."""
        return next((told for told in self.told if told["worker"] == worker), None)


def checked_state(state: Mapping[str, Any], is_iterable: bool, num_workers: int, batch_size: int | None) -> dict[str, Any]:
    """A loader's state, if it is one of this kind of loader.

    Raises:
        CheckpointError: it is not.
    """
    if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
        raise CheckpointError(f"Invalid state_dict: this is no state of a DataLoader: {state!r:.200}")
    missing = {"iterable", "num_workers", "batch_size", "generator", "progress"} - set(state)
    if missing:
        raise CheckpointError(f"Invalid state_dict: it has no {', '.join(sorted(missing))}")
    if bool(state["iterable"]) != is_iterable:
        kinds = ("a map-style", "an iterable")
        raise CheckpointError(
            f"Invalid state_dict: it is of {kinds[not is_iterable]} dataset, and this is {kinds[is_iterable]} one"
        )
    if is_iterable and state["num_workers"] != num_workers:
        raise CheckpointError(
            f"Invalid state_dict: {state['num_workers']} workers had divided the iterable dataset among themselves, "
            f"and this loader has {num_workers}"
        )
    if state["batch_size"] != batch_size:
        raise CheckpointError(
            f"Invalid state_dict: it counts batches of {state['batch_size']} samples, and this loader's have {batch_size}"
        )
    if not isinstance(state["generator"], (Mapping, NoneType)) or not _is_progress(state["progress"]):
        raise CheckpointError("Invalid state_dict: its progress is not what a DataLoader has written")
    return copy.deepcopy(dict(state))


def _is_progress(state: Any) -> bool:
    """Whether these may be the fields of a `IteratorState`, or there is none."""
    if state is None:
        return True
    return (
        isinstance(state, Mapping)
        and set(state) == {field.name for field in dataclasses.fields(IteratorState)}
        and all(_is_count(state[name]) for name in ("base_seed", "number", "yielded", "turn"))
        and all(isinstance(state[name], (list, tuple)) for name in ("ahead", "steps", "ended"))
        and all(_is_count(number) for name in ("ahead", "steps", "ended") for number in state[name])
        and all(isinstance(state[name], (Mapping, NoneType)) for name in ("generator", "sampler"))
        and isinstance(state["told"], (list, tuple))
        and all(map(_is_told, state["told"]))
        and isinstance(state["is_over"], bool)
        and (state["shared_seed"] is None or _is_count(state["shared_seed"]))
    )


def _is_told(told: Any) -> bool:
    return (
        isinstance(told, Mapping)
        and set(told) == set(REPORTED)
        and all(isinstance(told[name], kind) for name, kind in REPORTED.items())
        and _is_count(told["worker"])
        and _is_count(told["steps"])
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
