"""States of composed datasets: made, merged from all ranks, and compared with a description.

A state is a small mapping of numbers and text; see `dali_like.sources.state_format`::

    {"version": 3, "epoch": 0, "position": 1440, "seed": 7, "shards": 60, "description": [...],
     "rank": 0, "num_ranks": 2, "states": {"0": [24, ...], "2": [24, ...], ...}}

``position`` counts the positions that all ranks together have passed. ``states`` has the number of outputs and the state of
each logical shard of the rank; it is empty for streams with random access. A shard may be ahead of the position: then its
positions count as empty up to that number of outputs. A third number replaces the first in this respect, if it is greater.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dali_like.errors import CheckpointError
from dali_like.sources.composed.positions import num_delivered
from dali_like.sources.sharding import ALONE, Shard
from dali_like.sources.state_format import DATASET, ENDED, VERSION, ShardState, fits_entry, listed, read_state

__all__ = ["checked_state", "make_state", "merge_states", "shard_states"]

#: Outputs between the state of a shard and the position: exceptions in a row. More of them would be skipped for hours.
_MOST_BEHIND = 1 << 20


def make_state(
    description: Sequence[str],
    seed: int,
    num_shards: int | None,
    epoch: int,
    position: int,
    states: Mapping[int, ShardState],
    rank: Shard = ALONE,
) -> dict[str, Any]:
    """Return the state of a rank.

    Args:
        description: see `dali_like.sources.composed.stage.Stage.outline`.
        num_shards: None for a stream with random access.
        states: of the shards of this rank.
    """
    return {
        "version": VERSION,
        "epoch": epoch,
        "position": position,
        "seed": seed,
        "shards": num_shards,
        "description": list(description),
        "rank": rank.id,
        "num_ranks": rank.count,
        "states": listed(states),
    }


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of all ranks together.

    It can be loaded on any number of ranks that divides the number of logical shards. It continues at the smallest position
    of the ranks. The shards of the others are ahead: their elements behind that position are not delivered again. A rank
    that is at the beginning of the next epoch has finished this one, with all of its shards.

    Args:
        states: of all ranks, in any order. Streams with random access need only one of them.

    Raises:
        CheckpointError: they are of different streams or epochs, or a rank or a shard is missing; or they are of different
            positions of a stream with random access.
    """
    if not states:
        raise _invalid("there are no states to merge")
    checked = [read_state(state, DATASET, f"state {i}", _invalid) for i, state in enumerate(states)]
    checked = _at_one_position(checked)
    first = checked[0]
    for state in checked:
        for name in ("epoch", "position", "seed", "shards", "description", "num_ranks"):
            if state[name] != first[name]:
                hint = "" if state["shards"] else "; or pass the state of one rank alone, since this stream has no shards"
                raise _invalid(
                    f"rank {state['rank']} has {name} {state[name]!r:.200}, and rank {first['rank']} has "
                    f"{first[name]!r:.200}. Save the states of all ranks after the same number of batches{hint}"
                )
    merged: dict[str, Any] = {}
    for state in checked:
        merged.update(state["states"])
    shard_states({**first, "states": merged})  # an error names the rank that is missing
    whole = {name: value for name, value in first.items() if name != "drawn"}
    return {**whole, **_merged_changes(checked), "rank": 0, "num_ranks": 1, "states": merged}


#: Methods that change settings of a running job, by the part of the state that holds the changes.
_SET_BY = {"batch_sizes": "set_batch_size", "changes": "set_weights"}


def _merged_changes(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the changes of a running job, as all ranks have them. A rank in a later epoch may have forgotten the first.

    Raises:
        CheckpointError: the ranks differ.
    """
    found = {}
    for name, method in _SET_BY.items():
        longest = max((list(state.get(name, ())) for state in states), key=len)
        for state in states:
            own = list(state.get(name, ()))
            if own != longest[len(longest) - len(own) :] or (longest and not own):
                raise _invalid(
                    f"rank {state['rank']} has {name} {own!r:.200}, and another one {longest!r:.200}. Call {method} on all "
                    "ranks after the same number of batches; in a job of torch.distributed they then agree on the position"
                )
        if longest:
            found[name] = longest
    drawn = [state.get("drawn") for state in states]
    # Ranks that have taken no batch have drawn nothing.
    known = [each for each in drawn if each]
    found["drawn"] = list(map(max, *known)) if len(known) > 1 else [*known, []][0]
    return {name: value for name, value in found.items() if name != "drawn" or None not in drawn}


def _at_one_position(states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the states with the smallest position of the ranks, as far as they belong together."""
    epoch = min(state["epoch"] for state in states)
    position = min(state["position"] for state in states if state["epoch"] == epoch)
    return [_moved(state, epoch, position) for state in states]


def _moved(state: dict[str, Any], epoch: int, position: int) -> dict[str, Any]:
    """Return a state with an earlier position: everything that the rank has delivered since stays delivered."""
    num_shards = state["shards"]
    moved = {**state, "epoch": epoch, "position": position}
    if (state["epoch"], state["position"]) == (epoch + 1, 0):
        return {**moved, "states": {shard: [0, ENDED] for shard in state["states"]}}
    if state["epoch"] != epoch or state["position"] == position or num_shards is None:
        return state
    states = {}
    for shard, known in shard_states(state, [int(shard) for shard in state["states"]]).items():
        passed = num_delivered(state["position"], shard, num_shards)
        states[shard] = known._replace(passed=max(known.passed, passed))
    return {**moved, "states": listed(states)}


def shard_states(state: Mapping[str, Any], owned: Collection[int] | None = None) -> dict[int, ShardState]:
    """Return the states of logical shards.

    Args:
        owned: the shards that are needed; default: all.

    Raises:
        CheckpointError: one of them is missing or at another position.
    """
    if state["shards"] is None:
        return {}
    states = {}
    for shard in range(state["shards"]) if owned is None else owned:
        saved = state["states"].get(str(shard))
        if saved is None:
            num_ranks = state["num_ranks"]
            hint = f"; it was saved by rank {shard % num_ranks} of {num_ranks}" if num_ranks > 1 else ""
            raise _invalid(
                f"logical shard {shard} is missing{hint}. Pass the states of all ranks: load_state_dict([...]), or "
                "merge_states"
            )
        expected = num_delivered(state["position"], shard, state["shards"])
        # It may lie before the position: an exception was delivered since, or the shard has ended. It may also be ahead.
        if not fits_entry(saved):
            raise _invalid(f"logical shard {shard} should be at output {expected}, but its state is {saved!r:.200}")
        if saved[1] != ENDED and expected - saved[0] > _MOST_BEHIND:
            raise _invalid(
                f"position is {state['position']}, at which logical shard {shard} should be at output {expected}, but its "
                f"state is of output {saved[0]}"
            )
        states[shard] = ShardState(*saved)
    return states


def checked_state(
    state: Any, description: Sequence[str], seed: int, num_shards: int | None, allow_change: Collection[str] = ()
) -> dict[str, Any]:
    """Return the state, or the merged states, for a dataset.

    Args:
        state: of one rank or of all ranks merged; or a list of the states of all ranks.
        allow_change: parts of stages that may differ: "weights".

    Raises:
        CheckpointError: it is not a state of this stream. The message names the first difference.
    """
    checked = merge_states(state) if isinstance(state, (list, tuple)) else read_state(state, DATASET, "the state", _invalid)
    for name, here in (("seed", seed), ("shards", num_shards)):
        if checked[name] != here:
            raise _invalid(f"it was saved with {name}={checked[name]}, and this dataset has {name}={here}")
    there = _comparable(checked["description"], allow_change)
    for number, (old, new) in enumerate(zip(there, _comparable(description, allow_change), strict=False)):
        if old != new:
            was, now = checked["description"][number], description[number]
            is_possible = _comparable([was], ["weights"]) == _comparable([now], ["weights"])
            way_out = ', or load_state_dict(state, allow_change=["weights"])' if is_possible else ""
            raise _invalid(
                f"line {number} of the description was {was.strip()!r}, and is {now.strip()!r} now. Use the same "
                f"description{way_out}"
            )
    if len(there) != len(description):
        raise _invalid(f"it is of a description of {len(there)} stages and inputs, and this one has {len(description)}")
    return checked


def _comparable(description: Sequence[str], allow_change: Collection[str]) -> list[str]:
    """Return the lines of a description without the parts that may change, which follow a semicolon: ``; weights=...``."""
    return [
        "; ".join(part for part in line.split("; ") if part.partition("=")[0] not in allow_change) for line in description
    ]


def _invalid(problem: str) -> CheckpointError:
    return CheckpointError(f"Invalid state_dict: {problem}")
