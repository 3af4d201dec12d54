"""The DataLoader benchmarks: they run, and detect waits, wrong batches and reached goals."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.loader.datasets import Images, Large, OneSlow, Records, Slow, check_batch
from benchmarks.loader.report import tables
from benchmarks.loader.run_one import Arrival, longest_wait_s, measure
from benchmarks.loader.workloads import WORKLOADS, Workload
from benchmarks.measurement import Measurement
from benchmarks.workloads import WrongBatchError
from dali_like.data import default_collate

REPOSITORY = Path(__file__).resolve().parents[2]
SERIAL = "tests.serial_loader:SerialLoader"
LARGE_BYTES = 40_000_000

#: The workloads, with less work; workloads with tensors need PyTorch.
SMALL = {
    **{name: workload for name, workload in WORKLOADS.items() if "tensors" not in name},
    "slow": replace(WORKLOADS["slow"], make_dataset=partial(Slow, sample_s=0)),
    "slow_sample": replace(WORKLOADS["slow_sample"], make_dataset=partial(OneSlow, 160, 9, slow_s=0, sample_s=0)),
    "large": replace(WORKLOADS["large"], make_dataset=partial(Large, 10_000, LARGE_BYTES // 10_000)),
}
FIGURES = {
    "steady": {"samples_per_s", "main_cpu_us_per_batch", "main_kernel_cpu_us_per_batch", "first_batch_s"},
    "first": {"first_batch_s"},
    "waits": {"first_batch_s", "longest_wait_s", "epoch_s"},
    "restart": {"first_batch_s", "restart_s", "epoch_s"},
    "memory": {"first_batch_s", "added_bytes"},
}


def run_benchmarks(*options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.loader", *map(str, options)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)


def of_restarts(system: str, workload: str, restart_s: float, repeat: int = 0) -> Measurement:
    return Measurement(workload=workload, system=system, repeat=repeat, batch_size=256, restart_s=restart_s)


def rows(text: str, *cells: str) -> list[list[str]]:
    """Return the rows of tables that begin with these cells."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [row for row in found if row[: len(cells)] == list(cells)]


def test_a_quick_run_writes_rows_and_tables(tmp_path: Path) -> None:
    results = tmp_path / "results.csv"
    options = ["--workload", "tiny,collate", "--systems", SERIAL, "--repeats", 1, "--seconds", 0.02, "--csv", results]

    finished = run_benchmarks(*options)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    with results.open(newline="", encoding="utf-8") as file:
        written = [(row["system"], row["workload"]) for row in csv.DictReader(file)]
    assert written == [(SERIAL, "tiny"), (SERIAL, "collate")]
    assert "### collate: batches of 64, 2 workers, fork" in finished.stdout
    assert "### collate" in results.with_suffix(".md").read_text(encoding="utf-8")


def test_a_loader_that_cannot_be_run_is_told_of_and_the_others_are_measured(tmp_path: Path) -> None:
    systems = f"nowhere.to:BeFound,{SERIAL}"
    options = ["--workloads", "tiny", "--systems", systems, "--repeats", 2, "--seconds", 0.02, "--csv", tmp_path / "a.csv"]

    finished = run_benchmarks(*options)

    assert finished.returncode == 1
    assert "FAILED: nowhere.to:BeFound on tiny" in finished.stdout
    assert "No module named 'nowhere'" in finished.stdout
    assert rows(finished.stdout, SERIAL)


def test_an_unknown_loader_is_refused_with_the_known_names() -> None:
    finished = run_benchmarks("--systems", "torhc")

    assert finished.returncode == 2
    assert "torhc: expected dali_like, dali_like_numpy, torch, or module:class" in finished.stderr


@pytest.mark.parametrize("workload", SMALL.values(), ids=SMALL)
def test_each_workload_gives_the_figures_of_its_part(workload: Workload) -> None:
    measurement = measure(SERIAL, workload, seconds=0.01, repeat=0)

    assert {name for name in FIGURES[workload.part] if getattr(measurement, name) is None} == set()


def test_the_rate_is_that_of_samples() -> None:
    measurement = measure(SERIAL, SMALL["tiny"], seconds=0.01, repeat=0)

    assert measurement.batches is not None
    assert measurement.wall_s is not None
    assert measurement.samples_per_s == pytest.approx(measurement.batches * 256 / measurement.wall_s)
    assert measurement.bytes_per_s == pytest.approx(measurement.samples_per_s * (28 * 28 + 8))


@pytest.mark.parametrize("loader", ["ShiftedLoader", "ForgetfulLoader"])
@pytest.mark.parametrize("name", ["restart_fork", "slow_sample"])
def test_batches_that_are_missing_or_wrong_end_the_run(name: str, loader: str) -> None:
    with pytest.raises(WrongBatchError):
        measure(f"tests.serial_loader:{loader}", SMALL[name], seconds=0.01, repeat=0)


@pytest.mark.parametrize(("loader", "copies"), [("SerialLoader", 0), ("CopyingLoader", 1)])
def test_memory_is_counted_without_that_of_the_dataset(loader: str, copies: int) -> None:
    measurement = measure(f"tests.serial_loader:{loader}", SMALL["large"], seconds=0.01, repeat=0)

    assert measurement.added_bytes is not None
    assert measurement.added_bytes / LARGE_BYTES == pytest.approx(copies, abs=0.4)


class TestWaits:
    """Batch 1 has the slow sample; the other batches are due every second."""

    def test_a_slow_batch_that_blocks_no_other_counts_as_no_wait(self) -> None:
        arrivals = [Arrival(0, 1.0), Arrival(2, 2.0), Arrival(3, 3.0), Arrival(1, 20.0)]

        assert longest_wait_s(arrivals, slow_batch=1) == 1.0

    def test_one_is_stuck_behind_it_and_the_others_go_past(self) -> None:
        arrivals = [Arrival(0, 1.0), Arrival(3, 2.0), Arrival(4, 3.0), Arrival(5, 4.0), Arrival(1, 20.0), Arrival(2, 21.0)]

        assert longest_wait_s(arrivals, slow_batch=1) == 19.0

    def test_all_are_stuck_behind_it(self) -> None:
        arrivals = [Arrival(0, 1.0), Arrival(1, 20.0), Arrival(2, 20.0), Arrival(3, 20.0)]

        assert longest_wait_s(arrivals, slow_batch=1) == 19.0


@pytest.mark.parametrize("dataset", [Images(4, 4, 3), Records(), Slow(sample_s=0), Large(16, 8)], ids=type)
class TestCheckedBatches:
    def test_the_right_samples_pass(self, dataset: Images) -> None:
        check_batch(dataset, default_collate([dataset[index] for index in range(4, 8)]), range(4, 8))

    def test_wrong_samples_are_an_error(self, dataset: Images) -> None:
        batch = default_collate([dataset[index] for index in (4, 5, 7, 6)])

        with pytest.raises(WrongBatchError, match="differs from the dataset"):
            check_batch(dataset, batch, range(4, 8))

    def test_too_few_samples_are_an_error(self, dataset: Images) -> None:
        batch = default_collate([dataset[index] for index in range(4, 7)])

        with pytest.raises(WrongBatchError, match="have the types"):
            check_batch(dataset, batch, range(4, 8))


def test_other_data_types_are_wrong() -> None:
    dataset = Images(4, 4)
    images, labels = default_collate([dataset[index] for index in range(4)])

    with pytest.raises(WrongBatchError, match="float32"):
        check_batch(dataset, [images, labels.astype(np.float32)], range(4))


def test_figures_are_held_against_the_peer_of_the_same_repeat() -> None:
    measurements = [
        *(of_restarts("dali_like", "restart_spawn", ours_s, repeat) for repeat, ours_s in enumerate((0.1, 0.5, 0.3))),
        *(of_restarts("torch", "restart_spawn", theirs_s, repeat) for repeat, theirs_s in enumerate((20, 40, 60))),
    ]

    [row] = rows(tables(measurements), "restart_spawn", "restart ms")

    assert row[2:] == ["dali_like / torch", "0.01 (0.01..0.01)", "<= 0.01", "yes"]


def test_figures_are_held_against_the_peer_with_other_arguments() -> None:
    measurements = [
        of_restarts("dali_like", "restart_spawn", 0.006),
        of_restarts("torch", "restart_spawn_persistent", 0.003),
    ]

    [row] = rows(tables(measurements), "restart_spawn", "restart ms")

    assert row[2:] == ["dali_like / torch (restart_spawn_persistent)", "2.00", "<= 1", "NO"]
