"""Batches in the main process: the progress of their tasks, and the arrays over their finished slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.foreign_errors import add_note, is_a
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DESCRIPTOR_WORDS, DTYPES, HEADER_WORDS, MAX_NDIM, Word
from dali_like.engine.memory.ring import Lease, Ring, SampleList, Slot, leased_array
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout, describe_places, describe_rows
from dali_like.engine.worker.exceptions import unpack_exception
from dali_like.engine.worker.out_of_band import LEAST_BUFFER_BYTES, OutOfBandPickle
from dali_like.engine.worker.source import IN_BATCH, Source, dtype_text, ndim_text
from dali_like.errors import CorruptionError, DaliLikeError, DtypeMismatchError, NdimMismatchError
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from dali_like.engine.memory.sample_cache import Grant
    from dali_like.engine.worker.parts import PartReport
    from dali_like.engine.worker.requests import Schema

#: An output of a batch: one array if all samples lie in rows, else a sequence of samples.
Output = NDArray[Any] | Sequence[NDArray[Any]]

#: Outcome of a batch: its outputs, or another result of its assembler, or the exception to raise.
Outcome = Any

#: NumPy refuses larger arrays, even without elements.
_MOST_BYTES = 1 << 62
_ITEM_BYTES = np.array([dtype.itemsize for dtype in DTYPES])


class Failure:
    """Outcome of a batch whose source has raised an exception in a worker, as the worker sent it.

    Rebuilding and describing the exception runs code of the user's classes, which may do anything. So this happens when the
    batch is delivered, and not while the reports of workers are read.

    Args:
        message: from `dali_like.engine.worker.exceptions.pack_exception`.
        describe: returns the place where the exception was raised, for its note.
        advise: returns further advice for an exception, or None.
    """

    def __init__(
        self, message: bytes, describe: Callable[[], str], advise: Callable[[BaseException], str | None] = lambda _: None
    ) -> None:
        self._message = message
        self._describe = describe
        self._advise = advise

    def rebuild(self) -> Exception:
        """Return the exception."""
        error = unpack_exception(self._message)
        add_note(error, f"raised by {self._describe()}")
        if (advice := self._advise(error)) is not None:
            add_note(error, advice)
        return error


class Batch:
    """One batch of one source.

    Attributes:
        key: its identity.
        ticket: its number in records; a recomputed batch gets a new one.
        slot: its slot while it is in flight; else None.
        num_tasks: number of its tasks.
        open_tasks: a bit for each task that has not been reported.
        described: a bit for each task whose samples have descriptors.
        grants: room in sample caches while the batch is in flight.
        reported: a bit for each task that a worker has reported.
        region_bytes, largest_region_bytes: used bytes of the tasks' regions: the sum, and the maximum.
        failed_sample, failed_task, failed_worker: the lowest failed sample, its task and worker; without a failure, the end
            of the batch and -1.
        first_unmade: the first sample of the tasks that lacked room or memory; else the end of the batch.
        needed_bytes: the largest need of a task that did not fit into its region; 0: all tasks fit.
        short_bytes: memory that tasks could not get, in bytes.
        cancelled: it will not be delivered; its slot returns to the ring when no task is open any more.
        fatal: the error of a sample that was given up because it ends its workers.
        size: number of samples.
        schemas: the output schemas of its samples, until `Assembler.check` has compared them; None: unknown.
        schema: the expected sample schema, for request sources.
        is_last: whether the epoch ends with it, and it is not full.
        missing_bytes: memory that its regions need, if the last attempt ran out of memory.
        num_shortages: number of such attempts in a row.
        state: the reported state before the batch; unset if the source reports none.
        reports: of its tasks, for sources in parts.
        outcome: the outputs, or the exception to raise (StopIteration at the end of the epoch), or a `Failure` until it is
            delivered; None while incomplete.
    """

    __slots__ = (
        "cancelled",
        "described",
        "failed_sample",
        "failed_task",
        "failed_worker",
        "fatal",
        "first_unmade",
        "grants",
        "is_last",
        "key",
        "largest_region_bytes",
        "missing_bytes",
        "needed_bytes",
        "num_shortages",
        "num_tasks",
        "open_tasks",
        "outcome",
        "region_bytes",
        "reported",
        "reports",
        "schema",
        "schemas",
        "short_bytes",
        "size",
        "slot",
        "state",
        "ticket",
    )

    def __init__(self, key: BatchKey) -> None:
        self.key = key
        self.outcome: Outcome = None
        self.state: bytes
        self.reports: list[PartReport]
        self.cancelled = False
        self.schema: Any = None
        self.is_last = False
        self.schemas: tuple[OutputSchema, ...] | None = None
        self.missing_bytes = 0
        self.num_shortages = 0
        self.failed_sample = max(key.size, key.parts)  # `BatchKey.stop`, without a call, here and below
        self.slot: Slot | None = None
        self.grants: tuple[Grant, ...] = ()

    def begin(self, ticket: int, slot: Slot) -> None:
        """Reset the progress: all tasks are open."""
        self.ticket = ticket
        self.slot = slot
        key = self.key
        self.num_tasks = len(key.owners) or -(-key.size // slot.slot_layout.task_size)
        self.open_tasks = (1 << self.num_tasks) - 1
        self.described = 0
        self.reported = 0
        self.region_bytes = 0
        self.largest_region_bytes = 0
        self.needed_bytes = 0
        self.failed_sample = self.first_unmade = max(key.size, key.parts)
        self.failed_task = -1
        self.failed_worker = -1
        self.fatal: Exception | None = None
        self.short_bytes = 0
        self.size = key.size

    def end_grants(self) -> None:
        """Return the room in sample caches, except for entries of reported tasks."""
        grants, self.grants = self.grants, ()
        for grant in grants:
            grant.end(self.reported)

    def fail(self, sample: int, task: int, worker: int) -> None:
        """Record a failed sample. The lowest one determines the exception of the batch."""
        if sample < self.failed_sample:
            self.failed_sample = sample
            self.failed_task = task
            self.failed_worker = worker

    def grow(self, needed_bytes: int, task: int) -> None:
        """Record that the samples of a task need a larger region. Their failures may be lower than those known."""
        self.needed_bytes = max(self.needed_bytes, needed_bytes)
        self._leave_unmade(task)

    def lack(self, short_bytes: int, task: int) -> None:
        """Record that the samples of a task lacked memory."""
        self.short_bytes += short_bytes
        self._leave_unmade(task)

    def _leave_unmade(self, task: int) -> None:
        assert self.slot is not None
        first = 0 if self.key.owners else task * self.slot.slot_layout.task_size
        self.first_unmade = min(self.first_unmade, first)


class Response:
    """Results of the tasks of a batch of a request source.

    Attributes:
        schema: the expected schema of the samples; None: none was expected, and all samples are in pickles.
        size: number of samples of the batch.
        task_size: number of samples in each task.
        rows: for each output of the schema, an array of all samples; undefined where the message of a task has the samples.
            Small ones are copies, so that keeping them does not keep the slot.
    """

    def __init__(self, batch: Batch, slot: Slot, lease: Lease[Any], schema: Schema | None) -> None:
        slot_layout = slot.slot_layout
        self.schema = schema
        self.size = batch.key.size
        self.task_size = slot_layout.task_size
        address = slot.space.address + slot.offset
        self.rows: list[NDArray[Any]] = []
        size, begin, memory = self.size, slot.offset, slot.space.map
        for (offset, shape, dtype), row_bytes in zip(slot_layout.dense_rows, slot_layout.row_bytes, strict=True):
            if size * row_bytes < LEAST_BUFFER_BYTES:
                row = np.ndarray((size, *shape), dtype, memory, begin + offset).copy()
            else:
                row = leased_array(lease, address + offset, (size, *shape), dtype)
            self.rows.append(row)
        described = (task for task in range(batch.num_tasks) if batch.described >> task & 1)
        self._pickles = {task: OutOfBandPickle.of_task(slot, task, lease) for task in described}

    @property
    def is_dense(self) -> bool:
        """Whether all samples are in rows."""
        return not self._pickles

    def messages(self) -> dict[int, Any]:
        """Load the pickles of tasks, by number of the task."""
        return {task: pickled.load() for task, pickled in self._pickles.items()}


#: Types of outcomes without an error. They are checked first, because `is_a` costs a call.
RESULTS = (list, Response)


def result_of(batch: Batch) -> Sequence[Output]:
    """Return the outputs of a batch whose outcome is known, or raise its exception, which then is the outcome."""
    outcome = batch.outcome
    if type(outcome) is Failure:
        outcome = batch.outcome = outcome.rebuild()
    if type(outcome) not in RESULTS and is_a(outcome, Exception):
        try:
            raise outcome
        finally:
            del outcome  # the traceback refers to this frame
    assert outcome is not None
    outputs: Sequence[Output] = outcome
    return outputs


def position_note(batch: Batch, source: Source, sample: int) -> str:
    """Return the note of an exception that names its sample."""
    return f"raised by {source.name} for {describe_sample(batch.key, sample, stride=source.stride)}"


def describe_sample(key: BatchKey, sample: int, others: str = "", *, stride: int = 1) -> str:
    """Describe a sample for messages."""
    return describe_info(SampleInfo(key.first_sample + sample * stride, sample, key.iteration, key.epoch), others)


def describe_info(info: SampleInfo, others: str = "") -> str:
    """Describe a sample for messages."""
    return (
        f"sample {info.idx_in_batch}{others} of iteration {info.iteration} in epoch {info.epoch_idx} "
        f"(idx_in_epoch {info.idx_in_epoch})"
    )


def assemble(batch: Batch, slot: Slot, ring: Ring, source: Source) -> tuple[list[Output], tuple[OutputSchema, ...]]:
    """Return the outputs of a batch whose tasks are all done, and the schemas of its samples.

    The outputs share a lease of the slot.

    Raises:
        CorruptionError: workers cannot have written these descriptors.
        DtypeMismatchError, NdimMismatchError: the samples differ from each other.
    """
    slot_layout = slot.slot_layout
    size = batch.size
    if not size:
        ring.release(slot)
        return [_no_samples(output) for output in slot_layout.outputs], slot_layout.outputs
    address = slot.space.address + slot.offset
    if not batch.described:
        lease = Lease(ring, slot)
        arrays: list[Output] = [
            leased_array(lease, address + offset, (size, *shape), dtype) for offset, shape, dtype in slot_layout.dense_rows
        ]
        return arrays, slot_layout.outputs
    descriptors = slot.descriptors[:size].copy()
    _complete(descriptors, batch, slot)
    return _described(descriptors, batch, slot, ring, source)


def assemble_places(
    batch: Batch, slot: Slot, ring: Ring, source: Source, places: list[int], in_rows: list[int]
) -> tuple[list[Output], tuple[OutputSchema, ...]]:
    """Return the outputs of a batch that has samples at some places only; see `assemble`.

    Args:
        places: of the samples, ascending.
        in_rows: those of them that have no descriptors.
    """
    slot_layout = slot.slot_layout
    if not places:
        return assemble(batch, slot, ring, source)
    expected = slot_layout.header[HEADER_WORDS:].reshape(-1, DESCRIPTOR_WORDS)
    for output, row in enumerate(expected):
        describe_places(slot.descriptors, output, row, in_rows)
    return _described(slot.descriptors[places], batch, slot, ring, source)


def _described(
    descriptors: NDArray[np.int64], batch: Batch, slot: Slot, ring: Ring, source: Source
) -> tuple[list[Output], tuple[OutputSchema, ...]]:
    size, address = len(descriptors), slot.space.address + slot.offset
    schemas = batch.schemas or _schemas(descriptors, batch, slot.slot_layout, source)
    lease = Lease(ring, slot)
    outputs: list[Output] = []
    for j, schema in enumerate(schemas):
        table = descriptors[:, j]
        offsets = table[:, Word.OFFSET]
        if schema.shape is not None and (offsets[1:] - offsets[:-1] == schema.row_bytes).all():  # one after another
            first = address + int(table[0, Word.OFFSET])
            outputs.append(leased_array(lease, first, (size, *schema.shape), DTYPES[schema.dtype]))
        else:
            outputs.append(SampleList(lease, address, table, schema.shape is None))
    return outputs, schemas


def fill_up(output: Output, size: int) -> Output:
    """Repeat the last sample of an output, in new memory, until there are `size` samples."""
    missing = size - len(output)
    if isinstance(output, np.ndarray):
        return np.concatenate((output, np.repeat(output[-1:], missing, axis=0)))
    return [*output, *(output[-1].copy() for _ in range(missing))]


def _no_samples(schema: OutputSchema) -> NDArray[Any]:
    return np.empty((0, *(schema.shape or (0,) * max(schema.ndim, 0))), DTYPES[max(schema.dtype, 0)])


def schemas_at(batch: Batch, slot: Slot, places: Any, source: Source) -> tuple[OutputSchema, ...]:
    """Return the schemas of samples of a batch that have descriptors.

    Args:
        places: of the samples, as an index.

    Raises:
        CorruptionError: workers cannot have written these descriptors.
        DtypeMismatchError, NdimMismatchError: the samples differ from each other.
    """
    descriptors = slot.descriptors[places].copy()
    return _schemas(descriptors, batch, slot.slot_layout, source)


def _complete(descriptors: NDArray[np.int64], batch: Batch, slot: Slot) -> None:
    """Fill in the descriptors of tasks whose samples are all in rows."""
    slot_layout = slot.slot_layout
    expected = slot_layout.header[HEADER_WORDS:].reshape(-1, DESCRIPTOR_WORDS)
    for task in range(slot_layout.num_tasks(batch.size)):
        if not batch.described >> task & 1:
            start = task * slot_layout.task_size
            stop = min(start + slot_layout.task_size, batch.size)
            for j in range(len(slot_layout.outputs)):
                describe_rows(descriptors, j, expected[j], start, stop)


def _check(descriptors: NDArray[np.int64], slot_layout: SlotLayout, source: Source) -> None:
    """Check that the arrays of descriptors lie inside the slot.

    Raises:
        CorruptionError: a descriptor is invalid.
    """
    words = descriptors.reshape(-1, DESCRIPTOR_WORDS)
    offset, nbytes, dtype, ndim = (words[:, word] for word in (Word.OFFSET, Word.NBYTES, Word.DTYPE, Word.NDIM))
    good = (offset >= 0) & (nbytes >= 0) & (offset <= slot_layout.slot_bytes) & (nbytes <= slot_layout.slot_bytes - offset)
    good &= (dtype >= 0) & (dtype < len(DTYPES)) & (ndim >= 0) & (ndim <= MAX_NDIM)
    if good.all():
        shape = words[:, Word.SHAPE :]
        inside = np.arange(MAX_NDIM) < ndim[:, None]
        good &= ((shape >= 0) | ~inside).all(axis=1)
        # In floating point, a product cannot wrap around to a plausible number.
        lengths = np.where(inside, shape, 1).astype(np.float64)
        good &= lengths.prod(axis=1) * _ITEM_BYTES[dtype] == nbytes
        # NumPy also limits the lengths of arrays without elements.
        good &= np.where(lengths == 0, 1, lengths).prod(axis=1) * _ITEM_BYTES[dtype] < _MOST_BYTES
    if not good.all():
        sample = int((~good).argmax()) // descriptors.shape[1]
        raise CorruptionError(
            f"the descriptor of sample {sample} of {source.name} is invalid: a callback has written outside of its own "
            "memory; check the native code that it uses"
        )


def _schemas(
    descriptors: NDArray[np.int64], batch: Batch, slot_layout: SlotLayout, source: Source
) -> tuple[OutputSchema, ...]:
    """Return the schema of each output.

    Raises:
        CorruptionError: a descriptor is invalid.
        DtypeMismatchError, NdimMismatchError: the samples differ in dtype or ndim.
    """
    # The minimum and maximum of each word decide nearly everything, in a few steps for any size of the batch.
    # Unused words of shapes are left out: copying all of them would take longer than the rest.
    width = Word.SHAPE + min(max(int(descriptors[:, :, Word.NDIM].max()), 0), MAX_NDIM)
    words = np.ascontiguousarray(descriptors[:, :, :width].transpose(1, 2, 0))
    schemas = []
    limits = np.minimum.reduce(words, axis=2).tolist(), np.maximum.reduce(words, axis=2).tolist()
    for output, (least, most) in enumerate(zip(*limits, strict=True)):
        schema = _schema(least, most, words[output], slot_layout.slot_bytes)
        if schema is None:
            _check(descriptors, slot_layout, source)
            raise _mismatch(descriptors[:, output], batch, source, output)
        schemas.append(schema)
    return tuple(schemas)


def _schema(least: list[int], most: list[int], words: NDArray[np.int64], slot_bytes: int) -> OutputSchema | None:
    """Return the schema of an output by the minimum and maximum of each word; None if anything is wrong."""
    offset, nbytes, dtype, ndim = least[: Word.SHAPE]
    if [dtype, ndim] != most[Word.DTYPE : Word.SHAPE] or not (0 <= dtype < len(DTYPES) and 0 <= ndim <= MAX_NDIM):
        return None
    shape, most_shape = least[Word.SHAPE : Word.SHAPE + ndim], most[Word.SHAPE : Word.SHAPE + ndim]
    if min(offset, nbytes, *shape) < 0 or max(most[Word.OFFSET], most[Word.NBYTES]) > slot_bytes:
        return None
    if int(np.maximum.reduce(words[Word.OFFSET] + words[Word.NBYTES])) > slot_bytes:
        return None
    item_bytes = DTYPES[dtype].itemsize
    # NumPy also limits the lengths of arrays without elements.
    if math.prod(most_shape if 0 not in most_shape else [length or 1 for length in most_shape]) * item_bytes >= _MOST_BYTES:
        return None
    if shape == most_shape:
        row_bytes = math.prod(shape) * item_bytes
        return OutputSchema(dtype, ndim, tuple(shape)) if nbytes == row_bytes == most[Word.NBYTES] else None
    sizes = np.multiply.reduce(words[Word.SHAPE : Word.SHAPE + ndim], axis=0) * item_bytes
    return OutputSchema(dtype, ndim, None) if np.logical_and.reduce(sizes == words[Word.NBYTES]) else None


def _mismatch(table: NDArray[np.int64], batch: Batch, source: Source, output: int) -> DaliLikeError:
    """Return the error for samples that differ in dtype or number of dimensions."""
    dtype, ndim = int(table[0, Word.DTYPE]), int(table[0, Word.NDIM])
    differs = table[:, Word.DTYPE] != dtype
    if differs.any():
        sample = int(differs.argmax())
        got = DTYPES[int(table[sample, Word.DTYPE])]
        error: DaliLikeError = DtypeMismatchError(dtype_text(source, output, DTYPES[dtype], got, IN_BATCH))
    else:
        sample = int((table[:, Word.NDIM] != ndim).argmax())
        error = NdimMismatchError(ndim_text(source, output, ndim, int(table[sample, Word.NDIM]), IN_BATCH))
    add_note(error, position_note(batch, source, sample))
    if source.on_error != "raise":
        add_note(error, "on_error= covers this from the first batch on if dtype= and ndim= are declared")
    return error
