"""Photographs that lie elsewhere, as a source: in an object store, on an HTTP server, in a folder.

    python -m examples.remote_source s3://bucket/train --cache /local/cache --cache-gib 100
    python -m examples.remote_source http://127.0.0.1:8000 --workers 2 --at-once 32

Below the URL there is a folder for each class, with JPEG or PNG files. The workers read many of them at a time, try again
where the way to the store fails, and keep what they have read; then they decode, crop and scale it. Credentials come from
where fsspec's file system for such URLs looks for them.

Needs OpenCV, simplejpeg, the extra ``remote``, and for object stores what fsspec uses for them: s3fs, gcsfs, adlfs.
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
    """A file and its label, as an int32 array of one element; in another order in each epoch.

    Args:
        files: where they are.
        names: theirs, each with its class before the last slash.
        batch_size: of the pipeline; samples that do not make a full batch are left out.
        seed: of the order.
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
    """Images of shape (224, 224, 3), uint8, and labels.

    Args:
        source: of files and labels.
        at_once: how many files each worker reads at a time.
    """
    files, labels = fn.external_source(
        source=source, num_outputs=2, batch=False, parallel=True, concurrency=at_once, dtype=[types.UINT8, types.INT32]
    )
    images = fn.decoders.image_random_crop(files)
    return fn.resize(images, size=[SIDE, SIDE]), labels


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Reads photographs from elsewhere, and says how fast.")
    parser.add_argument("url", help="of the folder of folders")
    parser.add_argument("--options", type=json.loads, default={}, help="for fsspec's file system, as JSON")
    parser.add_argument("--cache", help="a folder to keep files in")
    parser.add_argument("--cache-gib", type=float, default=1.0, help="how much of them")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=16, help="files that each worker reads at a time")
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
