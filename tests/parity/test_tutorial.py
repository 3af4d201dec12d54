"""The programs of DALI's tutorial on parallel external sources, in sample mode, run with DALI 1.53 and with dali_like."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

pytestmark = pytest.mark.peers

#: The largest difference between the pixels of the two decoders. Both are libjpeg-turbo, and none has been seen.
MAX_PIXEL_DIFFERENCE = 0

#: The programs of the tutorial as one file: a user's program, with the package and the folder as arguments, and without
#: the device, since there is no GPU. Each program leaves its batches in `delivered`.
TUTORIAL = """
import importlib
import pickle
import sys

import numpy as np

package, images_dir, results = sys.argv[1:]
pipeline_def = importlib.import_module(package).pipeline_def
fn = importlib.import_module(package + ".fn")
types = importlib.import_module(package + ".types")
if package == "nvidia.dali":
    from nvidia.dali.pickling import pickle_by_value
else:
    def pickle_by_value(function):  # what is defined in the main program always travels by value
        return function

batch_size = 4


class ExternalInputCallable:
    def __init__(self, batch_size):
        self.images_dir = images_dir
        self.batch_size = batch_size
        with open(self.images_dir + "file_list.txt", "r") as f:
            file_label = [line.rstrip().split(" ") for line in f if line != ""]
            self.files, self.labels = zip(*file_label)
        self.full_iterations = len(self.files) // batch_size

    def __call__(self, sample_info):
        sample_idx = sample_info.idx_in_epoch
        if sample_info.iteration >= self.full_iterations:
            raise StopIteration()
        jpeg_filename = self.files[sample_idx]
        label = np.int32([self.labels[sample_idx]])
        with open(self.images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label


def my_callback(sample_info):
    return np.full((5, 5), sample_info.idx_in_epoch)


def create_callback(batch_size):
    with open(images_dir + "file_list.txt", "r") as f:
        file_label = [line.rstrip().split(" ") for line in f if line != ""]
        files, labels = zip(*file_label)
    full_iterations = len(files) // batch_size

    def callback(sample_info):
        sample_idx = sample_info.idx_in_epoch
        if sample_info.iteration >= full_iterations:
            raise StopIteration
        jpeg_filename = files[sample_idx]
        label = np.int32([labels[sample_idx]])
        with open(images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label

    return callback


with open(images_dir + "file_list.txt", "r") as f:
    file_label = [line.rstrip().split(" ") for line in f if line != ""]
    files, labels = zip(*file_label)
full_iterations = len(files) // batch_size


@pickle_by_value
def global_callback(sample_info):
    sample_idx = sample_info.idx_in_epoch
    if sample_info.iteration >= full_iterations:
        raise StopIteration
    jpeg_filename = files[sample_idx]
    label = np.int32([labels[sample_idx]])
    with open(images_dir + jpeg_filename, "rb") as f:
        encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
    return encoded_img, label


class DeferredCallable:
    def __init__(self, start=0, end=256 * 1024):
        self.start = start
        self.end = end
        self.buffer = None
        self.files = None

    def __getstate__(self):
        return self.__dict__.copy()

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.buffer = np.arange(self.start, self.end, dtype=np.int32).reshape((-1, 64, 64))
        self.files = [f"filename_{i}" for i in range(self.start, self.end)]

    def __call__(self, sample_info):
        if sample_info.idx_in_epoch >= self.end - self.start:
            raise StopIteration
        file_idx = int(self.files[sample_info.idx_in_epoch].split("_")[1])
        sample_from_buffer = self.buffer[sample_info.idx_in_epoch]
        return np.array(file_idx, dtype=np.int32), sample_from_buffer


class ShufflingCallable:
    def __init__(self, batch_size):
        self.images_dir = images_dir
        self.batch_size = batch_size
        with open(self.images_dir + "file_list.txt", "r") as f:
            file_label = [line.rstrip().split(" ") for line in f if line != ""]
            self.files, self.labels = zip(*file_label)
        self.full_iterations = len(self.files) // batch_size
        self.perm = None
        self.last_seen_epoch = None

    def __call__(self, sample_info):
        if sample_info.iteration >= self.full_iterations:
            raise StopIteration
        if self.last_seen_epoch != sample_info.epoch_idx:
            self.last_seen_epoch = sample_info.epoch_idx
            self.perm = np.random.default_rng(seed=42 + sample_info.epoch_idx)
            self.perm = self.perm.permutation(len(self.files))
        sample_idx = self.perm[sample_info.idx_in_epoch]
        jpeg_filename = self.files[sample_idx]
        label = np.int32([self.labels[sample_idx]])
        with open(self.images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label


@pickle_by_value
def create_sharding_callback(batch_size, shard_id=0, num_shards=1):
    with open(images_dir + "file_list.txt", "r") as f:
        file_label = [line.rstrip().split(" ") for line in f if line != ""]
        files, labels = zip(*file_label)

    dataset_size = len(files)
    shard_size = dataset_size // num_shards
    shard_offset = shard_size * shard_id
    full_iterations = shard_size // batch_size
    perm = None
    last_seen_epoch = None

    def callback(sample_info):
        nonlocal perm, last_seen_epoch
        if sample_info.iteration >= full_iterations:
            raise StopIteration
        if last_seen_epoch != sample_info.epoch_idx:
            last_seen_epoch = sample_info.epoch_idx
            perm = np.random.default_rng(seed=42 + sample_info.epoch_idx)
            perm = perm.permutation(dataset_size)
        sample_idx = perm[sample_info.idx_in_epoch + shard_offset]

        jpeg_filename = files[sample_idx]
        label = np.int32([labels[sample_idx]])
        with open(images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label

    return callback


@pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
def function_pipeline():
    return fn.external_source(source=my_callback, batch=False)


@pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
def callable_pipeline():
    jpegs, labels = fn.external_source(
        source=ExternalInputCallable(batch_size),
        num_outputs=2,
        batch=False,
        dtype=[types.UINT8, types.INT32],
    )
    decode = fn.decoders.image(jpegs, device="cpu")
    return decode, labels


def parallel_pipeline(source, num_workers, start_method, size=batch_size):
    @pipeline_def(
        batch_size=size,
        num_threads=2,
        device_id=None,
        py_num_workers=num_workers,
        py_start_method=start_method,
    )
    def pipeline():
        jpegs, labels = fn.external_source(
            source=source,
            num_outputs=2,
            batch=False,
            parallel=True,
            dtype=[types.UINT8, types.INT32],
        )
        decode = fn.decoders.image(jpegs, device="cpu")
        return decode, labels

    return pipeline()


@pipeline_def(
    batch_size=8,
    num_threads=2,
    device_id=None,
    py_num_workers=1,
    py_start_method="spawn",
)
def deferred_pipeline():
    idx, sample = fn.external_source(
        source=DeferredCallable(),
        num_outputs=2,
        batch=False,
        parallel=True,
        dtype=[types.INT32, types.INT32],
    )
    return idx, sample


def run(pipe, runs, epochs=1):
    batches = []
    pipe.build()
    for _ in range(epochs):
        for _ in range(runs):
            try:
                batches.append([[np.array(batch.at(i)) for i in range(len(batch))] for batch in pipe.run()])
            except StopIteration:
                batches.append("end")
        pipe.reset()
    return batches


if __name__ == "__main__":
    delivered = {
        "function": run(function_pipeline(), 2),
        "callable": run(callable_pipeline(), 6),
        "parallel callable": run(parallel_pipeline(ExternalInputCallable(batch_size), 2, "spawn"), 6),
        "closure": run(parallel_pipeline(create_callback(batch_size), 1, "spawn"), 6),
        "global function": run(parallel_pipeline(global_callback, 1, "spawn"), 6),
        "deferred set-up": run(deferred_pipeline(), 2),
        "shuffled": run(parallel_pipeline(ShufflingCallable(batch_size), 3, "fork"), 6, 3),
        "shard 0": run(parallel_pipeline(create_sharding_callback(5, 0, 2), 2, "fork", 5), 3, 2),
        "shard 1": run(parallel_pipeline(create_sharding_callback(5, 1, 2), 1, "spawn", 5), 3, 2),
    }
    with open(results, "wb") as f:
        pickle.dump(delivered, f)
"""


def write_images(folder: Path) -> None:
    """21 photographs of different sizes, as in DALI's own folder, and the list of their labels."""
    cv2 = pytest.importorskip("cv2")
    data = pytest.importorskip("skimage.data")
    photographs = [data.astronaut(), data.chelsea(), data.coffee(), data.rocket()]
    lines = []
    for i in range(21):
        pixels = photographs[i % 4][10 * i : 10 * i + 90 + 3 * i, 5 * i : 5 * i + 150 - 7 * (i % 5)]
        name = f"{i:02}.jpg"
        assert cv2.imwrite(str(folder / name), pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60 + i])
        lines.append(f"{name} {i * i}\n")
    (folder / "file_list.txt").write_text("".join(lines))


Delivered = dict[str, list[Any]]


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> tuple[Delivered, Delivered]:
    """The batches of the tutorial's programs: with DALI, and with dali_like."""
    folder = tmp_path_factory.mktemp("tutorial")
    write_images(folder)
    program = folder / "program.py"
    program.write_text(TUTORIAL)

    def delivered(package: str) -> Delivered:
        results = folder / package
        command = [sys.executable, str(program), package, f"{folder}/", str(results)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        loaded: Delivered = pickle.loads(results.read_bytes())
        return loaded

    return delivered("nvidia.dali"), delivered("dali_like")


#: The tutorial's programs, how many batches each delivers, and how often the epoch ends.
PROGRAMS = {
    "function": (2, 0),
    "callable": (5, 1),
    "parallel callable": (5, 1),
    "closure": (5, 1),
    "global function": (5, 1),
    "deferred set-up": (2, 0),
    "shuffled": (15, 3),
    "shard 0": (4, 2),
    "shard 1": (4, 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tutorials_programs_end_their_epochs_alike(tutorial: tuple[Delivered, Delivered], name: str) -> None:
    theirs, ours = ([run == "end" for run in library[name]] for library in tutorial)

    assert ours == theirs
    assert (theirs.count(False), theirs.count(True)) == PROGRAMS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tutorials_programs_deliver_the_same_but_for_rounding(tutorial: tuple[Delivered, Delivered], name: str) -> None:
    theirs, ours = (
        [sample for run in library[name] if run != "end" for output in run for sample in output] for library in tutorial
    )

    assert [(sample.dtype, sample.shape) for sample in ours] == [(sample.dtype, sample.shape) for sample in theirs]
    bound = [MAX_PIXEL_DIFFERENCE if sample.ndim == 3 else 0 for sample in theirs]
    difference = [int(np.abs(a.astype(int) - b).max()) for a, b in zip(theirs, ours, strict=True)]
    assert all(d <= most for d, most in zip(difference, bound, strict=True)), max(difference)


def test_the_tutorials_shards_share_no_image(tutorial: tuple[Delivered, Delivered]) -> None:
    for library in tutorial:
        labels = [
            [int(label[0]) for run in library[name] if run != "end" for label in run[1]] for name in ("shard 0", "shard 1")
        ]
        assert not set(labels[0][:10]) & set(labels[1][:10])
