"""Assembler of request sources, in the main process. `dali_like.engine.worker.requests` is its counterpart in workers."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPES
from dali_like.engine.memory.ring import Lease, Slot, leased_array
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.batch import Batch, Outcome
from dali_like.engine.worker.out_of_band import OutOfBandPickle
from dali_like.engine.worker.requests import SCHEMA_BYTES, RequestHandler, Schema
from dali_like.engine.worker.source import Source
from dali_like.errors import CorruptionError

_FIRST_REQUEST_BYTES = 1 << 11
#: Workers collate whole batches for a while after two batches in a row with another schema than expected, or after some
#: among others. A batch of another schema costs about as much as several that fit, and one among many does not matter.
_COST_OF_DIFFERENT, _MOST_COSTS = 4, 8
#: How many batches that are at first. The number doubles each time, so that few batches are tried in vain.
_FIRST_WHOLE, _MOST_WHOLE = 64, 4096


class Response:
    """Results of the tasks of a batch.

    Attributes:
        schema: the expected schema of the samples; None: none was expected, and all samples are in pickles.
        size: number of samples of the batch.
        task_size: number of samples in each task.
        rows: for each output of the schema, an array of all samples; undefined where the message of a task has the samples.
    """

    def __init__(self, batch: Batch, slot: Slot, lease: Lease[Any], schema: Schema | None) -> None:
        slot_layout = slot.slot_layout
        self.schema = schema
        self.size = batch.key.size
        self.task_size = slot_layout.task_size
        address = slot.space.address + slot.offset
        self.rows: list[NDArray[Any]] = [
            leased_array(lease, address + offset, (self.size, *(output.shape or ())), DTYPES[output.dtype])
            for offset, output in zip(slot_layout.rows, slot_layout.outputs, strict=True)
        ]
        described = (task for task in range(batch.num_tasks) if batch.described >> task & 1)
        self._pickles = {task: OutOfBandPickle.of_task(slot, task, lease) for task in described}

    @property
    def is_dense(self) -> bool:
        """Whether all samples are in rows."""
        return not self._pickles

    def messages(self) -> dict[int, Any]:
        """Load the pickles of tasks, by number of the task."""
        return {task: pickled.load() for task, pickled in self._pickles.items()}


class RequestAssembler(Assembler):
    """Assembler of a request source. It sends the request and the expected schema with each batch."""

    def __init__(self, space: SharedSpace, source: Source, capacity: int, num_workers: int) -> None:
        assert source.task_size is not None
        super().__init__(
            space, source, capacity, source.task_size(num_workers), outputs=(), request_bytes=_FIRST_REQUEST_BYTES
        )
        self._schema = self._fetcher.recall()
        if self._schema is not None:
            self.known = True
            self._use(outputs=self._schema.layouts)
        self._costs = 0
        self._num_whole = _FIRST_WHOLE

    @property
    def _fetcher(self) -> RequestHandler:
        return self.source.handler

    def renew(self, source: Source) -> None:
        super().renew(source)
        self.known = False
        self._schema = None
        self._use(outputs=())

    def begin(self, batch: Batch, ticket: int) -> Slot:
        packed = b"" if self._schema is None else self._schema.packed
        text = SCHEMA_BYTES.pack(len(packed)) + packed + batch.key.request
        slot = self._begin_with(batch, ticket, text)
        batch.schema = self._schema
        return slot

    @property
    def needs_first_batch(self) -> bool:
        return False  # until the schema is known, samples go into pickles

    def task_size_for(self, num_workers: int) -> int:
        assert self.source.task_size is not None
        return self.source.task_size(num_workers)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        try:
            message = OutOfBandPickle.of_task(slot, 0).load(copies=True)
        except (Exception, SystemExit):  # raised again when the batch is delivered
            return
        self._learn(message)

    def end_of(self, batch: Batch, slot: Slot) -> int:
        return batch.key.stop

    def finish(self, batch: Batch, slot: Slot) -> Outcome:
        if not self.known:
            self.learn_early(batch, slot)
            self.known = True
        try:
            response = Response(batch, slot, Lease(self.ring, slot), batch.schema)
        except CorruptionError as error:
            return error
        self._note_made(batch, slot, max(batch.key.size, batch.key.parts - 1))
        if batch.described:
            self._note_regions(batch, slot.slot_layout.task_size)
            self._use(region_bytes=self._fitting_region_bytes())
        return response

    def check(self, batch: Batch) -> None:
        pass

    def describe(self, key: BatchKey, sample: int) -> str:
        try:
            return self._fetcher.describe(key, sample)
        except Exception:  # keys of a sampler may be any objects, and raise when they are unpickled
            return super().describe(key, sample)

    describe_unfinished = describe

    def note_fit(self) -> None:
        """Record that all samples of a batch had the expected schema."""
        self._costs = max(0, self._costs - 1)

    def note_different(self, schema: Schema | None, message: Any) -> None:
        """Learn a schema, or count batches with another one: where schemas change, workers collate better.

        Args:
            schema: that was expected of the samples of a batch, which had another one.
            message: the pickle of one of its tasks.
        """
        if schema is not self._schema:
            return  # the batch was begun before the expectation changed
        if schema is None:
            self._learn(message)
            return
        self._costs += _COST_OF_DIFFERENT
        if self._costs >= _MOST_COSTS:
            self._costs = 0
            self._schema = None
            self._use(outputs=())
            self._fetcher.make_whole(self._num_whole)
            self._num_whole = min(2 * self._num_whole, _MOST_WHOLE)

    def _learn(self, message: Any) -> None:
        self.known = True
        self._schema = self._fetcher.learn(message)
        self._use(outputs=() if self._schema is None else self._schema.layouts)
