"""The disk tier of a cache: a folder with one file for each element, which later runs of the program use again.

A file has a header with a checksum, and behind it the element in the form of
`dali_like.sources.caching.cached_elements`: arrays, no pickle. Any process writes files. A file gets its name when it is
complete, so a killed writer leaves at most a file without a key, which is removed later.

The folder belongs to the user, and nobody else may enter it. A damaged file is treated as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import mmap
import os
import struct
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from dali_like.common.private_folder import make_private_folder

__all__ = ["CacheFolder", "digest_of"]

_log = logging.getLogger("dali_like")

#: Magic bytes, checksum of the rest, key, and size of the content.
_HEADER = struct.Struct("<8sQQQ")
_MAGIC = b"dlcache1"
_FILES_PER_FOLDER = 1000
#: Incomplete files that have not been written to for so long belong to killed processes.
_ABANDONED_S = 3600.0


class CacheFolder:
    """The files of one cache.

    Args:
        path: the folder of all caches that the user has named.
        digest: identity of the elements; each has a folder of its own.
    """

    def __init__(self, path: str, digest: str) -> None:
        self.path = os.path.join(path, digest)
        self._is_full = False

    def prepare(self) -> None:
        """Create the folder, and remove abandoned files.

        Raises:
            ArgumentError: the folder belongs to another user, or others may enter it.
        """
        parent = os.path.dirname(self.path)
        os.makedirs(os.path.dirname(parent), exist_ok=True)
        for path in (parent, self.path):
            make_private_folder(path, "disk")
        for folder, _, names in os.walk(self.path):
            for name in names:
                if name.endswith(".part"):
                    with contextlib.suppress(FileNotFoundError):
                        part = os.path.join(folder, name)
                        if os.stat(part).st_mtime < time.time() - _ABANDONED_S:
                            os.unlink(part)

    def read(self, key: int) -> memoryview | None:
        """Return the content for a key, mapped read-only; None without an undamaged file."""
        try:
            fd = os.open(self._file(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            if os.fstat(fd).st_size < _HEADER.size:
                self._note_damage(key)
                return None
            view = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(fd)
        magic, checksum, stored, nbytes = _HEADER.unpack(view[: _HEADER.size])
        content = view[_HEADER.size :]
        if (magic, stored, nbytes) != (_MAGIC, key, content.nbytes) or zlib.crc32(content) != checksum:
            self._note_damage(key)
            return None
        return content

    def write(self, key: int, parts: Sequence[Any]) -> None:
        """Write the content for a key. Without room on the disk, do nothing from now on."""
        if self._is_full:
            return
        checksum, nbytes = 0, 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
            nbytes += memoryview(part).nbytes
        path = self._file(key)
        partial = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.part"
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(path), 0o700)
            try:
                with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                    file.write(_HEADER.pack(_MAGIC, checksum, key, nbytes))
                    file.writelines(parts)
                os.rename(partial, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial)
                raise
        except OSError as error:  # no room, or a folder that another machine does not have
            self._is_full = True
            _log.warning("the cache in %s stores no more elements on disk: %s", self.path, error)

    def _file(self, key: int) -> str:
        return os.path.join(self.path, str(key // _FILES_PER_FOLDER), f"{key}.entry")

    def _note_damage(self, key: int) -> None:
        _log.warning("%s is damaged, and the element is computed again", self._file(key))


def digest_of(key: str | None, description: Sequence[str], files: Iterable[str]) -> str:
    """Return the identity of cached elements: key, stages, and the sizes and times of the files that they come from."""
    facts: list[Any] = [_MAGIC.decode(), key, list(description)]
    for path in files:
        try:
            status = os.stat(path)
        except OSError:
            facts.append(path)
        else:
            facts.append((path, status.st_size, status.st_mtime_ns))
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()
