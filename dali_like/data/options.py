"""Arguments of a data loader: those of ``torch.utils.data.DataLoader``, checked in its order with its texts, and ours."""

from __future__ import annotations

import enum
import multiprocessing
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar, cast

from dali_like.common.notices import warn
from dali_like.data.collate import default_collate, default_convert
from dali_like.data.datasets import IterableDataset, Samples
from dali_like.data.generators import as_generator
from dali_like.data.own_options import OWN_NAMES, PREFETCH_FACTOR, OwnOptions, ThreadContext, numbers_of
from dali_like.data.samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler
from dali_like.device.accelerator import accelerator_is_available
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, IteratorArgumentError

__all__ = ["DatasetKind", "LoaderOptions"]

T_co = TypeVar("T_co", covariant=True)


class DatasetKind(enum.IntEnum):
    """How samples are got from a dataset, with the numbers that PyTorch has for it."""

    MAP = 0
    ITERABLE = 1


#: The attributes that a loader keeps as they are. All others may be changed, and hold from the next iterator on.
_LOCKED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers", *OWN_NAMES}


class LoaderOptions(Generic[T_co]):
    """What a data loader has been told, with the arguments, attributes, errors and warnings of PyTorch's ``DataLoader``.

    Arguments are attributes, too. Once the loader is made, these cannot be set: dataset, batch_size, sampler, batch_sampler,
    drop_last, persistent_workers, and our own. All others hold from the next iterator on.

    Args:
        dataset: what has samples. An `IterableDataset`, of this library or of PyTorch, is walked through; all else is asked
            for the samples of indices.
        batch_size: how many samples make a batch. None: none are made, and samples are delivered one by one.
        shuffle: whether samples come in random order, another one in each epoch.
        sampler: an iterable of the indices to load, instead of `shuffle`.
        batch_sampler: an iterable of lists of indices, one list for each batch, instead of `batch_size`, `shuffle`,
            `sampler` and `drop_last`.
        num_workers: how many processes load. 0: this one does, while it waits. "auto": a few, and more as soon as the time
            that samples and the loop take says so; `statistics` tells. See docs/performance.md.
        collate_fn: makes a batch of a list of samples, by default `default_collate`. Where no batches are made, it is given
            each sample, and `default_convert` is the default.
        pin_memory: whether batches are put into page-locked memory, from which they are copied faster to a GPU. "copy": by
            copying them there; see `dali_like.plugin.pytorch.loader.DataLoader`.
        drop_last: whether a last batch that is smaller is left out.
        timeout: how many seconds a batch may take in the workers. 0: any time.
        worker_init_fn: called in each worker with its number before it loads anything. What it seeds is seeded again
            when samples are made, unless `worker_seeding` is "torch".
        multiprocessing_context: how workers are started: a start method's name, or a context of `multiprocessing`. "thread":
            they are threads of this process, which share the dataset, for datasets that release the GIL. The global random
            generators are left alone then.
        generator: what `shuffle` draws from: a `numpy.random.Generator`, a seed for one, or a ``torch.Generator``.
        prefetch_factor: how many batches each worker computes ahead, by default 2. Only with workers. "auto": as many
            altogether as the workers and the slower samples want.
        persistent_workers: whether workers are kept when an epoch has ended. Only with workers.
        pin_memory_device: without effect, and deprecated.
        in_order: False: batches of workers are delivered as they come.
        worker_seeding: what random numbers in workers depend on. "tasks": on which samples are computed, so that they are
            the same with any number of workers, after the death of a worker, and after going on from a state. "torch": on
            the number of the worker and on what it has made before, as in PyTorch: its numbers, bit for bit, unless a
            worker dies, or an epoch goes on from a state. Generators of the workers that do so begin anew.
        on_error: what happens when the dataset raises. "raise": the iterator raises it. "skip": another sample stands in.
            Or a callable, which returns what stands in.
        worker_restarts: how often in a minute a worker that has died is replaced. 0: never; None: always.
        prefetch_epochs: whether workers begin the next epoch before it is asked for. The sampler is walked through earlier
            then, and does not see what is changed in between.
        max_held_bytes: how much memory batches may take, those included that somebody holds. None: half of what there is.
        worker_threads: threads of OpenCV, OpenMP, BLAS and PyTorch in each worker. None: leave them alone.

    Raises:
        ArgumentError: an argument has a value that is not allowed, or does not go with the others.
        ArgumentTypeError: it has a type that is not allowed.

    Source: https://pytorch.org/docs/stable/data.html

    >>> loader = LoaderOptions(range(10), batch_size=4)
    >>> len(loader), list(loader.batch_sampler)
    (3, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
    """

    dataset: Any
    batch_size: int | None
    sampler: Iterable[Any]
    batch_sampler: Iterable[Any] | None
    drop_last: bool
    persistent_workers: bool
    worker_seeding: str
    on_error: str | Callable[[Any, Exception], Any]
    worker_restarts: int | None
    prefetch_epochs: bool
    max_held_bytes: int | None
    worker_threads: int | None

    _chosen: dict[str, int]
    _iterator: Any
    _is_complete = False

    def __init__(
        self,
        dataset: Samples[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | str = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool | str = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Any = None,
        *,
        prefetch_factor: int | str | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_seeding: str = "tasks",
        on_error: str | Callable[[Any, Exception], Any] = "raise",
        worker_restarts: int | None = 3,
        prefetch_epochs: bool = False,
        max_held_bytes: int | None = None,
        worker_threads: int | None = 1,
    ) -> None:
        workers, factor, self._chosen = numbers_of(num_workers, prefetch_factor)
        _check_workers(workers, timeout, factor, persistent_workers)
        self.dataset = dataset
        self.num_workers: int = workers
        self.prefetch_factor: int | None = PREFETCH_FACTOR if workers > 0 and factor is None else factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order

        self._dataset_kind = DatasetKind.ITERABLE if _is_iterable(dataset) else DatasetKind.MAP
        if self._dataset_kind is DatasetKind.ITERABLE:
            _check_no_order(shuffle, sampler, batch_sampler)
        _check_batches(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.generator = as_generator(generator)
        self.sampler = self._make_sampler(shuffle) if sampler is None else sampler
        self.batch_size = batch_size if batch_sampler is None else None
        self.drop_last = drop_last if batch_sampler is None else False
        if self.batch_size is not None:
            batch_sampler = BatchSampler(self.sampler, self.batch_size, drop_last)
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers

        own = OwnOptions.checked(
            worker_seeding=worker_seeding,
            on_error=on_error,
            worker_restarts=worker_restarts,
            prefetch_epochs=prefetch_epochs,
            max_held_bytes=max_held_bytes,
            worker_threads=worker_threads,
        )
        for name, value in own._asdict().items():
            setattr(self, name, value)
        self._is_complete = True
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self.check_worker_number_rationality()

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """How workers are started; None for the default. It may be set to a start method's name."""
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: str | BaseContext | None) -> None:
        self._multiprocessing_context = None if context is None else _context(context, self.num_workers)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_complete and name in _LOCKED:
            raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        """How many batches an epoch has; of an iterable dataset, how many its length promises.

        Raises:
            TypeError: the sampler, or the iterable dataset, has no length.
        """
        if self._dataset_kind is DatasetKind.MAP:
            return len(cast(Sized, self._index_sampler))
        # An iterator warns if more samples than this come, since PyTorch's does.
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warn if there are more workers than CPUs that this process may use."""
        suggested = len(os.sched_getaffinity(0))
        if self.num_workers and self.num_workers > suggested:
            warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of "
                f"worker in current system is {suggested}, which is smaller than what this DataLoader is going to create. "
                "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, lower the "
                "worker number to avoid potential slowness/freeze if necessary.",
                UserWarning,
            )

    @property
    def _auto_collation(self) -> bool:
        """Whether batches are made."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        """What says which samples are loaded: lists of them where batches are made, single ones otherwise."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def _pins_memory(self) -> bool:
        """Whether batches are put into page-locked memory: if that has been asked for and there is a GPU."""
        return bool(self.pin_memory) and accelerator_is_available()

    def _check_iteration(self) -> None:
        """Warn and raise as PyTorch does where an iterator is made: attributes may have changed since they were checked.

        Raises:
            IteratorArgumentError: the timeout needs workers, or workers compute nothing ahead.
            ArgumentTypeError: a number of workers or of batches is no integer.
        """
        self.check_worker_number_rationality()
        self._warn_of_pinning()
        if self.num_workers == 0:
            if self.timeout != 0:
                raise IteratorArgumentError(
                    "_SingleProcessDataLoaderIter requires timeout == 0: what this process itself loads cannot be given up. "
                    f"Set num_workers > 0, or timeout=0 instead of {self.timeout}"
                )
            return
        if isinstance(self.multiprocessing_context, ThreadContext):
            _check_threads(self)
        for name in ("num_workers", "prefetch_factor"):
            if _index(name, getattr(self, name)) <= 0:
                raise IteratorArgumentError(f"{name} must be greater than 0 for MultiProcessingDataLoaderIter")

    def _warn_of_pinning(self) -> None:
        if self.pin_memory and self.pin_memory_device:
            warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the device,"
                f"ignore pin_memory_device='{self.pin_memory_device}'.",
                UserWarning,
            )
        if self.pin_memory and not self._pins_memory:
            warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                UserWarning,
            )

    def _make_sampler(self, shuffle: bool | None) -> Sampler[Any]:
        if self._dataset_kind is DatasetKind.ITERABLE:
            return _InfiniteConstantSampler()
        return RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)


class _InfiniteConstantSampler(Sampler[None]):
    """The indices of an iterable dataset: there are none, and nobody knows how many."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


#: Python's own message where an argument is unknown has the name that users know.
LoaderOptions.__init__.__qualname__ = "DataLoader.__init__"


# Checks, in PyTorch's order.


def _check_workers(num_workers: Any, timeout: Any, prefetch_factor: Any, persistent_workers: Any) -> None:
    if _is_negative("num_workers", num_workers):
        raise ArgumentError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if _is_negative("timeout", timeout):
        raise ArgumentError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ArgumentError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and _is_negative("prefetch_factor", prefetch_factor):
        raise ArgumentError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ArgumentError("persistent_workers option needs num_workers > 0")


def _context(context: Any, num_workers: int) -> BaseContext:
    if not num_workers > 0:
        raise ArgumentError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={num_workers}"
        )
    if context == "thread":
        return ThreadContext()
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ArgumentError(
                f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                f"multiprocessing_context={context!r}"
            )
        return multiprocessing.get_context(context)
    if not isinstance(context, BaseContext):
        raise ArgumentTypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, but "
            f"got multiprocessing_context={context}"
        )
    return context


def _check_threads(options: Any) -> None:
    if options.worker_seeding == "torch":
        raise ArgumentClashError(
            'worker_seeding="torch" seeds the global random generators of each worker, and threads have those of the whole '
            'program in common: it does not go with multiprocessing_context="thread"'
        )
    if options.num_workers > 1 and isinstance(options.dataset, _torchs_iterable_dataset()):
        raise ArgumentClashError(
            "torch.utils.data.get_worker_info() knows of no threads, so that each of several would walk through all of this "
            'iterable dataset. With multiprocessing_context="thread" use num_workers=1, or a dataset that is a '
            "dali_like.data.IterableDataset and asks dali_like.get_worker_info()"
        )


def _check_no_order(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    """The samples of an iterable dataset come as they come."""
    unexpected = "DataLoader with IterableDataset: expected unspecified {0} option, but got {0}={1}"
    if shuffle not in (False, None):
        raise ArgumentError(unexpected.format("shuffle", shuffle))
    if sampler is not None:
        raise ArgumentError(unexpected.format("sampler", sampler))
    if batch_sampler is not None:
        raise ArgumentError(unexpected.format("batch_sampler", batch_sampler))


def _check_batches(batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: Any) -> None:
    if sampler is not None and shuffle:
        raise ArgumentError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ArgumentError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_sampler is None and batch_size is None and drop_last:
        raise ArgumentError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")


def _is_negative(name: str, value: Any) -> bool:
    try:
        return bool(value < 0)
    except TypeError as error:
        raise ArgumentTypeError(f"{name} option should be a non-negative number, but got {name}={value!r}") from error


def _index(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise ArgumentTypeError(f"{name} option should be an integer, but got {name}={value!r}") from error


def _is_iterable(dataset: Any) -> bool:
    """Whether a dataset is walked through."""
    return isinstance(dataset, (IterableDataset, *_torchs_iterable_dataset()))


def _torchs_iterable_dataset() -> tuple[type, ...]:
    """PyTorch's class, which is not imported for that: whoever has one of its datasets has it."""
    theirs = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", None)
    return () if theirs is None else (theirs,)
