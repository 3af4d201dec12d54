"""A sample cache: finds and stores the elements of one stage, source or operator.

The main process owns the memory. Copies of a cache in workers map the same memory.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dali_like.common.checks import byte_size, one_of
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.sample_cache import CacheMemory, CacheStatistics, memory_of
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.info import get_worker_info
from dali_like.errors import ArgumentError
from dali_like.sources.caching.cache_files import CacheFolder, digest_of
from dali_like.sources.caching.cached_elements import decode, encode

__all__ = ["MISSING", "UNKNOWN_LENGTH", "CacheOptions", "SampleCache", "is_of_user"]

#: Result of `SampleCache.load` without an entry.
MISSING: Any = object()
#: Keys of a cache where the number of samples is unknown. An index of that length touches only the pages of used keys.
UNKNOWN_LENGTH = 1 << 24


@dataclass(frozen=True)
class CacheOptions:
    """Options of a cache, as the user gives them.

    Attributes:
        memory_bytes: budget of the entries in memory; 0: only on disk.
        replaces: whether the least recently used entries are replaced.
        disk: absolute path of the folder on disk; None: only in memory.
        key: version of the user's functions.
    """

    memory_bytes: int
    replaces: bool
    disk: str | None
    key: str | None

    @classmethod
    def of(
        cls,
        memory: int | str | None = None,
        disk: str | os.PathLike[str] | None = None,
        key: str | None = None,
        policy: str = "keep",
    ) -> CacheOptions:
        """Check the arguments of a cache.

        Raises:
            ArgumentError: an argument has an unknown value, or there is neither memory nor a folder.
        """
        replaces = one_of("policy", policy, ("keep", "lru")) == "lru"
        if memory is None and disk is None:
            raise ArgumentError('a cache needs memory="1GiB", or disk="folder", or both')
        memory_bytes = 0 if memory is None else byte_size("memory", memory)
        return cls(memory_bytes, replaces, None if disk is None else os.path.abspath(disk), key or None)

    def folder(self, description: Iterable[str], files: Callable[[], Iterable[str]], function: str) -> CacheFolder | None:
        """Return the folder of the elements on disk; None without one.

        Args:
            description: of everything that the elements depend on, except for functions and files.
            files: returns the paths of the input files.
            function: name of a function of the user's that the elements depend on; empty if there is none.

        Raises:
            ArgumentError: there is a function and no key; or others may enter the folder.
        """
        if self.disk is None:
            return None
        if function and self.key is None:
            raise ArgumentError(
                f"a cache on disk behind {function} cannot see changes of that function. Pass a key for this version of it, "
                'and another one after each change: key="decode-1"'
            )
        folder = CacheFolder(self.disk, digest_of(self.key, list(description), files()))
        folder.prepare()
        return folder


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

    def load(self, key: int, epoch: int) -> Any:
        """Return an element from memory or disk; MISSING without an entry. Its arrays are read-only.

        Args:
            key: of the element.
            epoch: for the statistics.
        """
        if not 0 <= key < self.length:
            return MISSING
        memory = self.open()
        content = None if memory is None else memory.get(key, epoch)
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
        memory = self.open()
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
        from multiprocessing import context, reduction  # noqa: PLC0415  # few programs need it

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
        space = SharedSpace(Descriptor(fd.detach()), size, limit_bytes)
        cache._memory = CacheMemory(space, ident, length, options.memory_bytes, replaces=options.replaces)
    return cache


#: The caches of this process by identity: unpickling a copy gives the cache itself.
_caches: weakref.WeakValueDictionary[int, SampleCache] = weakref.WeakValueDictionary()


def is_of_user(function: Any) -> bool:
    """Whether a function or an object is not of this library."""
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(module).partition(".")[0] != __name__.partition(".")[0]
