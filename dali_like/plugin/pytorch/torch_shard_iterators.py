"""Iterators of PyTorch's loader over composed datasets in logical shards; see `dali_like.data.shard_iterators`."""

from __future__ import annotations

import torch.utils.data.dataloader as torch_dataloader

from dali_like.data.shard_iterators import ShardSerialIterator, ShardWorkerIterator

__all__ = ["TorchShardSerialIterator", "TorchShardWorkerIterator"]


class TorchShardSerialIterator(ShardSerialIterator, torch_dataloader._SingleProcessDataLoaderIter):
    """An instance of PyTorch's class: Lightning checks the class before it pickles or ends an iterator."""


class TorchShardWorkerIterator(ShardWorkerIterator, torch_dataloader._MultiProcessingDataLoaderIter):
    """The same, with workers."""
