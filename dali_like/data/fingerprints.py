"""Detects changes of a dataset whose copies are in kept workers, by a hash of its pickle."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
from collections.abc import Sequence
from typing import Any

from dali_like.sources import by_value

#: Larger arrays are left out: hashing them in each epoch would take too long.
_LEAST_LARGE_BYTES = 1 << 16
#: Larger containers are left out if a part cannot be pickled, for the same reason.
_MOST_PARTS = 1000


def fingerprint_of(value: Any) -> bytes:
    """Return a hash that differs after a change of the value. It ignores parts that cannot be pickled."""
    return _fingerprint_of(value, set())


def _fingerprint_of(value: Any, seen: set[int]) -> bytes:
    digest = _Digest()
    with contextlib.suppress(Exception):  # pickling a user's class may raise any error
        by_value.dump(value, digest, _is_small)
        return digest.value
    if id(value) in seen:
        return b""
    seen.add(id(value))
    return b"".join(_fingerprint_of(part, seen) for part in _parts_of(value))


def _parts_of(value: Any) -> Sequence[Any]:
    """Return the parts of a value that cannot be pickled: its items, or its attributes with their names."""
    if isinstance(value, (list, tuple)):
        return value if len(value) <= _MOST_PARTS else ()
    named = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return list(itertools.chain.from_iterable(named.items())) if len(named) <= _MOST_PARTS else ()


class _Digest:
    """A file that keeps only the hash of its content."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return len(data)

    @property
    def value(self) -> bytes:
        return self._hash.digest()


def _is_small(buffer: pickle.PickleBuffer) -> bool:
    try:
        return buffer.raw().nbytes < _LEAST_LARGE_BYTES
    except BufferError:  # not contiguous
        return True
