"""The runner of sources without workers: it computes tasks in the thread that asks for the batch, in the main process."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from dali_like.common.foreign_errors import add_note
from dali_like.common.interrupts import interruptible
from dali_like.engine.memory.protocol import WORD_BYTES, Status
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch, position_note
from dali_like.engine.worker.meters import Meter
from dali_like.engine.worker.runner import BegunTask, TaskRunner
from dali_like.engine.worker.source import Source


class InlineRunner(TaskRunner):
    """Computes tasks in the calling thread. Sources are set up before the first task, and torn down by `close`."""

    def __init__(self, space: SharedSpace, sources: Sequence[Source]) -> None:
        super().__init__(space, sources, memoryview(bytearray(3 * WORD_BYTES)).cast("q"))
        self._num_set_up = 0

    @property
    def num_replaced(self) -> int:
        """The number of samples that ``on_error`` has replaced."""
        return int(self._cell[1])

    @property
    def sample(self) -> int:
        """The index in the batch of the last sample, or of the one that failed."""
        return int(self._cell[0])

    def set_up(self) -> None:
        """Set up the sources that have not been set up."""
        for source in self._sources[self._num_set_up :]:
            if source.worker_setup is not None:
                with interruptible():
                    self.call(source.worker_setup)
            self._num_set_up += 1

    def compute(
        self, task: Any, meter: Meter, made: deque[Any] | None = None, begun: BegunTask | None = None
    ) -> tuple[Status, int]:
        try:
            return super().compute(task, meter, made, begun)
        finally:
            self.note()

    def take_error(self, batch: Batch, sample: int) -> Exception:
        """Return the exception of the last task, with a note that names the sample."""
        error, self.error = self.error, None
        assert error is not None
        add_note(error, position_note(batch, self._sources[batch.key.source], sample))
        return error

    def close(self) -> None:
        """Tear down all sources that have been set up, even if one raises, and close the event loop."""
        with contextlib.ExitStack() as stack:
            stack.callback(super().close)
            for source in reversed(self._sources[: self._num_set_up]):
                if source.worker_teardown is not None:
                    stack.callback(self.call, source.worker_teardown)
