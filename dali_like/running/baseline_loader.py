"""The class that programs get in the place of ``torch.utils.data.DataLoader`` with ``--baseline``: PyTorch's, measured.

It has none of this library's methods: programs call `state_dict` of a loader, for example, if they find it.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, TypeVar

from dali_like.common.extras import optional

optional("torch", "dali_like.running", "pytorch")

import torch.utils.data.dataloader as torch_dataloader  # noqa: E402

from dali_like.plugin.pytorch import torch_loader  # noqa: E402
from dali_like.plugin.pytorch.metered_iterators import count_batches, metered  # noqa: E402
from dali_like.plugin.pytorch.replaced_parts import TorchDataLoader  # noqa: E402
from dali_like.running import recording  # noqa: E402
from dali_like.running.run_loader import places_of  # noqa: E402

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)


class DataLoader(TorchDataLoader[T_co]):
    """PyTorch's loader, whose iterators measure the loop over them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.__dict__["_dali_like_place"] = [*places_of(self, sys._getframe(1))][-1][0]
        super().__init__(*args, **options)

    def __iter__(self) -> Any:
        record = self._dali_like_record()
        counters = record._dali_like_factory.counters
        counters.loop.pause()
        recording.note(record)
        iterator = super().__iter__()
        if isinstance(iterator, torch_dataloader._BaseDataLoaderIter):
            metered(iterator, counters.loop, count_batches(counters, self.batch_size))
        return recording.watched(iterator)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_dali_like_kept_record"}

    def _dali_like_record(self) -> torch_loader.DataLoader[T_co]:
        """Return a loader of this library with the attributes of this one. It counts in the record."""
        kept: torch_loader.DataLoader[T_co] | None = self.__dict__.get("_dali_like_kept_record")
        if kept is None:
            kept = object.__new__(torch_loader.DataLoader)
            kept.__dict__.update(self.__dict__, _dali_like_excluded="--baseline asks for it")
            self.__dict__["_dali_like_kept_record"] = kept
        return kept


vars(DataLoader.__init__)["__signature__"] = inspect.signature(TorchDataLoader.__init__)
