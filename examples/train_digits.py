"""Train a small network on handwritten digits with PyTorch, using PyTorch's DataLoader or dali_like's.

    python -m examples.train_digits                                                # torch.utils.data.DataLoader
    python -m examples.train_digits --loader dali_like --worker-seeding torch      # the same losses, to the last bit
    python -m examples.train_digits --loader dali_like                             # other random numbers
    python -m examples.train_digits --loader dali_like --no-augment                # no random numbers: the same losses

Workload: the 1,797 digits in scikit-learn, 8x8 pixels. Two workers randomly shift the first 1,437 and add noise, for
training; the others are for validation. Each epoch prints its mean losses with all digits, and the accuracy on the
validation digits.

One line in `main` selects the class that loads the samples; the code after it is the same for both. One argument is not
PyTorch's: ``worker_seeding="torch"`` seeds workers instead of samples, so workers draw the same numbers as PyTorch's.

Requires PyTorch and scikit-learn.
"""

from __future__ import annotations

import argparse
import importlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

LOADERS = {"torch": "torch.utils.data", "dali_like": "dali_like.plugin.pytorch"}
SEED = 7
TRAINING_DIGITS = 1437
BATCH_SIZE = 32
VALIDATION_BATCH_SIZE = 100


class Digits(Dataset):
    """Digits as float32 tensors of shape (1, 8, 8) from 0 to 1, with their labels.

    Args:
        images: float32 array of shape (digits, 8, 8).
        labels: int64 array of shape (digits,).
        augment: whether to shift half of them by up to a pixel, and add noise to all.
    """

    def __init__(self, images: NDArray[np.float32], labels: NDArray[np.int64], *, augment: bool) -> None:
        self.images = images
        self.labels = labels
        self.augment = augment

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.from_numpy(self.images[index])
        if self.augment:
            image = add_noise(shift(image))
        return image.unsqueeze(0), int(self.labels[index])


def shift(image: torch.Tensor) -> torch.Tensor:
    """Move half of the images randomly by up to a pixel in each direction."""
    if random.random() < 0.5:
        return image
    rows, columns = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(image, (rows, columns), (0, 1))


def add_noise(image: torch.Tensor) -> torch.Tensor:
    """Add normally distributed noise, and a random brightness."""
    noise = np.random.normal(scale=0.05, size=image.shape).astype(np.float32)
    return image + torch.from_numpy(noise) + 0.02 * torch.randn(())


class Classifier(nn.Module):
    """Two convolutions, and a linear layer after a dropout, which also draws from PyTorch's global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.last = nn.Linear(32 * 2 * 2, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.max_pool2d(functional.relu(self.first(images)), 2)
        hidden = functional.max_pool2d(functional.relu(self.second(hidden)), 2)
        return self.last(functional.dropout(hidden.flatten(1), 0.2, self.training))


def train(model: nn.Module, loader: Any, optimizer: torch.optim.Optimizer) -> float:
    """Train for one epoch and return the mean loss."""
    model.train()
    total = 0.0
    for images, labels in loader:
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


@torch.no_grad()
def validate(model: nn.Module, loader: Any) -> tuple[float, float]:
    """Return the mean loss, and the fraction of digits classified correctly."""
    model.eval()
    total, right = 0.0, 0
    for images, labels in loader:
        scores = model(images)
        total += functional.cross_entropy(scores, labels, reduction="sum").item()
        right += int((scores.argmax(1) == labels).sum())
    return total / len(loader.dataset), right / len(loader.dataset)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--loader", choices=LOADERS, default="torch", help="library of the DataLoader")
    parser.add_argument("--worker-seeding", choices=["tasks", "torch"], help="argument of dali_like's DataLoader")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--persistent-workers", action="store_true")
    parser.add_argument("--no-augment", dest="augment", action="store_false")
    options = parser.parse_args(arguments)
    if options.worker_seeding and options.loader == "torch":
        parser.error("--worker-seeding is for --loader dali_like")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    DataLoader = importlib.import_module(LOADERS[options.loader]).DataLoader  # noqa: N806  (it is a class)
    more = {"worker_seeding": options.worker_seeding} if options.worker_seeding else {}
    if options.workers:
        more["persistent_workers"] = options.persistent_workers

    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)

    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    training = Digits(images[:TRAINING_DIGITS], labels[:TRAINING_DIGITS], augment=options.augment)
    validation = Digits(images[TRAINING_DIGITS:], labels[TRAINING_DIGITS:], augment=False)
    train_loader = DataLoader(training, batch_size=BATCH_SIZE, shuffle=True, num_workers=options.workers, **more)
    validation_loader = DataLoader(validation, batch_size=VALIDATION_BATCH_SIZE, num_workers=options.workers, **more)

    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(options.epochs):
        loss = train(model, train_loader, optimizer)
        validation_loss, accuracy = validate(model, validation_loader)
        print(f"epoch {epoch}: loss {loss!r}, validation {validation_loss!r}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
