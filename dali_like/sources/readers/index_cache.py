"""Indexes that readers build, stored for later runs.

An index is stored beside its file, as ``.name.index``, or in the user's cache if that folder is read-only or remote:
``$XDG_CACHE_HOME/dali_like``, or ``~/.cache/dali_like``. It holds the size and the time of change of its file. If these
differ, the index is built again. Indexes of URLs hold the size alone, so files of stores must not change under their name.
Processes may build and store the same index at the same time: it appears at once, as a whole. Readers of a pipeline from an
untrusted text store no indexes.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import zlib
from collections.abc import Callable
from typing import TypeVar

from dali_like.sources.readers.stored_files import StoredFiles, is_url, shown

logger = logging.getLogger("dali_like")

Index = TypeVar("Index")

#: Version of the format.
_VERSION = 1


def cached_index(
    files: StoredFiles, path: str, kind: str, build: Callable[[], bytes], parse: Callable[[bytes], Index]
) -> Index:
    """Return the index of a file: the stored one, or else a new one, which is stored.

    Anyone who can write beside the file can replace the index. So it contains no code, and one that `parse` refuses is built
    again.

    Args:
        files: to read the file with.
        path: path or URL of the file.
        kind: of index, a word.
        build: returns the index.
        parse: returns the contents of an index. Raises an arithmetic, lookup, type or value error for other bytes.

    Raises:
        MissingFileError, FileReadError: the file does not exist, or cannot be read.
        Exception: an exception of `build`.
    """
    key = f"dali_like index {_VERSION} {kind} {files.version(path)}"
    places = _places(path)
    for place in places:
        stored = _stored(place, key)
        if stored is not None:
            try:
                return parse(stored)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                logger.warning("the index %s of %s is damaged: %s", shown(place), shown(path), str(error))
    logger.info("building the index of %s", shown(path))
    index = build()
    for place in places if files.stores_indexes else ():
        try:
            _store(place, key, index)
        except OSError as error:
            logger.info("cannot store the index of %s in %s: %s", shown(path), shown(place), error)
        else:
            break
    return parse(index)


def _places(path: str) -> list[str]:
    """Return the places where the index of a file may be stored."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    whole = path if is_url(path) else os.path.abspath(path)
    in_cache = os.path.join(cache, "dali_like", f"{hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]}.index")
    if is_url(path):
        return [in_cache]
    folder, name = os.path.split(path)
    return [os.path.join(folder, f".{name}.index"), in_cache]


def _stored(place: str, key: str) -> bytes | None:
    """Return the stored index; None if it is missing, damaged or of another version of the file."""
    try:
        with open(place, "rb") as file:
            content = file.read()
    except OSError:
        return None
    head, _, index = content.partition(b"\n")
    return index if head == _head(key, index) else None


def _store(place: str, key: str, index: bytes) -> None:
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    unfinished = f"{place}.{secrets.token_hex(4)}"
    try:
        with open(unfinished, "xb") as file:
            file.write(_head(key, index) + b"\n" + index)
        os.replace(unfinished, place)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _head(key: str, index: bytes) -> bytes:
    return f"{key} {zlib.crc32(index)}".encode()
