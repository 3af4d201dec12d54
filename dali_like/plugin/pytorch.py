"""PyTorch's ``DataLoader`` on this package's workers, and DALI's iterators for PyTorch.

Code written for either moves over by changing the import:

>>> from dali_like.plugin.pytorch import DataLoader  # in place of torch.utils.data
>>> from dali_like.plugin.pytorch import DALIGenericIterator  # in place of nvidia.dali.plugin.pytorch
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, TypeVar

from dali_like.data.datasets import Samples
from dali_like.data.loading import Loading
from dali_like.data.making import BatchMaker
from dali_like.data.options import LoaderOptions
from dali_like.data.own_options import OWN_NAMES, OwnOptions, ThreadContext, numbers_of
from dali_like.data.serial_pass import SerialPass
from dali_like.data.worker_pass import WorkerPass
from dali_like.errors import ArgumentError
from dali_like.extras import optional
from dali_like.on_demand import importer

optional("torch", "dali_like.plugin.pytorch", "pytorch")

import torch  # noqa: E402
import torch.utils.data as torch_data  # noqa: E402
import torch.utils.data.dataloader as torch_dataloader  # noqa: E402

from dali_like.plugin import _torch_functions as fn  # noqa: E402
from dali_like.plugin._datapipes import Divide, divide, is_datapipe  # noqa: E402
from dali_like.plugin._torch_flavour import TorchFlavour  # noqa: E402

if TYPE_CHECKING:
    from dali_like.ops import TorchPythonFunction
    from dali_like.plugin._torch_iterators import (
        DALIClassificationIterator,
        DALIGenericIterator,
        DALIRaggedIterator,
        feed_ndarray,
        to_torch_type,
    )
    from dali_like.plugin.progress import LastBatchPolicy

__all__ = [
    "DALIClassificationIterator",
    "DALIGenericIterator",
    "DALIRaggedIterator",
    "DataLoader",
    "LastBatchPolicy",
    "TorchPythonFunction",
    "feed_ndarray",
    "fn",
    "to_torch_type",
]

#: Who loads a dataset needs no pipelines, nor operators.
_PLACES = {
    "dali_like.ops": ("TorchPythonFunction",),
    "dali_like.plugin._torch_iterators": (
        "DALIClassificationIterator",
        "DALIGenericIterator",
        "DALIRaggedIterator",
        "feed_ndarray",
        "to_torch_type",
    ),
    "dali_like.plugin.progress": ("LastBatchPolicy",),
}

__getattr__, __dir__ = importer(__name__, _PLACES)

T_co = TypeVar("T_co", covariant=True)


class _SerialPass(SerialPass, torch_dataloader._SingleProcessDataLoaderIter):
    """One of PyTorch's iterators by its class, which is what Lightning asks for before it pickles or ends one."""


class _WorkerPass(WorkerPass, torch_dataloader._MultiProcessingDataLoaderIter):
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

    _flavour = TorchFlavour()
    _serial_pass = _SerialPass
    _worker_pass = _WorkerPass
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

    def _make_maker(self) -> BatchMaker:
        maker = super()._make_maker()
        if not is_datapipe(self.dataset):
            return maker
        if self.num_workers:
            return dataclasses.replace(maker, worker_init_fn=Divide(self.worker_init_fn))
        divide(self.dataset)
        return maker

    @property
    def _pins_memory(self) -> bool:  # type: ignore[override]
        return bool(self.pin_memory) and torch.accelerator.is_available()
