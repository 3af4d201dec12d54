"""Iterables as sources: a walk through one, behind the interface of a callback.

The engine asks for samples and batches by their numbers, and may ask twice: for what it had no room for, and for what a
worker that has died leaves to be done again. An iterator only goes forward. So a `Stream` keeps where it is; asked for what
comes later, it skips; asked for what came before, or for another epoch, it begins anew, or says that it cannot. In order, it
costs one comparison.

Streams run in one process each, or in one thread. A fresh worker process has the iterable as it was when the workers were
started, and so gets to the same place.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from types import NoneType
from typing import Any

from dali_like.engine.worker.iterable_states import StateRecorder, check_saved, knows_its_state
from dali_like.errors import CheckpointError, LostItemError, OutputCountError
from dali_like.types import BatchInfo, SampleInfo


class Stream:
    """Calls to it are answered by an iterable.

    Called with a BatchInfo, it gives the item whose number is ``iteration``; with a SampleInfo, that of ``idx_in_epoch``.

    Args:
        begin: begins a walk.
        once: what has been taken cannot be had again, at least not in this process: there is one walk for all epochs.
        owner: what is walked through, if it knows its state.

    Attributes:
        on_skip: called for each item that is taken only to get past it.
        length: beyond so many items, the first ones are meant again; None: there is nothing beyond the end.
        recorder: takes note of the states that it has had.
        sender: adds these to the items, which are batches; see `dali_like.engine.worker.state_sender`.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], *, once: bool = False, owner: Any = None) -> None:
        self.begin = begin
        self.once = once
        self.owner = owner
        self.length: int | None = None
        self.recorder: StateRecorder | None = None
        self.sender: Any = None
        self._saved: dict[str, Any] | None = None
        self.on_skip: Callable[[], None] | None = None
        self._iterator: Iterator[Any] = iter(())
        self._epoch: int | None = None  # before the first walk
        self._position = 0  # of the item that comes next
        self._end: int | None = None  # from here on, up to that position, there was no item
        self._given = 0  # the position of the item that was given last
        self._put_back: dict[int, Any] = {}

    def __call__(self, info: BatchInfo | SampleInfo) -> Any:
        position = info.idx_in_epoch if isinstance(info, SampleInfo) else info.iteration
        if self.length is not None:
            position %= self.length
        if self._saved is not None:
            self._go_on(info.epoch_idx, position)
        self._given = position
        if position in self._put_back and (self.once or info.epoch_idx == self._epoch):
            return self._put_back.pop(position)  # what the state was before it has been noted
        if self.recorder is not None:
            self.recorder.note(info)
        state = None if self.sender is None else self.sender.text_of(self.save())
        if self._epoch is None or (info.epoch_idx != self._epoch and not self.once):
            self._begin_walk(info.epoch_idx)
        if position < self._position:
            if self._end is not None and position >= self._end:
                raise StopIteration
            if self.once:
                raise LostItemError(
                    f"item {position} of an iterator is gone: an interrupt has cost it, another pipeline has it, or it was "
                    f"taken before a state was loaded. It cannot go back, and the next is item {self._position}"
                )
            self._begin_walk(info.epoch_idx)
        try:
            item = self._go_to(position)
            return item if state is None else self.sender.with_state(item, state)
        except BaseException as error:
            if not (self.once or isinstance(error, Exception)):
                self._epoch = None  # an interrupt ends a generator
            raise

    def for_thread(self) -> Stream:
        """One that has not begun, for a thread of its own; where there is one walk for all, this one."""
        if self.once:
            return self
        if self.sender is not None and self._saved is None:
            self._saved = self.save()  # which threads share: who takes the place of another begins where that began
        stream = Stream(self.begin, owner=self.owner)
        stream.length, stream.sender, stream._saved = self.length, self.sender, self._saved
        return stream

    def put_back(self, item: Any) -> None:
        """What was given last could not be used, and will be asked for again, though maybe not at once."""
        self._put_back[self._given] = item

    def save(self) -> dict[str, Any]:
        """Where it is, and the state of the iterator or else of the iterable, in the form that `restore` takes."""
        if self._saved is not None:
            return self._saved  # nobody has asked for anything since
        by_iterator = knows_its_state(self._iterator)
        knower: Any = self._iterator if by_iterator else self.owner
        return {
            "epoch": self._epoch,
            "position": self._position,
            "end": self._end,
            "of_iterator": by_iterator,
            "state": knower.state_dict() if knower is not None else None,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `save` has returned, as soon as something is asked for.

        Raises:
            CheckpointError: it has not returned that.
        """
        numbers = {"epoch": (int, NoneType), "position": int, "end": (int, NoneType)}
        check_saved(saved, {**numbers, "of_iterator": bool, "state": object})
        if not saved["of_iterator"] and self.owner is None:
            raise CheckpointError(
                "the checkpoint has the state of an iterable; in this pipeline it has no load_state_dict()"
            )
        self._saved = saved

    def forget(self) -> None:
        """Begin anew with what is asked for next, if that can be."""
        self._saved = None
        if not self.once:
            self._iterator, self._epoch, self._position, self._end = iter(()), None, 0, None

    def _go_on(self, epoch: int, position: int) -> None:
        saved, self._saved = self._saved, None
        assert saved is not None
        if saved["state"] is None:
            return
        is_of_epoch = self.once or saved["epoch"] == epoch
        is_beyond = is_of_epoch and saved["end"] is not None and position >= saved["end"]
        is_on_the_way = is_of_epoch and saved["position"] <= position and not is_beyond
        if not saved["of_iterator"] and (is_on_the_way or is_beyond or not is_of_epoch):
            self.owner.load_state_dict(saved["state"])
        if is_beyond:
            self._iterator, self._epoch, self._position, self._end = iter(()), epoch, saved["position"], saved["end"]
        if not is_on_the_way:
            return  # an epoch that has ended, or a place before: it is walked to
        self._begin_walk(epoch)
        if saved["of_iterator"]:
            knower: Any = self._iterator
            if not knows_its_state(knower):
                raise CheckpointError("the checkpoint has the state of an iterator; this one has no load_state_dict()")
            knower.load_state_dict(saved["state"])
        self._position = saved["position"]

    def _begin_walk(self, epoch: int) -> None:
        self._put_back.clear()
        self._iterator, self._epoch, self._position, self._end = self.begin(), epoch, 0, None

    def _go_to(self, position: int) -> Any:
        while self._position < position:
            if self.on_skip is not None:
                self.on_skip()
            with contextlib.suppress(Exception):  # raised when it was that item's turn
                self._take()
        return self._take()

    def _take(self) -> Any:
        position, end = self._position, self._end
        self._position, self._end = position + 1, None  # even if it raises
        try:
            return next(self._iterator)
        except StopIteration:
            self._end = position if end is None else end
            raise


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
        return _Endless(self._begin) if self._endless else self._begin()

    def _begin(self) -> Iterator[Any]:
        iterable: Iterable[Any] = self._source() if self._is_function else self._source
        return iter(iterable)


class _Endless:
    """One walk after the other, until there is one without items."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self._walk = begin()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with contextlib.suppress(StopIteration):
            return next(self._walk)
        self._walk = self._begin()
        return next(self._walk)


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
        for sample in batch:
            if not isinstance(sample, (tuple, list)) or len(sample) != self._num_outputs:
                what = f"a {type(sample).__qualname__}"
                what += f" of {len(sample)}" if isinstance(sample, (tuple, list)) else ""
                raise OutputCountError(
                    f"an iterable has returned {what}; with num_outputs={self._num_outputs} a sample is a tuple or list of "
                    f"{self._num_outputs} arrays"
                )
        return tuple(zip(*batch, strict=True))
