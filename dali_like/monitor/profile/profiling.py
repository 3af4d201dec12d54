"""A context in which the workers of a pipeline or loader sample their stacks: `Pipeline.profile`, `DataLoader.profile`."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dali_like.engine.worker.sampling import PACKAGE, StackCounts, StackSampler
from dali_like.errors import PipelineStateError
from dali_like.monitor.profile.profile import Profile, merged

if TYPE_CHECKING:
    from dali_like.engine.pool.pool import WorkerPool
    from dali_like.engine.worker.profiles import WorkerProfiles
    from dali_like.monitor.monitoring import Monitor

__all__ = ["Profiling"]

#: Files that call functions of the program in the main process.
_MAIN_FILES = frozenset(
    os.path.join(PACKAGE, *path) for path in (("data", "local_iterator.py"), ("engine", "pool", "inline_runner.py"))
)
_numbers = itertools.count(1)


class Profiling:
    """A context that profiles the workers. ``print`` shows the profile.

    Args:
        monitor: of the pipeline or loader.
        kind: "pipeline" or "loader", for messages.
        pools: returns the pools of workers that exist.
        path: the file to write at the end of the context; see `Profile.write`. None: no file.
        computes_here: returns whether this thread calls functions of the program, too. Called when the pools exist.
    """

    def __init__(
        self,
        monitor: Monitor,
        kind: str,
        pools: Callable[[], Iterable[WorkerPool]],
        path: str | os.PathLike[str] | None,
        computes_here: Callable[[], bool],
    ) -> None:
        self._monitor, self._kind, self._pools = monitor, kind, pools
        self._computes_here = computes_here
        self._path = None if path is None else Path(path)
        self._number = next(_numbers)
        self._known = Profile()
        #: The pools that are being profiled. A pool does not outlive its iterator because of them.
        self._followed: list[tuple[weakref.ref[WorkerPool], WorkerProfiles]] = []
        self._sampler: StackSampler | None = None
        self._is_wanted = False

    def __enter__(self) -> Self:
        if self._monitor.profiling is not None:
            raise PipelineStateError(f"the {self._kind} is being profiled already; end that profile first")
        self._monitor.profiling = self
        try:
            for pool in self._pools():
                self.follow(pool)
        except BaseException:
            self._monitor.profiling = None
            raise
        if self._computes_here():
            self._is_wanted = True
            alone = not self._followed
            self._sampler = StackSampler(_MAIN_FILES, lambda: self._is_wanted, lambda counts: None, is_alone=alone)
            self._sampler.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._is_wanted = False
        if self._sampler is not None:
            self._sampler.join()
        self._monitor.profiling = None
        for pool, profiles in self._followed:
            self._fold(profiles, pool())
        self._followed.clear()
        self._add("main", None if self._sampler is None else self._sampler.counts)
        self._monitor.profile = self._known
        if self._path is not None:
            self._known.write(self._path)

    def follow(self, pool: WorkerPool) -> None:
        """Profile the workers of a pool until it is closed."""
        if any(known() is pool for known, _ in self._followed):
            return
        self._fold_closed()
        self._followed.append((weakref.ref(pool), pool.profile_tasks(self._number)))

    @property
    def profile(self) -> Profile:
        """The profile so far."""
        found = merged({"": self._known})
        for _, profiles in self._followed:
            for worker, counts in profiles.read().items():
                found.add(f"worker {worker}", counts)
        return found

    def __str__(self) -> str:
        return str(self.profile)

    def _fold_closed(self) -> None:
        """Take the counts of pools that have been closed: each keeps the address space of its workers."""
        open_ones = []
        for pool, profiles in self._followed:
            if (found := pool()) is None or found.is_closed:
                self._fold(profiles, found)
            else:
                open_ones.append((pool, profiles))
        self._followed = open_ones

    def _fold(self, profiles: WorkerProfiles, pool: WorkerPool | None) -> None:
        running = () if pool is None or pool.is_closed else range(pool.num_workers)
        for worker, counts in profiles.end(running).items():
            self._add(f"worker {worker}", counts)

    def _add(self, name: str, counts: StackCounts | None) -> None:
        if counts is not None and counts.stacks:
            self._known.add(name, counts)
