"""Iterables as sources: a walk through one, behind the interface of a callback.

The engine asks for samples and batches by their numbers, and may ask twice: a worker that has died leaves what it had to be
done again. An iterator only goes forward. So a `Stream` keeps where it is; asked for what comes later, it skips; asked for
what came before, or for another epoch, it begins anew. In order, it costs one comparison.

Streams run in one process each. A fresh worker has the iterable as it was when the workers were started, and so gets to the
same place.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dali_like.errors import OutputCountError
from dali_like.types import BatchInfo, SampleInfo


class Stream:
    """Calls to it are answered by an iterable.

    Called with a BatchInfo, it gives the item whose number is ``iteration``; with a SampleInfo, that of ``idx_in_epoch``.

    Args:
        iterate: begins a walk. What goes through an iterator that cannot begin anew is the rest of it.
    """

    def __init__(self, iterate: Callable[[], Iterator[Any]]) -> None:
        self.iterate = iterate
        self._iterator: Iterator[Any] | None = None
        self._epoch = 0
        self._position = 0  # of the item that comes next
        self._put_back: list[Any] = []

    def __call__(self, info: BatchInfo | SampleInfo) -> Any:
        position = info.idx_in_epoch if isinstance(info, SampleInfo) else info.iteration
        if self._iterator is None or info.epoch_idx != self._epoch or position < self._position:
            self._put_back.clear()
            self._iterator, self._epoch, self._position = self.iterate(), info.epoch_idx, 0
        while self._position < position:
            with contextlib.suppress(Exception):  # raised when it was that item's turn
                self._next(self._iterator)
        return self._next(self._iterator)

    def put_back(self, item: Any) -> None:
        """The item that was taken last could not be used, and will be asked for again."""
        self._position -= 1
        self._put_back.append(item)

    def _next(self, iterator: Iterator[Any]) -> Any:
        self._position += 1  # even if it raises
        return self._put_back.pop() if self._put_back else next(iterator)


class Walk:
    """Begins walks through a source: an iterable, or a function that returns one.

    Args:
        source: what to walk through.
        is_function: whether it is called first.
        endless: begin again at the end, for ever; unless there is nothing.
    """

    def __init__(self, source: Any, *, is_function: bool, endless: bool) -> None:
        self._source = source
        self._is_function = is_function
        self._endless = endless

    def __call__(self) -> Iterator[Any]:
        if not self._endless:
            return self._begin()
        return itertools.chain.from_iterable(iter(self._begin_unless_empty, None))

    def _begin(self) -> Iterator[Any]:
        iterable: Iterable[Any] = self._source() if self._is_function else self._source
        return iter(iterable)

    def _begin_unless_empty(self) -> Iterator[Any] | None:
        walk = self._begin()
        try:
            first = next(walk)
        except StopIteration:
            return None
        return itertools.chain((first,), walk)


class Once:
    """Begins a walk once. Whoever asks again gets what is left: of an iterator, nothing that has been taken."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self._walk: Iterator[Any] | None = None

    def __call__(self) -> Iterator[Any]:
        if self._walk is None:
            self._walk = self._begin()
        return self._walk


class Grouped:
    """Walks through an iterable of samples, batch by batch.

    Args:
        begin: begins a walk through samples.
        size: samples in a batch.
        num_outputs: how many outputs a sample has; None where it is the output itself.
        drop_last: whether a batch that cannot be filled is dropped.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], size: int, num_outputs: int | None, *, drop_last: bool) -> None:
        self._begin = begin
        self._size = size
        self._num_outputs = num_outputs
        self._drop_last = drop_last

    def __call__(self) -> Iterator[Any]:
        return map(self._transpose, iter(functools.partial(self._take, self._begin()), None))

    def _take(self, samples: Iterator[Any]) -> list[Any] | None:
        batch = list(itertools.islice(samples, self._size))
        return batch if batch and (len(batch) == self._size or not self._drop_last) else None

    def _transpose(self, batch: list[Any]) -> Any:
        if self._num_outputs is None:
            return batch
        counts = {len(sample) if isinstance(sample, (tuple, list)) else 1 for sample in batch}
        if counts != {self._num_outputs}:
            raise OutputCountError(
                f"a source with num_outputs={self._num_outputs} returned samples of {sorted(counts)} outputs; each must be "
                f"a tuple or list of {self._num_outputs}"
            )
        return tuple(zip(*batch, strict=True))
