"""The kinds of user sources: callables, iterables and generator functions, and their conversion for the engine.

The distinction follows ``nvidia.dali`` 1.53: an object that can be iterated is an iterable, even if it can be called; an
array is an iterable of its rows; a generator function is called for its items.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dali_like.common.articles import kind_of
from dali_like.common.user_objects import is_stateful
from dali_like.engine.worker.streams import Restart, StatefulCallable
from dali_like.errors import ArgumentError, DefinitionError
from dali_like.sources.composed import is_composed
from dali_like.sources.external_source import Called, Composed, Fed, Iterated, Read
from dali_like.sources.readers.reader_stream import ReaderStream
from dali_like.sources.sharding import ALONE

if TYPE_CHECKING:
    from dali_like.sources.composed.dataset import ComposedDataset


def external_source_of(source: Any, said: dict[str, Any], *, takes_dicts: bool) -> Called | Iterated | Read | Composed | Fed:
    """Return the external source of a user's object, of the class for its kind.

    Args:
        source: the object; None: the user feeds batches.
        said: the user's description of it; see `ExternalSource`.
        takes_dicts: whether elements of a composed dataset may be dicts.

    Raises:
        ArgumentError, DefinitionError: the object cannot be used that way.
    """
    if source is None:
        return Fed(**said)
    if is_composed(source):
        return _composed(source, said, takes_dicts=takes_dicts)
    if isinstance(source, ReaderStream):
        return Read(source, **said)
    if _is_generator_function(source) or is_iterable(source):
        return _iterated(source, said)
    label, options = said["name"], said["options"]
    if options["cycle"] is not None:
        raise ArgumentError(f"{label}: `cycle` can only be specified if `source` is iterable")
    if options["sharded"]:
        raise ArgumentError(f"{label}: sharded=True is for iterables: leave it out for a callable")
    if not callable(source):
        raise DefinitionError(
            f"{label}: the `source` must be callable, iterable or a parameterless generator function, not {kind_of(source)}"
        )
    if isinstance(source, type) and any("__call__" in vars(kind) for kind in source.__mro__):
        raise DefinitionError(
            f"{label}: the `source` is a class whose instances can be called; give one of them, {source.__name__}(...)"
        )
    return _called(source, said)


def is_iterable(source: Any) -> bool:
    """Return whether a source is iterated rather than called."""
    kind = type(source)
    return isinstance(source, Iterable) or (hasattr(kind, "__getitem__") and not isinstance(source, type))


def _composed(dataset: ComposedDataset, said: dict[str, Any], *, takes_dicts: bool) -> Composed:
    """Return the external source: a callable, which computes parts of batches if the dataset has logical shards.

    Raises:
        ArgumentError: the number of ranks does not divide that of logical shards.
    """
    from dali_like.sources.composed.pipeline_source import ElementCallback, ShardElements  # rare
    from dali_like.sources.composed.positions import check_ranks

    if dataset.shards is None:
        return Composed(dataset, ElementCallback(dataset, takes_dicts=takes_dicts), **said)
    check_ranks(dataset.shards, (said["shard"] or ALONE).count)
    return Composed(dataset, ShardElements(dataset, said["num_outputs"], takes_dicts=takes_dicts), **said)


def is_async(function: Any) -> bool:
    """Return whether a function or a callable object is a coroutine function."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_call_of(function))


def _ways_out(iterable: Any) -> str:
    """Return advice on dividing the samples of an iterable among workers, for a message."""
    if is_iterable(iterable) and callable(iterable):
        return "It is iterated because it has __iter__ or __getitem__; to have it called, pass source=yours.__call__"
    if hasattr(iterable, "__getitem__") and hasattr(iterable, "__len__"):
        return (
            "To divide its samples among the workers, pass source=lambda info: dataset[info.idx_in_epoch], size=len(dataset)"
        )
    return "Or let each worker iterate its own samples: pass sharded=True"


def _iterated(source: Any, said: dict[str, Any]) -> Iterated:
    label, options, parallel = said["name"], said["options"], said["parallel"]
    cycle = options["cycle"]
    is_function = not is_iterable(source)
    what = "a generator function" if is_function else "an iterable"
    if is_function and not _accepts(inspect.signature(source), 0):
        raise DefinitionError(f"{label} is a generator function with arguments: bind them with functools.partial")
    if parallel and not said["batch"] and not options["sharded"]:
        raise DefinitionError(
            f"{label}: Parallel external source with {what} must be run in a batch mode (specify `batch=True` in the "
            f"external source definition and make sure your source returns batches). {_ways_out(source)}"
        )
    if inspect.isgenerator(source) and cycle in ("quiet", "raise"):
        raise DefinitionError(
            f"{label}: Cannot cycle through a generator. If it comes from a generator function, pass that function instead"
        )
    persists = cycle == "no" or _cannot_restart(source)
    return Iterated(
        Restart(source, is_function=is_function, endless=cycle == "quiet"),
        persists=persists,
        owner=source if is_stateful(source) else None,
        known_length=None if persists or cycle == "quiet" else _length_of(source),
        **said,
    )


def _called(source: Callable[..., Any], said: dict[str, Any]) -> Called:
    label, options, parallel, batch = said["name"], said["options"], said["parallel"], said["batch"]
    if inspect.isasyncgenfunction(source):
        raise DefinitionError(f"{label} is an async generator function; an async source returns one sample a call")
    # The object with the state is the callable itself, or the object of the method.
    owner = None if parallel else next(filter(is_stateful, (source, getattr(source, "__self__", None))), None)

    def called(callback: Callable[[Any], Any], *, ignores_info: bool = False) -> Called:
        callback = callback if owner is None else StatefulCallable(callback, owner)
        length = _length_of(source)
        return Called(callback, is_async=is_async(source), ignores_info=ignores_info, known_length=length, **said)

    argument = "the SampleInfo" if not batch else "the BatchInfo" if options["batch_info"] else "the number of the batch"
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):  # some built-in functions have none
        signature = None
    if signature is not None and (further := _further_parameter(source, signature)) is not None:
        raise DefinitionError(
            f"{label} has the signature {signature}; a source has at most one positional argument, {argument}, and no "
            f"other parameter such as {further}. Bind the others with functools.partial"
        )
    if signature is None or _accepts(signature, 1):
        return called(_WithIteration(source) if batch and not options["batch_info"] else source)
    if not _accepts(signature, 0):
        raise DefinitionError(
            f"{label} has the signature {signature}; a source is called with one positional argument, {argument}"
        )
    if parallel:
        raise DefinitionError(
            f"{label} takes no argument; with parallel=True the source must accept exactly one, {argument}, because any "
            "worker may compute any sample"
        )
    if is_async(source) and not batch:
        raise DefinitionError(
            f"{label} takes no argument and is a coroutine function; several calls run at once, so it must accept {argument}"
        )
    return called(_IgnoreInfo(source), ignores_info=True)


class _IgnoreInfo:
    """Adapts a source without arguments: ignores the argument."""

    def __init__(self, source: Callable[[], Any]) -> None:
        self.source = source

    def __call__(self, info: Any) -> Any:
        return self.source()


class _WithIteration:
    """Adapts a source that takes the number of the iteration: passes it from the BatchInfo."""

    def __init__(self, source: Callable[[int], Any]) -> None:
        self.source = source

    def __call__(self, info: Any) -> Any:
        return self.source(info.iteration)


def _is_generator_function(source: Any) -> bool:
    return inspect.isgeneratorfunction(source) or inspect.isgeneratorfunction(_call_of(source))


def _call_of(source: Any) -> Any:
    """Return the function behind a callable object."""
    return type(source).__dict__.get("__call__") or getattr(type(source), "__call__", None)  # noqa: B004


def _cannot_restart(source: Any) -> bool:
    """Return whether an iterable cannot be iterated twice.

    That holds for generators and for the iterators of the interpreter. An iterator whose class defines ``__iter__`` may
    restart there, as in DALI's examples.
    """
    if not isinstance(source, Iterator):
        return False
    begin = getattr(type(source), "__iter__", None)
    return inspect.isgenerator(source) or not inspect.isfunction(begin) or begin is Iterator.__iter__


def _length_of(source: Any) -> int | None:
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def _further_parameter(source: Callable[..., Any], signature: inspect.Signature) -> str | None:
    """Return a parameter that DALI does not allow: it counts parameters, with defaults or not. Otherwise None.

    The parameters that `functools.partial` has bound do not count.
    """
    parameters = list(signature.parameters.values())
    if isinstance(source, functools.partial):
        parameters = [each for each in parameters if each.name not in source.keywords]
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    further = [each for i, each in enumerate(parameters) if i or each.kind not in single]
    return str(further[0].replace(annotation=inspect.Parameter.empty)) if further else None


def _accepts(signature: inspect.Signature, num_arguments: int) -> bool:
    try:
        signature.bind(*[None] * num_arguments)
    except TypeError:
        return False
    return True
