"""The arguments of a pipeline: checked when they are given, and shown as properties."""

from __future__ import annotations

import enum
import operator
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.checks import Check, flag, is_int, not_negative, or_none, positive
from dali_like.common.notices import warn
from dali_like.engine.memory.limits import available_cpus
from dali_like.engine.pool.settings import AUTO, FIRST_DEPTH, first_workers
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.types import CPU_ONLY_DEVICE_ID, to_dali_type

if TYPE_CHECKING:
    from dali_like.pipeline.checkpoints import Checkpoint
    from dali_like.sources.callback_pickler import CallbackPickler

__all__ = ["START_METHODS", "Arguments", "HasArguments", "OperatorConcurrency", "StreamPolicy"]

START_METHODS = ("fork", "spawn", "thread", "ray")


class StreamPolicy(enum.Enum):
    """How DALI spreads operators over CUDA streams."""

    SINGLE = 16
    PER_BACKEND = 32
    PER_OPERATOR = 48
    UNSPECIFIED = 0


class OperatorConcurrency(enum.Enum):
    """Which operators DALI runs at the same time."""

    NONE = 2
    BACKEND = 4
    FULL = 6
    UNSPECIFIED = 0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Arguments:
    """What a pipeline was given; see `dali_like.Pipeline`.

    Raises:
        ArgumentError: an argument has a value that is not allowed; ArgumentTypeError, ArgumentClashError: as DALI has it.
    """

    batch_size: int | None
    num_threads: int | None
    device_id: int | None
    seed: int | None
    exec_pipelined: bool
    prefetch_queue_depth: int | dict[str, int] | str
    exec_async: bool
    bytes_per_sample: int
    set_affinity: bool
    enable_memory_stats: bool
    py_num_workers: int | str | None
    py_start_method: str
    py_callback_pickler: Any
    py_worker_options: Any
    enable_checkpointing: bool
    checkpoint: Any
    py_worker_threads: int | None
    py_worker_restarts: int | None
    py_timeout_s: float | None
    max_held_bytes: int | None
    output_dtype: Any
    output_ndim: Any
    output_layout: Any
    exec_dynamic: bool | None
    stream_policy: StreamPolicy | None
    concurrency: OperatorConcurrency | None

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.device_id == CPU_ONLY_DEVICE_ID:
            object.__setattr__(self, "device_id", None)
        if self.seed is not None and self.seed < 0:
            object.__setattr__(self, "seed", None)
        if self.py_callback_pickler is not None and self.py_start_method in ("fork", "thread"):
            raise ArgumentClashError(
                f"py_callback_pickler should not be set when the {self.py_start_method!r} start method is used: such "
                "workers have the sources already, and nothing is pickled"
            )
        if self.py_start_method == "ray" and AUTO in (self.py_num_workers, self.prefetch_queue_depth):
            raise ArgumentClashError(
                f"py_num_workers and prefetch_queue_depth cannot be {AUTO!r} with py_start_method='ray': how busy workers "
                "are shows only on their nodes"
            )
        if self.py_start_method != "ray":
            if self.py_worker_options is not None:
                raise ArgumentClashError("py_worker_options are those of Ray's actors: they need py_start_method='ray'")
        elif self.py_timeout_s is not None:
            raise ArgumentClashError(
                "py_timeout_s cannot be set with py_start_method='ray': the sample that a worker "
                "is on shows only on its node"
            )
        if self.exec_separated and not self.exec_async:
            raise ArgumentError("prefetch_queue_depth with two sizes needs exec_async=True")

    @property
    def exec_separated(self) -> bool:
        """Whether there are two prefetch depths."""
        return isinstance(self.prefetch_queue_depth, dict)

    @property
    def queue_sizes(self) -> tuple[int, int]:
        """The prefetch depths on the CPU and on the GPU."""
        depth = self.prefetch_queue_depth
        if isinstance(depth, dict):
            return depth["cpu_size"], depth["gpu_size"]
        return (FIRST_DEPTH, FIRST_DEPTH) if isinstance(depth, str) else (depth, depth)

    @property
    def num_workers(self) -> int:
        """How many workers there are at first."""
        number = self.py_num_workers or 0
        return first_workers(available_cpus()) if isinstance(number, str) else number


def warn_of_deprecated(**arguments: Any) -> None:
    """Warn of the arguments that are not None: they are without effect, in DALI too."""
    for name, value in arguments.items():
        if value is not None:
            warn(f"Pipeline: {name} is deprecated and has no effect", DeprecationWarning)


class HasArguments:
    """Shows the arguments of a pipeline. Those marked with a star are DALI's alone, and without effect here."""

    _arguments: Arguments

    @property
    def max_batch_size(self) -> int | None:
        """Samples in a batch; None where none were given, which a pipeline cannot run with."""
        return self._arguments.batch_size

    batch_size = max_batch_size

    @property
    def num_threads(self) -> int:
        """Threads that operators run in."""
        return self._arguments.num_threads or len(os.sched_getaffinity(0))

    @property
    def device_id(self) -> int | None:
        """Which GPU."""
        return self._arguments.device_id

    @property
    def seed(self) -> int | None:
        """The seed given; None where each pipeline has another one."""
        return self._arguments.seed

    @property
    def prefetch_queue_depth(self) -> int | dict[str, int] | str:
        """Batches that are computed ahead, as given."""
        return self._arguments.prefetch_queue_depth

    @property
    def cpu_queue_size(self) -> int:
        """Batches that are computed ahead."""
        return self._arguments.queue_sizes[0]

    @property
    def gpu_queue_size(self) -> int:
        """* The prefetch depth of the stages on a GPU."""
        return self._arguments.queue_sizes[1]

    @property
    def py_num_workers(self) -> Any:
        """How many workers there are to be, processes or threads, as a number or "auto" or None."""
        return self._arguments.py_num_workers

    @property
    def py_start_method(self) -> str:
        """How workers are started."""
        return self._arguments.py_start_method

    @property
    def enable_checkpointing(self) -> bool:
        """Whether `checkpoint` and `state_dict` may be called."""
        return self._arguments.enable_checkpointing

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether the pipeline goes on from a checkpoint."""
        return self._arguments.checkpoint is not None

    @property
    def _restored(self) -> Checkpoint | None:
        """The checkpoint that the pipeline goes on from."""
        checkpoint: Checkpoint | None = self._arguments.checkpoint
        return checkpoint

    @property
    def exec_pipelined(self) -> bool:
        """Whether the first `schedule_run` of an epoch schedules as many batches as are computed ahead."""
        return self._arguments.exec_pipelined

    @property
    def exec_async(self) -> bool:
        """* Whether batches are computed ahead, which they are in any case."""
        return self._arguments.exec_async

    @property
    def exec_separated(self) -> bool:
        """* Whether there are two prefetch depths."""
        return self._arguments.exec_separated

    @property
    def exec_dynamic(self) -> bool | None:
        """* Whether DALI would use its default executor, whose batches are not overwritten; here they never are."""
        arguments = self._arguments
        if arguments.exec_dynamic is None and arguments.exec_pipelined and arguments.exec_async and not self.exec_separated:
            return True
        return arguments.exec_dynamic

    @property
    def set_affinity(self) -> bool:
        """Whether workers and threads are bound to the CPUs near the GPU."""
        return self._arguments.set_affinity

    @property
    def enable_memory_stats(self) -> bool:
        """* Whether `executor_statistics` has something to say."""
        return self._arguments.enable_memory_stats

    @property
    def stream_policy(self) -> StreamPolicy | None:
        """* How operators are spread over CUDA streams."""
        return self._arguments.stream_policy

    @property
    def concurrency(self) -> OperatorConcurrency | None:
        """* Which operators run at the same time."""
        return self._arguments.concurrency

    @property
    def max_streams(self) -> int:
        """* Always -1."""
        return -1

    @property
    def default_cuda_stream_priority(self) -> int:
        """* Always 0."""
        return 0


# Checks of arguments that only pipelines have.


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
    if not is_int(value):
        # DALI raises RuntimeError, though not before it needs them. That 0 are too few is said then, too.
        raise ArgumentClashError(
            f'{name} must be a positive integer or "auto" for sources with parallel=True, and 0 or None for others, not '
            f"{value!r}"
        )
    return operator.index(value)


def _start_method(name: str, value: Any) -> str:
    if value not in START_METHODS:
        raise ArgumentError(f"{name} must be one of {', '.join(START_METHODS)}, not {value!r}")
    return str(value)


def _callback_pickler(name: str, value: Any) -> CallbackPickler:
    from dali_like.sources.callback_pickler import make_callback_pickler  # noqa: PLC0415  # few programs give one

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
        return positive(name, value)
    if set(value) != {"cpu_size", "gpu_size"}:
        raise ArgumentError(f'{name} must be a positive integer, or a dict with "cpu_size" and "gpu_size", not {value!r}')
    return {key: positive(f"{name}[{key!r}]", size) for key, size in value.items()}


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
    """One value for all outputs, or a list with one for each."""

    def check_each(name: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return None if value is None else check(name, value)
        return [None if entry is None else check(f"{name}[{i}]", entry) for i, entry in enumerate(value)]

    return check_each


def _member(kind: type[enum.Enum]) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise ArgumentTypeError(f"{name} must be a {kind.__name__} or None, not {value!r}")
        return value

    return check


_CHECKS: dict[str, Check] = {
    "batch_size": or_none(positive),
    "num_threads": or_none(positive),
    "device_id": or_none(_integer),
    "seed": or_none(_integer),
    "exec_pipelined": flag,
    "prefetch_queue_depth": _depth,
    "exec_async": flag,
    "bytes_per_sample": not_negative,
    "set_affinity": flag,
    "enable_memory_stats": flag,
    "py_num_workers": or_none(_number_of_workers),
    "py_start_method": _start_method,
    "py_callback_pickler": or_none(_callback_pickler),
    "py_worker_options": or_none(_worker_options),
    "enable_checkpointing": flag,
    "py_worker_threads": or_none(positive),
    "py_worker_restarts": or_none(not_negative),
    "py_timeout_s": or_none(_seconds),
    "max_held_bytes": or_none(positive),
    "output_dtype": _each(_dtype),
    "output_ndim": _each(not_negative),
    "output_layout": _each(_layout),
    "exec_dynamic": or_none(flag),
    "stream_policy": or_none(_member(StreamPolicy)),
    "concurrency": or_none(_member(OperatorConcurrency)),
}
