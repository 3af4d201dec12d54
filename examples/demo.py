"""Read photographs with two worker processes, then train a digit classifier through the same pipeline.

    python -m examples.demo                  # photographs that come with scikit-image and scikit-learn
    python -m examples.demo --data FOLDER    # your own images; sub-folders are labels

Workload: 1,280 JPEG files of 96 to 400 pixels a side, in two shards, three epochs each; then 1,797 handwritten digits, PNG
files of 8x8 pixels, until a softmax regression in NumPy classifies more than 90 % of the held-out digits correctly.

Files that cannot be decoded are skipped, and listed at the end.

Requires the extra ``images`` and the packages scikit-image, scikit-learn and tqdm. Writes to ``build/demo``, including the
first batch with its labels, ``contact_sheet.png``. Exit status: 0; 1 if samples are missing or the training fails; 2 if the
folder cannot be used.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dali_like import fn, pipeline_def, types
from examples.demo_data import FolderError, LabeledFiles, make_crops, make_digits, packaged_photographs, scan_folder

BATCH_SIZE = 32
NUM_SHARDS = 2
SEED = 7
OUTPUT = Path(__file__).resolve().parent.parent / "build" / "demo"

# All 360 held-out digits arrive, because they are nine full batches.
HELD_OUT_DIGITS = 360
HELD_OUT_BATCH_SIZE = 40
TARGET_ACCURACY = 0.9
# One or two epochs are enough; the limit stops a run in which labels do not match images.
MAX_TRAINING_EPOCHS = 15
LEARNING_RATE = 0.5

THUMBNAIL_PX = 112
CAPTION_PX = 20
SHEET_COLUMNS = 8

Batch = tuple[Any, ...]


class DemoError(RuntimeError):
    """The demo failed; the message gives the reason."""


class ImageFiles:
    """A source of encoded image files with their labels, in a new order in every epoch.

    The order depends only on the seed and the epoch, so all workers and shards agree on it. Each shard reads different
    files. Files that do not fill a batch are left out, different ones in every epoch.
    """

    def __init__(self, data: LabeledFiles, batch_size: int, *, shard_id: int = 0, num_shards: int = 1) -> None:
        self.data = data
        self.batch_size = batch_size
        self.shard_id = shard_id
        self.shard = slice(shard_id, None, num_shards)
        self.full_iterations = len(data.files) // num_shards // batch_size
        self.epoch_size = self.full_iterations * batch_size
        self.epoch_idx = -1
        self.order = np.empty(0, np.int64)

    def __call__(self, info: types.SampleInfo) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
        """Return the bytes of one file, its label and its index; label and index are int32 arrays of shape (1,)."""
        if info.iteration >= self.full_iterations:
            raise StopIteration
        if self.epoch_idx != info.epoch_idx:
            self.epoch_idx = info.epoch_idx
            self.order = np.random.default_rng(SEED + info.epoch_idx).permutation(len(self.data.files))[self.shard]
        index = self.order[info.idx_in_epoch]
        encoded = np.fromfile(self.data.files[index], np.uint8)
        return encoded, self.data.labels[index : index + 1], np.array([index], np.int32)

    def replacement(self, info: types.SampleInfo, error: Exception) -> Batch:
        """Return a gray image for a file that cannot be read or decoded, with the index -1 - index."""
        index = self.order[info.idx_in_epoch]
        _, encoded = cv2.imencode(".png", np.full((THUMBNAIL_PX, THUMBNAIL_PX), 128, np.uint8))
        return encoded.ravel(), self.data.labels[index : index + 1], np.array([-1 - index], np.int32)


@pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=None, py_num_workers=2, py_start_method="spawn")
def image_pipeline(source: ImageFiles, image_type: types.DALIImageType = types.RGB) -> Batch:
    """Define the pipeline: workers call the source, and the files are decoded. A batch is (images, labels, indices)."""
    encoded, labels, indices = fn.external_source(
        source=source,
        num_outputs=3,
        batch=False,
        parallel=True,
        dtype=[types.UINT8, types.INT32, types.INT32],
        on_error=source.replacement,
    )
    return fn.decoders.image(encoded, device="cpu", output_type=image_type), labels, indices


@dataclass
class Stopwatch:
    """Count the images that a loop receives, its waiting time in seconds, and its working time in seconds."""

    images: int = 0
    waited_s: float = 0.0
    worked_s: float = 0.0

    def watch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches unchanged."""
        iterator = iter(batches)
        asked = time.perf_counter()
        while (batch := next(iterator, None)) is not None:
            came = time.perf_counter()
            self.waited_s += came - asked
            self.images += len(batch[0])
            yield batch
            asked = time.perf_counter()
            self.worked_s += asked - came

    @property
    def images_per_s(self) -> float:
        """Return images per second of the whole loop, waiting and working."""
        return self.images / (self.waited_s + self.worked_s)


def read_shard(source: ImageFiles, epochs: int, stopwatch: Stopwatch, contact_sheet: Path | None) -> list[list[int]]:
    """Read a shard like one of several training processes, and return the files of each epoch.

    The loop only keeps the indices, so it almost always waits: its speed is that of reading and decoding.
    """
    delivered: list[list[int]] = []
    with closing(image_pipeline(source, batch_size=source.batch_size)) as pipe:
        pipe.build()
        with tqdm(total=epochs * source.epoch_size, unit=" images") as bar:
            for epoch in range(epochs):
                files: list[int] = []
                waited_before_s = stopwatch.waited_s
                bar.set_description(f"shard {source.shard_id}, epoch {epoch}")
                for images, labels, indices in stopwatch.watch(pipe):
                    if contact_sheet is not None:
                        captions = [source.data.names[label] for label in labels.as_array()[:, 0]]
                        write_contact_sheet(contact_sheet, images, captions)
                        contact_sheet = None
                    files += indices.as_array()[:, 0].tolist()
                    bar.set_postfix_str(f"waited {stopwatch.waited_s - waited_before_s:.2f} s", refresh=False)
                    bar.update(len(images))
                delivered.append(files)
    return delivered


def read_photographs(data: LabeledFiles, epochs: int, contact_sheet: Path) -> Stopwatch:
    """Read both shards, one after the other, and check the files that arrived.

    Raises:
        DemoError: in some epoch a file arrived twice, or a file is missing.
    """
    # A small folder is split into smaller batches.
    batch_size = min(BATCH_SIZE, len(data.files) // NUM_SHARDS)
    sources = [ImageFiles(data, batch_size, shard_id=i, num_shards=NUM_SHARDS) for i in range(NUM_SHARDS)]
    expected = sum(source.epoch_size for source in sources)
    stopwatch = Stopwatch()
    shards = [read_shard(source, epochs, stopwatch, None if source.shard_id else contact_sheet) for source in sources]
    broken: set[int] = set()
    for epoch, parts in enumerate(zip(*shards, strict=True)):
        delivered = [file if file >= 0 else -1 - file for part in parts for file in part]
        broken.update(-1 - file for part in parts for file in part if file < 0)
        different = len(set(delivered))
        if not different == len(delivered) == expected:
            raise DemoError(f"epoch {epoch}: {different} files in {len(delivered)} samples; expected {expected} each")
    print(f"each epoch: {expected} of {len(data.files)} files in {NUM_SHARDS} disjoint shards, none of them twice")
    if broken:
        print(f"skipped, since they cannot be decoded, {len(broken)} of them:")
        print("\n".join(f"  {data.files[file]}" for file in sorted(broken)))
    return stopwatch


def write_contact_sheet(path: Path, images: Any, captions: Sequence[str]) -> None:
    """Write a PNG file with a grid of thumbnails of a list of RGB images of any size."""
    rows = -(-len(captions) // SHEET_COLUMNS)
    cell_height = THUMBNAIL_PX + CAPTION_PX
    sheet = np.full((rows * cell_height, SHEET_COLUMNS * THUMBNAIL_PX, 3), 255, np.uint8)
    for i, caption in enumerate(captions):
        image = images.at(i)
        row, column = divmod(i, SHEET_COLUMNS)
        cell = sheet[row * cell_height :, column * THUMBNAIL_PX :][:cell_height, :THUMBNAIL_PX]
        scale = (THUMBNAIL_PX - 4) / max(image.shape[:2])
        height, width = (max(1, round(side * scale)) for side in image.shape[:2])
        top, left = (THUMBNAIL_PX - height) // 2, (THUMBNAIL_PX - width) // 2
        cell[top : top + height, left : left + width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        baseline = (column * THUMBNAIL_PX + 2, row * cell_height + THUMBNAIL_PX + 12)
        cv2.putText(sheet, caption[:18], baseline, cv2.FONT_HERSHEY_SIMPLEX, 0.36, (0, 0, 0), 1, cv2.LINE_AA)
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))


class SoftmaxRegression:
    """Multinomial logistic regression, trained by gradient descent on one batch at a time."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        self.weights = np.zeros((num_features + 1, num_classes))

    def scores(self, images: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the inputs, shape (images, num_features + 1), and their scores, shape (images, num_classes)."""
        pixels = images.reshape(len(images), -1) / 255
        inputs = np.hstack([pixels, np.ones((len(pixels), 1))])
        return inputs, inputs @ self.weights

    def learn(self, images: NDArray[np.uint8], labels: NDArray[np.int32]) -> None:
        """Take one step of gradient descent on the cross-entropy."""
        inputs, scores = self.scores(images)
        probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        probabilities[np.arange(len(labels)), labels] -= 1
        self.weights -= LEARNING_RATE * inputs.T @ probabilities / len(labels)

    def accuracy(self, batches: Iterable[Batch]) -> float:
        """Return the fraction of samples whose label has the highest score."""
        hits: list[bool] = []
        for images, labels, _ in batches:
            _, scores = self.scores(images.as_array())
            hits += (scores.argmax(axis=1) == labels.as_array()[:, 0]).tolist()
        return float(np.mean(hits))


def learn_digits(training: Iterable[Batch], held_out: Iterable[Batch]) -> float:
    """Train until more than `TARGET_ACCURACY` of the held-out digits are correct, and return that fraction.

    Both arguments are iterated once per epoch, and yield (images, labels, indices).

    Raises:
        DemoError: `MAX_TRAINING_EPOCHS` were not enough.
    """
    model = SoftmaxRegression(num_features=8 * 8, num_classes=10)
    accuracy = 0.0
    for epoch in range(MAX_TRAINING_EPOCHS):
        for images, labels, _ in training:
            model.learn(images.as_array(), labels.as_array()[:, 0])
        accuracy = model.accuracy(held_out)
        print(f"digits, epoch {epoch}: {accuracy:.1%} of the held-out digits are correct")
        if accuracy > TARGET_ACCURACY:
            return accuracy
    raise DemoError(
        f"{accuracy:.1%} of the held-out digits are correct after {MAX_TRAINING_EPOCHS} epochs; "
        f"more than {TARGET_ACCURACY:.0%} were expected"
    )


def train_on_digits(digits: LabeledFiles) -> float:
    """Train with two pipelines, one for each side of a fixed split, and return the held-out accuracy."""
    order = np.random.default_rng(SEED).permutation(len(digits.files))
    training = ImageFiles(digits.subset(order[HELD_OUT_DIGITS:]), BATCH_SIZE)
    held_out = ImageFiles(digits.subset(order[:HELD_OUT_DIGITS]), HELD_OUT_BATCH_SIZE)
    with (
        closing(image_pipeline(training, types.GRAY)) as training_pipe,
        closing(image_pipeline(held_out, types.GRAY, batch_size=HELD_OUT_BATCH_SIZE)) as held_out_pipe,
    ):
        training_pipe.build()
        held_out_pipe.build()
        return learn_digits(training_pipe, held_out_pipe)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status; see the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="your images; sub-folders are labels")
    parser.add_argument("--epochs", type=int, default=3, help="epochs over the photographs (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FOLDER", help="default: %(default)s")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error("--epochs must be 1 or more")
    try:
        if options.data is None:
            data = make_crops(options.output / "photos", packaged_photographs())
        else:
            data = scan_folder(options.data, minimum=BATCH_SIZE)
        print(f"{len(data.files)} images with {len(data.names)} labels, two spawned workers")
        contact_sheet = options.output / "contact_sheet.png"
        stopwatch = read_photographs(data, options.epochs, contact_sheet)
        print(f"contact sheet: {contact_sheet}")
        accuracy = train_on_digits(make_digits(options.output / "digits"))
    except FolderError as error:
        parser.error(str(error))
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    print(f"images/s: {stopwatch.images_per_s:.0f} ({stopwatch.images} images, {stopwatch.waited_s:.2f} s of waiting)")
    print(f"accuracy: {accuracy:.1%} of {HELD_OUT_DIGITS} held-out digits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
