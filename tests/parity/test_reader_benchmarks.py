"""The benchmarks of readers run with DALI and torch, so the datasets that they write are valid."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("torch")
pytest.importorskip("skimage")

import cv2

from benchmarks.training.readers.run_one import measure
from benchmarks.training.readers.stored import DATASETS

pytestmark = pytest.mark.peers


@pytest.mark.parametrize(
    ("system", "name"),
    [("dali", "resnet_folders"), ("dali", "tfrecord_224"), ("dali", "tar_224"), ("torch", "resnet_folders")],
)
def test_peers(
    system: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # Threads of earlier tests would not survive the fork of torch, and its workers would wait for them.
    request.addfinalizer(functools.partial(cv2.setNumThreads, cv2.getNumThreads()))
    cv2.setNumThreads(1)
    monkeypatch.chdir(tmp_path)
    dataset = replace(DATASETS[name], batch_size=4, per_photograph=1)

    assert (measure(system, dataset, seconds=0.01, repeat=0).samples_per_s or 0) > 0
