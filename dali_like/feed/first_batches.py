"""Notice workers that deliver the same items: each walks over a whole iterable, instead of its part of it.

That is the most common mistake with iterable datasets. Runs in the main process, for the first batches of a program only.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from dali_like.common.nesting import leaves_of
from dali_like.common.notices import warn

#: Batches of each worker that are compared, and rows of each array in them. Batches that do not differ from each other, such
#: as zeros, tell nothing.
_BATCHES, _ROWS = 2, 4
#: Batches of each worker after which the search ends, although some workers may have delivered fewer.
_MOST_BATCHES = 8


class FirstBatches:
    """Compares the first batches of all workers, by digests of their content. Warns, once, if two workers deliver the same.

    Args:
        num_workers: number of workers.
        name: of the source or dataset, for the warning.

    Attributes:
        is_done: whether further batches are not needed.
        num_rows: number of rows of each array that are compared.
    """

    num_rows = _ROWS

    def __init__(self, num_workers: int, name: str) -> None:
        self._name = name
        self._digests: dict[int, list[bytes]] = {}
        self._num_left = _MOST_BATCHES * num_workers
        self.is_done = num_workers < 2

    def note(self, worker: int, batch: Any) -> None:
        """Record the next batch of a worker."""
        self._num_left -= 1
        self.is_done = self._num_left <= 0
        digests = self._digests.setdefault(worker, [])
        if len(digests) == _BATCHES:
            return
        digest = _digest(batch)
        if digest is None or digest in digests:
            self.is_done = True  # the content tells nothing
            return
        digests.append(digest)
        if len(digests) < _BATCHES:
            return
        others = [other for other, found in self._digests.items() if other != worker and found == digests]
        if others:
            self.is_done = True
            first, second = sorted((others[0], worker))
            warn(
                f"{self._name}: the first batches of workers {first} and {second} have the same content. Each worker "
                "iterates over all items, so the program gets them several times. Let __iter__ yield the worker's part: "
                "info = get_worker_info(), then itertools.islice(items, info.id, None, info.num_workers)",
                UserWarning,
            )


def _digest(batch: Any) -> bytes | None:
    """Return a digest of the texts, numbers, and first rows of the arrays in a batch; None if it has anything else."""
    content = hashlib.blake2b(digest_size=16)
    for path, value in leaves_of(batch):
        if isinstance(value, (str, bytes, bool, int, float, type(None))):
            data: bytes = repr(value).encode("utf-8", "surrogatepass")
        elif (array := _array_of(value)) is not None:
            data = np.ascontiguousarray(array[:_ROWS] if array.ndim else array).tobytes()
        else:
            return None
        content.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogatepass"))
        content.update(data)
    return content.digest()


def _array_of(value: Any) -> np.ndarray[Any, Any] | None:
    try:
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    except Exception:  # objects of users may raise anything
        return None
    return None if array.dtype.kind == "O" else array
