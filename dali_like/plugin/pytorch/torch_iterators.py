"""Iterators of the loader that also are PyTorch's: programs ask for their class, and read their attributes.

Lightning checks the class before it pickles or ends an iterator. Attributes and methods that PyTorch's iterators have, and
that have a meaning here, behave alike. Access to the others raises an AttributeError with an explanation.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.utils.data.dataloader as torch_dataloader

from dali_like.data.loader_iterator import LoaderIterator, WorkerIterator
from dali_like.data.local_iterator import LocalIterator
from dali_like.data.sampler_iterators import resumable
from dali_like.errors import UnavailableAttributeError

if TYPE_CHECKING:
    from dali_like.data.plans import IteratorState

__all__ = ["TorchParts", "TorchLocalIterator", "TorchWorkerIterator", "is_advanced"]

#: States of iterators whose sampler the program has advanced, so that the position is not known.
_ADVANCED: weakref.WeakSet[IteratorState] = weakref.WeakSet()


def is_advanced(state: IteratorState) -> bool:
    """Return whether the program has advanced or replaced ``_sampler_iter`` of an unfinished iterator."""
    return state in _ADVANCED and not state.is_over


class TorchParts(LoaderIterator):
    """Attributes and methods of PyTorch's iterators, read from this library's."""

    @property
    def _dataset(self) -> Any:
        return self._options.dataset

    @property
    def _dataset_kind(self) -> int:
        kinds = torch_dataloader._DatasetKind
        return kinds.Iterable if self._options.is_iterable else kinds.Map

    @property
    def _IterableDataset_len_called(self) -> int | None:  # noqa: N802  # PyTorch's name
        return self._options.announced_length

    @property
    def _auto_collation(self) -> bool:
        return self._options.batched

    @property
    def _drop_last(self) -> bool:
        return self._options.drop_last

    @property
    def _index_sampler(self) -> Any:
        return self._options.index_sampler

    @property
    def _num_workers(self) -> int:
        return self._options.num_workers

    @property
    def _prefetch_factor(self) -> int | None:
        return self._options.prefetch_factor

    @property
    def _worker_init_fn(self) -> Any:
        return self._options.worker_init_fn

    @property
    def _in_order(self) -> bool:
        return self._options.in_order

    @property
    def _timeout(self) -> float:
        return self._options.timeout_s

    @property
    def _collate_fn(self) -> Any:
        return self._options.collate_fn

    @property
    def _persistent_workers(self) -> bool:
        return self._options.persistent_workers

    @property
    def _pin_memory(self) -> bool:
        return self._pins_memory

    @property
    def _pin_memory_device(self) -> str | None:
        accelerator = torch.accelerator.current_accelerator() if self._pins_memory else None
        return None if accelerator is None else accelerator.type

    @property
    def _world_size(self) -> int:
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    @property
    def _rank(self) -> int:
        return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0

    @property
    def _base_seed(self) -> int:
        return self.state.base_seed

    @property
    def _shared_seed(self) -> int | None:
        return self.state.shared_seed

    @property
    def _sampler_iter(self) -> Iterator[Any]:
        """The iterator over the sampler. Some programs advance it, to skip batches that have not been requested yet."""
        self._plan.start()
        return _SamplerView(self)

    @_sampler_iter.setter
    def _sampler_iter(self, indices: Iterator[Any]) -> None:
        self._plan.start()
        _ADVANCED.add(self.state)
        self._plan.indices = resumable(indices)

    @property
    def _next_index(self) -> Callable[[], Any]:
        """Returns the next index, or indices of a batch. Programs that replace it get batches of its results."""
        return functools.partial(next, self._sampler_iter)

    @_next_index.setter
    def _next_index(self, function: Callable[[], Any]) -> None:
        self._sampler_iter = iter(function, object())

    @property
    def _next_data(self) -> Callable[[], Any]:
        """Returns the next batch. Programs that replace it on an iterator get its results."""
        replaced: Callable[[], Any] | None = vars(self).get("_next")
        return functools.partial(type(self)._next, self) if replaced is None else replaced

    @_next_data.setter
    def _next_data(self, function: Callable[[], Any]) -> None:
        vars(self)["_next"] = function

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Become the loader's next iterator, as iterators of persistent workers do in PyTorch."""
        self.end()
        following = loader._get_iterator()
        following.__dict__, self.__dict__ = self.__dict__, following.__dict__
        loader._dali_like_factory.replace_latest(self)
        if loader._iterator is following:
            loader._iterator = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unavailable(self, name)


def unavailable(iterator: Any, name: str) -> UnavailableAttributeError:
    """Return the error for an attribute that this library's iterators do not have."""
    return UnavailableAttributeError(
        f"{type(iterator).__name__!r} object has no attribute {name!r}. Iterators of dali_like have only some attributes of "
        "PyTorch's; for the others, make the loader with torch.utils.data.DataLoader"
    )


class _NotCalled:
    """A method of PyTorch's iterators that this library's do not call: to replace it on an iterator is an error."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, iterator: Any, owner: type) -> Any:
        raise AttributeError(self._name)  # `__getattr__` explains

    def __set__(self, iterator: Any, value: Any) -> None:
        raise unavailable(iterator, self._name)


def _named_as(kind: Any) -> Callable[[type], type]:
    """Let a class have the name of one of PyTorch's, which programs and profilers look for."""

    def rename(derived: type) -> type:
        derived.__name__, derived.__qualname__ = kind.__name__, kind.__qualname__
        return derived

    return rename


@_named_as(torch_dataloader._SingleProcessDataLoaderIter)
class TorchLocalIterator(TorchParts, LocalIterator, torch_dataloader._SingleProcessDataLoaderIter):
    """An iterator without workers."""

    @property
    def _dataset_fetcher(self) -> Any:
        """A fetcher of its own. That of an iterable dataset would begin the dataset once more."""
        options = self._options
        if options.is_iterable:
            raise AttributeError("_dataset_fetcher")  # `__getattr__` explains
        return torch_dataloader._DatasetKind.create_fetcher(
            self._dataset_kind, options.dataset, options.batched, options.collate_fn, options.drop_last
        )


@_named_as(torch_dataloader._MultiProcessingDataLoaderIter)
class TorchWorkerIterator(TorchParts, WorkerIterator, torch_dataloader._MultiProcessingDataLoaderIter):
    """An iterator with workers."""

    _get_data = _NotCalled()
    _process_data = _NotCalled()
    _try_get_data = _NotCalled()
    _try_put_index = _NotCalled()

    @property
    def _shutdown(self) -> bool:
        return self._loader_workers is None

    @property
    def _tasks_outstanding(self) -> int:
        return len(self._pending)

    @property
    def _send_idx(self) -> int:
        return self._plan.num_begun

    @property
    def _rcvd_idx(self) -> int:
        return self._num_yielded


class _SamplerView(Iterator[Any]):
    """Advances the sampler of an iterator, and notes that."""

    def __init__(self, iterator: TorchParts) -> None:
        self._state = iterator.state
        self._indices = iterator._plan.indices

    def __next__(self) -> Any:
        _ADVANCED.add(self._state)
        return next(self._indices)
