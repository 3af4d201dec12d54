"""What loaders of tensors of PyTorch differ in from those of arrays; see `dali_like.data.array_backends`."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.utils.data as torch_data
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.collate import default_collate_fn_map
from torch.utils.data._utils.pin_memory import pin_memory

from dali_like.data.array_backends import PYTHON_AND_NUMPY, UNRECORDED, numpy_seed
from dali_like.data.collate import function_for
from dali_like.data.sample_schema import Leaf
from dali_like.engine.worker.info import WorkerInfo, set_worker_info
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.plugin.pytorch.datapipes import draw_shared_seed, walk
from dali_like.plugin.pytorch.leaves import leaf_of
from dali_like.plugin.pytorch.tensor_pickling import reduce_tensor
from dali_like.sources import by_value

if TYPE_CHECKING:
    from dali_like.data.sampler_iterators import SamplerIterator
    from dali_like.device.interface import Pinning

_REDUCERS: dict[type, Callable[[Any], Any]] = {torch.Tensor: reduce_tensor, torch.nn.Parameter: reduce_tensor}
for _kind, _reduce in _REDUCERS.items():
    by_value.register(_kind, _reduce)


def _collate_privately(function: Callable[..., Any], batch: Any, **options: Any) -> Any:
    """Let PyTorch collate as it does without workers. With them, it would put tensors into files in /dev/shm."""
    info, torch_worker._worker_info = torch_worker._worker_info, None
    try:
        return function(batch, **options)
    finally:
        torch_worker._worker_info = info


#: Those of PyTorch itself; programs and libraries add others, and put theirs in the place of these.
_ORIGINAL_FUNCTIONS = {
    kind: function
    for kind, function in default_collate_fn_map.items()
    if getattr(function, "__module__", "") == torch_data.default_collate.__module__
}
#: What takes their place in workers.
_PRIVATE_FUNCTIONS = {
    kind: functools.partial(_collate_privately, function) for kind, function in _ORIGINAL_FUNCTIONS.items()
}

#: The state of a generator for the CPU begins with the seed.
_SEED_BYTES = 8


class TorchBackend:
    """Tensors, and PyTorch's generators; see `dali_like.data.array_backends.ArrayBackend`."""

    @property
    def reducers(self) -> Reducers:
        """Tensors keep their memory apart from the pickle."""
        return _REDUCERS

    def is_default(self, collate_fn: Any) -> bool:
        """Whether it is PyTorch's."""
        return collate_fn is torch_data.default_collate

    def is_collated_specially(self, value: Any) -> bool:
        """Whether PyTorch would not call its own function, or take a container apart, but call another function."""
        function = function_for(value, default_collate_fn_map)
        return all(function is not function_for(value, own) for own in (_ORIGINAL_FUNCTIONS, _PRIVATE_FUNCTIONS))

    def leaf_of(self, value: Any) -> Leaf | None:
        """A leaf for a tensor, an array or a number. PyTorch does not collate dataclasses."""
        return leaf_of(value)

    def draw_seed(self, generator: Any) -> int:
        """Drawn as PyTorch's iterators do it, so that whatever is drawn afterwards is the same as there."""
        return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())

    def passes(self, sampler: Iterable[Any]) -> SamplerIterator[Any]:
        """A pass over one of PyTorch's samplers can be resumed: it is one over ours, which draws the same."""
        from dali_like.data.sampler_iterators import resumable  # noqa: PLC0415  # workers have no samplers
        from dali_like.plugin.pytorch.samplers import own_sampler  # noqa: PLC0415

        return resumable(own_sampler(sampler))

    def draw_shared_seed(self, dataset: Any, generator: Any) -> int | None:
        """Drawn as PyTorch's iterators do it for iterable datapipes."""
        return draw_shared_seed(dataset, generator)

    def walk(self, dataset: Any, shared_seed: int | None) -> Iterator[Any]:
        """Datapipes are seeded before it."""
        return walk(dataset, shared_seed)

    def enter_worker(self, info: WorkerInfo) -> None:
        """As in PyTorch's workers. ``torch.utils.data.get_worker_info`` works, too."""
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

    def seeders(self, seed: int) -> tuple[Callable[[int], Any], ...]:
        """Those of Python, NumPy and PyTorch for the CPU. A seed that the user has given PyTorch's goes on to show."""
        generator = torch.default_generator
        is_as_it_was = generator.initial_seed() == seed
        return (*PYTHON_AND_NUMPY, generator.manual_seed if is_as_it_was else _seeder_in_disguise(generator))

    def pinning(self) -> Pinning | None:
        """PyTorch's CUDA. It knows memory that has been page-locked by others."""
        if not torch.cuda.is_available():
            return None
        from dali_like.plugin.pytorch.pinning import TorchPinning  # noqa: PLC0415  # not without a GPU, nor in workers

        return TorchPinning()

    def pin(self, batch: Any) -> Any:
        """As PyTorch does it, which copies only what is not page-locked: small tensors, and those that had no row."""
        return pin_memory(batch)

    def recording(self, name: str) -> AbstractContextManager[Any]:
        """As in PyTorch's iterators, whose ``__next__`` shows in profiles."""
        return torch.autograd.profiler.record_function(name) if torch.autograd._profiler_enabled() else UNRECORDED


def _seeder_in_disguise(generator: torch.Generator) -> Callable[[int], Any]:
    """How to seed a generator whose ``initial_seed()`` is not to change: users look at what they have set."""
    shown = generator.get_state()[:_SEED_BYTES].clone()
    other = torch.Generator()

    def seed_in_disguise(seed: int) -> None:
        state = other.manual_seed(seed).get_state()
        state[:_SEED_BYTES] = shown
        generator.set_state(state)

    return seed_in_disguise
