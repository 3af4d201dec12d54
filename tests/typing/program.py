# pyright: strict
"""A program of a user with a type checker: nothing here may be an error, and every type is as stated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from dali_like import Pipeline, fn, get_worker_info, math, ops, pipeline_def, types
from dali_like.data import ArrayDataset, DataLoader, Dataset, RandomSampler, Subset
from dali_like.data_node import DataNode
from dali_like.errors import DaliLikeError, WorkerDiedError
from dali_like.fn import decoders, reductions
from dali_like.plugin import DALIGenericIterator, LastBatchPolicy
from dali_like.tensors import TensorCPU, TensorListCPU, TensorListGPU


class Photographs:
    """A callable source."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __call__(self, info: types.SampleInfo) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        assert_type(info.idx_in_epoch, int)
        assert_type(info.rng(), np.random.Generator)
        return np.fromfile(self.files[info.idx_in_epoch], np.uint8), np.array([info.idx_in_epoch], np.int32)


@pipeline_def(batch_size=8, num_threads=2, py_num_workers=2, py_start_method="spawn")
def photographs(source: Photographs, side: int = 224) -> tuple[DataNode, ...]:
    files, labels = fn.external_source(source, num_outputs=2, batch=False, parallel=True, dtype=[types.UINT8, types.INT32])
    decoded = decoders.image(files, output_type=types.RGB)
    assert_type(fn.cache(decoded, labels, memory="1GiB"), list[DataNode])
    images = fn.cache(decoded, memory="1GiB", policy="lru")
    assert_type(images, DataNode)
    turned = fn.flip(fn.resize(images, size=[side, side]), horizontal=fn.random.coin_flip(probability=0.5))
    normal = ops.CropMirrorNormalize(mean=[127.0] * 3, std=[64.0] * 3)(turned)
    brightest = reductions.max(turned, axes=[0, 1])
    return turned * 0.5 + 1, math.sqrt(fn.cast(labels, dtype=types.FLOAT)), normal, brightest


def train(files: list[Path]) -> int:
    """A loop over a pipeline."""
    count = 0
    pipe = photographs(Photographs(files), side=64)
    assert_type(pipe, Pipeline)
    try:
        with pipe:
            for images, *_ in pipe:
                on_cpu = images.as_cpu() if isinstance(images, TensorListGPU) else images
                assert_type(on_cpu, TensorListCPU)
                assert_type(on_cpu[0], TensorCPU)
                count += len(images) + on_cpu.as_array().shape[0]
                state = pipe.checkpoint()
                assert_type(state, bytes)
    except WorkerDiedError as error:
        return error.exitcode or 1
    except DaliLikeError:
        return 1
    return count


def by_iterator(pipe: Pipeline) -> Iterator[object]:
    """DALI's iterator, for arrays."""
    for batches in DALIGenericIterator(pipe, ["images"], size=10, last_batch_policy=LastBatchPolicy.PARTIAL):
        yield batches[0]["images"]


class Squares(Dataset[tuple[NDArray[np.float32], int]]):
    """A dataset."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        worker = get_worker_info()
        return np.full(3, index**2, np.float32), 0 if worker is None else worker.id


def load() -> int:
    """A loop over a loader."""
    squares = Squares()
    subset = Subset(squares, range(50))
    loader = DataLoader(subset, batch_size=10, num_workers=2, sampler=RandomSampler(range(50)))
    assert_type(subset, Subset[tuple[NDArray[np.float32], int]])
    assert_type(loader, DataLoader[tuple[NDArray[np.float32], int]])
    assert_type(DataLoader(["a", "b"]), DataLoader[str])
    state = loader.state_dict()
    loader.load_state_dict(state)
    arrays = ArrayDataset(np.zeros((4, 2)), np.arange(4))
    return len(loader) + len(arrays) + sum(1 for _ in loader)
