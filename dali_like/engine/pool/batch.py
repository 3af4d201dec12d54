"""A batch on its way through the workers, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import DESCRIPTOR_WORDS, DTYPES, HEADER_WORDS, MAX_NDIM, Word
from dali_like.engine.memory.ring import Lease, Ring, SampleList, Slot, leased_array
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout, describe_rows
from dali_like.engine.worker.exceptions import add_note
from dali_like.engine.worker.source import Source, dtype_text, ndim_text
from dali_like.errors import CorruptionError, DaliLikeError, DtypeMismatchError, NdimMismatchError
from dali_like.types import SampleInfo

#: What an output of a batch is: one array where all samples lie in their rows, else the samples.
Output = NDArray[Any] | Sequence[NDArray[Any]]

#: What becomes of a batch: its outputs, or whatever its assembler makes of them, or the exception to raise.
Outcome = Any

#: Larger arrays NumPy does not make, though they had no elements.
_MOST_BYTES = 1 << 62
_ITEM_BYTES = np.array([dtype.itemsize for dtype in DTYPES])
#: Where a dtype, or a number of dimensions, was seen that another sample of a batch does not have.
_IN_BATCH = " (in sample 0 of the batch)"


class Batch:
    """One batch of one source.

    Attributes:
        key: which batch it is.
        ticket: its number on the wire; a batch that is computed again gets another.
        slot: where it is assembled; None before and after.
        open_tasks: a bit for each task that has not been reported.
        described: a bit for each task whose samples have descriptors.
        region_bytes, largest_region_bytes: how much of their regions the tasks have used together, and the one most.
        failed_sample, failed_task, failed_worker: the lowest sample that did not return, its task, and who was making it; if
            there is none, the end of the batch and -1.
        first_unmade: the first sample of the tasks that have found no room, or no memory; else the end of the batch.
        needed_bytes: the most that a task has needed of its region, and has not found there; 0: all have found room.
        short_bytes: how much memory tasks have asked for, and there was not.
        cancelled: nobody will ask for it; its slot returns to the ring when no task is on its way any more.
        fatal: why the sample that failed was given up, if it kills its workers.
        size: how many samples it has.
        layouts: what its samples have turned out to be, until that has been held against what they are to be.
        form: what its samples are expected to be like, where its source is told what to make.
        is_last: whether the epoch ends with it, before it is full.
        missing_bytes: how much memory its regions need, where there was not enough the last time.
        num_shortages: how often in a row that has been so.
        state: what its source has reported of its state before the batch; unset where none is reported.
        outcome: the outputs, or the exception to raise (StopIteration at the end of the epoch); None while unknown.
    """

    __slots__ = (
        "cancelled",
        "described",
        "failed_sample",
        "failed_task",
        "failed_worker",
        "fatal",
        "first_unmade",
        "is_last",
        "key",
        "largest_region_bytes",
        "layouts",
        "missing_bytes",
        "needed_bytes",
        "num_shortages",
        "open_tasks",
        "outcome",
        "region_bytes",
        "schema",
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
        self.cancelled = False
        self.schema: Any = None
        self.is_last = False
        self.layouts: tuple[OutputSchema, ...] | None = None
        self.missing_bytes = 0
        self.num_shortages = 0
        self.slot: Slot | None = None

    def begin(self, ticket: int, slot: Slot, num_tasks: int) -> None:
        """Start over with nothing done."""
        self.ticket = ticket
        self.slot = slot
        self.open_tasks = (1 << num_tasks) - 1
        self.described = 0
        self.region_bytes = 0
        self.largest_region_bytes = 0
        self.needed_bytes = 0
        self.failed_sample = self.first_unmade = self.key.stop
        self.failed_task = -1
        self.failed_worker = -1
        self.fatal: Exception | None = None
        self.short_bytes = 0
        self.size = self.key.size

    def fail(self, sample: int, task: int, worker: int) -> None:
        """Record that a sample did not return. What counts in the end is the lowest."""
        if sample < self.failed_sample:
            self.failed_sample = sample
            self.failed_task = task
            self.failed_worker = worker

    def grow(self, needed_bytes: int, task: int) -> None:
        """Record that the samples of a task need more room. What failed behind them may not be what counts."""
        self.needed_bytes = max(self.needed_bytes, needed_bytes)
        self._leave_unmade(task)

    def lack(self, short_bytes: int, task: int) -> None:
        """Record that there was no memory for the samples of a task."""
        self.short_bytes += short_bytes
        self._leave_unmade(task)

    def _leave_unmade(self, task: int) -> None:
        assert self.slot is not None
        self.first_unmade = min(self.first_unmade, task * self.slot.slot_layout.task_size)


def position_note(batch: Batch, source: Source, sample: int) -> str:
    """The note on an exception that says which sample it belongs to."""
    return f"raised by {source.name} for {describe_sample(batch.key, sample)}"


def describe_sample(key: BatchKey, sample: int, others: str = "") -> str:
    """Which sample it is, for messages."""
    return describe_info(SampleInfo(key.first_sample + sample, sample, key.iteration, key.epoch), others)


def describe_info(info: SampleInfo, others: str = "") -> str:
    """Which sample it is, for messages."""
    return (
        f"sample {info.idx_in_batch}{others} of iteration {info.iteration} in epoch {info.epoch_idx} "
        f"(idx_in_epoch {info.idx_in_epoch})"
    )


def assemble(batch: Batch, slot: Slot, ring: Ring, source: Source) -> tuple[list[Output], tuple[OutputSchema, ...]]:
    """The outputs of a batch whose tasks are all done, and the layout that its samples suggest for the next.

    Takes the slot under a lease that the outputs share.

    Raises:
        DtypeMismatchError, NdimMismatchError: the samples differ among themselves.
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
    layouts = _layouts(descriptors, batch, slot_layout, source)
    lease = Lease(ring, slot)
    outputs: list[Output] = []
    for j, layout in enumerate(layouts):
        table = descriptors[:, j]
        if layout.shape is not None and _is_contiguous(table[:, Word.OFFSET], layout.row_bytes):
            first = address + int(table[0, Word.OFFSET])
            outputs.append(leased_array(lease, first, (size, *layout.shape), DTYPES[layout.dtype]))
        else:
            outputs.append(SampleList(lease, address, table))
    return outputs, layouts


def fill_up(output: Output, size: int) -> Output:
    """An output with its last sample repeated, in memory of its own, until there are `size`."""
    missing = size - len(output)
    if isinstance(output, np.ndarray):
        return np.concatenate((output, np.repeat(output[-1:], missing, axis=0)))
    return [*output, *(output[-1].copy() for _ in range(missing))]


def _no_samples(layout: OutputSchema) -> NDArray[Any]:
    return np.empty((0, *(layout.shape or (0,) * max(layout.ndim, 0))), DTYPES[max(layout.dtype, 0)])


def first_layout(batch: Batch, slot: Slot, num_samples: int, source: Source) -> tuple[OutputSchema, ...]:
    """The layout that the first samples of a batch suggest.

    Raises:
        DtypeMismatchError, NdimMismatchError: the samples differ among themselves.
    """
    descriptors = slot.descriptors[:num_samples].copy()
    return _layouts(descriptors, batch, slot.slot_layout, source)


def _complete(descriptors: NDArray[np.int64], batch: Batch, slot: Slot) -> None:
    """Describe the samples of tasks that put all of theirs into rows."""
    slot_layout = slot.slot_layout
    expected = slot_layout.header[HEADER_WORDS:].reshape(-1, DESCRIPTOR_WORDS)
    for task in range(slot_layout.num_tasks(batch.size)):
        if not batch.described >> task & 1:
            start = task * slot_layout.task_size
            stop = min(start + slot_layout.task_size, batch.size)
            for j in range(len(slot_layout.outputs)):
                describe_rows(descriptors, j, expected[j], start, stop)


def _check(descriptors: NDArray[np.int64], slot_layout: SlotLayout, source: Source) -> None:
    """Hold descriptors against the slot: arrays are made of them, and must not reach beyond it.

    Raises:
        CorruptionError: one is not what a worker writes.
    """
    words = descriptors.reshape(-1, DESCRIPTOR_WORDS)
    offset, nbytes, dtype, ndim = (words[:, word] for word in (Word.OFFSET, Word.NBYTES, Word.DTYPE, Word.NDIM))
    good = (offset >= 0) & (nbytes >= 0) & (offset <= slot_layout.slot_bytes) & (nbytes <= slot_layout.slot_bytes - offset)
    good &= (dtype >= 0) & (dtype < len(DTYPES)) & (ndim >= 0) & (ndim <= MAX_NDIM)
    if good.all():
        shape = words[:, Word.SHAPE :]
        inside = np.arange(MAX_NDIM) < ndim[:, None]
        good &= ((shape >= 0) | ~inside).all(axis=1)
        # In floating point a product cannot wrap around to a number that looks right.
        lengths = np.where(inside, shape, 1).astype(np.float64)
        good &= lengths.prod(axis=1) * _ITEM_BYTES[dtype] == nbytes
        # Arrays without elements have limits, too.
        good &= np.where(lengths == 0, 1, lengths).prod(axis=1) * _ITEM_BYTES[dtype] < _MOST_BYTES
    if not good.all():
        sample = int((~good).argmax()) // descriptors.shape[1]
        raise CorruptionError(
            f"the description of sample {sample} of {source.name} is not what a worker writes; a callback has written into "
            "memory that is not its own"
        )


def _layouts(
    descriptors: NDArray[np.int64], batch: Batch, slot_layout: SlotLayout, source: Source
) -> tuple[OutputSchema, ...]:
    """The layout of each output, if the descriptors may be believed and the samples are of one dtype and ndim.

    Raises:
        CorruptionError, DtypeMismatchError, NdimMismatchError: not so.
    """
    # Most is seen from the least and the greatest of each word, which takes a few steps whatever the size of the batch.
    words = np.ascontiguousarray(descriptors.transpose(1, 2, 0))
    layouts = []
    for output, (least, most) in enumerate(zip(words.min(axis=2).tolist(), words.max(axis=2).tolist(), strict=True)):
        layout = _layout(least, most, words[output], slot_layout.slot_bytes)
        if layout is None:
            _check(descriptors, slot_layout, source)
            raise _mismatch(descriptors[:, output], batch, source, output)
        layouts.append(layout)
    return tuple(layouts)


def _layout(least: list[int], most: list[int], words: NDArray[np.int64], slot_bytes: int) -> OutputSchema | None:
    """The layout of an output, by the least and the greatest value of each word; None if anything is wrong with it."""
    offset, nbytes, dtype, ndim = least[: Word.SHAPE]
    if [dtype, ndim] != most[Word.DTYPE : Word.SHAPE] or not (0 <= dtype < len(DTYPES) and 0 <= ndim <= MAX_NDIM):
        return None
    shape, most_shape = least[Word.SHAPE : Word.SHAPE + ndim], most[Word.SHAPE : Word.SHAPE + ndim]
    if min(offset, nbytes, *shape) < 0 or max(most[Word.OFFSET], most[Word.NBYTES]) > slot_bytes:
        return None
    if int((words[Word.OFFSET] + words[Word.NBYTES]).max()) > slot_bytes:
        return None
    item_bytes = DTYPES[dtype].itemsize
    # Arrays without elements have limits, too.
    if math.prod(length or 1 for length in most_shape) * item_bytes >= _MOST_BYTES:
        return None
    if shape == most_shape:
        row_bytes = math.prod(shape) * item_bytes
        return OutputSchema(dtype, ndim, tuple(shape)) if nbytes == row_bytes == most[Word.NBYTES] else None
    sizes = words[Word.SHAPE : Word.SHAPE + ndim].prod(axis=0) * item_bytes
    return OutputSchema(dtype, ndim, None) if (sizes == words[Word.NBYTES]).all() else None


def _mismatch(table: NDArray[np.int64], batch: Batch, source: Source, output: int) -> DaliLikeError:
    """What to say of samples of different dtypes or numbers of dimensions."""
    dtype, ndim = int(table[0, Word.DTYPE]), int(table[0, Word.NDIM])
    differs = table[:, Word.DTYPE] != dtype
    if differs.any():
        sample = int(differs.argmax())
        got = DTYPES[int(table[sample, Word.DTYPE])]
        error: DaliLikeError = DtypeMismatchError(dtype_text(source, output, DTYPES[dtype], got, _IN_BATCH))
    else:
        sample = int((table[:, Word.NDIM] != ndim).argmax())
        error = NdimMismatchError(ndim_text(source, output, ndim, int(table[sample, Word.NDIM]), _IN_BATCH))
    add_note(error, position_note(batch, source, sample))
    return error


def _is_contiguous(offsets: NDArray[np.int64], row_bytes: int) -> bool:
    return bool((offsets[1:] - offsets[:-1] == row_bytes).all())
