"""Train a digit classifier with PyTorch, through DALI's iterator over an external source.

    python -m examples.pytorch_iterator [--epochs 3] [--workers 2]

The tensors are views of the batches written by the workers, without a copy. A program for DALI looks the same, except for
the imports and the last line of `main`.

Requires PyTorch and scikit-learn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from dali_like import fn, pipeline_def, types
from dali_like.plugin.pytorch import DALIClassificationIterator
from examples.digit_source import DigitSource, digits

BATCH_SIZE = 32


@pipeline_def(batch_size=BATCH_SIZE, py_start_method="spawn")
def labeled(source: DigitSource, parallel: bool) -> Any:
    """Define a pipeline of images and labels."""
    return tuple(
        fn.external_source(
            source=source,
            num_outputs=2,
            batch=False,
            parallel=parallel,
            dtype=[types.FLOAT, types.INT32],
            last_batch_policy="partial",
        )
    )


def train(model: torch.nn.Module, batches: DALIClassificationIterator, optimizer: torch.optim.Optimizer) -> float:
    """Train for one epoch and return the mean loss of the batches."""
    losses = []
    for [batch] in batches:
        loss = functional.cross_entropy(model(batch["data"].flatten(1)), batch["label"].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits from DALIClassificationIterator.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="0: compute the digits in this process")
    options = parser.parse_args(arguments)

    training, (images, labels) = digits()
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    pipe = labeled(DigitSource(*training), options.workers > 0, py_num_workers=options.workers)
    batches = DALIClassificationIterator(pipe, auto_reset=True)
    for epoch in range(options.epochs):
        loss = train(model, batches, optimizer)
        with torch.no_grad():
            named = model(torch.from_numpy(images).flatten(1)).argmax(1)
        accuracy = float((named == torch.from_numpy(labels)).float().mean())
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}", flush=True)
    pipe.close()


if __name__ == "__main__":
    main()
