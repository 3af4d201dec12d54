"""Subjects of checks: datasets, loaders, sources and pipelines, as streams of examined samples."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dali_like.cli.check.examining import Examined, ExaminedSamples, examine, examined, failed
from dali_like.cli.factories import object_of
from dali_like.data import IterableDataset, get_worker_info
from dali_like.data.options import is_iterable
from dali_like.errors import ArgumentError, WorkerDiedError
from dali_like.pipeline.pipeline import Pipeline
from dali_like.sources.composed import is_composed
from dali_like.sources.origins import file_of, text_of
from dali_like.types import SampleInfo

_BATCH_SIZE = 16
#: A pipeline that fails in so many batches one after another is not asked again.
_MOST_FAILED_BATCHES = 100


class Subject(NamedTuple):
    """An object to check.

    Attributes:
        examine: yields the examined samples of given indices, or without random access all samples.
        length: number of samples; None if it is unknown.
        has_random_access: whether samples are computed by index.
        origin: returns where a sample comes from, or "".
        is_pipeline: whether the samples are outputs of a pipeline. Each call of `examine` then goes on with later ones.
    """

    examine: Callable[[Sequence[int]], Iterator[Examined]]
    length: int | None
    has_random_access: bool = True
    origin: Callable[[int], str] = lambda index: ""
    is_pipeline: bool = False


def subject_of(text: str, given: dict[str, Any], num_workers: int) -> Subject:
    """Return the object that ``module:name`` or ``file.py:name`` names, or that the function of this name makes.

    Args:
        given: arguments of that function.

    Raises:
        ArgumentError: there is no such object, or it cannot be checked.
    """
    found = object_to_check(text, given)
    if isinstance(found, Pipeline):
        return Subject(lambda indices: _outputs_of(found), None, has_random_access=False, is_pipeline=True)
    options: dict[str, Any] = {"num_workers": num_workers}
    if (dataset := getattr(found, "dataset", None)) is not None and hasattr(found, "batch_size"):
        options["worker_init_fn"] = getattr(found, "worker_init_fn", None)
        found = dataset
    return _dataset(found, text, options)


def object_to_check(text: str, given: dict[str, Any]) -> Any:
    """Return the object that ``module:name`` names, or that the function of this name makes.

    Args:
        given: arguments of that function.

    Raises:
        ArgumentError: there is no such object.
    """
    found = object_of(text, "dataset", lambda value: value is not None)
    if given or getattr(found, "_is_pipeline_def", False) or _needs_no_arguments(found):
        return found(**given)
    return found


def _needs_no_arguments(found: Any) -> bool:
    """Return whether an object is a function that can be called without arguments. A source has one."""
    empty = inspect.Parameter.empty
    return inspect.isfunction(found) and all(
        each.default is not empty for each in inspect.signature(found).parameters.values()
    )


def _dataset(found: Any, text: str, options: dict[str, Any]) -> Subject:
    if is_composed(found):
        if found.shards is None:
            return Subject(_IndexedSubject(found.__getitem__, options), found.length, origin=_origins_in(found))
        return Subject(lambda indices: _elements_of(found, options), None, has_random_access=False)
    # An iterable dataset may have a length, too, and PyTorch's inherit a __getitem__.
    if hasattr(type(found), "__getitem__") and hasattr(type(found), "__len__") and not is_iterable(found):
        return Subject(_IndexedSubject(found.__getitem__, options), len(found), origin=lambda index: file_of(found, index))
    if hasattr(type(found), "__iter__"):
        return Subject(lambda indices: _stream_of(found, options), None, has_random_access=False)
    if callable(found) and not isinstance(found, type):
        length = len(found) if hasattr(type(found), "__len__") else None
        return Subject(_IndexedSubject(_CallableSubject(found), options), length)
    raise ArgumentError(
        f"{text} is of type {type(found).__qualname__}; a dataset, loader, pipeline, source, or a function without "
        "arguments that returns one can be checked"
    )


def _origins_in(dataset: Any) -> Callable[[int], str]:
    """Return a function that describes the origin of the element at a position of a composed dataset."""
    from dali_like.sources.composed.traced import traced_dataset

    traced = traced_dataset(dataset, values=False)
    return lambda index: text_of(traced[index].origins)


class _CallableSubject:
    """Computes the samples of a callable as the first epoch of a pipeline with batches of one sample does."""

    def __init__(self, source: Callable[..., Any]) -> None:
        self._source = source
        try:
            self._takes_info = bool(inspect.signature(source).parameters)
        except ValueError:  # a function in C
            self._takes_info = True

    def __call__(self, index: int) -> Any:
        return self._source(SampleInfo(index, 0, index, 0)) if self._takes_info else self._source()


class _IndexedSubject:
    """Examines samples by index, in workers. A sample that ends its worker is found and left out."""

    def __init__(self, compute: Callable[[int], Any], options: dict[str, Any]) -> None:
        self._compute = compute
        self._options = options

    def __call__(self, indices: Sequence[int]) -> Iterator[Examined]:
        dataset = ExaminedSamples(self._compute, max(indices, default=-1) + 1)
        done = 0
        #: Up to here, each sample has a batch of its own: one of them has ended a worker.
        careful = 0
        while done < len(indices):
            is_careful = done < careful
            part = indices[done : careful if is_careful else len(indices)]
            options = {**self._options, "batch_size": 1 if is_careful else _BATCH_SIZE, "worker_restarts": 0}
            if is_careful:
                options |= {"num_workers": 1, "prefetch_factor": 1}
            try:
                for batch in _loader(dataset, sampler=part, **options):
                    done += len(batch)
                    yield from batch
            except WorkerDiedError as error:
                if is_careful:
                    text = str(error).partition("\n")[0]
                    yield Examined(indices[done], error=f"ends its worker: {text}")
                    done += 1
                else:
                    careful = min(done + 2 * _BATCH_SIZE * (self._options["num_workers"] + 1), len(indices))


def _loader(dataset: Any, **options: Any) -> Any:
    """Return a loader of examined samples, with PyTorch's seeds and worker information if the program uses PyTorch."""
    module = importlib.import_module("dali_like.plugin.pytorch" if "torch" in sys.modules else "dali_like.data")
    if not options["num_workers"]:
        options.pop("prefetch_factor", None)
    return module.DataLoader(dataset, collate_fn=list, **options)


class _IterableSubject:
    """The examined samples of an iterable dataset. Each worker iterates its own copy."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Examined]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return examined(iter(self._dataset), first, step)


def _stream_of(dataset: Any, options: dict[str, Any]) -> Iterator[Examined]:
    base: Any = sys.modules["torch"].utils.data.IterableDataset if "torch" in sys.modules else IterableDataset
    made = type("IterableSubject", (_IterableSubject, base), {})(dataset)  # each loader knows its own base class
    for batch in _loader(made, batch_size=_BATCH_SIZE, **options):
        yield from batch


def _elements_of(dataset: Any, options: dict[str, Any]) -> Iterator[Examined]:
    """Examine the elements of logical shards. Their times are unknown: a worker computes several stages at once."""
    number = 0
    examined_elements = dataset.map(functools.partial(examine, 0))
    loader = _loader(
        examined_elements, batch_size=_BATCH_SIZE, shard_id=0, num_shards=1, on_error=_failed_element, **options
    )
    with _without_log():
        for batch in loader:
            for element in batch:
                yield replace(element, index=number)
                number += 1


def _failed_element(index: Any, error: Exception) -> Examined:
    record = failed(0, error)
    return replace(record, error=f"{record.error}, position {index}")


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Keep replaced elements out of the log: they are among the findings."""
    log = logging.getLogger("dali_like")
    log.addFilter(_refuse)
    try:
        yield
    finally:
        log.removeFilter(_refuse)


def _refuse(record: logging.LogRecord) -> bool:
    return False


def _outputs_of(pipe: Pipeline) -> Iterator[Examined]:
    """Examine the outputs of one epoch. Of a batch that fails, only the sample in the message is known."""
    number = num_failed = 0
    batch_size = pipe.max_batch_size or 1
    with contextlib.closing(pipe):
        while num_failed < _MOST_FAILED_BATCHES:
            try:
                outputs = pipe.run()
            except StopIteration:
                return
            except Exception as error:  # the check reports any
                num_failed += 1
                notes = " ".join(getattr(error, "__notes__", ()))
                record = failed(number, error)
                yield replace(record, error=f"{record.error} {notes}".strip())
                number += batch_size
                continue
            num_failed = 0
            columns = [output.as_cpu() for output in outputs]
            for row in range(len(columns[0])):
                sample = tuple(np.asarray(column.at(row)) for column in columns)
                yield examine(number, sample if len(sample) > 1 else sample[0])
                number += 1
