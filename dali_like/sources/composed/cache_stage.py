"""The cache stage: stores elements in shared memory, and returns them without computing them again.

The stage is invisible in the description of a dataset: the stream is the same with and without it, so checkpoints fit both.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dali_like.errors import ArgumentError
from dali_like.sources.caching.cache_files import CacheFolder
from dali_like.sources.caching.cache_options import MISSING, CacheOptions, is_of_user
from dali_like.sources.caching.element_cache import SampleCache
from dali_like.sources.composed.inputs import Indexed
from dali_like.sources.composed.stage import Place, RandomAccess, SingleInputStage, Stage

__all__ = ["Cache", "caches_of", "check_cacheable", "folder_for"]


@dataclass(frozen=True)
class Cache(SingleInputStage):
    """Stores the elements of its input."""

    cache: SampleCache
    has_line = False

    @property
    def length(self) -> int | None:
        return self.input.length

    @property
    def text(self) -> str:
        return self.input.text

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        return [(epoch, end)]

    def evaluator(self, place: Place) -> RandomAccess:
        source = self.input.evaluator(place)
        assert isinstance(source, RandomAccess)
        return _CacheAccess(self, source)


class _CacheAccess(RandomAccess):
    def __init__(self, stage: Cache, source: RandomAccess) -> None:
        self._source = source
        self._cache = stage.cache
        self.length: int = stage.cache.length

    def at(self, position: int) -> Any:
        epoch, key = divmod(position, self.length)
        element = self._cache.load(key, epoch)
        if element is MISSING:
            element = self._source.at(position)
            self._cache.store(key, epoch, element)
        return element


def caches_of(stage: Stage) -> list[SampleCache]:
    """Return the caches of a stage and of its inputs, each once."""
    own = [stage.cache] if isinstance(stage, Cache) else []
    return list(dict.fromkeys(itertools.chain(own, *(caches_of(part) for part in stage.inputs))))


def check_cacheable(stage: Stage) -> int:
    """Return the number of elements of an epoch, if the element at a position is the same in each epoch.

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
    return stage.length


def folder_for(stage: Stage, options: CacheOptions) -> CacheFolder | None:
    """Return the folder for the elements of a stage; None for a cache in memory only.

    Raises:
        ArgumentError: a stage has a function of the user's, and there is no key; or the folder is not safe.
    """
    inputs = list(_inputs_of(stage))
    return options.folder(
        stage.outline(), lambda: itertools.chain(*map(_files_of, inputs)), "" if _is_of_library(stage) else stage.text
    )


def _is_of_library(stage: Stage) -> bool:
    """Whether neither the stage nor its inputs have a function or a data source of the user's."""
    if isinstance(stage, Indexed):
        return bool(_files_of(stage))
    values = [getattr(stage, each.name) for each in dataclasses.fields(stage)]
    return not any(callable(value) and is_of_user(value) for value in values) and all(map(_is_of_library, stage.inputs))


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
    """Return a random stage among a stage and its inputs, or None."""
    if stage.is_random:
        return stage
    return next(filter(None, map(first_random, stage.inputs)), None)
