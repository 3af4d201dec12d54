"""Pipeline source of the handwritten digits in scikit-learn, shared by the iterator examples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dali_like.types import SampleInfo

TRAINING_DIGITS = 1437


class DigitSource:
    """Returns a digit as a float32 array of shape (8, 8) from 0 to 1, and its label; in a new order in each epoch.

    Args:
        images: float32 array of shape (digits, 8, 8).
        labels: int32 array of shape (digits,).
        shard_id, num_shards: index and number of shards. All shards have the same size.
    """

    def __init__(
        self, images: NDArray[np.float32], labels: NDArray[np.int32], shard_id: int = 0, num_shards: int = 1
    ) -> None:
        self.images = images
        self.labels = labels
        self.shard_id = shard_id
        self.num_shards = num_shards
        self.epoch = -1

    def __len__(self) -> int:
        return len(self.images) // self.num_shards

    def __call__(self, info: SampleInfo) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        if self.epoch != info.epoch_idx:
            self.epoch = info.epoch_idx
            self.order = np.random.default_rng(info.epoch_idx).permutation(len(self.images))
        digit = self.order[info.idx_in_epoch * self.num_shards + self.shard_id]
        return self.images[digit], self.labels[digit, ...]


def digits() -> tuple[tuple[NDArray[np.float32], NDArray[np.int32]], tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Return images and labels for training, and others for validation."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images, labels = (images.reshape(-1, 8, 8) / 16).astype(np.float32), labels.astype(np.int32)
    return (images[:TRAINING_DIGITS], labels[:TRAINING_DIGITS]), (images[TRAINING_DIGITS:], labels[TRAINING_DIGITS:])
