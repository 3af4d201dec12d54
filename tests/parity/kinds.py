"""Sources of every kind, made from one recipe, and the mistakes that they can make.

All of it can be pickled, so that it reaches spawned workers of both libraries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from tests.parity.conftest import END

#: The iteration in which something is wrong, if anything is.
FAULTY = 1


@dataclass(frozen=True)
class Recipe:
    """The results of a source: its arguments, or its own counts, are in every sample.

    Attributes:
        tag: tells it from other sources.
        iterations: how many an epoch has.
        batch_size: samples in a full batch.
        num_outputs: None: an array; else a tuple of so many.
        data: the class of a batch: a "list", "tuple", "array", "TensorList" of equal samples, or a "ragged" list of others.
        uneven: whether batches have several sizes; of single samples, whether the last batch cannot be filled.
        fault: the mistake of one iteration: one of `FAULTS`.
        tensor_list: the class of that name.
    """

    tag: int
    iterations: int
    batch_size: int
    num_outputs: int | None
    data: str
    uneven: bool
    fault: str
    tensor_list: type

    def ends_before(self, iteration: int) -> bool:
        return iteration >= self.iterations

    def size(self, iteration: int) -> int:
        """How many samples a batch has."""
        return (self.batch_size, -(-self.batch_size // 2), 1)[iteration % 3] if self.uneven else self.batch_size

    def sample(self, iteration: int, place: int, *numbers: int) -> Any:
        """One sample, given its place in the batch."""
        first: Any = np.array([self.tag, iteration, place, *numbers], np.int64)
        if self.data == "ragged":
            first = np.repeat(first, 1 + (iteration + place) % 3)
        spoil = FAULTS[self.fault].sample
        if iteration == FAULTY and spoil is not None:
            first = spoil(first, place)
        outputs = first, np.array(place, np.float32)
        return first if self.num_outputs is None else outputs[: self.num_outputs]

    def batch(self, iteration: int, *numbers: int) -> Any:
        """One batch."""
        samples = [self.sample(iteration, place, *numbers) for place in range(self.size(iteration))]
        if self.num_outputs is None:
            batch = self._column(samples)
        else:
            batch = tuple(self._column(column) for column in zip(*samples, strict=True))
        spoil = FAULTS[self.fault].batch
        return spoil(batch, self.num_outputs) if iteration == FAULTY and spoil is not None else batch

    def _column(self, samples: Any) -> Any:
        if self.data == "TensorList":
            return self.tensor_list(np.stack(samples))
        return {"array": np.stack, "tuple": tuple}.get(self.data, list)(samples)


# Mistakes


class OwnError(Exception):
    """An exception of the user's."""


class Fault(NamedTuple):
    """A mistake of one iteration.

    Attributes:
        sample: computes the first output of a sample, given its place in the batch; or it raises.
        batch: computes a batch, given the argument num_outputs.
        raises: whether something is raised.
        num_outputs: of how many outputs, where only that makes sense.
    """

    sample: Callable[[NDArray[Any], int], Any] | None = None
    batch: Callable[[Any, int | None], Any] | None = None
    raises: bool = False
    num_outputs: int | None = None


def _raising(kind: type[Exception]) -> Fault:
    def fail(first: NDArray[Any], place: int) -> NoReturn:
        raise kind("of the user's")

    return Fault(fail, raises=True)


def _samples(spoil: Callable[[NDArray[Any]], Any], *, one: bool = False) -> Fault:
    """All samples of the batch, or one."""
    return Fault(lambda first, place: first if one and place else spoil(first))


def _instead(value: Any) -> Fault:
    """Something else than a batch."""
    return Fault(batch=lambda batch, num_outputs: value)


def _doubled(batch: Any, num_outputs: int | None) -> Any:
    return batch * 2 if num_outputs is None else tuple(column * 2 for column in batch)


FAULTS = {
    "none": Fault(),
    "ValueError": _raising(ValueError),
    "KeyError": _raising(KeyError),
    "an error of the user's": _raising(OwnError),
    "samples: None": _samples(lambda first: None),
    "samples: a string": _samples(lambda first: "x"),
    "samples: dictionaries": _samples(lambda first: {"x": first}),
    "samples: another dtype": _samples(lambda first: first.astype(np.float32)),
    "samples: another number of dimensions": _samples(lambda first: first[None]),
    "one sample: None": _samples(lambda first: None, one=True),
    "one sample: another dtype": _samples(lambda first: first.astype(np.float32), one=True),
    "one sample: another number of dimensions": _samples(lambda first: first[None], one=True),
    "None": _instead(None),
    "a number": _instead(7),
    "a string": _instead("x"),
    "an object": _instead(object()),
    "too many samples": Fault(batch=_doubled),
    "too few outputs": Fault(batch=lambda batch, num_outputs: batch[:1], num_outputs=2),
    "too many samples in an output": Fault(batch=lambda batch, num_outputs: (batch[0] * 2, batch[1]), num_outputs=2),
    "too few samples in an output": Fault(batch=lambda batch, num_outputs: (batch[0], batch[1][:-1]), num_outputs=2),
}


# Sources


class Source:
    """A source, and the log of its arguments.

    Args:
        calls: the log. Entries that a worker makes are lost.
    """

    def __init__(self, recipe: Recipe, calls: list[Any]) -> None:
        self._recipe = recipe
        self._calls = calls


class Samples(Source):
    """Told by a SampleInfo."""

    def __call__(self, info: Any) -> Any:
        self._calls.append((info.epoch_idx, info.iteration, info.idx_in_epoch, info.idx_in_batch))
        lacks_last = self._recipe.uneven and info.idx_in_batch == self._recipe.batch_size - 1
        if self._recipe.ends_before(info.iteration + lacks_last):
            raise StopIteration
        return self._recipe.sample(info.iteration, info.idx_in_batch, info.idx_in_epoch, info.epoch_idx)


class Batches(Source):
    """Told by the number of the iteration."""

    def __call__(self, iteration: int) -> Any:
        self._calls.append((type(iteration).__name__, iteration))
        if self._recipe.ends_before(iteration):
            raise StopIteration
        return self._recipe.batch(iteration)


class InformedBatches(Source):
    """Told by a BatchInfo."""

    def __call__(self, info: Any) -> Any:
        self._calls.append((info.epoch_idx, info.iteration))
        if self._recipe.ends_before(info.iteration):
            raise StopIteration
        return self._recipe.batch(info.iteration, info.epoch_idx)


class Uninformed(Source):
    """Told nothing, and so counting its calls."""

    _count = 0
    _epoch = 0

    def _next(self, per_epoch: int) -> int:
        self._calls.append((self._epoch, self._count))
        if self._count == per_epoch:
            self._count = 0
            self._epoch += 1
            raise StopIteration
        self._count += 1
        return self._count - 1


class UninformedSamples(Uninformed):
    def __call__(self) -> Any:
        recipe = self._recipe
        number = self._next(max(0, recipe.iterations * recipe.batch_size - recipe.uneven))
        return recipe.sample(*divmod(number, recipe.batch_size), self._epoch)


class UninformedBatches(Uninformed):
    def __call__(self) -> Any:
        return self._recipe.batch(self._next(self._recipe.iterations), self._epoch)


def generator_function(recipe: Recipe, calls: list[Any]) -> Callable[[], Iterator[Any]]:
    """A generator function that counts how often it is called."""
    walks = [0]

    def generate() -> Iterator[Any]:
        walks[0] += 1
        for iteration in range(recipe.iterations):
            calls.append((walks[0], iteration))
            yield recipe.batch(iteration, walks[0])
        calls.append((walks[0], END))

    return generate


class GeneratingObject(Source):
    """An object whose call is a generator."""

    def __call__(self) -> Iterator[Any]:
        for iteration in range(self._recipe.iterations):
            self._calls.append(iteration)
            yield self._recipe.batch(iteration)


class Iterable(Source):
    """An object that makes a new iterator each time."""

    def __iter__(self) -> Iterator[Any]:
        return generator_function(self._recipe, self._calls)()


class RewoundIterator(Source):
    """An iterator that begins anew when it is asked for its iterator, as in DALI's examples."""

    def __iter__(self) -> RewoundIterator:
        self._position = 0
        return self

    def __next__(self) -> Any:
        self._calls.append(self._position)
        if self._recipe.ends_before(self._position):
            raise StopIteration
        self._position += 1
        return self._recipe.batch(self._position - 1)


class Sequence(Source):
    """An object that can be indexed, and nothing else."""

    def __getitem__(self, iteration: int) -> Any:
        self._calls.append(iteration)
        if self._recipe.ends_before(iteration):
            raise IndexError(iteration)
        return self._recipe.batch(iteration)


def all_batches(recipe: Recipe) -> list[Any]:
    return [recipe.batch(iteration) for iteration in range(recipe.iterations)]


def array_of_batches(recipe: Recipe) -> NDArray[Any]:
    """An array whose rows are batches; it may have no rows."""
    return np.stack([recipe.batch(iteration) for iteration in range(max(1, recipe.iterations))])[: recipe.iterations]


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    Attributes:
        make: makes one, given its results, and the log of its calls.
        options: arguments of ``fn.external_source`` that it needs.
        makes_batches: rather than samples.
        is_iterable: whether it is walked through rather than called.
        begins_anew: whether it can be walked through again.
        is_lazy: whether it makes batches when it is asked.
        ways: where it can be called.
    """

    make: Callable[[Recipe, list[Any]], Any]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    makes_batches: bool = True
    is_iterable: bool = False
    begins_anew: bool = False
    is_lazy: bool = True
    ways: tuple[str, ...] = ("serial", "fork", "spawn")


def _iterable(make: Callable[[Recipe, list[Any]], Any], **properties: Any) -> Kind:
    return Kind(make, **{"is_iterable": True, "begins_anew": True, **properties})


KINDS = {
    "samples": Kind(Samples, makes_batches=False),
    "samples, uninformed": Kind(UninformedSamples, makes_batches=False, ways=("serial",)),
    "batches": Kind(Batches),
    "batches by BatchInfo": Kind(InformedBatches, {"batch_info": True}),
    "batches, uninformed": Kind(UninformedBatches, ways=("serial",)),
    "generator function": _iterable(generator_function),
    "generating object": _iterable(GeneratingObject),
    # Generators cannot be pickled.
    "generator": _iterable(
        lambda recipe, calls: generator_function(recipe, calls)(), begins_anew=False, ways=("serial", "fork")
    ),
    "iterable": _iterable(Iterable),
    "sequence": _iterable(Sequence),
    "rewound iterator": _iterable(RewoundIterator),
    "iterator": _iterable(lambda recipe, calls: iter(all_batches(recipe)), begins_anew=False, is_lazy=False),
    "list": _iterable(lambda recipe, calls: all_batches(recipe), is_lazy=False),
    "array": _iterable(lambda recipe, calls: array_of_batches(recipe), is_lazy=False),
}
