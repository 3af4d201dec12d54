"""The slots that batches travel in, and the leases that keep them.

Slots live in the shared space of the main process, which alone makes, reuses and frees them. A slot is handed to the user
under a `Lease`: while any array that was made of it is alive, so is the lease, and the slot is not used again. The
finalizer of a lease may run in any thread and at any instruction, so it only appends to a deque; the slot returns to the
ring when the main thread next asks for one. In a forked child it does nothing: the slot is the parent's.

A lease keeps the shared space. Closing a pipeline therefore never invalidates a batch that somebody holds.

What a GPU may still read when its lease ends lies under a fence, too: see `dali_like.engine.memory.space.Observer`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import DESCRIPTOR_WORDS, DTYPES, PAGE_BYTES, Word
from dali_like.engine.memory.slot_layout import SlotLayout
from dali_like.engine.memory.space import Fence, SharedSpace

#: Pages of regions that one unusually large batch has touched are given back when the slot is reused and they are more than
#: this many times what batches normally need, and so many bytes. Giving back and touching again costs about ten copies.
_EXCESS = 4
_EXCESS_BYTES = 1 << 24
#: So many slots are acquired between two looks at how many are too many.
_TRIM_EVERY = 32
#: More free slots than this are given back at once: somebody has held many batches, and does no longer.
_MOST_FREE = 16


class Slot:
    """An extent of the shared space that holds one batch of one source.

    Attributes:
        offset: where it begins in the space.
        header: its words, see `dali_like.engine.memory.protocol.Header`, and a descriptor for each output.
        marks: for each task, how many bytes of its region have memory behind them.
        counts: for each task, how many samples it has turned out to have.
        descriptors: shape (capacity, outputs, DESCRIPTOR_WORDS): where samples lie that are not all in rows.
        holds: how many besides the first must give it back before it is used again.
    """

    __slots__ = ("counts", "descriptors", "header", "holds", "marks", "offset", "slot_layout", "space")

    def __init__(self, space: SharedSpace, slot_layout: SlotLayout) -> None:
        self.space = space
        self.slot_layout = slot_layout
        self.holds = 0
        self.offset = space.take(slot_layout.slot_bytes, slot_layout.resident_bytes)
        word = np.dtype(np.int64)
        num_outputs = len(slot_layout.outputs)
        self.header: NDArray[np.int64] = space.array(self.offset, slot_layout.header.shape, word)
        self.header[:] = slot_layout.header
        tasks = (slot_layout.num_tasks(slot_layout.capacity),)
        self.marks: NDArray[np.int64] = space.array(self.offset + slot_layout.marks_offset, tasks, word)
        self.counts: NDArray[np.int64] = space.array(self.offset + slot_layout.counts_offset, tasks, word)
        self.descriptors: NDArray[np.int64] = space.array(
            self.offset + slot_layout.descriptors_offset, (slot_layout.capacity, num_outputs, DESCRIPTOR_WORDS), word
        )

    @property
    def page(self) -> int:
        """The page that the slot begins on."""
        return self.offset // PAGE_BYTES

    @property
    def committed_bytes(self) -> int:
        """How much memory is behind the regions."""
        return int(self.marks.clip(0, self.slot_layout.region_bytes).sum())

    def discard_regions(self) -> None:
        """Give back the pages behind the regions."""
        self.marks[:] = 0
        self.space.discard(
            self.offset + self.slot_layout.resident_bytes, self.slot_layout.slot_bytes - self.slot_layout.resident_bytes
        )

    def discard(self) -> None:
        """Give all pages back, but not the address space: takes no lock, and so may be called by a finalizer."""
        self.space.discard(self.offset, self.slot_layout.slot_bytes)

    def free(self) -> None:
        """Give back everything."""
        self.space.free(self.offset, self.slot_layout.slot_bytes)


class Ring:
    """The slots of one source.

    Attributes:
        num_slots: how many there are, free and in use.
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
        """How many slots nobody uses. Any thread may ask."""
        return len(self._free) + len(self._returned)

    @property
    def slot_layout(self) -> SlotLayout:
        """The slot_layout of the slots that `acquire` gives."""
        return self._slot_layout

    @slot_layout.setter
    def slot_layout(self, slot_layout: SlotLayout) -> None:
        self._slot_layout = slot_layout
        self._collect()
        self._drop_free()

    def acquire(self, usual_region_bytes: int) -> Slot:
        """A slot that nobody uses, of the current slot_layout; the one used last if there are several, as it is warm.

        Args:
            usual_region_bytes: what batches normally use of all regions together.

        Raises:
            OutOfMemoryError: a new slot was needed, and there is no memory for it.
        """
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
        """Keep a slot that somebody may still be writing to from being used again, even when it has been given back."""
        slot.holds += 1
        return Lease(self, slot)

    def release(self, slot: Slot) -> None:
        """Give a slot back. May be called from any thread; in a forked child it must not be."""
        fence = self._space.fence()
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
        """Give the memory of all slots back, now or when their leases end."""
        self._closed = True
        self._collect(waits=True)
        for slot in self._free:
            slot.discard()
        self._free = []

    def drop_free(self) -> None:
        """Give back the memory of the slots that nobody uses, or that only their fences keep."""
        self._collect(waits=True)
        self._drop_free()

    def _drop_free(self) -> None:
        for slot in self._free:
            self._drop(slot)
        self._free = []

    def _trim(self) -> None:
        """Give back the slots that have not been needed for a while: so many as were free at every moment of it."""
        # One of them is about to be taken. Dropping that one would make a new slot for it, whose pages are not there yet.
        self._least_free = min(self._least_free, max(len(self._free) - 1, 0))
        self._acquired += 1
        if self._acquired % _TRIM_EVERY == 0:
            for slot in self._free[: self._least_free]:
                self._drop(slot)
            del self._free[: self._least_free]
            self._least_free = len(self._free)

    def _collect(self, *, waits: bool = False) -> None:
        """Take in the slots that have been given back and whose fences have passed; or wait for these."""
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
            if slot.slot_layout is not self._slot_layout or len(self._free) >= _MOST_FREE:
                self._drop(slot)
            else:
                self._free.append(slot)

    def _drop(self, slot: Slot) -> None:
        slot.free()
        self.num_slots -= 1


_Memory_contra = TypeVar("_Memory_contra", contravariant=True)


class Lessor(Protocol[_Memory_contra]):
    """Whose memory is leased: a `Ring` its slots, say."""

    def release(self, memory: _Memory_contra, /) -> None:
        """Take memory back. Called by finalizers: in any thread, at any instruction, so no lock may be taken."""


class Lease(Generic[_Memory_contra]):
    """Keeps memory from being used again for as long as the lease lives."""

    __slots__ = ("_lessor", "_memory", "_pid")

    def __init__(self, lessor: Lessor[_Memory_contra], memory: _Memory_contra) -> None:
        self._lessor = lessor
        self._memory = memory
        self._pid = os.getpid()

    def __del__(self, getpid: Any = os.getpid) -> None:
        if self._pid == getpid():
            self._lessor.release(self._memory)


class _Export:
    """Memory of a slot in the form that NumPy makes arrays of; the array keeps this object, and this the lease."""

    __slots__ = ("__array_interface__", "_lease")

    def __init__(self, lease: Lease[Any] | None, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._lease = lease
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def leased_array(lease: Lease[Any] | None, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A writable array over memory of a slot that keeps the slot leased, if a lease is given."""
    return np.asarray(_Export(lease, address, shape, dtype))


class SampleList(Sequence[NDArray[Any]]):
    """The samples of one output that do not lie in rows: arrays made of their descriptors when they are asked for.

    Args:
        lease: of the slot.
        address: where the slot begins.
        descriptors: shape (samples, DESCRIPTOR_WORDS); a copy, since those in the slot stay the worker's.
    """

    def __init__(self, lease: Lease[Any], address: int, descriptors: NDArray[np.int64]) -> None:
        self._lease = lease
        self._address = address
        self._words: list[list[int]] = descriptors.tolist()

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        words = self._words[index]
        return leased_array(self._lease, self._address + words[Word.OFFSET], self.shape(index), DTYPES[words[Word.DTYPE]])

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of one sample."""
        words = self._words[index]
        return tuple(words[Word.SHAPE : Word.SHAPE + words[Word.NDIM]])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that all samples have."""
        return DTYPES[self._words[0][Word.DTYPE]]
