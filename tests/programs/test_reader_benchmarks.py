"""The benchmarks of readers: they run, and detect wrong batches and reached goals. tests/parity runs DALI and torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from benchmarks.measurement import Measurement
from benchmarks.training.readers.__main__ import tables
from benchmarks.training.readers.run_one import check_batch, measure
from benchmarks.training.readers.stored import DATASETS, Dataset
from benchmarks.workloads import WrongBatchError
from dali_like import fn

#: The datasets, with less work.
SMALL = {name: replace(dataset, batch_size=4, per_photograph=1) for name, dataset in DATASETS.items()}
READERS = {"folders": "file", "tfrecord": "tfrecord", "tar": "webdataset"}


@pytest.fixture(autouse=True, scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Change to a temporary folder, because photographs are created below the current one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("photographs"))
        yield


@pytest.mark.parametrize("dataset", SMALL.values(), ids=SMALL)
def test_each_dataset_is_read(dataset: Dataset) -> None:
    if READERS[dataset.kind] not in dir(fn.readers):
        pytest.skip(f"there is no fn.readers.{READERS[dataset.kind]}")
    measurement = measure("dali_like", dataset, seconds=0.01, repeat=0)

    assert measurement.batches is not None
    assert measurement.wall_s is not None
    assert measurement.samples_per_s == pytest.approx(measurement.batches * 4 / measurement.wall_s)


def test_wrong_batches_are_detected() -> None:
    dataset = SMALL["resnet_folders"]
    stored = dataset.stored()
    image, label = np.random.default_rng(0).random((3, 224, 224), np.float32), np.array([0], np.int32)

    check_batch(dataset, stored, [(image, label)] * 4)
    for batch, message in (
        ([(image, label)] * 3, "a batch has 3 samples, expected 4"),
        ([(image[:, :100], label)] * 4, "image 0 has the shape"),
        ([(image.astype(np.float64), label)] * 4, "float64"),
        ([(image, label - 1)] * 4, "image 0 has the label"),
        ([(image * 0, label)] * 4, "image 0 is blank"),
    ):
        with pytest.raises(WrongBatchError, match=message):
            check_batch(dataset, stored, batch)


def test_figures_are_held_against_each_peer() -> None:
    rates = {"dali_like": 1300.0, "dali": 1000.0, "torch": 1250.0}
    measurements = [
        Measurement(workload="resnet_folders", system=system, repeat=0, batch_size=64, samples_per_s=rate)
        for system, rate in rates.items()
    ]

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables(measurements).splitlines()]

    assert ["resnet_folders", "samples/s", "dali_like / dali", "1.30", ">= 1.3", "yes"] in rows
    assert ["resnet_folders", "samples/s", "dali_like / torch", "1.04", ">= 1.3", "NO"] in rows
