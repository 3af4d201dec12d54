"""The contract of stages: the parts of a description, and their evaluators.

A `Stage` is a part of a description: immutable, picklable, cheap to copy. `Stage.evaluator` returns its evaluator for one
process: one of two kinds.

- `RandomAccess`: the element at any position is computed by itself. There is no state.
- `Sharded`: the number of outputs is unknown. The stream runs in logical shards, each evaluated in order by a `ShardWalk`.
  The state of a walk consists of positions of its inputs.

**Epochs.** Positions of a `RandomAccess` run on: the epoch of a position is ``position // length``, and each stage passes
it on to its inputs. So an input is reshuffled when it is repeated. A `ShardWalk` is opened for one epoch.

**Randomness.** A stage draws from generators that depend on its `Place`, an epoch and a position, and on nothing else.
"""

from __future__ import annotations

import abc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.random  # in the forkserver: NumPy imports it on first use, in each worker
from numpy.typing import NDArray

from dali_like.common.foreign_errors import add_note
from dali_like.common.json_state import MOST
from dali_like.errors import CheckpointError

__all__ = [
    "Place",
    "RandomAccess",
    "RandomAccessWalk",
    "ShardWalk",
    "Sharded",
    "ShardedStage",
    "SingleInputStage",
    "SourceRows",
    "Stage",
    "WeightChange",
    "WeightChanges",
    "by_group",
    "generator_at",
    "joined",
    "no_reach",
    "note_place",
    "rows_of_inputs",
    "skip_any",
    "skip_many",
    "with_inputs",
]


class WeightChange(NamedTuple):
    """Other weights of a mixture, which were set while a job was running.

    Attributes:
        path: of the mixture; see `Place`.
        epoch: of the mixture. Later epochs have these weights from the beginning.
        position: of the mixture in that epoch, from which they hold. In logical shards, that of all shards together.
        weights: one for each input.
    """

    path: tuple[int, ...]
    epoch: int
    position: int
    weights: tuple[float, ...]


class WeightChanges(NamedTuple):
    """All changes of weights of a dataset.

    Attributes:
        version: increases with each change, and with each loaded state. A later version gives the same elements at positions
            that have been requested with an earlier one.
        items: ascending for each mixture.
    """

    version: int = 0
    items: tuple[WeightChange, ...] = ()


class Place(NamedTuple):
    """The place of a stage in a description.

    Attributes:
        seed: of the dataset.
        num_shards: of the dataset.
        path: the numbers of inputs on the way from the last stage to this one.
        changes: of the weights of all mixtures, in ascending order for each.
    """

    seed: int
    num_shards: int
    path: tuple[int, ...] = ()
    changes: tuple[WeightChange, ...] = ()

    def input(self, number: int) -> Place:
        """Return the place of an input."""
        return self._replace(path=(*self.path, number))

    def seed_of(self, *numbers: int) -> int:
        """Return a seed of 64 bits for this stage and some numbers, such as an epoch."""
        entropy = [self.seed, len(self.path), *self.path, *numbers]
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class Stage(abc.ABC):
    """A part of a description.

    `dali_like.sources.composed.dataset.ComposedDataset` checks the arguments.

    Attributes:
        has_line: whether it has a line of its own in `outline`; a cache has none.
    """

    has_line: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def inputs(self) -> tuple[Stage, ...]:
        """The stages whose elements it gets."""

    @property
    def is_sharded(self) -> bool:
        """Whether the stream runs in logical shards. By default, if an input does."""
        return any(stage.is_sharded for stage in self.inputs)

    @property
    def is_columnar(self) -> bool:
        """Whether its elements are record batches, and positions count their rows; see `columnar`."""
        return False

    @property
    def is_random(self) -> bool:
        """Whether its outputs differ between epochs although its inputs do not."""
        return False

    @property
    def is_endless(self) -> bool:
        """Whether an epoch has no end. By default, if an input has none."""
        return any(stage.is_endless for stage in self.inputs)

    @property
    def varies(self) -> bool:
        """Whether elements may differ from epoch to epoch. By default, if an input varies or is endless."""
        return any(stage.varies or stage.is_endless for stage in self.inputs)

    @property
    def count_varies(self) -> bool:
        """Whether the number of outputs of a shard may differ from epoch to epoch. By default, if an input varies."""
        return any(stage.varies or stage.is_endless for stage in self.inputs)

    @property
    def has_rows(self) -> bool:
        """Whether all its elements are rows of arrays, which `RandomAccess.rows` finds."""
        return False

    @property
    @abc.abstractmethod
    def length(self) -> int | None:
        """The number of elements in an epoch; None if the stream is endless, or runs in shards."""

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """The stage with its arguments, in one line: a resume compares it, and messages name the stage by it."""

    @abc.abstractmethod
    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        """Return the evaluator of the stage for this process."""

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        """Return which elements of the inputs the outputs below `end` of an epoch may need, with random access.

        Resuming with other weights of a mixture is only possible if each stage behind it has this method.

        Args:
            end: 0 only if earlier epochs have drawn from an input that goes on in this one.

        Returns:
            For each input its epoch, and the end of the positions there.

        Raises:
            CheckpointError: it is unknown, or earlier epochs of an input are needed, too.
        """
        raise no_reach(self)

    def outline(self, indent: str = "") -> list[str]:
        """Return the texts of this stage and of its inputs, inputs indented."""
        if not self.has_line:
            return [line for stage in self.inputs for line in stage.outline(indent)]
        return [indent + self.text, *(line for stage in self.inputs for line in stage.outline(indent + "  "))]


@dataclass(frozen=True)
class SingleInputStage(Stage):
    """A stage with one input."""

    input: Stage

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.input,)


@dataclass(frozen=True)
class ShardedStage(Stage):
    """A stage that runs in logical shards, even if its inputs do not: the number of its outputs is unknown."""

    @property
    def is_sharded(self) -> bool:
        return True

    @property
    def length(self) -> None:
        return None


class RandomAccess(abc.ABC):
    """Evaluates a stage at any position.

    Attributes:
        length: elements in an epoch; None if the stream is endless.
    """

    length: int | None

    @abc.abstractmethod
    def at(self, position: int) -> Any:
        """Return the element at a position. Positions from `length` on are of later epochs."""

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        """Return a function from i to the element at ``positions[i]``.

        A stage that only moves positions does so for all of them at once. Elements are computed when the function is called.
        """
        at, listed = self.at, positions.tolist()
        return lambda i: at(listed[i])

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        """Return where the elements at some positions are, if `Stage.has_rows`. A batch is gathered at once then.

        Args:
            positions: not empty.
        """
        raise NotImplementedError


class SourceRows(NamedTuple):
    """Elements that are rows of one array.

    Attributes:
        values: the array.
        numbers: of the rows, not negative.
        places: of the elements among those asked for; None: all of them, in order.
    """

    values: NDArray[Any]
    numbers: NDArray[np.int64]
    places: NDArray[np.int64] | None


class Sharded(abc.ABC):
    """Evaluates a stage in logical shards."""

    @abc.abstractmethod
    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        """Return a walk through a shard in an epoch, from its beginning or from a state.

        Raises:
            CheckpointError: the state is not one of such a walk.
        """


class ShardWalk(Iterator[Any]):
    """Goes through the outputs of one stage in one logical shard.

    An exception other than StopIteration is an output like any other: the next call continues behind it, and a walk that
    resumes from a state raises it at the same output, or not again.
    """

    @abc.abstractmethod
    def __next__(self) -> Any: ...

    @abc.abstractmethod
    def state(self) -> Any:
        """Return the state before the next output, for `Sharded.open`: numbers, and lists and mappings of them."""

    def begin(self) -> None:  # most walks do all their work when it is wanted
        """Begin reads for the next outputs, without waiting for them."""

    def skip(self) -> None:
        """Go past the next output without computing more than needed.

        Raises:
            StopIteration: the elements have ended.
        """
        next(self)

    def pass_by(self, most: int) -> int:
        """Go past some outputs, one to `most`, and return their number; see `skip`. Most walks pass one.

        Raises:
            StopIteration: the elements have ended.
        """
        self.skip()
        return 1


#: Outputs of a walk before it resolves positions, and positions that it resolves at a time. NumPy takes about 100 us.
_USES_BEFORE_RESOLVING = 24
_RESOLVED = 256

#: Positions are in arrays of 64 bits.
_MOST_POSITIONS = 1 << 62


class AsSharded(Sharded):
    """A random-access stage in logical shards: output k of shard s is the element at position ``k * num_shards + s``."""

    def __init__(self, stage: RandomAccess, num_shards: int) -> None:
        self._stage = stage
        self._num_shards = num_shards

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        taken = checked_state(state, 0, is_count)
        return RandomAccessWalk(self._stage, epoch, shard, self._num_shards, taken)


class RandomAccessWalk(ShardWalk):
    """The state is the number of outputs so far.

    The positions of a shard are far apart, and shards proceed at different rates, so tables for neighboring positions would
    not last. Instead, each walk resolves some of its positions at a time.
    """

    def __init__(self, stage: RandomAccess, epoch: int, shard: int, num_shards: int, taken: int) -> None:
        self._stage = stage
        length = stage.length or 0
        self._begin = epoch % (_MOST_POSITIONS // max(length, 1)) * length + shard
        self._num_shards = num_shards
        #: The outputs of this walk: resolved are those from `_first` to before `_last`.
        self._most = sys.maxsize if stage.length is None else -(-(stage.length - shard) // num_shards)
        self._taken = self._first = self._last = taken
        self._at: Callable[[int], Any] = stage.at
        self._opened = taken

    def __next__(self) -> Any:
        taken = self._taken
        if taken >= self._last:
            self._resolve()
        self._taken = taken + 1
        return self._at(taken - self._first)

    def skip(self) -> None:
        if self._taken >= self._most:
            raise StopIteration
        self._taken += 1

    def _resolve(self) -> None:
        """Resolve the next positions. The first ones come one by one: many walks end soon, and the others begin sooner."""
        first = self._taken
        if first >= self._most:
            raise StopIteration
        begin, step = self._begin + first * self._num_shards, self._num_shards
        is_young = first - self._opened < _USES_BEFORE_RESOLVING
        self._first, self._last = first, min(first + (1 if is_young else _RESOLVED), self._most)
        if is_young:
            at = self._stage.at
            self._at = lambda _: at(begin)
        else:
            self._at = self._stage.resolved(np.arange(begin, begin + (self._last - first) * step, step))

    @property
    def taken(self) -> int:
        """The number of outputs so far."""
        return self._taken

    def state(self) -> int:
        return self._taken


def with_inputs(stage: Stage, inputs: Sequence[Stage]) -> Stage:
    """Return a copy of a stage with other inputs, in the same order."""
    others = iter(inputs)
    changes: dict[str, Any] = {}
    for name, value in vars(stage).items():
        if isinstance(value, Stage):
            changes[name] = next(others)
        elif isinstance(value, tuple) and value and all(isinstance(each, Stage) for each in value):
            changes[name] = tuple(next(others) for _ in value)
    return replace(stage, **changes)


def evaluators(stages: tuple[Stage, ...], place: Place) -> list[RandomAccess | Sharded]:
    """Return the evaluators of the inputs of a stage."""
    return [stage.evaluator(place.input(number)) for number, stage in enumerate(stages)]


def rows_of_inputs(
    sources: Sequence[RandomAccess], numbers: NDArray[np.int64], positions: NDArray[np.int64]
) -> list[SourceRows]:
    """Return where elements of several inputs are, as rows of arrays.

    Args:
        sources: the inputs.
        numbers, positions: for each element the number of its input, and the position there.
    """
    found: list[SourceRows] = []
    for number in sorted(set(numbers.tolist())):
        places = np.flatnonzero(numbers == number)
        for part in sources[number].rows(positions[places]):
            found.append(part._replace(places=places if part.places is None else places[part.places]))
    return found


def in_shards(stage: RandomAccess | Sharded, place: Place) -> Sharded:
    """Return an evaluator in logical shards."""
    return stage if isinstance(stage, Sharded) else AsSharded(stage, place.num_shards)


def skip_any(walk: ShardWalk, most: int = 1) -> int:
    """Go past the next outputs, one to `most`, and return their number. An exception is passed, too: it is not wanted.

    Raises:
        StopIteration: the elements have ended.
    """
    try:
        return walk.pass_by(most)
    except StopIteration:
        raise
    except Exception:
        return 1


def skip_many(walk: ShardWalk, count: int) -> None:
    """Go past so many outputs; see `skip_any`.

    Raises:
        StopIteration: the elements have ended.
    """
    while count > 0:
        count -= skip_any(walk, count)


def by_group(groups: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each number in an array, with its places."""
    if groups[0] == groups[-1] and (groups == groups[0]).all():
        yield int(groups[0]), np.arange(len(groups))
        return
    for group in np.unique(groups).tolist():
        yield group, np.flatnonzero(groups == group)


def joined(
    numbers: NDArray[np.int64], resolve: Callable[[int, NDArray[np.int64]], Callable[[int], Any]]
) -> Callable[[int], Any]:
    """Return the result of `RandomAccess.resolved` for positions of several inputs.

    Args:
        numbers: the input of each position.
        resolve: returns the result for an input, given its number and the places of its positions.
    """
    which: list[Any] = [None] * len(numbers)
    place_in = np.empty_like(numbers)
    for number, places in by_group(numbers):
        at = resolve(number, places)
        place_in[places] = np.arange(len(places))
        for place in places.tolist():
            which[place] = at
    listed = place_in.tolist()
    return lambda i: which[i](listed[i])


def generator_at(place: Place, epoch: int, position: int) -> np.random.Generator:
    """Return the random generator of a stage for a position."""
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([place.seed, len(place.path), *place.path, epoch, position]))
    )


def note_place(error: Exception, stage: Stage, where: str) -> None:
    """Add the stage and a position to an exception of a user's function."""
    add_note(error, f"raised by stage {stage.text} of a composed dataset, {where}")


def no_reach(stage: Stage) -> CheckpointError:
    """Return the error that weights cannot change before a stage."""
    return CheckpointError(
        f"Invalid state_dict: weights of a mixture before stage {stage.text} cannot change at this position. Resume "
        "with the old weights, and change them at the beginning of an epoch"
    )


def checked_state(state: Any, default: Any, fits: Callable[[Any], bool]) -> Any:
    """Return a state, or the default for None.

    Raises:
        CheckpointError: the state does not fit.
    """
    if state is None:
        return default
    if not fits(state):
        raise CheckpointError(f"this is not a state of such a stage: {json.dumps(state, default=repr):.200}")
    return state


def state_parts(state: Any, begin: Sequence[Any], *fits: Callable[[Any], bool]) -> Sequence[Any]:
    """Return the parts of a state, or those of the state at the beginning for None.

    Args:
        state: of a walk.
        begin: the parts at the beginning.
        fits: for each part, whether it can be one of such a state.

    Raises:
        CheckpointError: the state has other parts.
    """
    parts: Sequence[Any] = checked_state(state, begin, lambda state: is_list_of(state, *fits))
    return parts


def is_list_of(value: Any, *fits: Callable[[Any], bool]) -> bool:
    """Return whether a value is a list with one element for each function, which accepts it."""
    if not isinstance(value, (list, tuple)) or len(value) != len(fits):
        return False
    return all(each(part) for each, part in zip(fits, value, strict=True))


def is_count(value: Any) -> bool:
    """Return whether a value is an integer that counts elements."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def is_flag(value: Any) -> bool:
    """Return whether a value is True or False."""
    return isinstance(value, bool)


def is_anything(value: Any) -> bool:
    """Accept any value: the state of an input, which the input checks."""
    return True
