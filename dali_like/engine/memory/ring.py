"""Slots of batches, and leases that keep them from being reused. Runs in the main process.

Slots lie in the shared space. Only the main process makes, reuses and frees them. The user gets a slot under a `Lease`:
while any array over the slot is alive, so is the lease, and the slot is not reused. The finalizer of a lease may run in any
thread and at any instruction, so it only appends to a deque. The slot returns to the ring when the main thread next acquires
one. In a forked child the finalizer does nothing: the slot belongs to the parent.

A lease keeps the shared space, so closing a pipeline never invalidates a batch that the user holds.

A GPU may still read a slot when its lease ends. Then a fence keeps it, see `dali_like.engine.memory.space.Fence`.
"""

from __future__ import annotations

import functools
import math
import os
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.common.kernel_library import address_of
from dali_like.engine.memory.protocol import DESCRIPTOR_WORDS, DTYPE_CODES, DTYPES, PAGE_BYTES, Word, align
from dali_like.engine.memory.slot_layout import SlotLayout
from dali_like.engine.memory.space import Fence, SharedSpace

#: A reused slot frees the pages of its regions if they exceed the usual need by this factor, plus this many bytes: one large
#: batch must not keep memory forever. Freeing and touching pages again costs about ten copies.
_EXCESS = 4
_EXCESS_BYTES = 1 << 24
#: Acquisitions between two checks for slots that are not needed.
_TRIM_EVERY = 32
#: Free slots beyond this number are freed at once: the user held many batches, and has dropped them.
_MOST_FREE = 16
#: Words of descriptors, as plain integers: these index faster than members of the enum.
_OFFSET, _NBYTES, _DTYPE, _NDIM, _SHAPE = map(int, (Word.OFFSET, Word.NBYTES, Word.DTYPE, Word.NDIM, Word.SHAPE))


class Slot:
    """An extent of the shared space that holds one batch of one source.

    Attributes:
        offset: its offset in the space, in bytes.
        header: the words of `dali_like.engine.memory.protocol.Header`, then a descriptor for each output.
        marks: for each task, the bytes of its region that have memory behind them.
        counts: for each task, its number of samples.
        descriptors: places of samples outside of rows; shape (capacity, outputs, DESCRIPTOR_WORDS).
        holds: number of `release` calls to wait for besides the first, before the slot is reused.
        nbytes: its address space, at least that of its layout while it is in use.
        page: its first page.
    """

    __slots__ = ("counts", "descriptors", "header", "holds", "marks", "nbytes", "offset", "page", "slot_layout", "space")

    def __init__(self, space: SharedSpace, slot_layout: SlotLayout) -> None:
        self.space = space
        self.holds = 0
        self.nbytes = align(slot_layout.slot_bytes)
        self.offset = space.take(self.nbytes, slot_layout.resident_bytes)
        self.page = self.offset // PAGE_BYTES
        self._write_header(slot_layout)

    def _write_header(self, slot_layout: SlotLayout) -> None:
        space = self.space
        self.slot_layout = slot_layout
        word = np.dtype(np.int64)
        num_outputs = len(slot_layout.outputs)
        self.header: NDArray[np.int64] = space.array(self.offset, slot_layout.header.shape, word)
        self.header[:] = slot_layout.header
        tasks = (slot_layout.num_tasks(slot_layout.capacity),)
        self.marks: NDArray[np.int64] = space.array(self.offset + slot_layout.marks_offset, tasks, word)
        self.marks[:] = 0  # some systems cannot free the pages of an earlier slot
        self.counts: NDArray[np.int64] = space.array(self.offset + slot_layout.counts_offset, tasks, word)
        self.descriptors: NDArray[np.int64] = space.array(
            self.offset + slot_layout.descriptors_offset, (slot_layout.capacity, num_outputs, DESCRIPTOR_WORDS), word
        )

    def change_layout(self, slot_layout: SlotLayout) -> bool:
        """Change the layout of a free slot, which keeps the memory of its rows. Return False if the layout does not fit.

        Committing memory for a batch of images takes milliseconds, and freeing it takes as long.
        """
        if not slot_layout.has_rows_of(self.slot_layout) or slot_layout.slot_bytes > self.nbytes:
            return False
        self.discard_regions()
        self._shrink(slot_layout.slot_bytes)
        self._write_header(slot_layout)
        return True

    def give_up_address_space(self) -> None:
        """Free the address space behind the used part of the last region. The slot will not be used with this layout again.

        Other sources may need it, where spaces share a file.
        """
        slot_layout = self.slot_layout
        last = slot_layout.num_tasks(slot_layout.capacity) - 1
        self._shrink(slot_layout.region_offset(last) + int(self.marks[last]))

    def _shrink(self, nbytes: int) -> None:
        self.space.shrink(self.offset, nbytes)
        self.nbytes = align(nbytes)

    @property
    def committed_bytes(self) -> int:
        """The memory behind the regions, in bytes."""
        most = self.slot_layout.region_bytes
        return sum([min(max(mark, 0), most) for mark in self.marks.tolist()])  # a tenth of the time of NumPy for few tasks

    def discard_regions(self) -> None:
        """Free the pages behind the regions."""
        self.marks[:] = 0
        self._discard_regions()

    def discard(self) -> None:
        """Free all pages, but not the address space. Takes no lock, so finalizers may call it."""
        self._discard_regions()
        self.space.discard(self.offset, self.slot_layout.resident_bytes)

    def free(self) -> None:
        """Free the pages and the address space."""
        self._discard_regions()
        self.space.free(self.offset, self.nbytes)

    def _discard_regions(self) -> None:
        begin = self.slot_layout.resident_bytes
        if self.nbytes > begin:
            self.space.discard(self.offset + begin, self.nbytes - begin)


class Ring:
    """The slots of one source. Implements `Lessor` and `dali_like.engine.memory.space.Keeper`.

    Attributes:
        num_slots: number of slots, free and in use.
    """

    def __init__(self, space: SharedSpace, slot_layout: SlotLayout) -> None:
        self._space = space
        self._slot_layout = slot_layout
        self._free: list[Slot] = []
        self._closed = False
        self._returned: deque[tuple[Slot, Fence | None]] = deque()
        self._acquired = 0
        self._least_free = 0
        self.num_slots = 0
        space.register(self)

    @property
    def num_free(self) -> int:
        """The number of free slots. Any thread may read it."""
        return len(self._free) + len(self._returned)

    @property
    def slot_layout(self) -> SlotLayout:
        """The layout of the slots that `acquire` returns. Setting it frees the free slots that it does not fit."""
        return self._slot_layout

    @slot_layout.setter
    def slot_layout(self, slot_layout: SlotLayout) -> None:
        self._slot_layout = slot_layout
        free, self._free = self._free, []
        for slot in free:
            self._put(slot)
        self._collect()

    def acquire(self, usual_region_bytes: int) -> Slot:
        """Return a free slot of the current layout: the one used last, because it may be in the CPU's caches.

        Args:
            usual_region_bytes: usual memory of all regions of a batch together.

        Raises:
            OutOfMemoryError: there is no free slot, and no memory for a new one.
        """
        if self._returned:
            self._collect()
        self._trim()
        if not self._free:
            slot = Slot(self._space, self._slot_layout)
            self.num_slots += 1
            return slot
        slot = self._free.pop()
        if not self._slot_layout.all_dense and slot.committed_bytes > _EXCESS * usual_region_bytes + _EXCESS_BYTES:
            slot.discard_regions()
        return slot

    def hold(self, slot: Slot) -> Lease[Slot]:
        """Keep a slot from being reused, even after its release, while a hanging thread may write to it."""
        slot.holds += 1
        return Lease(self, slot)

    def release(self, slot: Slot) -> None:
        """Return a slot to the ring. Any thread may call it, but not a forked child."""
        observer = self._space.observer
        fence = None if observer is None else observer.fence()
        if self._closed:
            if fence is not None:
                fence.wait()
            if slot.holds:
                slot.holds -= 1
            else:
                slot.discard()
        else:
            self._returned.append((slot, fence))

    def close(self) -> None:
        """Free the memory of all slots, now or when their leases end."""
        self._closed = True
        self._collect(waits=True)
        for slot in self._free:
            slot.discard()
        self._free = []

    def drop_free(self) -> None:
        """Free the memory of all free slots. Waits for fences."""
        self._collect(waits=True)
        for slot in self._free:
            self._drop(slot)
        self._free = []

    def _trim(self) -> None:
        """Free as many slots as were free at every moment since the last check."""
        # One free slot is about to be acquired. If that were freed, a new slot without pages would replace it.
        self._least_free = min(self._least_free, max(len(self._free) - 1, 0))
        self._acquired += 1
        if self._acquired % _TRIM_EVERY == 0:
            for slot in self._free[: self._least_free]:
                self._drop(slot)
            del self._free[: self._least_free]
            self._least_free = len(self._free)

    def _collect(self, *, waits: bool = False) -> None:
        """Collect returned slots whose fences have passed. With `waits`, wait for the fences."""
        for _ in range(len(self._returned)):
            slot, fence = self._returned.popleft()
            if fence is not None and waits:
                fence.wait()
            elif fence is not None and not fence.passed():
                self._returned.append((slot, fence))
                continue
            if slot.holds:
                slot.holds -= 1
                continue
            self._put(slot)

    def _put(self, slot: Slot) -> None:
        """Keep a slot that is free now, or free its memory."""
        fits = slot.slot_layout is self._slot_layout or slot.change_layout(self._slot_layout)
        if fits and len(self._free) < _MOST_FREE:
            self._free.append(slot)
        else:
            self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        slot.free()
        self.num_slots -= 1


_Memory_contra = TypeVar("_Memory_contra", contravariant=True)


class Lessor(Protocol[_Memory_contra]):
    """The owner of leased memory, for example a `Ring` of its slots."""

    def release(self, memory: _Memory_contra, /) -> None:
        """Take memory back. Called by finalizers, in any thread and at any instruction: must not take a lock or raise."""


class Lease(Generic[_Memory_contra]):
    """Keeps memory from being reused while the lease is alive. Its finalizer calls `Lessor.release`, but not in a fork."""

    __slots__ = ("_lessor", "_memory", "_pid")

    def __init__(self, lessor: Lessor[_Memory_contra], memory: _Memory_contra) -> None:
        self._lessor = lessor
        self._memory = memory
        self._pid = os.getpid()

    def __del__(self, getpid: Any = os.getpid) -> None:
        if self._pid == getpid():
            self._lessor.release(self._memory)


class _Export:
    """Memory of a slot with NumPy's array interface. The array keeps this object, and this object keeps the lease."""

    __slots__ = ("__array_interface__", "_lease")

    def __init__(self, lease: Lease[Any] | None, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._lease = lease
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def leased_array(lease: Lease[Any] | None, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a writable array over memory of a slot. The array keeps the lease, if there is one."""
    return np.asarray(_Export(lease, address, shape, dtype))


class PackedSamples(NamedTuple):
    """Samples in one piece of memory.

    Attributes:
        elements: the memory, in one dimension. It has gaps between the samples.
        begins: for each sample, the index of its first element.
        shapes: of the samples: shape (samples, dimensions).
    """

    elements: NDArray[Any]
    begins: NDArray[np.int64]
    shapes: NDArray[np.int64]


class SampleList(Sequence[NDArray[Any]]):
    """The samples of one output that lie outside of rows. Each access makes an array from a descriptor.

    Args:
        lease: a lease of the slot, or another object that keeps the memory.
        address: address of the slot in this process.
        descriptors: shape (samples, DESCRIPTOR_WORDS). They are copied, because the worker may still write to the slot.
        is_ragged: whether the shapes differ, if that is known.
    """

    _is_ragged: bool | None = None

    def __init__(self, lease: Any, address: int, descriptors: NDArray[np.int64], is_ragged: bool | None = None) -> None:
        self._lease = lease
        self._address = address
        self._table = descriptors.copy()
        if is_ragged is not None:
            self._is_ragged = is_ragged

    @functools.cached_property
    def _words(self) -> list[list[int]]:
        words: list[list[int]] = self._table.tolist()
        return words

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        words = self._words[index]
        first, memory = self._memory
        return np.ndarray(self.shape(index), DTYPES[words[_DTYPE]], memory, words[_OFFSET] - first)

    def arrays(self) -> list[NDArray[Any]]:
        """Return all samples. Takes a third of the time that `list` does."""
        first, memory = self._memory
        dtype = self.dtype if self._words else np.dtype(np.uint8)
        return [
            np.ndarray(tuple(extents[:ndim]), dtype, memory, offset - first) for offset, _, _, ndim, *extents in self._words
        ]

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of one sample."""
        words = self._words[index]
        return tuple(words[_SHAPE : _SHAPE + words[_NDIM]])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of all samples."""
        return DTYPES[self._table.item(0, _DTYPE)]

    @property
    def ndim(self) -> int:
        """The number of dimensions of all samples; there is at least one sample."""
        return self._table.item(0, _NDIM)

    @property
    def nbytes(self) -> int:
        """The size of all samples together, in bytes."""
        return int(np.add.reduce(self._table[:, _NBYTES]))

    @property
    def elements(self) -> NDArray[Any]:
        """The memory around the samples (at least one), in one dimension. It has gaps between them."""
        return self._memory[1].view(self.dtype)

    @property
    def packed(self) -> PackedSamples:
        """The samples, of which there is at least one, as the memory around them."""
        begins = (self._table[:, _OFFSET] - self._memory[0]) // self.dtype.itemsize
        return PackedSamples(self.elements, begins, self._table[:, _SHAPE : _SHAPE + self.ndim])

    @property
    def descriptors(self) -> NDArray[np.int64]:
        """The descriptors of the samples. Do not change them."""
        return self._table

    @property
    def addresses(self) -> NDArray[np.int64]:
        """The address of each sample."""
        addresses: NDArray[np.int64] = self._table[:, _OFFSET] + self._address
        return addresses

    @property
    def shapes(self) -> NDArray[np.int64]:
        """The shapes of the samples: an array of shape (samples, dimensions). At least one sample exists."""
        return self._table[:, _SHAPE : _SHAPE + self.ndim]

    @property
    def is_ragged(self) -> bool:
        """Whether the shapes differ."""
        if self._is_ragged is None:
            shapes = self.shapes
            self._is_ragged = bool(np.logical_or.reduce(shapes[1:] != shapes[0], axis=None))
        return self._is_ragged

    @classmethod
    def within(cls, elements: NDArray[Any], address: int, descriptors: NDArray[np.int64]) -> SampleList:
        """Return samples that lie in one piece of memory.

        Args:
            elements: the memory, in one dimension, with the dtype of the samples.
            address: of the memory.
            descriptors: as for the constructor, with offsets in this memory. The result keeps them.
        """
        placed = cls.__new__(cls)
        placed._lease, placed._address, placed._table = elements, address, descriptors
        placed._memory = 0, elements.view(np.uint8)
        return placed

    def viewed(
        self, shapes: NDArray[np.int64], dtype: np.dtype[Any] | None = None, skipped: NDArray[np.int64] | int = 0
    ) -> SampleList:
        """Return samples of other shapes in the same memory.

        Args:
            shapes: shape (samples, dimensions).
            dtype: of the samples. Default: the same.
            skipped: bytes before each sample, from the beginning of the one here.
        """
        dtype = self.dtype if dtype is None else dtype
        table, ndim = np.zeros_like(self._table), shapes.shape[1]
        table[:, _OFFSET] = self._table[:, _OFFSET] + skipped
        table[:, _NBYTES] = np.multiply.reduce(shapes, axis=1) * dtype.itemsize
        table[:, _DTYPE] = DTYPE_CODES[dtype]
        table[:, _NDIM] = ndim
        table[:, _SHAPE : _SHAPE + ndim] = shapes
        made = SampleList.__new__(SampleList)
        made._lease, made._address, made._table = self._lease, self._address, table
        return made

    def placed_in(self, elements: NDArray[Any]) -> SampleList:
        """Return samples of the same shapes in other memory.

        Args:
            elements: as those of `packed`, perhaps of another dtype.
        """
        table, first, item_bytes = self._table.copy(), self._memory[0], self.dtype.itemsize
        if first:
            table[:, _OFFSET] -= first
        if elements.itemsize != item_bytes:
            sizes = table[:, : _NBYTES + 1]
            sizes *= elements.itemsize
            sizes //= item_bytes
        table[:, _DTYPE] = DTYPE_CODES[elements.dtype]
        return SampleList.within(elements, address_of(elements), table)

    def rows_in(self, rows: NDArray[Any]) -> SampleList:
        """Return samples whose vectors along the last axis lie in other memory, one behind the other.

        Args:
            rows: the vectors, or arrays in place of them, in all dimensions but the first. C-contiguous.
        """
        table, last = self._table.copy(), _SHAPE + self.ndim - 1
        row_bytes, tail = math.prod(rows.shape[1:]) * rows.itemsize, rows.shape[1:]
        table[:, _NBYTES] = np.multiply.reduce(table[:, _SHAPE:last], axis=1) * row_bytes
        table[:, _OFFSET] = np.add.accumulate(table[:, _NBYTES]) - table[:, _NBYTES]
        table[:, _DTYPE] = DTYPE_CODES[rows.dtype]
        table[:, _NDIM] = self.ndim - 1 + len(tail)
        table[:, last : last + len(tail)] = tail
        return SampleList.within(rows.reshape(-1), address_of(rows), table)

    def copy(self, memory: NDArray[np.uint8]) -> SampleList:
        """Copy the samples to the beginning of `memory`, one behind the other. The copies keep that, and not the slot."""
        first, given = self._memory
        source, target, table = given.data, memory.data, self._table.copy()
        ends = table[:, _NBYTES].cumsum()
        table[:, _OFFSET] = ends - table[:, _NBYTES]
        starts = self._table[:, _OFFSET] - first
        for start, begin, end in zip(starts.tolist(), table[:, _OFFSET].tolist(), ends.tolist(), strict=True):
            target[begin:end] = source[start : start + end - begin]
        return SampleList(memory, memory.__array_interface__["data"][0], table)

    @functools.cached_property
    def _memory(self) -> tuple[int, NDArray[np.uint8]]:
        """The memory around the samples, and the offset where it begins."""
        begins = self._table[:, _OFFSET]
        first = int(np.minimum.reduce(begins))
        end = int(np.maximum.reduce(begins + self._table[:, _NBYTES]))
        return first, leased_array(self._lease, self._address + first, (end - first,), np.dtype(np.uint8))
