"""Calling sources in the thread that wants their batches, where there are no workers."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from dali_like.common.interrupts import interruptible
from dali_like.engine.memory.protocol import WORD_BYTES, Status
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch, position_note
from dali_like.engine.worker.exceptions import add_note
from dali_like.engine.worker.meters import Meter
from dali_like.engine.worker.runner import TaskRunner
from dali_like.engine.worker.source import Source


class InlineRunner(TaskRunner):
    """Computes tasks in the calling thread. Sources are set up before the first, and torn down by `close`."""

    def __init__(self, space: SharedSpace, sources: Sequence[Source]) -> None:
        super().__init__(space, sources, memoryview(bytearray(3 * WORD_BYTES)).cast("q"))
        self._num_set_up = 0

    @property
    def num_replaced(self) -> int:
        """How many samples were replaced by what a source's ``on_error`` says."""
        return int(self._cell[1])

    @property
    def sample(self) -> int:
        """The index in the batch of the sample that has been made last, or could not be."""
        return int(self._cell[0])

    def set_up(self) -> None:
        """Set up the sources that have not been."""
        for source in self._sources[self._num_set_up :]:
            if source.worker_setup is not None:
                with interruptible():
                    self.call(source.worker_setup)
            self._num_set_up += 1

    def compute(self, task: Any, meter: Meter, made: deque[Any] | None = None) -> tuple[Status, int]:
        try:
            return super().compute(task, meter, made)
        finally:
            self.note()

    def take_error(self, batch: Batch, sample: int) -> Exception:
        """What the last task has failed with, for whoever asks for the batch."""
        error, self.error = self.error, None
        assert error is not None
        add_note(error, position_note(batch, self._sources[batch.key.source], sample))
        return error

    def close(self) -> None:
        """Tear down the sources that have been set up, all of them even if one raises, and end the event loop."""
        with contextlib.ExitStack() as stack:
            stack.callback(super().close)
            for source in reversed(self._sources[: self._num_set_up]):
                if source.worker_teardown is not None:
                    stack.callback(self.call, source.worker_teardown)
