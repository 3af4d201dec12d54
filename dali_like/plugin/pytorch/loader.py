"""The data loader whose batches are tensors, with the names and arguments of ``torch.utils.data.DataLoader``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from dali_like.common.extras import optional
from dali_like.data.datasets import Samples
from dali_like.data.fetcher import Fetcher
from dali_like.data.loading import Loading
from dali_like.data.options import LoaderOptions
from dali_like.data.own_options import OWN_NAMES, OwnOptions, ThreadContext, numbers_of
from dali_like.data.serial_iterator import SerialIterator
from dali_like.data.worker_iterator import WorkerIterator
from dali_like.errors import ArgumentError

optional("torch", "dali_like.plugin.pytorch", "pytorch")

import torch  # noqa: E402
import torch.utils.data as torch_data  # noqa: E402
import torch.utils.data.dataloader as torch_dataloader  # noqa: E402

from dali_like.plugin.pytorch.backend import TorchBackend  # noqa: E402
from dali_like.plugin.pytorch.datapipes import Divide, divide, is_datapipe  # noqa: E402

T_co = TypeVar("T_co", covariant=True)


class _SerialIterator(SerialIterator, torch_dataloader._SingleProcessDataLoaderIter):
    """One of PyTorch's iterators by its class, which is what Lightning asks for before it pickles or ends one."""


class _WorkerIterator(WorkerIterator, torch_dataloader._MultiProcessingDataLoaderIter):
    """Likewise, with workers."""


class DataLoader(Loading, torch_data.DataLoader[T_co]):
    """``torch.utils.data.DataLoader``, with this package's workers.

    Takes what that takes, and is one, so that libraries accept it. What it can be told besides, and what is different, is
    in `dali_like.data.DataLoader` and in docs/migrating-from-pytorch.md.

    With ``pin_memory=True`` the memory that workers write to is itself page-locked, and large tensors are views of it. It is
    used again when the GPU has done what was on its default stream, and on PyTorch's and CuPy's current ones, when the last
    of them was dropped. Who copies on other streams holds the batch until then, or says ``pin_memory="copy"``, which copies
    batches as PyTorch does.

    All arguments are named in its signature, and are attributes: some libraries make a loader anew of what these are. The
    last six, from `worker_seeding` on, are ours.

    Raises:
        ArgumentError, ArgumentTypeError: one of our own arguments is not allowed.
        Exception: what PyTorch's raises of the others.
    """

    _array_backend = TorchBackend()
    _serial_pass = _SerialIterator
    _worker_pass = _WorkerIterator
    _check_iteration = LoaderOptions._check_iteration
    _warn_of_pinning = LoaderOptions._warn_of_pinning

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
        num_workers, prefetch_factor, self._chosen = numbers_of(num_workers, prefetch_factor)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN_NAMES and "_iterator" in vars(self):
            raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        if name == "multiprocessing_context" and value == "thread":
            value = ThreadContext()
        super().__setattr__(name, value)

    def _make_maker(self) -> Fetcher:
        fetcher = super()._make_maker()
        if not is_datapipe(self.dataset):
            return fetcher
        if self.num_workers:
            return dataclasses.replace(fetcher, worker_init_fn=Divide(self.worker_init_fn))
        divide(self.dataset)
        return fetcher

    @property
    def _pins_memory(self) -> bool:  # type: ignore[override]
        return bool(self.pin_memory) and torch.accelerator.is_available()
