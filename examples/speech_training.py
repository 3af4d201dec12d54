"""Train a small network to recognize spoken words, with PyTorch and `examples.speech_pipeline`.

    python -m examples.speech_training [--data DIR --validation DIR] [--epochs 8] [--workers 2]

Without ``--data``, the words are synthesized: twelve pairs of vowels by random voices, other voices for validation.

Requires PyTorch and soundfile.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dali_like.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy
from examples.speech_pipeline import BANDS, add_options, log_mel
from examples.spoken_words import make_folders


def loader_of(folder: Path, options: argparse.Namespace, *, is_training: bool) -> DALIClassificationIterator:
    """Return an iterator over a folder of words, whose epochs end where the reader's do."""
    pipe = log_mel(
        str(folder), is_training, batch_size=options.batch_size, num_threads=options.workers, device_id=None, seed=5
    )
    pipe.build()
    return DALIClassificationIterator(pipe, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True)


def model_of(words: int) -> nn.Module:
    """Return convolutions over time, and a linear layer over their maxima in each third of the word."""
    return nn.Sequential(
        *(nn.Conv1d(BANDS, 64, 5, stride=2, padding=2), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Conv1d(64, 64, 5, stride=2, padding=2), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.AdaptiveMaxPool1d(3), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 3, words)),
    )


def train(loader: Any, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Train for one epoch and return the mean loss of the batches."""
    model.train()
    losses = []
    for [batch] in loader:
        loss = nn.functional.cross_entropy(model(batch["data"]), batch["label"].squeeze(-1).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def validate(loader: Any, model: nn.Module) -> float:
    """Return the fraction of words that the model recognizes."""
    model.eval()
    count = correct = 0
    for [batch] in loader:
        labels = batch["label"].squeeze(-1)
        correct += int((model(batch["data"]).argmax(1) == labels).sum())
        count += len(labels)
    return correct / count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on log-mel features of spoken words.")
    add_options(parser)
    parser.set_defaults(epochs=8)
    parser.add_argument("--validation", type=Path, help="folder of the words for validation; needed with --data")
    options = parser.parse_args(arguments)
    if (options.data is None) != (options.validation is None):
        parser.error("--data and --validation go together")

    folder = options.data or make_folders(options.scratch / str(options.per_word), options.per_word, seed=1)
    validation = options.validation or make_folders(options.scratch / "validation", 10, seed=2)
    torch.manual_seed(7)
    model = model_of(words=sum(1 for path in folder.iterdir() if path.is_dir()))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    train_loader = loader_of(folder, options, is_training=True)
    validation_loader = loader_of(validation, options, is_training=False)
    for epoch in range(options.epochs):
        loss = train(train_loader, model, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {validate(validation_loader, model):.3f}", flush=True)


if __name__ == "__main__":
    main()
