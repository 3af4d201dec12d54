"""Walks through iterable datasets, and what datasets say of their state on the way.

With each batch comes what the state is behind it, if the iterator knows that, or else the dataset; in workers as in the main
process. Whoever takes the place of a worker, in this run or in a later one, is handed it, and walks on from there.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dali_like.engine.worker.info import is_worker_thread
from dali_like.engine.worker.iterable_states import knows_its_state
from dali_like.errors import CheckpointError

_log = logging.getLogger("dali_like")


@dataclass
class Walk:
    """A walk through an iterable dataset.

    Attributes:
        items: what is left of it.
        steps: how many have been taken.
        has_ended: whether nothing is left.
        unplaced: what steps have made that found no room, by their number: they will be asked for again.
        is_silent: whether it has turned out that nothing can be said of its state.
    """

    items: Iterator[Any]
    steps: int = 0
    has_ended: bool = False
    unplaced: dict[int, Any] = field(default_factory=dict)
    is_silent: bool = False


def told_by(walk: Walk, worker: int, dataset: Any) -> dict[str, Any] | None:
    """Where a worker's walk is, and what is said of the state there; None if nobody knows that."""
    by_iterator = knows_its_state(walk.items)
    knower: Any = walk.items if by_iterator else _owner(dataset)
    if knower is None or walk.is_silent:
        return None
    try:
        state = copy.deepcopy(knower.state_dict())
    except Exception as error:
        walk.is_silent = True
        if not _wants_arguments(knower.state_dict):
            who = type(knower).__qualname__
            _log.warning("%s.state_dict() raised %r; who goes on from a state of the loader walks through it", who, error)
        return None
    told = {"worker": worker, "steps": walk.steps, "ended": walk.has_ended, "of_iterator": by_iterator, "state": state}
    return None if state is None else told


def walk_from(told: dict[str, Any], begin: Callable[[], Iterator[Any]], dataset: Any) -> Walk:
    """A walk that goes on from what `told_by` has returned.

    Raises:
        CheckpointError: here nobody knows the state.
    """
    state = copy.deepcopy(told["state"])
    if not told["of_iterator"]:
        restore(dataset, state)
    if told["ended"]:
        return Walk(iter(()), told["steps"], has_ended=True)
    items: Any = begin()
    if told["of_iterator"]:
        if not knows_its_state(items):
            raise CheckpointError(
                "Invalid state_dict: it has the state of an iterator; the dataset's has no load_state_dict()"
            )
        items.load_state_dict(state)
    return Walk(items, told["steps"])


def restore(dataset: Any, state: Any) -> None:
    """Hand a dataset its state back.

    Raises:
        CheckpointError: it has no use for it.
    """
    owner = _owner(dataset)
    if owner is None:
        why = "that threads share" if knows_its_state(dataset) else "that has no load_state_dict()"
        raise CheckpointError(f"Invalid state_dict: it has the state of a dataset, and here is one {why}")
    owner.load_state_dict(state)


def _wants_arguments(state_dict: Any) -> bool:
    """Whether it is meant for something else, as that of MosaicML's ``StreamingDataset``, which its own loader calls."""
    try:
        inspect.signature(state_dict).bind()
    except TypeError:
        return True
    except ValueError:  # some built-in functions have none
        return False
    return False


def _owner(dataset: Any) -> Any:
    """A dataset that knows the state of its only walk; several threads have the same one."""
    return dataset if knows_its_state(dataset) and not is_worker_thread() else None
