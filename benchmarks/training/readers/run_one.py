"""Measure one system on one dataset in this process: ``python -m benchmarks.training.readers.run_one SYSTEM DATASET``.

Prints the `Measurement` as one line of JSON. The files exist before the timed part, and are in the page cache after warm-up.
``first_batch_s`` is measured from making the loader to its first batch. Shapes, dtypes and labels of the first and the last
batch are checked, outside of the timed part: the random numbers of the systems differ.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.measurement import Measurement
from benchmarks.timing import Run, rates
from benchmarks.training.readers.stored import DATASETS, Dataset, Stored, labels_allowed
from benchmarks.training.readers.systems import SIDE, SYSTEMS, class_number, open_system
from benchmarks.workloads import WrongBatchError

__all__ = ["check_batch", "measure"]

#: As in `benchmarks.training.run_one`.
WARM_UP_BATCHES = 32


def measure(system: str, dataset: Dataset, *, seconds: float, repeat: int) -> Measurement:
    """Measure one system on one dataset; ``seconds`` is the intended length of the timed part."""
    stored = dataset.stored()
    began = time.perf_counter()
    loader = open_system(system, dataset, stored)
    import_s = time.perf_counter() - began

    began = time.perf_counter()
    loader.start()
    run = Run(loader.consume, lambda batch, _: check_batch(dataset, stored, loader.samples(batch)))
    run.receive(1)
    first_batch_s = time.perf_counter() - began
    run.check()
    run.receive(WARM_UP_BATCHES)
    timed = run.steady(seconds, processes.descendants(os.getpid()))
    run.check()
    loader.close()
    shape, dtype = expected(dataset)
    return Measurement(
        workload=dataset.name,
        system=system,
        repeat=repeat,
        batch_size=dataset.batch_size,
        import_s=import_s,
        first_batch_s=first_batch_s,
        **rates(timed, batch_size=dataset.batch_size, sample_bytes=int(np.prod(shape)) * dtype.itemsize),
    )


def expected(dataset: Dataset) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of an image."""
    return ((3, SIDE, SIDE), np.dtype(np.float32)) if dataset.normalized else ((SIDE, SIDE, 3), np.dtype(np.uint8))


def check_batch(dataset: Dataset, stored: Stored, batch: Any) -> None:
    """Check the number, shape, dtype and labels of the samples of a batch.

    Raises:
        WrongBatchError: something differs.
    """
    if len(batch) != dataset.batch_size:
        raise WrongBatchError(f"{dataset.name}: a batch has {len(batch)} samples, expected {dataset.batch_size}")
    labels = labels_allowed(stored)
    for i, (image, label) in enumerate(batch):
        if (image.shape, image.dtype) != expected(dataset):
            raise WrongBatchError(f"{dataset.name}: image {i} has the shape {image.shape} and dtype {image.dtype}")
        if class_number(label, dataset.kind) not in labels:
            raise WrongBatchError(f"{dataset.name}: image {i} has the label {label}")
        if not image.std() > 0:
            raise WrongBatchError(f"{dataset.name}: image {i} is blank")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.readers.run_one", description=__doc__.splitlines()[0]
    )
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of the timed part")
    parser.add_argument("--repeat", type=int, default=0, help="number of this run, for the record")
    options = parser.parse_args()
    print(measure(options.system, DATASETS[options.dataset], seconds=options.seconds, repeat=options.repeat).to_json())


if __name__ == "__main__":
    main()
