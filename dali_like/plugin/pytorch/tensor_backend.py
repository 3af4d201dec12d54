"""The array backend for PyTorch; see `dali_like.data.array_backends`."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset
from torch.utils.data._utils import collate
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.collate import default_collate_fn_map
from torch.utils.data._utils.pin_memory import pin_memory

from dali_like.common.cpu_only import is_cpu_only
from dali_like.data.array_backends import PYTHON_AND_NUMPY, ArrayBackend, numpy_seed
from dali_like.data.sample_schema import Leaf, UnfitError
from dali_like.engine.worker.info import WorkerInfo, set_worker_info
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.plugin.pytorch.datapipes import draw_shared_seed, is_datapipe, shard, walk
from dali_like.plugin.pytorch.leaves import leaf_of
from dali_like.plugin.pytorch.tensor_pickling import reduce_tensor
from dali_like.sources.collate import function_for
from dali_like.sources.travel import register

if TYPE_CHECKING:
    from dali_like.data.columns import RowDataset
    from dali_like.data.device_senders import DeviceSender
    from dali_like.data.options import LoaderOptions
    from dali_like.data.sampler_iterators import SamplerIterator
    from dali_like.device.interface import Pinning

_REDUCERS: dict[type, Callable[[Any], Any]] = {torch.Tensor: reduce_tensor, torch.nn.Parameter: reduce_tensor}
for _kind, _reduce in _REDUCERS.items():
    register(_kind, _reduce)


def _collate_privately(function: Callable[..., Any], batch: Any, **options: Any) -> Any:
    """Call PyTorch's collation as in the main process. In a worker, it would put tensors into files in /dev/shm."""
    info, torch_worker._worker_info = torch_worker._worker_info, None
    try:
        return function(batch, **options)
    finally:
        torch_worker._worker_info = info


#: PyTorch's own collation functions. Programs add others to its map, and replace these.
_ORIGINAL_FUNCTIONS = {
    kind: function
    for kind, function in default_collate_fn_map.items()
    if getattr(function, "__module__", "") == collate.__name__
}
#: The replacements of these functions in workers.
_PRIVATE_FUNCTIONS = {
    kind: functools.partial(_collate_privately, function) for kind, function in _ORIGINAL_FUNCTIONS.items()
}

#: The state of a CPU generator begins with its seed.
_SEED_BYTES = 8


class TorchBackend(ArrayBackend):
    """PyTorch's tensors and generators."""

    tensor_types = (np.ndarray, torch.Tensor)
    collations = default_collate_fn_map

    @property
    def row_datasets(self) -> Mapping[type, RowDataset]:
        """The types of datasets whose samples are rows of arrays or tensors."""
        return _row_datasets()

    @property
    def reducers(self) -> Reducers:
        """Pickle tensors without their memory."""
        return _REDUCERS

    def is_default(self, collate_fn: Any) -> bool:
        # Not compared with the current attribute: programs replace it, together with the default of PyTorch's loader.
        return _is_of_pytorch(collate_fn, "default_collate")

    def is_default_conversion(self, collate_fn: Any) -> bool:
        return _is_of_pytorch(collate_fn, "default_convert")

    def is_collated_specially(self, value: Any) -> bool:
        """Return whether the program has registered its own collation for values of this type."""
        function = function_for(value, default_collate_fn_map)
        return all(function is not function_for(value, own) for own in (_ORIGINAL_FUNCTIONS, _PRIVATE_FUNCTIONS))

    def integers_of(self, keys: Sequence[Any]) -> Sequence[int]:
        """Return the keys of a batch as integers: samplers may yield tensors."""
        if set(map(type, keys)) != {torch.Tensor} or any(key.dtype is not torch.int64 or key.ndim for key in keys):
            raise UnfitError
        return [key.item() for key in keys]

    def indices(self, numbers: Sequence[int]) -> torch.Tensor:
        """Return indices of samples as a tensor."""
        return torch.tensor(numbers, dtype=torch.int64)

    def leaf_of(self, value: Any) -> Leaf | None:
        """Return a leaf for a tensor, an array or a number. PyTorch does not collate dataclasses."""
        return leaf_of(value)

    def draw_seed(self, generator: Any) -> int:
        """Draw a seed as PyTorch's iterators do, so that later draws of the program are the same, too."""
        return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())

    def iterate_sampler(self, sampler: Iterable[Any]) -> SamplerIterator[Any]:
        """Begin an iterator over a sampler. PyTorch's samplers are replaced by this library's, which draw the same."""
        from dali_like.plugin.pytorch.torch_samplers import own_iterator  # workers have no samplers

        return own_iterator(sampler)

    def draw_shared_seed(self, dataset: Any, generator: Any) -> int | None:
        """Draw a seed for iterable datapipes, as PyTorch's iterators do."""
        return draw_shared_seed(dataset, generator)

    def walk(self, dataset: Any, shared_seed: int | None) -> Iterator[Any]:
        """Begin an iterator over an iterable dataset. Datapipes are seeded before."""
        return walk(dataset, shared_seed)

    def shard(
        self, dataset: Any, num_workers: int, worker_init_fn: Callable[[int], Any] | None
    ) -> Callable[[int], Any] | None:
        """Divide datapipes among ranks and workers. Other datasets divide themselves."""
        return shard(dataset, num_workers, worker_init_fn)

    def divides(self, dataset: Any) -> bool:
        return is_datapipe(dataset)

    def enter_worker(self, info: WorkerInfo) -> None:
        """Do the same as PyTorch's workers, so that ``torch.utils.data.get_worker_info`` works, too."""
        assert info.seed is not None
        set_worker_info(info)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=info.dataset
        )
        for kind, function in _ORIGINAL_FUNCTIONS.items():
            if default_collate_fn_map.get(kind) is function:
                default_collate_fn_map[kind] = _PRIVATE_FUNCTIONS[kind]
        random.seed(info.seed)
        torch.default_generator.manual_seed(info.seed)
        np.random.seed(numpy_seed(info.seed - info.id, info.id))

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Put back PyTorch's information about workers and its collation functions, too."""
        info, functions = torch_worker._worker_info, dict(default_collate_fn_map)
        try:
            with super().undisturbed():
                yield
        finally:
            torch_worker._worker_info = info
            default_collate_fn_map.clear()
            default_collate_fn_map.update(functions)

    def seeders(self, seed: int) -> tuple[Callable[[int], Any], ...]:
        """Seed the generators of Python, NumPy and PyTorch's CPU. ``torch.initial_seed`` still returns the user's seed."""
        generator = torch.default_generator
        is_unchanged = generator.initial_seed() == seed
        return (*PYTHON_AND_NUMPY, generator.manual_seed if is_unchanged else _seeder_keeping_initial_seed(generator))

    def has_accelerator(self) -> bool:
        return bool(torch.accelerator.is_available())

    def pinning(self) -> Pinning | None:
        """Page-lock memory by CUDA, so that PyTorch knows that it is page-locked."""
        if not torch.cuda.is_available() or torch.version.cuda is None:  # None: PyTorch for GPUs of AMD
            return None
        from dali_like.plugin.pytorch.pinning import TorchPinning  # not without a GPU, nor in workers

        return TorchPinning()

    def check_device(self, options: LoaderOptions) -> None:
        self._number_of_gpu(options)

    def _number_of_gpu(self, options: LoaderOptions) -> int | None:
        """Return the GPU that the batches of a loader go to; None: they stay on the CPU."""
        if is_cpu_only():
            return None
        from dali_like.plugin.pytorch.torch_device import number_of_gpu  # not in workers, nor without a GPU

        return number_of_gpu(options.own["device"])

    def sender_for(self, options: LoaderOptions, before: DeviceSender | None) -> DeviceSender | None:
        if (number := self._number_of_gpu(options)) is None:
            return None
        from dali_like.plugin.pytorch.device_batches import TorchSender
        from dali_like.plugin.pytorch.torch_device import torch_device

        device, own = torch_device(number), options.own
        if isinstance(before, TorchSender) and before.device is device:
            return before
        return TorchSender(device, own["prefetch_to_device"], is_static=own["static_buffers"])

    def pin(self, batch: Any) -> Any:
        """Pin as PyTorch does. It copies only tensors that are not page-locked: small ones, and those without a row."""
        return pin_memory(batch)

    is_profiled = staticmethod(torch.autograd._profiler_enabled)

    def recorded(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that shows in PyTorch's profiles, as ``__next__`` of its iterators does."""
        context: AbstractContextManager[Any] = torch.autograd.profiler.record_function(name)
        return context


def _is_of_pytorch(collate_fn: Any, name: str) -> bool:
    """Return whether a function is the one of PyTorch's collations with this name."""
    return getattr(collate_fn, "__globals__", None) is vars(collate) and collate_fn.__name__ == name


#: The backend of all loaders of tensors.
TORCH_BACKEND = TorchBackend()


def _seeder_keeping_initial_seed(generator: torch.Generator) -> Callable[[int], Any]:
    """Return a function that seeds a generator without changing its ``initial_seed()``, which the user may have set."""
    shown = generator.get_state()[:_SEED_BYTES].clone()
    other = torch.Generator()

    def seed_keeping_initial_seed(seed: int) -> None:
        state = other.manual_seed(seed).get_state()
        state[:_SEED_BYTES] = shown
        generator.set_state(state)

    return seed_keeping_initial_seed


@functools.cache
def _row_datasets() -> Mapping[type, RowDataset]:
    from dali_like.data.columns import ROW_DATASETS, row_datasets  # most workers need no datasets of ours

    return ROW_DATASETS | row_datasets(TensorDataset, "tensors", StackDataset, Subset, ConcatDataset)
