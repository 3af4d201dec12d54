"""The states from which loaders, pipelines and composed datasets resume: their format, its check, and readers of older ones.

A state is a mapping of numbers and text that JSON can hold. It has two things, in every kind of state under the same names:

- ``position``: the number of batches before the next one; of a composed dataset, the number of positions of all ranks.
- ``states``: what workers, or logical shards, have reported, by their numbers. Each entry is a `ShardState` as a list:
  ``[taken, state]`` or ``[taken, state, passed]``. The state is the one behind the first `taken` items, and `passed` items
  have been delivered: a program that resumes takes the items between the two again, and drops them. The state is null at the
  beginning and "ended" at the end.

The other entries describe the owner of the state::

    composed dataset  {"version": 3, "epoch", "position", "seed", "shards", "description", "rank", "num_ranks", "states"},
                      and "counts" if the outputs of the shards have been counted; of a loader also "batch_sizes" and
                      "changes": what set_batch_size and set_weights have set, and "drawn": how far mixtures have been drawn
    loader            {"version": 3, "iterable", "num_workers", "batch_size", "generator", "iterator"}; the iterator has
                      {"base_seed", "number", "generator", "sampler", "shared_seed", "position", "ahead", "turn", "states",
                      "is_over"}
    pipeline          {"version": 3, "format", "batch_size", "num_shards", "epoch", "iteration", "ended", "seed", "sources",
                      "iterator"}; a source has {"position", "states", "dataset"}: "dataset" is a composed dataset's state

Runs in any process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dali_like.common.json_state import (
    ANYTHING,
    BOOLEAN,
    LIST,
    MAPPING,
    MOST,
    TEXT,
    Schema,
    check,
    integer,
    list_of,
    mapping,
    optional,
    plain,
)

__all__ = [
    "DATASET",
    "ENDED",
    "LOADER",
    "PIPELINE",
    "VERSION",
    "Form",
    "ShardState",
    "SourceProgress",
    "read_state",
    "is_state_of_dataset",
    "listed",
    "state_of_walk",
    "unlisted",
    "walk_of_state",
]

#: Of the format. Earlier versions had one format for each kind of state, with versions of their own.
VERSION = 3

#: The state of a worker or a shard at its end.
ENDED = "ended"

#: Raises nothing: makes the exception for a problem.
MakeError = Callable[[str], Exception]


class ShardState(NamedTuple):
    """The state of a worker's iterable, or of a logical shard, before one of its items.

    Attributes:
        taken: the number of items before it.
        state: of the walk; None at the beginning; `ENDED` behind the last item.
        passed: the number of items that must not be delivered again, if it is greater than `taken`. Those since the state
            have brought no state.
    """

    taken: int
    state: Any
    passed: int = 0


def listed(states: Mapping[int, ShardState]) -> dict[str, list[Any]]:
    """Return states by their numbers as JSON has them."""
    return {
        str(number): list(state if state.passed > state.taken and state.state != ENDED else state[:2])
        for number, state in sorted(states.items())
    }


def unlisted(states: Mapping[str, Any]) -> dict[int, ShardState]:
    """Return the states that `listed` has returned, which have been checked."""
    return {int(number): ShardState(*state) for number, state in states.items()}


# States of iterables. In a process, a walk through an iterable is saved with its position; see
# `dali_like.engine.worker.streams`.


def state_of_walk(saved: Mapping[str, Any], passed: int = 0) -> ShardState:
    """Return the state of a walk that was saved with its position."""
    return ShardState(saved["position"], {name: value for name, value in saved.items() if name != "position"}, passed)


def walk_of_state(state: ShardState) -> dict[str, Any]:
    """Return a walk as it was saved, with its position."""
    return {**state.state, "position": state.taken}


_position = integer(0, MOST)
_count = integer(0, (1 << 62) - 1)

#: The state of a walk: `Walk.state`, the end of the walk if it is known, and the epoch of a pipeline.
WALK = mapping(epoch=optional(integer()), end=optional(_position), of_iterator=BOOLEAN, state=ANYTHING)
#: The state of a callable.
CALLABLE = mapping(state=ANYTHING)


def fits_entry(entry: Any) -> bool:
    """Return whether a value is the entry of a worker or a shard, apart from the state in it."""
    if LIST(entry, "") is not None or len(entry) not in (2, 3):
        return False
    counts = (entry[0], *entry[2:])
    return all(_position(count, "") is None for count in counts)


_entry = plain("[items, state] or [items, state, items passed]", fits_entry)


def _states_of(schema: Schema) -> Schema:
    """Accept states by their numbers, each at the beginning, at the end, or of a schema."""

    def problem(value: Any, where: str) -> str | None:
        found = MAPPING(value, where)
        for number, entry in value.items() if found is None else ():
            if not (isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) < 10):
                return f"{where} should have the numbers of workers as keys, not {number!r:.200}"
            found = _entry(entry, f"{where}: {number}")
            if found is None and entry[1] is not None and entry[1] != ENDED:
                found = schema(entry[1], f"{where}: {number}")
            if found is not None:
                break
        return found

    return problem


class SourceProgress(NamedTuple):
    """Where one source of a pipeline continues.

    Attributes:
        position: batches delivered of a source that persists across epochs; of a composed dataset, batches delivered in the
            epoch; 0 for others.
        states: its reported states.
        dataset: the state of a composed dataset.
    """

    position: int = 0
    states: Mapping[int, ShardState] = {}
    dataset: Mapping[str, Any] | None = None

    @property
    def has_state(self) -> bool:
        """Whether the source has a state."""
        return bool(self.states) or self.dataset is not None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"position": self.position, "states": listed(self.states), "dataset": self.dataset}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SourceProgress:
        """Return the result of `to_dict`, which has been checked."""
        return cls(saved["position"], unlisted(saved["states"]), saved["dataset"])


# The kinds of states


class Form(NamedTuple):
    """A kind of state.

    Attributes:
        name: of the state, for messages.
        mark: a key that states of no other kind have.
        fields: the schema of this version.
        older: for each older version that can be read: its schema, and a function that makes a state of this version.
    """

    name: str
    mark: str
    fields: Schema
    older: Mapping[int, tuple[Schema, Callable[[Mapping[str, Any]], dict[str, Any]]]]


def read_state(state: Any, form: Form, where: str, error: MakeError) -> dict[str, Any]:
    """Return a state, of this or an older version, as this version has it.

    Args:
        where: its place, for the message.
        error: makes the exception from the message.

    Raises:
        Exception: made by `error`: it is not such a state.
    """
    version = state.get("version") if isinstance(state, Mapping) else None
    known = [*form.older, VERSION]
    if version is None or (form.mark not in state and version not in known):
        raise error(f"{where} is not a state of {form.name}: {state!r:.200}")
    if form.mark not in state:
        for other in (DATASET, LOADER, PIPELINE):
            if other.mark in state:
                raise error(f"{where} is a state of {other.name}, not of {form.name}")
    if version not in known or type(version) is not int:
        versions = " and ".join(map(str, known))
        raise error(f"{where} has version {version!r:.200}; this version of dali_like reads {versions}")
    if version in form.older:
        schema, renewed = form.older[version]
        state = renewed(check(state, schema, where, error))
    return dict(check(state, form.fields, where, error))


def is_state_of_dataset(value: Any) -> bool:
    """Return whether a value looks like a state of a composed dataset."""
    return isinstance(value, Mapping) and {"version", "description", "states"} <= value.keys()


# Composed datasets

_dataset = mapping(
    version=integer(),
    epoch=_position,
    position=_position,
    seed=integer(),
    shards=optional(integer(1)),
    description=list_of(TEXT),
    rank=integer(),
    num_ranks=integer(1, MOST),
    states=MAPPING,  # `shard_states` names a shard whose entry does not fit, and what it should be
)


def _are_batch_sizes(value: Any) -> bool:
    """Return whether a value is a list of an epoch, a position and the positions in a step, ascending."""
    if LIST(value, "") is not None or any(LIST(each, "") is not None or len(each) != 3 for each in value):
        return False
    if any(_position(part, "") is not None for each in value for part in each) or not all(each[2] for each in value):
        return False
    begins = [tuple(each[:2]) for each in value]
    return begins == sorted(set(begins))


def _are_changes(value: Any) -> bool:
    """Return whether a value is a list of the path of a mixture, an epoch, a position, and weights."""
    if LIST(value, "") is not None or any(LIST(each, "") is not None or len(each) != 4 for each in value):
        return False
    return all(
        LIST(path, "") is None
        and LIST(weights, "") is None
        and not any(_position(part, "") for part in (*path, epoch, position))
        and all(isinstance(weight, (int, float)) for weight in weights)
        for path, epoch, position, weights in value
    )


#: The parts of a state that not every state has.
_dataset_options = {
    "counts": list_of(integer()),
    "drawn": list_of(integer()),
    "changes": plain("[[path of the mixture, epoch, position, weights], ...]", _are_changes),
    "batch_sizes": plain("[[epoch, position, positions in a step], ...], ascending", _are_batch_sizes),
}


def _dataset_fields(value: Any, where: str) -> str | None:
    found = _dataset({name: part for name, part in value.items() if name not in _dataset_options}, where)
    for name, schema in _dataset_options.items():
        if found is None and name in value:
            found = schema(value[name], f"{where}: {name}")
    if found is None and "counts" in value and len(value["counts"]) != value["shards"]:
        found = f"{where}: {len(value['counts'])} counts, but {value['shards']} logical shards"
    return found


DATASET = Form(
    "a composed dataset",
    "description",
    _dataset_fields,
    {1: (_dataset_fields, lambda state: {**state, "version": VERSION})},
)


# Loaders

_iterator_beginning = {
    "base_seed": integer(),
    "number": _position,
    "generator": optional(MAPPING),
    "sampler": optional(MAPPING),
    "shared_seed": optional(integer()),
    "ahead": list_of(_position),
    "turn": _position,
    "is_over": BOOLEAN,
}


def _loader_with(iterator: Schema) -> Schema:
    return mapping(
        version=integer(),
        iterable=BOOLEAN,
        num_workers=integer(),
        batch_size=optional(integer()),
        generator=optional(MAPPING),
        iterator=optional(iterator),
    )


_loader = _loader_with(mapping(**_iterator_beginning, position=_position, states=_states_of(WALK)))
_loader_2 = _loader_with(
    mapping(
        **_iterator_beginning,
        yielded=_position,
        steps=list_of(_position),
        ended=list_of(_position),
        reported_states=list_of(
            mapping(worker=_position, steps=_position, ended=BOOLEAN, of_iterator=BOOLEAN, state=ANYTHING)
        ),
    )
)


def _loader_of_2(state: Mapping[str, Any]) -> dict[str, Any]:
    """Version 2 had the numbers of steps, the workers at their end, and the reported states in three lists."""
    given = state["iterator"]
    if given is None:
        return {**state, "version": VERSION}
    iterator = {name: given[name] for name in _iterator_beginning}
    steps = dict(enumerate(given["steps"])) if state["num_workers"] else {0: given["yielded"]}
    states = {}
    for worker, passed in steps.items() if state["iterable"] else ():
        states[worker] = ShardState(passed, ENDED) if worker in given["ended"] else ShardState(0, None, passed)
    for reported in given["reported_states"]:
        worker = reported["worker"]
        if worker in states and states[worker].state != ENDED:
            end = reported["steps"] if reported["ended"] else None
            walk = {"epoch": None, "end": end, "of_iterator": reported["of_iterator"], "state": reported["state"]}
            states[worker] = ShardState(reported["steps"], walk, steps[worker])
    iterator |= {"position": given["yielded"], "states": listed(states)}
    return {**state, "version": VERSION, "iterator": iterator}


LOADER = Form("a DataLoader", "iterable", _loader, {2: (_loader_2, _loader_of_2)})


# Pipelines

#: More logical shards are damage.
_MOST_SHARDS = 1 << 20

#: The entry "format" of a pipeline's state.
PIPELINE_FORMAT = "dali_like checkpoint"

_pipeline_beginning = {
    "version": integer(),
    "format": plain(repr(PIPELINE_FORMAT), lambda value: bool(value == PIPELINE_FORMAT)),
    "batch_size": _count,
    "num_shards": _count,
    "epoch": _count,
    "iteration": _count,
    "ended": BOOLEAN,
    "seed": integer(0, (1 << 128) - 1),
    "iterator": optional(mapping(size=_count, first=_count, count=_count, persists=BOOLEAN, ended=BOOLEAN)),
}
_pipeline = mapping(
    **_pipeline_beginning, sources=list_of(mapping(position=_count, states=_states_of(ANYTHING), dataset=optional(MAPPING)))
)
_pipeline_2 = mapping(**_pipeline_beginning, passed=list_of(_count), sources=list_of(ANYTHING))
_STREAM_2 = {"epoch", "position", "end", "of_iterator", "state"}


def _pipeline_of_2(state: Mapping[str, Any]) -> dict[str, Any]:
    """Version 2 had a list of the batches delivered of each source, and one of states in several forms."""
    given = {name: state[name] for name in _pipeline_beginning}
    sources = [
        _source_of_2(passed, source, state["epoch"])
        for passed, source in zip(state["passed"], state["sources"], strict=False)
    ]
    return {**given, "version": VERSION, "sources": sources}


def _source_of_2(passed: int, source: Any, epoch: int) -> Any:
    if source is None:
        return {"position": passed, "states": {}, "dataset": None}
    if not isinstance(source, Mapping):
        return source  # which is refused
    state = source.get("state")
    if source.keys() == _STREAM_2 and isinstance(state, Mapping) and is_state_of_dataset(state):
        return _stream_of_dataset(source, state, epoch)
    if source.keys() == {"iteration", "state"}:
        return {"position": source["iteration"], "states": {}, "dataset": state}
    entry = [source.get("position", 0), {name: value for name, value in source.items() if name != "position"}]
    return {"position": passed, "states": {"0": entry}, "dataset": None}


def _stream_of_dataset(source: Mapping[str, Any], state: Mapping[str, Any], epoch: int) -> dict[str, Any]:
    """Before version 2 ended, a composed dataset in logical shards was a stream of batches."""
    has_begun = source["of_iterator"] and source["epoch"] == epoch
    if has_begun or _dataset_fields(state, "") is not None or (state["shards"] or 0) > _MOST_SHARDS:
        return {"position": source["position"], "states": {}, "dataset": state}
    shards = range(state["rank"], state["shards"] or 0, state["num_ranks"])
    beginning = {**state, "epoch": epoch, "position": 0, "states": listed(dict.fromkeys(shards, ShardState(0, None)))}
    return {"position": 0, "states": {}, "dataset": beginning}


PIPELINE = Form("a pipeline", "sources", _pipeline, {2: (_pipeline_2, _pipeline_of_2)})
