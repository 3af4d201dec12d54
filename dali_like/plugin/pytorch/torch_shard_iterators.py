"""Iterators of PyTorch's loader over composed datasets in logical shards; see `dali_like.data.shard_iterators`."""

from __future__ import annotations

import torch.utils.data.dataloader as torch_dataloader

from dali_like.data.shard_iterators import ShardSerialIterator, ShardWorkerIterator
from dali_like.plugin.pytorch.torch_iterators import TorchParts

__all__ = ["TorchShardSerialIterator", "TorchShardWorkerIterator"]


class TorchShardSerialIterator(TorchParts, ShardSerialIterator, torch_dataloader._SingleProcessDataLoaderIter):
    """An iterator without workers."""


class TorchShardWorkerIterator(TorchParts, ShardWorkerIterator, torch_dataloader._MultiProcessingDataLoaderIter):
    """An iterator with workers."""
