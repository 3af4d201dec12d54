"""Batches of sources that answer requests: the main process's side; see `dali_like.engine.worker.requests`."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DTYPES, Header
from dali_like.engine.memory.ring import Lease, Slot, leased_array
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.batch import Batch, Outcome
from dali_like.engine.worker.out_of_band import OutOfBandPickle
from dali_like.engine.worker.requests import SCHEMA_BYTES, RequestHandler, Schema
from dali_like.engine.worker.source import Source
from dali_like.errors import CorruptionError

_FIRST_REQUEST_BYTES = 1 << 11
#: So many batches in a row must have another form than expected before it is expected of the next ones.
_BATCHES_TO_LEARN = 3


class Response:
    """What the tasks of a batch have made.

    Attributes:
        form: that the samples were expected to have.
        size: how many samples the batch has.
        task_size: how many of them each task has made.
        rows: for each output of the form, an array of all samples; undefined for those that a pickled speaks of.
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
        described = (task for task in range(slot_layout.num_tasks(self.size)) if batch.described >> task & 1)
        self._pickles = {task: OutOfBandPickle.of_task(slot, task, lease) for task in described}

    @property
    def is_dense(self) -> bool:
        """Whether everything is in the rows."""
        return not self._pickles

    def messages(self) -> dict[int, Any]:
        """What tasks have returned, by their number."""
        return {task: pickled.load() for task, pickled in self._pickles.items()}


class RequestAssembler(Assembler):
    """Of a source that is told what to make."""

    def __init__(self, space: SharedSpace, source: Source, capacity: int, num_workers: int) -> None:
        assert source.task_size is not None
        super().__init__(space, source, capacity, source.task_size(num_workers), (), _FIRST_REQUEST_BYTES)
        self._schema: Schema | None = None
        self._num_different = 0

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
        if len(text) > self.ring.slot_layout.request_bytes:
            self._use(request_bytes=1 << len(text).bit_length())
        slot = super().begin(batch, ticket)
        start = slot.offset + slot.slot_layout.request_offset
        slot.space.map[start : start + len(text)] = text
        slot.header[Header.REQUEST_BYTES] = len(text)
        batch.schema = self._schema
        return slot

    @property
    def holds_back(self) -> bool:
        return False  # what comes before the form is known goes into pickles

    def task_size_for(self, num_workers: int) -> int:
        assert self.source.task_size is not None
        return self.source.task_size(num_workers)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        try:
            message = OutOfBandPickle.of_task(slot, 0).load(copies=True)
        except Exception:  # it will be raised when the batch is asked for
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
        return self._fetcher.describe(key, sample)

    describe_unfinished = describe

    def note_schema(self, is_different: bool, message: Any) -> None:
        """Take note of whether the samples of a batch had the form that was expected, and what a task has said if not."""
        self._num_different = self._num_different + 1 if is_different else 0
        if self._num_different >= _BATCHES_TO_LEARN:
            self._num_different = 0
            self._learn(message)

    def _learn(self, message: Any) -> None:
        self.known = True
        self._schema = self._fetcher.learn(message)
        self._use(outputs=() if self._schema is None else self._schema.layouts)
