"""LitData and MosaicML's StreamingDataset, each with its own format, and a DataLoader with the work in OpenCV.

Their packages want other versions of torch, NumPy and transformers than DALI and this project do. They run beside these if
they are installed without their dependencies::

    pip install --no-deps litdata mosaicml-streaming lightning-utilities boto3 botocore s3transfer jmespath tifffile
    pip install --no-deps obstore brotli python-snappy cramjam zstd xxhash catalogue regex requests certifi
    pip install --no-deps "transformers<5" "tokenizers<0.23" "huggingface-hub<1"
"""

from __future__ import annotations

import functools
import importlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.opencv import SEED
from benchmarks.training.readers.stored import FOLDER, Dataset, Stored
from benchmarks.with_torchvision import import_torchvision
from benchmarks.workloads import WORKERS

__all__ = ["CHUNKED", "chunked_loader", "write_chunks"]

#: The systems, and their modules.
CHUNKED = {"litdata": "litdata", "mosaicml": "streaming"}

#: Both end an epoch with a restart, so it is longer than that of other systems: each file is stored so many times.
_COPIES = 4
_CHUNK_BYTES = 1 << 26

#: Computes a sample from its number, the bytes of its file, and its label.
Compute = Callable[[int, NDArray[np.uint8], NDArray[np.int32]], tuple[Any, ...]]


def write_chunks(system: str, dataset: Dataset, stored: Stored) -> Any:
    """Import "litdata" or "mosaicml", and write its files on first use. Return the library."""
    import_torchvision()  # both import it
    library = importlib.import_module(CHUNKED[system])
    folder = _folder(system, dataset)
    done = folder.with_suffix(".complete")
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        (_write_litdata if system == "litdata" else _write_mds)(library, folder, list(_items(stored)))
        done.touch()
    return library


def chunked_loader(system: str, dataset: Dataset, compute: Compute, **options: Any) -> Any:
    """Return a DataLoader over the files of `write_chunks`.

    Args:
        compute: the work in OpenCV.
        options: of the DataLoader.
    """
    library = importlib.import_module(CHUNKED[system])
    base: Any = library.StreamingDataset

    class Computed(base):  # type: ignore[misc]
        """The stored samples, computed."""

        def __getitem__(self, index: Any) -> tuple[Any, ...]:
            item = super().__getitem__(index)
            data = np.frombuffer(item["image"], np.uint8)
            return compute(item["number"], data, np.array([item["label"]], np.int32))

    size, folder = dataset.batch_size, str(_folder(system, dataset))
    if system == "litdata":
        make = library.StreamingDataLoader
        samples = Computed(input_dir=folder, shuffle=True, drop_last=True, seed=SEED)
    else:
        make = functools.partial(importlib.import_module("torch.utils.data").DataLoader, drop_last=True)
        samples = Computed(local=folder, shuffle=True, batch_size=size, shuffle_seed=SEED, num_canonical_nodes=1)
    workers = {"num_workers": WORKERS, "multiprocessing_context": "fork", "persistent_workers": True}
    return make(samples, batch_size=size, **workers, **options)


def _folder(system: str, dataset: Dataset) -> Path:
    return (FOLDER / f"{system}-{dataset.per_photograph}").resolve()


def _items(stored: Stored) -> Iterator[tuple[int, Path, int]]:
    """Yield number, file and label of each sample."""
    labeled = list(zip(map(Path, stored.files.files), stored.files.labels.tolist(), strict=True)) * _COPIES
    for number, (file, label) in enumerate(labeled):
        yield number, file, label


def _item(item: tuple[int, Path, int]) -> dict[str, Any]:
    number, file, label = item
    return {"number": number, "image": file.read_bytes(), "label": label}


def _write_litdata(library: Any, folder: Path, items: list[tuple[int, Path, int]]) -> None:
    library.optimize(
        fn=_item,
        inputs=items,
        output_dir=str(folder),
        chunk_bytes=_CHUNK_BYTES,
        num_workers=1,
        start_method="fork",
        reorder_files=False,
        verbose=False,
    )


def _write_mds(library: Any, folder: Path, items: list[tuple[int, Path, int]]) -> None:
    columns = {"number": "int", "image": "bytes", "label": "int"}
    with library.MDSWriter(out=str(folder), columns=columns, size_limit=_CHUNK_BYTES) as out:
        for item in items:
            out.write(_item(item))
