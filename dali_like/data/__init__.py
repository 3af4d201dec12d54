"""The data loader, datasets, samplers, collation and transforms, with PyTorch's names and arguments, for NumPy arrays.

May import `engine`, `sources`, `images`, `device`, `monitor` and `common`; knows no pipelines.

>>> from dali_like.data import ArrayDataset, BatchSampler, SequentialSampler, default_collate
>>> dataset = ArrayDataset([10, 20, 30, 40])
>>> for indices in BatchSampler(SequentialSampler(dataset), batch_size=2, drop_last=False):
...     print(default_collate([dataset[index] for index in indices]))
[array([10, 20])]
[array([30, 40])]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.data.cached_dataset import CachedDataset
    from dali_like.data.datasets import (
        ArrayDataset,
        ChainDataset,
        ConcatDataset,
        Dataset,
        IterableDataset,
        StackDataset,
        Subset,
        random_split,
    )
    from dali_like.data.folder import DatasetFolder, ImageFolder
    from dali_like.data.jagged import Jagged, jagged_collate
    from dali_like.data.length_sampler import LengthBatchSampler
    from dali_like.data.loader import DataLoader
    from dali_like.data.padding import Padded, pad_collate
    from dali_like.data.sampler_iterators import SamplerIterator, resumable
    from dali_like.data.samplers import (
        BatchSampler,
        DistributedSampler,
        RandomSampler,
        Sampler,
        SequentialSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    )
    from dali_like.data.sharded_sampler import ShardedBatchSampler
    from dali_like.data.transforms import (
        CenterCrop,
        Compose,
        Normalize,
        RandomHorizontalFlip,
        RandomResizedCrop,
        Resize,
        ToTensor,
    )
    from dali_like.engine.worker.info import WorkerInfo, get_worker_info
    from dali_like.images.array_images import InterpolationMode
    from dali_like.sources.collate import default_collate, default_collate_fn_map, default_convert
    from dali_like.sources.composed.dataset import ComposedDataset, ComposedIterator
    from dali_like.sources.composed.states import merge_states
    from dali_like.sources.permutation import BlockPermutation, Permutation
    from dali_like.sources.shared_objects import SharedDict, SharedList

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "BlockPermutation",
    "CachedDataset",
    "CenterCrop",
    "ChainDataset",
    "Compose",
    "ComposedDataset",
    "ComposedIterator",
    "DataLoader",
    "ConcatDataset",
    "Dataset",
    "DatasetFolder",
    "DistributedSampler",
    "ImageFolder",
    "InterpolationMode",
    "IterableDataset",
    "Jagged",
    "LengthBatchSampler",
    "Normalize",
    "Padded",
    "Permutation",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomSampler",
    "Resize",
    "Sampler",
    "ShardedBatchSampler",
    "SamplerIterator",
    "SequentialSampler",
    "SharedDict",
    "SharedList",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "ToTensor",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_collate_fn_map",
    "default_convert",
    "get_worker_info",
    "jagged_collate",
    "merge_states",
    "pad_collate",
    "random_split",
    "resumable",
]

_PLACES = {
    "dali_like.sources.collate": ("default_collate", "default_collate_fn_map", "default_convert"),
    "dali_like.data.cached_dataset": ("CachedDataset",),
    "dali_like.data.datasets": (
        "ArrayDataset",
        "ChainDataset",
        "ConcatDataset",
        "Dataset",
        "IterableDataset",
        "StackDataset",
        "Subset",
        "random_split",
    ),
    "dali_like.data.folder": ("DatasetFolder", "ImageFolder"),
    "dali_like.images.array_images": ("InterpolationMode",),
    "dali_like.data.sampler_iterators": ("SamplerIterator", "resumable"),
    "dali_like.data.jagged": ("Jagged", "jagged_collate"),
    "dali_like.data.length_sampler": ("LengthBatchSampler",),
    "dali_like.data.loader": ("DataLoader",),
    "dali_like.data.padding": ("Padded", "pad_collate"),
    "dali_like.sources.composed.dataset": ("ComposedDataset", "ComposedIterator"),
    "dali_like.sources.composed.states": ("merge_states",),
    "dali_like.sources.permutation": ("BlockPermutation", "Permutation"),
    "dali_like.sources.shared_objects": ("SharedDict", "SharedList"),
    "dali_like.data.samplers": (
        "BatchSampler",
        "DistributedSampler",
        "RandomSampler",
        "Sampler",
        "SequentialSampler",
        "SubsetRandomSampler",
        "WeightedRandomSampler",
    ),
    "dali_like.data.sharded_sampler": ("ShardedBatchSampler",),
    "dali_like.data.transforms": (
        "CenterCrop",
        "Compose",
        "Normalize",
        "RandomHorizontalFlip",
        "RandomResizedCrop",
        "Resize",
        "ToTensor",
    ),
    "dali_like.engine.worker.info": ("WorkerInfo", "get_worker_info"),
}

__getattr__, __dir__ = importer(__name__, _PLACES)
