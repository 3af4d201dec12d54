"""DALI's programs for a GPU run with DALI_LIKE_DEVICE=cpu, with the values of DALI's operators on the CPU."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like
from dali_like.plugin.pytorch import DataLoader
from tests.image_files import with_opencv

from .conftest import OURS, Library
from .iterators import plugin_of, quiet

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

SIDE = 16


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of ten random images of two classes."""
    rng = np.random.default_rng(7)
    for i in range(10):
        folder = tmp_path / "ab"[i // 5]
        folder.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (20 + i, 30 - i, 3), np.uint8)
        (folder / f"{i}.png").write_bytes(with_opencv(pixels, ".png"))
    return tmp_path


def epochs_of(dali: ModuleType, root: Path, mixed: str, gpu: str, device_id: int | None) -> list[Any]:
    """Train a model for two epochs, as DALI's ResNet-50 does, and return its batches."""
    library = OURS if dali is dali_like else Library(dali.fn, dali.types, dali.tensors, dali.pipeline_def)
    fn, types = dali.fn, dali.types

    @dali.pipeline_def(batch_size=4, num_threads=1, device_id=device_id, seed=12)
    def pipeline() -> Any:
        images, labels = fn.readers.file(file_root=str(root), name="Reader", pad_last_batch=True)
        images = fn.decoders.image(images, device=mixed, output_type=types.RGB)
        images = fn.resize(images, device=gpu, size=SIDE, mode="not_smaller", interp_type=types.INTERP_TRIANGULAR)
        mirror = fn.random.coin_flip(probability=0.0)
        images = images.gpu() if gpu == "gpu" else images
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", crop=(SIDE, SIDE), mean=[110.0], std=[60.0], mirror=mirror
        )
        return images, labels.gpu() if gpu == "gpu" else labels

    plugin = plugin_of(library)
    pipe = pipeline()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    epochs = []
    with quiet(library):
        loader = plugin.DALIClassificationIterator(
            pipe, reader_name="Reader", last_batch_policy=plugin.LastBatchPolicy.PARTIAL, auto_reset=True
        )
        for _ in range(2):
            for i, data in enumerate(loader):
                images, labels = data[0]["data"], data[0]["label"].squeeze(-1).long()
                assert images.device == labels.device == torch.device("cpu")
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                epochs.append((i, labels.tolist(), images.numpy().copy()))
    if dali is dali_like:
        pipe.close()
    return epochs


def test_a_training_program(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = epochs_of(nvidia.dali, root, "cpu", "cpu", None)
    monkeypatch.setenv("DALI_LIKE_DEVICE", "cpu")
    made = epochs_of(dali_like, root, "mixed", "gpu", 0)

    assert [batch[:2] for batch in made] == [batch[:2] for batch in expected]
    for ours, theirs in zip(made, expected, strict=True):
        np.testing.assert_allclose(ours[2], theirs[2], atol=1.01 / 60)  # one level of the resized image


def test_pin_memory_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setenv("DALI_LIKE_DEVICE", "cpu")

    (batch,) = DataLoader(range(2), batch_size=2, pin_memory=True)

    assert batch.tolist() == [0, 1]
    assert not batch.is_pinned()
