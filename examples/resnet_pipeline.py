"""Training input for ResNet-50: random crops of photographs, scaled, randomly mirrored, and normalized.

    python -m examples.resnet_pipeline [--epochs 2] [--workers 2] [--augment]

The operators run in the worker processes, directly after the source, and write their results into the batch. With
``--workers 0`` this process calls the source, and operators run in threads. ``--augment`` adds TrivialAugment. The pipeline
also runs with NVIDIA DALI: import from ``nvidia.dali`` instead; ``augment`` then needs ``enable_conditionals=True``.

Requires OpenCV, simplejpeg, and scikit-image or scikit-learn, which include photographs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dali_like import fn, pipeline_def, types
from dali_like.auto_aug import trivial_augment
from examples.demo_data import make_crops, packaged_photographs
from examples.photograph_source import PhotographSource

SIDE = 224
MEAN = [0.485 * 255, 0.456 * 255, 0.406 * 255]
STD = [0.229 * 255, 0.224 * 255, 0.225 * 255]


@pipeline_def  # type: ignore[untyped-decorator,unused-ignore]
def training(
    source: PhotographSource,
    parallel: bool,
    least_area: float = 0.08,
    mirrored: float = 0.5,
    antialias: bool = True,
    augment: bool = False,
    decoding: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Define a pipeline of images of shape (3, 224, 224), float32, and labels.

    Args:
        source: source of files and labels.
        parallel: whether worker processes call it.
        least_area: minimum area of a crop, as a fraction of the photograph.
        mirrored: fraction of the images that are mirrored.
        antialias: whether images are filtered where they shrink.
        augment: whether to apply TrivialAugment, without ``equalize``, which DALI has only on the GPU.
        decoding: further arguments of the decoder. ``{"min_size": [224, 224]}``, which DALI does not have, allows decoding
            large photographs at a smaller scale.
    """
    files, labels = fn.external_source(
        source=source, num_outputs=2, batch=False, parallel=parallel, dtype=[types.UINT8, types.INT32]
    )
    images = fn.decoders.image_random_crop(
        files, random_area=[least_area, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10, **decoding
    )
    images = fn.resize(images, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=antialias)
    if augment:
        images = trivial_augment.trivial_augment_wide(images, excluded=["equalize"])
    images = fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(probability=mirrored),
        mean=MEAN,
        std=STD,
        dtype=types.FLOAT,
        output_layout="CHW",
    )
    return images, labels


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print statistics and speed of the training input of a ResNet-50.")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="0: operators run in threads")
    parser.add_argument("--augment", action="store_true", help="apply TrivialAugment")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--per-photograph", type=int, default=64, help="number of files to cut out of each photograph")
    parser.add_argument("--data", type=Path, default=Path("build/examples/crops"), help="folder for the files")
    options = parser.parse_args(arguments)

    photographs = make_crops(options.data / str(options.per_photograph), packaged_photographs(), options.per_photograph)
    source = PhotographSource(photographs, options.batch_size)
    pipe = training(
        source,
        options.workers > 0,
        augment=options.augment,
        batch_size=options.batch_size,
        num_threads=2,
        device_id=None,
        py_num_workers=max(options.workers, 1),
        seed=7,
    )
    pipe.build()
    print(f"{'epoch':>5} {'images':>6} {'each':>13} {'mean':>6} {'std':>5} {'labels':>6} {'images/s':>8}")
    for epoch in range(options.epochs):
        began = time.perf_counter()
        images = deviations = means = 0.0
        seen: set[int] = set()
        for _ in range(source.batches):
            outputs: Any = pipe.run()
            batch, labels = (output.as_array() for output in outputs)
            images += len(batch)
            means += float(batch.mean()) / source.batches
            deviations += float(batch.std()) / source.batches
            seen.update(labels.ravel().tolist())
        pipe.reset()
        rate = images / (time.perf_counter() - began)
        shape = "x".join(map(str, batch.shape[1:]))
        print(f"{epoch:5} {images:6.0f} {shape:>13} {means:6.3f} {deviations:5.3f} {len(seen):6} {rate:8,.0f}", flush=True)


if __name__ == "__main__":
    main()
