"""Draw the pictures of docs/gallery.md from batches of the examples: ``python -m tools.gallery [folder]``.

Each picture shows the first batch of a pipeline or dataset in `examples`, made by two workers. The program needs OpenCV,
Pillow, scikit-image, scikit-learn and soundfile, as the examples do.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dali_like import fn, pipeline_def
from dali_like.data import DataLoader
from examples import (
    detection_pipeline,
    imagenet_pipeline,
    look_at_batches,
    pretraining,
    replay_batch,
    resnet_pipeline,
    speech_pipeline,
    spoken_words,
    ssd_pipeline,
    vision_language,
)
from examples.demo_data import make_crops, packaged_photographs
from examples.digit_source import DigitSource, digits
from examples.photograph_source import DetectionSource, PhotographSource

ROOT = Path(__file__).resolve().parents[1]
Image = NDArray[Any]
_COLUMNS = 6
_GAP = 6
_COLORS = ((60, 130, 230), (230, 120, 40), (60, 170, 80), (170, 80, 190), (220, 190, 40), (90, 190, 200))


def first_batch(pipe: Any, count: int = _COLUMNS) -> list[list[NDArray[Any]]]:
    """Return samples of the first batch of a pipeline, one list for each output, and close the pipeline."""
    try:
        return [[np.array(output.at(i)) for i in range(count)] for output in pipe.run()]
    finally:
        pipe.close()


def as_pixels(image: NDArray[Any], mean: Any, std: Any) -> Image:
    """Return a normalized CHW image as pixels, (height, width, 3)."""
    pixels = image.transpose(1, 2, 0) * np.asarray(std, np.float32) + np.asarray(mean, np.float32)
    return pixels.round().clip(0, 255).astype(np.uint8)


def in_a_row(images: Sequence[Image], side: int = 128) -> Image:
    """Return pictures of the same size, side by side on white."""
    scaled = [
        cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA if image.shape[0] > side else 0) for image in images
    ]
    gap = np.full((side, _GAP, 3), 255, np.uint8)
    parts = [part for image in scaled for part in (image, gap)][:-1]
    return np.concatenate(parts, axis=1)


def resnet(folder: Path) -> Image:
    """Draw random crops of photographs."""
    source = PhotographSource(make_crops(folder / "crops", packaged_photographs(), 8), 16)
    pipe = resnet_pipeline.training(source, True, batch_size=16, num_threads=2, device_id=None, py_num_workers=2, seed=7)
    images, _ = first_batch(pipe)
    return in_a_row([as_pixels(image, resnet_pipeline.MEAN, resnet_pipeline.STD) for image in images])


def imagenet(folder: Path) -> Image:
    """Draw the same from folders of classes."""
    data = imagenet_pipeline.photograph_folders(folder, 8)
    pipe = imagenet_pipeline.create_dali_pipeline(
        str(data), 224, 256, 0, 1, dali_cpu=True, batch_size=16, num_threads=2, device_id=None, seed=12
    )
    images, _ = first_batch(pipe)
    mean, std = [0.485 * 255, 0.456 * 255, 0.406 * 255], [0.229 * 255, 0.224 * 255, 0.225 * 255]
    return in_a_row([as_pixels(image, mean, std) for image in images])


def ssd(folder: Path) -> Image:
    """Draw windows of photographs with the boxes of their objects."""
    source = DetectionSource(make_crops(folder / "crops", packaged_photographs(), 8), 16)
    pipe = ssd_pipeline.training(source, True, batch_size=16, num_threads=2, device_id=None, py_num_workers=2, seed=7)
    images, boxes, labels = first_batch(pipe)
    drawn = [as_pixels(image, ssd_pipeline.MEAN, ssd_pipeline.STD) for image in images]
    return in_a_row([_with_boxes(*each) for each in zip(drawn, boxes, labels, strict=True)])


def detection(folder: Path) -> Image:
    """Draw shapes with the anchors that have their labels."""
    source = detection_pipeline.ShapeSource(4, seed=1)
    pipe = detection_pipeline.detection(source, True, batch_size=16, num_threads=2, device_id=None, py_num_workers=2, seed=3)
    images, _, classes = first_batch(pipe)
    anchors = detection_pipeline.anchors()
    drawn = [cv2.resize(as_pixels(image, 64.0, 64.0), (256, 256), interpolation=cv2.INTER_NEAREST) for image in images]
    return in_a_row([_with_boxes(image, anchors[of > 0], of[of > 0]) for image, of in zip(drawn, classes, strict=True)])


def _with_boxes(image: Image, boxes: NDArray[Any], labels: NDArray[Any]) -> Image:
    """Return a picture with boxes, (left, top, right, bottom) in fractions of its sides."""
    drawn = np.ascontiguousarray(image)
    height, width = drawn.shape[:2]
    for box, label in zip(boxes, labels, strict=True):
        left, top, right, bottom = (box.clip(0, 1) * [width, height, width, height]).round().astype(int).tolist()
        cv2.rectangle(drawn, (left, top), (right - 1, bottom - 1), _COLORS[int(label) % len(_COLORS)], 4)
    return drawn


def speech(folder: Path) -> Image:
    """Draw the log-mel features of words, low frequencies at the bottom."""
    words = spoken_words.make_folders(folder / "words", 4, seed=1)
    features, _ = first_batch(speech_pipeline.log_mel(str(words), batch_size=16, num_threads=2, device_id=None, seed=5))
    return in_a_row([_as_heat(feature[::-1]) for feature in features])


def _as_heat(data: NDArray[Any]) -> Image:
    low, high = np.percentile(data, (2, 98))
    shades = (255 * ((data - low) / (high - low)).clip(0, 1)).astype(np.uint8)
    return np.asarray(cv2.applyColorMap(shades, cv2.COLORMAP_VIRIDIS)[:, :, ::-1])


def handwriting(folder: Path) -> Image:
    """Draw handwritten digits."""

    @pipeline_def(batch_size=16, num_threads=2, py_num_workers=2)  # type: ignore[untyped-decorator,unused-ignore]
    def pipeline() -> Any:
        return fn.external_source(DigitSource(*digits()[0]), num_outputs=2, batch=False, parallel=True, size=16)

    images, _ = first_batch(pipeline())
    return in_a_row([np.repeat((255 * image[:, :, None]).astype(np.uint8), 3, axis=2) for image in images])


def packs(folder: Path) -> Image:
    """Draw packs of documents: a row for each pack, a color for each document, white where there is padding."""
    dataset = pretraining.describe(pretraining.write_sources(folder / "sources"))
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    batch: Any = next(iter(loader))
    segments = np.asarray(batch["tokens_segment_ids"])
    colors = np.array([(255, 255, 255), *_COLORS], np.uint8)
    rows = colors[np.where(segments > 0, 1 + segments % len(_COLORS), 0)]
    picture = cv2.resize(rows, (6 * 128 + 5 * _GAP, len(rows) * 16), interpolation=cv2.INTER_NEAREST)
    picture[15::16] = 255
    return picture


def pairs(folder: Path) -> Image:
    """Draw batches of a token budget: a row for each batch, a color for each image with its text."""
    folder = folder / "pairs"
    folder.mkdir()
    batches: Any = iter(
        DataLoader(vision_language.describe(vision_language.write_shards(folder, 8)), batch_size=None, num_workers=2)
    )
    width = 6 * 128 + 5 * _GAP
    picture = np.full((8 * 18, width, 3), 255, np.uint8)
    for number in range(8):
        batch = next(batches)
        lengths = np.diff(batch["patches"].offsets) + np.diff(batch["text"].offsets)
        ends = (np.cumsum(lengths) * width / vision_language.TOKEN_BUDGET).astype(int)
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            picture[18 * number : 18 * number + 15, start : end - 1] = _COLORS[i % len(_COLORS)]
    return picture


def looks(folder: Path) -> Image:
    """Draw batches as `dali_like.show` does, below each other."""
    drawn = [np.asarray(draw().image) for draw in look_at_batches.DRAWN.values()]
    width = max(picture.shape[1] for picture in drawn)
    return np.concatenate(
        [np.pad(each, ((0, 0), (0, width - each.shape[1]), (0, 0)), constant_values=255) for each in drawn]
    )


def repeated(folder: Path) -> Image:
    """Draw the batch of the step with the largest loss, computed again."""
    return np.asarray(replay_batch.replay(*replay_batch.train(replay_batch.pictures())).image)


#: The picture of each example, by the name of its module.
PICTURES: Mapping[str, Callable[[Path], Image]] = {
    "resnet_pipeline": resnet,
    "imagenet_pipeline": imagenet,
    "ssd_pipeline": ssd,
    "detection_pipeline": detection,
    "speech_pipeline": speech,
    "digit_source": handwriting,
    "pretraining": packs,
    "vision_language": pairs,
    "look_at_batches": looks,
    "replay_batch": repeated,
}


def write(folder: Path) -> None:
    """Draw all pictures to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        with tempfile.TemporaryDirectory() as scratch:
            picture = draw(Path(scratch))
        cv2.imwrite(str(folder / f"{name}.jpg"), picture[:, :, ::-1], (cv2.IMWRITE_JPEG_QUALITY, 80))


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "pictures" / "gallery"))
