"""The systems, each behind the protocol `benchmarks.adapters.Loader`.

All use two processes or threads for the pixels, and their defaults for the rest:

- dali_like: two workers, which call the source and then run the operators
- dali_like_kernels: the same, with dali-like-kernels, compiled if it is not installed; the others do without
- dali_like_turbojpeg: as dali_like, with TurboJPEG 3, which decodes only the windows of images
- dali_like_profiled: as dali_like, while `Pipeline.profile` samples the stacks of the workers
- dali_like_threads: one worker for the source, and two threads for the operators
- dali: the same in DALI, whose operators run in threads
- torch: a DataLoader with two workers, whose dataset does the work in OpenCV, with ``default_collate`` for images
- torchvision: likewise, with torchvision.v2's transforms of tensors
- torchvision_opencv: likewise in OpenCV, except for torchvision.v2's TrivialAugmentWide
- decoding: two processes that decode the files with libjpeg-turbo, and do nothing else; no library, but a limit
- grain, spdl: two worker processes, with the work in OpenCV; see `benchmarks.other_adapters`

DALI and dali_like run the function ``training`` of the example, compiled once with each library's import.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import examples
from benchmarks.adapters import Loader
from benchmarks.other_adapters import GrainLoader, SpdlLoader
from benchmarks.training.decoding import DecodingLoader
from benchmarks.training.opencv import SEED
from benchmarks.training.workloads import Workload
from benchmarks.with_kernels import use_kernels
from benchmarks.with_turbojpeg import packaged_turbojpeg
from benchmarks.workloads import WORKERS
from benchmarks.workloads import Workload as CallbackWorkload
from dali_like.images.jpeg_windows import LIBRARY_VARIABLE
from examples.photograph_source import PhotographSource

__all__ = ["NEEDED", "OURS", "PROFILED", "SYSTEMS", "open_system"]

#: Modules that each system needs.
NEEDED = {
    "dali_like": "dali_like",
    "dali_like_kernels": "dali_like",
    "dali_like_turbojpeg": "turbojpeg",
    "dali_like_profiled": "dali_like",
    "dali_like_threads": "dali_like",
    "dali": "nvidia.dali",
    "torch": "torch",
    "torchvision": "torchvision",
    "torchvision_opencv": "torchvision",
    "decoding": "simplejpeg",
    "grain": "grain",
    "spdl": "spdl.pipeline",
}
SYSTEMS = tuple(NEEDED)
PROFILED = "dali_like_profiled"
#: Systems of dali_like.
OURS = ("dali_like", "dali_like_kernels", "dali_like_turbojpeg", PROFILED, "dali_like_threads")


def open_system(system: str, workload: Workload, source: PhotographSource) -> Loader:
    """Return a loader of that system. The library is imported, but nothing is started."""
    if system in OURS:
        use_kernels(system == "dali_like_kernels")
    if system == "dali_like_turbojpeg":
        os.environ[LIBRARY_VARIABLE] = packaged_turbojpeg() or ""
    if system in OURS or system == "dali":
        return PipelineLoader(system, workload, source)
    if system == "decoding":
        return DecodingLoader(workload, source)
    if system in ("grain", "spdl"):
        return (GrainLoader if system == "grain" else SpdlLoader)(_with_callback(workload, source))
    return TorchLoader(system, workload, source)


class PipelineLoader:
    """The example's pipeline in DALI or dali_like."""

    def __init__(self, system: str, workload: Workload, source: PhotographSource) -> None:
        self._training = _training_of(workload.example, "nvidia.dali" if system == "dali" else "dali_like")
        self._arguments = dict(workload.arguments)
        self._arguments |= workload.dalis if system == "dali" else workload.ours
        self._source = source
        self._batch_size = workload.batch_size
        self._workers = 1 if system in ("dali", "dali_like_threads") else WORKERS
        self._is_profiled = system == PROFILED
        self._pipeline: Any = None
        self._profiling = contextlib.ExitStack()

    def start(self) -> None:
        self._pipeline = self._training(
            self._source,
            True,
            **self._arguments,
            batch_size=self._batch_size,
            num_threads=WORKERS,
            device_id=None,
            py_num_workers=self._workers,
            prefetch_queue_depth=2,
            seed=SEED,
        )
        if self._is_profiled:
            self._profiling.enter_context(self._pipeline.profile())
        self._pipeline.build()

    def consume(self, batches: int) -> Any:
        for _ in range(batches):
            outputs = self._pipeline.run()
        return outputs

    def samples(self, batch: Any) -> list[Any]:
        return [tuple(np.asarray(output.at(i)) for output in batch) for i in range(len(batch[0]))]

    def close(self) -> None:
        self._profiling.close()
        if hasattr(self._pipeline, "close"):
            self._pipeline.close()
        self._pipeline = None


def _training_of(example: str, library: str) -> Any:
    path = Path(examples.__path__[0]) / f"{example}.py"
    text = path.read_text(encoding="utf-8").replace("from dali_like", f"from {library}")
    names: dict[str, Any] = {"__name__": example}
    exec(compile(text, str(path), "exec"), names)
    return names["training"]


class TrainingDataset:
    """The workload as an endless map-style dataset, in OpenCV or by another function of index and sample."""

    def __init__(self, workload: Workload, source: PhotographSource, function: Callable[..., tuple[Any, ...]]) -> None:
        self._workload = workload
        self._source = source
        self._function = function

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self._function(index, *self._workload.inputs(self._source, index))

    def __len__(self) -> int:
        return 1 << 40


def _with_callback(workload: Workload, source: PhotographSource) -> CallbackWorkload:
    """Return the workload as the adapters of other libraries take it: a callback that returns an array and a label."""
    make = functools.partial(_sample, TrainingDataset(workload, source, workload.in_opencv))
    nbytes = math.prod(workload.shape) * np.dtype(np.float32).itemsize
    return CallbackWorkload(
        name=workload.name,
        batch_size=workload.batch_size,
        make=make,
        expected=make,
        mean_sample_bytes=nbytes,
        max_sample_bytes=nbytes,
    )


def _sample(dataset: TrainingDataset, index: int) -> tuple[Any, ...]:
    cv2.setNumThreads(1)
    return dataset[index]


class TorchLoader:
    """torch's DataLoader; arrays whose size differs from sample to sample come in lists of tensors."""

    def __init__(self, system: str, workload: Workload, source: PhotographSource) -> None:
        self._data: Any = importlib.import_module("torch.utils.data")
        self._dataset = TrainingDataset(workload, source, _function_of(system, workload))
        self._batch_size = workload.batch_size
        self._collate = collate_detections if workload.example == "ssd_pipeline" else None
        self._iterator: Iterator[Any] | None = None

    def start(self) -> None:
        self._iterator = iter(
            self._data.DataLoader(
                self._dataset,
                batch_size=self._batch_size,
                num_workers=WORKERS,
                multiprocessing_context="fork",
                collate_fn=self._collate,
                worker_init_fn=_set_up_worker,
            )
        )

    def consume(self, batches: int) -> Any:
        assert self._iterator is not None
        for batch in itertools.islice(self._iterator, batches):  # noqa: B007 the last batch is returned
            pass
        return batch

    def samples(self, batch: Any) -> list[Any]:
        return [tuple(map(np.asarray, sample)) for sample in zip(*batch, strict=True)]

    def close(self) -> None:
        self._iterator = None


def _function_of(system: str, workload: Workload) -> Callable[..., tuple[Any, ...]]:
    if system == "torch":
        return workload.in_opencv
    transforms = importlib.import_module("benchmarks.training.in_torchvision")
    function: Callable[..., tuple[Any, ...]] = getattr(transforms, system)
    return function


def _set_up_worker(_worker: int) -> None:
    cv2.setNumThreads(1)


def collate_detections(samples: Sequence[tuple[NDArray[Any], ...]]) -> tuple[Any, ...]:
    """Return images in one tensor; boxes and labels stay in lists."""
    torch = importlib.import_module("torch")
    images, *others = zip(*samples, strict=True)
    return torch.utils.data.default_collate(images), *map(list, others)
