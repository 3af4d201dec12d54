"""Training input for an SSD: windows of photographs that contain objects, with changed colors, mirrored, normalized.

    python -m examples.ssd_pipeline [--epochs 2] [--workers 2]

The source chooses window and mirroring for each sample, and transforms the boxes of the objects. Operators apply both to the
pixels. They change colors with random numbers that differ from sample to sample. As in `examples.resnet_pipeline`,
everything runs in the workers, and with the import ``from nvidia.dali import fn, pipeline_def, types`` the program runs with
NVIDIA DALI.

Requires OpenCV, simplejpeg, and scikit-image or scikit-learn, which include photographs. The objects are made up.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dali_like import fn, pipeline_def, types
from examples.demo_data import make_crops, packaged_photographs
from examples.photograph_source import DetectionSource

SIDE = 300
MEAN = [0.485 * 255, 0.456 * 255, 0.406 * 255]
STD = [0.229 * 255, 0.224 * 255, 0.225 * 255]


@pipeline_def  # type: ignore[untyped-decorator,unused-ignore]
def training(source: DetectionSource, parallel: bool, jitter: float = 1.0, antialias: bool = True) -> Any:
    """Define a pipeline of images of shape (3, 300, 300), float32, the boxes of their objects, and the labels of the
    objects.

    Args:
        source: source of files, boxes, labels, windows, and mirroring flags; see `examples.photograph_source`.
        parallel: whether worker processes call it.
        jitter: strength of the color changes, near zero for almost none.
        antialias: whether images are filtered where they shrink.
    """
    files, boxes, labels, anchors, shapes, mirrored = fn.external_source(
        source=source,
        num_outputs=6,
        batch=False,
        parallel=parallel,
        dtype=[types.UINT8, types.FLOAT, types.INT32, types.FLOAT, types.FLOAT, types.INT32],
    )
    images = fn.decoders.image_slice(files, anchors, shapes)
    images = fn.resize(images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=antialias)
    images = fn.hsv(
        images,
        hue=fn.random.uniform(range=[-18 * jitter, 18 * jitter]),
        saturation=fn.random.uniform(range=[1 - 0.5 * jitter, 1 + 0.5 * jitter]),
    )
    images = fn.brightness_contrast(
        images,
        brightness=fn.random.uniform(range=[1 - 0.125 * jitter, 1 + 0.125 * jitter]),
        contrast=fn.random.uniform(range=[1 - 0.5 * jitter, 1 + 0.5 * jitter]),
    )
    images = fn.crop_mirror_normalize(images, mirror=mirrored, mean=MEAN, std=STD, dtype=types.FLOAT, output_layout="CHW")
    return images, boxes, labels


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print statistics and speed of the training input of an SSD.")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="0: operators run in threads")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--per-photograph", type=int, default=64, help="number of files to cut out of each photograph")
    parser.add_argument("--data", type=Path, default=Path("build/examples/crops"), help="folder for the files")
    options = parser.parse_args(arguments)

    photographs = make_crops(options.data / str(options.per_photograph), packaged_photographs(), options.per_photograph)
    source = DetectionSource(photographs, options.batch_size)
    pipe = training(
        source,
        options.workers > 0,
        batch_size=options.batch_size,
        num_threads=2,
        device_id=None,
        py_num_workers=max(options.workers, 1),
        seed=7,
    )
    pipe.build()
    print(f"{'epoch':>5} {'images':>6} {'each':>13} {'mean':>6} {'objects':>7} {'of an image':>11} {'images/s':>8}")
    for epoch in range(options.epochs):
        began = time.perf_counter()
        count = objects = 0
        means = areas = 0.0
        for _ in range(source.batches):
            outputs: Any = pipe.run()
            images, boxes, labels = outputs
            batch = images.as_array()
            count += len(batch)
            means += float(batch.mean()) / source.batches
            for i in range(len(batch)):
                objects += len(labels.at(i))
                left, top, right, bottom = boxes.at(i).T
                areas += float(((right - left) * (bottom - top)).sum())
        pipe.reset()
        rate = count / (time.perf_counter() - began)
        shape = "x".join(map(str, batch.shape[1:]))
        print(f"{epoch:5} {count:6} {shape:>13} {means:6.3f} {objects:7} {areas / objects:11.1%} {rate:8,.0f}", flush=True)


if __name__ == "__main__":
    main()
