"""The arguments of a pipeline: names, defaults, checks, and the ones that a serialized pipeline keeps.

Annotations are evaluated here, because they are the checks.
"""

import enum
import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dali_like.common.arguments import Argument
from dali_like.common.articles import with_article
from dali_like.common.checks import Check, is_int, not_negative, or_none, positive, queue_depth
from dali_like.common.saved_arguments import NOT_SAVED, SAVED
from dali_like.common.stability import warn_deprecated
from dali_like.engine.memory.limits import allowed_cpus, available_cpus
from dali_like.engine.pool.backend_traits import BACKENDS, BackendTraits, backend_named, start_methods
from dali_like.engine.pool.settings import AUTO, FIRST_DEPTH, first_workers
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.types import CPU_ONLY_DEVICE_ID, to_dali_type

if TYPE_CHECKING:
    from dali_like.sources.external_source import ExternalSource
    from dali_like.sources.travel.callback_pickler import CallbackPickler

__all__ = ["Arguments", "OperatorConcurrency", "StreamPolicy", "make_arguments"]


class DefaultInt(int):
    """Default of an argument, which shows that it has not been given."""


class DefaultText(str):
    """Default of an argument, which shows that it has not been given."""

    __slots__ = ()


#: One worker; in a pipeline with readers, as many as operator threads.
DEFAULT_WORKERS = DefaultInt(1)
#: Fork; if only readers are parallel and CUDA is in use, spawn.
DEFAULT_START_METHOD = DefaultText("fork")


class StreamPolicy(enum.Enum):
    """Assignment of operators to CUDA streams in DALI."""

    SINGLE = 16
    PER_BACKEND = 32
    PER_OPERATOR = 48
    UNSPECIFIED = 0


class OperatorConcurrency(enum.Enum):
    """Operators that DALI runs at the same time."""

    NONE = 2
    BACKEND = 4
    FULL = 6
    UNSPECIFIED = 0


# Checks of arguments that only pipelines have


def _integer(name: str, value: Any) -> int:
    if not is_int(value):
        raise ArgumentTypeError(f"{name} must be an integer, not {value!r}")
    return operator.index(value)


def _seconds(name: str, value: Any) -> float:
    if not is_int(value) and not isinstance(value, (float, np.floating)):
        raise ArgumentTypeError(f"{name} must be a positive number of seconds or None, not {value!r}")
    if not value > 0:
        raise ArgumentError(f"{name} must be a positive number of seconds or None, not {value!r}")
    return float(value)


def _number_of_workers(name: str, value: Any) -> int | str:
    if isinstance(value, str) and value == AUTO:
        return AUTO
    if isinstance(value, DefaultInt):
        return value
    if not is_int(value):
        # DALI raises RuntimeError as well, but only when it starts the workers. That is when 0 is refused here, too.
        raise ArgumentClashError(
            f'{name} must be a positive integer or "auto" for sources with parallel=True, and 0 or None for others, not '
            f"{value!r}"
        )
    return operator.index(value)


def _start_method(name: str, value: Any) -> str:
    backend = backend_named(value)
    if backend is None:
        raise ArgumentError(f"{name} must be one of {', '.join(start_methods())}, not {value!r}")
    return value if isinstance(value, DefaultText) else backend.name


def _callback_pickler(name: str, value: Any) -> "CallbackPickler":
    from dali_like.sources.travel.callback_pickler import make_callback_pickler  # few programs give one

    return make_callback_pickler(value)


def _worker_options(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ArgumentTypeError(
            f'{name} must be a dict such as {{"num_cpus": 1, "resources": {{...}}}}, or None, not {value!r}'
        )
    return dict(value)


def _depth(name: str, value: Any) -> int | dict[str, int] | str:
    if isinstance(value, str) and value == AUTO:
        return AUTO
    if isinstance(value, str):
        raise ArgumentTypeError(f'{name} must be a positive integer or "auto", not {value!r}')
    if not isinstance(value, dict):
        return queue_depth(name, value)
    if set(value) != {"cpu_size", "gpu_size"}:
        raise ArgumentError(f'{name} must be a positive integer, or a dict with "cpu_size" and "gpu_size", not {value!r}')
    return {key: queue_depth(f"{name}[{key!r}]", size) for key, size in value.items()}


def _layout(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be a string, a list of strings or None, not {value!r}")
    return value


def _dtype(name: str, value: Any) -> Any:
    try:
        return to_dali_type(value)
    except ArgumentError as error:
        raise ArgumentTypeError(f"{name} must be a data type, a list of data types or None: {error}") from error


def _each(check: Check) -> Check:
    """Accept one value for all outputs, or a list with one value per output."""

    def check_each(name: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return None if value is None else check(name, value)
        return [None if entry is None else check(f"{name}[{i}]", entry) for i, entry in enumerate(value)]

    return check_each


def _member(kind: type[enum.Enum]) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise ArgumentTypeError(f"{name} must be {with_article(kind.__qualname__)} or None, not {value!r}")
        return value

    return check


# Unions with None are inside of `Annotated`: around it, they take ten times as long to evaluate, which each program would
# wait for. NOT_SAVED marks arguments of the machine: a serialized pipeline does not keep them.


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Arguments:
    """Arguments of `dali_like.Pipeline`, checked as their annotations say. Only its signature repeats them.

    Raises:
        ArgumentError: an argument has a value that is not allowed. ArgumentTypeError, ArgumentClashError: as in DALI.
    """

    batch_size: Annotated[int | None, or_none(positive)] = None
    num_threads: Annotated[int | None, or_none(positive)] = None
    device_id: Annotated[int | None, or_none(_integer)] = None
    seed: Annotated[int | None, or_none(_integer)] = None
    exec_pipelined: bool = True
    prefetch_queue_depth: Annotated[int | dict[str, int] | str, _depth, SAVED] = 2
    exec_async: bool = True
    bytes_per_sample: Annotated[int, not_negative] = 0
    set_affinity: bool = False
    enable_memory_stats: bool = False
    enable_checkpointing: Annotated[bool, NOT_SAVED] = False
    py_num_workers: Annotated[int | str | None, or_none(_number_of_workers), NOT_SAVED] = DEFAULT_WORKERS
    py_start_method: Annotated[str, _start_method, NOT_SAVED] = DEFAULT_START_METHOD
    py_import_main: Annotated[bool | None, NOT_SAVED] = None
    py_callback_pickler: Annotated[Any, or_none(_callback_pickler), NOT_SAVED] = None
    py_worker_options: Annotated[dict[str, Any] | None, or_none(_worker_options), NOT_SAVED] = None
    output_dtype: Annotated[Any, _each(_dtype), SAVED] = None
    output_ndim: Annotated[Any, _each(not_negative), SAVED] = None
    output_layout: Annotated[Any, _each(_layout), SAVED] = None
    exec_dynamic: bool | None = None
    stream_policy: Annotated[StreamPolicy | None, or_none(_member(StreamPolicy)), SAVED] = None
    concurrency: Annotated[OperatorConcurrency | None, or_none(_member(OperatorConcurrency)), SAVED] = None
    py_worker_threads: Annotated[int | None, or_none(positive), NOT_SAVED] = 1
    py_worker_restarts: Annotated[int | None, or_none(not_negative), NOT_SAVED] = 3
    py_timeout_s: Annotated[float | None, or_none(_seconds), NOT_SAVED] = None
    max_held_bytes: Annotated[int | None, or_none(positive), NOT_SAVED] = None

    def __post_init__(self) -> None:
        defaults = vars(Arguments)
        for name, value in vars(self).copy().items():
            # Defaults are not checked: programs give few arguments, and a specification is made when it is needed.
            if value is not defaults[name]:
                object.__setattr__(self, name, _argument(name).convert(value))
        if self.device_id == CPU_ONLY_DEVICE_ID:
            object.__setattr__(self, "device_id", None)
        if self.seed is not None and self.seed < 0:
            object.__setattr__(self, "seed", None)
        self._check_start_method()
        if self.exec_separated and not self.exec_async:
            raise ArgumentError("prefetch_queue_depth with two sizes needs exec_async=True")

    def _check_start_method(self) -> None:
        """Refuse combinations of arguments that the start method of the workers does not allow."""
        backend = self.backend
        if self.py_callback_pickler is not None and backend.inherits:
            raise ArgumentClashError(
                f"py_callback_pickler should not be set when the {self.py_start_method!r} start method is used: such "
                "workers have the sources already, and nothing is pickled"
            )
        if self.py_import_main and backend.is_remote:
            raise ArgumentClashError(
                "py_import_main is for spawned processes: Ray's workers run on nodes that may not have the program"
            )
        if not backend.is_remote:
            if self.py_worker_options is not None:
                raise ArgumentClashError("py_worker_options are options of Ray actors: they need py_start_method='ray'")
            return
        if AUTO in (self.py_num_workers, self.prefetch_queue_depth):
            raise ArgumentClashError(
                f"py_num_workers and prefetch_queue_depth cannot be {AUTO!r} with py_start_method='ray': the load of "
                "workers on other nodes is unknown here"
            )
        if self.py_timeout_s is not None:
            raise ArgumentClashError(
                "py_timeout_s cannot be set with py_start_method='ray': the current sample of a worker on another node is "
                "unknown here"
            )

    @staticmethod
    def saved() -> list[str]:
        """Return the names of the arguments that a serialized pipeline keeps."""
        return [name for name in Arguments.__annotations__ if _argument(name).saved]

    @property
    def backend(self) -> BackendTraits:
        """The properties of the workers' backend."""
        return BACKENDS[self.py_start_method]

    @property
    def exec_separated(self) -> bool:
        """Whether there are two prefetch depths."""
        return isinstance(self.prefetch_queue_depth, dict)

    @property
    def exec_dynamic_or_default(self) -> bool | None:
        """Whether DALI would use its dynamic executor, which is its default."""
        if self.exec_dynamic is None and self.exec_pipelined and self.exec_async and not self.exec_separated:
            return True
        return self.exec_dynamic

    @property
    def queue_sizes(self) -> tuple[int, int]:
        """The prefetch depths on the CPU and on the GPU."""
        depth = self.prefetch_queue_depth
        if isinstance(depth, dict):
            return depth["cpu_size"], depth["gpu_size"]
        return (FIRST_DEPTH, FIRST_DEPTH) if isinstance(depth, str) else (depth, depth)

    def for_sources(self, externals: Iterable["ExternalSource"], *, cuda_in_use: Callable[[], bool] = bool) -> "Arguments":
        """Return the arguments with the defaults for some sources: programs with readers rarely choose workers.

        Args:
            externals: the sources of the pipeline.
            cuda_in_use: returns whether this process has initialized CUDA, so that it cannot fork workers.
        """
        parallel = [external for external in externals if external.parallel]
        readers = [external for external in parallel if external.reader is not None]
        workers, method = self.py_num_workers, self.py_start_method
        if isinstance(workers, DefaultInt):
            workers = (self.num_threads or allowed_cpus()) if readers else int(workers)
        if isinstance(method, DefaultText):
            method = "spawn" if readers == parallel != [] and cuda_in_use() else str(method)
        return replace(self, py_num_workers=workers, py_start_method=method)

    @property
    def num_workers(self) -> int:
        """The number of workers to start with."""
        number = self.py_num_workers or 0
        return first_workers(available_cpus()) if isinstance(number, str) else number


@functools.cache
def _argument(name: str) -> Argument:
    """Return the specification of an argument."""
    return Argument(name, Arguments.__annotations__[name])


def make_arguments(
    *, max_streams: Any, default_cuda_stream_priority: Any, experimental_exec_dynamic: Any, **given: Any
) -> Arguments:
    """Return the arguments given to `dali_like.Pipeline`. Warn of deprecated ones, which have no effect."""
    deprecated = {
        "max_streams": max_streams,
        "default_cuda_stream_priority": default_cuda_stream_priority,
        "experimental_exec_dynamic": experimental_exec_dynamic,
    }
    for name, value in deprecated.items():
        if value is not None:
            warn_deprecated(f"Pipeline: {name}")
    if experimental_exec_dynamic is not None:
        given["exec_dynamic"] = experimental_exec_dynamic
    return Arguments(**given)
