"""Sources that are told what to make: with each batch the main process sends a request, and what comes back is a response.

This is how the batches of a data loader travel, whose indices only the main process knows. A request is bytes, which lie in
the batch's slot before its tasks are posted. What a task makes goes into rows of the slot as far as its samples have the
form that is expected, and the rest into a pickled (`dali_like.engine.worker.out_of_band`). Neither form nor requests nor
what is in the pickles is this module's affair, but that of the source's `RequestHandler`.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.meters import Stopwatch
from dali_like.engine.worker.out_of_band import Reducers, write_out_of_band
from dali_like.engine.worker.task import NoMemoryError, RegionFullError, Task

SCHEMA_BYTES = struct.Struct("<q")


class Schema(Protocol):
    """What the samples of a batch are expected to be like."""

    @property
    def layouts(self) -> tuple[OutputSchema, ...]:
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
        (schema_bytes,) = SCHEMA_BYTES.unpack_from(text)
        begin = SCHEMA_BYTES.size + schema_bytes
        self.schema = text[SCHEMA_BYTES.size : begin]
        self.text = text[begin:]
        self.start = task.start
        self.stop = task.stop
        self.rows = [rows[task.start : task.stop] for rows in task.view.rows if rows is not None]
        self.cell = cell
        self.watch = watch


class RequestHandler(Protocol):
    """The callback of a source that is told what to make. Except for `learn` and `describe`, workers call it."""

    @property
    def reducers(self) -> Reducers:
        """How objects in pickles are pickled."""

    @property
    def once(self) -> bool:
        """Whether it cannot make again what it has made."""

    def for_thread(self) -> RequestHandler:
        """One for a thread of its own, that has not begun."""

    def begin(self, worker: int, num_workers: int, notice: bytes) -> None:
        """A worker has started; what is raised is the cause of the WorkerStartError that the main process sees."""

    def make(self, request: Request) -> Any:
        """Make what is asked for: fill rows, and return what else there is to say, or None."""

    def put_back(self, request: Request, message: Any) -> None:
        """There was no room for what `make` has returned; the same will be asked for again."""

    def learn(self, message: Any) -> Schema | None:
        """What samples are like, given what `make` has returned for the first of a batch; None: nothing is expected."""

    def describe(self, key: BatchKey, sample: int) -> str:
        """Which sample it is, for messages."""


def answer(task: Task, cell: memoryview, watch: Stopwatch | None) -> None:
    """Let the fetcher of a source make a task."""
    fetcher: RequestHandler = task.source.callback  # type: ignore[assignment]
    request = Request(task, cell, watch)
    message = fetcher.make(request)
    if message is None:
        return
    try:
        write_out_of_band(message, task.clean_region(), fetcher.reducers)
    except (RegionFullError, NoMemoryError):
        fetcher.put_back(request, message)
        raise
