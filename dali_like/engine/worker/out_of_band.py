"""Python objects from a worker, with their arrays where they lie: pickle protocol 5 with out-of-band buffers.

A pickled begins at the start of a task's region: a table of its parts, then the parts. The first is the pickle, the others
are the large buffers that it refers to. Such a buffer is copied once, by the worker; what the main process makes of the
pickled are views of the slot, under its lease. Small buffers are part of the pickle, so that who keeps a few labels does not
keep the images that came with them.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import WORD_BYTES
from dali_like.engine.memory.ring import Lease, Slot, leased_array
from dali_like.engine.worker.task import Region
from dali_like.errors import CorruptionError, SampleTypeError

#: How objects of some types are pickled: as in `copyreg.dispatch_table`.
Reducers = Mapping[type, Callable[[Any], Any]]

#: Buffers of fewer bytes are copied into the pickle, and out of it.
LEAST_BUFFER_BYTES = 1 << 16

_WORD = np.dtype(np.int64)


def write_out_of_band(value: Any, region: Region, reducers: Reducers) -> None:
    """Write an object into a region that nothing else is in.

    Raises:
        SampleTypeError: it cannot be pickled.
        RegionFullError, NoMemoryError: there is no room for it.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = _dumps(value, reducers, buffers)
    parts = [np.frombuffer(stream, np.uint8), *(np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)]
    table = region.array((1 + 2 * len(parts),), _WORD)
    table[0] = len(parts)
    for i, part in enumerate(parts):
        table[1 + 2 * i] = region.append(part) - region.start
        table[2 + 2 * i] = part.nbytes


def _dumps(value: Any, reducers: Reducers, buffers: list[pickle.PickleBuffer]) -> bytes:
    try:
        return _dumps_by(pickle.Pickler, value, reducers, put_large_aside(buffers))
    except Exception:  # whatever a user's class does; one that cannot be found by name can go by value
        del buffers[:]
    try:
        return _dumps_by(cloudpickle.Pickler, value, reducers, put_large_aside(buffers))
    except Exception as error:
        raise SampleTypeError(f"what a worker made cannot be pickled: {error}") from error


def put_large_aside(buffers: list[pickle.PickleBuffer]) -> Callable[[pickle.PickleBuffer], bool]:
    """A ``buffer_callback`` for pickling that collects the large buffers; the others become part of the pickle."""

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            is_large = buffer.raw().nbytes >= LEAST_BUFFER_BYTES
        except BufferError:  # not contiguous
            return True
        if is_large:
            buffers.append(buffer)
        return not is_large

    return keep


def _dumps_by(kind: Any, value: Any, reducers: Reducers, keep: Callable[[pickle.PickleBuffer], bool]) -> bytes:
    with io.BytesIO() as file:
        pickler = kind(file, protocol=5, buffer_callback=keep)
        known = getattr(pickler, "dispatch_table", copyreg.dispatch_table)
        pickler.dispatch_table = {**known, memoryview: _reduce_view, **reducers}
        pickler.dump(value)
        return file.getvalue()


def _reduce_view(view: memoryview) -> tuple[Any, ...]:
    """By way of an array, which has its shape and its type. pickle takes no views, and cloudpickle makes bytes of them."""
    return memoryview, (np.asarray(view),)


class OutOfBandPickle:
    """A pickled in a slot.

    Args:
        slot: of the batch.
        task: whose region it is in.
    """

    def __init__(self, slot: Slot, task: int) -> None:
        self._address = slot.space.address + slot.offset + slot.slot_layout.region_offset(task)
        self._parts = _read_table(slot, task)

    def load(self, lease: Lease[Any] | None = None) -> Any:
        """The object. Its large arrays are views of the slot, which the lease keeps; without one, they are copies.

        Raises:
            Exception: whatever a user's class does when it is unpickled.
        """
        stream, *buffers = [self._part(lease, *part) for part in self._parts]
        return pickle.loads(stream.data, buffers=buffers if lease is not None else [buffer.copy() for buffer in buffers])

    def _part(self, lease: Lease[Any] | None, offset: int, nbytes: int) -> NDArray[np.uint8]:
        return leased_array(lease, self._address + offset, (nbytes,), np.dtype(np.uint8))


def _read_table(slot: Slot, task: int) -> list[tuple[int, int]]:
    """Where the parts of a pickled are.

    Raises:
        CorruptionError: this is not what a worker writes.
    """
    start = slot.offset + slot.slot_layout.region_offset(task)
    room = int(slot.marks[task])
    count = int(slot.space.array(start, (1,), _WORD)[0]) if WORD_BYTES <= room <= slot.slot_layout.region_bytes else 0
    if 0 < count <= (room - WORD_BYTES) // (2 * WORD_BYTES):
        table = slot.space.array(start + WORD_BYTES, (count, 2), _WORD).tolist()
        if all(0 <= offset <= room and 0 <= nbytes <= room - offset for offset, nbytes in table):
            return [(offset, nbytes) for offset, nbytes in table]
    raise CorruptionError(
        "what a worker has left is not what workers leave; a callback has written into memory that is not its own"
    )
