"""Train as in NVIDIA's ImageNet example: PyTorch, and DALI's iterators over pipelines that read folders.

    python -m examples.imagenet_training [--data DIR] [--epochs 2] [--workers 2]
    DALI_LIKE_DEVICE=cpu python -m examples.imagenet_training --gpu    # as written for a GPU, on a machine without one

``train`` and ``validate`` have the loops of DALI's example of ResNet-50 with PyTorch; only the imports
differ. The folder has the sub-folders ``train`` and ``val``, with a folder of JPEG files for each class. The model is
ResNet-50 if torchvision is installed, and otherwise a small one.

Requires PyTorch, OpenCV and simplejpeg, and, without ``--data``, scikit-image or scikit-learn, which include photographs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dali_like.plugin.base_iterator import LastBatchPolicy
from dali_like.plugin.pytorch import DALIClassificationIterator
from examples.imagenet_pipeline import add_options, create_dali_pipeline, photograph_folders


def loader_of(data_dir: Path, options: argparse.Namespace, *, is_training: bool) -> DALIClassificationIterator:
    """Return an iterator over a folder of classes, whose epochs end where the reader's do."""
    pipe = create_dali_pipeline(
        batch_size=options.batch_size,
        num_threads=options.workers,
        device_id=0 if options.gpu else None,
        seed=12,
        data_dir=str(data_dir),
        crop=options.crop,
        size=options.crop * 8 // 7,
        dali_cpu=not options.gpu,
        shard_id=0,
        num_shards=1,
        is_training=is_training,
    )
    pipe.build()
    return DALIClassificationIterator(pipe, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True)


def model_of(num_classes: int) -> torch.nn.Module:
    """Return a ResNet-50, or a small network where torchvision is missing."""
    if importlib.util.find_spec("torchvision"):
        models: Any = importlib.import_module("torchvision.models")
        model: torch.nn.Module = models.resnet50(num_classes=num_classes)
        return model
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 7, stride=4), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, num_classes)),
    )


def train(train_loader: Any, model: torch.nn.Module, criterion: Any, optimizer: torch.optim.Optimizer) -> tuple[int, float]:
    """Train for one epoch. Return the number of images and the mean loss of the batches."""
    model.train()
    count, losses = 0, []
    for data in train_loader:
        input = data[0]["data"]
        target = data[0]["label"].squeeze(-1).long()

        output = model(input)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        count += input.size(0)
        losses.append(loss.item())
    return count, sum(losses) / len(losses)


def validate(val_loader: Any, model: torch.nn.Module) -> tuple[int, float]:
    """Return the number of images, and the fraction of them that the model names correctly."""
    model.eval()
    count = correct = 0
    for data in val_loader:
        input = data[0]["data"]
        target = data[0]["label"].squeeze(-1).long()
        with torch.no_grad():
            output = model(input)
        count += input.size(0)
        correct += int((output.argmax(1) == target).sum())
    return count, correct / count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on a folder of images with DALIClassificationIterator.")
    add_options(parser)
    parser.add_argument("--crop", type=int, default=224, help="height and width of the images")
    options = parser.parse_args(arguments)

    if options.data:
        train_dir, val_dir = options.data / "train", options.data / "val"
    else:
        train_dir = photograph_folders(options.scratch, options.per_photograph)
        val_dir = photograph_folders(options.scratch, max(1, options.per_photograph // 8))
    train_loader = loader_of(train_dir, options, is_training=True)
    val_loader = loader_of(val_dir, options, is_training=False)

    torch.manual_seed(7)
    model = model_of(num_classes=sum(1 for folder in train_dir.iterdir() if folder.is_dir()))
    if options.gpu and torch.cuda.is_available():
        model = model.cuda()
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
    for epoch in range(options.epochs):
        images, loss = train(train_loader, model, criterion, optimizer)
        validated, accuracy = validate(val_loader, model)
        print(f"epoch {epoch}: {images} images, loss {loss:.4f}; {validated} images, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
