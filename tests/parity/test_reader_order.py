"""The order of samples of readers: shards, epochs and padding, beside the real DALI."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like


def stream(
    dali: ModuleType, files: list[str], batch_size: int, num_batches: int, pipeline_seed: int = 1, **options: Any
) -> Any:
    """The metadata of a reader, and the numbers of its files in some batches."""
    pipe = dali.Pipeline(batch_size, 1, None, seed=pipeline_seed, **({"py_num_workers": 0} if dali is dali_like else {}))
    with pipe:
        pipe.set_outputs(*dali.fn.readers.file(files=files, name="reader", **options))
    pipe.build()
    batches = []
    for _ in range(num_batches):
        data, labels = pipe.run()
        numbers = [int(np.asarray(data.at(i)).item()) for i in range(batch_size)]
        assert numbers == [int(np.asarray(labels.at(i)).item()) for i in range(batch_size)]
        batches.append(numbers)
    meta = pipe.reader_meta("reader")
    if dali is dali_like:
        pipe.close()
    return meta, batches


@pytest.mark.parametrize(("pad", "stick"), [*itertools.product([False, True], repeat=2)])
@pytest.mark.parametrize("num_shards", range(1, 6))
def test_order_without_shuffling(num_shards: int, pad: bool, stick: bool, numbered_files: list[str]) -> None:
    for size, batch_size in ((12, 4), (12, 5), (7, 3), (5, 2), (6, 8)):
        for shard in {0, num_shards // 2, num_shards - 1}:
            options = {"shard_id": shard, "num_shards": num_shards, "pad_last_batch": pad, "stick_to_shard": stick}
            # Three epochs and a bit.
            num_batches = 3 * -(-size // batch_size) + 2
            seen = [
                stream(dali, numbered_files[:size], batch_size, num_batches, **options) for dali in (nvidia.dali, dali_like)
            ]

            assert seen[0] == seen[1], (size, batch_size, shard)


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("argument", ["random_shuffle", "shuffle_after_epoch"])
def test_metadata_with_shuffling(argument: str, pad: bool, numbered_files: list[str]) -> None:
    options = {argument: True, "pad_last_batch": pad, "num_shards": 2}
    seen = [stream(dali, numbered_files[:7], 3, 1, **options)[0] for dali in (nvidia.dali, dali_like)]

    assert seen[0] == seen[1]


@pytest.mark.parametrize("dali", [nvidia.dali, dali_like], ids=["real", "ours"])
@pytest.mark.parametrize("num_shards", [1, 2])
def test_readers_with_shuffle_after_epoch_deliver_pairs_with_any_seeds(
    num_shards: int, dali: ModuleType, numbered_files: list[str]
) -> None:
    options: dict[str, Any] = {"shuffle_after_epoch": True, "num_shards": num_shards}
    seeds: list[dict[str, int]] = [{}, {"pipeline_seed": 7}, {"seed": 5}, {"seed": 6, "pipeline_seed": 8}]
    streams = [stream(dali, numbered_files, 3, 12, **options, **each) for each in seeds]

    assert streams == streams[:1] * 4
    assert streams[0][1] != sorted(streams[0][1])


@pytest.mark.parametrize(
    "options",
    [
        {"shard_id": 2, "num_shards": 2},
        {"num_shards": 0},
        {"num_shards": 13},
        {"shuffle_after_epoch": True, "random_shuffle": True},
        {"shuffle_after_epoch": True, "stick_to_shard": True},
    ],
    ids=str,
)
def test_errors(options: dict[str, Any], numbered_files: list[str]) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            stream(dali, numbered_files, 1, 1, **options)
