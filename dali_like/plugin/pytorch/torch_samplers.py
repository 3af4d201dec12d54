"""Replaces PyTorch's samplers by this library's, which draw the same indices and can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data as torch_data

from dali_like.data import samplers as own_samplers
from dali_like.data.generators import TorchRandomness
from dali_like.data.index_iterators import BatchIterator
from dali_like.data.sampler_iterators import resumable
from dali_like.plugin.pytorch.replaced_parts import is_original


class _RandomSampler(own_samplers.RandomSampler):
    randomness = TorchRandomness


class _BatchSampler(own_samplers.BatchSampler[Any]):
    def __iter__(self) -> BatchIterator[Any]:
        return BatchIterator(lambda: resumable(own_sampler(self.sampler)), self.batch_size, self.drop_last)


class _DistributedSampler(own_samplers.DistributedSampler):
    randomness = TorchRandomness


def own_sampler(sampler: Any) -> Any:
    """Return this library's counterpart of one of PyTorch's samplers.

    Other samplers and subclasses stay the same, and so do those whose ``__iter__`` the program has replaced.
    """
    translate = _TRANSLATIONS.get(type(sampler))
    if translate is None or not is_original(type(sampler).__iter__):
        return sampler
    return translate(sampler)


def _distributed(sampler: Any) -> Any:
    own = _DistributedSampler(
        sampler.dataset,
        num_replicas=sampler.num_replicas,
        rank=sampler.rank,
        shuffle=sampler.shuffle,
        seed=sampler.seed,
        drop_last=sampler.drop_last,
    )
    own.set_epoch(sampler.epoch)
    return own


def _generator_of(sampler: Any) -> Any:
    """Return a sampler's generator; without one, PyTorch draws from its global generator."""
    return torch.default_generator if sampler.generator is None else sampler.generator


_TRANSLATIONS: dict[type, Callable[[Any], Any]] = {
    torch_data.SequentialSampler: lambda sampler: own_samplers.SequentialSampler(sampler.data_source),
    torch_data.RandomSampler: lambda sampler: _RandomSampler(
        sampler.data_source, sampler.replacement, sampler._num_samples, sampler.generator
    ),
    torch_data.SubsetRandomSampler: lambda sampler: own_samplers.SubsetRandomSampler(
        sampler.indices, _generator_of(sampler)
    ),
    torch_data.WeightedRandomSampler: lambda sampler: own_samplers.WeightedRandomSampler(
        sampler.weights, sampler.num_samples, sampler.replacement, _generator_of(sampler)
    ),
    torch_data.BatchSampler: lambda sampler: _BatchSampler(sampler.sampler, sampler.batch_size, sampler.drop_last),
    torch_data.DistributedSampler: _distributed,
}
