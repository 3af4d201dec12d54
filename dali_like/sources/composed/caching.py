"""The cache stage: stores elements in shared memory, and returns them without computing them again.

The stage is invisible in the description of a dataset: the stream is the same with and without it, so checkpoints fit both.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.sample_cache import CacheMemory, CacheStatistics, memory_of
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.info import get_worker_info
from dali_like.errors import ArgumentError
from dali_like.sources.composed.cache_files import CacheFolder, digest_of
from dali_like.sources.composed.cached_elements import decode, encode
from dali_like.sources.composed.inputs import Indexed
from dali_like.sources.composed.stage import Place, RandomAccess, Stage

__all__ = ["Cache", "SampleCache", "caches_of", "check_cacheable"]


@dataclass(frozen=True)
class CacheOptions:
    """Options of a cache.

    Attributes:
        memory_bytes: budget of the entries in memory.
        replaces: whether the least recently used entries are replaced.
        folder: of the entries on disk; None without them.
    """

    memory_bytes: int
    replaces: bool
    folder: CacheFolder | None = None


class SampleCache:
    """A cache of one stage, with its memory in this process. Copies in workers have the same memory.

    Args:
        options: of the cache.
        length: elements of an epoch.
        ident: identity in all processes; default: a new one.
    """

    def __init__(self, options: CacheOptions, length: int, ident: int | None = None) -> None:
        self.options = options
        self.length = length
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
                    self._memory = CacheMemory.create(
                        self.ident, self.length, self.options.memory_bytes, replaces=self.options.replaces
                    )
        return self._memory

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
        return _sample_cache, (self.options, self.length, self.ident, inherited)


def _sample_cache(options: CacheOptions, length: int, ident: int, inherited: Any) -> SampleCache:
    known = _caches.get(ident)
    if known is not None:
        return known
    cache = SampleCache(options, length, ident)
    if cache._memory is None and inherited is not None:
        fd, size, limit_bytes = inherited
        space = SharedSpace(Descriptor(fd.detach()), size, limit_bytes)
        cache._memory = CacheMemory(space, ident, length, options.memory_bytes, replaces=options.replaces)
    return cache


#: The caches of this process by identity: unpickling a copy gives the cache itself.
_caches: weakref.WeakValueDictionary[int, SampleCache] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Cache(Stage):
    """Stores the elements of its input."""

    input: Stage
    cache: SampleCache

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.input,)

    @property
    def length(self) -> int | None:
        return self.input.length

    @property
    def text(self) -> str:
        return self.input.text

    def outline(self, indent: str = "") -> list[str]:
        return self.input.outline(indent)

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        return [(epoch, end)]

    def evaluator(self, place: Place) -> RandomAccess:
        source = self.input.evaluator(place)
        assert isinstance(source, RandomAccess)
        return _CacheAccess(self, source)


class _CacheAccess(RandomAccess):
    def __init__(self, stage: Cache, source: RandomAccess) -> None:
        self._stage, self._source = stage, source
        self._cache = stage.cache
        self.length: int = stage.cache.length

    def at(self, position: int) -> Any:
        memory, folder = self._cache.open(), self._cache.options.folder
        epoch, key = divmod(position, self.length)
        content = None if memory is None else memory.get(key, epoch)
        if content is not None:
            return decode(content)
        content = None if folder is None else folder.read(key)
        if content is not None:
            if memory is not None:
                memory.put(key, epoch, [content], is_disk_hit=True)
            return decode(content)
        element = self._source.at(position)
        parts = encode(element, self._stage.input.text)
        if memory is not None:
            memory.put(key, epoch, parts)
        if folder is not None:
            folder.write(key, parts)
        return element


def caches_of(stage: Stage) -> list[SampleCache]:
    """Return the caches of a stage and of its inputs, each once."""
    own = [stage.cache] if isinstance(stage, Cache) else []
    return list(dict.fromkeys(itertools.chain(own, *(caches_of(part) for part in stage.inputs))))


def check_cacheable(stage: Stage) -> None:
    """Check that the element at a position is the same in each epoch.

    Raises:
        ArgumentError: it is not, or positions have no random access.
    """
    if stage.is_sharded:
        raise ArgumentError(
            f"{stage.text} runs in logical shards, where a cache cannot know which elements come next. Call cache() before "
            "the stage with an unknown yield, such as filter"
        )
    if stage.length is None:
        raise ArgumentError(f"{stage.text} is endless: call cache() before repeat()")
    random = first_random(stage)
    if random is not None:
        raise ArgumentError(
            f"cache() is behind the random stage {random.text}: its elements would be the same in each epoch. Call cache() "
            "before that stage"
        )


def folder_for(stage: Stage, path: str, key: str) -> CacheFolder:
    """Return the folder for the elements of a stage.

    Raises:
        ArgumentError: the folder is not safe.
    """
    folder = CacheFolder(path, digest_of(key, stage.outline(), itertools.chain(*map(_files_of, _inputs_of(stage)))))
    folder.prepare()
    return folder


def _inputs_of(stage: Stage) -> Iterator[Indexed]:
    if isinstance(stage, Indexed):
        yield stage
    for part in stage.inputs:
        yield from _inputs_of(part)


def _files_of(stage: Indexed) -> Sequence[str]:
    """Return the files of an input, or a list of texts, which may be names of files."""
    if stage.paths:
        return stage.paths
    if isinstance(stage.source, (list, tuple)) and all(isinstance(item, (str, os.PathLike)) for item in stage.source):
        return [os.fspath(item) for item in stage.source]
    return ()


def first_random(stage: Stage) -> Stage | None:
    """Return a random stage among a stage and its inputs; None if there is none."""
    if stage.is_random:
        return stage
    return next(filter(None, map(first_random, stage.inputs)), None)
