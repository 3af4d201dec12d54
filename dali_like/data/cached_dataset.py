"""A cache around a map-style dataset."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any

from dali_like.common.suggestions import suggest_arguments
from dali_like.engine.memory.sample_cache import CacheMemory
from dali_like.errors import ArgumentError
from dali_like.sources.caching.element_cache import SampleCache
from dali_like.sources.composed.dataset import ComposedDataset

__all__ = ["CachedDataset"]


class CachedDataset:
    """A map-style dataset whose samples are computed once, and stored in memory that all workers share.

    Use it with any sampler: ``DataLoader(CachedDataset(dataset, "16GiB"), shuffle=True, num_workers=8)``. Arrays of cached
    samples are read-only. A random transform inside the dataset would be stored with its sample: apply it behind the cache,
    in a dataset around this one, or with `ComposedDataset`.

    Args:
        dataset: has ``__getitem__`` for the indices 0, 1 and so on, and ``__len__``, which does not change.
        memory, disk, key, policy: see `ComposedDataset.cache`.

    Raises:
        ArgumentTypeError, ArgumentError: as for `ComposedDataset.source` and `ComposedDataset.cache`.
    """

    @suggest_arguments
    def __init__(
        self,
        dataset: Any,
        memory: int | str | None = None,
        *,
        disk: str | os.PathLike[str] | None = None,
        key: str | None = None,
        policy: str = "keep",
    ) -> None:
        if not len(dataset):
            raise ArgumentError("the dataset is empty: there is nothing to cache")
        self.dataset = dataset
        self._cached = ComposedDataset.source(dataset).cache(memory, disk=disk, key=key, policy=policy)
        self._length = len(dataset)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Return a sample.

        Raises:
            IndexError: there is no such index.
        """
        return self._cached[range(self._length)[operator.index(index)]]

    @property
    def caches(self) -> Sequence[SampleCache]:
        """The cache, in a list, as `ComposedDataset.caches`."""
        return self._cached.caches

    def cache_memories(self) -> tuple[CacheMemory, ...]:
        """Return the memory of the cache. Call it before workers start, which inherit the memory."""
        return self._cached.cache_memories()
