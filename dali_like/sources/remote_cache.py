"""The database of a cache of remote files, in which only bytes are believed. Its folder belongs to the user alone."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import diskcache
from diskcache.core import MODE_BINARY, MODE_RAW

from dali_like.common.private_folder import make_private_folder
from dali_like.errors import ArgumentError

__all__ = ["open_cache"]

#: Time that a process waits for another writer of the cache, before it does without.
_TIMEOUT_S = 10.0


class _Bytes(diskcache.Disk):
    """Reads and writes bytes alone. Entries of other kinds, such as pickles, count as missing."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes | None:
        content = super().fetch(mode, filename, value, read) if mode in (MODE_RAW, MODE_BINARY) else None
        return content if isinstance(content, bytes) else None


def open_cache(directory: Path) -> Any:
    """Return the cache in a folder, closed: an open database does not survive a fork.

    Raises:
        ArgumentError: the database is damaged, or the folder belongs to another user, or others may enter it.
    """
    directory = directory.expanduser()
    os.makedirs(directory.parent, exist_ok=True)
    make_private_folder(str(directory), "cache_dir")
    cache = diskcache.Cache.__new__(diskcache.Cache)
    try:
        # No eviction; so the cache needs no search for files to evict.
        cache.__init__(str(directory), timeout=_TIMEOUT_S, disk=_Bytes, eviction_policy="none", cull_limit=0)
    except sqlite3.DatabaseError as error:
        raise ArgumentError(
            f"cache_dir: the cache in {directory} cannot be opened ({error}); if it is damaged, delete the folder"
        ) from error
    finally:
        cache.close()  # a damaged one is open, too
    return cache
