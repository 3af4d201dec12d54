"""DALI's example of training on a folder of images: its pipeline and its loop over batches, with a small model.

    DALI_LIKE_DEVICE=cpu python -m examples.resnet_training [--epochs 2] [--data FOLDER]

The pipeline and the loop are those of DALI's ``docs/examples/use_cases/pytorch/resnet50/main.py``; only the imports differ.
They are written for a GPU: with ``DALI_LIKE_DEVICE=cpu`` they run on the CPU. The folder contains a folder of images for
each class; the default is crops of photographs.

Requires PyTorch, OpenCV, simplejpeg, and scikit-image or scikit-learn, which include photographs.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dali_like import fn, pipeline_def, types  # from nvidia.dali import ...
from dali_like.plugin.base_iterator import LastBatchPolicy
from dali_like.plugin.pytorch import DALIClassificationIterator
from examples.demo_data import make_crops, packaged_photographs


@pipeline_def(exec_dynamic=True)
def create_dali_pipeline(
    data_dir: str, crop: int, size: int, shard_id: int, num_shards: int, dali_cpu: bool = False, is_training: bool = True
) -> Any:
    """Define a pipeline of images of shape (3, crop, crop), float32, and labels, as in DALI's example."""
    images, labels = fn.readers.file(
        file_root=data_dir,
        shard_id=shard_id,
        num_shards=num_shards,
        random_shuffle=is_training,
        pad_last_batch=True,
        name="Reader",
    )
    dali_device = "cpu" if dali_cpu else "gpu"
    decoder_device = "cpu" if dali_cpu else "mixed"
    preallocate_width_hint = 5980 if decoder_device == "mixed" else 0
    preallocate_height_hint = 6430 if decoder_device == "mixed" else 0
    mirror: Any
    if is_training:
        images = fn.decoders.image_random_crop(
            images,
            device=decoder_device,
            output_type=types.RGB,
            preallocate_width_hint=preallocate_width_hint,
            preallocate_height_hint=preallocate_height_hint,
            random_aspect_ratio=[0.8, 1.25],
            random_area=[0.1, 1.0],
            num_attempts=100,
        )
        images = fn.resize(images, device=dali_device, resize_x=crop, resize_y=crop, interp_type=types.INTERP_TRIANGULAR)
        mirror = fn.random.coin_flip(probability=0.5)
    else:
        images = fn.decoders.image(images, device=decoder_device, output_type=types.RGB)
        images = fn.resize(images, device=dali_device, size=size, mode="not_smaller", interp_type=types.INTERP_TRIANGULAR)
        mirror = False

    images = fn.crop_mirror_normalize(
        images.gpu(),
        dtype=types.FLOAT,
        output_layout="CHW",
        crop=(crop, crop),
        mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
        std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
        mirror=mirror,
    )
    labels = labels.gpu()
    return images, labels


def train(train_loader: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch_size: int) -> float:
    """Train for an epoch, and return the mean loss of its batches."""
    train_loader_len: int = math.ceil(train_loader._size / batch_size)
    total = 0.0
    for data in train_loader:
        images = data[0]["data"]
        target = data[0]["label"].squeeze(-1).long()
        loss = torch.nn.functional.cross_entropy(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / train_loader_len


def validate(val_loader: Any, model: torch.nn.Module) -> float:
    """Return the part of the images that the model recognizes."""
    right = seen = 0
    for data in val_loader:
        target = data[0]["label"].squeeze(-1).long()
        with torch.no_grad():
            right += int((model(data[0]["data"]).argmax(1) == target).sum())
        seen += len(target)
    return right / seen


def folder_of_photographs(folder: Path, per_photograph: int) -> Path:
    """Cut photographs into files, and return a folder with a folder of links to them for each photograph."""
    crops = make_crops(folder / "files", packaged_photographs(), per_photograph)
    for file, label in zip(crops.files, crops.labels, strict=True):
        link = folder / "classes" / crops.names[label] / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(file)
    return folder / "classes"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on a folder of images, as DALI's example does.")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--data", type=Path, help="folder with a folder of images for each class")
    options = parser.parse_args(arguments)

    data = options.data or folder_of_photographs(Path("build/examples/classes"), 16)
    common = {"batch_size": options.batch_size, "num_threads": options.workers, "device_id": 0, "seed": 12}
    of_data = {"data_dir": str(data), "crop": 64, "size": 72, "shard_id": 0, "num_shards": 1}
    train_pipe = create_dali_pipeline(**common, **of_data, is_training=True)
    train_pipe.build()
    train_loader = DALIClassificationIterator(
        train_pipe, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True
    )
    val_pipe = create_dali_pipeline(**common, **of_data, is_training=False)
    val_pipe.build()
    val_loader = DALIClassificationIterator(
        val_pipe, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True
    )

    torch.manual_seed(7)
    classes = sum(path.is_dir() for path in data.iterdir())
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 15 * 15, classes)
    ).to("cpu" if os.environ.get("DALI_LIKE_DEVICE") == "cpu" else "cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        loss = train(train_loader, model, optimizer, options.batch_size)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {validate(val_loader, model):.3f}", flush=True)
    train_pipe.close()
    val_pipe.close()


if __name__ == "__main__":
    main()
