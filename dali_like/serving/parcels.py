"""Batches as other processes get them: a pickle, and references to arrays in shared memory.

The server packs a batch once. Large arrays that lie in a `SharedFile` stay where they are; others are copied into an extent
of the server's own space. This extent, the *parcel*, holds::

    | count, size of the pickle, count x (file, offset, size) | pickle | copied arrays |

Consumers read it through a private mapping of a read-only descriptor: writes go to copies of the pages.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import PAGE_BYTES, SAMPLE_ALIGNMENT, align
from dali_like.engine.memory.ring import Lease, leased_array
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.space import SharedSpace, mib
from dali_like.engine.worker.out_of_band import Reducers, pickle_parts
from dali_like.errors import OutOfMemoryError

_HEAD = struct.Struct("=2q")
_PLACE = struct.Struct("=3q")
_BYTE = np.dtype(np.uint8)
_MAP_NORESERVE = 0x4000  # see mmap(2); Python 3.11 does not have it
#: Unused extents of each size that are kept for the next parcels.
_MOST_FREE = 8
#: They are freed when this many parcels have had other sizes. The first batches of workers are copied, and later ones not.
_PARCELS_TO_FREE = 8


class FilePart(NamedTuple):
    """A part of a shared file."""

    file: int
    offset: int
    nbytes: int


class Parcel(NamedTuple):
    """A packed batch in the server's space.

    Attributes:
        offset, capacity: its extent.
        files: numbers of all files that it refers to.
    """

    offset: int
    capacity: int
    files: frozenset[int]


class Files:
    """The shared files that batches lie in, with numbers. Runs in the server."""

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[SharedFile, int] = weakref.WeakKeyDictionary()
        self._count = 0
        #: Numbers of files that have ended. Finalizers append to it.
        self.ended: list[int] = []

    def number_of(self, file: SharedFile) -> int:
        """Return the number of a file."""
        number = self._numbers.get(file)
        if number is None:
            number = self._numbers[file] = self._count
            self._count += 1
            weakref.finalize(file, self.ended.append, number).atexit = False
        return number

    def file(self, number: int) -> SharedFile | None:
        """Return the file with a number; None after its end."""
        return next((file for file, each in list(self._numbers.items()) if each == number), None)


class Packer:
    """Packs batches. Runs in the server, and owns the space of the parcels."""

    def __init__(self, reducers: Reducers) -> None:
        self._reducers = reducers
        self.files = Files()
        self.space = SharedSpace.create()
        self.number = self.files.number_of(self.space.file)
        self._free: dict[int, list[int]] = {}
        self._count = 0
        self._last_use: dict[int, int] = {}  # of each size: the number of parcels until then

    def pack(self, batch: Any) -> Parcel:
        """Pack a batch. The caller keeps the batch as long as the parcel is in use.

        Raises:
            Exception: the batch cannot be pickled.
            OutOfMemoryError: there is no memory for arrays that do not lie in a shared space.
        """
        data, *buffers = pickle_parts(batch, self._reducers)
        arrays = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        places: list[FilePart | None] = []
        for array in arrays:
            address: int = array.__array_interface__["data"][0]
            file = SharedFile.of_address(address)  # None: the array is in memory that consumers cannot map, and is copied
            part = None if file is None else FilePart(self.files.number_of(file), address - file.address, array.nbytes)
            places.append(part)
        end = _HEAD.size + _PLACE.size * len(arrays) + len(data)
        copied = []
        for i, (array, place) in enumerate(zip(arrays, places, strict=True)):
            if place is None:
                begin = align(end, SAMPLE_ALIGNMENT)
                places[i] = FilePart(self.number, begin, array.nbytes)  # relative to the parcel until it has an extent
                copied.append(i)
                end = begin + array.nbytes
        capacity = max(PAGE_BYTES, 1 << (end - 1).bit_length())
        offset = self._take(capacity)
        for i in copied:
            place = places[i]
            assert place is not None
            places[i] = FilePart(place.file, offset + place.offset, place.nbytes)
            np.copyto(self.space.array(offset + place.offset, (place.nbytes,), _BYTE), arrays[i])
        found = [place for place in places if place is not None]
        head = _HEAD.pack(len(found), len(data)) + b"".join(_PLACE.pack(*place) for place in found) + data
        self.space.map[offset : offset + len(head)] = head
        return Parcel(offset, capacity, frozenset({self.number, *(place.file for place in found)}))

    def free(self, parcel: Parcel) -> None:
        """Reuse or free the extent of a parcel that no consumer reads anymore."""
        kept = self._free.setdefault(parcel.capacity, []) if parcel.capacity in self._last_use else None
        if kept is not None and len(kept) < _MOST_FREE:
            kept.append(parcel.offset)
        else:
            self.space.free(parcel.offset, parcel.capacity)

    def _take(self, capacity: int) -> int:
        self._count += 1
        self._last_use[capacity] = self._count
        for size in [size for size, count in self._last_use.items() if self._count - count > _PARCELS_TO_FREE]:
            del self._last_use[size]
            for offset in self._free.pop(size, ()):
                self.space.free(offset, size)
        kept = self._free.get(capacity)
        return kept.pop() if kept else self.space.take(capacity, capacity)


def read_only(file: SharedFile) -> Descriptor:
    """Return a descriptor of a file that allows no writing."""
    return Descriptor(os.open(f"/proc/self/fd/{file.fd.fileno()}", os.O_RDONLY | os.O_CLOEXEC))


class PrivateMapping:
    """A consumer's mapping of a shared file. Pages that the consumer writes to are copied, and stay its own.

    Args:
        file: a descriptor that may be read-only. It is closed.
        nbytes: size of the file.

    Raises:
        OutOfMemoryError: there is too little address space.
    """

    def __init__(self, file: Descriptor, nbytes: int) -> None:
        try:
            self.map = mmap.mmap(
                file.fileno(), nbytes, flags=mmap.MAP_PRIVATE | _MAP_NORESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            )
        except OSError as error:
            raise OutOfMemoryError(
                f"cannot map the {mib(nbytes)} of address space of the server's batches ({error}); raise `ulimit -v` of "
                "this process, or let the system overcommit memory (vm.overcommit_memory=0)"
            ) from error
        finally:
            file.close()
        self.nbytes = nbytes
        self.address: int = np.frombuffer(self.map, np.uint8).__array_interface__["data"][0]

    def drop_written(self, offset: int, nbytes: int) -> None:
        """Let a part show the file again."""
        begin = offset // PAGE_BYTES * PAGE_BYTES
        self.map.madvise(mmap.MADV_DONTNEED, begin, align(offset + nbytes, PAGE_BYTES) - begin)


def places_of(mapping: PrivateMapping, offset: int) -> tuple[list[FilePart], memoryview]:
    """Return the places of a parcel's arrays, and its pickle."""
    count, nbytes = _HEAD.unpack_from(mapping.map, offset)
    begin = offset + _HEAD.size
    places = [FilePart(*_PLACE.unpack_from(mapping.map, begin + i * _PLACE.size)) for i in range(count)]
    begin += count * _PLACE.size
    return places, memoryview(mapping.map)[begin : begin + nbytes]


def load(data: memoryview, places: Sequence[FilePart], mappings: Sequence[PrivateMapping], lease: Lease[Any]) -> Any:
    """Return the batch of a parcel. Its large arrays are views of the mappings, and keep the lease.

    Raises:
        Exception: the batch cannot be unpickled here, for example because a package is missing.
    """
    buffers = [
        leased_array(lease, mapping.address + place.offset, (place.nbytes,), _BYTE)
        for place, mapping in zip(places, mappings, strict=True)
    ]
    return pickle.loads(data, buffers=buffers)
