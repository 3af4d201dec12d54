"""What a data loader can be told here and not in PyTorch: all that a subclass of PyTorch's loader needs besides."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

from dali_like.common.checks import Check, error_policy, flag, not_negative, or_none, positive
from dali_like.engine.memory.limits import available_cpus
from dali_like.engine.pool.settings import AUTO, first_workers
from dali_like.errors import ArgumentError, ArgumentTypeError

#: Batches that each worker computes ahead, unless the user says how many.
PREFETCH_FACTOR = 2


class OwnOptions(NamedTuple):
    """What a loader can be told here, and not in PyTorch; see `LoaderOptions` for what it means."""

    worker_seeding: str = "tasks"
    on_error: str | Callable[[Any, Exception], Any] = "raise"
    worker_restarts: int | None = 3
    prefetch_epochs: bool = False
    max_held_bytes: int | None = None
    worker_threads: int | None = 1

    @classmethod
    def checked(cls, **arguments: Any) -> OwnOptions:
        """The options that a user has given, checked; the defaults of the others.

        Raises:
            ArgumentTypeError: there is no such argument, or it is of a type that is not allowed.
            ArgumentError: it has a value that is not allowed.
        """
        for name in arguments:
            if name not in _OWN_CHECKS:
                raise ArgumentTypeError(
                    f"DataLoader has no argument {name!r}; it has PyTorch's and {', '.join(_OWN_CHECKS)}"
                )
        return cls(**{name: _OWN_CHECKS[name](name, value) for name, value in arguments.items()})


def _worker_seeding(name: str, value: Any) -> str:
    if value not in ("tasks", "torch"):
        raise ArgumentError(
            f'{name} must be "tasks", where random numbers depend on which samples are computed, or "torch", where they '
            f"depend on which worker computes them, not {value!r}"
        )
    return str(value)


_OWN_CHECKS: dict[str, Check] = {
    "worker_seeding": _worker_seeding,
    "on_error": error_policy,
    "worker_restarts": or_none(not_negative),
    "prefetch_epochs": flag,
    "max_held_bytes": or_none(positive),
    "worker_threads": or_none(positive),
}
#: The names of these arguments.
OWN_NAMES = tuple(_OWN_CHECKS)


class ThreadContext(BaseContext):
    """What ``multiprocessing_context="thread"`` becomes: workers are threads."""

    _name = "thread"

    def get_start_method(self, allow_none: bool = False) -> str:  # as there
        return self._name


def numbers_of(num_workers: Any, prefetch_factor: Any) -> tuple[Any, Any, dict[str, int]]:
    """The two as numbers; and, by name, those that the loader is to choose itself, with what it begins with.

    Raises:
        ArgumentTypeError: one is another text than "auto".
    """
    chosen = {}
    for name, value in (("num_workers", num_workers), ("prefetch_factor", prefetch_factor)):
        if isinstance(value, str) and value != AUTO:
            raise ArgumentTypeError(f'{name} option should be a non-negative number or "auto", but got {name}={value!r}')
    if isinstance(num_workers, str) and num_workers == AUTO:
        num_workers = chosen["num_workers"] = first_workers(available_cpus())
    if isinstance(prefetch_factor, str) and prefetch_factor == AUTO:
        prefetch_factor = PREFETCH_FACTOR
        if num_workers != 0:
            chosen["prefetch_factor"] = prefetch_factor
    return num_workers, prefetch_factor, chosen
