"""Trains with several learning rates at once. One process decodes the data for all of them.

    python -m examples.shared_loader

The first process serves its loader. The others connect, and train a linear model on the same batches. No batch is copied,
and each process may change its batches: the others do not see that.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from multiprocessing.queues import Queue

import numpy as np
from numpy.typing import NDArray

import dali_like
from dali_like.data import DataLoader

RATES = 0.01, 0.1, 1.0
EPOCHS = 4
NUM_CLASSES = 4
NUM_FEATURES = 64


class Points:
    """Points around one center for each class. Loading one takes some work."""

    def __init__(self, length: int = 2000) -> None:
        self.length = length
        self.centers = np.random.default_rng(0).normal(size=(NUM_CLASSES, NUM_FEATURES))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        label = index % NUM_CLASSES
        noise = np.random.default_rng(index).normal(scale=2.0, size=NUM_FEATURES)
        return (self.centers[label] + noise).astype(np.float32), label


def train(path: str, rate: float, results: Queue[tuple[float, float]]) -> None:
    """Train on the batches of a server, and report the share of right answers in the last epoch."""
    weights = np.zeros((NUM_FEATURES, NUM_CLASSES), np.float32)
    with dali_like.connect(path) as batches:
        for _ in range(EPOCHS):
            num_right = num_seen = 0
            for batch in batches:
                points, labels = batch
                points /= 4.0  # in place: each process has its own view
                scores = points @ weights
                num_right += int((scores.argmax(1) == labels).sum())
                num_seen += len(labels)
                scores = np.exp(scores - scores.max(1, keepdims=True))
                scores /= scores.sum(1, keepdims=True)
                scores[np.arange(len(labels)), labels] -= 1.0
                weights -= rate * points.T @ scores / len(labels)
    results.put((rate, num_right / num_seen))


def sweep() -> dict[float, float]:
    """Return the share of right answers for each learning rate."""
    spawning = multiprocessing.get_context("spawn")
    results: Queue[tuple[float, float]] = spawning.Queue()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/private/batches"
        runs = [spawning.Process(target=train, args=(path, rate, results)) for rate in RATES]
        for run in runs:
            run.start()
        loader = DataLoader(Points(), batch_size=50, shuffle=True, num_workers=2)
        with loader.serve(path, consumers=len(RATES), consumer_timeout_s=120) as server:
            server.run(EPOCHS)
        found = dict(results.get() for _ in runs)
        for run in runs:
            run.join()
    results.close()
    return found


def main() -> None:
    """Print the result of each learning rate."""
    for rate, share in sorted(sweep().items()):
        print(f"learning rate {rate}: {share:.1%} right")


if __name__ == "__main__":
    main()
