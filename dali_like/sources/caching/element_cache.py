"""A sample cache: finds and stores the elements of one stage, source or operator.

The main process owns the memory. Copies of a cache in workers map the same memory.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.sample_cache import CacheMemory, CacheStatistics, memory_of
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.info import get_worker_info
from dali_like.sources.caching.cache_files import CacheFolder
from dali_like.sources.caching.cache_options import MISSING, CacheOptions, is_of_user
from dali_like.sources.caching.cached_elements import decode, encode

__all__ = ["SampleCache", "caches_of"]


class SampleCache:
    """The elements of one stage by their keys, with their memory in this process.

    Args:
        options: of the cache.
        length: keys are below this number.
        folder: of the elements on disk; None without one.
        text: name of the stage or operator before the cache, for messages.
        ident: identity in all processes; default: a new one.
    """

    def __init__(
        self, options: CacheOptions, length: int, folder: CacheFolder | None, text: str, ident: int | None = None
    ) -> None:
        self.options = options
        self.length = length
        self.folder = folder
        self.text = text
        self.ident = int.from_bytes(os.urandom(7), "little") + 1 if ident is None else ident
        self._memory: CacheMemory | None = memory_of(self.ident)
        self._lock = threading.Lock()
        _caches[self.ident] = self

    def open(self) -> CacheMemory | None:
        """Return the memory. Create it, if this is the main process; in a foreign worker process, return None."""
        if self._memory is None:
            if get_worker_info() is not None or multiprocessing.parent_process() is not None:
                return None  # such as a worker of PyTorch: a budget for each of them would exceed the user's
            with self._lock:
                if self._memory is None:
                    options = self.options
                    self._memory = CacheMemory.create(
                        self.ident, self.length, options.memory_bytes, replaces=options.replaces
                    )
        return self._memory

    def memories(self) -> tuple[CacheMemory, ...]:
        """Return the memory in a tuple, which is empty without memory. Call it before workers start."""
        memory = self.open()
        return () if memory is None else (memory,)

    def load(self, key: int, epoch: int) -> Any:
        """Return an element from memory or disk; MISSING without an entry. Its arrays are read-only.

        Args:
            key: of the element.
            epoch: for the statistics.
        """
        if not 0 <= key < self.length:
            return MISSING
        memory = self._memory or self.open()
        content = memory.get(key, epoch) if memory is not None and memory.offsets[key] else None
        if content is None and self.folder is not None:
            content = self.folder.read(key)
            if content is not None and memory is not None:
                memory.put(key, epoch, [content], is_disk_hit=True)
        return MISSING if content is None else decode(content)

    def store(self, key: int, epoch: int, element: Any) -> None:
        """Store an element that has been computed.

        Raises:
            SampleTypeError: it cannot be stored.
        """
        if not 0 <= key < self.length:
            return
        parts = encode(element, self.text)
        memory = self._memory or self.open()
        if memory is not None:
            memory.put(key, epoch, parts)
        if self.folder is not None:
            self.folder.write(key, parts)

    def statistics(self) -> CacheStatistics:
        """Return content and accesses of the cache, as the main process knows them."""
        memory = self.open()
        if memory is None:
            return CacheStatistics(0, 0, 0, 0, {})
        return memory.statistics()

    def __reduce__(self) -> Any:
        from multiprocessing import context, reduction  # few programs need it

        memory = self._memory
        inherited = None
        if memory is not None and context.get_spawning_popen() is not None and memory.space.fd.fileno() >= 0:
            inherited = reduction.DupFd(memory.space.fd.fileno()), memory.space.size, memory.space.limit_bytes
        return _sample_cache, (self.options, self.length, self.folder, self.text, self.ident, inherited)


def _sample_cache(
    options: CacheOptions, length: int, folder: CacheFolder | None, text: str, ident: int, inherited: Any
) -> SampleCache:
    known = _caches.get(ident)
    if known is not None:
        return known
    cache = SampleCache(options, length, folder, text, ident)
    if cache._memory is None and inherited is not None:
        fd, size, limit_bytes = inherited
        space = SharedSpace(SharedFile(Descriptor(fd.detach()), size), limit_bytes)
        cache._memory = CacheMemory(space, ident, length, options.memory_bytes, replaces=options.replaces)
    return cache


#: The caches of this process by identity: unpickling a copy gives the cache itself.
_caches: weakref.WeakValueDictionary[int, SampleCache] = weakref.WeakValueDictionary()


def caches_of(dataset: Any) -> Sequence[SampleCache]:
    """Return the caches of a dataset: its attribute `caches`, which other datasets may have for other purposes."""
    caches = getattr(type(dataset), "caches", None)
    return dataset.caches if isinstance(caches, property) and not is_of_user(type(dataset)) else ()
