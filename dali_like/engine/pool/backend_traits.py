"""Properties of the worker backends. Code asks for a property of a backend, and never compares its name.

A new backend is a module that implements `dali_like.engine.pool.workers.Workers`, and a row here.
"""

from __future__ import annotations

from typing import NamedTuple

from dali_like.engine.memory.slot_layout import TASKS_PER_WORKER


class BackendTraits(NamedTuple):
    """Properties of a backend. Build it with keywords.

    Attributes:
        name: the start method: ``py_start_method`` of a pipeline, ``multiprocessing_context`` of a loader.
        start: "module:name" of its `dali_like.engine.pool.workers.StartWorkers`, which is imported for the first pool.
        aliases: other names of the start method.
        has_processes: whether workers are processes of this machine that map the shared space.
        forks: whether workers are copies of the program as it was at the start.
        are_threads: whether workers are threads of the program.
        shares_objects: whether workers use the objects of the program, without copies.
        imports_main: whether workers are fresh interpreters that import the main module of the program.
        is_remote: whether workers are on other machines: their memory, load and current sample are unknown here.
        can_rest: whether the process that starts workers outlives them, and can give later ones other objects.
        splices: whether workers take tasks by `splice` where the system allows that. Without it, the pool keeps account.
        serves_loaders: whether a loader can use it.
        needs_linux: whether it runs on Linux only.
        unit: the kind of the workers' ids, for messages: "pid" or "thread".
        starter: the name of `dali_like.engine.memory.protocol.FORKSERVER` in messages.
        tasks_per_worker: tasks of a batch for each worker, at most.
    """

    name: str
    start: str
    aliases: tuple[str, ...] = ()
    has_processes: bool = False
    forks: bool = False
    are_threads: bool = False
    shares_objects: bool = False
    imports_main: bool = False
    is_remote: bool = False
    can_rest: bool = False
    splices: bool = True
    serves_loaders: bool = True
    needs_linux: bool = True
    unit: str = "pid"
    starter: str = "the process that starts the workers"
    tasks_per_worker: int = TASKS_PER_WORKER

    @property
    def inherits(self) -> bool:
        """Whether workers have the sources at their start, so that nothing is pickled."""
        return self.forks or self.shares_objects

    @property
    def copies_objects(self) -> bool:
        """Whether each worker gets, or makes by reading, copies of the program's objects in the memory of this machine."""
        return self.has_processes or (self.are_threads and not self.shares_objects)

    @property
    def has_pids(self) -> bool:
        """Whether the ids of workers are process ids."""
        return not self.are_threads


_ROWS = (
    BackendTraits(name="fork", start="dali_like.engine.backends.processes:ProcessWorkers", has_processes=True, forks=True),
    BackendTraits(
        name="spawn",
        start="dali_like.engine.backends.processes:ProcessWorkers",
        aliases=("forkserver",),  # starts the workers in any case; DALI's sources are pickled with it, as with "spawn"
        has_processes=True,
        imports_main=True,
        can_rest=True,
    ),
    BackendTraits(
        name="thread",
        start="dali_like.engine.backends.threads:ThreadWorkers",
        are_threads=True,
        shares_objects=True,
        needs_linux=False,
        unit="thread",
    ),
    BackendTraits(
        name="thread_copies",
        start="dali_like.engine.backends.threads:ThreadWorkers",
        are_threads=True,
        unit="thread",
    ),
    BackendTraits(
        name="ray",
        start="dali_like.engine.backends.ray.ray_workers:start_actors",
        is_remote=True,
        splices=False,  # its dispatcher has one thread, which reads records without losing any
        serves_loaders=False,
        starter="the thread that serves Ray actors",
        # A call of an actor costs a millisecond of CPU time on both sides, a task of a process some microseconds.
        tasks_per_worker=1,
    ),
)

#: All backends by name.
BACKENDS = {row.name: row for row in _ROWS}


def start_methods() -> list[str]:
    """Return the names of all backends, each followed by its aliases."""
    return [name for row in BACKENDS.values() for name in (row.name, *row.aliases)]


def backend_named(name: str) -> BackendTraits | None:
    """Return the backend with a name or alias; None for other names."""
    return next((row for row in BACKENDS.values() if name == row.name or name in row.aliases), None)
