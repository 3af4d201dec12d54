"""The training benchmarks: they run, and detect wrong batches and reached goals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from benchmarks.measurement import Measurement
from benchmarks.training.photographs import make_photographs
from benchmarks.training.report import tables
from benchmarks.training.run_one import measure
from benchmarks.training.systems import NEEDED, OURS
from benchmarks.training.workloads import WORKLOADS, Workload, check_batch
from benchmarks.workloads import WrongBatchError
from dali_like.images.jpeg_windows import LIBRARY_VARIABLE
from tests.compiled import kernels_from, library
from tests.conftest import skip_without

#: The workloads, with less work.
SMALL = {name: replace(workload, batch_size=4, per_photograph=1) for name, workload in WORKLOADS.items()}


@pytest.fixture(autouse=True, scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Change to a temporary folder, because photographs are created below the current one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("photographs"))
        yield


@pytest.mark.parametrize("workload", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("system", OURS)
def test_each_workload_makes_the_pixels_of_opencv(system: str, workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(NEEDED[system])
    monkeypatch.setenv(LIBRARY_VARIABLE, "")  # is restored after the system has set it
    with kernels_from(library() if system == "dali_like_kernels" else "0"):
        measurement = measure(system, workload, seconds=0.01, repeat=0)

    assert measurement.batches is not None
    assert measurement.wall_s is not None
    assert measurement.samples_per_s == pytest.approx(measurement.batches * 4 / measurement.wall_s)


class TestCheckedBatches:
    WORKLOAD = SMALL["resnet"]

    def batch(self, number: int = 2) -> list[tuple[np.ndarray, ...]]:
        source = self.WORKLOAD.source()
        return [self.WORKLOAD.sample(source, index) for index in range(4 * number, 4 * number + 4)]

    def check(self, batch: list[tuple[np.ndarray, ...]], *, same_windows: bool = True) -> None:
        check_batch(self.WORKLOAD, self.WORKLOAD.source(), batch, 2, same_windows=same_windows)

    def test_the_right_samples_pass(self) -> None:
        self.check(self.batch())

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda batch: batch[:3], "a batch has 3 samples, expected 4"),
            (lambda batch: [batch[1], batch[0], *batch[2:]], "sample 8 has"),
            (lambda batch: [(image[:, :, ::-1], label) for image, label in batch], "pixels that are"),
            (lambda batch: [(image, label + 1) for image, label in batch], "boxes or labels"),
            (lambda batch: [(image.astype(np.float64), label) for image, label in batch], "float64"),
        ],
    )
    def test_wrong_samples_are_an_error(self, change: Callable[[Any], Any], message: str) -> None:
        with pytest.raises(WrongBatchError, match=message):
            self.check(change(self.batch()))

    def test_pixels_do_not_matter_where_windows_are_others(self) -> None:
        self.check([(image[:, :, ::-1], label) for image, label in self.batch()], same_windows=False)


def test_the_same_files_are_made_for_any_number_of_samples(tmp_path: Path) -> None:
    few, many = (make_photographs((64, 80), count, tmp_path / str(count)) for count in (1, 2))

    assert [file.read_bytes() for file in few.files] == [file.read_bytes() for file in many.files[::2]]
    assert many.labels.tolist() == sorted([*range(len(few.files))] * 2)


def test_figures_are_held_against_each_peer() -> None:
    rates = {"dali_like": 2100.0, "dali": 1000.0, "torch": 1250.0}
    measurements = [
        Measurement(
            workload="resnet", system=system, repeat=0, batch_size=64, samples_per_s=rate, all_cpu_us_per_batch=1e6 / rate
        )
        for system, rate in rates.items()
    ]

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables(measurements).splitlines()]

    assert ["resnet", "samples/s", "dali_like / dali", "2.10", ">= 2", "yes"] in rows
    assert ["resnet", "samples/s", "dali_like / torch", "1.68", ">= 3", "NO"] in rows
    assert ["resnet", "all CPU us/batch", "dali_like / dali", "0.48", "-", "-"] in rows
