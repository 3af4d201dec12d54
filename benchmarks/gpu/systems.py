"""The measured systems: each makes an endless iterator of batches on the GPU, as PyTorch tensors.

Workers are forked before CUDA is used, so modules that use CUDA are imported afterwards, and each system has a separate
process.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

BATCH_SIZE = 64
WORKERS = 8
SHAPE = (224, 224, 3)
IMAGE_BYTES = math.prod(SHAPE)


def image(index: int) -> Any:
    """Return an image filled with one number, and a label."""
    return np.full(SHAPE, index % 251, np.uint8), np.array([index], np.int32)


def of_info(info: Any) -> Any:
    """Return the sample as a pipeline source."""
    return image(info.idx_in_epoch)


class Images:
    """The samples as a dataset."""

    def __getitem__(self, index: int) -> Any:
        return image(index)

    def __len__(self) -> int:
        return sys.maxsize


def by_pipeline() -> Iterator[Any]:
    """Iterate over dali_like's pipeline, with ``.gpu()``."""
    from dali_like import fn, pipeline_def  # each in its own process, here and below

    return _batches_of(fn, pipeline_def, {})


def by_dali() -> Iterator[Any]:
    """Iterate over DALI's pipeline, with ``.gpu()``."""
    dali = importlib.import_module("nvidia.dali")
    return _batches_of(dali.fn, dali.pipeline_def, {})


def _batches_of(fn: Any, pipeline_def: Any, options: dict[str, Any]) -> Iterator[Any]:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=0, py_num_workers=WORKERS, **options)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        images, labels = fn.external_source(
            of_info, num_outputs=2, batch=False, parallel=True, dtype=None, prefetch_queue_depth=2
        )
        return images.gpu(), labels

    pipe = pipeline()
    pipe.start_py_workers()
    import torch  # when the workers have been forked

    while True:
        images, _ = pipe.run()
        yield torch.from_dlpack(images.as_tensor())


def by_loader() -> Iterator[Any]:
    """Iterate over dali_like's DataLoader, ``pin_memory=True``."""
    from dali_like.plugin.pytorch import DataLoader

    return _batches_of_loader(DataLoader)


def by_torch() -> Iterator[Any]:
    """Iterate over PyTorch's DataLoader, ``pin_memory=True``."""
    from torch.utils.data import DataLoader

    return _batches_of_loader(DataLoader)


def _batches_of_loader(kind: Any) -> Iterator[Any]:
    loader = kind(Images(), batch_size=BATCH_SIZE, num_workers=WORKERS, pin_memory=True)
    for images, _ in loader:
        yield images.to("cuda", non_blocking=True)


SYSTEMS: dict[str, Callable[[], Iterator[Any]]] = {
    "dali_like": by_pipeline,
    "dali_like DataLoader": by_loader,
    "torch DataLoader": by_torch,
    "DALI": by_dali,
}
