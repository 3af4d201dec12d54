"""Pickled objects in a slot, with their large arrays beside the pickle (protocol 5).

Workers write them, and the main process loads them. All objects travel this way: Python objects in the outputs of pipelines,
and the messages of request sources.

A *block* holds one object, in contiguous memory. It begins with a table: the number of parts, then the offset and the size
of each part, relative to the block. The first part is the pickle; the others are the large buffers that the pickle refers
to. The worker copies each buffer once. Loaded arrays are views of the block, which lies in a slot and is kept by the slot's
lease. Small buffers are part of the pickle, so that keeping a label does not keep the images of its batch.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import SAMPLE_ALIGNMENT, WORD_BYTES, align
from dali_like.engine.memory.ring import Lease, Slot, leased_array
from dali_like.errors import CorruptionError, SampleTypeError

if TYPE_CHECKING:
    from dali_like.engine.worker.task import Region

#: How to pickle objects of some types, as in `copyreg.dispatch_table`.
Reducers = Mapping[type, Callable[[Any], Any]]

#: Returns whether a buffer becomes part of the pickle.
_Keep = Callable[[pickle.PickleBuffer], bool]

#: Smaller buffers are copied into the pickle, and out of it.
LEAST_BUFFER_BYTES = 1 << 16

_WORD = struct.Struct("=q")
#: The table of a block that has one part.
_ONE_PART = struct.Struct("=3q")

_BYTE = np.dtype(np.uint8)


class Pickled(NamedTuple):
    """An object that is pickled already, as a block."""

    block: NDArray[np.uint8]


def pickle_parts(value: Any, reducers: Reducers | None = None) -> Sequence[Any]:
    """Pickle an object: the pickle, and the large buffers beside it.

    Raises:
        Exception: the object cannot be pickled. A user's class may raise anything.
    """
    buffers: list[pickle.PickleBuffer] = []
    for dumps in (_dumps_plain, _dumps, _dumps_by_value) if not reducers else (_dumps, _dumps_by_value):
        try:
            data = dumps(value, reducers or {}, put_large_aside(buffers))
        except Exception:  # a user's class may raise anything
            del buffers[:]
            if dumps is _dumps_by_value:
                raise
        else:
            break
    return data, *(buffer.raw() for buffer in buffers)


def put_large_aside(buffers: list[pickle.PickleBuffer]) -> _Keep:
    """A ``buffer_callback`` for pickling: it collects large buffers; the others become part of the pickle."""

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            is_large = buffer.raw().nbytes >= LEAST_BUFFER_BYTES
        except BufferError:  # not contiguous
            return True
        if is_large:
            buffers.append(buffer)
        return not is_large

    return keep


def _dumps_plain(value: Any, reducers: Reducers, keep: _Keep) -> bytes:
    """Pickle most objects, without reducers: takes a quarter of the time of `_dumps`."""
    return pickle.dumps(value, 5, buffer_callback=keep)


def _dumps(value: Any, reducers: Reducers, keep: _Keep) -> bytes:
    """Pickle objects, memoryviews among them. Classes and functions go by name."""
    with io.BytesIO() as file:
        pickler = pickle.Pickler(file, protocol=5, buffer_callback=keep)
        pickler.dispatch_table = {**copyreg.dispatch_table, memoryview: _reduce_view, **reducers}
        pickler.dump(value)
        return file.getvalue()


def _dumps_by_value(value: Any, reducers: Reducers, keep: _Keep) -> bytes:
    """Pickle objects. Classes and functions that have no importable name go by value."""
    from dali_like.common.pickling_by_value import dumps_by_value  # most programs need no cloudpickle

    return dumps_by_value(value, keep, {memoryview: _reduce_view, **reducers})


def _reduce_view(view: memoryview) -> tuple[Any, ...]:
    """Pickle a memoryview as an array, with its shape and type. pickle refuses views; cloudpickle makes them bytes."""
    return memoryview, (np.asarray(view),)


def write_parts(parts: Sequence[Any], region: Region) -> tuple[int, int]:
    """Write a pickled object as a block at the end of a region. Return the block's offset in the shared space, and its size.

    Raises:
        RegionFullError, NoMemoryError: there is no room for it.
    """
    data = parts[0]
    if len(parts) == 1 and len(data) < LEAST_BUFFER_BYTES:  # the usual case, in the fewest steps
        nbytes = _ONE_PART.size + len(data)
        offset = region.take(nbytes)
        region.space.map[offset : offset + nbytes] = _ONE_PART.pack(1, _ONE_PART.size, len(data)) + data
        return offset, nbytes
    table, nbytes = _table_of(parts)
    offset = region.take(nbytes)
    _fill(region.space.array(offset, (nbytes,), _BYTE), table, parts)
    return offset, nbytes


def block_of(parts: Sequence[Any]) -> NDArray[np.uint8]:
    """Copy a pickled object into a block in memory of its own."""
    table, nbytes = _table_of(parts)
    block = np.empty(nbytes, _BYTE)
    _fill(block, table, parts)
    return block


def _table_of(parts: Sequence[Any]) -> tuple[list[int], int]:
    """The table of a block with these parts, and the size of the block."""
    table, end = [len(parts)], WORD_BYTES * (1 + 2 * len(parts))
    for i, part in enumerate(parts):
        begin = align(end, SAMPLE_ALIGNMENT) if i else end  # the pickle needs no alignment; arrays do
        table += [begin, len(part)]
        end = begin + len(part)
    return table, end


def _fill(block: NDArray[np.uint8], table: list[int], parts: Sequence[Any]) -> None:
    struct.pack_into(f"={len(table)}q", block.data, 0, *table)
    for part, begin in zip(parts, table[1::2], strict=True):
        block[begin : begin + len(part)] = np.frombuffer(part, np.uint8)


def write_message(value: Any, region: Region, reducers: Reducers) -> None:
    """Write the message of a request source into a region that holds nothing else.

    Raises:
        SampleTypeError: it cannot be pickled.
        RegionFullError, NoMemoryError: there is no room for it.
    """
    try:
        parts = pickle_parts(value, reducers)
    except Exception as error:  # a user's class may raise anything
        raise SampleTypeError(f"an object that a worker has to send cannot be pickled: {error}") from error
    write_parts(parts, region)


class OutOfBandPickle:
    """A pickled object in a block.

    Args:
        block: the block; it may be followed by other bytes.

    Raises:
        CorruptionError: the block is not as workers write it.
    """

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self._block = block
        self._parts = _read_table(block)

    @classmethod
    def of_task(cls, slot: Slot, task: int, lease: Lease[Any] | None = None) -> OutOfBandPickle:
        """The message of a task, at the start of its region. With a lease, its arrays keep the slot.

        Raises:
            CorruptionError: there is no message.
        """
        nbytes = int(slot.marks[task])
        if not 0 <= nbytes <= slot.slot_layout.region_bytes:
            raise _corrupted()
        begin = slot.offset + slot.slot_layout.region_offset(task)
        if nbytes < LEAST_BUFFER_BYTES:  # it has no arrays beside the pickle; a copy needs no lease
            return cls(np.frombuffer(slot.space.map[begin : begin + nbytes], _BYTE))
        return cls(leased_array(lease, slot.space.address + begin, (nbytes,), _BYTE))

    def load(self, *, copies: bool = False) -> Any:
        """Return the object. Its large arrays are views of the block, or copies.

        Raises:
            Exception: the object cannot be unpickled here. A user's class may raise anything.
        """
        offset, nbytes = self._parts[0]
        data = self._block.data[offset : offset + nbytes]
        if len(self._parts) == 1:
            return pickle.loads(data)
        buffers = [self._block[offset : offset + nbytes] for offset, nbytes in self._parts[1:]]
        return pickle.loads(data, buffers=[buffer.copy() for buffer in buffers] if copies else buffers)


def _read_table(block: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Read the offsets and sizes of the parts, which must lie in the block.

    Raises:
        CorruptionError: they do not.
    """
    room, data = len(block), block.data
    if room >= _ONE_PART.size:  # the usual case, in the fewest steps
        count, offset, nbytes = _ONE_PART.unpack_from(data)
        if count == 1 and 0 <= offset <= room and 0 <= nbytes <= room - offset:
            return [(offset, nbytes)]
    count = _WORD.unpack_from(data)[0] if room >= WORD_BYTES else 0
    if 0 < count <= (room - WORD_BYTES) // (2 * WORD_BYTES):
        words = struct.unpack_from(f"={2 * count}q", data, WORD_BYTES)
        parts = list(zip(words[::2], words[1::2], strict=True))
        if all(0 <= offset <= room and 0 <= nbytes <= room - offset for offset, nbytes in parts):
            return parts
    raise _corrupted()


def _corrupted() -> CorruptionError:
    return CorruptionError(
        "the objects that a worker has sent are corrupted; a callback has written into memory that is not its own"
    )
