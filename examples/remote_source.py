"""Read photographs from an object store, an HTTP server or a folder.

    python -m examples.remote_source s3://bucket/train --cache /local/cache --cache-gib 100
    python -m examples.remote_source http://127.0.0.1:8000 --workers 2 --at-once 32

The URL has a folder for each class, with JPEG or PNG files. The workers read many files at a time, retry after failures of
the store, and cache the files. Then they decode, crop and scale the photographs. Credentials come from the usual places of
fsspec's file system for the URL.

Requires OpenCV, simplejpeg, the extra ``remote``, and for object stores the package that fsspec uses: s3fs, gcsfs, adlfs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like import fn, pipeline_def, types
from dali_like.data import Permutation
from dali_like.remote import RemoteFiles
from dali_like.types import SampleInfo

SIDE = 224


class RemotePhotographs:
    """Returns a file and its label, as an int32 array of one element; in a new order in each epoch.

    Args:
        files: the remote files.
        names: their names, each with its class before the last slash.
        batch_size: batch size of the pipeline; samples that do not fill a batch are left out.
        seed: seed of the order.
    """

    def __init__(self, files: RemoteFiles, names: Sequence[str], batch_size: int, seed: int = 0) -> None:
        classes = sorted({_class_of(name) for name in names})
        self._files = files
        self._names = names
        self._labels = np.array([classes.index(_class_of(name)) for name in names], np.int32)
        self._seed = seed
        self.batches = len(names) // batch_size

    async def __call__(self, sample: SampleInfo) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        if sample.iteration >= self.batches:
            raise StopIteration
        index = Permutation(len(self._names), self._seed, sample.epoch_idx)[sample.idx_in_epoch]
        return await self._files.read(self._names[index]), self._labels[index : index + 1]


def _class_of(name: str) -> str:
    return name.rpartition("/")[0]


@pipeline_def  # type: ignore[untyped-decorator,unused-ignore]
def training(source: RemotePhotographs, at_once: int) -> Any:
    """Define a pipeline of images of shape (224, 224, 3), uint8, and labels.

    Args:
        source: source of files and labels.
        at_once: number of files that each worker reads at a time.
    """
    files, labels = fn.external_source(
        source=source, num_outputs=2, batch=False, parallel=True, concurrency=at_once, dtype=[types.UINT8, types.INT32]
    )
    images = fn.decoders.image_random_crop(files)
    return fn.resize(images, size=[SIDE, SIDE]), labels


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Read remote photographs, and print the speed.")
    parser.add_argument("url", help="URL of the folder with a sub-folder for each class")
    parser.add_argument("--options", type=json.loads, default={}, help="options for fsspec's file system, as JSON")
    parser.add_argument("--cache", help="folder for cached files")
    parser.add_argument("--cache-gib", type=float, default=1.0, help="maximum size of the cache")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=16, help="number of files that each worker reads at a time")
    options = parser.parse_args(arguments)

    cache = {"cache_dir": options.cache, "cache_bytes": int(options.cache_gib * 2**30)} if options.cache else {}
    files = RemoteFiles(options.url, storage_options=options.options, **cache)
    names = [name for name in files.names("*/*") if name.lower().endswith((".jpg", ".jpeg", ".png"))]
    source = RemotePhotographs(files, names, options.batch_size)
    pipe = training(
        source,
        options.at_once,
        batch_size=options.batch_size,
        num_threads=options.workers,
        py_num_workers=options.workers,
        py_start_method="spawn",
    )
    with pipe:
        for epoch in range(options.epochs):
            begin = time.perf_counter()
            count = sum(len(labels) for _, labels in pipe)
            pipe.reset()
            print(f"epoch {epoch}: {count} photographs, {count / (time.perf_counter() - begin):,.0f} a second")


if __name__ == "__main__":
    main()
