"""A task as the one who computes it sees it: which samples, and where they go.

Nothing but the rows, descriptors, count and region of the task itself is touched.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import (
    DESCRIPTOR_WORDS,
    DTYPE_CODES,
    MAX_NDIM,
    SAMPLE_ALIGNMENT,
    UNKNOWN,
    WORD_BYTES,
    Header,
    Word,
    align,
)
from dali_like.engine.memory.slot_layout import describe_rows
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.meters import Interval
from dali_like.engine.worker.slot_view import MOST_PLAIN_BYTES, SlotView
from dali_like.engine.worker.source import Pickled, Source, as_array, check_array
from dali_like.errors import OutOfMemoryError
from dali_like.types import SampleInfo, plain_form

#: Memory is put behind a region in steps, since each is a few system calls: as much again as there is already, within these
#: bounds. So a batch of small samples takes little, and one of large samples few steps.
_LEAST_COMMIT_BYTES = 1 << 14
_MOST_COMMIT_BYTES = 1 << 20

#: What writes a descriptor, by the number of dimensions; see `dali_like.engine.memory.protocol.Word`.
_DESCRIPTORS = tuple(struct.Struct(f"={Word.SHAPE + ndim}q").pack_into for ndim in range(MAX_NDIM + 1))
_DESCRIPTOR_BYTES = DESCRIPTOR_WORDS * WORD_BYTES


class RegionFullError(Exception):
    """The samples of a task do not fit into its region; `needed` is how many bytes would have been enough so far."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class NoMemoryError(Exception):
    """There is no memory to put behind a region; `missing` is how many bytes were wanted."""

    def __init__(self, missing: int) -> None:
        super().__init__(missing)
        self.missing = missing


#: The dtypes and numbers of dimensions that arrays may have, as descriptors say it.
_KINDS = {(dtype, ndim): (code, ndim) for dtype, code in DTYPE_CODES.items() for ndim in range(MAX_NDIM + 1)}


class Task:
    """One task while it is computed.

    Attributes:
        callback: makes its samples: that of the source, or what the runner puts around it.
        provisional: whether the expected dtypes and dimensions are only guessed, so that others are no errors.
        start, stop: the samples of the batch that it consists of.
        first: idx_in_epoch of the batch's first sample.
        targets, keys: where its samples go, see `dali_like.engine.worker.slot_view.SlotView`.
        has_rows: whether each output has rows.
        region: where samples go that have no row; None as long as all had one.
        lent: the memory that the callback has been given to make samples in, by sample and output.
    """

    def __init__(self, space: SharedSpace, view: SlotView, source: Source, words: list[int], number: int) -> None:
        self._space = space
        self._number = number
        self._lock = threading.RLock()  # callbacks may have threads
        self._is_over = False
        self.lent: dict[tuple[int, int], NDArray[Any]] = {}
        self.view = view
        self.source = source
        self.callback = source.callback
        self.epoch = words[Header.EPOCH]
        self.iteration = words[Header.ITERATION]
        self.first = words[Header.FIRST_SAMPLE]
        self.provisional = words[Header.PROVISIONAL]
        self.start = number * view.task_size
        self.stop = min(self.start + view.task_size, words[Header.BATCH_SIZE])
        self.targets = view.targets
        self.keys = view.keys_of(number)
        self.has_rows = view.has_rows
        self._words = words
        self.region: Region | None = None

    @property
    def request(self) -> memoryview:
        """What the main process has sent along with the batch."""
        begin = self.view.offset + self._words[Header.REQUEST_OFFSET]
        return memoryview(self._space.map)[begin : begin + self._words[Header.REQUEST_BYTES]]

    def span(self) -> Interval:
        """Which samples it consists of."""
        first = -1 if self.source.requests else self.first + self.start
        return Interval(self.epoch, self.iteration, first, self.stop - self.start)

    def end_at(self, stop: int) -> None:
        """Leave it at fewer samples than it might have had."""
        self.stop = stop
        self.view.counts[self._number] = stop - self.start
        if stop == self.start:
            self.describe_all()  # nothing, which there may be no rows for

    def clean_region(self) -> Region:
        """The region of the task, with nothing in it."""
        self.region = Region(self._space, self.view, self._number)
        return self.region

    def describe_all(self) -> Region:
        """From now on each sample is described, and so are those that lie in their rows already."""
        if self.region is None:
            with self._lock:
                if self.region is None:
                    for output, expected in enumerate(self.view.expected):
                        describe_rows(self.view.descriptors, output, expected, self.start, self.stop)
                    self.region = Region(self._space, self.view, self._number)
        return self.region

    def write_state(self, state: bytes) -> None:
        """Write the state of a source behind its length, at the start of the region, before any sample."""
        self.describe_all().append(np.frombuffer(len(state).to_bytes(WORD_BYTES, "little") + state, np.uint8))

    def put(self, i: int, output: int, value: Any, source: Source) -> None:
        """Write one output of sample `i`, and describe where it is if there is a sample that is not in its row.

        Raises:
            SampleError: it may not be written.
            RegionFullError, NoMemoryError: there is no room for it.
        """
        array = as_array(value, source, output)
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

    def put_arrays(self, i: int, arrays: Sequence[Any]) -> bool:
        """As `put` for all outputs of sample `i`, if these are plain arrays of the right kinds; else nothing is written.

        This is what a sample without rows costs besides its callback and the copies, so all is done in one place.

        Raises:
            RegionFullError, NoMemoryError: as `put`.
        """
        view, space, take = self.view, self._space, (self.region or self.describe_all()).take
        kinds = []
        for array, wanted in zip(arrays, view.kinds):  # noqa: B905  # naming it takes longer, here and below
            kind = _KINDS.get((array.dtype, array.ndim)) if array.__class__ is np.ndarray else None
            if kind is None or (kind != wanted and not self.provisional and not _agrees(kind, wanted)):
                return False
            kinds.append(kind)
        place = view.descriptors_offset + i * len(kinds) * _DESCRIPTOR_BYTES
        for array, kind, (_, dtype, row_shape), rows_offset in zip(arrays, kinds, view.targets, view.offsets):  # noqa: B905
            shape, nbytes = array.shape, array.nbytes
            has_row = shape == row_shape and array.dtype == dtype
            begin = view.offset + rows_offset + i * nbytes if has_row else take(nbytes)
            if nbytes <= MOST_PLAIN_BYTES and array.flags.c_contiguous:
                space.map[begin : begin + nbytes] = array
            else:
                np.ndarray(shape, array.dtype, space.map, begin)[...] = array
            _DESCRIPTORS[kind[1]](space.map, place, begin - view.offset, nbytes, *kind, *shape)
            place += _DESCRIPTOR_BYTES
        return True

    def put_all(self, output: int, samples: NDArray[Any], source: Source) -> None:
        """Write one output of the first samples of the task from one array.

        Raises:
            SampleError, RegionFullError, NoMemoryError: as `put`.
        """
        count, shape = len(samples), samples.shape[1:]
        self._check(samples.dtype, samples.ndim - 1, output, source)
        rows = self.view.rows[output]
        if rows is not None and shape == rows.shape[1:] and samples.dtype == rows.dtype:
            rows[self.start : self.start + count] = samples
            if self.region is not None:  # another batch, which this one replaces, may have been described
                describe_rows(self.view.descriptors, output, self.view.expected[output], self.start, self.start + count)
            return
        offset = self.describe_all().append(samples) - self.view.offset
        nbytes = samples.nbytes // count if count else 0
        words = (offset, nbytes, DTYPE_CODES[samples.dtype], len(shape), *shape)
        descriptors = self.view.descriptors[self.start : self.start + count, output]
        descriptors[:, : len(words)] = words
        descriptors[:, Word.OFFSET] += np.arange(count) * nbytes

    def empty(self, info: SampleInfo, output: int, shape: Any, dtype: Any) -> NDArray[Any] | None:
        """The memory for an output of a sample of this task, or None. See `SampleInfo.empty`."""
        i = info[1]
        if not self.start <= i < self.stop or info != (self.first + i, i, self.iteration, self.epoch):
            return None
        if self._is_over or not 0 <= output < len(self.view.expected) or (i, output) in self.lent:
            return None
        _, row_dtype, row_shape = self.view.targets[output]
        if not (has_row := shape == row_shape and row_dtype == dtype):
            shape, dtype = plain_form(shape, dtype)
            has_row = shape == row_shape and row_dtype == dtype
        # An array of its own, by which it shows which of several threads has asked first. Likewise below: what the callback
        # does to the array itself, such as reshaping it, is not done to ours.
        place = self.view.rows[output][i, ...] if has_row else self._room_for(output, shape, dtype)
        if place is None or self.lent.setdefault((i, output), place) is not place:
            return None
        return place[...]

    def _room_for(self, output: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Memory for an array that has no row, if it may be lent and there is any."""
        if self.source.is_object(output) or dtype not in DTYPE_CODES:
            return None
        with self._lock:
            if self._is_over:
                return None
            try:
                return self.describe_all().array(shape, dtype)
            except (RegionFullError, NoMemoryError):
                return None  # there will be none for a copy either, but that is not for the callback to know

    def disentangle(self, i: int, outputs: Sequence[Any], source: Source) -> tuple[Any, ...]:
        """The outputs of a sample, with copies of those that lie where another one is going to be written."""
        if not any(source.objects) and all(value.__class__ is np.ndarray and value.base is None for value in outputs[1:]):
            return tuple(outputs)  # what has memory of its own lies in nobody else's
        apart: list[Any] = []
        for output, value in enumerate(outputs):
            if source.is_object(output):
                apart.append(Pickled(as_array(value, source, output)))
                continue
            array = value if isinstance(value, np.ndarray) else as_array(value, source, output)
            shares = any(np.may_share_memory(array, self.lent[i, j]) for j in range(output) if (i, j) in self.lent)
            apart.append(array.copy() if shares else array)
        return tuple(apart)

    def end(self) -> None:
        """From now on `empty` gives nothing of this task, whoever may still have it."""
        with self._lock:
            self._is_over = True

    def _check(self, dtype: np.dtype[Any], ndim: int, output: int, source: Source) -> None:
        expected = self.view.kinds[output]
        if _KINDS[dtype, ndim] != expected and not self.provisional:
            check_array(dtype, ndim, *expected, source, output)

    def _describe(self, i: int, output: int, offset: int, array: NDArray[Any]) -> None:
        place = self.view.descriptors_offset + (i * len(self.view.expected) + output) * _DESCRIPTOR_BYTES
        kind = _KINDS[array.dtype, array.ndim]
        _DESCRIPTORS[kind[1]](self._space.map, place, offset, array.nbytes, *kind, *array.shape)


class Region:
    """The region of one task, filled from its start."""

    def __init__(self, space: SharedSpace, view: SlotView, task: int) -> None:
        self._space = space
        self._marks = view.marks
        self._task = task
        #: Where it begins in the shared space.
        self.start = view.regions_offset + task * view.region_bytes
        self._size = view.region_bytes
        self._lock = threading.Lock()
        self._committed = int(view.marks[task])
        self.used = 0

    def append(self, array: NDArray[Any]) -> int:
        """Copy an array to the end of what is used, and return its offset in the shared space."""
        offset = self.take(array.nbytes)
        self._space.array(offset, array.shape, array.dtype)[...] = array
        return offset

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Use room for an array, and return it."""
        return self._space.array(self.take(math.prod(shape) * dtype.itemsize), shape, dtype)

    def take(self, nbytes: int) -> int:
        """Use `nbytes` more, and return their offset in the shared space."""
        with self._lock:
            begin = self.used
            end = -(-(begin + nbytes) // SAMPLE_ALIGNMENT) * SAMPLE_ALIGNMENT  # `align`, without the call
            if end > self._committed:
                self._grow(end)
            self.used = end
        return self.start + begin

    def _grow(self, end: int) -> None:
        if end > self._size:
            raise RegionFullError(end)
        step = min(max(self._committed, _LEAST_COMMIT_BYTES), _MOST_COMMIT_BYTES)
        target = min(align(end, step), self._size)
        missing = target - self._committed
        try:
            self._space.commit(self.start + self._committed, missing)
        except OutOfMemoryError:
            raise NoMemoryError(missing) from None  # the main process has the words, and may find memory
        self._committed = target
        self._marks[self._task] = target


def _agrees(kind: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """Whether an array is of the kind that is wanted, as far as that is known."""
    return all(word in (UNKNOWN, known) for known, word in zip(kind, wanted, strict=True))


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _is_same(array: NDArray[Any], place: NDArray[Any]) -> bool:
    """Whether an array lies where `place` does, in the same form or another one without gaps."""
    return _address(array) == _address(place) and array.nbytes <= place.nbytes and bool(array.flags.c_contiguous)
