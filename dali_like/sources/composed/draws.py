"""How far mixtures have been drawn at a state of a dataset: for changes of weights, and for reports.

With random access, arithmetic tells it (`Stage.reach`). In logical shards, walks are opened from their states. A stage that
works in blocks has drawn more than its state says, if a block is open: then the walk reproduces one more output.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dali_like.errors import CheckpointError
from dali_like.sources.composed.costs import Cost
from dali_like.sources.composed.endless_inputs import with_epochs
from dali_like.sources.composed.held_outputs import open_shard
from dali_like.sources.composed.mixing import Mix, MixWalk, checked_schedule, quotas
from dali_like.sources.composed.selection import Concat, Repeat, ShardOut
from dali_like.sources.composed.stage import (
    Place,
    RandomAccessWalk,
    Sharded,
    ShardedStage,
    ShardWalk,
    SingleInputStage,
    Stage,
    WeightChange,
    in_shards,
    no_reach,
    with_inputs,
)
from dali_like.sources.composed.states import shard_states
from dali_like.sources.state_format import ENDED

__all__ = ["InputReport", "MixtureReport", "MixtureReports", "PieceReport", "check_weights", "report"]

#: Elements of an input that are read for a report of costs.
_MOST_COSTS = 100


class Drawn(NamedTuple):
    """How far a mixture has been drawn.

    Attributes:
        line: of the mixture, in the description.
        mixture: the stage.
        place: of the mixture.
        epoch: of the mixture.
        end: positions below it have been drawn, or some of them; for a mixture in shards, outputs of the farthest shard.
        walks: through the shards; empty with random access.
    """

    line: int
    mixture: Mix
    place: Place
    epoch: int
    end: int
    walks: Sequence[MixWalk] = ()


def check_weights(
    stage: Stage, seed: int, num_shards: int, state: Mapping[str, Any], owned: Sequence[int] | None = None
) -> None:
    """Check that a state with other weights can be continued: all that has been drawn has the same weights.

    In logical shards, this computes one element of each shard.

    Args:
        state: of a dataset with the same stages, but for weights.
        owned: the logical shards to check; default: all in the state.

    Raises:
        CheckpointError: some positions with other weights have been drawn already.
    """
    stage = with_epochs(stage) if stage.is_sharded else stage
    old_weights = _old_weights(stage, state["description"])
    if not old_weights or not (state["position"] or state["epoch"]):
        return
    for drawn in _drawn(stage, Place(seed, num_shards), state, owned, old_weights.__contains__, replays=True):
        mixture = drawn.mixture
        if drawn.epoch and _goes_on(mixture):
            raise no_reach(mixture)  # the weights say where the inputs go on in this epoch
        before = dataclasses.replace(mixture, weights=old_weights[drawn.line])
        if mixture.is_sharded:
            unit = drawn.place.num_shards
            difference = mixture.schedule(unit).first_difference(before.schedule(unit))
        else:
            unit = 1
            difference = mixture.whole_schedule.first_difference(before.whole_schedule)
        if difference is not None and difference < drawn.end:
            raise _drawn_already(drawn, before, difference * unit, -(-drawn.end // mixture.block) * mixture.block * unit)


def _old_weights(stage: Stage, description: Sequence[str]) -> dict[int, Any]:
    """Return the weights in the description of a state, by line, where they are others."""
    found = {}
    for line, (old, new) in enumerate(zip(description, _stages(stage), strict=True)):
        if isinstance(new, Mix) and old.strip() != new.text:
            text = old.partition("; weights=")[2]
            try:
                found[line] = checked_schedule(len(new.inputs), None, json.loads(text))
            except (ValueError, TypeError) as error:
                raise CheckpointError(f"Invalid state_dict: {text!r:.200} are not weights of {new.name}: {error}") from error
    return found


def _drawn_already(drawn: Drawn, before: Mix, difference: int, wanted: int) -> CheckpointError:
    pieces = [piece for piece in before.weights if piece[0] < wanted]
    pieces.append((wanted, drawn.mixture.weights[-1][1]))
    schedule = ", ".join(f"({begin}, {list(weights)})" for begin, weights in pieces)
    return CheckpointError(
        f"Invalid state_dict: the weights of {drawn.mixture.name} differ from position {difference} on, and positions up to "
        f"{wanted} have been drawn with the old ones. Let the new weights begin there: schedule=[{schedule}]"
    )


def _stages(stage: Stage) -> list[Stage]:
    """Return the stages with a line in `Stage.outline`, in its order."""
    own = [stage] if stage.has_line else []
    return [*own, *(below for each in stage.inputs for below in _stages(each))]


def _drawn(
    stage: Stage,
    place: Place,
    state: Mapping[str, Any],
    owned: Sequence[int] | None,
    is_wanted: Callable[[int], bool],
    *,
    replays: bool,
) -> list[Drawn]:
    """Return how far the mixtures in some lines have been drawn.

    Args:
        replays: whether to reproduce one more output of each shard; see the module.
    """
    found: list[Drawn] = []
    epoch, position = state["epoch"], state["position"]
    if not stage.is_sharded:
        length = stage.length
        _reach(stage, 0, place, epoch, position if length is None else min(position, length), is_wanted, found)
        return found
    probes: list[_Probe] = []
    evaluator = _with_probes(stage, 0, is_wanted, probes).evaluator(place)
    assert isinstance(evaluator, Sharded)
    shards = owned if owned is not None else sorted(map(int, state["states"]))
    for shard, saved in shard_states(state, shards).items():
        if saved.state == ENDED:
            if replays:
                raise no_reach(stage)
            continue
        walk = open_shard(evaluator, shard, epoch, saved.state)
        if replays and saved.taken:
            try:
                next(walk)
            except StopIteration:
                pass
            except Exception:  # an output like any other: it is raised again where it is asked for
                pass
    for probe in probes:
        if isinstance(probe.input, Mix) and probe.input.is_sharded:
            walks = [opened.walk for opened in probe.opened if isinstance(opened.walk, MixWalk)]
            end = max((walk.state()[0] for walk in walks), default=0)
            found.append(Drawn(probe.line, probe.input, probe.places[0], epoch, end, walks))
            continue
        if replays:
            end = max((opened.end for opened in probe.opened), default=0)
        else:
            end = sum(opened.taken for opened in probe.opened)
        _reach(probe.input, probe.line, probe.places[0], epoch, end, is_wanted, found)
    return found


def _reach(
    stage: Stage,
    line: int,
    place: Place,
    epoch: int,
    end: int,
    is_wanted: Callable[[int], bool],
    found: list[Drawn],
    *,
    only_latest: bool = False,
) -> None:
    """Collect how far the mixtures up to a stage with random access have been drawn for its outputs below `end`.

    Args:
        only_latest: whether the latest epoch of a mixture is enough: earlier ones are complete, and do not change.
    """
    stages = _stages(stage)
    if not any(is_wanted(line + i) and isinstance(each, Mix) for i, each in enumerate(stages)):
        return
    if isinstance(stage, Mix) and is_wanted(line):
        found.append(Drawn(line, stage, place, epoch, end))
    line += stage.has_line
    is_above = any(is_wanted(line + i) and isinstance(each, Mix) for i, each in enumerate(stages[stage.has_line :]))
    if not is_above:
        return
    needed = [(epoch, 0)] * len(stage.inputs)
    if end or (epoch and _goes_on(stage)):
        if isinstance(stage, Mix):
            needed = stage.reach_by(stage.schedule_at(place, epoch), epoch, end, only_latest=only_latest)
        elif isinstance(stage, Repeat) and only_latest:
            needed = stage.latest_reach(epoch, end)
        else:
            needed = stage.reach(epoch, end)
    for number, (each, (input_epoch, input_end)) in enumerate(zip(stage.inputs, needed, strict=True)):
        below = place.input(number) if stage.has_line else place
        _reach(each, line, below, input_epoch, input_end, is_wanted, found, only_latest=only_latest)
        line += len(_stages(each))


def _goes_on(stage: Stage) -> bool:
    """Return whether an epoch of a stage with random access begins where the last one has ended in an input."""
    if stage.is_sharded or stage.length is None:
        return False
    return isinstance(stage, Repeat) or any(each.length is None for each in stage.inputs)


#: In the ends of draws behind `Repeat`, a round counts as so many positions: more than it has.
_ROUND = 1 << 40


class _Opened(NamedTuple):
    """A walk through a shard of a probe.

    Attributes:
        epoch: of the dataset; 0 if there are endless rounds, which count for all epochs.
        begin: of the round, as `Watch.ends` counts it.
    """

    walk: MixWalk | RandomAccessWalk
    shard: int
    num_shards: int
    epoch: int
    begin: int

    @property
    def taken(self) -> int:
        """The number of elements taken from an input with random access, or of steps of a mixture."""
        return self.walk.taken

    @property
    def end(self) -> int:
        """The end of their positions."""
        taken = self.walk.taken
        return (taken - 1) * self.num_shards + self.shard + 1 if taken else 0


@dataclass(frozen=True)
class _Probe(ShardedStage, SingleInputStage):
    """Stands for its input, and keeps the walks that are opened.

    Attributes:
        repeats: how often each `Repeat` behind it repeats it, the last stage first.
    """

    line: int
    repeats: tuple[int | None, ...] = ()
    opened: list[_Opened] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.input.text

    @property
    def is_endless(self) -> bool:
        return self.input.is_endless

    def evaluator(self, place: Place) -> Sharded:
        self.places.append(place)
        return _ProbeSharded(self, place.num_shards, in_shards(self.input.evaluator(place), place))

    def epoch_in(self, epoch: int) -> int:
        """Return the epoch of `_Opened` for an epoch of the dataset."""
        return 0 if None in self.repeats else epoch

    def epoch_of(self, epoch: int) -> int:
        """Return the same for an epoch of the input."""
        if None in self.repeats:
            return 0
        for times in reversed(self.repeats):
            epoch //= times or 1
        return epoch


class _ProbeSharded(Sharded):
    def __init__(self, probe: _Probe, num_shards: int, source: Sharded) -> None:
        self._probe, self._num_shards, self._source = probe, num_shards, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        walk, probe = self._source.open(shard, epoch, state), self._probe
        assert isinstance(walk, (MixWalk, RandomAccessWalk))
        begin = epoch * _ROUND if probe.repeats else 0
        probe.opened.append(_Opened(walk, shard, self._num_shards, probe.epoch_of(epoch), begin))
        return walk


def _with_probes(stage: Stage, line: int, is_wanted: Callable[[int], bool], probes: list[_Probe]) -> Stage:
    """Return a copy of a stage, in which probes stand for mixtures in shards, and for inputs with random access.

    Raises:
        CheckpointError: a mixture is opened several times, or at other times than its neighbors.
    """
    wanted = [is_wanted(line + i) and isinstance(each, Mix) for i, each in enumerate(_stages(stage))]
    if not any(wanted):
        return stage
    if not stage.is_sharded or (isinstance(stage, Mix) and wanted[0] and not any(wanted[1:])):
        probes.append(_Probe(stage, line))
        return probes[-1]
    if isinstance(stage, (Concat, Repeat, Mix)):
        raise no_reach(stage)
    line += stage.has_line
    copies = []
    for each in stage.inputs:
        copies.append(_with_probes(each, line, is_wanted, probes))
        line += len(_stages(each))
    return with_inputs(stage, copies)


class Reach(NamedTuple):
    """How far a mixture has been drawn in an epoch of it: positions from `position` on may get other weights."""

    epoch: int
    position: int


class DrawnMixture(NamedTuple):
    """A mixture of a description.

    Attributes:
        path: see `dali_like.sources.composed.stage.Place`.
        stage: the mixture.
        why_fixed: why its weights cannot change while a job runs; None if they can.
    """

    path: tuple[int, ...]
    stage: Mix
    why_fixed: str | None


def mixtures_of(stage: Stage) -> list[DrawnMixture]:
    """Return the mixtures of a description, in its order."""
    return list(_mixtures(stage, (), None))


def _mixtures(stage: Stage, path: tuple[int, ...], why_fixed: str | None) -> Iterator[DrawnMixture]:
    if isinstance(stage, Mix):
        why = why_fixed
        if not stage.is_sharded and stage.length is not None:
            why = 'its length would change: describe it with stop="never", and an end with take(count) if you want one'
        yield DrawnMixture(path, stage, why)
    if stage.is_sharded and isinstance(stage, (Concat, Mix)):
        why_fixed = f"stage {stage.text} behind it hides its position"
    for number, each in enumerate(stage.inputs):
        yield from _mixtures(each, (*path, number) if stage.has_line else path, why_fixed)


def listed_changes(changes: Sequence[WeightChange]) -> list[list[Any]]:
    """Return changes of weights as states have them."""
    return [[list(each.path), each.epoch, each.position, list(each.weights)] for each in changes]


def changes_in(state: Mapping[str, Any], mixtures: Sequence[DrawnMixture]) -> tuple[WeightChange, ...]:
    """Return the changes of weights in a state.

    Raises:
        CheckpointError: they do not fit the mixtures.
    """
    known = {mixture.path: mixture.stage for mixture in mixtures}
    found = []
    for path, epoch, position, weights in state.get("changes", ()):
        mixture = known.get(tuple(path))
        if mixture is None:
            raise CheckpointError(f"Invalid state_dict: changes: there is no mixture at {path!r:.200} of this dataset")
        try:
            ((_, numbers),) = checked_schedule(len(mixture.inputs), weights, None)
            quotas(numbers, mixture.block, mixture.names)
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"Invalid state_dict: changes of {mixture.name}: {error}") from error
        found.append(WeightChange(tuple(path), epoch, position, numbers))
    return tuple(found)


class Watch:
    """Tells how far the mixtures of a dataset have been drawn by an evaluator.

    In logical shards, it keeps the walks of the evaluator through mixtures, and through inputs with random access.

    Attributes:
        stage: the description, for the evaluator to watch.
    """

    def __init__(self, stage: Stage) -> None:
        self._probes: list[_Probe] = []
        self.stage = self._watched(stage, ()) if stage.is_sharded else stage
        #: The ends of the draws of walks that have been left, by epoch and probe.
        self._ends: dict[tuple[int, int], int] = {}
        #: The epoch and the number of walks of the latest call.
        self._latest: tuple[int, list[int]] | None = None

    def _watched(self, stage: Stage, repeats: tuple[int | None, ...]) -> Stage:
        if not any(isinstance(each, Mix) for each in _stages(stage)):
            return stage
        if not stage.is_sharded or isinstance(stage, Mix):
            self._probes.append(_Probe(stage, 0, repeats))
            return self._probes[-1]
        if isinstance(stage, Concat):
            return stage
        if isinstance(stage, Repeat):
            repeats = (*repeats, stage.times)
        return with_inputs(stage, [self._watched(each, repeats) for each in stage.inputs])

    def ends(self, epoch: int) -> tuple[int, ...]:
        """Return how far each probe has been drawn in an epoch, in all shards together: the end of its positions.

        Behind `Repeat`, that of the latest round; the number of the round times `_ROUND` is added.
        """
        counts = [len(probe.opened) for probe in self._probes]
        if self._latest == (epoch, counts):  # the same walks, mostly
            return tuple(self._end(number, probe, epoch) for number, probe in enumerate(self._probes))
        for number, probe in enumerate(self._probes):
            latest: dict[tuple[int, int], _Opened] = {}
            for opened in probe.opened:
                key = opened.epoch, number
                self._ends[key] = max(self._ends.get(key, 0), opened.begin + opened.end)
                latest[opened.epoch, opened.shard] = opened
            first = probe.epoch_in(epoch) - 1
            # Walks that have been left draw no more.
            probe.opened[:] = [opened for opened in latest.values() if opened.epoch >= first]
            for key in [key for key in self._ends if key[1] == number and key[0] < first]:
                del self._ends[key]
        self._latest = epoch, [len(probe.opened) for probe in self._probes]
        return tuple(self._end(number, probe, epoch) for number, probe in enumerate(self._probes))

    def _end(self, number: int, probe: _Probe, epoch: int) -> int:
        own = probe.epoch_in(epoch)
        walks = [opened.begin + opened.end for opened in probe.opened if opened.epoch == own]
        return max([self._ends.get((own, number), 0), *walks])


def reach_of(stage: Stage, place: Place, path: Sequence[int], epoch: int, ends: Sequence[int]) -> Reach:
    """Return how far a mixture has been drawn.

    Args:
        place: of the last stage.
        path: of the mixture.
        epoch: of the dataset.
        ends: as of `Watch.ends`; with random access, the end of the positions of the dataset.

    Raises:
        CheckpointError: a stage behind it hides its position.
    """
    if not stage.is_sharded:
        return _reach_below(stage, place, path, epoch, ends[0])
    number = 0

    def search(stage: Stage, place: Place, epoch: int, has_rounds: bool) -> Reach | None:
        nonlocal number
        if not any(isinstance(each, Mix) for each in _stages(stage)):
            return None
        is_here = tuple(path[: len(place.path)]) == place.path
        if not stage.is_sharded or isinstance(stage, Mix):
            number += 1
            end = ends[number - 1]
            if not is_here:
                return None
            if has_rounds:
                latest, end = divmod(max(end, epoch * _ROUND), _ROUND)
                epoch = max(epoch, latest)
            return Reach(epoch, end) if stage.is_sharded else _reach_below(stage, place, path, epoch, end)
        if isinstance(stage, Concat):
            return None
        if isinstance(stage, Repeat):
            epoch, has_rounds = epoch * (stage.times or 0), True
        for i, each in enumerate(stage.inputs):
            below = place if not stage.has_line else place.input(i)
            if (found := search(each, _in_wider_shards(stage, below), epoch, has_rounds)) is not None:
                return found
        return None

    found = search(with_epochs(stage), place, epoch, False)
    if found is None:
        raise no_reach(stage)
    return found


def _in_wider_shards(stage: Stage, place: Place) -> Place:
    """Return the place of an input, with the number of its logical shards."""
    return place._replace(num_shards=place.num_shards * stage.count) if isinstance(stage, ShardOut) else place


def _reach_below(stage: Stage, place: Place, path: Sequence[int], epoch: int, end: int) -> Reach:
    found: list[Drawn] = []
    _reach(stage, 0, place, epoch, end, lambda _: True, found, only_latest=True)
    (drawn,) = [each for each in found if each.place.path == tuple(path)]
    # Positions of an endless mixture go on from epoch to epoch.
    return Reach(0 if drawn.mixture.length is None else drawn.epoch, drawn.end)


@dataclass(frozen=True)
class PieceReport:
    """Positions of a mixture with the same weights.

    Attributes:
        begin: the first position: that of the schedule, rounded up to a block.
        quotas: positions of each input in a block.
        weights: as given, as shares of 1.
        shares: the quotas, as shares of 1: the weights after rounding.
    """

    begin: int
    quotas: tuple[int, ...]
    weights: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class InputReport:
    """Elements that a mixture has drawn from an input in this epoch.

    With random access, stages behind the mixture that shuffle count whole blocks. In logical shards, elements that belong to
    an open block, or to an open iterable, do not count yet.

    Attributes:
        name: of the input.
        samples: elements. In the state of a rank, only elements of its shards.
        epochs: the same in epochs of the input; None if its length is unknown.
        tokens: the sum of their costs, estimated from the mean of up to 100 elements; None without a function.
    """

    name: str
    samples: int
    epochs: float | None
    tokens: float | None


@dataclass(frozen=True)
class MixtureReport:
    """A mixture, and how far it has been drawn.

    Attributes:
        name: of the mixture, with its inputs.
        block: positions per block.
        pieces: the schedule after rounding.
        inputs: draws until a state.
    """

    name: str
    block: int
    pieces: tuple[PieceReport, ...]
    inputs: tuple[InputReport, ...]

    def __str__(self) -> str:
        """Return a table with a line for each input."""
        lines = [["input", *(f"share from {piece.begin}" for piece in self.pieces), "samples", "epochs", "tokens"]]
        for number, each in enumerate(self.inputs):
            shares = [f"{100 * piece.shares[number]:.2f} %" for piece in self.pieces]
            epochs = "" if each.epochs is None else f"{each.epochs:.3f}"
            tokens = "" if each.tokens is None else f"{each.tokens:,.0f}"
            lines.append([each.name, *shares, f"{each.samples:,}", epochs, tokens])
        columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
        widths = [max(map(len, column)) for column in columns]
        rows = [
            "  ".join([first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))])
            for first, *rest in zip(*columns, strict=True)
        ]
        return "\n".join([f"{self.name}, {self.block} positions in a block", *rows])


class MixtureReports(list[MixtureReport]):
    """The reports of all mixtures of a dataset. `print` shows them as tables."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self)) or "no mixtures"


def report(stage: Stage, place: Place, state: Mapping[str, Any], cost: Cost | None) -> MixtureReports:
    """Return reports of all mixtures of a dataset, at a state; `place` is that of its last stage."""
    stage = with_epochs(stage) if stage.is_sharded else stage
    reports = MixtureReports()
    for line, each in enumerate(_stages(stage)):
        if isinstance(each, Mix):
            (drawn,) = _drawn(stage, place, state, None, line.__eq__, replays=False)
            reports.append(_report(drawn, cost))
    return reports


def _report(drawn: Drawn, cost: Cost | None) -> MixtureReport:
    mixture, place = drawn.mixture, drawn.place
    if mixture.is_sharded:
        samples = [sum(counts) for counts in zip(*(walk.drawn for walk in drawn.walks), strict=True)]
        samples = samples or [0] * len(mixture.inputs)
    else:
        schedule = mixture.schedule_at(place, drawn.epoch)
        samples = schedule.drawn_until(drawn.end, place.seed_of(drawn.epoch))
    inputs = []
    for number, (name, each, count) in enumerate(zip(mixture.names, mixture.inputs, samples, strict=True)):
        epochs = count / each.length if each.length else None
        tokens = None if cost is None else count * _mean_cost(each, place.input(number), count, cost)
        inputs.append(InputReport(name, count, epochs, tokens))
    return MixtureReport(mixture.name, mixture.block, _pieces(drawn), tuple(inputs))


def _pieces(drawn: Drawn) -> tuple[PieceReport, ...]:
    """Return the schedule after rounding, with the changes of weights in this epoch."""
    mixture, place = drawn.mixture, drawn.place
    num_shards = place.num_shards if mixture.is_sharded else 1
    unit = mixture.block * num_shards
    weights = {-(-begin // unit): numbers for begin, numbers in mixture.weights}
    pieces = [
        PieceReport(piece.begin * unit, piece.quotas, _shares(weights[piece.begin]), _shares(piece.quotas))
        for piece in mixture.schedule(num_shards).pieces
    ]
    for change in place.changes:
        if change.path == place.path and change.epoch <= drawn.epoch:
            begin = change.position if change.epoch == drawn.epoch else 0
            numbers = quotas(change.weights, mixture.block, mixture.names)
            pieces = [piece for piece in pieces if piece.begin < begin]
            pieces.append(PieceReport(begin, numbers, _shares(change.weights), _shares(numbers)))
    return tuple(pieces)


def _shares(numbers: Sequence[float]) -> tuple[float, ...]:
    total = sum(numbers)
    return tuple(number / total for number in numbers)


def _mean_cost(stage: Stage, place: Place, count: int, cost: Cost) -> float:
    """Return the mean cost of some of the elements drawn from an input."""
    number = min(count, _MOST_COSTS)
    source = stage.evaluator(place)
    if isinstance(source, Sharded):
        elements = list(itertools.islice(source.open(0, 0), number))
    else:
        elements = [source.at(i * count // number) for i in range(number)]
    return sum(map(cost.number, elements)) / max(len(elements), 1)
