"""The data loader whose batches are PyTorch tensors: a subclass of ``torch.utils.data.DataLoader``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from dali_like.common.extras import optional
from dali_like.data.base_loader import BaseDataLoader
from dali_like.data.batch_sizes import batch_sizes_of
from dali_like.data.loader_arguments import LoaderArguments
from dali_like.data.options import RANK_NAMES, check_composed, default_prefetch, own_context, resolve_auto
from dali_like.errors import ArgumentClashError

if TYPE_CHECKING:
    from dali_like.data.array_backends import ArrayBackend
    from dali_like.data.loader_iterator import LoaderIterator, WorkerIterator
    from dali_like.data.local_iterator import LocalIterator

optional("torch", "dali_like.plugin.pytorch", "pytorch")

import torch.utils.data.dataloader as torch_dataloader  # noqa: E402

from dali_like.plugin.pytorch import replaced_parts  # noqa: E402
from dali_like.plugin.pytorch.replaced_parts import TorchDataLoader  # noqa: E402

T_co = TypeVar("T_co", covariant=True)


class DataLoader(BaseDataLoader[T_co], TorchDataLoader[T_co]):
    """``torch.utils.data.DataLoader`` with this library's workers.

    It takes the arguments of PyTorch's loader, and is a subclass of it, so that other libraries accept it. See
    `dali_like.data.DataLoader` for the arguments that PyTorch's loader does not have, from `worker_seeding` on, and
    docs/migrating-from-pytorch.md for the differences. All arguments are named in the signature and are attributes: some
    libraries copy a loader by reading them.

    With ``pin_memory=True``, the memory of the workers' batches is itself page-locked, and large tensors are views of it. It
    is reused after the last tensor is dropped, and after the work that was then on the default stream and on PyTorch's and
    CuPy's current streams. On other streams, keep the batch until their work finishes; or use ``pin_memory="copy"``,
    which copies batches as PyTorch does.

    Raises:
        ArgumentError, ArgumentTypeError: an argument that PyTorch's loader does not have is wrong.
        Exception: PyTorch's error about the others.
    """

    _dali_like_is_library = True
    #: Why the user wants PyTorch's iterator for this loader; see `dali_like.running`.
    _dali_like_excluded: str | None = None

    _dali_like_elsewhere: ClassVar[Mapping[str, str]] = {"sharding": "the DataLoader of dali_like.plugin.jax"}

    if not TYPE_CHECKING:
        #: Libraries that make a loader anew look for the arguments in each class's own dictionary.
        __init__ = LoaderArguments.__init__

    def _dali_like_construct(self, own: Mapping[str, Any], *, dataset: Any, batch_size: Any, **given: Any) -> None:
        batch_size, sizes = batch_sizes_of(batch_size, dataset)
        order = {name: given[name] for name in ("shuffle", "sampler", "batch_sampler", "in_order")}
        is_composed = check_composed(dataset, own, **order)
        self._dali_like_set_own(own, dataset, in_order=given["in_order"], is_composed=is_composed)
        if own["device"] is not None:
            from dali_like.plugin.pytorch.torch_device import check_device  # most loaders need no GPU

            check_device(own["device"])
        workers, factor, self._dali_like_auto = resolve_auto(given.pop("num_workers"), given.pop("prefetch_factor"))
        self._dali_like_checked_num_workers = workers  # PyTorch's constructor would warn with a line of its own
        if factor is None and isinstance(workers, int) and workers > 0:
            factor = default_prefetch(own, dataset, batch_size if given["batch_sampler"] is None else None)
        constructor = super(LoaderArguments, self).__init__
        constructor(dataset, batch_size, num_workers=workers, prefetch_factor=factor, **given)
        if is_composed:
            from dali_like.data.position_sampler import PositionSampler  # few programs need it

            rank = {name: own[name] for name in RANK_NAMES}
            positions = PositionSampler(dataset, batch_size, given["drop_last"], **rank, sizes=sizes)
            # PyTorch's loader does not allow to set them. It takes a dataset with __getitem__ for a map-style one.
            attributes: dict[str, Any] = self.__dict__
            attributes.update(
                _dataset_kind=torch_dataloader._DatasetKind.Map,
                sampler=positions,
                batch_sampler=None if batch_size is None else positions,
            )
        self._dali_like_checked_num_workers = 0
        self.check_worker_number_rationality()

    @property
    def _dali_like_array_backend(self) -> ArrayBackend:
        from dali_like.plugin.pytorch.tensor_backend import TORCH_BACKEND

        return TORCH_BACKEND

    @property
    def _dali_like_iterator_types(self) -> tuple[type[LocalIterator], type[WorkerIterator]]:
        from dali_like.plugin.pytorch.torch_iterators import TorchLocalIterator, TorchWorkerIterator

        return TorchLocalIterator, TorchWorkerIterator

    def __setattr__(self, name: str, value: Any) -> None:
        if "_iterator" in vars(self):
            self._dali_like_check_set(name)
        if name == "multiprocessing_context":
            value = own_context(value) or value
        super().__setattr__(name, value)

    def __iter__(self) -> LoaderIterator:
        if TorchDataLoader.__iter__ is replaced_parts.ITER or replaced_parts.is_original(TorchDataLoader.__iter__):
            return super().__iter__()
        return cast("LoaderIterator", TorchDataLoader.__iter__(self))

    def _get_iterator(self) -> LoaderIterator:
        if self._dali_like_excluded is None:
            if (part := replaced_parts.replaced_part(self)) is None:
                return super()._get_iterator()
            replaced_parts.warn_of_part(part)
        return cast("LoaderIterator", self._dali_like_note_foreign(TorchDataLoader._get_iterator(self)))

    def _dali_like_note_foreign(self, iterator: Any) -> Any:
        if (device := self._dali_like_value("device")) is not None:
            why = self._dali_like_why_foreign
            raise ArgumentClashError(f"device={device!r} needs an iterator of this library, but {why}")
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
        factory = vars(self).get("_dali_like_iterator_factory")
        if factory is not None and (state := factory.latest_state) is not None:
            from dali_like.plugin.pytorch.torch_iterators import is_advanced

            if is_advanced(state):
                return "the program advances _sampler_iter of the iterator"
            # A part that was replaced since this iterator began concerns the next one.
            if not state.is_over and factory.latest is not None and self._dali_like_foreign_iterator is None:
                return None
        if (part := replaced_parts.replaced_part(self)) is not None:
            return replaced_parts.reason_of(part)
        return super()._dali_like_why_foreign
