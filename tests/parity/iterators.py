"""Iterators over pipelines of either library, and programs that take batches of them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from .conftest import OURS, Library

#: Programs that take batches of an iterator, by name; each gives a list of epochs.
PROGRAMS: dict[str, Callable[[Any], list[Any]]] = {}


def plugin_of(library: Library) -> Any:
    """The module with the iterators."""
    return pytest.importorskip("dali_like.plugin.pytorch" if library is OURS else "nvidia.dali.plugin.pytorch")


@contextlib.contextmanager
def quiet(library: Library) -> Iterator[None]:
    """DALI warns of every explicit size, and logs a warning when it ignores reset(). Ours has to be silent by itself."""
    if library is OURS:
        yield
        return
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)


def source(length: int | None, first: int = 0) -> Callable[[Any], Any]:
    """A source of numbered pictures, whose epochs have `length` samples or no end."""

    def make(info: Any) -> Any:
        if length is not None and info.idx_in_epoch >= length:
            raise StopIteration
        number = first + 1000 * info.epoch_idx + info.idx_in_epoch
        return np.full((2, 3), number / 7, np.float32), np.array(number)

    return make


@contextlib.contextmanager
def iterator_of(
    library: Library,
    sources: Sequence[Callable[[Any], Any]],
    *,
    policy: str | None = None,
    batch_sizes: Sequence[int] = (4,),
    kind: str = "DALIGenericIterator",
    num_outputs: int | None = 2,
    output_map: Any = ("picture", "number"),
    **options: Any,
) -> Iterator[Any]:
    """An iterator over a pipeline for each source."""
    if policy is not None:
        options["last_batch_policy"] = plugin_of(library).LastBatchPolicy[policy]
    of_pipelines = {name: options.pop(name) for name in ("enable_checkpointing", "checkpoint") if name in options}
    with contextlib.ExitStack() as stack:
        pipelines = [
            stack.enter_context(
                library.source_pipeline(source, batch_size=batch_size, num_outputs=num_outputs, **of_pipelines)
            )
            for source, batch_size in zip(sources, itertools.cycle(batch_sizes), strict=False)
        ]
        stack.enter_context(quiet(library))
        yield getattr(plugin_of(library), kind)(pipelines, list(output_map), **options)


def copied(batch: Any) -> list[dict[str, Any]]:
    """All that a batch of either library holds, bit for bit."""
    pipelines = batch if isinstance(batch, list) else [batch]
    arrays = [{name: np.asarray(value) for name, value in pipeline.items()} for pipeline in pipelines]
    return [{name: (str(a.dtype), a.shape, a.tobytes()) for name, a in pipeline.items()} for pipeline in arrays]


def numbers(batch: Any) -> list[Any]:
    """The numbers in a batch of one pipeline."""
    return [int(number) for number in batch[0]["number"]]


def rest(iterator: Any) -> list[Any]:
    """The batches until StopIteration."""
    batches = []
    with contextlib.suppress(StopIteration):
        while len(batches) < 100:
            batches.append(copied(iterator.next()))
    return batches


def outcome(library: Library, run: Callable[[Any], Any], *sources: Callable[[Any], Any], **options: Any) -> Any:
    """The result of a program that runs on a new iterator."""
    with iterator_of(library, sources, **options) as iterator:
        return run(iterator)


def program(function: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """Enter a function into PROGRAMS."""
    PROGRAMS[function.__name__] = function
    return function


@program
def for_loops(iterator: Any) -> list[Any]:
    """An epoch is a loop."""
    return [list(map(copied, iterator)) for _ in range(4)]


@program
def next_and_reset(iterator: Any) -> list[Any]:
    """An epoch ends with StopIteration, and the next begins with reset()."""
    epochs = []
    for _ in range(4):
        epochs.append(rest(iterator))
        iterator.reset()
    return epochs


@program
def next_alone(iterator: Any) -> list[Any]:
    """StopIteration is caught, and nothing else is done."""
    return [rest(iterator) for _ in range(4)]


@program
def reset_twice(iterator: Any) -> list[Any]:
    """A second reset() is harmless."""
    epochs = []
    for _ in range(4):
        epochs.append(rest(iterator))
        iterator.reset()
        iterator.reset()
    return epochs


@program
def broken_loops(iterator: Any) -> list[Any]:
    """A loop that is left in an epoch is gone on with by the next one."""
    return [[copied(batch) for batch in itertools.islice(iterator, 2)] for _ in range(2)]
