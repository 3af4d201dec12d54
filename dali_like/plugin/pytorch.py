"""PyTorch's ``DataLoader`` on this package's workers, and DALI's iterators for PyTorch.

Code written for either moves over by changing the import:

>>> from dali_like.plugin.pytorch import DataLoader  # in place of torch.utils.data
>>> from dali_like.plugin.pytorch import DALIGenericIterator  # in place of nvidia.dali.plugin.pytorch
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

import numpy as np

from dali_like import by_value
from dali_like.data import samplers as own_samplers
from dali_like.data.collate import function_for
from dali_like.data.datasets import Samples
from dali_like.data.flavours import PYTHON_AND_NUMPY, UNRECORDED, numpy_seed
from dali_like.data.forms import (
    ArrayLeaf,
    ComplexLeaf,
    Leaf,
    NumberLeaf,
    Rows,
    Texts,
    UnfitError,
    numpy_leaf,
)
from dali_like.data.iteration import BatchIterator, SamplerIterator, resumable
from dali_like.data.loading import Loading
from dali_like.data.making import BatchMaker
from dali_like.data.options import LoaderOptions, OwnOptions, ThreadContext, numbers_of
from dali_like.data.randomness import TorchRandomness
from dali_like.device.protocol import Pinning
from dali_like.errors import ArgumentError
from dali_like.extras import optional
from dali_like.workers.info import WorkerInfo, set_worker_info
from dali_like.workers.parcels import Reducers

optional("torch", "dali_like.plugin.pytorch", "pytorch")

import torch  # noqa: E402
import torch.utils.data as torch_data  # noqa: E402
from torch.utils.data._utils import worker as torch_worker  # noqa: E402
from torch.utils.data._utils.collate import default_collate_fn_map  # noqa: E402
from torch.utils.data._utils.pin_memory import pin_memory  # noqa: E402

from dali_like.ops import TorchPythonFunction  # noqa: E402
from dali_like.plugin import _torch_functions as fn  # noqa: E402
from dali_like.plugin._datapipes import Divide, divide, draw_shared_seed, is_datapipe, walk  # noqa: E402
from dali_like.plugin._torch_iterators import (  # noqa: E402
    DALIClassificationIterator,
    DALIGenericIterator,
    DALIRaggedIterator,
    feed_ndarray,
    to_torch_type,
)
from dali_like.plugin._torch_pinning import TorchPinning  # noqa: E402
from dali_like.plugin._torch_tensors import reduce_tensor  # noqa: E402
from dali_like.plugin.progress import LastBatchPolicy  # noqa: E402

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

T_co = TypeVar("T_co", covariant=True)

_REDUCERS: dict[type, Callable[[Any], Any]] = {torch.Tensor: reduce_tensor, torch.nn.Parameter: reduce_tensor}
for _kind, _reduce in _REDUCERS.items():
    by_value.register(_kind, _reduce)

#: Those of PyTorch itself; programs and libraries add others, and put theirs in the place of these.
_ORIGINAL_FUNCTIONS = {
    kind: function
    for kind, function in default_collate_fn_map.items()
    if getattr(function, "__module__", "") == torch_data.default_collate.__module__
}

#: The integers of NumPy as which elements travel that it does not know.
_CARRIERS = {torch.bfloat16: torch.int16, torch.complex32: torch.int32}
_CARRIERS |= {dtype: torch.uint8 for name, dtype in vars(torch).items() if name.startswith("float8_")}


#: The state of a generator for the CPU begins with the seed.
_SEED_BYTES = 8


class _AsTensor:
    """Makes the batches of a leaf tensors."""

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        return torch.from_numpy(super().batch(rows, texts, in_tuple))  # type: ignore[misc]


class _ArrayAsTensor(_AsTensor, ArrayLeaf):
    pass


class _ComplexAsTensor(_AsTensor, ComplexLeaf):
    pass


class _NumberAsTensor(_AsTensor, NumberLeaf):
    pass


_AS_TENSOR: dict[type, Callable[[Any], Leaf]] = {
    ArrayLeaf: _ArrayAsTensor,
    ComplexLeaf: _ComplexAsTensor,
    NumberLeaf: _NumberAsTensor,
}


class TensorLeaf(Leaf):
    """A tensor on the CPU, whose memory is all there is to it."""

    def __init__(self, tensor: torch.Tensor, leaf: Leaf) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.leaf = leaf
        self.layout = leaf.layout

    def put(self, values: Sequence[Any], rows: Rows, texts: Texts) -> bool:
        for value in values:
            if type(value) is not torch.Tensor or value.dtype is not self.dtype:
                return False
            if not _is_plain(value) or value.shape != self.shape:
                return False
        self.leaf.number = self.number
        return self.leaf.put(list(map(_array_of, values)), rows, texts)

    def batch(self, rows: Rows, texts: Texts, in_tuple: bool) -> Any:
        self.leaf.number = self.number
        return torch.from_numpy(self.leaf.batch(rows, texts, in_tuple)).view(self.dtype)

    def sample(self, rows: Rows, texts: Texts, i: int) -> Any:
        self.leaf.number = self.number
        return torch.from_numpy(self.leaf.sample(rows, texts, i)).view(self.dtype)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        not tensor.is_nested
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _array_of(tensor: torch.Tensor) -> Any:
    carrier = _CARRIERS.get(tensor.dtype)
    return tensor.numpy() if carrier is None else tensor.view(carrier).numpy()


class TorchFlavour:
    """Tensors, and PyTorch's generators; see `dali_like.data.flavours.Flavour`."""

    @property
    def reducers(self) -> Reducers:
        """Tensors keep their memory apart from the pickle."""
        return _REDUCERS

    def is_default(self, collate_fn: Any) -> bool:
        """Whether it is PyTorch's."""
        return collate_fn is torch_data.default_collate

    def is_collated_specially(self, value: Any) -> bool:
        """Whether PyTorch would not call its own function, or take a container apart, but call another function."""
        return function_for(value, default_collate_fn_map) is not function_for(value, _ORIGINAL_FUNCTIONS)

    def leaf_of(self, value: Any) -> Leaf | None:
        """A leaf for a tensor, an array or a number. PyTorch does not collate dataclasses."""
        if dataclasses.is_dataclass(value):
            raise UnfitError
        if type(value) is torch.Tensor:
            leaf = numpy_leaf(_array_of(value)) if _is_plain(value) else None
            return None if leaf is None else TensorLeaf(value, leaf)
        leaf = numpy_leaf(value)
        return None if leaf is None else _AS_TENSOR[type(leaf)](value)

    def draw_seed(self, generator: Any) -> int:
        """Drawn as PyTorch's iterators do it, so that whatever is drawn afterwards is the same as there."""
        return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())

    def passes(self, sampler: Iterable[Any]) -> SamplerIterator[Any]:
        """A pass over one of PyTorch's samplers can be resumed: it is one over ours, which draws the same."""
        return resumable(_own(sampler))

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
                default_collate_fn_map[kind] = functools.partial(_collate_privately, function)
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
        return TorchPinning() if torch.cuda.is_available() else None

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


def _collate_privately(function: Callable[..., Any], batch: Any, **options: Any) -> Any:
    """Let PyTorch collate as it does without workers. With them, it would put tensors into files in /dev/shm."""
    info, torch_worker._worker_info = torch_worker._worker_info, None
    try:
        return function(batch, **options)
    finally:
        torch_worker._worker_info = info


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
        for name, value in vars(own).items():
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
        if name in _OWN_NAMES and "_iterator" in vars(self):
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


_OWN_NAMES = tuple(field.name for field in dataclasses.fields(OwnOptions))


# Samplers


class _RandomSampler(own_samplers.RandomSampler):
    randomness = TorchRandomness


class _BatchSampler(own_samplers.BatchSampler[Any]):
    def __iter__(self) -> BatchIterator[Any]:
        return BatchIterator(lambda: resumable(_own(self.sampler)), self.batch_size, self.drop_last)


class _DistributedSampler(own_samplers.DistributedSampler):
    randomness = TorchRandomness


def _own(sampler: Any) -> Any:
    """Our sampler that gives what one of PyTorch's gives; others, subclasses among them, stay what they are."""
    translate = _TRANSLATIONS.get(type(sampler))
    return sampler if translate is None else translate(sampler)


def _own_distributed(sampler: Any) -> Any:
    own = _DistributedSampler(
        sampler.dataset, sampler.num_replicas, sampler.rank, sampler.shuffle, sampler.seed, sampler.drop_last
    )
    own.set_epoch(sampler.epoch)
    return own


def _generator_of(sampler: Any) -> Any:
    """PyTorch draws from its global generator where a sampler has none."""
    return torch.default_generator if sampler.generator is None else sampler.generator


_TRANSLATIONS: dict[type, Callable[[Any], Any]] = {
    torch_data.SequentialSampler: lambda its: own_samplers.SequentialSampler(its.data_source),
    torch_data.RandomSampler: lambda its: _RandomSampler(its.data_source, its.replacement, its._num_samples, its.generator),
    torch_data.SubsetRandomSampler: lambda its: own_samplers.SubsetRandomSampler(its.indices, _generator_of(its)),
    torch_data.WeightedRandomSampler: lambda its: own_samplers.WeightedRandomSampler(
        its.weights, its.num_samples, its.replacement, _generator_of(its)
    ),
    torch_data.BatchSampler: lambda its: _BatchSampler(its.sampler, its.batch_size, its.drop_last),
    torch_data.DistributedSampler: _own_distributed,
}
