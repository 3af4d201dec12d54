"""Memory for the results of operators: taken when a batch is computed, used again when nobody holds it any more."""

from __future__ import annotations

import math
import os
import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import SAMPLE_ALIGNMENT, align
from dali_like.engine.memory.ring import Lease, leased_array
from dali_like.engine.memory.space import Fence, SharedSpace
from dali_like.errors import DtypeMismatchError, NdimMismatchError
from dali_like.graph.operator_interface import Array, SampleShape

#: Buffers of a size class that has not been asked for in so many requests are given back.
_IDLE_REQUESTS = 64


class _Buffer(NamedTuple):
    offset: int
    nbytes: int


class _Free(NamedTuple):
    """A buffer that nobody holds.

    Attributes:
        request: the number of the last request before it was given back.
        fence: what must have passed before it is used again.
    """

    buffer: _Buffer
    request: int
    fence: Fence | None


class BufferPool:
    """Buffers in a shared space, kept for reuse: warm memory is written several times faster than fresh.

    Thread-safe, except for `close`.
    """

    def __init__(self, space: SharedSpace) -> None:
        self._space = space
        self._free: defaultdict[int, deque[_Free]] = defaultdict(deque)
        self._requests = 0
        self._closed = False
        space.register(self)

    def arrays(self, shapes: Sequence[SampleShape]) -> NDArray[Any] | list[NDArray[Any]]:
        """Uninitialised arrays for the samples of a batch: one array if they are alike, else one each.

        Raises:
            OutOfMemoryError: there is no memory for them.
        """
        first = shapes[0]
        alike = all(shape == first for shape in shapes)
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in shapes]
        steps = sizes if alike else [align(size, SAMPLE_ALIGNMENT) for size in sizes]
        buffer = self._take(max(sum(steps), 1))
        lease = Lease(self, buffer)
        address = self._space.address + buffer.offset
        if alike:
            return leased_array(lease, address, (len(shapes), *first.shape), first.dtype)
        arrays = []
        for (shape, dtype), step in zip(shapes, steps, strict=True):
            arrays.append(leased_array(lease, address, shape, dtype))
            address += step
        return arrays

    def bytes(self, nbytes: int) -> NDArray[np.uint8]:
        """An uninitialised array of so many bytes.

        Raises:
            OutOfMemoryError: there is no memory for it.
        """
        return self.arrays([SampleShape((nbytes,), np.dtype(np.uint8))])[0]

    def room(self, nbytes: int) -> Room:
        """A buffer to be filled with arrays one by one.

        Raises:
            OutOfMemoryError: there is no memory for it.
        """
        buffer = self._take(max(nbytes, 1))
        return Room(Lease(self, buffer), self._space.address + buffer.offset, buffer.nbytes)

    def release(self, buffer: _Buffer) -> None:
        """Give a buffer back; called by its lease, in any thread."""
        fence = self._space.fence()
        if self._closed:
            if fence is not None:
                fence.wait()
            self._space.discard(*buffer)
        else:
            self._free[buffer.nbytes].append(_Free(buffer, self._requests, fence))

    def drop_free(self) -> None:
        """Give back the memory that nobody uses."""
        self._trim(self._requests)

    def make_room(self, *, of_garbage: bool) -> None:
        """Give back what nobody uses of the whole space, or what only garbage does, too; in the main thread only."""
        if of_garbage:
            self._space.reclaim()
        else:
            self._space.drop_free()

    def close(self) -> None:
        """Give back all memory, now or when its leases end."""
        self._closed = True
        self.drop_free()

    def _take(self, nbytes: int) -> _Buffer:
        self._requests += 1
        # An eighth at most is wasted, and of address space rather than of memory.
        granule = max(1 << max(nbytes.bit_length() - 4, 0), os.sysconf("SC_PAGESIZE"))
        nbytes = align(nbytes, granule)
        buffer = self._take_free(self._free[nbytes])
        if buffer is not None:
            return buffer
        self._trim(self._requests - _IDLE_REQUESTS)
        return _Buffer(self._space.take(nbytes, nbytes), nbytes)

    def _take_free(self, free: deque[_Free]) -> _Buffer | None:
        """The one given back last of those whose fences have passed."""
        for _ in range(len(free)):
            try:
                candidate = free.pop()
            except IndexError:  # another thread took it
                return None
            if candidate.fence is None or candidate.fence.passed():
                return candidate.buffer
            free.appendleft(candidate)
        return None

    def _trim(self, last_request: int) -> None:
        """Free the buffers that were given back at `last_request` or before."""
        for free in list(self._free.values()):
            while free and free[0].request <= last_request:
                try:
                    idle = free.popleft()
                except IndexError:  # another thread took it
                    break
                if idle.fence is not None:
                    idle.fence.wait()
                self._space.free(*idle.buffer)


class Room:
    """A buffer that is filled with arrays, one behind the other."""

    def __init__(self, lease: Lease[_Buffer], address: int, nbytes: int) -> None:
        self._lease = lease
        self._address = address
        self._nbytes = nbytes
        self._used = 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Uninitialised memory; None if there is no more."""
        begin = self._used
        end = begin + align(math.prod(shape) * dtype.itemsize, SAMPLE_ALIGNMENT)
        if end > self._nbytes:
            return None
        self._used = end
        return leased_array(self._lease, self._address + begin, shape, dtype)


@dataclass
class Habits:
    """What the samples of an output have been like in the last batch.

    Attributes:
        common: what all of them were; None: several things, or there has been no batch.
        mean_bytes: how much room one took, if they were several things; 0: there has been no such batch.
    """

    common: SampleShape | None = None
    mean_bytes: int = 0


class BatchMemory:
    """Where the samples of one output of a batch are put, which threads make in whatever order.

    What all samples were in the batch before, or the first one is in the first batch, all are expected to be: then the batch
    is one array from the start. Samples that are something else lie one behind the other.

    Args:
        buffers: where the memory comes from.
        size: how many samples there are.
        habits: of the output; they are brought up to date in the end.
    """

    def __init__(self, buffers: BufferPool, size: int, habits: Habits) -> None:
        self._buffers = buffers
        self._habits = habits
        self._lock = threading.Lock()
        self._rows: Array | None = None if habits.common is None else self._make_rows(habits.common, size)
        self._room: Room | None = None
        self._places: list[Array | None] = [None] * size
        self._samples: list[Any] = [None] * size

    def empty(self, i: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Uninitialised memory for sample `i`.

        Raises:
            OutOfMemoryError: there is none.
        """
        with self._lock:
            if self._rows is None and not self._habits.mean_bytes:
                self._rows = self._make_rows(SampleShape(shape, dtype), len(self._samples))
            rows = self._rows
            if rows is not None and shape == rows.shape[1:] and dtype == rows.dtype:
                place = rows[i, ...]
            else:
                place = self._make_room(shape, dtype)
            self._places[i] = place
        return place

    def put(self, i: int, sample: Array) -> None:
        """Take sample `i`, which is copied unless it lies in its place already.

        Raises:
            OutOfMemoryError: there is no memory for it.
        """
        place = self._places[i]
        if place is None or place.shape != sample.shape or place.dtype != sample.dtype:
            place = self.empty(i, sample.shape, sample.dtype)
        if place is not sample:
            place[...] = sample  # costs nothing where both are the same memory
        self._samples[i] = place

    def finish(self, name: str) -> NDArray[Any] | list[Array]:
        """The batch: one array if the samples are alike, else one each.

        Args:
            name: how messages call what made the samples.

        Raises:
            DtypeMismatchError, NdimMismatchError: the samples have several dtypes or numbers of dimensions.
        """
        samples, habits, rows = self._samples, self._habits, self._rows
        first = samples[0]
        for i, sample in enumerate(samples):
            if sample.dtype != first.dtype:
                raise DtypeMismatchError(f"{name} made {first.dtype} of sample 0, and {sample.dtype} of sample {i}")
            if sample.ndim != first.ndim:
                raise NdimMismatchError(f"{name} made {first.ndim} dimensions of sample 0, and {sample.ndim} of sample {i}")
        if any(sample.shape != first.shape for sample in samples):
            habits.common = None
            sizes = [align(sample.nbytes, SAMPLE_ALIGNMENT) for sample in samples]
            habits.mean_bytes = max(-(-sum(sizes) // len(sizes)), 1)
            return samples
        habits.common = SampleShape(first.shape, first.dtype)
        if rows is None or rows.shape[1:] != first.shape or rows.dtype != first.dtype:
            rows = self._make_rows(habits.common, len(samples))
            for row, sample in zip(rows, samples, strict=True):
                row[...] = sample
        return rows

    def _make_rows(self, shape: SampleShape, size: int) -> Array:
        rows = self._buffers.arrays([shape] * size)
        assert isinstance(rows, np.ndarray)
        return rows

    def _make_room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if self._room is not None and (array := self._room.array(shape, dtype)) is not None:
            return array
        nbytes = align(math.prod(shape) * dtype.itemsize, SAMPLE_ALIGNMENT)
        self._room = self._buffers.room(max(self._habits.mean_bytes * len(self._samples), nbytes))
        array = self._room.array(shape, dtype)
        assert array is not None
        return array
