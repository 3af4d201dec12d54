"""The systems, each behind the same small protocol: `Loader`.

Every system runs the same callback in `workloads.WORKERS` worker processes, with its own defaults for everything else (in
torch, two batches of prefetching per worker; in the pipelines, ``prefetch_queue_depth=2``). It reads the samples in order,
in an endless epoch, and returns batches in its usual form.

For samples of different sizes, the usual form is:

- DALI and dali_like: a TensorList.
- torch: a list of bytes and a tensor of labels, made by a ``collate_fn``. This was the fastest of the list forms that were
  tried (tensors with either sharing strategy, arrays, bytes): one tensor per sample costs a shared-memory file and a file
  descriptor each.
- torch_packed: one tensor of all bytes, and the sizes; the consumer splits it into views. Few programs do this, but it is
  the fast way in torch, so the results show it next to the usual form.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.workloads import WORKERS, Array, Sample, Workload

__all__ = ["SYSTEMS", "Loader", "System", "is_installed"]


class Loader(Protocol):
    """One system with one workload. The constructor imports the library and does nothing else."""

    def start(self) -> None:
        """Make the loader and call ``build()`` or ``iter()``."""
        ...

    def consume(self, batches: int) -> Any:
        """Receive ``batches`` batches in the system's own idiom. Drop each one when the next arrives, and return the
        last.
        """
        ...

    def samples(self, batch: Any) -> list[Sample]:
        """Return a batch as arrays, for verification; never called in a timed part."""
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...


@dataclass(frozen=True)
class SampleCallback:
    """The workload's callback as a per-sample source of DALI and dali_like."""

    make: Callable[[int], Sample]

    def __call__(self, info: Any) -> Sample:
        return self.make(info.idx_in_epoch)


@dataclass(frozen=True)
class InPlaceCallback:
    """The workload's callback as a per-sample source of dali_like that creates the array in the batch's memory."""

    fill: Callable[[int, Array], None]
    shape: tuple[int, ...]

    def __call__(self, info: Any) -> Sample:
        array = info.empty(self.shape)
        self.fill(info.idx_in_epoch, array)
        return array, np.array([info.idx_in_epoch], np.int32)


@dataclass(frozen=True)
class SampleDataset:
    """The workload's callback as a map-style dataset of torch, which requires no base class."""

    make: Callable[[int], Sample]

    def __getitem__(self, index: int) -> Sample:
        return self.make(index)

    def __len__(self) -> int:
        return sys.maxsize  # an endless epoch; torch's sequential sampler is a range, not a list


def sample_source(workload: Workload) -> Callable[[Any], Sample]:
    """Return the workload's callback as a per-sample source."""
    if workload.fill is None:
        return SampleCallback(workload.make)
    return InPlaceCallback(workload.fill, workload.expected(0)[0].shape)


class PipelineLoader:
    """DALI or dali_like: the same program with another import."""

    def __init__(self, library: str, workload: Workload) -> None:
        dali: Any = importlib.import_module(library)
        # What programs import. dali_like imports it when it is named.
        self._pipeline_def, self._fn, self._types = dali.pipeline_def, dali.fn, dali.types
        self._workload = workload
        self._pipeline: Any = None

    def start(self) -> None:
        fn, types = self._fn, self._types

        @self._pipeline_def(  # type: ignore[untyped-decorator]
            batch_size=self._workload.batch_size,
            num_threads=1,
            device_id=None,
            py_num_workers=WORKERS,
            py_start_method=self._workload.start_method,
            prefetch_queue_depth=2,
        )
        def pipeline(source: Callable[[Any], Sample]) -> Any:
            arrays, labels = fn.external_source(
                source=source,
                num_outputs=2,
                batch=False,
                parallel=True,
                dtype=[types.UINT8, types.INT32],
            )
            return arrays, labels

        self._pipeline = pipeline(sample_source(self._workload))
        self._pipeline.build()

    def consume(self, batches: int) -> Any:
        pipeline = self._pipeline
        for _ in range(batches):
            arrays, labels = pipeline.run()
        return arrays, labels

    def samples(self, batch: Any) -> list[Sample]:
        arrays, labels = batch
        return [(np.asarray(arrays.at(i)), np.asarray(labels.at(i))) for i in range(len(arrays))]

    def close(self) -> None:
        if hasattr(self._pipeline, "close"):
            self._pipeline.close()
        self._pipeline = None  # DALI has no close(): its workers stop with the pipeline


class TorchLoader:
    """torch's DataLoader with its own ``default_collate``, or with lists if samples differ in size."""

    def __init__(self, workload: Workload) -> None:
        self._data: Any = importlib.import_module("torch.utils.data")
        self._workload = workload
        self._iterator: Iterator[Any] | None = None

    def start(self) -> None:
        loader = self._data.DataLoader(
            SampleDataset(self._workload.make),
            batch_size=self._workload.batch_size,
            num_workers=WORKERS,
            multiprocessing_context=self._workload.start_method,
            collate_fn=self._collate(),
        )
        self._iterator = iter(loader)

    def _collate(self) -> Callable[[Sequence[Sample]], Any] | None:
        return collate_lists if self._workload.ragged else None

    def consume(self, batches: int) -> Any:
        assert self._iterator is not None
        for arrays, labels in itertools.islice(self._iterator, batches):  # noqa: B007 the last batch is returned
            pass
        return arrays, labels

    def samples(self, batch: Any) -> list[Sample]:
        arrays, labels = batch
        as_array = _from_bytes if self._workload.ragged else np.asarray
        return [(as_array(array), np.asarray(label)) for array, label in zip(arrays, labels, strict=True)]

    def close(self) -> None:
        self._iterator = None


class TorchPackedLoader(TorchLoader):
    """torch's DataLoader with the samples of a batch packed into one tensor, which the consumer splits into views."""

    def _collate(self) -> Callable[[Sequence[Sample]], Any] | None:
        return collate_packed

    def consume(self, batches: int) -> Any:
        assert self._iterator is not None
        for packed, sizes, labels in itertools.islice(self._iterator, batches):  # noqa: B007 the last batch is returned
            arrays = packed.split(sizes)
        return arrays, labels

    def samples(self, batch: Any) -> list[Sample]:
        arrays, labels = batch
        return [(np.asarray(array), np.asarray(label)) for array, label in zip(arrays, labels, strict=True)]


def collate_lists(batch: Sequence[Sample]) -> tuple[list[bytes], Any]:
    """Return a list of bytes and a tensor of labels."""
    torch = importlib.import_module("torch")
    return [array.tobytes() for array, _ in batch], torch.from_numpy(np.stack([label for _, label in batch]))


def collate_packed(batch: Sequence[Sample]) -> tuple[Any, list[int], Any]:
    """Return all bytes in one tensor, the size of each sample, and a tensor of labels."""
    torch = importlib.import_module("torch")
    packed = torch.from_numpy(np.concatenate([array for array, _ in batch]))
    return packed, [array.size for array, _ in batch], torch.from_numpy(np.stack([label for _, label in batch]))


def _from_bytes(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


@dataclass(frozen=True)
class System:
    """How to open a system, and its capabilities.

    Attributes:
        open: makes the loader.
        packages: modules that must be installed.
        only: the workloads it supports; None for all.
        gives_memory: whether a callback can create its sample in the batch's memory.
        stacks: whether all samples of a batch must have the same shape.
        processes: number of processes below the consumer's, for systems whose first batch may arrive before all have
            started.
    """

    open: Callable[[Workload], Loader]
    packages: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    gives_memory: bool = False
    stacks: bool = False
    processes: int = 0

    def runs(self, workload: Workload) -> bool:
        """Return whether the system supports this workload."""
        if self.only is not None:
            return workload.name in self.only
        return not (self.stacks and workload.ragged) and (self.gives_memory or workload.fill is None)

    @property
    def missing(self) -> list[str]:
        """Return the modules that are not installed."""
        return [package for package in self.packages if not is_installed(package)]


def is_installed(package: str) -> bool:
    """Return whether a module can be imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def _other(kind: str) -> Callable[[Workload], Loader]:
    """Make a loader of a library that most machines do not have."""

    def open_one(workload: Workload) -> Loader:
        loader: Loader = getattr(importlib.import_module("benchmarks.other_adapters"), kind)(workload)
        return loader

    return open_one


SYSTEMS = {
    "dali_like": System(lambda workload: PipelineLoader("dali_like", workload), gives_memory=True, processes=WORKERS + 1),
    "torch": System(TorchLoader, ("torch",)),
    "torch_packed": System(TorchPackedLoader, ("torch",), frozenset({"encoded"})),
    "dali": System(lambda workload: PipelineLoader("nvidia.dali", workload), ("nvidia.dali",)),
    "grain": System(_other("GrainLoader"), ("grain",), stacks=True),
    "spdl": System(_other("SpdlLoader"), ("spdl.pipeline",), frozenset({"tiny", "image", "large", "slow"}), stacks=True),
    "ray_data": System(_other("RayDataLoader"), ("ray.data", "pyarrow"), frozenset({"slow", "startup"}), stacks=True),
}
