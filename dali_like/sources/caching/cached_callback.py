"""The cache of a source: the function that the engine calls, and the keys of samples.

A key identifies a sample in all epochs. The cache of a source and the operator ``fn.cache`` use the same keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from dali_like.sources.caching.cache_options import MISSING

if TYPE_CHECKING:
    from dali_like.sources.caching.element_cache import SampleCache

__all__ = ["Key", "KeyOf", "PositionKey", "batch_key", "cached_callback", "sample_key"]


#: Identity of a sample, and the epoch in which it is delivered, for the statistics.
Key: TypeAlias = tuple[int, int]


class KeyOf(Protocol):
    """Returns the key of a sample or batch of a source, in any process."""

    def __call__(self, info: Any) -> Key: ...


def sample_key(info: Any) -> Key:
    """Return the key of a sample of a callable: its position in the epoch."""
    return info.idx_in_epoch, info.epoch_idx


def batch_key(info: Any) -> Key:
    """Return the key of a batch of a callable: its number in the epoch."""
    return info.iteration, info.epoch_idx


class PositionKey(NamedTuple):
    """Returns the keys of samples by their position; positions beyond the end are padding."""

    length: int

    def __call__(self, info: Any) -> Key:
        return info.idx_in_epoch % self.length, info.epoch_idx


class _CachedCallback:
    """Calls a source for samples, or batches, that the cache does not have."""

    def __init__(self, callback: Callable[[Any], Any], cache: SampleCache, key_of: KeyOf) -> None:
        self.callback = callback
        self.cache = cache
        self.key_of = key_of

    def __call__(self, info: Any) -> Any:
        key, epoch = self.key_of(info)
        value = self.cache.load(key, epoch)
        if value is MISSING:
            value = self.callback(info)
            self.cache.store(key, epoch, value)
        return value


class _AsyncCachedCallback(_CachedCallback):
    async def __call__(self, info: Any) -> Any:
        key, epoch = self.key_of(info)
        value = self.cache.load(key, epoch)
        if value is MISSING:
            value = await self.callback(info)
            self.cache.store(key, epoch, value)
        return value


def cached_callback(
    callback: Callable[[Any], Any], cache: SampleCache, key_of: KeyOf, *, is_async: bool
) -> Callable[[Any], Any]:
    """Return a callback that calls another one for samples that the cache does not have."""
    return (_AsyncCachedCallback if is_async else _CachedCallback)(callback, cache, key_of)
