"""Train a digit classifier with Lightning's Trainer and dali_like's loaders.

    python -m examples.lightning_digits [--epochs 3] [--workers 2]

The Trainer accepts the loaders because they are a subclass of PyTorch's.

Requires PyTorch, Lightning and scikit-learn.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Sequence

import lightning
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from dali_like.plugin.pytorch import DataLoader
from examples.train_digits import BATCH_SIZE, SEED, TRAINING_DIGITS, VALIDATION_BATCH_SIZE, Classifier, Digits


class DigitModule(lightning.LightningModule):
    """Training and validation steps for the Trainer."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = Classifier()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        images, labels = batch
        return functional.cross_entropy(self.classifier(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        images, labels = batch
        scores = self.classifier(images)
        self.log("loss", functional.cross_entropy(scores, labels), batch_size=len(labels))
        self.log("accuracy", (scores.argmax(1) == labels).float().mean(), batch_size=len(labels))

    def on_validation_epoch_end(self) -> None:
        seen = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch}: loss {seen['loss']:.4f}, accuracy {seen['accuracy']:.3f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train a digit classifier with Lightning.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    lightning.seed_everything(SEED, verbose=False)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")  # about newer PyTorch versions and few CPUs

    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    training = Digits(images[:TRAINING_DIGITS], labels[:TRAINING_DIGITS], augment=True)
    validation = Digits(images[TRAINING_DIGITS:], labels[TRAINING_DIGITS:], augment=False)
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        DigitModule(),
        DataLoader(training, batch_size=BATCH_SIZE, shuffle=True, num_workers=options.workers),
        DataLoader(validation, batch_size=VALIDATION_BATCH_SIZE, num_workers=options.workers),
    )


if __name__ == "__main__":
    main()
