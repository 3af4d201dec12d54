"""Options of sample caches, and caches that are made when a pipeline is built.

Every pipeline imports this module, so it imports neither caches nor files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dali_like.common.arguments import checked
from dali_like.common.checks import byte_size, choice, or_none
from dali_like.errors import ArgumentError

if TYPE_CHECKING:
    from dali_like.sources.caching.cache_files import CacheFolder
    from dali_like.sources.caching.element_cache import SampleCache

__all__ = ["MISSING", "CacheOptions", "DeferredCache", "is_of_user"]

#: Result of `SampleCache.load` without an entry.
MISSING: Any = object()
#: Keys of a cache where the number of samples is unknown. An index of that length touches only the pages of used keys.
_MOST_KEYS = 1 << 24


class CacheOptions(NamedTuple):
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
    @checked
    def of(
        cls,
        *,
        memory: Annotated[int | str | None, or_none(byte_size)] = None,
        disk: str | os.PathLike[str] | None = None,
        key: str | None = None,
        policy: Annotated[str, choice("keep", "lru")] = "keep",
    ) -> CacheOptions:
        """Check the arguments of a cache.

        Raises:
            ArgumentError: an argument has an unknown value, or there is neither memory nor a folder.
        """
        if memory is None and disk is None:
            raise ArgumentError('a cache needs memory="1GiB", or disk="folder", or both')
        memory_bytes = 0 if memory is None else int(memory)  # in bytes, after the check
        return cls(memory_bytes, policy == "lru", None if disk is None else os.path.abspath(disk), key or None)

    def folder(self, description: Iterable[str], files: Callable[[], Iterable[str]], function: str) -> CacheFolder | None:
        """Return the folder of the elements on disk; None without one.

        Args:
            description: of everything that the elements depend on, except for functions and files.
            files: returns the paths of the input files.
            function: name of a function of the user's that the elements depend on, or an empty text.

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
        from dali_like.sources.caching.cache_files import CacheFolder, digest_of  # few caches are on disk

        folder = CacheFolder(self.disk, digest_of(self.key, list(description), files()))
        folder.prepare()
        return folder


class DeferredCache:
    """A cache that is made when the pipeline is built. Only then, the number of samples and their files are known.

    Args:
        options: of the cache.
        text: name of the stage or operator before the cache, for messages.

    Attributes:
        cache: the cache; None before `make`.
    """

    def __init__(self, options: CacheOptions, text: str) -> None:
        self.options = options
        self.text = text
        self.cache: SampleCache | None = None

    def make(
        self, length: int | None, description: Iterable[str], files: Callable[[], Iterable[str]], function: str
    ) -> SampleCache:
        """Return the cache. The first call makes it.

        Args:
            length: number of samples; None: unknown.
            description, files, function: see `CacheOptions.folder`.

        Raises:
            ArgumentError: see `CacheOptions.folder`.
        """
        if self.cache is None:
            from dali_like.sources.caching.element_cache import SampleCache  # see this module

            folder = self.options.folder(description, files, function)
            self.cache = SampleCache(self.options, _MOST_KEYS if length is None else length, folder, self.text)
        return self.cache


def is_of_user(function: Any) -> bool:
    """Whether a function or an object is not of this library."""
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(module).partition(".")[0] != __name__.partition(".")[0]
