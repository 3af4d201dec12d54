"""Batches and iterables of batches with known contents, and the results of pipelines with them.

Spawned workers import this module, because its functions travel by name. So it needs nothing of pytest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like import Pipeline, fn

BATCH_SIZE = 4
#: Batches in an epoch.
LENGTH = 6

#: In the results of `outcomes`: the epoch has ended.
END = "end"


def batch_of(number: int, size: int = BATCH_SIZE, width: int = 3) -> NDArray[np.int64]:
    """A batch whose sample `i` consists of the number ``100 * number + i``."""
    return (100 * number + np.arange(size))[:, np.newaxis].repeat(width, axis=1)


def batch_source(number: int) -> NDArray[np.int64]:
    """Return the batch of this number; a source."""
    return batch_of(number)


def numbers_of(number: int, size: int = BATCH_SIZE) -> list[int]:
    """The result of `numbers_in` for `batch_of`."""
    return [100 * number + i for i in range(size)]


def numbers_in(output: Iterable[Any]) -> list[int]:
    """The content of each sample of a batch; -1 where it consists of several things, or of none."""
    samples = [np.asarray(sample).ravel() for sample in output]
    return [int(sample[0]) if len(set(sample.tolist())) == 1 else -1 for sample in samples]


def batches_in(outputs: Sequence[Any]) -> int | str:
    """The number of the batch that all outputs belong to, or their mistake."""
    seen = [numbers_in(output) for output in outputs]
    number = seen[0][0] // 100 if seen[0] else 0
    return number if all(numbers == numbers_of(number, len(seen[0])) for numbers in seen) else f"wrong: {seen}"


def outcomes(pipe: Pipeline, count: int, read: Callable[[Sequence[Any]], Any] = batches_in) -> list[Any]:
    """The results of the next calls of `run`: numbers of batches, `END` (and the next epoch begins), or types of errors."""
    return [outcome(pipe, read) for _ in range(count)]


def outcome(pipe: Pipeline, read: Callable[[Sequence[Any]], Any] = batches_in) -> Any:
    try:
        return read(pipe.run())
    except StopIteration:
        pipe.reset()
        return END
    except Exception as error:
        return type(error).__name__


def epoch_of(length: int = LENGTH) -> list[Any]:
    """The results of `outcomes` for an epoch without errors."""
    return [*range(length), END]


@contextlib.contextmanager
def pipeline_of(
    *sources: tuple[Any, Mapping[str, Any]], way: str = "fork", workers: int = 2, **options: Any
) -> Iterator[Pipeline]:
    """A pipeline of several sources, each with its options: by default of batches, and where `way` says."""
    method = {} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(**{"batch_size": BATCH_SIZE, "num_threads": 2, "py_num_workers": workers, **method, **options})
    outputs: list[Any] = []
    for source, source_options in sources:
        nodes = fn.external_source(source, **{"batch": True, "parallel": way != "serial", **source_options})
        outputs += nodes if isinstance(nodes, list) else [nodes]
    pipe.set_outputs(*outputs)
    try:
        yield pipe
    finally:
        pipe.close()


# Iterables. Each makes the batches 0, 1, ...


@dataclass(frozen=True)
class Batches:
    """An iterable of batches.

    Attributes:
        length: how many.
        make: makes one of them.
        begun: a folder that gets a file for each walk; None: walks are not counted.
    """

    length: int = LENGTH
    make: Callable[[int], Any] = batch_of
    begun: Path | None = None

    def __iter__(self) -> Iterator[Any]:
        if self.begun is not None:
            (self.begun / f"{os.getpid()}-{len(os.listdir(self.begun))}").touch()
        return map(self.make, range(self.length))


class Items:
    """A sequence by ``__getitem__`` alone."""

    def __getitem__(self, index: int) -> Any:
        if index >= LENGTH:
            raise IndexError
        return batch_of(index)


class Rewinding:
    """An iterator that begins anew when it is asked for its iterator, as in DALI's examples."""

    def __iter__(self) -> Iterator[Any]:
        self.next = 0
        return self

    def __next__(self) -> Any:
        if self.next == LENGTH:
            raise StopIteration
        self.next += 1
        return batch_of(self.next - 1)


class OfMixin(Iterator[Any]):
    """An iterator by ``__next__`` alone."""

    def __init__(self) -> None:
        self.batches = iter(list(Batches()))

    def __next__(self) -> Any:
        return next(self.batches)


class GeneratorObject:
    """An object whose call makes a generator."""

    def __call__(self) -> Iterator[Any]:
        yield from Batches()


def generate() -> Iterator[Any]:
    yield from Batches()


#: Iterables that begin anew in each epoch.
ITERABLES: dict[str, Callable[[], Any]] = {
    "list": lambda: list(Batches()),
    "tuple": lambda: tuple(Batches()),
    "range of rows": lambda: np.stack(list(Batches())),
    "object with __iter__": Batches,
    "object with __getitem__": Items,
    "rewinding iterator": Rewinding,
    "generator function": lambda: generate,
    "generator object": GeneratorObject,
    "dictionary's values": lambda: dict(enumerate(Batches())).values(),
}

#: Iterables that cannot begin anew.
ITERATORS: dict[str, Callable[[], Any]] = {
    "iterator": lambda: iter(list(Batches())),
    "map": lambda: map(batch_of, range(LENGTH)),
    "collections.abc.Iterator": OfMixin,
    "generator": generate,
}
