"""The data loader whose batches are PyTorch tensors: a subclass of ``torch.utils.data.DataLoader``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dali_like.common.extras import optional
from dali_like.common.suggestions import suggest_arguments
from dali_like.data.base_loader import BaseDataLoader
from dali_like.data.datasets import Samples
from dali_like.data.options import OWN_NAMES, OwnOptions, check_composed, check_window, own_context, resolve_auto
from dali_like.errors import ArgumentError

if TYPE_CHECKING:
    from dali_like.data.loader_iterator import LoaderIterator

optional("torch", "dali_like.plugin.pytorch", "pytorch")

import torch.utils.data.dataloader as torch_dataloader  # noqa: E402

from dali_like.plugin.pytorch.replaced_parts import TorchDataLoader, is_original, reason_of, replaced_part, warn_of_part  # noqa: E402
from dali_like.plugin.pytorch.tensor_backend import TorchBackend  # noqa: E402
from dali_like.plugin.pytorch.torch_iterators import TorchSerialIterator, TorchWorkerIterator, is_advanced  # noqa: E402

T_co = TypeVar("T_co", covariant=True)


class DataLoader(BaseDataLoader, TorchDataLoader[T_co]):
    """``torch.utils.data.DataLoader`` with this library's workers.

    It takes the arguments of PyTorch's loader, and is a subclass of it, so that other libraries accept it. See
    `dali_like.data.DataLoader` for the last fourteen arguments, from `worker_seeding` on, and docs/migrating-from-pytorch.md
    for the differences. All arguments are named in the signature and are attributes: some libraries copy a loader by reading
    them.

    With ``pin_memory=True``, the memory of the workers' batches is itself page-locked, and large tensors are views of it. It
    is reused after the last tensor is dropped, and after the work that was then on the default stream and on PyTorch's and
    CuPy's current streams. On other streams, keep the batch until their work finishes; or use ``pin_memory="copy"``,
    which copies batches as PyTorch does.

    Raises:
        ArgumentError, ArgumentTypeError: one of the last fourteen arguments is wrong.
        Exception: PyTorch's error about the others.
    """

    _dali_like_array_backend = TorchBackend()
    _dali_like_serial_iterator_type = TorchSerialIterator
    _dali_like_worker_iterator_type = TorchWorkerIterator
    #: Why the user wants PyTorch's iterator for this loader; see `dali_like.running`.
    _dali_like_excluded: str | None = None

    @suggest_arguments
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
        import_main: bool | None = None,
        share_batches: bool = True,
        reorder_window: int | None = None,
        shard_id: int | None = None,
        num_shards: int | None = None,
        shard_rest: str | None = None,
        mesh: Any = None,
        mesh_dims: str | int | Sequence[str | int] | None = None,
    ) -> None:
        given = {
            "shard_id": shard_id,
            "num_shards": num_shards,
            "shard_rest": shard_rest,
            "mesh": mesh,
            "mesh_dims": mesh_dims,
        }
        is_composed = check_composed(
            dataset, given, shuffle=shuffle, sampler=sampler, batch_sampler=batch_sampler, in_order=in_order
        )
        own = OwnOptions.checked(
            worker_seeding=worker_seeding,
            on_error=on_error,
            worker_restarts=worker_restarts,
            prefetch_epochs=prefetch_epochs,
            max_held_bytes=max_held_bytes,
            worker_threads=worker_threads,
            import_main=import_main,
            share_batches=share_batches,
            reorder_window=reorder_window,
        )
        check_window(own.reorder_window, in_order=in_order, is_composed=is_composed)
        for name, value in {**own._asdict(), **given}.items():
            setattr(self, name, value)
        num_workers, prefetch_factor, self._dali_like_auto = resolve_auto(num_workers, prefetch_factor)
        self._dali_like_checked_num_workers = num_workers  # PyTorch's constructor would warn with a line of its own
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
        if is_composed:
            from dali_like.data.position_sampler import PositionSampler  # few programs need it

            positions = PositionSampler(cast(Any, dataset), batch_size, drop_last, **given)
            # PyTorch's loader does not allow to set them. It takes a dataset with __getitem__ for a map-style one.
            attributes: dict[str, Any] = self.__dict__
            attributes.update(
                _dataset_kind=torch_dataloader._DatasetKind.Map,
                sampler=positions,
                batch_sampler=None if batch_size is None else positions,
            )
        self._dali_like_checked_num_workers = 0
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN_NAMES and "_iterator" in vars(self):
            raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        if name == "multiprocessing_context":
            value = own_context(value) or value
        super().__setattr__(name, value)

    def __iter__(self) -> LoaderIterator:
        if is_original(TorchDataLoader.__iter__):
            return super().__iter__()
        return cast("LoaderIterator", TorchDataLoader.__iter__(self))

    def _get_iterator(self) -> LoaderIterator:
        if self._dali_like_excluded is None:
            if (part := replaced_part(self)) is None:
                return super()._get_iterator()
            warn_of_part(part)
        return cast("LoaderIterator", self._dali_like_note_foreign(TorchDataLoader._get_iterator(self)))

    def _dali_like_note_foreign(self, iterator: Any) -> Any:
        from dali_like.plugin.pytorch.metered_iterators import count_batches, metered  # few programs need it

        super()._dali_like_note_foreign(iterator)
        if isinstance(iterator, torch_dataloader._BaseDataLoaderIter):
            counters = self._dali_like_factory.counters
            metered(iterator, counters.loop, count_batches(counters, self.batch_size))
        return iterator

    @property
    def _dali_like_why_foreign(self) -> str | None:
        if self._dali_like_excluded is not None:
            return f"this loader uses PyTorch's iterator, because {self._dali_like_excluded}"
        if (part := replaced_part(self)) is not None:
            return reason_of(part)
        factory = vars(self).get("_dali_like_iterator_factory")
        if factory is not None and factory.latest_state is not None and is_advanced(factory.latest_state):
            return "the program advances _sampler_iter of the iterator"
        return super()._dali_like_why_foreign
