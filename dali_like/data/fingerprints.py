"""Whether copies of a dataset are still like the original: by a hash of its pickle, which itself is not kept."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
from collections.abc import Sequence
from typing import Any

from dali_like.sources import by_value

#: Arrays of at least so many bytes are left out: looking through them at each epoch would take too long.
_LEAST_LARGE_BYTES = 1 << 16
#: Containers of more parts are left out if one of them cannot be pickled, for the same reason.
_MOST_PARTS = 1000


def fingerprint_of(value: Any) -> bytes:
    """What is different when something in a value has changed, but for what cannot be pickled."""
    return _fingerprint_of(value, set())


def _fingerprint_of(value: Any, seen: set[int]) -> bytes:
    digest = _Digest()
    with contextlib.suppress(Exception):  # whatever a user's class raises when it is pickled
        by_value.dump(value, digest, _is_small)
        return digest.value
    if id(value) in seen:
        return b""
    seen.add(id(value))
    return b"".join(_fingerprint_of(part, seen) for part in _parts_of(value))


def _parts_of(value: Any) -> Sequence[Any]:
    """What can be looked at separately of something that cannot be pickled: attributes and items, and their names."""
    if isinstance(value, (list, tuple)):
        return value if len(value) <= _MOST_PARTS else ()
    named = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return list(itertools.chain.from_iterable(named.items())) if len(named) <= _MOST_PARTS else ()


class _Digest:
    """A file of which only a hash is kept."""

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
