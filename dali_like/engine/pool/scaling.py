"""The size of a pool: the number of its workers, and the size of tasks. Runs in the main process.

Task sizes follow the running workers, not the maximum. Every `_FIT_EVERY` batches, `Scale.fit` compares the times of tasks
and joins short ones; see `dali_like.engine.pool.assembler.Assembler.fit`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dali_like.engine.memory.protocol import CELL_BUSY, CELL_UNMEASURED, WORD_BYTES, cell_offset
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.dispatch import Dispatcher
from dali_like.engine.pool.recovery import Recovery
from dali_like.engine.pool.tuner import Totals
from dali_like.engine.pool.workers import WorkerOptions, Workers
from dali_like.engine.worker.meters import meter_words

#: Delivered batches of each source between two calls of `Scale.fit`.
_FIT_EVERY = 32


class Scale:
    """The size of a pool. Implements `dali_like.engine.pool.tuner.Tunable`.

    Attributes:
        fit_every: batches between two calls of `fit`.
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
        self._cut_for = options.num_workers
        self.grow(options.num_first)

    @property
    def totals(self) -> Totals:
        """The measurements of all workers, if they measure."""
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

    def grow(self, num_workers: int) -> None:
        """Start workers until there are `num_workers`, and adapt the size of tasks."""
        if (announce := self._dispatcher.hooks.grow) is not None:
            announce(num_workers)
        self._recovery.grow(num_workers)
        if self._cut_for != self._recovery.num_workers:
            self._cut_for = self._recovery.num_workers
            for assembler in self._assemblers:
                assembler.cut(assembler.task_size_for(self._cut_for))

    def fit(self) -> int:
        """Adapt the size of tasks to the times since the last call. Return the new `fit_every`."""
        measured = self._meters[..., :2].sum(axis=1)
        for source, (tasks, busy_ns) in enumerate((measured - self._measured).tolist()):
            num_ahead = self._dispatcher.num_begun(source) + 1  # the batch that is being delivered counts
            if tasks and self._assemblers[source].fit(busy_ns / tasks, self._recovery.num_workers, num_ahead):
                # Each change makes new slots: change more rarely, even if the load of the machine varies.
                self.fit_every *= 2
        self._measured = measured
        return self.fit_every
