"""Array backends: the differences between loaders of NumPy arrays and of PyTorch tensors.

This module has the backend for NumPy, and `dali_like.plugin.pytorch.tensor_backend` the one for PyTorch, which derives from
it. A backend is stateless, because it is pickled for the workers.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.global_generators import generator_states, kept_generators
from dali_like.data.sample_schema import Leaf, UnfitError, numpy_leaf
from dali_like.engine.worker.info import WorkerInfo, get_worker_info, set_worker_info
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.sources.collate import default_collate, default_collate_fn_map, default_convert, function_for

if TYPE_CHECKING:
    from dali_like.data.columns import RowDataset
    from dali_like.data.device_senders import DeviceSender
    from dali_like.data.options import LoaderOptions
    from dali_like.data.sampler_iterators import SamplerIterator
    from dali_like.device.interface import Pinning

_ORIGINAL_FUNCTIONS = dict(default_collate_fn_map)


class ArrayBackend:
    """The array library of a loader's batches, its random generators and its memory: NumPy and the standard library."""

    #: The exact types of arrays and tensors.
    tensor_types: tuple[type, ...] = (np.ndarray,)

    @property
    def row_datasets(self) -> Mapping[type, RowDataset]:
        """The types of datasets whose samples are rows of arrays."""
        from dali_like.data.columns import ROW_DATASETS  # most workers need no datasets of this library

        return ROW_DATASETS

    @property
    def reducers(self) -> Reducers:
        """How to pickle arrays or tensors of this library without their memory. NumPy's arrays can do so themselves."""
        return {}

    #: The functions of the default collation by type, which programs may change.
    collations: Mapping[Any, Callable[..., Any]] = default_collate_fn_map

    def is_default(self, collate_fn: Any) -> bool:
        """Return whether a collation is the default one of this library."""
        return collate_fn is default_collate

    def is_default_conversion(self, collate_fn: Any) -> bool:
        """Return whether a conversion of single samples is the default one of this library."""
        return collate_fn is default_convert

    def integers_of(self, keys: Sequence[Any]) -> Sequence[int]:
        """Return the keys of a batch as integers.

        Raises:
            UnfitError: some of them are not integers.
        """
        raise UnfitError

    def indices(self, numbers: Sequence[int]) -> Any:
        """Return indices of samples as an array or tensor of int64."""
        return np.array(numbers, np.int64)

    def leaf_of(self, value: Any) -> Leaf | None:
        """See `dali_like.data.sample_schema.SchemaBackend`."""
        return numpy_leaf(value)

    def is_collated_specially(self, value: Any) -> bool:
        """See `dali_like.data.sample_schema.SchemaBackend`."""
        return function_for(value, default_collate_fn_map) is not function_for(value, _ORIGINAL_FUNCTIONS)

    def draw_seed(self, generator: Any) -> int:
        """Draw a base seed for the workers from the user's generator, or from the library's global one."""
        if generator is None:
            return int(np.random.randint(2**63 - 1, dtype=np.int64))
        from dali_like.data.generators import randomness_of  # workers draw no seeds

        return int(randomness_of(generator).integers(2**63 - 1, 1)[0])

    def iterate_sampler(self, sampler: Iterable[Any]) -> SamplerIterator[Any]:
        """Begin an iterator over a sampler that can be resumed."""
        from dali_like.data.sampler_iterators import resumable  # workers have no samplers

        return resumable(sampler)

    def draw_shared_seed(self, dataset: Any, generator: Any) -> int | None:
        """Draw a seed that the copies of an iterable dataset in all workers share; None if the dataset needs none."""
        return None

    def walk(self, dataset: Any, shared_seed: int | None) -> Iterator[Any]:
        """Begin an iterator over an iterable dataset."""
        return iter(dataset)

    def shard(
        self, dataset: Any, num_workers: int, worker_init_fn: Callable[[int], Any] | None
    ) -> Callable[[int], Any] | None:
        """Let each worker load its part of a dataset that cannot divide itself; datasets of this library can.

        Returns:
            The function to call in each worker before it loads samples.
        """
        return worker_init_fn

    def divides(self, dataset: Any) -> bool:
        """Return whether `shard` changes a dataset, which each iterator without workers then asks for."""
        return False

    def enter_worker(self, info: WorkerInfo) -> None:
        """Publish the worker's information, and seed the global generators of this process, with PyTorch's seeds.

        That includes PyTorch's own generator, if the dataset has imported it.
        """
        assert info.seed is not None
        set_worker_info(info)
        random.seed(info.seed)
        base_seed = info.seed - info.id
        np.random.seed(numpy_seed(base_seed, info.id))
        _seed_torch(info.seed)

    def seeders(self, seed: int) -> tuple[Callable[[int], Any], ...]:
        """Return the functions that seed the global generators in a worker whose own seed is given."""
        return (*PYTHON_AND_NUMPY, _seed_torch)

    def global_randomness(self) -> bytes:
        """Return the states of all global random generators, to compare them."""
        return pickle.dumps(generator_states())

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Undo the changes of `enter_worker` and seeders in this process, at the end of a context."""
        info = get_worker_info()
        try:
            with kept_generators():
                yield
        finally:
            set_worker_info(info)

    def has_accelerator(self) -> bool:
        """Return whether there is a GPU that batches can be copied to. The check does not initialize CUDA."""
        from dali_like.device.accelerator import accelerator_is_available  # workers do not ask

        return accelerator_is_available()

    def pinning(self) -> Pinning | None:
        """Return the page-locking for the memory of workers; None if the program copies arrays to a GPU itself."""
        return None

    def check_device(self, options: LoaderOptions) -> None:
        """Check that the device of a loader can be used, without using it: there are processes to fork.

        Raises:
            DeviceError: it cannot.
        """

    def sender_for(self, options: LoaderOptions, before: DeviceSender | None) -> DeviceSender | None:
        """Return what copies the batches of a loader to its device; None: they stay in host memory.

        Args:
            before: of the latest iterator of the loader.

        Raises:
            DeviceError: the device cannot be used.
        """
        return None

    def pin(self, batch: Any) -> Any:
        """Copy the parts of a batch that are not in page-locked memory to such memory. Arrays stay where they are."""
        return batch.pin_memory() if hasattr(batch, "pin_memory") else batch

    #: Whether the library's profiler is running; None: it has none.
    is_profiled: Callable[[], bool] | None = None

    def recorded(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that the library's profiler records under a name."""
        return contextlib.nullcontext()


#: The backend of all loaders of NumPy arrays.
NUMPY_BACKEND = ArrayBackend()


def numpy_seed(base_seed: int, worker: int) -> Sequence[int]:
    """Return PyTorch's seed for NumPy's global generator in a worker."""
    entropy = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    words: list[int] = np.random.SeedSequence(entropy).generate_state(4).tolist()
    return words


def _seed_numpy(seed: int) -> None:
    np.random.seed(seed & 0xFFFFFFFF)


#: Seed the global generators of Python and NumPy.
PYTHON_AND_NUMPY: tuple[Callable[[int], Any], ...] = (random.seed, _seed_numpy)


def _seed_torch(seed: int) -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)


def mixed_seed(*words: int) -> int:
    """Return a seed of 63 bits that depends on all given numbers and their order.

    The algorithm is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    return _mixed(_mixed_all(words[:-1]), words[-1]) >> 1


@functools.lru_cache(maxsize=16)
def _mixed_all(words: tuple[int, ...]) -> int:
    """Return the state after some numbers: the seeds of the parts of a batch differ in the last one only."""
    return functools.reduce(_mixed, words, 0)


def _mixed(state: int, word: int) -> int:
    state = (state + word + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return state ^ (state >> 31)
