"""What distinguishes loaders of NumPy arrays from those of tensors: a protocol, and the first of the two.

The second is in `dali_like.plugin.pytorch.backend`. A array_backend travels to the workers, and so is stateless.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.random  # NumPy would do so when it is first used: in each worker

from dali_like.data.collate import default_collate, default_collate_fn_map, function_for
from dali_like.data.sample_schema import Leaf, SchemaBackend, numpy_leaf
from dali_like.engine.worker.info import WorkerInfo, set_worker_info
from dali_like.engine.worker.out_of_band import Reducers

if TYPE_CHECKING:
    from dali_like.data.sampler_iterators import SamplerIterator
    from dali_like.device.interface import Pinning

_ORIGINAL_FUNCTIONS = dict(default_collate_fn_map)


class ArrayBackend(SchemaBackend, Protocol):
    """What a loader's batches are made of, and what its random numbers come from."""

    @property
    def reducers(self) -> Reducers:
        """How arrays or tensors of this array_backend are pickled, for their memory to be shared."""

    def is_default(self, collate_fn: Any) -> bool:
        """Whether a collation is the default one of this array_backend."""

    def draw_seed(self, generator: Any) -> int:
        """A seed for the workers, drawn from a generator of the user's, or from the library's global state."""

    def passes(self, sampler: Iterable[Any]) -> SamplerIterator[Any]:
        """Begin a pass over a sampler."""

    def draw_shared_seed(self, dataset: Any, generator: Any) -> int | None:
        """A seed that the workers' copies of an iterable dataset are to have in common in a pass, if it has use for one."""

    def walk(self, dataset: Any, shared_seed: int | None) -> Iterator[Any]:
        """Begin to walk through an iterable dataset."""

    def enter_worker(self, info: WorkerInfo) -> None:
        """Make known that this process is a worker, and seed its global generators."""

    def seeders(self, seed: int) -> tuple[Callable[[int], Any], ...]:
        """How to seed each of the global generators that are to be seeded in a worker which began with this seed."""

    def pinning(self) -> Pinning | None:
        """What page-locks the memory that workers write batches to; None: nothing does."""

    def pin(self, batch: Any) -> Any:
        """Put what is not yet there of a batch into page-locked memory."""

    def recording(self, name: str) -> AbstractContextManager[Any]:
        """A context whose time the library's profiler, if there is one at work, records under a name."""


UNRECORDED: AbstractContextManager[Any] = contextlib.nullcontext()


class NumpyBackend:
    """Arrays, and NumPy's generators."""

    @property
    def reducers(self) -> Reducers:
        """None: arrays know by themselves."""
        return {}

    def is_default(self, collate_fn: Any) -> bool:
        """See `ArrayBackend.is_default`."""
        return collate_fn is default_collate

    def leaf_of(self, value: Any) -> Leaf | None:
        """See `dali_like.data.sample_schema.SchemaBackend`."""
        return numpy_leaf(value)

    def is_collated_specially(self, value: Any) -> bool:
        """See `dali_like.data.sample_schema.SchemaBackend`."""
        return function_for(value, default_collate_fn_map) is not function_for(value, _ORIGINAL_FUNCTIONS)

    def draw_seed(self, generator: Any) -> int:
        """See `ArrayBackend.draw_seed`."""
        if generator is None:
            return int(np.random.randint(2**63 - 1, dtype=np.int64))
        from dali_like.data.generators import randomness_of  # noqa: PLC0415  # workers draw no seeds

        return int(randomness_of(generator).integers(2**63 - 1, 1)[0])

    def passes(self, sampler: Iterable[Any]) -> SamplerIterator[Any]:
        """See `ArrayBackend.passes`."""
        from dali_like.data.sampler_iterators import resumable  # noqa: PLC0415  # workers have no samplers

        return resumable(sampler)

    def draw_shared_seed(self, dataset: Any, generator: Any) -> int | None:
        """None: no dataset of ours has use for one."""
        return None

    def walk(self, dataset: Any, shared_seed: int | None) -> Iterator[Any]:
        """See `ArrayBackend.walk`."""
        return iter(dataset)

    def enter_worker(self, info: WorkerInfo) -> None:
        """See `ArrayBackend.enter_worker`. As PyTorch does it; its own generator, too, where the dataset has imported it."""
        assert info.seed is not None
        set_worker_info(info)
        random.seed(info.seed)
        base_seed = info.seed - info.id
        np.random.seed(numpy_seed(base_seed, info.id))
        _seed_torch(info.seed)

    def seeders(self, seed: int) -> tuple[Callable[[int], Any], ...]:
        """See `ArrayBackend.seeders`."""
        return (*PYTHON_AND_NUMPY, _seed_torch)

    def pinning(self) -> None:
        """None: arrays do not go to a GPU by themselves."""

    def pin(self, batch: Any) -> Any:
        """Arrays stay where they are; what can pin itself does."""
        return batch.pin_memory() if hasattr(batch, "pin_memory") else batch

    def recording(self, name: str) -> AbstractContextManager[Any]:
        """NumPy has no profiler."""
        return UNRECORDED


def numpy_seed(base_seed: int, worker: int) -> Sequence[int]:
    """What PyTorch seeds NumPy's global generator with in a worker."""
    entropy = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    words: list[int] = np.random.SeedSequence(entropy).generate_state(4).tolist()
    return words


def _seed_numpy(seed: int) -> None:
    np.random.seed(seed & 0xFFFFFFFF)


#: How to seed their global generators.
PYTHON_AND_NUMPY: tuple[Callable[[int], Any], ...] = (random.seed, _seed_numpy)


def _seed_torch(seed: int) -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)


def mixed_seed(*words: int) -> int:
    """A seed of 63 bits that depends on all of some numbers, and on their order.

    The steps are those of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    state = 0
    for word in words:
        state = (state + word + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1
