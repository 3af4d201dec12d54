"""Iterators with ``reader_name``: the epochs are the same as in the real DALI."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import nvidia.dali
import pytest

import dali_like

from .conftest import OURS
from .iterators import plugin_of, quiet

DALI = nvidia.dali


def pipelines_of(dali: ModuleType, files: Sequence[str], num_pipelines: int, batch_size: int, **options: Any) -> list[Any]:
    """One pipeline for each of the first shards."""
    of_pipeline = {"py_num_workers": 0} if dali is dali_like else {}
    of_pipeline |= {name: options.pop(name) for name in ("enable_checkpointing",) if name in options}
    pipelines = []
    for shard in range(num_pipelines):
        pipe = dali.Pipeline(batch_size, 1, None, seed=1, **of_pipeline)
        with pipe:
            pipe.set_outputs(*dali.fn.readers.file(files=files, name="reader", shard_id=shard, **options))
        pipelines.append(pipe)
    return pipelines


def epochs_of(
    dali: ModuleType, files: Sequence[str], policy: str, num_pipelines: int, batch_size: int, num_epochs: int, **options: Any
) -> Any:
    """The lengths and the batches of some epochs."""
    plugin = plugin_of(OURS if dali is dali_like else None)
    pipelines = pipelines_of(dali, files, num_pipelines, batch_size, **options)
    with quiet(OURS if dali is dali_like else None):
        iterator = plugin.DALIClassificationIterator(
            pipelines, reader_name="reader", last_batch_policy=plugin.LastBatchPolicy[policy]
        )
        epochs = []
        for _ in range(num_epochs):
            length = len(iterator)
            batches = [[np.asarray(each["label"]).ravel().tolist() for each in batch] for batch in iterator]
            epochs.append((length, batches))
            iterator.reset()
    if dali is dali_like:
        for pipe in pipelines:
            pipe.close()
    return epochs


CASES = [
    # samples, batch size, shards, pipelines
    (12, 4, 1, 1),
    (12, 5, 1, 1),
    (7, 3, 2, 2),
    (7, 2, 2, 1),
    (10, 4, 3, 3),
    (11, 2, 3, 2),
    (12, 1, 5, 2),
]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with two classes of small images."""
    root = tmp_path_factory.mktemp("photographs")
    for i in range(7):
        (root / f"{i % 2}").mkdir(exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (4, 5, 3), np.uint8)
        cv2.imwrite(str(root / f"{i % 2}" / f"{i}.png"), cv2.resize(pixels, (40 + i, 30), interpolation=cv2.INTER_CUBIC))
    return str(root)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_from_a_folder(workers: int, photographs: str) -> None:
    """A pipeline for classification as in NVIDIA's examples, from files to batches for a network."""
    epochs = []
    for dali in (DALI, dali_like):
        plugin = plugin_of(OURS if dali is dali_like else None)
        pipe = dali.Pipeline(3, 2, None, seed=1, **({"py_num_workers": workers} if dali is dali_like else {}))
        with pipe:
            files, labels = dali.fn.readers.file(file_root=photographs, name="Reader", pad_last_batch=True)
            images = dali.fn.decoders.image(files, device="cpu", output_type=dali.types.RGB)
            images = dali.fn.resize(images, resize_shorter=24, interp_type=dali.types.INTERP_TRIANGULAR)
            images = dali.fn.crop_mirror_normalize(
                images, dtype=dali.types.FLOAT, output_layout="CHW", crop=(20, 20), mean=[120.0] * 3, std=[60.0] * 3
            )
            pipe.set_outputs(images, labels)
        with quiet(OURS if dali is dali_like else None):
            iterator = plugin.DALIClassificationIterator(
                pipe, reader_name="Reader", last_batch_policy=plugin.LastBatchPolicy.PARTIAL, auto_reset=True
            )
            epochs.append(
                [[tuple(b[0][name].numpy().copy() for name in ("data", "label")) for b in iterator] for _ in range(2)]
            )
            assert len(iterator) == 3
        if dali is dali_like:
            assert set(pipe.operator_places.values()) == {"workers" if workers else "threads"}
            pipe.close()

    for theirs, ours in zip(*epochs, strict=True):
        assert len(theirs) == len(ours) == 3
        for (their_images, their_labels), (our_images, our_labels) in zip(theirs, ours, strict=True):
            np.testing.assert_array_equal(their_labels, our_labels)
            np.testing.assert_allclose(their_images, our_images, atol=1.01 / 60)


@pytest.mark.parametrize(("pad", "stick"), [*itertools.product([False, True], repeat=2)])
@pytest.mark.parametrize("policy", ["FILL", "DROP", "PARTIAL"])
def test_epochs(policy: str, pad: bool, stick: bool, numbered_files: list[str]) -> None:
    for size, batch_size, num_shards, num_pipelines in CASES:
        if policy == "DROP" and size // num_shards < batch_size:
            continue  # no batch at all, an error in both
        options = {"num_shards": num_shards, "pad_last_batch": pad, "stick_to_shard": stick}
        seen = [
            epochs_of(dali, numbered_files[:size], policy, num_pipelines, batch_size, 4, **options)
            for dali in (DALI, dali_like)
        ]

        assert seen[0] == seen[1], (size, batch_size, num_shards, num_pipelines)
