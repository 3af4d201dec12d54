"""How large a pool is: how many workers it has, and into what its batches are cut for them.

Batches are cut for the workers that there are, not for those that there may be. Once in a while it is looked how long tasks
have taken, since short ones are joined; see `dali_like.engine.pool.assembler.Assembler.fit`.
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

#: So many batches of each source are delivered between two looks at how long tasks take.
_FIT_EVERY = 32


class Scale:
    """The size of a pool, as it changes; also `dali_like.engine.pool.tuner.Tunable`.

    Attributes:
        fit_every: after how many batches to call `fit`.
    """

    def __init__(
        self,
        assemblers: Sequence[Assembler],
        work: Dispatcher,
        workers: Workers,
        recovery: Recovery,
        space: SharedSpace,
        options: WorkerOptions,
    ) -> None:
        self._assemblers = assemblers
        self._work = work
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
        """What has been measured, if workers measure."""
        words = [
            struct.unpack_from("=3q2d", self._space.map, cell_offset(worker) + CELL_BUSY)
            for worker in range(self._recovery.num_workers)
        ]
        busy, cpu, tasks, *squares = map(sum, zip(*words, strict=True))
        return Totals(self._work.num_made / len(self._assemblers), busy / 1e9, cpu / 1e9, tasks, *squares)

    @property
    def forked_pids(self) -> list[int]:
        """The process ids of the workers that are known to have been forked; nobody waits for the others."""
        return [pid for pid in self._workers.pids if pid]

    @property
    def tasks_per_batch(self) -> int:
        """Into how many parts a batch can be divided at most."""
        return max(
            -(-assembler.ring.slot_layout.capacity // assembler.task_size_for(self._most_workers))
            for assembler in self._assemblers
        )

    @property
    def batch_bytes(self) -> int:
        """How much memory a batch of each source takes together."""
        return sum(
            assembler.ring.slot_layout.resident_bytes + assembler.usual_region_bytes for assembler in self._assemblers
        )

    @property
    def limit_bytes(self) -> int:
        """How much memory batches may take."""
        return self._space.limit_bytes

    def num_ready(self, source: int) -> int:
        """How many batches of a source are complete, and have not been asked for."""
        self._work.read_reports()
        return self._work.occupancy(source)[1]

    def measure(self, *, quick_tasks: bool) -> None:
        """Say whether workers are to measure tasks, too, of which measuring would be a part that matters."""
        for worker in range(self._most_workers):
            word = cell_offset(worker) + CELL_UNMEASURED
            self._space.map[word : word + WORD_BYTES] = (not quick_tasks).to_bytes(WORD_BYTES, "little")

    def grow(self, num_workers: int) -> None:
        """Start workers until there are so many, and cut batches for them."""
        self._recovery.grow(num_workers)
        if self._cut_for != self._recovery.num_workers:
            self._cut_for = self._recovery.num_workers
            for assembler in self._assemblers:
                assembler.cut(assembler.task_size_for(self._cut_for))

    def fit(self) -> int:
        """Look how long tasks have taken since the last time, and let them be larger or smaller; `fit_every` from now on."""
        measured = self._meters[..., :2].sum(axis=1)
        for source, (tasks, busy_ns) in enumerate((measured - self._measured).tolist()):
            num_ahead = self._work.num_begun(source) + 1  # that which is being taken is one of them
            if tasks and self._assemblers[source].fit(busy_ns / tasks, self._recovery.num_workers, num_ahead):
                self.fit_every *= 2  # new slots are not to be made again and again, whatever else the machine does
        self._measured = measured
        return self.fit_every
