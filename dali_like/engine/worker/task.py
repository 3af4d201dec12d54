"""One task while it is computed: its samples, and the places in the slot where they go.

This code runs in the worker that has taken the task, or in the main process for sources that are not parallel. The slot
belongs to the main process. A task writes only to its own rows, descriptors, count and region.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from threading import Lock, RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import (
    DESCRIPTOR_WORDS,
    DTYPE_CODES,
    DTYPES,
    HEADER_WORDS,
    MAX_NDIM,
    SAMPLE_ALIGNMENT,
    UNKNOWN,
    WORD_BYTES,
    Header,
    Word,
    align,
)
from dali_like.engine.memory.ring import SampleList
from dali_like.engine.memory.slot_layout import OutputSchema, describe_rows
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.memory.system_calls import map_pages
from dali_like.engine.worker.meters import Interval
from dali_like.engine.worker.out_of_band import Pickled, write_parts
from dali_like.engine.worker.source import (
    Source,
    SourceType,
    as_array,
    as_tensor,
    block_of_object,
    check_array,
    parts_of_object,
)
from dali_like.errors import OutOfMemoryError
from dali_like.types import SampleInfo, plain_form

#: Memory is committed behind a region in steps, since each step is a few system calls. A step is as large as the memory that
#: is there already, within these bounds: small samples take little memory, and large ones few steps.
_LEAST_COMMIT_BYTES = 1 << 14
_MOST_COMMIT_BYTES = 1 << 20


def most_committed(nbytes: int, num_regions: int) -> int:
    """Return an upper bound of the memory behind regions with `nbytes` of samples altogether."""
    return nbytes + min(nbytes, num_regions * _MOST_COMMIT_BYTES) + num_regions * _LEAST_COMMIT_BYTES


#: Functions that write a descriptor, by the number of dimensions; see `dali_like.engine.memory.protocol.Word`.
_DESCRIPTORS = tuple(struct.Struct(f"={Word.SHAPE + ndim}q").pack_into for ndim in range(MAX_NDIM + 1))
_DESCRIPTOR_BYTES = DESCRIPTOR_WORDS * WORD_BYTES

#: Contiguous arrays up to this size are copied by `mmap`, which takes 0.1 us less than NumPy. Meanwhile, for 20 us at most,
#: no other thread runs. Without a GIL, `mmap` would let only one thread copy at a time.
MOST_PLAIN_BYTES = 1 << 18 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0

#: Raised for arrays that are not contiguous, when `mmap` is to copy them.
NOT_CONTIGUOUS = (ValueError, BufferError)

#: Copying an array of this size takes less time than finding out whether that is necessary.
_FEW_BYTES = 1024

#: Rows of a task below this size are mapped page by page, as they are written: the call would not pay.
_LEAST_MAPPED_BYTES = 1 << 16

#: Words of the header, as plain integers: these index faster than members of the enum.
_PROVISIONAL, _EPOCH, _ITERATION, _FIRST_SAMPLE, _BATCH_SIZE = map(
    int, (Header.PROVISIONAL, Header.EPOCH, Header.ITERATION, Header.FIRST_SAMPLE, Header.BATCH_SIZE)
)


class RegionFullError(Exception):
    """The samples of a task do not fit into its region. `needed` bytes would have sufficed for the samples so far."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class NoMemoryError(Exception):
    """`missing` bytes could not be committed behind a region. `needed` bytes would have sufficed for the samples so far."""

    def __init__(self, missing: int, needed: int = 0) -> None:
        super().__init__(missing, needed)
        self.missing = missing
        self.needed = needed


#: For each dtype and number of dimensions that arrays may have: the words of a descriptor.
_KINDS = {(dtype, ndim): (code, ndim) for dtype, code in DTYPE_CODES.items() for ndim in range(MAX_NDIM + 1)}

#: The kind of objects in descriptors: arrays of bytes.
_OBJECT_KIND = _KINDS[np.dtype(np.uint8), 1]


class Target(NamedTuple):
    """Where rows of one output are written, by ``memory[key] = array``, and the dtype and shape that samples need for it."""

    memory: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None


#: Target of an output without rows: no array has this shape.
NO_TARGET = Target(None, np.dtype(float), None)


class SlotView:
    """The layout of a slot, read once from its header and used for all batches with this layout.

    Attributes:
        expected: for each output, its descriptor in the header: dtype, ndim, and the offset of the rows.
        kinds: for each output, the code of its dtype and its ndim, as far as they are known.
        offsets: for each output, the offset of its rows.
        rows: for each output, an array of all rows; None if it has no rows.
        row_schemas: the schemas of samples in rows.
        targets: for each output, where its rows are written.
        plans: for each output, the data for `Task.outside_writer`: dtype, its code, ndim, the function that writes a
            descriptor, and the place of the first one. No array agrees with a plan without dtype and ndim.
        marks, counts, descriptors: see `dali_like.engine.memory.ring.Slot`.
    """

    def __init__(self, space: SharedSpace, offset: int, words: Sequence[int]) -> None:
        word = np.dtype(np.int64)
        num_outputs = words[Header.NUM_OUTPUTS]
        capacity = words[Header.CAPACITY]
        self.offset = offset
        self.slot_layout = words[Header.LAYOUT]
        self.task_size = words[Header.TASK_SIZE]
        self.regions_offset = offset + words[Header.REGIONS_OFFSET]
        self.region_bytes = words[Header.REGION_BYTES]
        num_tasks = -(-capacity // self.task_size)
        marks_offset = offset + words[Header.MARKS_OFFSET]
        self.marks = space.array(marks_offset, (num_tasks,), word)
        self.counts = space.array(marks_offset + num_tasks * WORD_BYTES, (num_tasks,), word)
        self.descriptors_offset = offset + words[Header.DESCRIPTORS_OFFSET]
        self.descriptors: NDArray[np.int64] = space.array(
            self.descriptors_offset, (capacity, num_outputs, DESCRIPTOR_WORDS), word
        )
        self.expected: list[list[int]] = space.array(
            offset + HEADER_WORDS * word.itemsize, (num_outputs, DESCRIPTOR_WORDS), word
        ).tolist()
        self.kinds = [(expected[Word.DTYPE], expected[Word.NDIM]) for expected in self.expected]
        self.offsets = [expected[Word.OFFSET] for expected in self.expected]
        self.has_rows = UNKNOWN not in self.offsets
        self._keys: dict[int, list[Sequence[Any]]] = {}
        self._begun: set[int] = set()
        self._capacity = capacity
        self.rows: list[Any] = [self._rows_of(space, expected) for expected in self.expected]
        self._map = space.map
        self._set_targets(MOST_PLAIN_BYTES)
        self.row_schemas = [OutputSchema(*kind, target.shape) for kind, target in zip(self.kinds, self.targets, strict=True)]
        self.plans: list[tuple[Any, ...]] = [
            (DTYPES[code], code, ndim, _DESCRIPTORS[ndim], self.descriptors_offset + output * _DESCRIPTOR_BYTES)
            if UNKNOWN not in (code, ndim)
            else (NO_TARGET.dtype, UNKNOWN, UNKNOWN, None, 0)
            for output, (code, ndim) in enumerate(self.kinds)
        ]

    @property
    def num_keys(self) -> int:
        """The number of keys kept for reuse."""
        return sum(len(keys) for of_task in self._keys.values() for keys in of_task if isinstance(keys, list))

    def keys_of(self, task: int) -> list[Sequence[Any]]:
        """Return, for each output, the keys of a task's samples in its target."""
        keys = self._keys.get(task)
        if keys is None:
            samples = self._samples_of(task)
            keys = self._keys[task] = [self._output_keys(output, samples) for output in range(len(self.targets))]
        return keys

    def begin(self, task: int) -> None:
        """Prepare the memory of a task."""
        if task not in self._begun:
            self._begun.add(task)
            self._map_pages(self._samples_of(task))

    def _samples_of(self, task: int) -> range:
        return range(task * self.task_size, min((task + 1) * self.task_size, self._capacity))

    def expect_gaps(self) -> None:
        """From the next task on, let NumPy copy all samples, since some are not contiguous."""
        self._set_targets(0)
        self._keys.clear()

    def _map_pages(self, samples: range) -> None:
        """Map the pages of samples' rows, since this process is about to write them for the first time."""
        for offset, expected in zip(self.offsets, self.expected, strict=True):
            nbytes = len(samples) * expected[Word.NBYTES]
            if offset != UNKNOWN and nbytes >= _LEAST_MAPPED_BYTES:
                map_pages(self._map, self.offset + offset + samples.start * expected[Word.NBYTES], nbytes)

    def _set_targets(self, most_plain_bytes: int) -> None:
        self.targets = [
            NO_TARGET
            if rows is None
            else Target(self._map if expected[Word.NBYTES] <= most_plain_bytes else rows, rows.dtype, rows.shape[1:])
            for rows, expected in zip(self.rows, self.expected, strict=True)
        ]

    def _output_keys(self, output: int, samples: range) -> Sequence[Any]:
        if self.targets[output].memory is not self._map:
            return samples
        begin, nbytes = self.offset + self.offsets[output], self.expected[output][Word.NBYTES]
        return [slice(begin + i * nbytes, begin + (i + 1) * nbytes) for i in samples]

    def _rows_of(self, space: SharedSpace, expected: list[int]) -> NDArray[Any] | None:
        if expected[Word.OFFSET] == UNKNOWN:
            return None
        shape = tuple(expected[Word.SHAPE : Word.SHAPE + expected[Word.NDIM]])
        return space.array(self.offset + expected[Word.OFFSET], (self._capacity, *shape), DTYPES[expected[Word.DTYPE]])


def sample_info(task: Any, i: int) -> SampleInfo:
    """Return the SampleInfo of a sample of a task."""
    return SampleInfo(task.first + i * task.source.stride, i, task.iteration, task.epoch)


class Task:
    """Some samples of one batch, computed by one worker.

    Attributes:
        callback: the callback of the source, or a wrapper of the runner around it.
        provisional: whether the expected dtypes and dimensions are only guessed, so that others are not errors.
        size: samples in the batch.
        start, stop: the samples of the task, by their index in the batch. If tasks have owners, its request names others.
        first: idx_in_epoch of the batch's first sample.
        targets, keys: where rows are written, see `SlotView`.
        has_rows: whether all outputs have rows.
        region: holds the samples without a row; None until there is one.
        lent: memory of the slot that the callback got from `SampleInfo.empty`, by sample and output.
        words: the header of the slot.
        number: the number of the task in its batch.
    """

    region: Region | None = None
    _is_over = False

    def __init__(self, space: SharedSpace, view: SlotView, source: Source, words: list[int], number: int) -> None:
        self._space = space
        self.number = number
        self._lock = RLock()  # callbacks may have threads
        self.lent: dict[tuple[int, int], NDArray[Any]] = {}
        self.view = view
        self.source = source
        self.callback = source.callback
        self.epoch = words[_EPOCH]
        self.iteration = words[_ITERATION]
        self.first = words[_FIRST_SAMPLE]
        self.provisional = words[_PROVISIONAL]
        start = self.start = number * view.task_size
        self.size = words[_BATCH_SIZE]
        self.stop = max(min(start + view.task_size, self.size), start)  # see `BatchKey.owners`
        self.targets = view.targets
        view.begin(number)
        self.has_rows = view.has_rows
        self.words = words

    @property
    def keys(self) -> list[Sequence[Any]]:
        """The keys of its samples in the targets. Request sources write whole arrays, and need none."""
        return self.view.keys_of(self.number)

    @property
    def request(self) -> memoryview:
        """The request that the main process has sent with the batch."""
        begin = self.view.offset + self.words[Header.REQUEST_OFFSET]
        return memoryview(self._space.map)[begin : begin + self.words[Header.REQUEST_BYTES]]

    def span(self) -> Interval:
        """Return the samples of the task."""
        first = -1 if self.source.type is SourceType.REQUEST else self.first + self.start * self.source.stride
        return Interval(self.epoch, self.iteration, first, self.stop - self.start, self.size)

    def end_at(self, stop: int) -> None:
        """End the task before the sample `stop`."""
        self.stop = stop
        self.view.counts[self.number] = stop - self.start
        if stop == self.start:
            self.describe_all()  # without samples; the output may have no rows

    def message_region(self) -> Region:
        """Return the region of the task, empty, for a message: samples in rows need no descriptors."""
        self.region = Region(self._space, self.view, self.number)
        return self.region

    def _describe_rows(self, outputs: Iterable[int]) -> None:
        for output in outputs:
            expected = self.view.expected[output]
            if expected[Word.OFFSET] != UNKNOWN:
                describe_rows(self.view.descriptors, output, expected, self.start, self.stop)

    def describe_all(self) -> Region:
        """From now on, describe each sample. Describe the ones that are in their rows already. Return the region."""
        if self.region is None:
            with self._lock:
                if self.region is None:
                    self._describe_rows(range(len(self.view.expected)))
                    self.region = Region(self._space, self.view, self.number)
        return self.region

    def write_state(self, state: bytes) -> None:
        """Write the state of a source behind its length, at the start of the region, before any sample."""
        self.describe_all().append(np.frombuffer(len(state).to_bytes(WORD_BYTES, "little") + state, np.uint8))

    def put(self, i: int, output: int, value: Any, source: Source) -> None:
        """Write one output of sample `i`. Once the task has a region, also describe the sample.

        Raises:
            SampleError: the value cannot be delivered.
            RegionFullError, NoMemoryError: there is no room for it.
        """
        if source.is_object(output):
            self._put_object(i, output, value, source)
            return
        array = as_tensor(value, source, output)
        _, dtype, shape = self.view.targets[output]
        if array.shape == shape and array.dtype == dtype:
            self.view.rows[output][i] = array
            if self.region is None:
                return
            expected = self.view.expected[output]
            offset = expected[Word.OFFSET] + i * expected[Word.NBYTES]
        else:
            self._check(array.dtype, array.ndim, output, source)
            region = self.describe_all()
            place = self.lent.get((i, output))
            written = place is not None and _is_same(array, place)
            offset = (_address(array) - self._space.address if written else region.append(array)) - self.view.offset
        self._describe(i, output, offset, array)

    def put_outputs(self, i: int, outputs: Sequence[Any], source: Source) -> None:
        """Write all outputs of sample `i`, as `put`."""
        for output, value in enumerate(outputs):
            self.put(i, output, value, source)

    def _put_object(self, i: int, output: int, value: Any, source: Source) -> None:
        """Pickle one output of sample `i` into the region, and describe it as an array of bytes."""
        parts = () if isinstance(value, Pickled) else parts_of_object(value, source, output)
        region = self.describe_all()
        if isinstance(value, Pickled):
            offset, nbytes = region.append(value.block), value.block.nbytes
        else:
            offset, nbytes = write_parts(parts, region)
        place = self.view.descriptors_offset + (i * len(self.view.expected) + output) * _DESCRIPTOR_BYTES
        _DESCRIPTORS[1](self._space.map, place, offset - self.view.offset, nbytes, *_OBJECT_KIND, nbytes)

    def outside_writer(self) -> Callable[[int, int, NDArray[Any]], bool]:
        """Return a function that puts one output of a sample, an array that has no row, if it is of the expected kind.

        It gets the index of the sample and the number of the output, and returns whether it is. It raises RegionFullError
        and NoMemoryError, as `put`. Only the thread of the task may call it. It is the hot path for such samples: it calls
        few functions, and looks up few attributes.
        """
        ndarray, plans, base, region = np.ndarray, self.view.plans, self.view.offset, self.region
        memory: Any = self._space.map
        step = len(plans) * _DESCRIPTOR_BYTES

        def put(i: int, output: int, array: NDArray[Any]) -> bool:
            nonlocal region
            dtype, code, ndim, describe, place = plans[output]
            shape, nbytes = array.shape, array.nbytes
            if len(shape) != ndim or (array.dtype is not dtype and array.dtype != dtype):
                return False
            if region is None:
                region = self.describe_all()
            begin = region.next
            if begin + nbytes > region.end:
                begin = region.open(nbytes)
            region.next = begin + nbytes + SAMPLE_ALIGNMENT - 1 & -SAMPLE_ALIGNMENT  # `align`, without the call
            describe(memory, place + i * step, begin - base, nbytes, code, ndim, *shape)
            if nbytes <= MOST_PLAIN_BYTES:
                try:
                    memory[begin : begin + nbytes] = array
                except NOT_CONTIGUOUS:
                    nbytes = MOST_PLAIN_BYTES + 1
            if nbytes > MOST_PLAIN_BYTES:
                ndarray(shape, dtype, memory, begin)[...] = array
            return True

        return put

    def writer(self) -> Callable[[int, Sequence[Any]], bool]:
        """Return a function that puts all outputs of a sample, once, if they are arrays of the expected kinds.

        It returns whether they are. Only the thread of the task may call it. It raises RegionFullError and NoMemoryError, as
        `put`.
        """
        ndarray, outside, start, rows = np.ndarray, self.outside_writer(), self.start, self.view.rows
        places = [(output, keys, *target) for output, (keys, target) in enumerate(zip(self.keys, self.targets, strict=True))]

        def put(i: int, arrays: Sequence[Any]) -> bool:
            for array in arrays:
                if array.__class__ is not ndarray:
                    return False
            for array, (output, keys, memory, dtype, shape) in zip(arrays, places):  # noqa: B905  # `strict=` takes longer
                if array.shape == shape and (array.dtype is dtype or array.dtype == dtype):
                    try:
                        memory[keys[i - start]] = array  # it is described if necessary: see `describe_all`
                    except NOT_CONTIGUOUS:
                        rows[output][i] = array
                elif not outside(i, output, array):
                    return False
            return True

        return put

    def put_list(
        self, output: int, values: Sequence[Any], source: Source, note: Callable[[int], None]
    ) -> OutputSchema | None:
        """Write one output of all samples of the task.

        Args:
            note: called with the index of a sample that takes longer.

        Returns:
            The schema of the samples, if they are all arrays of the expected dtype and number of dimensions.

        Raises:
            SampleError, RegionFullError, NoMemoryError: as `put`.
        """
        ndarray, outside = np.ndarray, self.outside_writer()
        if self.region is not None:  # a batch that this one replaces may have left other descriptors
            self._describe_rows([output])
        memory, dtype, shape = self.view.targets[output]
        is_plain = not self.lent and not source.is_object(output)
        first: tuple[int, ...] | None = None
        is_alike = is_known = True
        for i, (value, key) in enumerate(zip(values, self.keys[output], strict=False), self.start):
            if is_plain and value.__class__ is ndarray:
                own = value.shape
                if own != first:
                    is_alike, first = first is None, own
                if own == shape and (value.dtype is dtype or value.dtype == dtype):
                    try:
                        memory[key] = value  # it is described if necessary: see `describe_all`
                        continue
                    except NOT_CONTIGUOUS:
                        pass
                elif outside(i, output, value):
                    continue
            is_known = False
            note(i)
            self.put(i, output, value, source)
        _, code, ndim, _, _ = self.view.plans[output]
        return OutputSchema(code, ndim, first if is_alike else None) if is_known and first is not None else None

    def put_all(self, output: int, samples: NDArray[Any], source: Source, begin: int | None = None) -> OutputSchema:
        """Write one output of several samples from one array, from the sample `begin` on. Default: the first of the task.

        Returns:
            The schema of the samples.

        Raises:
            SampleError, RegionFullError, NoMemoryError: as `put`.
        """
        count, shape = len(samples), samples.shape[1:]
        begin = self.start if begin is None else begin
        self._check(samples.dtype, samples.ndim - 1, output, source)
        if (rows := self.rows_of(output, begin, count, shape, samples.dtype)) is not None:
            rows[...] = samples  # NumPy skips the copy if both are the same memory
            if self.region is not None:  # other samples of the task, or of a batch that this one replaces, were described
                describe_rows(self.view.descriptors, output, self.view.expected[output], begin, begin + count)
            return self.view.row_schemas[output]
        offset = self.describe_all().append(samples) - self.view.offset
        nbytes = samples.nbytes // count if count else 0
        words = (offset, nbytes, DTYPE_CODES[samples.dtype], len(shape), *shape)
        descriptors = self.view.descriptors[begin : begin + count, output]
        descriptors[:, : len(words)] = words
        descriptors[:, Word.OFFSET] += np.arange(count) * nbytes
        return OutputSchema(DTYPE_CODES[samples.dtype], len(shape), shape)

    def put_samples(self, output: int, samples: SampleList, source: Source, begin: int) -> None:
        """Write one output of several samples of any shapes, from the sample `begin` on, and describe them.

        Raises:
            SampleError, RegionFullError, NoMemoryError: as `put`.
        """
        self._check(samples.dtype, samples.ndim, output, source)
        region = self.describe_all()
        addresses = samples.addresses - self._space.address
        first, end = int(addresses.min()), int(addresses.max())
        if not region.start <= first <= end < region.start + region.used:
            samples = samples.copy(region.array((samples.nbytes,), np.dtype(np.uint8)))
            addresses = samples.addresses - self._space.address
        table = self.view.descriptors[begin : begin + len(samples), output]
        table[...] = samples.descriptors
        table[:, Word.OFFSET] = addresses - self.view.offset

    def rows_of(
        self, output: int, begin: int, count: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any] | None:
        """Return the rows of some samples if samples of this shape and dtype go there; otherwise None."""
        rows = self.view.rows[output]
        if rows is None or shape != rows.shape[1:] or dtype != rows.dtype:
            return None
        mine: NDArray[Any] = rows[begin : begin + count]
        return mine

    def empty(self, info: SampleInfo, output: int, shape: Any, dtype: Any) -> NDArray[Any] | None:
        """Lend the memory for an output of a sample of this task, or return None. See `SampleInfo.empty`."""
        i = info[1]
        if not self.start <= i < self.stop or info != (self.first + i * self.source.stride, i, self.iteration, self.epoch):
            return None
        if self._is_over or not 0 <= output < len(self.view.expected) or (i, output) in self.lent:
            return None
        _, row_dtype, row_shape = self.view.targets[output]
        if not (has_row := shape == row_shape and row_dtype == dtype):
            shape, dtype = plain_form(shape, dtype)
            has_row = shape == row_shape and row_dtype == dtype
        # A new array object, so that `setdefault` shows which of several threads came first. The callback gets yet another
        # one: it may change the array object itself, by reshaping it, say.
        place = self.view.rows[output][i, ...] if has_row else self._room_for(output, shape, dtype)
        if place is None or self.lent.setdefault((i, output), place) is not place:
            return None
        return place[...]

    def _room_for(self, output: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Return memory for an array that has no row, or None."""
        if self.source.is_object(output) or dtype not in DTYPE_CODES:
            return None
        with self._lock:
            if self._is_over:
                return None
            try:
                return self.describe_all().array(shape, dtype)
            except (RegionFullError, NoMemoryError):
                return None  # writing the sample will fail likewise, and that is reported

    def disentangle(self, i: int, outputs: Sequence[Any], source: Source) -> tuple[Any, ...]:
        """Return the outputs of a sample, after copying each one that lies in memory lent for another output."""
        if not any(source.objects):
            for value in outputs[1:]:
                if value.__class__ is not np.ndarray or value.base is not None:
                    break
            else:
                return tuple(outputs)  # arrays with memory of their own do not overlap
        apart: list[Any] = []
        for output, value in enumerate(outputs):
            if source.is_object(output):
                apart.append(Pickled(block_of_object(value, source, output)))
                continue
            array = value if isinstance(value, np.ndarray) else as_array(value, source, output)
            is_cheap = array.nbytes <= _FEW_BYTES and (i, output) not in self.lent
            apart.append(array.copy() if is_cheap or (output and self._is_shared(array, i, output)) else array)
        return tuple(apart)

    def _is_shared(self, array: NDArray[Any], i: int, output: int) -> bool:
        """Whether an array may lie in memory that has been lent for an earlier output of the sample."""
        return any(np.may_share_memory(array, self.lent[i, j]) for j in range(output) if (i, j) in self.lent)

    def note_need(self, needed: int, sample: int) -> None:
        """Write the estimated size of the region to the header, for the message about the shortage.

        Args:
            needed: the bytes of the samples up to the one that found no memory.
            sample: the index of that sample in the batch. A task that is not computed sample by sample gives its last.
        """
        count = self.stop - self.start
        estimate = needed * count // max(1, min(sample - self.start + 1, count))
        word = self._space.array(self.view.offset + Header.NEEDED_BYTES * WORD_BYTES, (1,), np.dtype(np.int64))
        word[0] = max(word[0], estimate)

    def end(self) -> None:
        """From now on, let `empty` return None, even in threads that the callback has left behind."""
        with self._lock:
            self._is_over = True

    def _check(self, dtype: np.dtype[Any], ndim: int, output: int, source: Source) -> None:
        expected = self.view.kinds[output]
        if _KINDS[dtype, ndim] == expected:
            return
        if not self.provisional:
            check_array(dtype, ndim, *expected, source, output)
        elif source.declared:  # what is declared is known
            check_array(dtype, ndim, source.declared[output].dtype, source.declared[output].ndim, source, output)

    def _describe(self, i: int, output: int, offset: int, array: NDArray[Any]) -> None:
        place = self.view.descriptors_offset + (i * len(self.view.expected) + output) * _DESCRIPTOR_BYTES
        kind = _KINDS[array.dtype, array.ndim]
        _DESCRIPTORS[kind[1]](self._space.map, place, offset, array.nbytes, *kind, *array.shape)


class Region:
    """The part of a slot for samples of one task that do not fit their rows, filled from its start.

    Attributes:
        space: the shared space.
        start: where the region begins in it.
        used: bytes used so far, the window included.
        next, end: the window, a part of the region that the thread of the task fills without the lock, by `open`. As many
            bytes of it as there is memory for.
    """

    def __init__(self, space: SharedSpace, view: SlotView, task: int) -> None:
        self.space = space
        self._marks = view.marks
        self._task = task
        self._part = view.regions_offset
        self.start = view.regions_offset + task * view.region_bytes
        self._size = view.region_bytes
        self._lock = Lock()
        self._committed = int(view.marks[task])
        self.used = 0
        self.next = self.end = self.start

    def append(self, array: NDArray[Any]) -> int:
        """Copy an array to the end of the used part. Return its offset in the shared space."""
        offset = self.take(array.nbytes)
        self.space.array(offset, array.shape, array.dtype)[...] = array
        return offset

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return room for an array."""
        return self.space.array(self.take(math.prod(shape) * dtype.itemsize), shape, dtype)

    def take(self, nbytes: int) -> int:
        """Use `nbytes` more. Return their offset in the shared space."""
        with self._lock:
            begin = self.used
            end = begin + nbytes + SAMPLE_ALIGNMENT - 1 & -SAMPLE_ALIGNMENT  # `align`, without the call
            if end > self._committed:
                self._grow(end)
            self.used = end
        return self.start + begin

    def open(self, nbytes: int) -> int:
        """Make the window large enough for `nbytes`. Return where it begins. Only the thread of the task may call it."""
        with self._lock:
            self._close()
            begin = self.used
            end = begin + nbytes + SAMPLE_ALIGNMENT - 1 & -SAMPLE_ALIGNMENT
            if end > self._committed:
                self._grow(end)
            self.used = self._committed
        self.next, self.end = self.start + begin, self.start + self._committed
        return self.next

    def close(self) -> None:
        """Give up the rest of the window."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self.end == self.start + self.used:  # otherwise other threads have taken memory behind it
            self.used = self.next - self.start
        self.end = self.next

    def _grow(self, end: int) -> None:
        if end > self._size:
            raise RegionFullError(end)
        step = min(max(self._committed, _LEAST_COMMIT_BYTES), _MOST_COMMIT_BYTES)
        target = min(align(end, step), self._size)
        missing = target - self._committed
        try:
            self.space.commit(self.start + self._committed, missing, self._part)
        except OutOfMemoryError:
            raise NoMemoryError(missing, end) from None  # the main process may free memory, and words the error
        self._committed = target
        self._marks[self._task] = target


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _is_same(array: NDArray[Any], place: NDArray[Any]) -> bool:
    """Whether an array is `place` itself, perhaps reshaped."""
    return _address(array) == _address(place) and array.nbytes <= place.nbytes and bool(array.flags.c_contiguous)
