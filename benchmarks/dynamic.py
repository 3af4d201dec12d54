"""The usual recipe of training (decode, random crop, flip, normalize) as a pipeline, in dynamic mode, and as a dataset.

    python -m benchmarks.dynamic [--batches 20] [--threads 2]

All three compute the same bits: random numbers depend on the seeds of the operators and on the number of the sample. Prints
images per second of each in interleaved repeats, and their ratio to the pipeline. With ``--dali``, DALI's dynamic mode, too:
it needs a GPU even for work on the CPU. Requires OpenCV, simplejpeg and scikit-image.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import dali_like.experimental.dynamic as ndd
from dali_like import fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.types import FLOAT, SampleInfo

BATCH_SIZE = 64
SIDE = 224
CROP_SEED, FLIP_SEED = 27, 47
NORMALIZATION: dict[str, Any] = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
REPEATS = 5

Files = Sequence[NDArray[np.uint8]]


@functools.cache
def photographs(number: int = 16) -> Files:
    """Return encoded photographs of 500 x 375 pixels: parts of one."""
    photograph: Any = importlib.import_module("skimage.data").chelsea()  # untyped
    parts = [np.ascontiguousarray(photograph[i : i + 280, 2 * i : 2 * i + 400, ::-1]) for i in range(number)]
    return [cv2.imencode(".jpg", cv2.resize(part, (500, 375)))[1] for part in parts]


@pipeline_def
def recipe(files: Files) -> Any:
    """The recipe as a pipeline."""
    encoded = fn.external_source(lambda info: files[info.idx_in_epoch % len(files)], batch=False)
    images = fn.decoders.image(encoded)
    images = fn.random_resized_crop(images, size=(SIDE, SIDE), seed=CROP_SEED)
    mirror = fn.random.coin_flip(seed=FLIP_SEED)
    return fn.crop_mirror_normalize(images, mirror=mirror, dtype=FLOAT, **NORMALIZATION)


def dynamic_batches(files: Files) -> Iterator[ndd.Batch]:
    """The recipe in dynamic mode, endless."""
    iteration = 0
    while True:
        first = SampleInfo(iteration * BATCH_SIZE, 0, iteration, 0)
        batch = ndd.as_batch([files[(first.idx_in_epoch + i) % len(files)] for i in range(BATCH_SIZE)])
        images = ndd.decoders.image(batch)
        images = ndd.random_resized_crop(images, size=(SIDE, SIDE), seed=CROP_SEED, rng=first)
        mirror = ndd.random.coin_flip(batch_size=BATCH_SIZE, seed=FLIP_SEED, rng=first)
        yield ndd.crop_mirror_normalize(images, mirror=mirror, dtype=ndd.float32, **NORMALIZATION)
        iteration += 1


class Photographs:
    """The recipe in a dataset."""

    def __init__(self, files: Files, length: int) -> None:
        self.files = files
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        info = SampleInfo(index, index % BATCH_SIZE, index // BATCH_SIZE, 0)
        image = ndd.decoders.image(self.files[index % len(self.files)])
        image = ndd.random_resized_crop(image, size=(SIDE, SIDE), seed=CROP_SEED, rng=info)
        mirror = ndd.random.coin_flip(seed=FLIP_SEED, rng=info)
        return np.asarray(ndd.crop_mirror_normalize(image, mirror=mirror, dtype=ndd.float32, **NORMALIZATION))


def images_per_s(take: Callable[[], Any], batches: int) -> float:
    """Return the rate of a function that takes a batch."""
    take()
    began = time.perf_counter()
    for _ in range(batches):
        take()
    return batches * BATCH_SIZE / (time.perf_counter() - began)


def of_pipeline(files: Files, threads: int, batches: int) -> float:
    """Return the rate of the pipeline: the operators run in `threads`."""
    with closing(recipe(files, batch_size=BATCH_SIZE, num_threads=threads, py_num_workers=0)) as pipe:
        return images_per_s(pipe.run, batches)


def of_dynamic_mode(files: Files, threads: int, batches: int) -> float:
    """Return the rate of dynamic mode."""
    with ndd.EvalContext(num_threads=threads):
        made = dynamic_batches(files)
        return images_per_s(lambda: next(made), batches)


def of_dataset(files: Files, threads: int, batches: int) -> float:
    """Return the rate of a loader over the dataset, with a worker for each thread."""
    loader = DataLoader(Photographs(files, (batches + 1) * BATCH_SIZE), batch_size=BATCH_SIZE, num_workers=threads)
    return images_per_s(functools.partial(next, iter(loader)), batches)


def of_dali(files: Files, threads: int, batches: int) -> float:
    """Return the rate of DALI's dynamic mode on the CPU, with random numbers of its own."""
    theirs: Any = importlib.import_module("nvidia.dali.experimental.dynamic")
    rng = theirs.random.RNG(seed=CROP_SEED)

    def take() -> Any:
        batch = theirs.as_batch([files[i % len(files)] for i in range(BATCH_SIZE)])
        images = theirs.decoders.image(batch, device="cpu")
        images = theirs.random_resized_crop(images, size=(SIDE, SIDE), rng=rng)
        mirror = theirs.random.coin_flip(batch_size=BATCH_SIZE, rng=rng)
        return theirs.crop_mirror_normalize(images, mirror=mirror, dtype=theirs.float32, **NORMALIZATION).evaluate()

    with theirs.EvalContext(num_threads=threads):
        return images_per_s(take, batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dali", action="store_true")
    options = parser.parse_args()
    systems = {"pipeline": of_pipeline, "dynamic mode": of_dynamic_mode, "dataset": of_dataset}
    if options.dali:
        systems["DALI's dynamic mode"] = of_dali
    files = photographs()
    runs = [{name: rate(files, options.threads, options.batches) for name, rate in systems.items()} for _ in range(REPEATS)]
    for name in systems:
        rate = statistics.median(run[name] for run in runs)
        ratio = statistics.median(run[name] / run["pipeline"] for run in runs)
        print(f"{name:20} {rate:7.0f} images/s   {ratio:.2f} of the pipeline")


if __name__ == "__main__":
    main()
