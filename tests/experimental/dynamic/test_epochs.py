"""Readers of dynamic mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import errors


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for i in range(5):
        np.save(tmp_path / f"{i}.npy", np.full(2, i, np.int32))
    return tmp_path


def test_epochs_of_batches_and_of_samples(files: Path) -> None:
    reader = ndd.readers.Numpy(file_root=str(files), file_filter="*.npy")
    epochs = [[np.asarray(batch)[:, 0].tolist() for (batch,) in reader.next_epoch(batch_size=2)] for _ in range(2)]
    reader.close()
    assert epochs == [[[0, 1], [2, 3], [4, 0]], [[1, 2], [3, 4], [0, 1]]]
    single = ndd.readers.Numpy(file_root=str(files), file_filter="*.npy")
    assert [int(sample[0]) for (sample,) in single.next_epoch()] == [0, 1, 2, 3, 4]
    single.close()


def test_a_reader_continues_from_a_checkpoint(files: Path) -> None:
    reader = ndd.readers.Numpy(batch_size=2, file_root=str(files), file_filter="*.npy", random_shuffle=True, seed=3)
    list(reader.next_epoch())
    checkpoint = reader.checkpoint()
    expected = [np.asarray(batch).tolist() for (batch,) in reader.next_epoch()]
    reader.close()
    again = ndd.readers.Numpy(batch_size=2, file_root=str(files), file_filter="*.npy", random_shuffle=True, seed=3)
    again.restore(checkpoint)
    assert [np.asarray(batch).tolist() for (batch,) in again.next_epoch()] == expected
    again.close()


def test_wrong_use(files: Path) -> None:
    reader = ndd.readers.Numpy(file_root=str(files), file_filter="*.npy")
    epoch = reader.next_epoch(batch_size=2)
    next(epoch)
    with pytest.raises(errors.PipelineStateError, match="not finished"):
        reader.next_epoch(batch_size=2)
    list(epoch)
    with pytest.raises(errors.ArgumentClashError, match="make another reader"):
        reader.next_epoch(batch_size=3)
    reader.close()
