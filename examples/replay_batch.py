"""Find what made the loss jump: compute the batch of that step again, from a state that the training has saved.

    python -m examples.replay_batch [batch.png]

A model learns the mean of smooth pictures. One of the files holds noise, so the loss jumps in one step of the second epoch.
`batch_at` computes this batch again, with the same random flips, and its picture shows the sample. The command
``dali-like replay examples.replay_batch:pictures --state state.json --step N`` does the same, from the file that the
program writes. Requires Pillow.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dali_like import show
from dali_like.data import DataLoader
from dali_like.showing.pictures import Picture

SIDE, COUNT, BATCH, BROKEN = 48, 240, 12, 77


class Pictures:
    """Smooth pictures, randomly flipped. The one with the number `BROKEN` is noise."""

    def __init__(self) -> None:
        self.files = [f"pictures/{number:03d}.png" for number in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, int]:
        own = np.random.default_rng(index)
        x, y = np.meshgrid(np.linspace(0, 1, SIDE), np.linspace(0, 1, SIDE))
        picture = np.stack([own.random() * x + own.random() * (1 - y) for _ in range(3)], axis=2) / 2
        if index == BROKEN:
            picture = own.random((SIDE, SIDE, 3)) ** 0.2
        if np.random.random() < 0.5:  # the loader seeds the global generators for each sample
            picture = picture[:, ::-1]
        return np.ascontiguousarray(picture, np.float32), index


def pictures() -> DataLoader[Any]:
    """Return the loader."""
    return DataLoader(Pictures(), BATCH, shuffle=True, num_workers=2)


def train(loader: DataLoader[Any]) -> tuple[int, Any]:
    """Train for two epochs. Return the step of the second one with the largest loss, and a state of that epoch."""
    mean = np.zeros((SIDE, SIDE, 3), np.float32)
    for epoch in range(2):
        losses, state = [], None
        for step, (batch, _) in enumerate(loader):
            losses.append(float(((batch - mean) ** 2).mean()))
            mean += 0.1 * (batch.mean(axis=0) - mean)
            if step % 5 == 4:
                state = loader.state_dict()  # usually saved with the model
        worst = int(np.argmax(losses))
        print(f"epoch {epoch}: loss {np.median(losses):.3f} in most steps, {losses[worst]:.3f} in step {worst}")
    return worst, state


def replay(step: int, state: Any) -> Picture:
    """Show the batch of a step again. A label is the number of the file."""
    batch, numbers = pictures().batch_at(step, state)
    deviations = np.abs(np.diff(batch, axis=1)).mean(axis=(1, 2, 3))
    print(f"step {step}: {Pictures().files[numbers[deviations.argmax()]]} is the least smooth of {numbers.tolist()}")
    return show((batch, numbers), columns=6, size=120)


def main() -> None:
    """Train, and write the state and the picture of the batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", nargs="?", type=Path, default=Path("batch.png"), help="default: %(default)s")
    options = parser.parse_args()
    step, state = train(pictures())
    options.picture.with_name("state.json").write_text(json.dumps(state))
    replay(step, state).save(options.picture)


if __name__ == "__main__":
    main()
