"""Iterables as sources: how they are walked, and how their state travels.

An iterator only moves forward, but the main process asks for items by number. It may ask twice: after a shortage of memory,
or after the death of a worker. A `Walk` is one pass over an iterable. It skips forward to the requested step, and keeps
results that found no room. The workers of pipelines and of loaders both use it; so do pipelines and loaders in the main
process. Each process, and each worker thread, has walks of its own.

State travels with requests and batches. The iterator of a walk, or else the iterable, may have ``state_dict()`` and
``load_state_dict(state)``:

1. The worker asks for the state at each batch whose request wants one, and returns it with the batch. Pipelines report the
   state *before* the batch, since an epoch can end or be cut short at any batch; it lies at the start of the task's region.
   Loaders report the state *behind* the batch, in its message.
2. The main process keeps reported states for checkpoints, and sends the latest with each request. It never asks a worker.
3. A worker normally ignores that state. It resumes from it when it is new, or when the main process has loaded a checkpoint
   since. Then it skips forward from the state's position to the requested one.

Without a state, a new worker starts with the iterable as it was when the workers were started, and skips from the beginning.
`Stream` does this for pipelines, `dali_like.data.fetcher.Fetcher` for loaders.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dali_like.common.foreign_errors import is_a
from dali_like.common.user_objects import is_stateful, next_items
from dali_like.errors import CheckpointError, LostItemError, OutputCountError
from dali_like.types import BatchInfo, SampleInfo

#: A request begins with its generation, see `Stream.heed`, and whether the answer carries a state. The JSON text of a state
#: may follow.
_REQUEST = struct.Struct("<q?")


class Walk:
    """One pass over an iterable, in numbered steps.

    Attributes:
        items: the iterator.
        position: number of the next step.
        end: the first step that found nothing, if no step behind it has found anything; otherwise None.
        unplaced: results that found no room, by the number of their step. They are requested again.
    """

    def __init__(self, items: Iterator[Any], position: int = 0, end: int | None = None) -> None:
        self.items = items
        self.position = position
        self.end = end
        self.unplaced: dict[int, Any] = {}

    def step(self, position: int, take: Callable[[], Any], on_skip: Callable[[], None] | None = None) -> Any:
        """Return the result of ``take()`` at a position, which must not lie before that of the walk.

        Steps before it are skipped. Their exceptions are dropped: they have been raised when those steps were requested.

        Args:
            take: carries out the next step, and advances the walk.
            on_skip: called before each skipped step.
        """
        while self.position < position:
            if on_skip is not None:
                on_skip()
            with contextlib.suppress(Exception):
                take()
        return take()

    def take(self) -> Any:
        """Return the next item. The walk advances even if the iterator raises."""
        position, end = self.position, self.end
        self.position, self.end = position + 1, None
        try:
            return next(self.items)
        except StopIteration:
            self.end = position if end is None else end
            raise

    def state(self, owner: Any) -> dict[str, Any]:
        """Return the state at this position.

        Args:
            owner: the iterable, if it is stateful. It is asked if the iterator is not.
        """
        of_iterator = is_stateful(self.items)
        asked: Any = self.items if of_iterator else owner
        return {"of_iterator": of_iterator, "state": None if asked is None else asked.state_dict()}


def resume(begin: Callable[[], Iterator[Any]], owner: Any, saved: dict[str, Any], *, ended: bool) -> Iterator[Any]:
    """Load a state that `Walk.state` has returned, and return an iterator that continues there.

    Args:
        begin: begins a walk.
        owner: the iterable; must be stateful if the state is not of the iterator.
        ended: whether that walk had ended: then the iterator is empty.

    Raises:
        CheckpointError: the state is of an iterator, and this one is not stateful.
    """
    if not saved["of_iterator"]:
        owner.load_state_dict(saved["state"])
    if ended:
        return iter(())
    items = begin()
    if saved["of_iterator"]:
        if not is_stateful(items):
            raise CheckpointError("cannot resume from the state of an iterator; this one has no load_state_dict()")
        stateful: Any = items
        stateful.load_state_dict(saved["state"])
    return items


#: Called before each batch, with the state before it, which may change later. The result becomes `Stream.reported`.
OnState = Callable[[SampleInfo | BatchInfo, dict[str, Any]], Any]


class Stream:
    """An iterable behind the interface of a callback.

    Called with a BatchInfo, it returns the item whose number is ``iteration``; with a SampleInfo, that of ``idx_in_epoch``.
    For a number that lies before its position, or in another epoch, it begins a new walk.

    Args:
        begin: begins a walk.
        once: items cannot be had again, at least not in this process: all epochs share one walk.
        owner: the iterable, if it is stateful.

    Attributes:
        on_skip: called for each item that is skipped.
        length: positions count modulo this number; None: as they are.
        on_state: receives the state before each batch; None: it is not asked for.
        reported: the result of `on_state` for the last batch.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], *, once: bool = False, owner: Any = None) -> None:
        self.begin = begin
        self.once = once
        self.owner = owner
        self.length: int | None = None
        self.on_state: OnState | None = None
        self.reported: Any = None
        self.on_skip: Callable[[], None] | None = None
        self._walk = Walk(iter(()))
        self._epoch: int | None = None  # before the first walk
        self._given = 0  # position of the last item
        self._saved: dict[str, Any] | None = None  # to resume from at the next call
        self._generation: int | None = None  # of the last request
        self._reports = True  # whether the last request asks for a state

    def anew(self) -> Stream:
        """Return a stream at the beginning; of a copy of the iterable if that is stateful."""
        begin, owner = self.begin, self.owner
        if owner is not None:
            begin, owner = copy.deepcopy((begin, owner))
        return Stream(begin, once=self.once, owner=owner)

    def __call__(self, info: BatchInfo | SampleInfo) -> Any:
        position = info.idx_in_epoch if isinstance(info, SampleInfo) else info.iteration
        if self.length is not None:
            position %= self.length
        if self._saved is not None:
            self._resume(info.epoch_idx, position)
        self._given = position
        walk = self._walk
        if walk.unplaced and position in walk.unplaced and (self.once or info.epoch_idx == self._epoch):
            item, self.reported = walk.unplaced.pop(position)
            return item
        if self.on_state is not None and not (isinstance(info, SampleInfo) and info.idx_in_batch):
            self.reported = self.on_state(info, self.save()) if self._reports else None
        if self._epoch is None or (info.epoch_idx != self._epoch and not self.once):
            walk = self._begin_walk(info.epoch_idx)
        if position < walk.position:
            if walk.end is not None and position >= walk.end:
                raise StopIteration
            if self.once:
                raise LostItemError(
                    f"item {position} of an iterator is gone: an interrupt has cost it, another pipeline has it, or it was "
                    f"taken before a state was loaded. An iterator cannot go back, and the next is item "
                    f"{walk.position}; an iterable whose __iter__ starts again can be repeated"
                )
            walk = self._begin_walk(info.epoch_idx)
        try:
            return walk.take() if position == walk.position else walk.step(position, walk.take, self.on_skip)
        except BaseException as error:
            if not (self.once or is_a(error, Exception)):
                self._epoch = None  # an interrupt ends a generator
            raise

    def for_thread(self) -> Stream:
        """Return a stream for a worker thread, which has not begun. With `once`, all threads share this one."""
        if self.once:
            return self
        if self.on_state is not None and self._saved is None:
            self._saved = self.save()  # threads share the iterable: a replaced thread begins where the first one began
        stream = type(self)(self.begin, owner=self.owner)
        stream.length, stream.on_state, stream._saved = self.length, self.on_state, self._saved
        return stream

    def put_back(self, item: Any) -> None:
        """Take back the last item, which found no room. It is requested again, perhaps after others."""
        self._walk.unplaced[self._given] = item, self.reported

    def heed(self, request: bytes) -> None:
        """Take a request; see `request_text`. If its generation is new, the next call resumes from its state."""
        generation, self._reports = _REQUEST.unpack_from(request)
        if generation == self._generation:
            return
        if text := request[_REQUEST.size :]:
            import json  # few sources are stateful

            self.restore(json.loads(text))
        elif self._generation is not None:
            self.forget()
        self._generation = generation

    def save(self) -> dict[str, Any]:
        """Return the position and state, for `restore`."""
        if self._saved is not None:
            return self._saved  # nothing has been requested since
        walk = self._walk
        return {"epoch": self._epoch, "position": walk.position, "end": walk.end, **walk.state(self.owner)}

    def check(self, saved: Any) -> None:
        """Check that `restore` can use a state.

        Raises:
            CheckpointError: it cannot.
        """
        if not saved["of_iterator"] and self.owner is None:
            raise CheckpointError(
                "the checkpoint has the state of an iterable; in this pipeline the iterable has no load_state_dict()"
            )

    def restore(self, saved: Any) -> None:
        """Resume from a state that `save` has returned, at the next call.

        Raises:
            CheckpointError: this stream cannot use the state.
        """
        self.check(saved)
        self._saved = saved

    def forget(self) -> None:
        """Begin a new walk at the next call, unless all epochs share one."""
        self._saved = None
        if not self.once:
            self._walk, self._epoch = Walk(iter(())), None

    def _resume(self, epoch: int, position: int) -> None:
        saved, self._saved = self._saved, None
        assert saved is not None
        if saved["state"] is None:
            return
        is_same_epoch = self.once or saved["epoch"] == epoch
        ended = is_same_epoch and saved["end"] is not None and position >= saved["end"]
        is_ahead = is_same_epoch and saved["position"] <= position
        if ended or is_ahead:
            items = resume(self.begin, self.owner, saved, ended=ended)
            self._walk, self._epoch = Walk(items, saved["position"], saved["end"] if ended else None), epoch
        elif not is_same_epoch and not saved["of_iterator"]:
            self.owner.load_state_dict(saved["state"])  # the walk of this epoch begins from there

    def _begin_walk(self, epoch: int) -> Walk:
        self._walk, self._epoch = Walk(self.begin()), epoch
        return self._walk


def request_text(generation: int, state: bytes, *, reports: bool) -> bytes:
    """The request of a batch.

    Args:
        generation: increases when the main process loads another state.
        state: JSON text of the latest state that a new worker can resume from, or an empty text.
        reports: whether the answer carries the state before the batch. The stream has an `on_state` then.
    """
    return _REQUEST.pack(generation, reports) + state


def asks_for_state(request: bytes) -> bool:
    """Return whether the answer to a request carries a state."""
    reports: bool = _REQUEST.unpack_from(request)[1]
    return reports


def state_text(name: str, saved: Any) -> bytes:
    """The JSON text of a saved state.

    Args:
        name: of the source, for messages.

    Raises:
        CheckpointError: JSON cannot hold the state.
    """
    import json  # few sources are stateful

    try:
        return json.dumps(saved).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{name}: state_dict() must return what JSON can hold: {error}") from None


def reporting(name: str) -> OnState:
    """Return an `OnState` for a stream in a worker. Its result is the JSON text of the state.

    Args:
        name: of the source, for messages.
    """
    return functools.partial(_report, name)


def _report(name: str, info: SampleInfo | BatchInfo, saved: dict[str, Any]) -> bytes:
    return state_text(name, saved)


class StatefulCallable:
    """A callable whose object is stateful. Only the main process calls it.

    Attributes:
        on_state: see `Stream`.
    """

    def __init__(self, callback: Callable[[Any], Any], owner: Any) -> None:
        self._callback = callback
        self._owner = owner
        self.on_state: OnState | None = None

    def __call__(self, info: Any) -> Any:
        if self.on_state is not None and not (isinstance(info, SampleInfo) and info.idx_in_batch):
            self.on_state(info, self.save())
        return self._callback(info)

    def anew(self) -> StatefulCallable:
        """Return a callable with a copy of the object."""
        return StatefulCallable(*copy.deepcopy((self._callback, self._owner)))

    def save(self) -> dict[str, Any]:
        """Return the state, for `restore`."""
        return {"state": self._owner.state_dict()}

    def restore(self, saved: Any) -> None:
        """Load a state that `save` has returned."""
        self._owner.load_state_dict(saved["state"])

    def forget(self) -> None:
        """Do nothing: a callable gets the number of each sample."""


class Restart:
    """Begins walks over a source: an iterable, or a function that returns one.

    Args:
        source: the iterable or function.
        is_function: whether it is a function.
        endless: begin again at the end, until a walk has no items.
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
    """One walk after the other, until one has no items."""

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
    """Begins walks over batches of an iterable of samples.

    Args:
        begin: begins a walk over samples.
        size: samples in a batch.
        num_outputs: the number of outputs of a sample; None: the sample is the output.
        drop_last: drop an incomplete batch.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], size: int, num_outputs: int | None, *, drop_last: bool) -> None:
        self._begin = begin
        self._size = size
        self._num_outputs = num_outputs
        self._drop_last = drop_last

    def __call__(self) -> Iterator[Any]:
        return map(self._transpose, iter(functools.partial(self._take, self._begin()), None))

    def _take(self, samples: Iterator[Any]) -> list[Any] | None:
        batch = list(next_items(samples, self._size))
        return batch if batch and (len(batch) == self._size or not self._drop_last) else None

    def _transpose(self, batch: list[Any]) -> Any:
        if self._num_outputs is None:
            return batch
        for sample in batch:
            if not isinstance(sample, (tuple, list)) or len(sample) != self._num_outputs:
                from dali_like.common.articles import kind_of  # as in `source`

                what = kind_of(sample)
                what += f" of {len(sample)}" if isinstance(sample, (tuple, list)) else ""
                raise OutputCountError(
                    f"an iterable has returned {what}; with num_outputs={self._num_outputs} a sample is a tuple or list of "
                    f"{self._num_outputs} arrays"
                )
        return tuple(zip(*batch, strict=True))
