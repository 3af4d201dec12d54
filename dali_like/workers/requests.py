"""Sources that are told what to make: with each batch the main process sends a request, and what comes back is a delivery.

This is how the batches of a data loader travel, whose indices only the main process knows. A request is bytes, which lie in
the batch's slot before its tasks are posted. What a task makes goes into rows of the slot as far as its samples have the
form that is expected, and the rest into a parcel (`dali_like.workers.parcels`). Neither form nor requests nor what is in the
parcels is this module's affair, but that of the source's `Maker`.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from numpy.typing import NDArray

from dali_like.errors import CorruptionError
from dali_like.workers.batch import Batch, BatchKey, Outcome
from dali_like.workers.geometry import OutputLayout
from dali_like.workers.memory import SharedSpace
from dali_like.workers.meters import Stopwatch
from dali_like.workers.parcels import Parcel, Reducers, write_parcel
from dali_like.workers.protocol import DTYPES, Header
from dali_like.workers.ring import Lease, Slot, leased_array
from dali_like.workers.samples import Source
from dali_like.workers.stages import Stage
from dali_like.workers.task import NoMemoryError, RegionFullError, Task

_FIRST_REQUEST_BYTES = 1 << 11
_FORM_BYTES = struct.Struct("<q")
#: So many batches in a row must have another form than expected before it is expected of the next ones.
_BATCHES_TO_LEARN = 3


class Form(Protocol):
    """What the samples of a batch are expected to be like."""

    @property
    def layouts(self) -> tuple[OutputLayout, ...]:
        """The rows that they need."""

    @property
    def packed(self) -> bytes:
        """The form, for workers."""


class Request:
    """What a worker is asked for: a task of a batch.

    Attributes:
        form: what the samples are expected to be like, packed; empty while that is unknown.
        text: what the main process says of the batch.
        start, stop: the samples that are wanted, by their index in the batch.
        rows: of those samples, an array for each output of the form.
        cell: where to say which sample is being made, so that whoever watches can tell; and how many have been replaced.
        watch: what is to measure how long samples take; None: nothing.
    """

    def __init__(self, task: Task, cell: memoryview, watch: Stopwatch | None = None) -> None:
        text = bytes(task.request)
        (form_bytes,) = _FORM_BYTES.unpack_from(text)
        begin = _FORM_BYTES.size + form_bytes
        self.form = text[_FORM_BYTES.size : begin]
        self.text = text[begin:]
        self.start = task.start
        self.stop = task.stop
        self.rows = [rows[task.start : task.stop] for rows in task.view.rows if rows is not None]
        self.cell = cell
        self.watch = watch


class Maker(Protocol):
    """The callback of a source that is told what to make. Except for `learn` and `describe`, workers call it."""

    @property
    def reducers(self) -> Reducers:
        """How objects in parcels are pickled."""

    @property
    def once(self) -> bool:
        """Whether it cannot make again what it has made."""

    def for_thread(self) -> Maker:
        """One for a thread of its own, that has not begun."""

    def begin(self, worker: int, num_workers: int, notice: bytes) -> None:
        """A worker has started; what is raised is the cause of the WorkerStartError that the main process sees."""

    def make(self, request: Request) -> Any:
        """Make what is asked for: fill rows, and return what else there is to say, or None."""

    def put_back(self, request: Request, message: Any) -> None:
        """There was no room for what `make` has returned; the same will be asked for again."""

    def learn(self, message: Any) -> Form | None:
        """What samples are like, given what `make` has returned for the first of a batch; None: nothing is expected."""

    def describe(self, key: BatchKey, sample: int) -> str:
        """Which sample it is, for messages."""


class Delivery:
    """What the tasks of a batch have made.

    Attributes:
        form: that the samples were expected to have.
        size: how many samples the batch has.
        task_size: how many of them each task has made.
        rows: for each output of the form, an array of all samples; undefined for those that a parcel speaks of.
    """

    def __init__(self, batch: Batch, slot: Slot, lease: Lease[Any], form: Form | None) -> None:
        geometry = slot.geometry
        self.form = form
        self.size = batch.key.size
        self.task_size = geometry.task_size
        self._lease = lease
        address = slot.space.address + slot.offset
        self.rows: list[NDArray[Any]] = [
            leased_array(lease, address + offset, (self.size, *(output.shape or ())), DTYPES[output.dtype])
            for offset, output in zip(geometry.rows, geometry.outputs, strict=True)
        ]
        described = (task for task in range(geometry.num_tasks(self.size)) if batch.described >> task & 1)
        self._parcels = {task: Parcel(slot, task) for task in described}

    @property
    def is_dense(self) -> bool:
        """Whether everything is in the rows."""
        return not self._parcels

    def messages(self) -> dict[int, Any]:
        """What tasks have returned, by their number."""
        return {task: parcel.load(self._lease) for task, parcel in self._parcels.items()}


class RequestStage(Stage):
    """Of a source that is told what to make."""

    def __init__(self, space: SharedSpace, source: Source, capacity: int, num_workers: int) -> None:
        assert source.task_size is not None
        super().__init__(space, source, capacity, source.task_size(num_workers), (), _FIRST_REQUEST_BYTES)
        self._form: Form | None = None
        self._num_odd = 0

    @property
    def _maker(self) -> Maker:
        return self.source.callback  # type: ignore[return-value]

    def renew(self, source: Source) -> None:
        super().renew(source)
        self.known = False
        self._form = None
        self._use(outputs=())

    def begin(self, batch: Batch, ticket: int) -> Slot:
        packed = b"" if self._form is None else self._form.packed
        text = _FORM_BYTES.pack(len(packed)) + packed + batch.key.request
        if len(text) > self.ring.geometry.request_bytes:
            self._use(request_bytes=1 << len(text).bit_length())
        slot = super().begin(batch, ticket)
        start = slot.offset + slot.geometry.request_offset
        slot.space.map[start : start + len(text)] = text
        slot.header[Header.REQUEST_BYTES] = len(text)
        batch.form = self._form
        return slot

    @property
    def holds_back(self) -> bool:
        return False  # what comes before the form is known goes into parcels

    def task_size_for(self, num_workers: int) -> int:
        assert self.source.task_size is not None
        return self.source.task_size(num_workers)

    def learn_early(self, batch: Batch, slot: Slot) -> None:
        try:
            message = Parcel(slot, 0).load()
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
            delivery = Delivery(batch, slot, Lease(self.ring, slot), batch.form)
        except CorruptionError as error:
            return error
        self._note_made(batch, slot, max(batch.key.size, batch.key.parts - 1))
        if batch.described:
            self._note_regions(batch, slot.geometry.task_size)
            self._use(region_bytes=self._fitting_region_bytes())
        return delivery

    def check(self, batch: Batch) -> None:
        pass

    def describe(self, key: BatchKey, sample: int) -> str:
        return self._maker.describe(key, sample)

    describe_debt = describe

    def note_form(self, is_odd: bool, message: Any) -> None:
        """Take note of whether the samples of a batch had the form that was expected, and what a task has said if not."""
        self._num_odd = self._num_odd + 1 if is_odd else 0
        if self._num_odd >= _BATCHES_TO_LEARN:
            self._num_odd = 0
            self._learn(message)

    def _learn(self, message: Any) -> None:
        self.known = True
        self._form = self._maker.learn(message)
        self._use(outputs=() if self._form is None else self._form.layouts)


def answer(task: Task, cell: memoryview, watch: Stopwatch | None) -> None:
    """Let the maker of a source make a task."""
    maker: Maker = task.source.callback  # type: ignore[assignment]
    request = Request(task, cell, watch)
    message = maker.make(request)
    if message is None:
        return
    try:
        write_parcel(message, task.clean_region(), maker.reducers)
    except (RegionFullError, NoMemoryError):
        maker.put_back(request, message)
        raise
