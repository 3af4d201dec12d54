"""Memory of a sample cache: a shared space of its own, which outlives the pools of workers that use it.

::

    index      one word for each key: the offset of its entry; 0 without one. Only the owner writes it.
    journals   for each batch in flight: GrantWord words, then for each task a count and its records
    shares     for each task of a batch in flight: room for entries
    entries    used parts of the shares of finished tasks; each entry has its key and size in front

The owner, the main process, gives each batch a `Grant` before it posts the tasks. The worker that has a task writes entries
into the share of the task, and a record of each access into the journal. The report of the task publishes both. After the
last report, the owner adds the entries of reported tasks to the index, and frees the unused rest. So an entry is read only
after a system call has followed it, and nothing of a killed worker is ever read: no report names its share.

Workers read the index at any time: a word names a complete entry, or none. With ``policy="lru"`` the owner takes entries out
of the index, and frees them when all grants that were given before have ended. Readers copy entries in that case.

Threads of the owner write entries themselves, under a lock.
"""

from __future__ import annotations

import contextlib
import enum
import os
import struct
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.limits import available_bytes
from dali_like.engine.memory.protocol import PAGE_BYTES, WORD_BYTES, align
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import OutOfMemoryError

#: The parts of a record: key, epoch, an `Access` or the offset of a new entry, and its size.
RECORD_WORDS = 4
#: In front of each entry: its key and the size of its content.
ENTRY_HEADER_BYTES = 2 * WORD_BYTES
ENTRY_ALIGNMENT = 64
_WORD = np.dtype(np.int64)
_HEADER = struct.Struct("=2q")
_pack_header, _unpack_header = _HEADER.pack_into, _HEADER.unpack_from
_pack_record = struct.Struct(f"={RECORD_WORDS}q").pack_into
_RECORD_BYTES = RECORD_WORDS * WORD_BYTES
_pack_word = struct.Struct("=q").pack_into
#: Larger parts of entries are copied by NumPy, which lets other threads run meanwhile.
_MOST_PLAIN_BYTES = 1 << 16

#: A task notes this many accesses for each sample, and at least some: a sample may consist of several elements.
_RECORDS_PER_SAMPLE = 4
_LEAST_RECORDS = 64
#: While the size of entries is unknown, a batch gets this part of the free budget, and at most so much. A loader with eight
#: workers begins with sixteen batches: the last of them gets 1/42 of the budget.
_FIRST_PART = 16
_MOST_FIRST_BYTES = 64 << 20
#: Entries that the owner writes itself are packed into extents of this part of the budget, and at most this size.
_OWN_PART = 64
_MOST_OWN_BYTES = 1 << 20
#: Room in a share for entries of different sizes, relative to the mean.
_SLACK = 1.25
#: The available memory is checked in steps: of this part of it, within these bounds.
_CHECK_PART = 1024
_LEAST_CHECK_BYTES, _MOST_CHECK_BYTES = 1 << 20, 16 << 20


class Access(enum.IntEnum):
    """How an element was got, in place of the offset of a new entry."""

    MISS = 0  #: computed, and not stored
    HIT = -1
    DISK_HIT = -2


#: As a plain integer, which takes less time.
_HIT = int(Access.HIT)


class GrantWord(enum.IntEnum):
    """The first words of a journal."""

    SHARE_OFFSET = 0
    SHARE_BYTES = 1
    NUM_RECORDS = 2
    NEXT_CACHE = 3  # identity of the next cache of the batch, and page of its journal; 0 at the end
    NEXT_PAGE = 4
    NUM_WORDS = 5


@dataclass(frozen=True)
class EpochCounts:
    """Accesses of a cache in one epoch.

    Attributes:
        hits, misses: elements that were and were not in the cache.
        disk_hits: the part of the hits that came from the disk.
        hit_bytes: size of the hits.
    """

    hits: int = 0
    misses: int = 0
    disk_hits: int = 0
    hit_bytes: int = 0


@dataclass(frozen=True)
class CacheStatistics:
    """The content of a cache and its accesses.

    Attributes:
        budget_bytes: limit of the memory of entries.
        used_bytes: memory of entries, and of shares of batches in flight. Never above the budget.
        stored: elements in memory.
        evicted: elements that were replaced.
        epochs: accesses by epoch of the cached dataset.
    """

    budget_bytes: int
    used_bytes: int
    stored: int
    evicted: int
    epochs: dict[int, EpochCounts]


class _Extent(NamedTuple):
    """Used part of a finished share."""

    offset: int
    nbytes: int
    entries: tuple[tuple[int, int], ...]  # key and offset; only kept for replacement


class Grant:
    """Room for the entries of one batch, and permission to read. Belongs to the owner.

    Attributes:
        number: grants are numbered in order.
        offset: of its journal.
    """

    def __init__(self, cache: CacheMemory, number: int, offset: int, num_tasks: int, records: int, share_bytes: int) -> None:
        self.cache = cache
        self.number = number
        self.offset = offset
        self.num_tasks = num_tasks
        self.num_records = records
        self.share_bytes = share_bytes
        self.share_offset = 0

    def journal(self, task: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the count of a task, and its records."""
        return journal_of(self.cache.space, self.offset, task, self.num_records)

    @property
    def journal_bytes(self) -> int:
        """Size of the journal."""
        return (GrantWord.NUM_WORDS + self.num_tasks * (1 + RECORD_WORDS * self.num_records)) * WORD_BYTES

    def end(self, reported: int) -> None:
        """Take over the entries of reported tasks.

        Args:
            reported: a bit for each task with a report of a worker.
        """
        self.cache.end_grant(self, reported)


def journal_of(space: SharedSpace, offset: int, task: int, records: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the count of a task in a journal, and its records."""
    count, begin = _journal_offsets(offset, task, records)
    return space.array(count, (1,), _WORD), space.array(begin, (records, RECORD_WORDS), _WORD)


def _journal_offsets(offset: int, task: int, records: int) -> tuple[int, int]:
    count = offset + (GrantWord.NUM_WORDS + task * (1 + RECORD_WORDS * records)) * WORD_BYTES
    return count, count + WORD_BYTES


class Share:
    """The share and the journal of one task, as its worker sees them. Threads of the user's callback may write, too."""

    def __init__(self, space: SharedSpace, offset: int, task: int, headroom: Headroom) -> None:
        share_offset, self._size, records = space.array(offset, (GrantWord.NEXT_CACHE,), _WORD).tolist()
        self._space = space
        self._start = share_offset + task * self._size
        self._count, self._records, self._num_records = *_journal_offsets(offset, task, records), records
        _pack_word(space.map, self._count, 0)  # a worker that died may have left a number
        self._headroom = headroom
        self._used = self._num_noted = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Publish the records, and refuse further writing: the task ends, but threads of the user may go on."""
        with self._lock:
            if self._size >= 0:
                _pack_word(self._space.map, self._count, self._num_noted)
            self._size, self._num_noted = -1, self._num_records

    def note(self, key: int, epoch: int, access: int, nbytes: int) -> None:
        """Note an access, if there is room."""
        with self._lock:
            self._note(key, epoch, access, nbytes)

    def put(self, key: int, epoch: int, parts: Sequence[Any], nbytes: int) -> bool:
        """Write an entry. Return False if there is no room or no memory for it."""
        with self._lock:
            used, headroom = self._used, self._headroom
            end = used + ENTRY_HEADER_BYTES + nbytes + ENTRY_ALIGNMENT - 1 & -ENTRY_ALIGNMENT  # `align`, without the call
            if end > self._size or self._num_noted == self._num_records:
                return False
            if end - used > headroom.left and not headroom.look(end - used):
                self._size = 0
                return False
            headroom.left -= end - used
            offset, memory = self._start + used, self._space.map
            if len(parts) == 1 and nbytes <= _MOST_PLAIN_BYTES:  # the usual case, in the fewest steps
                _pack_header(memory, offset, key, nbytes)
                memory[offset + ENTRY_HEADER_BYTES : offset + ENTRY_HEADER_BYTES + nbytes] = parts[0]
            else:
                write_entry(self._space, offset, key, parts, nbytes)
            self._used = end
            # `_note`, without the call
            _pack_record(memory, self._records + self._num_noted * _RECORD_BYTES, key, epoch, offset, nbytes)
            self._num_noted += 1
            return True

    def _note(self, key: int, epoch: int, access: int, nbytes: int) -> None:
        number, memory = self._num_noted, self._space.map
        if number < self._num_records:
            _pack_record(memory, self._records + number * _RECORD_BYTES, key, epoch, access, nbytes)
            self._num_noted = number + 1


class Headroom:
    """Memory that was available when this process looked last.

    Attributes:
        left: the unused part of that memory.
    """

    def __init__(self) -> None:
        self.left = 0

    def look(self, nbytes: int) -> bool:
        """Look for more memory, which takes 0.3 ms. Return False if `nbytes` are not available."""
        available = available_bytes()
        wanted = max(nbytes, _LEAST_CHECK_BYTES, min(available // _CHECK_PART, _MOST_CHECK_BYTES))
        if available < wanted:  # forked workers have no descriptor to commit it with
            return False
        self.left = wanted
        return True


def write_entry(space: SharedSpace, offset: int, key: int, parts: Sequence[Any], nbytes: int) -> None:
    """Write the parts of an entry one after another, behind its key and size."""
    memory = space.map
    _pack_header(memory, offset, key, nbytes)
    begin = offset + ENTRY_HEADER_BYTES
    for part in parts:
        end = begin + _bytes_of(part)
        if end - begin > _MOST_PLAIN_BYTES:
            space.array(begin, (end - begin,), np.dtype(np.uint8))[:] = np.frombuffer(part, np.uint8)
        else:  # a sixth of the time, but no other thread runs meanwhile
            memory[begin:end] = part
        begin = end


def _bytes_of(part: Any) -> int:
    return len(part) if part.__class__ is bytes else memoryview(part).nbytes


class CacheMemory:
    """Memory of one cache. The process that creates it owns it; forked and spawned workers only map it.

    Args:
        space: a space of its own.
        ident: identity of the cache in all processes.
        length: keys are 0, 1, and so on below this number.
        budget_bytes: limit of the memory of entries.
        replaces: whether the least recently used entries are replaced when the budget is used up.

    Attributes:
        is_owned: whether this process owns the memory. A forked one does not.
        offsets: by key: the offset of its entry; 0 without one.
    """

    def __init__(self, space: SharedSpace, ident: int, length: int, budget_bytes: int, *, replaces: bool) -> None:
        self.space = space
        self.ident = ident
        self.length = length
        self.budget_bytes = budget_bytes // PAGE_BYTES * PAGE_BYTES
        self.replaces = replaces
        self.index: NDArray[np.int64] = space.array(PAGE_BYTES, (length,), _WORD)
        self.offsets = memoryview(self.index)  # type: ignore[arg-type]  # of single entries, faster
        self.share: Share | None = None  # of the task that this worker process computes
        self.is_owned = False
        self._headroom = Headroom()
        self._bytes = memoryview(space.map).toreadonly()
        self._lock = threading.Lock()
        self._used = self._stored = self._evicted = 0
        self._entry_bytes = self._largest = self._num_sized = self._largest_need = 0
        self._epochs: dict[int, list[int]] = {}
        self._grants: dict[int, Grant] = {}
        self._next_grant = 1
        self._journals: dict[int, list[int]] = {}
        self._kept: OrderedDict[int, _Extent] = OrderedDict()
        self._extent_of: dict[int, int] = {}
        self._limbo: list[tuple[int, _Extent]] = []
        self._own = 0, 0  # begin and end of the free rest of an extent for entries of the owner
        _memories[ident] = self

    @classmethod
    def create(cls, ident: int, length: int, budget_bytes: int, *, replaces: bool) -> CacheMemory:
        """Create the memory, in the process that owns it.

        Raises:
            OutOfMemoryError: there is no address space for it.
        """
        index_bytes = PAGE_BYTES + align(length * WORD_BYTES)
        space = SharedSpace.create(budget_bytes + 2 * index_bytes + (64 << 20))
        space.allocate(index_bytes)
        memory = cls(space, ident, length, budget_bytes, replaces=replaces)
        memory.is_owned = True
        return memory

    # In any process

    def enter(self, journal_page: int, task: int) -> tuple[int, int]:
        """Begin a task in a worker process. The page is that of the journal of its grant.

        Returns:
            Identity of the next cache of the batch, and page of its journal; 0 without one.
        """
        offset = journal_page * PAGE_BYTES
        if not self.is_owned:  # threads of the owner need no share
            self.share = Share(self.space, offset, task, self._headroom)
        ident, page = self.space.array(offset, (GrantWord.NUM_WORDS,), _WORD)[GrantWord.NEXT_CACHE :].tolist()
        return ident, page

    def leave(self) -> None:
        """End a task in a worker process. From now on, its share may belong to others."""
        if self.share is not None:
            self.share.close()
            self.share = None

    def get(self, key: int, epoch: int) -> memoryview | None:
        """Return the content of an entry: a read-only view, or a copy if entries may be replaced. None without one."""
        if not self.offsets[key]:
            return None
        if not self.is_owned:
            share = self.share
            content = self._read(key) if share is not None or not self.replaces else None
            if content is not None and share is not None:
                share.note(key, epoch, _HIT, len(content))
            return content
        with self._lock:
            content = self._read(key)
            if content is not None:
                self._count(key, epoch, Access.HIT, content.nbytes)
        return content

    def put(self, key: int, epoch: int, parts: Sequence[Any], *, is_disk_hit: bool = False) -> None:
        """Store an entry if there is room, and count the access."""
        nbytes = len(parts[0]) if len(parts) == 1 and parts[0].__class__ is bytes else sum(map(_bytes_of, parts))
        share = self.share
        if share is not None and not self.is_owned:
            if is_disk_hit:
                share.note(key, epoch, Access.DISK_HIT, nbytes)
            if not share.put(key, -1 if is_disk_hit else epoch, parts, nbytes) and not is_disk_hit:
                share.note(key, epoch, Access.MISS, nbytes)
        elif self.is_owned:
            with self._lock:
                self._count(key, epoch, Access.DISK_HIT if is_disk_hit else Access.MISS, nbytes)
                self._put(key, parts, nbytes)

    def _read(self, key: int) -> memoryview | None:
        offset = self.offsets[key]
        if not offset:
            return None
        stored, nbytes = _unpack_header(self._bytes, offset)
        if stored != key:
            return None
        begin = offset + ENTRY_HEADER_BYTES
        view = self._bytes[begin : begin + nbytes]
        return memoryview(bytes(view)) if self.replaces else view

    # In the owner

    def grant(self, num_tasks: int, task_size: int) -> Grant:
        """Give a batch room for entries, as far as the budget allows."""
        with self._lock:
            share = self._share_bytes(num_tasks, task_size)
            records = max(_LEAST_RECORDS, _RECORDS_PER_SAMPLE * task_size)
            grant = Grant(self, self._next_grant, 0, num_tasks, records, share)
            free = self._journals.setdefault(align(grant.journal_bytes), [])
            grant.offset = free.pop() if free else self.space.allocate(grant.journal_bytes)
            if share:
                nbytes = grant.num_tasks * grant.share_bytes
                try:
                    grant.share_offset = self.space.allocate(nbytes)
                except OutOfMemoryError:  # little address space, in many parts: the batch is computed all the same
                    grant.share_bytes = 0
                else:
                    self._used += nbytes
            words = self.space.array(grant.offset, (GrantWord.NUM_WORDS,), _WORD)
            words[:] = grant.share_offset, grant.share_bytes, records, 0, 0
            for task in range(num_tasks):
                grant.journal(task)[0][0] = 0
            self._next_grant += 1
            self._grants[grant.number] = grant
            return grant

    def end_grant(self, grant: Grant, reported: int) -> None:
        """See `Grant.end`. A second call does nothing."""
        with self._lock:
            if self._grants.pop(grant.number, None) is None:
                return
            for task in range(grant.num_tasks):
                begin = grant.share_offset + task * grant.share_bytes
                used = self._take_over(grant, task, begin) if reported >> task & 1 else 0
                if grant.share_bytes > used:
                    self.space.free(begin + used, grant.share_bytes - used)
                    self._used -= grant.share_bytes - used
            self._journals[align(grant.journal_bytes)].append(grant.offset)
            self._free_limbo()

    def statistics(self) -> CacheStatistics:
        """Return the numbers so far. Accesses of batches in flight are not counted yet."""
        with self._lock:
            epochs = {epoch: EpochCounts(*counts) for epoch, counts in sorted(self._epochs.items())}
            return CacheStatistics(self.budget_bytes, self._used, self._stored, self._evicted, epochs)

    def _share_bytes(self, num_tasks: int, task_size: int) -> int:
        if self._stored >= self.length:
            return 0
        if self._num_sized:
            usual = task_size * self._entry_bytes // self._num_sized
            likely = int(_SLACK * max(usual, self._largest_need)) + self._largest
            wanted = min(likely, max(task_size * self._largest, self._largest_need))
        else:
            wanted = min((self.budget_bytes - self._used) // _FIRST_PART, _MOST_FIRST_BYTES) // num_tasks
        wanted = align(wanted)
        if self.replaces and self._used + num_tasks * wanted > self.budget_bytes:
            self._evict(
                self._used + num_tasks * wanted - self.budget_bytes - sum(extent.nbytes for _, extent in self._limbo)
            )
        return min(wanted, (self.budget_bytes - self._used) // num_tasks // PAGE_BYTES * PAGE_BYTES)

    def _take_over(self, grant: Grant, task: int, begin: int) -> int:
        """Add the entries of a reported task to the index. Return the bytes of its share that stay in use."""
        count, records = grant.journal(task)
        records = records[: int(count[0])]
        records = records[(records[:, 0] >= 0) & (records[:, 0] < self.length)]
        keys, epochs, offsets, nbytes = records.T
        sizes = nbytes + (ENTRY_HEADER_BYTES + ENTRY_ALIGNMENT - 1) & -ENTRY_ALIGNMENT
        self._count_accesses(keys, epochs, np.minimum(offsets, Access.MISS), nbytes)
        missed = sizes[offsets == Access.MISS]
        self._note_sizes(int(missed.sum()), len(missed), int(missed.max(initial=0)))
        self._largest_need = max(self._largest_need, int(sizes[offsets >= Access.MISS].sum()))
        ends = offsets - begin + sizes
        # A worker that writes outside of its memory must not make entries there.
        good = (offsets > 0) & (offsets >= begin) & (nbytes >= 0) & (nbytes <= grant.share_bytes)
        good &= (ends <= grant.share_bytes) & (self.index[keys] == 0)
        keys, offsets, sizes, ends = keys[good], offsets[good], sizes[good], ends[good]
        self.index[keys[::-1]] = offsets[::-1]  # the first entry of a key counts, and NumPy keeps the last
        if (is_first := self.index[keys] == offsets).all():
            used = int(ends.max(initial=0))
        else:
            keys, offsets, sizes, used = keys[is_first], offsets[is_first], sizes[is_first], int(ends[is_first].max())
        self._note_sizes(int(sizes.sum()), len(sizes), int(sizes.max(initial=0)))
        return self._keep(begin, align(used), [*zip(keys.tolist(), offsets.tolist(), strict=True)])

    def _count_accesses(
        self, keys: NDArray[np.int64], epochs: NDArray[np.int64], accesses: NDArray[np.int64], nbytes: NDArray[np.int64]
    ) -> None:
        """Count accesses of a task; those of a negative epoch are counted already."""
        for epoch in set(epochs.tolist()):
            if epoch < 0:
                continue
            of_epoch = epochs == epoch
            is_hit = of_epoch & (accesses != Access.MISS)
            num_hits = int(is_hit.sum())
            counts = self._epochs.setdefault(epoch, [0, 0, 0, 0])
            counts[0] += num_hits
            counts[1] += int(of_epoch.sum()) - num_hits
            counts[2] += int((of_epoch & (accesses == Access.DISK_HIT)).sum())
            counts[3] += int(nbytes[is_hit].sum())
        if self.replaces:
            for key in keys[accesses != Access.MISS].tolist():
                self._note_use(key)

    def _keep(self, begin: int, nbytes: int, entries: list[tuple[int, int]]) -> int:
        self._stored += len(entries)
        if entries and self.replaces:
            self._kept[begin] = _Extent(begin, nbytes, tuple(entries))
            self._extent_of.update((key, begin) for key, _ in entries)
        return nbytes

    def _note_sizes(self, total: int, count: int, largest: int) -> None:
        """Count entries, with their headers: the sum of their sizes, their number, and the largest size."""
        self._entry_bytes += total
        self._num_sized += count
        self._largest = max(self._largest, largest)

    def _put(self, key: int, parts: Sequence[Any], nbytes: int) -> None:
        if self.index[key]:
            return
        size = align(ENTRY_HEADER_BYTES + nbytes, ENTRY_ALIGNMENT)
        begin, end = self._own
        if begin + size > end:
            begin, end = self._take_own(size)
            if begin == end:
                return
        self._own = begin + size, end
        write_entry(self.space, begin, key, parts, nbytes)
        self._note_sizes(size, 1, size)
        self.index[key] = begin
        self._keep(begin, align(size), [(key, begin)])

    def _take_own(self, size: int) -> tuple[int, int]:
        """Return begin and end of memory for entries that the owner writes; an empty range without such entries."""
        needed = align(size)
        if self.replaces:  # an extent for each entry, so that it can be replaced by itself
            if self._used + needed > self.budget_bytes >= needed:
                self._evict(self._used + needed - self.budget_bytes)
        else:
            packed = min(_MOST_OWN_BYTES, self.budget_bytes // _OWN_PART, self.budget_bytes - self._used)
            needed = max(needed, packed // PAGE_BYTES * PAGE_BYTES)
        if self._used + needed > self.budget_bytes:
            return 0, 0
        try:
            begin = self.space.take(needed, needed)
        except OutOfMemoryError:
            return 0, 0
        self._used += needed
        return begin, begin + (align(size, ENTRY_ALIGNMENT) if self.replaces else needed)

    def _evict(self, nbytes: int) -> None:
        """Take the least recently used entries out of the index, and free them when no grant may read them."""
        while nbytes > 0 and self._kept:
            _, extent = self._kept.popitem(last=False)
            for key, offset in extent.entries:
                self._extent_of.pop(key, None)
                if self.index[key] == offset:
                    self.index[key] = 0
            self._stored -= len(extent.entries)
            self._evicted += len(extent.entries)
            self._limbo.append((self._next_grant, extent))
            nbytes -= extent.nbytes
        self._free_limbo()

    def _free_limbo(self) -> None:
        oldest = min(self._grants, default=self._next_grant)
        while self._limbo and self._limbo[0][0] <= oldest:
            _, extent = self._limbo.pop(0)
            self.space.free(extent.offset, extent.nbytes)
            self._used -= extent.nbytes

    def _count(self, key: int, epoch: int, access: int, nbytes: int) -> None:
        counts = self._epochs.setdefault(epoch, [0, 0, 0, 0])
        if access == Access.MISS:
            counts[1] += 1
            return
        counts[0] += 1
        counts[2] += access == Access.DISK_HIT
        counts[3] += nbytes
        self._note_use(key)

    def _note_use(self, key: int) -> None:
        """Make the extent of an entry the most recently used one."""
        extent = self._extent_of.get(key)
        if extent is not None:
            self._kept.move_to_end(extent)


#: The caches that this process has, by their identity.
_memories: weakref.WeakValueDictionary[int, CacheMemory] = weakref.WeakValueDictionary()


def _disown() -> None:
    for memory in [*_memories.values()]:
        memory.is_owned = False


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_disown)  # a system call for each element takes longer


def memory_of(ident: int) -> CacheMemory | None:
    """Return the memory of a cache in this process, if it has been created or mapped."""
    return _memories.get(ident)


def link_grants(grants: Sequence[Grant]) -> tuple[int, int]:
    """Link the grants of one batch. Return identity and journal page of the first, for the header of the slot."""
    ident = page = 0
    for grant in reversed(grants):
        words = grant.cache.space.array(grant.offset, (GrantWord.NUM_WORDS,), _WORD)
        words[GrantWord.NEXT_CACHE :] = ident, page
        ident, page = grant.cache.ident, grant.offset // PAGE_BYTES
    return ident, page


@contextlib.contextmanager
def shares_of_task(ident: int, page: int, task: int) -> Iterator[None]:
    """Give a task its shares of the caches of its batch that this process has mapped, until it ends."""
    entered = []
    while ident and (memory := memory_of(ident)) is not None:
        entered.append(memory)
        ident, page = memory.enter(page, task)
    try:
        yield
    finally:
        for memory in entered:
            memory.leave()
