"""The kinds of user sources: callables, iterables and generator functions, and their conversion for the engine.

The distinction follows ``nvidia.dali`` 1.53: an object that can be iterated is an iterable, even if it can be called; an
array is an iterable of its rows; a generator function is called for its items.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.user_objects import is_stateful
from dali_like.engine.worker.streams import Grouped, Restart, StatefulCallable, Stream
from dali_like.errors import ArgumentError, DefinitionError
from dali_like.sources.readers.reader_stream import ReaderStream
from dali_like.sources.sharding import ALONE, Division, Padded, Shard

if TYPE_CHECKING:
    from dali_like.sources.composed.dataset import ComposedDataset

#: The values of ``cycle``, with their normalized forms.
_CYCLES: dict[Any, str | None] = {None: None, False: "no", "no": "no", True: "quiet", "quiet": "quiet", "raise": "raise"}


class Kind(NamedTuple):
    """A user's source, as the engine needs it.

    Attributes:
        callback: the function that the engine calls.
        in_order: see `dali_like.engine.worker.source.Source`.
        persists: whether an epoch continues where the one before has ended.
        is_async: whether the callback is a coroutine function.
        ignores_info: whether the user's function takes no argument.
        length: samples or batches in an epoch; None if unknown.
        reader: the reader, if it is one. Its callback depends on the batch size; see `ReaderStream.callback`.
        composed: the composed dataset, if it is one.
    """

    callback: Callable[[Any], Any]
    in_order: bool = False
    persists: bool = False
    is_async: bool = False
    ignores_info: bool = False
    length: int | None = None
    reader: ReaderStream | None = None
    composed: ComposedDataset | None = None


class Use(NamedTuple):
    """The intended use of a source.

    Attributes:
        label: name of the source in messages.
        batch: whether it returns batches rather than samples.
        batch_info: whether a callable gets a BatchInfo rather than the number of the iteration.
        parallel: whether workers call it.
        sharded: whether each worker iterates its own iterable.
        cycle: the treatment of the end of an iterable; see `check_cycle`.
    """

    label: str
    batch: bool
    batch_info: bool
    parallel: bool
    sharded: bool
    cycle: str | None


def check_cycle(cycle: Any) -> str | None:
    """Return the normalized form of ``cycle``: None, "no", "quiet" or "raise".

    Raises:
        ArgumentError: `cycle` has another value.
    """
    try:
        return _CYCLES[cycle]
    except (KeyError, TypeError):
        raise ArgumentError(f'cycle must be None, True, False, "no", "quiet" or "raise", not {cycle!r}') from None


def kind_of(source: Any, use: Use) -> Kind:
    """Return the kind of a source.

    Raises:
        ArgumentError, DefinitionError: the source cannot be used that way.
    """
    if isinstance(source, ReaderStream):
        return Kind(_needs_batch_size, persists=True, reader=source)
    if _is_generator_function(source) or is_iterable(source):
        return _iterable_kind(source, use)
    if use.cycle is not None:
        raise ArgumentError(f"{use.label}: `cycle` can only be specified if `source` is iterable")
    if use.sharded:
        raise ArgumentError(f"{use.label}: sharded=True is for iterables: leave it out for a callable")
    if not callable(source):
        raise DefinitionError(
            f"{use.label}: the `source` must be callable, iterable or a parameterless generator function, not a "
            f"{type(source).__qualname__}"
        )
    if isinstance(source, type) and any("__call__" in vars(kind) for kind in source.__mro__):
        raise DefinitionError(
            f"{use.label}: the `source` is a class whose instances can be called; give one of them, {source.__name__}(...)"
        )
    return _callable_kind(source, use)


def _needs_batch_size(info: Any) -> Any:
    raise NotImplementedError


def is_iterable(source: Any) -> bool:
    """Return whether a source is iterated rather than called."""
    kind = type(source)
    return isinstance(source, Iterable) or (hasattr(kind, "__getitem__") and not isinstance(source, type))


def is_composed(source: Any) -> bool:
    """Return whether a source is a composed dataset. If its module is not imported, no object is one."""
    module = sys.modules.get("dali_like.sources.composed.dataset")
    return module is not None and isinstance(source, module.ComposedDataset)


def composed_kind(dataset: ComposedDataset, rank: Shard | None, num_outputs: int | None, *, takes_dicts: bool) -> Kind:
    """Return the kind of a composed dataset: a callable, which computes parts of batches if it has logical shards.

    Args:
        rank: of this process; None: it is the only one.
        takes_dicts: whether elements may be dicts.

    Raises:
        ArgumentError: the number of ranks does not divide that of logical shards.
    """
    from dali_like.sources.composed.pipeline_source import ElementCallback, ShardElements  # rare
    from dali_like.sources.composed.positions import check_ranks

    if dataset.shards is None:
        callback = ElementCallback(dataset, takes_dicts=takes_dicts)
        return Kind(callback, length=dataset.length, composed=dataset)
    check_ranks(dataset.shards, (rank or ALONE).count)
    return Kind(ShardElements(dataset, num_outputs, takes_dicts=takes_dicts), in_order=True, composed=dataset)


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


def _iterable_kind(source: Any, use: Use) -> Kind:
    is_function = not is_iterable(source)
    what = "a generator function" if is_function else "an iterable"
    if is_function and not _accepts(inspect.signature(source), 0):
        raise DefinitionError(f"{use.label} is a generator function with arguments: bind them with functools.partial")
    if use.parallel and not use.batch and not use.sharded:
        raise DefinitionError(
            f"{use.label}: Parallel external source with {what} must be run in a batch mode (specify `batch=True` in the "
            f"external source definition and make sure your source returns batches). {_ways_out(source)}"
        )
    if inspect.isgenerator(source) and use.cycle in ("quiet", "raise"):
        raise DefinitionError(
            f"{use.label}: Cannot cycle through a generator. If it comes from a generator function, pass that function "
            "instead"
        )
    persists = use.cycle == "no" or _cannot_restart(source)
    walk = Restart(source, is_function=is_function, endless=use.cycle == "quiet")
    length = None if persists or use.cycle == "quiet" else _length_of(source)
    owner = source if is_stateful(source) else None
    return Kind(Stream(walk, once=persists, owner=owner), in_order=True, persists=persists, length=length)


def _callable_kind(source: Callable[..., Any], use: Use) -> Kind:
    if inspect.isasyncgenfunction(source):
        raise DefinitionError(f"{use.label} is an async generator function; an async source returns one sample a call")
    owner = None if use.parallel else _knower(source)

    def kind(callback: Callable[[Any], Any], *, ignores_info: bool = False) -> Kind:
        callback = callback if owner is None else StatefulCallable(callback, owner)
        return Kind(callback, is_async=is_async(source), ignores_info=ignores_info, length=_length_of(source))

    argument = "the SampleInfo" if not use.batch else "the BatchInfo" if use.batch_info else "the number of the batch"
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):  # some built-in functions have none
        signature = None
    if signature is not None and (further := _further_parameter(source, signature)) is not None:
        raise DefinitionError(
            f"{use.label} has the signature {signature}; a source has at most one positional argument, {argument}, and no "
            f"other parameter such as {further}. Bind the others with functools.partial"
        )
    if signature is None or _accepts(signature, 1):
        return kind(_WithIteration(source) if use.batch and not use.batch_info else source)
    if not _accepts(signature, 0):
        raise DefinitionError(
            f"{use.label} has the signature {signature}; a source is called with one positional argument, {argument}"
        )
    if use.parallel:
        raise DefinitionError(
            f"{use.label} takes no argument; with parallel=True the source must accept exactly one, {argument}, because any "
            "worker may compute any sample"
        )
    if is_async(source) and not use.batch:
        raise DefinitionError(
            f"{use.label} takes no argument and is a coroutine function; several calls run at once, so it must accept "
            f"{argument}"
        )
    return kind(_IgnoreInfo(source), ignores_info=True)


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


def grouped(kind: Kind, size: int, num_outputs: int | None, *, drop_last: bool) -> Kind:
    """Group the samples of an iterable into batches."""
    assert isinstance(kind.callback, Stream)
    walk = Grouped(kind.callback.begin, size, num_outputs, drop_last=drop_last)
    return Kind(Stream(walk, once=kind.persists), in_order=kind.in_order, persists=kind.persists)


def padded(kind: Kind, division: Division) -> Kind:
    """Repeat the first items of a source beyond the end of its epoch."""
    if isinstance(kind.callback, Stream):
        kind.callback.length = division.length
        return kind
    return kind._replace(callback=Padded(kind.callback, division))


def _knower(source: Any) -> Any:
    """Return the object with the state of a callable: itself, or the object of the method, or None."""
    return next(filter(is_stateful, (source, getattr(source, "__self__", None))), None)


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
