"""Memory for the results of operators: taken when a batch is computed, used again when nobody holds it any more."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.operators import SampleShape
from dali_like.workers.memory import SharedSpace
from dali_like.workers.protocol import SAMPLE_ALIGNMENT, align
from dali_like.workers.ring import Lease, leased_array

#: Buffers of a size class that has not been asked for in so many requests are given back.
_IDLE_REQUESTS = 64


class _Buffer(NamedTuple):
    offset: int
    nbytes: int


class BufferPool:
    """Buffers in a shared space, kept for reuse: warm memory is written several times faster than fresh.

    Thread-safe, except for `close`.
    """

    def __init__(self, space: SharedSpace) -> None:
        self._space = space
        self._free: defaultdict[int, deque[tuple[_Buffer, int]]] = defaultdict(deque)
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

    def release(self, buffer: _Buffer) -> None:
        """Give a buffer back; called by its lease, in any thread."""
        if self._closed:
            self._space.discard(*buffer)
        else:
            self._free[buffer.nbytes].append((buffer, self._requests))

    def drop_free(self) -> None:
        """Give back the memory that nobody uses."""
        self._trim(-1)

    def make_room(self) -> None:
        """Give back what nobody uses of the whole space; in the main thread only."""
        self._space.drop_free()

    def close(self) -> None:
        """Give back all memory, now or when its leases end."""
        self._closed = True
        self._trim(-1)

    def _take(self, nbytes: int) -> _Buffer:
        self._requests += 1
        # An eighth at most is wasted, and of address space rather than of memory.
        granule = max(1 << max(nbytes.bit_length() - 4, 0), os.sysconf("SC_PAGESIZE"))
        nbytes = align(nbytes, granule)
        try:
            return self._free[nbytes].pop()[0]
        except IndexError:
            self._trim(self._requests - _IDLE_REQUESTS)
        offset = self._space.allocate(nbytes)
        try:
            self._space.commit(offset, nbytes)
        except BaseException:
            self._space.free(offset, nbytes)
            raise
        return _Buffer(offset, nbytes)

    def _trim(self, last_request: int) -> None:
        """Free the buffers that were given back at `last_request` or before; -1: all."""
        for free in list(self._free.values()):
            while free and (last_request < 0 or free[0][1] <= last_request):
                try:
                    self._space.free(*free.popleft()[0])
                except IndexError:  # another thread took it
                    break
