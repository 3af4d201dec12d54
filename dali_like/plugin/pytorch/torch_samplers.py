"""Iterates over PyTorch's samplers with this library's iterators, which draw the same indices and can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data as torch_data

from dali_like.data import samplers as own_samplers
from dali_like.data.generators import TorchRandomness
from dali_like.data.index_iterators import BatchIterator, SequenceIterator
from dali_like.data.sampler_iterators import SamplerIterator, resumable
from dali_like.plugin.pytorch.replaced_parts import is_original


class _DistributedSampler(own_samplers.DistributedSampler):
    randomness = TorchRandomness


def own_iterator(sampler: Any) -> SamplerIterator[Any]:
    """Begin an iterator over a sampler that can be resumed.

    Subclasses of PyTorch's samplers iterate themselves, and so do those whose ``__iter__`` the program has replaced.
    """
    kind: Any = type(sampler)
    begin = _ITERATORS.get(kind)
    if begin is None or (kind.__iter__ is not _ORIGINALS[kind] and not is_original(kind.__iter__)):
        return resumable(sampler)
    return begin(sampler)


def _over_batches(sampler: Any) -> SamplerIterator[Any]:
    size, drop_last = sampler.batch_size, sampler.drop_last
    if type(size) is not int or size < 1 or type(drop_last) is not bool:  # programs may change them
        own_samplers.check_batches(size, drop_last)
    return BatchIterator(lambda: own_iterator(sampler.sampler), size, drop_last)


def _over_permutation(sampler: Any) -> SamplerIterator[Any]:
    length, num_samples = len(sampler.data_source), sampler._num_samples
    total = length if num_samples is None else num_samples
    own_samplers.check_total(length, num_samples, total)
    return own_samplers.random_indices(length, total, sampler.replacement, sampler.generator, TorchRandomness)


def _over_rank(sampler: Any) -> SamplerIterator[Any]:
    own = _DistributedSampler(
        sampler.dataset,
        num_replicas=sampler.num_replicas,
        rank=sampler.rank,
        shuffle=sampler.shuffle,
        seed=sampler.seed,
        drop_last=sampler.drop_last,
    )
    own.set_epoch(sampler.epoch)
    return iter(own)


def _generator_of(sampler: Any) -> Any:
    """Return a sampler's generator; without one, PyTorch draws from its global generator."""
    return torch.default_generator if sampler.generator is None else sampler.generator


_ITERATORS: dict[Any, Callable[[Any], SamplerIterator[Any]]] = {
    torch_data.SequentialSampler: lambda sampler: SequenceIterator(range(len(sampler.data_source))),
    torch_data.RandomSampler: _over_permutation,
    torch_data.SubsetRandomSampler: lambda sampler: iter(
        own_samplers.SubsetRandomSampler(sampler.indices, _generator_of(sampler))
    ),
    torch_data.WeightedRandomSampler: lambda sampler: iter(
        own_samplers.WeightedRandomSampler(sampler.weights, sampler.num_samples, sampler.replacement, _generator_of(sampler))
    ),
    torch_data.BatchSampler: _over_batches,
    torch_data.DistributedSampler: _over_rank,
}

#: The methods that these iterators stand for, as far as they are PyTorch's: a program may have replaced them before.
_ORIGINALS = {kind: kind.__iter__ if is_original(kind.__iter__) else None for kind in _ITERATORS}
