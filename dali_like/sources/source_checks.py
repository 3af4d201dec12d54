"""The arguments of ``fn.external_source``, checked when the pipeline is defined; made of them, an external source."""

from __future__ import annotations

from typing import Any

import numpy as np

from dali_like.common.checks import error_policy, flag, positive
from dali_like.engine.memory.protocol import DTYPE_CODES, MAX_NDIM, UNKNOWN
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import LastBatch
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DefinitionError, DeviceError
from dali_like.sources.external_source import ExternalSource, SourceArguments
from dali_like.sources.kinds import Kind, Use, check_cycle, kind_of
from dali_like.sources.ranks import choose_shard
from dali_like.sources.sharding import Rest, Shard
from dali_like.types import NO_TYPE, DALIDataType, numpy_dtype, to_dali_type

#: In the place of what the user has not declared.
_UNSAID = object()
#: The arguments that an input without a source cannot have.
_FOR_SOURCES = (
    *("parallel", "sharded", "size", "concurrency", "worker_setup", "worker_teardown", "cycle", "batch_info"),
    *("shard", "shard_id", "num_shards"),
)
#: Pickled objects travel as bytes.
_OBJECT_LAYOUT = OutputSchema(DTYPE_CODES[numpy_dtype(DALIDataType.UINT8)], 1)


def make_external_source(source: Any, num_outputs: int | None, arguments: SourceArguments) -> ExternalSource:
    """Check the arguments of ``fn.external_source``; see there.

    Raises:
        ArgumentError, DefinitionError, DeviceError: an argument is wrong; the message says which, and what is allowed.
    """
    if num_outputs is not None:
        num_outputs = positive("num_outputs", num_outputs)
    parallel = bool(arguments.parallel)
    batch = not parallel if arguments.batch is None else bool(arguments.batch)
    _check_flags(arguments)
    _check_functions(arguments)
    cycle = check_cycle(arguments.cycle)
    last_batch = _check_last_batch(arguments.last_batch_policy, batch)
    shard, rest = _check_shard(arguments)
    count = 1 if num_outputs is None else num_outputs
    layouts = tuple(_per_output("layout", arguments.layout, count, (str,), ""))
    dtypes = _per_output("dtype", arguments.dtype, count, (object,), _UNSAID)
    ndims = _per_output("ndim", arguments.ndim, count, (int, np.integer), _UNSAID)
    declared = tuple(map(_declare, dtypes, ndims, layouts))
    objects = tuple(map(_is_object, dtypes))
    name = arguments.name
    if source is None:
        _check_input(arguments, num_outputs)
        label = f"input {name!r}" if name else "an input without a name"
        kind = length = None
    else:
        label = f"external_source {name!r}" if name else f"external_source of {_name_of(source)}"
        _check_with_source(arguments, label, batch=batch, parallel=parallel)
        use = Use(label, batch, bool(arguments.batch_info), parallel, arguments.sharded, cycle)
        kind = kind_of(source, use)
        length = _check_length(arguments, kind, label)
        _check_kind(kind, arguments, label, batch=batch)
        if shard is not None:
            _check_rest(rest, length, label)
            last_batch = LastBatch.PARTIAL if rest is Rest.UNEVEN and not batch else LastBatch.DROP
    return ExternalSource(
        label,
        name,
        kind,
        num_outputs,
        declared,
        layouts,
        objects if any(objects) else (),
        batch,
        parallel,
        parallel and arguments.sharded,
        length,
        last_batch,
        shard,
        rest,
        arguments,
    )


def _check_flags(arguments: SourceArguments) -> None:
    for name in ("parallel", "repeat_last", "sharded", "preserve", "batch_info", "blocking", "no_copy"):
        value = getattr(arguments, name)
        if value is not None:
            flag(name, value)
    if arguments.name is not None and not isinstance(arguments.name, str):
        raise ArgumentTypeError(f"name must be a string, not {arguments.name!r}")
    if arguments.device not in ("cpu", "gpu"):
        raise DeviceError(f'device={arguments.device!r}: an external source is on the "cpu" or on the "gpu"')


def _check_functions(arguments: SourceArguments) -> None:
    error_policy("on_error", arguments.on_error)
    for what in ("worker_setup", "worker_teardown"):
        function = getattr(arguments, what)
        if function is not None and not callable(function):
            raise ArgumentError(f"{what} must be callable without arguments, or None, not {function!r}")


def _check_last_batch(policy: str | LastBatch | None, batch: bool) -> LastBatch:
    if policy is None:
        return LastBatch.DROP
    # Those of the iterators have the same names.
    name = policy.lower() if isinstance(policy, str) else getattr(policy, "name", "").lower()
    try:
        last_batch = LastBatch(name)
    except ValueError:
        names = ", ".join(repr(member.value) for member in LastBatch)
        raise ArgumentError(f"last_batch_policy must be one of {names}, not {policy!r}") from None
    if batch and last_batch is not LastBatch.DROP:
        raise ArgumentClashError(
            "last_batch_policy is for sources of samples, whose batches the pipeline makes; with batch=True the source may "
            "itself make the last batch as small as it likes"
        )
    return last_batch


def _check_shard(given: SourceArguments) -> tuple[Shard | None, Rest]:
    shard, rest = choose_shard(given.shard, given.shard_id, given.num_shards, given.shard_rest)
    if shard is not None and given.last_batch_policy is not None:
        raise ArgumentClashError("of shards, shard_rest says what becomes of the last samples; leave last_batch_policy out")
    if shard is not None and given.sharded:
        raise ArgumentClashError(
            "with sharded=True the source divides itself among the workers, and must do so among all ranks; leave shard, "
            "shard_id and num_shards out"
        )
    return shard, rest


def _check_rest(rest: Rest, length: int | None, label: str) -> None:
    if length is None and rest is not Rest.UNEVEN:
        raise ArgumentClashError(
            f"{label}: with shard_rest={rest.value!r} all ranks have as many batches, for which the length of an epoch must "
            'be known: give size=, or the source a __len__; or say shard_rest="uneven"'
        )


def _check_input(arguments: SourceArguments, num_outputs: int | None) -> None:
    """What does not go with an input that has no source."""
    if num_outputs is not None:
        raise ArgumentError("num_outputs is only valid when using ``source``; make one input for each")
    for name in _FOR_SOURCES:
        if getattr(arguments, name) not in (None, False):
            raise DefinitionError(f"{name} is only valid when using ``source``, which this external_source does not have")


def _check_with_source(arguments: SourceArguments, label: str, *, batch: bool, parallel: bool) -> None:
    """What does not go with a source, or with one that is called where it is called."""
    if arguments.repeat_last:
        raise ArgumentClashError(f"{label}: repeat_last is for inputs without a `source`, which are fed")
    for name in ("prefetch_queue_depth", "bytes_per_sample_hint"):
        value = getattr(arguments, name)
        if value is not None:
            if not parallel:
                raise ArgumentError(f"{name} of an external source needs parallel=True")
            positive(name, value)
    if parallel and arguments.no_copy is not None and not arguments.no_copy:
        raise ArgumentError(f"{label}: the parallel external source never copies; leave no_copy=False out")
    if arguments.sharded and not parallel:
        raise ArgumentError(f"{label}: sharded=True is for workers, each of which has a shard; it needs parallel=True")


def _check_length(arguments: SourceArguments, kind: Kind, label: str) -> int | None:
    if arguments.sharded:
        if arguments.size is not None:
            raise ArgumentError(f"{label}: with sharded=True the shards end where they end; leave size out")
        return None
    if arguments.size is None:
        return kind.length
    if isinstance(arguments.size, bool) or not isinstance(arguments.size, int) or arguments.size < 0:
        raise ArgumentError(f"size must be the number of samples or batches in an epoch, not {arguments.size!r}")
    if kind.persists:
        raise ArgumentError(
            f"{label}: an iterator goes on from one epoch to the next, so none of size={arguments.size} can begin anew"
        )
    return arguments.size


def _check_kind(kind: Kind, arguments: SourceArguments, label: str, *, batch: bool) -> None:
    if arguments.concurrency is not None:
        positive("concurrency", arguments.concurrency)
        if not kind.is_async:
            raise ArgumentError(f"{label}: concurrency is for sources that are `async def`")
        if batch:
            raise ArgumentError(f"{label}: concurrency is for sources of samples; batches are made one after the other")
    if kind.in_order and arguments.on_error == "skip":
        raise ArgumentError(f'{label}: on_error="skip" asks for the next index, which an iterable cannot be asked for')


def _is_object(dtype: Any) -> bool:
    return isinstance(dtype, DALIDataType) and dtype is DALIDataType.OBJECT


def _declare(dtype: Any, ndim: Any, layout: str) -> OutputSchema:
    if _is_object(dtype):
        if layout or ndim is not _UNSAID:
            raise ArgumentClashError("an output of dtype OBJECT has neither dimensions nor a layout")
        return _OBJECT_LAYOUT
    code = UNKNOWN if dtype is _UNSAID or dtype is NO_TYPE else DTYPE_CODES[numpy_dtype(to_dali_type(dtype))]
    if ndim is not _UNSAID and not 0 <= ndim <= MAX_NDIM:
        raise ArgumentClashError(f"ndim must be between 0 (scalars) and {MAX_NDIM}, not {ndim}")
    if layout:
        if ndim not in (_UNSAID, len(layout)):
            raise ArgumentClashError(
                "Number of dimensions in the provided layout does not match the ndim argument. "
                f"The arguments provided: ndim = {ndim}, layout: {layout!r}"
            )
        ndim = len(layout)
    return OutputSchema(code, UNKNOWN if ndim is _UNSAID else int(ndim))


def _per_output(name: str, value: Any, count: int, kinds: tuple[type, ...], rest: Any) -> list[Any]:
    """One value for each output: a single value stands for all, None and what a list lacks for `rest`."""
    if value is None:
        return [rest] * count
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) > count:
        raise ArgumentError(f"{name} has {len(values)} entries for {count} outputs")
    values = [rest if entry is None else entry for entry in values]
    for entry in values:
        if entry is not rest and not isinstance(entry, kinds):
            raise ArgumentTypeError(f"{name} must be of type {kinds[0].__name__} or a list of it, not {entry!r}")
    return values + [rest] * (count - len(values))


def _name_of(source: Any) -> str:
    for candidate in (source, getattr(source, "func", None), type(source)):
        name = getattr(candidate, "__qualname__", None)
        if isinstance(name, str):
            return name
    return repr(source)
