"""Checks of the arguments of ``fn.external_source``, made when the pipeline is defined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dali_like.common.checks import positive, queue_depth
from dali_like.common.suggestions import list_unknown
from dali_like.engine.memory.protocol import DTYPE_CODES, MAX_NDIM, UNKNOWN
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import LastBatch
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DefinitionError
from dali_like.sources.caching.cache_options import CacheOptions, DeferredCache
from dali_like.sources.composed import is_composed
from dali_like.sources.external_source import ExternalSource
from dali_like.sources.kinds import external_source_of
from dali_like.sources.ranks import choose_shard
from dali_like.sources.readers.reader_stream import ReaderStream
from dali_like.sources.sharding import Rest, Shard
from dali_like.sources.source_arguments import SourceOptions, checked_options
from dali_like.types import NO_TYPE, DALIDataType, numpy_dtype, to_dali_type

#: Stands for a dtype or ndim that the user has not declared.
_UNDECLARED = object()
#: Options that need a `source`.
_FOR_SOURCES = (
    *("parallel", "sharded", "size", "concurrency", "worker_setup", "worker_teardown", "cycle", "batch_info"),
    *("shard", "shard_id", "num_shards", "mesh", "cache"),
)
#: Options with which the length of the source ends the epoch.
_ENDED_BY_LENGTH = ("last_batch_policy", "shard", "shard_id", "num_shards", "shard_rest", "mesh")
#: Pickled objects travel as bytes.
_OBJECT_SCHEMA = OutputSchema(DTYPE_CODES[numpy_dtype(DALIDataType.UINT8)], 1)


def make_external_source(source: Any, num_outputs: int | None, options: SourceOptions) -> ExternalSource:
    """Check the arguments of ``fn.external_source``, and return the external source.

    Raises:
        ArgumentError, DefinitionError, DeviceError: an argument is wrong; the message names it and the allowed values.
    """
    if num_outputs is not None:
        num_outputs = positive("num_outputs", num_outputs)
    parallel = bool(options["parallel"])
    given = options
    if composed := is_composed(source):
        options = _options_of_composed(options, _label_of(source, options["name"]))
    options = checked_options(options)
    batch = not parallel if options["batch"] is None else bool(options["batch"])
    last_batch = _check_last_batch(options["last_batch_policy"], batch)
    shard, rest = _check_shard(options)
    count = 1 if num_outputs is None else num_outputs
    layouts = tuple(_per_output("layout", options["layout"], count, (str,), ""))
    dtypes = _per_output("dtype", options["dtype"], count, (object,), _UNDECLARED)
    ndims = _per_output("ndim", options["ndim"], count, (int, np.integer), _UNDECLARED)
    declared = tuple(map(_declare, dtypes, ndims, layouts))
    objects = tuple(map(_is_object, dtypes))
    name = options["name"]
    if source is None:
        _check_input(given, num_outputs)
        label = f"input {name!r}" if name else "an input without a name"
    else:
        label = _label_of(source, name)
        if composed and options["cache"] is not None:
            source = source.cache(**_cache_arguments(options["cache"]))
        _check_with_source(options, label, parallel=parallel)
    said = {
        "name": label,
        "key": name,
        "num_outputs": num_outputs,
        "declared": declared,
        "layouts": layouts,
        "objects": objects if any(objects) else (),
        "batch": batch,
        "parallel": parallel,
        "sharded": parallel and bool(options["sharded"]),
        "last_batch": last_batch,
        "shard": shard,
        "rest": rest,
        "options": options,
    }
    external = external_source_of(source, said, takes_dicts=any(objects))
    if source is None:
        return external
    cache = None if composed else _cache_of(options, label)
    length = _check_length(options, external)
    _check_kind(external)
    if shard is not None:
        _check_rest(external, length)
        last_batch = LastBatch.PARTIAL if rest is Rest.UNEVEN and not batch else LastBatch.DROP
    external = external.replaced(length=length, cache=cache, last_batch=last_batch)
    if cache is not None:
        external.check_cacheable("cache=")
    return external


def _cache_of(options: SourceOptions, label: str) -> DeferredCache | None:
    """Return the cache for the argument `cache`, if it is given.

    Raises:
        ArgumentError: an argument of the cache is wrong.
    """
    given = options["cache"]
    return None if given is None else DeferredCache(CacheOptions.of(**_cache_arguments(given)), label)


def _cache_arguments(given: Any) -> dict[str, Any]:
    """Return the arguments of a cache, which are given as a dict or as the size of the memory."""
    arguments = dict(given) if isinstance(given, Mapping) else {"memory": given}
    known = ("memory", "disk", "key", "policy")
    if unknown := sorted(arguments.keys() - set(known)):
        raise ArgumentError(f"cache got unexpected arguments: {list_unknown(unknown, known)}")
    return arguments


def _value(options: Mapping[str, Any], name: str) -> Any:
    return options[name]


def _check_last_batch(policy: str | LastBatch | None, batch: bool) -> LastBatch:
    if policy is None:
        return LastBatch.DROP
    # Framework iterators have their own enumeration, with the same names.
    name = policy.lower() if isinstance(policy, str) else getattr(policy, "name", "").lower()
    try:
        last_batch = LastBatch(name)
    except ValueError:
        names = ", ".join(repr(member.value) for member in LastBatch)
        raise ArgumentError(f"last_batch_policy must be one of {names}, not {policy!r}") from None
    if batch and last_batch is not LastBatch.DROP:
        raise ArgumentClashError(
            "last_batch_policy is for sources of samples; with batch=True the source itself decides the size of the last "
            "batch: leave last_batch_policy out"
        )
    return last_batch


def _check_shard(options: SourceOptions) -> tuple[Shard | None, Rest]:
    shard, rest = choose_shard(
        options["shard"],
        options["shard_id"],
        options["num_shards"],
        options["shard_rest"],
        options["mesh"],
        options["mesh_dims"],
    )
    if shard is not None and options["last_batch_policy"] is not None:
        raise ArgumentClashError("last_batch_policy cannot be combined with shards: use shard_rest for the last samples")
    if shard is not None and options["sharded"]:
        raise ArgumentClashError(
            "with sharded=True the source divides itself among the workers of all ranks: leave shard, shard_id, "
            "num_shards and mesh out"
        )
    return shard, rest


def _options_of_composed(options: SourceOptions, label: str) -> SourceOptions:
    """Return the options for a composed dataset, whose elements are samples, and whose length ends the epoch.

    Raises:
        ArgumentClashError: an option is not for composed datasets.
    """
    instead = {
        "size": "dataset.take(count)",
        "cycle": "dataset.repeat()",
        "sharded": "shard, or shard_id and num_shards, if there are several ranks",
        "batch_info": "dataset.enumerate(), to have the positions",
        "concurrency": "more workers",
    }
    for name, other in instead.items():
        if _value(options, name) not in (None, False):
            raise ArgumentClashError(f"{label}: {name} is not for composed datasets; use {other}")
    if options["on_error"] == "skip":
        raise ArgumentClashError(
            f'{label}: on_error="skip" would deliver another element twice. Return a mark from the function that fails, and '
            "use dataset.filter"
        )
    return {**options, "batch": False}


def _check_rest(external: ExternalSource, length: int | None) -> None:
    label, rest, dataset = external.name, external.rest, external.composed
    if dataset is not None and length is None:
        if dataset.shards is not None and rest is not Rest.UNEVEN:
            raise ArgumentClashError(
                f"{label}: this composed dataset has an unknown number of elements, so ranks may have different numbers of "
                'batches. Pass shard_rest="uneven"; or use dali_like.data.DataLoader, which can count them'
            )
    elif length is None and rest is not Rest.UNEVEN:
        raise ArgumentClashError(
            f"{label}: with shard_rest={rest.value!r} all ranks have equally many batches, so the length of an epoch must "
            'be known: pass size=, use a source that has __len__, or pass shard_rest="uneven"'
        )


def _check_input(options: SourceOptions, num_outputs: int | None) -> None:
    """Refuse options that an input without a source cannot have."""
    if num_outputs is not None:
        raise ArgumentError("num_outputs is only valid when using ``source``: make one input per output")
    for name in _FOR_SOURCES:
        if _value(options, name) not in (None, False):
            raise DefinitionError(f"{name} is only valid when using ``source``, which this external_source does not have")


def _check_with_source(options: SourceOptions, label: str, *, parallel: bool) -> None:
    """Refuse options that a source cannot have, or not in this place."""
    if options["repeat_last"]:
        raise ArgumentClashError(f"{label}: repeat_last is for inputs, which have no `source`")
    for name in ("prefetch_queue_depth", "bytes_per_sample_hint"):
        value = _value(options, name)
        if value is not None:
            if not parallel:
                raise ArgumentError(f"{name} of an external source needs parallel=True")
            (queue_depth if name == "prefetch_queue_depth" else positive)(name, value)
    if parallel and options["no_copy"] is not None and not options["no_copy"]:
        raise ArgumentError(f"{label}: the parallel external source never copies; leave no_copy=False out")
    if options["sharded"] and not parallel:
        raise ArgumentError(f"{label}: sharded=True gives each worker a shard: it needs parallel=True")


def _check_length(options: SourceOptions, external: ExternalSource) -> int | None:
    if options["sharded"]:
        if options["size"] is not None:
            raise ArgumentError(f"{external.name}: with sharded=True each shard ends by itself: leave size out")
        return None
    if options["size"] is None:
        return external.known_length if external.composed is not None or _length_ends_epoch(options) else None
    if isinstance(options["size"], bool) or not isinstance(options["size"], int) or options["size"] < 0:
        raise ArgumentError(f"size must be the number of samples or batches in an epoch, not {options['size']!r}")
    if external.persists:
        raise ArgumentError(
            f"{external.name}: an iterator cannot restart, so its epochs cannot have size={options['size']}: leave size out"
        )
    return options["size"]


def _length_ends_epoch(options: SourceOptions) -> bool:
    """Whether ``len(source)`` ends the epoch. DALI ignores it, so it counts only with an argument that DALI lacks."""
    return any(_value(options, name) is not None for name in _ENDED_BY_LENGTH)


def _check_kind(external: ExternalSource) -> None:
    label, options = external.name, external.options
    if options["concurrency"] is not None:
        positive("concurrency", options["concurrency"])
        if not external.is_async:
            raise ArgumentError(f"{label}: concurrency is for sources that are `async def`")
        if external.batch:
            raise ArgumentError(f"{label}: concurrency is for sources of samples: batches are computed one after the other")
    if external.in_order and options["on_error"] == "skip":
        raise ArgumentError(f'{label}: on_error="skip" needs a callable: an iterable cannot be asked for the next index')


def _is_object(dtype: Any) -> bool:
    return isinstance(dtype, DALIDataType) and dtype is DALIDataType.OBJECT


def _declare(dtype: Any, ndim: Any, layout: str) -> OutputSchema:
    if _is_object(dtype):
        if layout or ndim is not _UNDECLARED:
            raise ArgumentClashError("an output of dtype OBJECT has no dimensions: leave ndim and layout out")
        return _OBJECT_SCHEMA
    code = UNKNOWN if dtype is _UNDECLARED or dtype is NO_TYPE else DTYPE_CODES[numpy_dtype(to_dali_type(dtype))]
    if ndim is not _UNDECLARED and not 0 <= ndim <= MAX_NDIM:
        raise ArgumentClashError(f"ndim must be between 0 (scalars) and {MAX_NDIM}, not {ndim}")
    if layout:
        if ndim not in (_UNDECLARED, len(layout)):
            raise ArgumentClashError(
                "Number of dimensions in the provided layout does not match the ndim argument. "
                f"The arguments provided: ndim = {ndim}, layout: {layout!r}"
            )
        ndim = len(layout)
    return OutputSchema(code, UNKNOWN if ndim is _UNDECLARED else int(ndim))


def _per_output(name: str, value: Any, count: int, kinds: tuple[type, ...], rest: Any) -> list[Any]:
    """Return one value per output. A single value stands for all; `rest` replaces None and missing entries."""
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


def _label_of(source: Any, name: str | None) -> str:
    if isinstance(source, ReaderStream):
        return source.label(name)
    return f"external_source {name!r}" if name else f"external_source of {_name_of(source)}"


def _name_of(source: Any) -> str:
    for candidate in (source, getattr(source, "func", None), type(source)):
        name = getattr(candidate, "__qualname__", None)
        if isinstance(name, str):
            return name
    return repr(source)
