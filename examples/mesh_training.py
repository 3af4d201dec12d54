"""Train a small network on a mesh of ranks, data x tensor parallel. Ranks of a host with the same batches share one loader.

    torchrun --nproc-per-node=4 -m examples.mesh_training --tensor-parallel 2 --save /tmp/first
    torchrun --nproc-per-node=2 -m examples.mesh_training --tensor-parallel 1 --resume /tmp/first --save /tmp/second

Each rank of the "tp" dimension has a part of the hidden units. A second start continues from the checkpoint, also with
another number of ranks, if their number along "dp" divides the 16 logical shards. Runs on the CPU, and requires the extra
``pytorch``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh

from dali_like.data import ComposedDataset
from dali_like.plugin.pytorch import DataLoader

SHARDS, HIDDEN, SIDE = 16, 32, 8


def sample(number: int) -> tuple[torch.Tensor, float]:
    """A noisy image, and whether its number is even; replace it by your own."""
    generator = torch.Generator().manual_seed(number)
    return torch.rand(SIDE * SIDE, generator=generator) + number % 2, float(number % 2)


def is_bright(sample: tuple[torch.Tensor, float]) -> bool:
    """A filter: so the length of the stream is unknown."""
    return bool(sample[0].mean() > 0.4)


def train(steps: int, tensor_parallel: int, save: Path, resume: Path | None = None) -> list[float]:
    """Train for some steps, and save the position in the data. Return the losses of this rank."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // tensor_parallel, tensor_parallel), mesh_dim_names=("dp", "tp"))
    stream = ComposedDataset.source(range(10_000)).shuffle(seed=7).map(sample).filter(is_bright).repeat()
    loader: Any = DataLoader(
        stream.with_options(shards=SHARDS), batch_size=16, num_workers=1, mesh=mesh, peers="serve", worker_threads=1
    )
    if resume is not None:
        dcp.load({"loader": loader}, checkpoint_id=resume)

    torch.manual_seed(0)
    first = torch.randn(HIDDEN, SIDE * SIDE).chunk(tensor_parallel)[mesh["tp"].get_local_rank()].div(SIDE).requires_grad_()
    second = torch.randn(1, HIDDEN).chunk(tensor_parallel, 1)[mesh["tp"].get_local_rank()].div(HIDDEN).requires_grad_()
    losses = []
    for _, (images, labels) in zip(range(steps), loader, strict=False):
        part = torch.relu(images @ first.T) @ second.T
        others = part.detach().clone()
        dist.all_reduce(others, group=mesh["tp"].get_group())
        logits = (others - part.detach() + part)[:, 0]  # the sum over the ranks, with the gradient of this one
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.float())
        for weights, gradient in zip((first, second), torch.autograd.grad(loss, (first, second)), strict=True):
            dist.all_reduce(gradient, group=mesh["dp"].get_group())
            weights.data -= 0.1 * gradient / mesh["dp"].size()
        losses.append(loss.item())
    dcp.save({"loader": loader}, checkpoint_id=save)
    return losses


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print the losses of rank 0."""
    parser = argparse.ArgumentParser(prog="python -m examples.mesh_training", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tensor-parallel", type=int, default=2, help="ranks that have the same batches")
    parser.add_argument("--save", type=Path, required=True, help="folder of the checkpoint, which all ranks can reach")
    parser.add_argument("--resume", type=Path, help="folder of an earlier checkpoint")
    options = parser.parse_args(arguments)
    if "RANK" not in os.environ:
        parser.error("start it with torchrun")
    dist.init_process_group("gloo")
    losses = train(options.steps, options.tensor_parallel, options.save, options.resume)
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
