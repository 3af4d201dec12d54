"""Options of ``dali-like run``, which the processes of the program get by an environment variable."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from dali_like.running.hook import VARIABLE

__all__ = ["RunSettings", "settings", "startup_folder"]


def startup_folder() -> str:
    """Return the folder on PYTHONPATH with whose ``sitecustomize`` the interpreter starts."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")


@dataclass(frozen=True)
class RunSettings:
    """Options of ``dali-like run``; see `dali_like.cli.run`.

    Attributes:
        fast: whether random numbers depend on samples, and workers may become more.
        baseline: whether PyTorch's own iterators run, under the same meter.
        dali: whether ``nvidia.dali`` is this library even where DALI is installed.
        only, skip: patterns of files and modules that make loaders.
        folder: where processes write their records; "" without ``dali-like run``.
        trace: whether to record traces.
        profile: whether to sample the stacks of the workers.
        seeds: whether the global random generators begin with a fixed seed, for programs that set none.
        steps: number of batches after which a process ends; 0 for all.
    """

    fast: bool = False
    baseline: bool = False
    dali: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    folder: str = ""
    trace: bool = False
    profile: bool = False
    seeds: bool = False
    steps: int = 0

    def as_text(self) -> str:
        """Return the value of the environment variable."""
        return json.dumps(asdict(self))


@functools.cache
def settings() -> RunSettings:
    """Return the options of this process."""
    values: dict[str, Any] = json.loads(os.environ.get(VARIABLE) or "{}")
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return RunSettings(**given)
