"""Memory for the results of operators: in the shared space of the main process, or of one process alone.

A batch takes its memory when operators compute it. The memory is reused when no array over it is alive.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.idle_buffers import take_idle
from dali_like.engine.memory.protocol import SAMPLE_ALIGNMENT, align
from dali_like.engine.memory.ring import Lease, SampleList, leased_array
from dali_like.engine.memory.schema_learner import SchemaLearner
from dali_like.engine.memory.space import Fence, Keeper
from dali_like.errors import DtypeMismatchError, NdimMismatchError
from dali_like.graph.language.operator_interface import Array, SampleShape

#: Buffers of a size class without use for this many requests are freed.
_IDLE_REQUESTS = 64


class _StackBuffer(NamedTuple):
    offset: int
    nbytes: int


class _FreeBuffer(NamedTuple):
    """A buffer without a lease.

    Attributes:
        request: number of the last request before its release.
        fence: passes when copies from the buffer have ended; None without copies.
    """

    buffer: _StackBuffer
    request: int
    fence: Fence | None


class Space(Protocol):
    """Where buffers lie; see `dali_like.engine.memory.space.SharedSpace`."""

    @property
    def address(self) -> int: ...

    def take(self, nbytes: int, committed: int) -> int: ...

    def free(self, offset: int, nbytes: int) -> None: ...

    def discard(self, offset: int, nbytes: int) -> Any: ...

    def fence(self) -> Fence | None: ...

    def register(self, keeper: Keeper) -> None: ...

    def drop_free(self) -> None: ...

    def reclaim(self) -> None: ...


class PrivateSpace:
    """Memory that no other process needs. Its offsets are addresses."""

    address = 0

    def __init__(self) -> None:
        self._blocks: dict[int, Array] = {}
        self._keepers: list[Keeper] = []

    def take(self, nbytes: int, committed: int) -> int:
        block = np.empty(nbytes + SAMPLE_ALIGNMENT, np.uint8)
        address = align(block.__array_interface__["data"][0], SAMPLE_ALIGNMENT)
        self._blocks[address] = block
        return address

    def free(self, offset: int, nbytes: int) -> None:
        del self._blocks[offset]

    discard = free

    def fence(self) -> None:
        """Return None: no GPU reads the memory."""

    def register(self, keeper: Keeper) -> None:
        self._keepers.append(keeper)

    def drop_free(self) -> None:
        for keeper in self._keepers:
            keeper.drop_free()

    reclaim = drop_free


class BufferPool:
    """Reusable buffers in a space. Warm memory is written several times faster than fresh memory.

    Thread-safe, except for `close`.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._free: defaultdict[int, deque[_FreeBuffer]] = defaultdict(deque)
        self._requests = 0
        self._closed = False
        space.register(self)

    def arrays(self, shapes: Sequence[SampleShape]) -> NDArray[Any] | list[NDArray[Any]]:
        """Return uninitialized arrays for the samples of a batch: one array if all shapes are equal, otherwise a list.

        Raises:
            OutOfMemoryError: memory is short.
        """
        if all(shape == shapes[0] for shape in shapes):
            return self.rows(shapes[0], len(shapes))
        steps = [align(math.prod(shape) * dtype.itemsize, SAMPLE_ALIGNMENT) for shape, dtype in shapes]
        buffer = self._take(max(sum(steps), 1))
        lease = Lease(self, buffer)
        address = self._space.address + buffer.offset
        arrays = []
        for (shape, dtype), step in zip(shapes, steps, strict=True):
            arrays.append(leased_array(lease, address, shape, dtype))
            address += step
        return arrays

    def rows(self, sample: SampleShape, count: int) -> NDArray[Any]:
        """Return an uninitialized array of `count` samples with the same shape.

        Raises:
            OutOfMemoryError: memory is short.
        """
        shape, dtype = (count, *sample.shape), sample.dtype
        buffer = self._take(max(math.prod(shape) * dtype.itemsize, 1))
        return leased_array(Lease(self, buffer), self._space.address + buffer.offset, shape, dtype)

    def elements(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an uninitialized array of one dimension.

        Raises:
            OutOfMemoryError: memory is short.
        """
        buffer = self._take(max(count * dtype.itemsize, 1))
        return leased_array(Lease(self, buffer), self._space.address + buffer.offset, (count,), dtype)

    def bytes(self, nbytes: int) -> NDArray[np.uint8]:
        """Return an uninitialized array of `nbytes` bytes.

        Raises:
            OutOfMemoryError: memory is short.
        """
        return self.elements(nbytes, np.dtype(np.uint8))

    def packed_buffer(self, nbytes: int) -> PackedBuffer:
        """Return a buffer to fill with arrays one by one.

        Raises:
            OutOfMemoryError: memory is short.
        """
        buffer = self._take(max(nbytes, 1))
        return PackedBuffer(Lease(self, buffer), self._space.address + buffer.offset, buffer.nbytes)

    def release(self, buffer: _StackBuffer) -> None:
        """Take a buffer back. Its lease calls this, in any thread."""
        fence = self._space.fence()
        if self._closed:
            if fence is not None:
                fence.wait()
            self._space.discard(*buffer)
        else:
            self._free[buffer.nbytes].append(_FreeBuffer(buffer, self._requests, fence))

    def drop_free(self) -> None:
        """Free all unused buffers."""
        self._trim(self._requests)

    def free_unused(self, *, collect_garbage: bool) -> None:
        """Free unused memory of the whole space; with `collect_garbage`, run the collector first. Main thread only."""
        if collect_garbage:
            self._space.reclaim()
        else:
            self._space.drop_free()

    def close(self) -> None:
        """Free all memory, now or when its leases end."""
        self._closed = True
        self.drop_free()

    def _take(self, nbytes: int) -> _StackBuffer:
        self._requests += 1
        # Rounding up wastes at most an eighth, and mostly address space, not memory.
        granule = max(1 << max(nbytes.bit_length() - 4, 0), mmap.PAGESIZE)
        nbytes = align(nbytes, granule)
        buffer = self._take_free(self._free[nbytes])
        if buffer is not None:
            return buffer
        self._trim(self._requests - _IDLE_REQUESTS)
        return _StackBuffer(self._space.take(nbytes, nbytes), nbytes)

    def _take_free(self, free: deque[_FreeBuffer]) -> _StackBuffer | None:
        """Return the buffer released last among those whose fences have passed."""
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
        """Free the buffers released at `last_request` or before."""
        for idle in take_idle(self._free, last_request):
            if idle.fence is not None:
                idle.fence.wait()
            self._space.free(*idle.buffer)


class PackedBuffer:
    """A buffer that is filled with arrays, one after another."""

    def __init__(self, lease: Lease[_StackBuffer], address: int, nbytes: int) -> None:
        self._memory = leased_array(lease, address, (nbytes,), np.dtype(np.uint8))
        self._nbytes = nbytes
        self._used = 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return uninitialized memory; None if the buffer is full."""
        begin = self._used
        end = begin + align(math.prod(shape) * dtype.itemsize, SAMPLE_ALIGNMENT)
        if end > self._nbytes:
            return None
        self._used = end
        return np.ndarray(shape, dtype, self._memory, begin)


class PreviousSamples:
    """The samples of an output in the batches so far.

    Attributes:
        learner: of their shape and dtype. It follows each batch: buffers are reused, so a change costs little.
        mean_bytes: mean size of a sample in the last batch whose samples differed; 0 without such a batch.
    """

    def __init__(self) -> None:
        self.learner = SchemaLearner[SampleShape]()
        self.mean_bytes = 0


class BatchMemory:
    """Memory for one output of one batch, which threads fill in any order, or views of the inputs.

    All samples are expected to have the shape seen in the previous batch, or in the first batch that of the first
    sample. The batch is then one array from the start. Other samples go to packed buffers.

    Args:
        buffers: source of the memory.
        size: number of samples.
        previous: of the output; `finish` updates it.
        views: whether results lie in the memory of inputs, and stay there.
    """

    def __init__(self, buffers: BufferPool, size: int, previous: PreviousSamples, *, views: bool = False) -> None:
        self._buffers = buffers
        self._previous = previous
        self._views = views
        self._lock = threading.Lock()
        self._rows: Array | None = None
        if (expected := previous.learner.expected) is not None and not views:
            self._rows = self._buffers.rows(expected, size)
        self._expected_rows = self._rows
        self._packed: PackedBuffer | None = None
        self._places: list[Array | None] = [None] * size
        self._samples: list[Any] = [None] * size
        self._num_in_stacks = 0
        self._list: SampleList | None = None

    def empty(self, i: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return uninitialized memory for sample `i`.

        Raises:
            OutOfMemoryError: memory is short.
        """
        with self._lock:
            if self._rows is None and not self._previous.mean_bytes:
                self._rows = self._buffers.rows(SampleShape(shape, dtype), len(self._samples))
            rows = self._rows
            if rows is not None and shape == rows.shape[1:] and dtype == rows.dtype:
                place = rows[i, ...]
            else:
                place = self._take_packed(shape, dtype)
            self._places[i] = place
        return place

    def rows_of(self, begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return uninitialized memory for a stack of samples, from sample `begin` on; None if it belongs elsewhere.

        Raises:
            OutOfMemoryError: memory is short.
        """
        rows = self._rows
        if rows is None:
            with self._lock:
                if self._rows is None and not self._previous.mean_bytes:
                    self._rows = self._buffers.rows(SampleShape(shape[1:], dtype), len(self._samples))
                rows = self._rows
        if rows is None or rows.shape[1:] != shape[1:] or rows.dtype != dtype:
            return None
        return rows if shape[0] == len(rows) else rows[begin : begin + shape[0]]

    def put_all(self, begin: int, samples: Array) -> None:
        """Store a stack of samples, from sample `begin` on, copying it unless it lies in its place already.

        Raises:
            OutOfMemoryError: memory is short.
        """
        count, size = len(samples), len(self._samples)
        if count == size and (self._views or samples is self._rows):
            self._rows, self._num_in_stacks = samples, size
            return
        rows = self.rows_of(begin, samples.shape, samples.dtype)
        if rows is None:
            for i in range(count):
                self.put(begin + i, samples[i, ...])
            return
        rows[...] = samples  # NumPy skips the copy if both are the same memory
        if count < size:
            self._samples[begin : begin + count] = [rows[i, ...] for i in range(count)]
        with self._lock:
            self._num_in_stacks += count

    def elements(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return uninitialized memory for the elements of all samples, in one dimension.

        Raises:
            OutOfMemoryError: memory is short.
        """
        return self._buffers.elements(count, dtype)

    def put_list(self, samples: SampleList) -> None:
        """Store all samples, which lie in the memory of `elements`."""
        self._list = samples

    def put(self, i: int, sample: Array) -> None:
        """Store sample `i`, copying it unless it lies in its place already.

        Raises:
            OutOfMemoryError: memory is short.
        """
        if self._views:
            self._samples[i] = sample
            return
        place = self._places[i]
        if place is None or place.shape != sample.shape or place.dtype != sample.dtype:
            place = self.empty(i, sample.shape, sample.dtype)
        if place is not sample:
            place[...] = sample  # NumPy skips the copy if both are the same memory
        self._samples[i] = place

    def finish(self, name: str) -> NDArray[Any] | list[Array] | SampleList:
        """Return the batch: one array if all samples have one shape, otherwise a list.

        It is a list, too, if samples are None, because they have not been stored.

        Args:
            name: of the operator, for messages.

        Raises:
            DtypeMismatchError, NdimMismatchError: the samples have several dtypes or numbers of dimensions.
        """
        samples, previous, rows = self._samples, self._previous, self._rows
        if self._list is not None:
            previous.learner.note(None)
            previous.mean_bytes = max(-(-self._list.nbytes // len(samples)), 1)
            return self._list
        if rows is not None and self._num_in_stacks == len(samples):
            self._note_shape(rows)
            return rows
        stored = [(i, sample) for i, sample in enumerate(samples) if sample is not None]
        if not stored:
            return samples
        at, first = stored[0]
        for i, sample in stored:
            if sample.dtype != first.dtype:
                raise DtypeMismatchError(f"{name} returned {first.dtype} for sample {at}, and {sample.dtype} for sample {i}")
            if sample.ndim != first.ndim:
                raise NdimMismatchError(
                    f"{name} returned {first.ndim} dimensions for sample {at}, and {sample.ndim} for sample {i}"
                )
        if len(stored) < len(samples) or any(sample.shape != first.shape for sample in samples):
            previous.learner.note(None)
            sizes = [align(sample.nbytes, SAMPLE_ALIGNMENT) for _, sample in stored]
            previous.mean_bytes = max(-(-sum(sizes) // len(sizes)), 1)
            return samples
        if rows is None or rows.shape[1:] != first.shape or rows.dtype != first.dtype:
            rows = self._buffers.rows(SampleShape(first.shape, first.dtype), len(samples))
            for i, sample in enumerate(samples):
                rows[i] = sample
        self._note_shape(rows)
        return rows

    def _note_shape(self, rows: Array) -> None:
        """Take note that all samples have one shape. Most batches are in the expected rows: that changes nothing."""
        learner = self._previous.learner
        if rows is not self._expected_rows or learner.expected is None:
            learner.note(SampleShape(rows.shape[1:], rows.dtype))

    def _take_packed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if self._packed is not None and (array := self._packed.array(shape, dtype)) is not None:
            return array
        nbytes = align(math.prod(shape) * dtype.itemsize, SAMPLE_ALIGNMENT)
        self._packed = self._buffers.packed_buffer(max(self._previous.mean_bytes * len(self._samples), nbytes))
        array = self._packed.array(shape, dtype)
        assert array is not None
        return array
