"""The pipeline of NVIDIA's ImageNet example, from a folder with a sub-folder of JPEG files for each class.

    python -m examples.imagenet_pipeline [--data DIR] [--workers 2]

The pipeline is that of DALI's example of ResNet-50 with PyTorch; only the import differs. It prints the
size of the dataset and the speed of an epoch. `examples.imagenet_training` trains with it.

Requires OpenCV and simplejpeg, and, without ``--data``, scikit-image or scikit-learn, which include photographs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dali_like import fn, pipeline_def, types
from examples.demo_data import make_crops, make_folders, packaged_photographs


@pipeline_def  # type: ignore[untyped-decorator,unused-ignore]
def create_dali_pipeline(
    data_dir: str, crop: int, size: int, shard_id: int, num_shards: int, dali_cpu: bool = False, is_training: bool = True
) -> Any:
    """Define a pipeline of images of shape (3, crop, crop), float32, and labels of shape (1,), int32.

    Args:
        data_dir: folder of the classes.
        crop: height and width of the images.
        size: shorter side before validation images are cropped.
        shard_id, num_shards: part of the dataset.
        dali_cpu: deliver on the CPU.
        is_training: whether to shuffle the files, and to crop and mirror at random.
    """
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
    # ask nvJPEG to preallocate memory for the biggest sample in ImageNet for CPU and GPU to avoid reallocations in runtime
    preallocate_width_hint = 5980 if decoder_device == "mixed" else 0
    preallocate_height_hint = 6430 if decoder_device == "mixed" else 0
    mirror: Any = False
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

    images = fn.crop_mirror_normalize(
        images if dali_cpu else images.gpu(),
        dtype=types.FLOAT,
        output_layout="CHW",
        crop=(crop, crop),
        mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
        std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
        mirror=mirror,
    )
    if not dali_cpu:
        labels = labels.gpu()
    return images, labels


def photograph_folders(folder: Path, per_photograph: int) -> Path:
    """Make folders of files that are cut out of packaged photographs, and return their parent."""
    crops = make_crops(folder / str(per_photograph), packaged_photographs(), per_photograph)
    return make_folders(crops, folder / f"{per_photograph}-by-class")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that this example and `examples.imagenet_training` share."""
    parser.add_argument("--data", type=Path, help="folder of the classes; default: packaged photographs")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2, help="num_threads, which is the number of worker processes")
    parser.add_argument("--per-photograph", type=int, default=64, help="files to cut out of each packaged photograph")
    parser.add_argument("--scratch", type=Path, default=Path("build/examples/imagenet"), help="folder for these")
    parser.add_argument("--gpu", action="store_true", help="deliver on the GPU")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print the speed of the input pipeline of NVIDIA's ImageNet example.")
    add_options(parser)
    options = parser.parse_args(arguments)

    pipe = create_dali_pipeline(
        batch_size=options.batch_size,
        num_threads=options.workers,
        device_id=0 if options.gpu else None,
        seed=12,
        data_dir=str(options.data or photograph_folders(options.scratch, options.per_photograph)),
        crop=224,
        size=256,
        dali_cpu=not options.gpu,
        shard_id=0,
        num_shards=1,
        is_training=True,
    )
    pipe.build()
    meta = pipe.reader_meta("Reader")
    batches = -(-meta["epoch_size_padded"] // options.batch_size)
    print(f"{'epoch':>5} {'images':>6} {'each':>13} {'images/s':>8}")
    for epoch in range(options.epochs):
        began = time.perf_counter()
        for _ in range(batches):
            images, _ = pipe.run()
        rate = batches * options.batch_size / (time.perf_counter() - began)
        shape = "x".join(map(str, images.as_tensor().shape()[1:]))
        print(f"{epoch:5} {meta['epoch_size']:6} {shape:>13} {rate:8,.0f}", flush=True)


if __name__ == "__main__":
    main()
