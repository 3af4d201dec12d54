"""Measures loops over PyTorch's own iterators, with the meter of this library's.

The class of an iterator is replaced by a subclass whose `__next__` reads the clock twice. So the iterator stays the same
object and an instance of its class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

from dali_like.common.nesting import leaves_of
from dali_like.data.counters import LoaderCounters
from dali_like.monitor.measure.loops import LoopMeter

__all__ = ["count_batches", "metered", "noted"]


def metered(iterator: Any, loop: LoopMeter, note: Callable[[Any], Any]) -> Any:
    """Let an iterator measure the loop over it.

    Args:
        iterator: one of PyTorch's, or of a subclass.
        loop: the meter.
        note: called with each batch.

    Returns:
        `iterator`.
    """
    if not isinstance(iterator, _Metered):
        iterator.__class__ = _metered_class(cast(Any, type(iterator)))
    iterator._dali_like_meter = loop, note
    return iterator


def noted(iterator: Any, note: Callable[[Any], Any]) -> None:
    """Let an iterator call a function with each batch. Iterators without attributes, such as generators, do not."""
    if not isinstance(iterator, _Noted) and hasattr(iterator, "__dict__"):
        iterator._dali_like_note = note
        iterator.__class__ = _noted_class(cast(Any, type(iterator)))


def count_batches(counters: LoaderCounters, batch_size: int | None) -> Callable[[Any], None]:
    """Return a function that counts a batch and its samples.

    Args:
        batch_size: the number of samples of a batch whose length is not known.
    """

    def count(batch: Any) -> None:
        counters.batches += 1
        counters.samples += 1 if batch_size is None else _length_of(batch) or batch_size

    return count


def _length_of(batch: Any) -> int:
    """Return the number of samples of a batch, as far as its first tensor tells; 0 without a tensor."""
    _, first = next(leaves_of(batch), ("", None))
    return len(first) if isinstance(first, torch.Tensor) and first.ndim else 0


class _Noted:
    """Mark of classes whose iterators call a function with each batch."""

    _dali_like_note: Callable[[Any], Any]


class _Metered:
    """Mark of classes whose iterators measure the loop."""

    _dali_like_meter: tuple[LoopMeter, Callable[[Any], Any]]


@functools.cache
def _metered_class(kind: Any) -> type:
    class Metered(kind, _Metered):
        def __next__(self) -> Any:
            loop, note = self._dali_like_meter
            loop.begin()
            try:
                batch = super().__next__()
            except BaseException as error:
                loop.fail(error)
                raise
            loop.end()
            note(batch)
            return batch

    return _with_names_of(kind, Metered)


@functools.cache
def _noted_class(kind: Any) -> type:
    class Noted(kind, _Noted):
        def __next__(self) -> Any:
            batch = super().__next__()
            self._dali_like_note(batch)
            return batch

    return _with_names_of(kind, Noted)


def _with_names_of(kind: Any, derived: type) -> type:
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(derived, name, getattr(kind, name))
    return derived
