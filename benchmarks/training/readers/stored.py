"""The datasets: the same JPEG files as class folders, as TFRecords with an index, and as tar shards for WebDataset."""

from __future__ import annotations

import importlib
import io
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.training.photographs import make_photographs
from examples.demo_data import LabeledFiles, make_folders

__all__ = ["DATASETS", "FOLDER", "Dataset", "Stored", "tfrecord"]

FOLDER = Path("build/benchmarks/readers")
SIDES = (256, 500)
SHARDS = 4


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A dataset on disk.

    Attributes:
        paths: the folder of the classes, or the shards.
        indexes: index files of TFRecords.
        files: the original files with their labels.
    """

    paths: list[str]
    indexes: list[str]
    files: LabeledFiles


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A benchmark: stored photographs, and a pipeline for them.

    Attributes:
        kind: "folders", "tfrecord" or "tar".
        per_photograph: files of each packaged photograph. There are ten photographs.
        normalized: whether images are cropped and mirrored at random and normalized, or only decoded and scaled.
        systems: systems that read it.
        goals: minimum speed of dali_like relative to others.
    """

    name: str
    kind: str
    batch_size: int = 64
    per_photograph: int = 200
    normalized: bool
    systems: tuple[str, ...]
    goals: tuple[tuple[str, float], ...]

    def stored(self) -> Stored:
        """Return the dataset, written on first use."""
        files = make_photographs(SIDES, self.per_photograph)
        folder = (FOLDER / f"{self.kind}-{self.per_photograph}").resolve()
        if self.kind == "folders":
            return Stored(paths=[str(make_folders(files, folder))], indexes=[], files=files)
        shards = [folder / f"{i}.{self.kind}" for i in range(SHARDS)]
        indexes = [shard.with_suffix(".idx") for shard in shards] if self.kind == "tfrecord" else []
        done = folder / "complete"
        if not done.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for i, shard in enumerate(shards):
                samples = zip(files.files[i::SHARDS], files.labels[i::SHARDS].tolist(), strict=True)
                (_write_tfrecords if self.kind == "tfrecord" else _write_tar)(shard, samples)
            done.touch()
        return Stored(paths=list(map(str, shards)), indexes=list(map(str, indexes)), files=files)


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="resnet_folders",
            kind="folders",
            normalized=True,
            systems=("dali_like", "dali", "torch", "torchvision", "spdl", "litdata", "mosaicml"),
            goals=(("dali", 1.3), ("torch", 1.3), ("torchvision", 1.3), ("spdl", 1.1), ("litdata", 1.3), ("mosaicml", 1.3)),
        ),
        Dataset(
            name="tfrecord_224",
            kind="tfrecord",
            normalized=False,
            systems=("dali_like", "dali"),
            goals=(("dali", 1.0),),
        ),
        Dataset(
            name="tar_224",
            kind="tar",
            normalized=False,
            systems=("dali_like", "dali", "webdataset", "litdata", "mosaicml"),
            goals=(("dali", 1.0), ("webdataset", 1.3), ("litdata", 1.3), ("mosaicml", 1.3)),
        ),
    )
}


def _write_tar(path: Path, samples: Iterator[tuple[Path, int]]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (file, label) in enumerate(samples):
            for suffix, content in (("jpg", file.read_bytes()), ("cls", b"%d" % label)):
                member = tarfile.TarInfo(f"{number:06}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def _write_tfrecords(path: Path, samples: Iterator[tuple[Path, int]]) -> None:
    """Write records, and an index of DALI's: offset and size of each record."""
    with path.open("wb") as records, path.with_suffix(".idx").open("w") as index:
        for file, label in samples:
            record = tfrecord(_example(file.read_bytes(), label))
            index.write(f"{records.tell()} {len(record)}\n")
            records.write(record)


def tfrecord(data: bytes) -> bytes:
    """Return a record with its length and checksums; see https://www.tensorflow.org/tutorials/load_data/tfrecord."""
    length = struct.pack("<Q", len(data))
    return b"".join([length, _masked_crc(length), data, _masked_crc(data)])


def _masked_crc(data: bytes) -> bytes:
    crc = importlib.import_module("google_crc32c").value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _example(image: bytes, label: int) -> bytes:
    """Return a ``tf.train.Example`` with an image and its label."""
    features = {"image/encoded": _field(1, _field(1, image)), "image/class/label": _field(3, _field(1, _varint(label)))}
    entries = [_field(1, _field(1, name.encode()) + _field(2, value)) for name, value in features.items()]
    return _field(1, b"".join(entries))


def _field(number: int, data: bytes) -> bytes:
    """Return a field of a protocol buffer that has a length."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def labels_allowed(stored: Stored) -> frozenset[int]:
    """Return all labels of a dataset. Readers of folders number the classes by name."""
    return frozenset(np.unique(stored.files.labels).tolist())
