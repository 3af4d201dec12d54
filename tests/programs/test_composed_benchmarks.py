"""The benchmarks of composed datasets: they run, and detect wrong batches and reached goals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.composed.__main__ import main, tables
from benchmarks.composed.run_one import measure
from benchmarks.composed.sources import (
    GROUP_TOKENS,
    PACK_TOKENS,
    WINDOW_TOKENS,
    check_groups,
    check_images,
    check_packs,
    check_windows,
)
from benchmarks.composed.workloads import STAGES, WORKLOADS, Workload
from benchmarks.measurement import Measurement
from benchmarks.workloads import WrongBatchError

#: The workloads, with less work.
SMALL = {name: replace(workload, counted_packs=min(workload.counted_packs, 8)) for name, workload in WORKLOADS.items()}
FIGURES = {
    "mixture": {"samples_per_s", "first_batch_s", "main_cpu_us_per_batch"},
    "packing": {"tokens_per_s", "padding", "samples_per_s"},
    "multimodal": {"tokens_per_s", "padding", "samples_per_s"},
    "balance": {"dearest_of_mean", "dearest_of_bound", "in_order_of_mean", "samples_per_s"},
    "windows": {"samples_per_s", "all_cpu_us_per_batch"},
    "start": {"first_batch_s"},
    "resume": {"first_batch_s"},
    "memory": {"added_bytes"},
    "memory_packed": {"added_bytes"},
    **{f"stage_{stage}": {"samples_per_s", "all_cpu_us_per_batch"} for stage in STAGES},
}


@pytest.mark.parametrize("workload", SMALL.values(), ids=SMALL)
def test_each_workload_gives_its_figures(workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # one of them writes a file of tokens

    measurement = measure("dali_like", workload, seconds=0.01, repeat=0)

    assert {name for name in FIGURES[workload.name] if getattr(measurement, name) is None} == set()


def images() -> dict[str, Any]:
    numbers = np.array([3, 1_000_001])
    return {"number": numbers, "image": np.stack([np.full((28, 28), 255 - n % 251, np.uint8) for n in numbers])}


def test_windows_of_other_tokens_are_detected() -> None:
    rows = np.arange(2 * WINDOW_TOKENS, dtype=np.uint16).reshape(2, WINDOW_TOKENS)
    check_windows(rows, 2)
    rows[1, 7] += 1
    with pytest.raises(WrongBatchError, match="do not follow"):
        check_windows(rows, 2)
    with pytest.raises(WrongBatchError, match="shape"):
        check_windows(rows, 3)


def test_right_images_pass() -> None:
    check_images(images(), batch_size=2, num_sources=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batch: batch["number"].fill(3), "the numbers are"),
        (lambda batch: batch["number"].__setitem__(1, 2_000_000), "the numbers are"),
        (lambda batch: batch["image"].__setitem__((1, 5, 5), 0), "do not fit their numbers"),
        (lambda batch: batch.update(image=batch["image"][:, :5]), "have the shape"),
    ],
)
def test_wrong_images_are_detected(change: Any, message: str) -> None:
    batch = images()
    change(batch)

    with pytest.raises(WrongBatchError, match=message):
        check_images(batch, batch_size=2, num_sources=2)


def test_groups_above_the_budget_are_detected() -> None:
    check_groups({"elements": [1, 3], "tokens": [5, GROUP_TOKENS]}, batch_size=2)
    for wrong in ({"elements": [1, 0], "tokens": [5, 0]}, {"elements": [1, 3], "tokens": [5, GROUP_TOKENS + 1]}):
        with pytest.raises(WrongBatchError, match="the packs have"):
            check_groups(wrong, batch_size=2)


def packs() -> dict[str, Any]:
    """Return a batch of one pack with documents of 10 and 20 tokens."""
    batch = {name: np.zeros((1, PACK_TOKENS), np.int32) for name in ("tokens", "tokens_segment_ids", "tokens_positions")}
    for segment, begin, end in ((1, 0, 10), (2, 10, 30)):
        batch["tokens_segment_ids"][0, begin:end] = segment
        batch["tokens_positions"][0, begin:end] = range(end - begin)
        batch["tokens"][0, begin:end] = range(1, end - begin + 1)
    return batch


def test_right_packs_pass() -> None:
    check_packs(packs(), batch_size=1)


@pytest.mark.parametrize(
    ("field", "places", "value", "message"),
    [
        ("tokens", slice(3, 4), 9, "the tokens do not fit"),
        ("tokens", slice(40, 41), 9, "the tokens do not fit"),
        ("tokens_segment_ids", slice(10, 30), 1, "the segments do not begin"),
        ("tokens_segment_ids", slice(15, 30), 3, "the segments do not begin"),
    ],
)
def test_wrong_packs_are_detected(field: str, places: slice, value: int, message: str) -> None:
    batch = packs()
    batch[field][0, places] = value

    with pytest.raises(WrongBatchError, match=message):
        check_packs(batch, batch_size=1)


def test_padding_within_a_pack_is_detected() -> None:
    batch = {name: np.roll(array, 5, axis=1) for name, array in packs().items()}

    with pytest.raises(WrongBatchError, match="padding within"):
        check_packs(batch, batch_size=1)


def test_goals_are_ratios_to_grain() -> None:
    of = {"workload": "packing", "repeat": 0, "batch_size": 8}
    text = tables(
        [
            Measurement(system="dali_like", tokens_per_s=9e7, padding=0.01, samples_per_s=1e4, **of),
            Measurement(system="grain", tokens_per_s=2e7, padding=0.02, samples_per_s=2e3, **of),
        ]
    )

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert ["packing", "million tokens/s", "dali_like / grain", "4.50", ">= 3", "yes"] in rows
    assert ["packing", "padding %", "dali_like / grain", "0.50", "<= 1", "yes"] in rows


def test_stages_are_compared_with_the_stream_without_one() -> None:
    of = {"system": "dali_like", "repeat": 0, "batch_size": 256}
    text = tables(
        [
            Measurement(workload="stage_none", samples_per_s=8e5, all_cpu_us_per_batch=512.0, **of),
            Measurement(workload="stage_filter", samples_per_s=4e5, all_cpu_us_per_batch=1280.0, **of),
        ]
    )

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert ["filter", "400,000", "0.50", "5.00", "2.50"] in rows
    assert ["stage_filter", "samples/s", "dali_like / dali_like (stage_none)", "0.50", ">= 0.45", "yes"] in rows


def test_without_grain_dali_like_is_measured_alone(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    planned: list[Any] = []
    monkeypatch.setattr("benchmarks.composed.__main__.run_all", lambda jobs, _run: planned.extend(jobs) or ([], {}))

    status = main(["--csv", str(tmp_path / "results.csv"), "--repeats", "1"])

    assert status == 0
    assert {job.system for job in planned} == {"dali_like", "dali_like_spawn", "loop"}
    assert "Not installed: grain" in capsys.readouterr().out
