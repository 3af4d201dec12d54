"""Request sources: the main process sends a request with each batch, and a worker's handler answers it.

The batches of a data loader travel this way, since only the main process knows their indices. The request is bytes, which
the main process writes into the slot before it posts the batch's tasks. A handler, in a worker, writes samples of the
expected schema into rows of the slot, and returns the rest as a message (`dali_like.engine.worker.out_of_band`). This module
knows neither schemas nor the contents of requests and messages: they are between the main process and the handler.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.coroutines import ReadGroup
from dali_like.engine.worker.meters import Stopwatch
from dali_like.engine.worker.out_of_band import Reducers, write_message
from dali_like.engine.worker.task import NoMemoryError, RegionFullError, Task

SCHEMA_BYTES = struct.Struct("<q")


class Schema(Protocol):
    """The expected shape of the samples of a batch."""

    @property
    def layouts(self) -> tuple[OutputSchema, ...]:
        """The rows that the samples need."""

    @property
    def packed(self) -> bytes:
        """The schema as workers get it."""


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class Request:
    """The part of a request that one task answers.

    Attributes:
        schema: the expected schema of the samples, packed; empty while it is unknown.
        text: the request of the main process.
        number: of the task in its batch.
        start, stop: the samples of the task, by their index in the batch.
        rows: for each output of the schema, an array of the rows of all samples. A task writes its own.
        cell: where the handler writes the index of the sample that it computes, and counts replaced samples.
        watch: measures the time of samples; None: they are not measured.
        group: the reads of the task, which have ended; None without.
        call: calls a function of the user's, and awaits a coroutine that it returns.
    """

    def __init__(
        self,
        task: Task,
        cell: memoryview,
        watch: Stopwatch | None = None,
        group: ReadGroup | None = None,
        call: Callable[..., Any] = _call,
    ) -> None:
        text = bytes(task.request)
        (schema_bytes,) = SCHEMA_BYTES.unpack_from(text)
        begin = SCHEMA_BYTES.size + schema_bytes
        self.schema = text[SCHEMA_BYTES.size : begin]
        self.text = text[begin:]
        self.number = task.number
        self.start = task.start
        self.stop = task.stop
        self.rows = [rows for rows in task.view.rows if rows is not None]
        self.cell = cell
        self.watch = watch
        self.group = group
        self.call = call


class RequestHandler(Protocol):
    """The callback of a request source. The main process calls `learn`, `recall`, `recalls_whole`, `note_whole`,
    `make_whole` and `describe`, a worker all else, in one thread.
    """

    @property
    def reducers(self) -> Reducers:
        """How objects in messages are pickled."""

    @property
    def on_error(self) -> str | Callable[[Any, Exception], Any]:
        """The reaction to an exception of the dataset, as that of a `Source`."""

    @property
    def once(self) -> bool:
        """Whether it cannot compute a task again."""

    def for_thread(self) -> RequestHandler:
        """Return a handler for a thread of its own, which has not begun."""

    def begin(self, worker: int, num_workers: int, start_message: bytes) -> None:
        """Start in a worker. An exception becomes the cause of the WorkerStartError in the main process.

        Args:
            start_message: a message of the main process to all workers.
        """

    def make(self, request: Request) -> Any:
        """Answer a request: fill the rows. Return a message for `learn` and for the consumer of the batch, or None."""

    def reads(self, request: Request) -> tuple[range, Callable[[int], Any]] | None:
        """Return the reads that `make` needs: their indices, and a function that begins one. None: it needs no reads."""

    def put_back(self, request: Request, message: Any) -> None:
        """Keep a message of `make` that found no room. The same request will come again."""

    def learn(self, message: Any) -> Schema | None:
        """Return the schema of samples, given the first message of a batch. None: nothing is expected."""

    def recall(self) -> Schema | None:
        """Return the schema that earlier workers have had in the end. None: the first batch shows it."""

    def recalls_whole(self) -> bool:
        """Return whether each worker has computed whole batches in the end: that was quicker."""

    def note_whole(self, is_whole: bool) -> None:
        """Note whether each worker computes whole batches, for `recalls_whole` of a later handler."""

    def make_whole(self, count: int) -> None:
        """Let workers make whole batches for the next requests, in place of samples: their schemas change."""

    def describe(self, key: BatchKey, sample: int) -> str:
        """Return the name of a sample for messages."""


def answer(task: Task, cell: memoryview, watch: Stopwatch | None, group: ReadGroup | None, call: Callable[..., Any]) -> None:
    """Let the handler of a request source compute a task; for the arguments, see `Request`.

    Raises:
        SampleTypeError: the message cannot be pickled.
        RegionFullError, NoMemoryError: there is no room for the message.
    """
    handler: RequestHandler = task.source.callback  # `Source.handler`, without the call
    request = Request(task, cell, watch, group, call)
    message = handler.make(request)
    if message is None:
        return
    try:
        write_message(message, task.message_region(), handler.reducers)
    except (RegionFullError, NoMemoryError):
        handler.put_back(request, message)
        raise
