"""What users may give as the source of an external source, checked when the pipeline is defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DefinitionError, DeviceError
from dali_like.types import SampleInfo, to_dali_type, to_numpy_type
from dali_like.workers.geometry import OutputLayout
from dali_like.workers.protocol import DTYPE_CODES, MAX_NDIM, UNKNOWN
from dali_like.workers.samples import Source

#: In the place of what the user has not declared.
_UNSAID = object()


@dataclass(frozen=True)
class ExternalSource:
    """An external source as the graph knows it.

    Attributes:
        source: what the engine calls.
        declared: what the user has said about the outputs.
        layouts: the layout of each output; empty strings where none was given.
        parallel: whether worker processes call the source.
        prefetch_queue_depth: batches computed ahead on top of the pipeline's own depth.
    """

    source: Source
    declared: tuple[OutputLayout, ...]
    layouts: tuple[str, ...]
    parallel: bool
    prefetch_queue_depth: int


def make_external_source(
    source: Any,
    num_outputs: int | None,
    *,
    name: str | None,
    device: str,
    layout: str | Sequence[str] | None,
    dtype: Any,
    ndim: int | Sequence[int] | None,
    batch: bool,
    parallel: bool,
    prefetch_queue_depth: int | None,
    on_error: str | Callable[[SampleInfo, Exception], Any],
    worker_setup: Callable[[], Any] | None,
    worker_teardown: Callable[[], Any] | None,
) -> ExternalSource:
    """Check the arguments of ``fn.external_source``; see there.

    Raises:
        ArgumentError, DefinitionError, DeviceError: an argument is wrong; the message says which, and what is allowed.
    """
    if num_outputs is not None:
        _check_at_least_one("num_outputs", num_outputs)
    if not isinstance(parallel, bool):
        raise ArgumentTypeError(f"parallel must be True or False, not {parallel!r}")
    if device != "cpu":
        raise DeviceError(f"device={device!r}: this version has external sources on the CPU only")
    if batch:
        raise DefinitionError(
            "this version calls sources sample by sample only: say batch=False, and let the source take a SampleInfo"
        )
    if prefetch_queue_depth is not None:
        if not parallel:
            raise ArgumentError("prefetch_queue_depth of an external source needs parallel=True")
        _check_at_least_one("prefetch_queue_depth", prefetch_queue_depth)
    if not callable(on_error) and on_error not in ("raise", "skip"):
        raise ArgumentError(f'on_error must be "raise", "skip" or a callable that makes a replacement, not {on_error!r}')
    for what, function in (("worker_setup", worker_setup), ("worker_teardown", worker_teardown)):
        if function is not None and not callable(function):
            raise ArgumentError(f"{what} must be callable without arguments, or None, not {function!r}")
    count = 1 if num_outputs is None else num_outputs
    layouts = tuple(_per_output("layout", layout, count, str, ""))
    dtypes = _per_output("dtype", dtype, count, object, _UNSAID)
    ndims = _per_output("ndim", ndim, count, int, _UNSAID)
    declared = tuple(map(_declare, dtypes, ndims, layouts))
    label = f"external_source {name!r}" if name else f"external_source of {_name_of(source)}"
    return ExternalSource(
        Source(label, _check_callable(source, label, parallel), num_outputs, on_error, worker_setup, worker_teardown),
        declared,
        layouts,
        parallel,
        prefetch_queue_depth or 1,
    )


def _check_callable(source: Callable[..., Any], label: str, parallel: bool) -> Callable[[SampleInfo], Any]:
    if not callable(source):
        raise DefinitionError(f"{label}: with batch=False the source must be callable, not a {type(source).__qualname__}")
    if inspect.isgeneratorfunction(source) or inspect.isgeneratorfunction(type(source).__call__):
        raise DefinitionError(f"{label} is a generator function; with batch=False the source must return one sample a call")
    if inspect.iscoroutinefunction(source):
        raise DefinitionError(f"{label} is an async function; the source must return its sample")
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):  # some built-in functions have none
        return source
    if _accepts(signature, 1):
        return source
    if not _accepts(signature, 0):
        raise DefinitionError(
            f"{label} has the signature {signature}; a source is called with one positional argument, the SampleInfo"
        )
    if parallel:
        raise DefinitionError(
            f"{label} takes no argument; with parallel=True the source must accept exactly one, the SampleInfo, so that "
            "each worker can be told which sample to make"
        )
    return _IgnoreInfo(source)


@dataclass(frozen=True)
class _IgnoreInfo:
    """A source that takes no argument, as one that does."""

    source: Callable[[], Any]

    def __call__(self, info: SampleInfo) -> Any:
        return self.source()


def _accepts(signature: inspect.Signature, num_arguments: int) -> bool:
    try:
        signature.bind(*[None] * num_arguments)
    except TypeError:
        return False
    return True


def _declare(dtype: Any, ndim: Any, layout: str) -> OutputLayout:
    code = UNKNOWN if dtype is _UNSAID else DTYPE_CODES[to_numpy_type(to_dali_type(dtype))]
    if ndim is not _UNSAID and not 0 <= ndim <= MAX_NDIM:
        raise ArgumentClashError(f"ndim must be between 0 (scalars) and {MAX_NDIM}, not {ndim}")
    if layout:
        if ndim not in (_UNSAID, len(layout)):
            raise ArgumentClashError(
                "Number of dimensions in the provided layout does not match the ndim argument. "
                f"The arguments provided: ndim = {ndim}, layout: {layout!r}"
            )
        ndim = len(layout)
    return OutputLayout(code, UNKNOWN if ndim is _UNSAID else ndim)


def _per_output(name: str, value: Any, count: int, kind: type, rest: Any) -> list[Any]:
    """One value for each output: a single value stands for all, a list that is too short is filled up with `rest`."""
    if value is None:
        return [rest] * count
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) > count:
        raise ArgumentError(f"{name} has {len(values)} entries for {count} outputs")
    for entry in values:
        if not isinstance(entry, kind):
            raise ArgumentTypeError(f"{name} must be of type {kind.__name__} or a list of it, not {entry!r}")
    return values + [rest] * (count - len(values))


def _check_at_least_one(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be a positive integer, not {value!r}")
    if value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {value!r}")


def _name_of(source: Any) -> str:
    for candidate in (source, getattr(source, "func", None), type(source)):
        name = getattr(candidate, "__qualname__", None)
        if isinstance(name, str):
            return name
    return repr(source)
