"""The systems, each behind the protocol `benchmarks.adapters.Loader`. All use two processes or threads for the pixels.

- dali_like, dali: one function, with the readers of each library
- torch: a DataLoader over a dataset that reads and computes in OpenCV (`benchmarks.training.opencv`)
- torchvision: a DataLoader over ``ImageFolder``, with torchvision's transforms
- spdl: SPDL's pipeline of threads, with the work in OpenCV; batches are arrays
- webdataset: a DataLoader over ``webdataset.WebDataset``, with the work in OpenCV
- litdata, mosaicml: a DataLoader over their ``StreamingDataset``, with the work in OpenCV
"""

from __future__ import annotations

import importlib
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.adapters import Loader
from benchmarks.training.opencv import SEED, recognize
from benchmarks.training.readers.chunked import CHUNKED, chunked_loader, write_chunks
from benchmarks.training.readers.stored import Dataset, Stored
from benchmarks.with_torchvision import import_torchvision
from benchmarks.workloads import WORKERS
from examples import resnet_pipeline

__all__ = ["NEEDED", "SYSTEMS", "open_system"]

SIDE = resnet_pipeline.SIDE
#: Modules that each system needs.
NEEDED = {
    "dali_like": "dali_like",
    "dali": "nvidia.dali",
    "torch": "torch",
    "torchvision": "torchvision",
    "spdl": "spdl.pipeline",
    "webdataset": "webdataset",
    **CHUNKED,
}
SYSTEMS = tuple(NEEDED)
_QUEUED = 2


def open_system(system: str, dataset: Dataset, stored: Stored) -> Loader:
    """Return a loader of that system. The library is imported, but nothing is started."""
    if system in ("dali_like", "dali"):
        return ReaderLoader(NEEDED[system], dataset, stored)
    if system == "spdl":
        return SpdlLoader(dataset, stored)
    return TorchLoader(system, dataset, stored)


class ReaderLoader:
    """A pipeline with a reader of DALI or dali_like: the same program."""

    def __init__(self, library: str, dataset: Dataset, stored: Stored) -> None:
        self._dali: Any = importlib.import_module(library)
        self._tfrecord: Any = importlib.import_module(f"{library}.tfrecord") if dataset.kind == "tfrecord" else None
        self._dataset = dataset
        self._stored = stored
        self._pipeline: Any = None

    def start(self) -> None:
        self._pipeline = self._dali.pipeline_def(self._define)(
            batch_size=self._dataset.batch_size, num_threads=WORKERS, device_id=None, prefetch_queue_depth=_QUEUED, seed=SEED
        )
        self._pipeline.build()

    def _define(self) -> Any:
        fn, types = self._dali.fn, self._dali.types
        files, labels = self._read()
        if not self._dataset.normalized:
            images = fn.decoders.image(files, output_type=types.RGB)
            return fn.resize(images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=False), labels
        images = fn.decoders.image_random_crop(files, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
        images = fn.resize(images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=False)
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(probability=0.5),
            mean=resnet_pipeline.MEAN,
            std=resnet_pipeline.STD,
            dtype=types.FLOAT,
            output_layout="CHW",
        )
        return images, labels

    def _read(self) -> tuple[Any, Any]:
        readers, stored = self._dali.fn.readers, self._stored
        options = {"random_shuffle": True, "name": "Reader"}
        if self._dataset.kind == "folders":
            files, labels = readers.file(file_root=stored.paths[0], **options)
            return files, labels
        if self._dataset.kind == "tar":
            files, labels = readers.webdataset(paths=stored.paths, ext=["jpg", "cls"], **options)
            return files, labels
        tfrec = self._tfrecord
        features = readers.tfrecord(
            path=stored.paths,
            index_path=stored.indexes,
            features={
                "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
                "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
            },
            **options,
        )
        return features["image/encoded"], features["image/class/label"]

    def consume(self, batches: int) -> Any:
        for _ in range(batches):
            outputs = self._pipeline.run()
        return outputs

    def samples(self, batch: Any) -> list[Any]:
        return [tuple(np.asarray(output.at(i)) for output in batch) for i in range(len(batch[0]))]

    def close(self) -> None:
        if hasattr(self._pipeline, "close"):
            self._pipeline.close()
        self._pipeline = None


class FolderDataset:
    """The folders in OpenCV, as an endless map-style dataset in random order."""

    def __init__(self, stored: Stored) -> None:
        self._files = stored.files

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: int) -> tuple[NDArray[Any], ...]:
        epoch, position = divmod(index, len(self._files.files))
        place = random.Random(epoch << 32 | position).randrange(len(self._files.files))
        data = np.fromfile(self._files.files[place], np.uint8)
        return recognize(index, data, self._files.labels[place : place + 1])


class SpdlLoader:
    """SPDL with a pool of threads."""

    def __init__(self, dataset: Dataset, stored: Stored) -> None:
        self._spdl: Any = importlib.import_module("spdl.pipeline")
        self._dataset = dataset
        self._samples = FolderDataset(stored)
        self._pipeline: Any = None
        self._batches: Iterator[Any] | None = None

    def start(self) -> None:
        cv2.setNumThreads(1)
        builder = self._spdl.PipelineBuilder()
        builder.add_source(itertools.count()).pipe(self._samples.__getitem__, concurrency=WORKERS)
        builder.aggregate(self._dataset.batch_size).pipe(_stacked).add_sink(_QUEUED)
        self._pipeline = builder.build(num_threads=WORKERS + 1)
        self._pipeline.start()
        self._batches = iter(self._pipeline.get_iterator())

    def consume(self, batches: int) -> Any:
        assert self._batches is not None
        for batch in itertools.islice(self._batches, batches):  # noqa: B007 the last batch is returned
            pass
        return batch

    def samples(self, batch: Any) -> list[Any]:
        return list(zip(*batch, strict=True))

    def close(self) -> None:
        self._batches = None
        self._pipeline.stop()


def _stacked(samples: Sequence[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    return [np.stack(column) for column in zip(*samples, strict=True)]


class TorchLoader:
    """torch's DataLoader, over a dataset of another library or in OpenCV."""

    def __init__(self, system: str, dataset: Dataset, stored: Stored) -> None:
        self._data: Any = importlib.import_module("torch.utils.data")
        if system == "torchvision":
            import_torchvision()
        if system in CHUNKED:
            write_chunks(system, dataset, stored)
        self._system = system
        self._dataset = dataset
        self._stored = stored
        self._iterator: Iterator[Any] | None = None

    def start(self) -> None:
        self._iterator = itertools.chain.from_iterable(itertools.repeat(self._loader()))

    def _loader(self) -> Any:
        if self._system in CHUNKED:
            compute = recognize if self._dataset.normalized else _decoded_and_labeled
            return chunked_loader(self._system, self._dataset, compute, worker_init_fn=_set_up_worker)
        source, options = self._source()
        return self._data.DataLoader(
            source,
            batch_size=self._dataset.batch_size,
            num_workers=WORKERS,
            multiprocessing_context="fork",
            worker_init_fn=_set_up_worker,
            persistent_workers=True,
            **options,
        )

    def _source(self) -> tuple[Any, dict[str, Any]]:
        """Return the dataset, and further options of the loader."""
        if self._system == "torchvision":
            return _image_folder(self._stored.paths[0]), {"shuffle": True, "drop_last": True}
        if self._system == "webdataset":
            return _web_dataset(self._stored), {}
        return FolderDataset(self._stored), {}

    def consume(self, batches: int) -> Any:
        assert self._iterator is not None
        for batch in itertools.islice(self._iterator, batches):  # noqa: B007 the last batch is returned
            pass
        return batch

    def samples(self, batch: Any) -> list[Any]:
        return [tuple(map(np.asarray, sample)) for sample in zip(*batch, strict=True)]

    def close(self) -> None:
        self._iterator = None


def _image_folder(root: str) -> Any:
    datasets: Any = import_torchvision("torchvision.datasets")
    transforms: Any = import_torchvision("torchvision.transforms")
    mean, std = ([value / 255 for value in values] for values in (resnet_pipeline.MEAN, resnet_pipeline.STD))
    steps = [
        transforms.RandomResizedCrop(SIDE, antialias=False),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(mean, std),
    ]
    return datasets.ImageFolder(root, transforms.Compose(steps))


def _web_dataset(stored: Stored) -> Any:
    web: Any = importlib.import_module("webdataset")
    dataset = web.WebDataset(stored.paths, shardshuffle=len(stored.paths), seed=SEED).shuffle(1000)
    return dataset.to_tuple("jpg", "cls").map_tuple(_decoded, int).repeat()


def _decoded_and_labeled(_: int, data: NDArray[np.uint8], label: NDArray[np.int32]) -> tuple[NDArray[Any], ...]:
    return _decoded(data), label


def _decoded(data: Any) -> NDArray[Any]:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert image is not None
    return np.asarray(cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR))


def _set_up_worker(_worker: int) -> None:
    cv2.setNumThreads(1)


def class_number(sample: NDArray[Any], kind: str) -> int:
    """Return the label of a sample. Components of tar shards come as text from readers, and as numbers from webdataset."""
    if kind == "tar" and sample.dtype == np.uint8:
        return int(sample.tobytes())
    return int(sample.item())
