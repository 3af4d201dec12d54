"""Train a small SSD on pictures of made-up shapes, and measure how many objects it finds.

    python -m examples.detection_training [--steps 300] [--workers 2]

The input comes from `examples.detection_pipeline`. After the training the program counts, on new pictures, how many anchors
with an object get its label, and how far their boxes are from it. The default takes about a minute on a CPU.

Requires PyTorch and OpenCV.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dali_like.plugin.pytorch import DALIGenericIterator
from examples.detection_pipeline import GRID, SIDES, ShapeSource, detection

NUM_CLASSES = 3
#: Anchors of the background in the loss, for each anchor with an object.
NEGATIVES = 3


class Detector(nn.Module):  # type: ignore[misc,unused-ignore]
    """Convolutions to a grid of GRID x GRID, and a linear layer for the labels and offsets of the anchors at each place."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, width, stride in ((3, 16, 2), (16, 32, 2), (32, 64, 2), (64, 64, 1)):
            layers += [nn.Conv2d(channels, width, 3, stride, 1), nn.BatchNorm2d(width), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(64, len(SIDES) * (NUM_CLASSES + 4), 3, padding=1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores of the labels, (N, anchors, NUM_CLASSES), and offsets, (N, anchors, 4)."""
        maps = self.head(self.features(images)).permute(0, 2, 3, 1)
        found = maps.reshape(len(images), GRID * GRID * len(SIDES), NUM_CLASSES + 4)
        return found[..., :NUM_CLASSES], found[..., NUM_CLASSES:]


def loss_of(scores: torch.Tensor, found: torch.Tensor, offsets: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss of an SSD: of all anchors with an object, and of the background anchors with the largest loss."""
    positive = labels > 0
    count = int(positive.sum())
    each = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    background = each.masked_fill(positive, 0.0).flatten()
    hard = background.topk(min(NEGATIVES * max(count, 1), len(background))).values
    boxes = nn.functional.smooth_l1_loss(found[positive], offsets[positive], reduction="sum")
    return (each[positive].sum() + hard.sum() + boxes) / max(count, 1)


def loader(batches: int, workers: int, seed: int, *, augment: bool) -> DALIGenericIterator:
    """Return an iterator over batches of images, offsets and labels of anchors."""
    pipe = detection(
        ShapeSource(batches, seed),
        augment,
        workers > 0,
        batch_size=32,
        num_threads=2,
        device_id=None,
        py_num_workers=max(workers, 1),
        seed=seed,
    )
    pipe.build()
    return DALIGenericIterator(pipe, ["images", "offsets", "labels"], auto_reset=True)


def train(model: Detector, steps: int, workers: int) -> list[float]:
    """Train a model, and return the loss of each step."""
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    losses = []
    model.train()
    for batch in loader(steps, workers, 1, augment=True):
        data = batch[0]
        scores, found = model(data["images"])
        loss = loss_of(scores, found, data["offsets"], data["labels"].long())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call,unused-ignore]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def evaluate(model: Detector, batches: int, workers: int) -> tuple[float, float]:
    """Return the part of the anchors with an object that get its label, and the mean error of their offsets."""
    right = count = 0
    error = 0.0
    model.eval()
    for batch in loader(batches, workers, 2, augment=False):
        data = batch[0]
        with torch.no_grad():
            scores, found = model(data["images"])
        positive = data["labels"] > 0
        right += int((scores.argmax(-1) == data["labels"])[positive].sum())
        error += float((found - data["offsets"]).abs()[positive].mean(-1).sum())
        count += int(positive.sum())
    return right / count, error / count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train a small SSD on made-up shapes.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2, help="0: operators run in threads")
    options: Any = parser.parse_args(arguments)
    torch.manual_seed(1)
    model = Detector()
    losses = train(model, options.steps, options.workers)
    print(f"loss {losses[0]:.2f} -> {sum(losses[-10:]) / len(losses[-10:]):.2f}")
    right, error = evaluate(model, 8, options.workers)
    print(f"{right:.0%} of the anchors with an object get its label; mean error of an offset {error:.2f}")


if __name__ == "__main__":
    main()
