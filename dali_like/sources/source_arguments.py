"""The arguments of ``fn.external_source``: this is the only list of them. Their annotations are their checks.

Annotations are evaluated here; see `dali_like.common.arguments`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, cast

from dali_like.common.arguments import Argument
from dali_like.common.checks import auto_or_flag, error_policy, unchecked
from dali_like.engine.worker.source import LastBatch
from dali_like.errors import ArgumentError, ArgumentTypeError, DeviceError

__all__ = ["SourceOptions", "checked_options", "cycle_of", "default_options", "plain_types"]

#: The values of ``cycle``, with their normalized forms.
_CYCLES: dict[Any, str | None] = {None: None, False: "no", "no": "no", True: "quiet", "quiet": "quiet", "raise": "raise"}


def cycle_of(name: str, value: Any) -> str | None:
    """Return the normalized form of ``cycle``; None if it is not given.

    Raises:
        ArgumentError: the value is another one.
    """
    try:
        return _CYCLES[value]
    except (KeyError, TypeError):
        raise ArgumentError(f'{name} must be None, True, False, "no", "quiet" or "raise", not {value!r}') from None


def _name(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be a string, not {value!r}")
    return value


def _device(name: str, value: Any) -> str:
    if value not in ("cpu", "gpu"):
        raise DeviceError(f'{name}={value!r}: an external source is on the "cpu" or on the "gpu"')
    device: str = value
    return device


def _plain_function(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ArgumentError(f"{name} must be callable without arguments, or None, not {value!r}")
    return value


class SourceOptions(TypedDict, total=False):
    """The keyword arguments of ``fn.external_source``, described there. Some are checked together with others."""

    cycle: Annotated[bool | str | None, cycle_of]
    name: Annotated[str | None, _name]
    device: Annotated[str, _device]
    layout: Annotated[str | Sequence[str] | None, unchecked]
    dtype: Any
    ndim: Annotated[int | Sequence[int] | None, unchecked]
    cuda_stream: Any
    use_copy_kernel: Annotated[bool | None, unchecked]
    blocking: bool | None
    batch: Annotated[bool | None, unchecked]
    repeat_last: bool | None
    parallel: bool | None
    no_copy: bool | None
    prefetch_queue_depth: Annotated[int | None, unchecked]
    bytes_per_sample_hint: Annotated[int | None, unchecked]
    batch_info: bool | None
    preserve: bool | None
    on_error: Annotated[str | Callable[[Any, Exception], Any], error_policy]
    worker_setup: Annotated[Callable[[], Any] | None, _plain_function]
    worker_teardown: Annotated[Callable[[], Any] | None, _plain_function]
    size: Annotated[int | None, unchecked]
    last_batch_policy: Annotated[str | LastBatch | None, unchecked]
    sharded: bool | None
    concurrency: Annotated[int | None, unchecked]
    share_batches: Annotated[bool | str, auto_or_flag]
    shard: Annotated[str | None, unchecked]
    shard_id: Annotated[int | None, unchecked]
    num_shards: Annotated[int | None, unchecked]
    shard_rest: Annotated[str | None, unchecked]
    mesh: Any
    mesh_dims: Annotated[str | int | Sequence[str | int] | None, unchecked]
    cache: Annotated[int | str | Mapping[str, Any] | None, unchecked]


#: The defaults that are not None.
_DEFAULTS: SourceOptions = {
    "device": "cpu",
    "batch": True,
    "repeat_last": False,
    "preserve": False,
    "on_error": "raise",
    "sharded": False,
    "share_batches": "auto",
}


_ALL_DEFAULTS: Mapping[str, Any] = {**dict.fromkeys(SourceOptions.__annotations__), **_DEFAULTS}


def default_options() -> SourceOptions:
    """Return all options with their defaults."""
    return cast(SourceOptions, dict(_ALL_DEFAULTS))


def plain_types() -> dict[str, Any]:
    """Return the types of all options, without their checks, for signatures."""
    return {name: getattr(hint, "__origin__", hint) for name, hint in SourceOptions.__annotations__.items()}


@functools.cache
def _argument(name: str) -> Argument:
    """Return the specification of an option."""
    return Argument(name, SourceOptions.__annotations__[name])


def checked_options(options: SourceOptions) -> SourceOptions:
    """Return all options, each checked alone. Defaults are not: sources have few other options.

    Raises:
        ArgumentError, DeviceError: an option is wrong; the message names it and the allowed values.
    """
    checked = {
        name: value if value is _ALL_DEFAULTS[name] else _argument(name).convert(value) for name, value in options.items()
    }
    return cast(SourceOptions, checked)
