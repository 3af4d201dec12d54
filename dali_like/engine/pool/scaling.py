"""The size of a pool: the number of its workers, and the size of tasks. Runs in the main process.

Task sizes follow the running workers, not the maximum. Every `_FIT_EVERY` batches, `Scale.adapt` compares the times of tasks
and joins short ones; see `dali_like.engine.pool.assembler.Assembler.fit`. At first more often, it decides whether workers
share batches; see `dali_like.engine.pool.sharing`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dali_like.engine.memory.protocol import (
    CELL_BUSY,
    CELL_SHARE,
    CELL_UNMEASURED,
    RESTING,
    UNLIMITED,
    WORD_BYTES,
    cell_offset,
)
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.cells import limit_worker
from dali_like.engine.pool.dispatch import Dispatcher
from dali_like.engine.pool.recovery import Recovery
from dali_like.engine.pool.workers import WorkerOptions, Workers
from dali_like.engine.worker.meters import meter_words, neighbor_counts

if TYPE_CHECKING:
    from dali_like.engine.pool.tuner import Totals

#: Delivered batches of each source between two joins of tasks.
_FIT_EVERY = 32
#: The same for the first looks at the sharing of batches. The number doubles up to that of the joins.
_FIRST_LOOK = 2


class Scale:
    """The size of a pool. Implements `dali_like.engine.pool.tuner.Tunable`.

    Attributes:
        fit_every: batches between two joins of tasks.
        interval: batches until the first call of `adapt`.
    """

    def __init__(
        self,
        assemblers: Sequence[Assembler],
        *,
        dispatcher: Dispatcher,
        workers: Workers,
        recovery: Recovery,
        space: SharedSpace,
        options: WorkerOptions,
    ) -> None:
        self._assemblers = assemblers
        self._dispatcher = dispatcher
        self._workers = workers
        self._recovery = recovery
        self._space = space
        self._most_workers = options.num_workers
        self._meters = meter_words(space, len(assemblers), options.num_workers)
        self._measured = self._meters[..., :2].sum(axis=1)
        self.fit_every = _FIT_EVERY * len(assemblers)
        looks = any(assembler.sharing is not None for assembler in assemblers)
        self._first_look = _FIRST_LOOK * len(assemblers) if looks else self.fit_every
        self._until_fit = self.fit_every
        self._look_every = self.interval = self._first_look
        self._cut_for = options.num_workers
        self.grow(options.num_first)

    @property
    def totals(self) -> Totals:
        """The measurements of all workers, if they measure."""
        from dali_like.engine.pool.tuner import Totals  # few pools have a tuner

        words = [
            struct.unpack_from("=3q2d", self._space.map, cell_offset(worker) + CELL_BUSY)
            for worker in range(self._recovery.num_workers)
        ]
        busy_ns, cpu_ns, tasks, squares_s2, cpu_squares_s2 = map(sum, zip(*words, strict=True))
        return Totals(
            batches=self._dispatcher.num_made / len(self._assemblers),
            busy_s=busy_ns / 1e9,
            cpu_s=cpu_ns / 1e9,
            tasks=tasks,
            squares_s2=squares_s2,
            cpu_squares_s2=cpu_squares_s2,
        )

    @property
    def forked_pids(self) -> list[int]:
        """The process ids of the workers that are known to have been forked. Does not wait for the others."""
        return [pid for pid in self._workers.pids if pid]

    @property
    def tasks_per_batch(self) -> int:
        """The largest number of tasks of a batch."""
        return max(
            -(-assembler.ring.slot_layout.capacity // assembler.task_size_for(self._most_workers))
            for assembler in self._assemblers
        )

    @property
    def batch_bytes(self) -> int:
        """The memory of one batch of each source, in bytes."""
        return sum(
            assembler.ring.slot_layout.resident_bytes + assembler.usual_region_bytes for assembler in self._assemblers
        )

    @property
    def limit_bytes(self) -> int:
        """The memory limit of all batches, in bytes."""
        return self._space.limit_bytes

    def num_ready(self, source: int) -> int:
        """Return how many batches of a source are complete and not delivered."""
        self._dispatcher.read_reports()
        return self._dispatcher.occupancy(source)[1]

    def measure(self, *, quick_tasks: bool) -> None:
        """Choose whether workers also measure tasks so quick that measuring takes a notable part of their time."""
        for worker in range(self._most_workers):
            word = cell_offset(worker) + CELL_UNMEASURED
            self._space.map[word : word + WORD_BYTES] = (not quick_tasks).to_bytes(WORD_BYTES, "little")

    def limit(self, num_active: int, share: float | None) -> None:
        """Let workers use a share of CPU time together, and the others rest.

        Args:
            num_active: workers that do not rest.
            share: CPUs; None: no limit.
        """
        if self._recovery.is_isolating:  # all workers must take the record that stops them
            return
        each = UNLIMITED if share is None or share >= num_active else max(int(1000 * share / num_active), 1)
        for worker in range(self._most_workers):
            limit_worker(self._space, worker, RESTING if share is not None and worker >= num_active else each)

    def share_of(self, worker: int) -> int:
        """Return the share of a worker; see `dali_like.engine.memory.protocol.CELL_SHARE`."""
        word = cell_offset(worker) + CELL_SHARE
        return int.from_bytes(self._space.map[word : word + WORD_BYTES], "little", signed=True)

    def grow(self, num_workers: int) -> None:
        """Start workers until there are `num_workers`, and adapt the size of tasks."""
        if (announce := self._dispatcher.hooks.grow) is not None:
            announce(num_workers)
        self._recovery.grow(num_workers)
        if self._cut_for != self._recovery.num_workers:
            self._cut_for = self._recovery.num_workers
            for assembler in self._assemblers:
                assembler.cut(assembler.task_size_for(self._cut_for))

    def adapt(self) -> int:
        """Adapt the size of tasks to the times since the last call. Return the number of batches until the next call."""
        self._until_fit -= self.interval
        self._look_every = self._first_look if self._fit_sharing() else min(2 * self._look_every, self.fit_every)
        if self._until_fit <= 0:
            self._join()
            self._until_fit = self.fit_every
        self.interval = min(self._look_every, self._until_fit)
        return self.interval

    def _fit_sharing(self) -> bool:
        changes = False
        for source, assembler in enumerate(self._assemblers):
            if assembler.sharing is not None:
                parts, wholes = neighbor_counts(self._meters[source])
                changes |= assembler.fit_sharing(parts, wholes, self._recovery.num_workers, self._num_ahead(source))
        return changes

    def _join(self) -> None:
        measured = self._meters[..., :2].sum(axis=1)
        for source, (tasks, busy_ns) in enumerate((measured - self._measured).tolist()):
            num_workers = self._recovery.num_workers
            if tasks and self._assemblers[source].fit(busy_ns / tasks, num_workers, self._num_ahead(source)):
                # Each change makes new slots: change more rarely, even if the load of the machine varies.
                self.fit_every *= 2
        self._measured = measured

    def _num_ahead(self, source: int) -> int:
        return self._dispatcher.num_begun(source) + 1  # the batch that is being delivered counts
