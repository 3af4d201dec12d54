"""Tries the built package as users get it: in empty environments, with each interpreter there is, and with each extra alone.

    python -m tests.project.try_release dist/*.whl dist/*.tar.gz [--python python3.11 python3.14] [--extras images pytorch]
        [--user nobody] [--versions oldest]

It builds nothing: see `make dist`. With ``--versions``, it installs the oldest or the newest allowed version of each
dependency, and tries the extras that are too large for the environment of `make oldest` or `make newest`. Needs a network,
and root for ``--user``. The extra "kernels" is skipped without a C compiler. The exit status is 1 if something does not
work.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.dependency_versions import APART, CHOICES, requirements_apart

#: With the requirements of the package only.
BARE = """
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.data import DataLoader

for method in ("fork", "spawn"):

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method=method)
    def pipeline():
        images = fn.external_source(lambda info: np.full((8, 8, 3), info.idx_in_epoch), batch=False, parallel=True)
        return fn.flip(images)

    with pipeline() as pipe:
        assert pipe.run()[0].as_array()[:, 0, 0, 0].tolist() == [0, 1, 2, 3]

assert [batch.tolist() for batch in DataLoader(range(6), batch_size=3, num_workers=2)] == [[0, 1, 2], [3, 4, 5]]
"""
#: With one extra. Extras for GPUs raise an error on machines without one.
OF_EXTRAS = {
    "kernels": """
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.common.kernel_library import kernels

assert kernels() is not None

@pipeline_def(batch_size=2, num_threads=1)
def pipeline():
    data = fn.external_source(lambda info: np.ones((2 + info.idx_in_batch, 3), np.uint8), batch=False)
    return fn.transpose(data)

with pipeline() as pipe:
    assert [shape for shape in pipe.run()[0].shape()] == [(3, 2), (3, 3)]
""",
    "images": """
import io
import numpy as np
import simplejpeg
from dali_like import fn, pipeline_def

jpeg = np.frombuffer(simplejpeg.encode_jpeg(np.zeros((8, 16, 3), np.uint8)), np.uint8)

@pipeline_def(batch_size=2, num_threads=1)
def pipeline():
    return fn.resize(fn.decoders.image(fn.external_source(lambda info: jpeg, batch=False)), size=[4, 4])

with pipeline() as pipe:
    assert pipe.run()[0].as_array().shape == (2, 4, 4, 3)
""",
    "formats": """
import imagecodecs
import numpy as np

assert imagecodecs.tiff_decode(imagecodecs.tiff_encode(np.ones((2, 3), np.uint16))).sum() == 6
""",
    "lz4": """
import lz4.block
import numpy as np
from dali_like import fn, pipeline_def

data = np.frombuffer(lz4.block.compress(bytes(range(6)), store_size=False), np.uint8)

@pipeline_def(batch_size=2, num_threads=1)
def pipeline():
    return fn.experimental.inflate(fn.external_source(lambda info: data, batch=False), shape=[2, 3])

with pipeline() as pipe:
    assert pipe.run()[0].as_array().shape == (2, 2, 3)
""",
    "numba": """
import numpy as np
from dali_like import fn, pipeline_def, types

def inverted(out, data):
    out[:] = 255 - data

@pipeline_def(batch_size=2, num_threads=1)
def pipeline():
    data = fn.external_source(lambda info: np.uint8([1, 2]), batch=False)
    one = {"in_types": types.UINT8, "ins_ndim": 1, "out_types": types.UINT8, "outs_ndim": 1}
    return fn.experimental.numba_function(data, run_fn=inverted, **one)

with pipeline() as pipe:
    assert pipe.run()[0].as_array().tolist() == [[254, 253]] * 2
""",
    "conditionals": """
from pathlib import Path

Path("conditional_pipeline.py").write_text('''
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=8, num_threads=1, enable_conditionals=True)
def pipeline():
    x = fn.random.uniform(range=(0, 1))
    if x > 0.5:
        y = x
    else:
        y = 1 - x
    return y
''')

from conditional_pipeline import pipeline

with pipeline() as pipe:
    assert pipe.run()[0].as_array().min() >= 0.5
""",
    "parquet": """
import pyarrow
import pyarrow.parquet
from dali_like.data import ComposedDataset

pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), "t.parquet")
assert [int(row["x"]) for row in ComposedDataset.from_parquet("t.parquet")] == [1, 2, 3]
""",
    "array-record": """
from array_record.python.array_record_module import ArrayRecordWriter
from dali_like.data import ComposedDataset

writer = ArrayRecordWriter("t.array_record", "group_size:1")
for record in (b"one", b"two"):
    writer.write(record)
writer.close()
assert [bytes(record) for record in ComposedDataset.from_array_record("t.array_record")] == [b"one", b"two"]
""",
    "orbax": """
import tempfile
import orbax.checkpoint as ocp
from dali_like.data import DataLoader
from dali_like.plugin.jax.orbax import LoaderRestore, LoaderSave

loader = DataLoader(range(8), batch_size=4)
next(iter(loader))
with ocp.CheckpointManager(tempfile.mkdtemp()) as manager:
    manager.save(1, args=ocp.args.Composite(data=LoaderSave(loader)))
    manager.wait_until_finished()
    resumed = DataLoader(range(8), batch_size=4)
    manager.restore(1, args=ocp.args.Composite(data=LoaderRestore(resumed)))
assert next(iter(resumed)).tolist() == [4, 5, 6, 7]
""",
    "hdf5": """
import h5py
from dali_like.data import ComposedDataset

with h5py.File("t.h5", "w") as file:
    file["x"] = [1, 2, 3]
assert [int(row["x"]) for row in ComposedDataset.from_hdf5("t.h5")] == [1, 2, 3]
""",
    "zarr": """
import zarr
from dali_like.data import ComposedDataset

array = zarr.create_array("t.zarr", shape=(3,), chunks=(2,), dtype="i4")
array[:] = [1, 2, 3]
assert [int(row) for row in ComposedDataset.from_zarr("t.zarr")] == [1, 2, 3]
""",
    "lance": """
import lance
import pyarrow
from dali_like.data import ComposedDataset

lance.write_dataset(pyarrow.table({"x": [1, 2, 3]}), "t.lance")
assert [int(row["x"]) for row in ComposedDataset.from_lance("t.lance")] == [1, 2, 3]
""",
    "zstd": """
import zstandard
from pathlib import Path
from dali_like.data import ComposedDataset

Path("t.jsonl.zst").write_bytes(zstandard.compress(b'{"x": 1}\\n{"x": 2}\\n'))
dataset = ComposedDataset.from_jsonl("t.jsonl.zst").with_options(shards=1)
assert [record["x"] for record in dataset] == [1, 2]
""",
    "segmentation": """
import numpy as np
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=2, num_threads=1)
def pipeline():
    mask = fn.external_source(lambda info: np.eye(4, dtype=np.uint8), batch=False)
    return fn.segmentation.random_object_bbox(mask, format="box")

with pipeline() as pipe:
    assert pipe.run()[0].as_array().shape == (2, 4)
""",
    "pictures": """
import numpy as np
from dali_like import show

show(np.zeros((4, 8, 8, 3), np.uint8)).save("batch.png")
""",
    "pytorch": """
import torch
from dali_like.plugin.pytorch import DataLoader

batches = list(DataLoader(torch.arange(6), batch_size=3, num_workers=2))
assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5]]
""",
    "jax": """
import numpy as np
from dali_like import fn
from dali_like.plugin.jax import data_iterator

@data_iterator(output_map=["x"], size=4)
def batches():
    return fn.external_source(lambda info: np.float32(info.idx_in_epoch), batch=False)

assert [batch["x"].tolist() for batch in batches(batch_size=2, num_threads=1)] == [[0, 1], [2, 3]]
""",
    "tensorflow": """
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.plugin.tf import DALIDataset

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def pipeline():
    return fn.external_source(lambda info: np.float32(info.idx_in_epoch), batch=False)

assert [batch.numpy().tolist() for (batch,) in DALIDataset(pipeline(), "float32").take(2)] == [[0, 1], [2, 3]]
""",
    "torchdata": """
import tempfile
import numpy as np
import dali_like.experimental.dynamic as ndd
from dali_like.experimental.dynamic.pytorch import nodes

with tempfile.TemporaryDirectory() as folder:
    np.save(folder + "/0.npy", np.float32([3]))
    node = nodes.ToTorch(nodes.Reader(ndd.readers.Numpy, batch_size=1, output_names=["x"], file_root=folder))
    node.reset()
    assert [float(x) for (x,) in node] == [3]
""",
    "paddle": """
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.plugin.paddle import DALIGenericIterator

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def pipeline():
    return fn.external_source(lambda info: np.float32(info.idx_in_epoch), batch=False)

iterator = DALIGenericIterator(pipeline(), ["x"], size=4)
assert [np.array(batch["x"]).tolist() for (batch,) in iterator] == [[0, 1], [2, 3]]
""",
    "ray": """
import numpy as np
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=2, num_threads=1, py_num_workers=1, py_start_method="ray")
def pipeline():
    return fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False, parallel=True)

with pipeline() as pipe:
    assert pipe.run()[0].as_array().tolist() == [0, 1]
""",
    "remote": """
import asyncio, pathlib
from dali_like.remote import RemoteFiles

pathlib.Path("name").write_bytes(b"content")
files = RemoteFiles(pathlib.Path.cwd().as_uri())
assert bytes(asyncio.run(files.read("name"))) == b"content"
""",
    "tfrecord": """
import pathlib, struct
import google_crc32c
from dali_like import Pipeline, fn, tfrecord

def checksum(data):
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

example = b"\\x0a\\x0c\\x0a\\x0a\\x0a\\x01i\\x12\\x05\\x1a\\x03\\x0a\\x01\\x07"
length = struct.pack("<Q", len(example))
pathlib.Path("a.tfrecord").write_bytes(length + checksum(length) + example + checksum(example))
pipe = Pipeline(1, 1, None)
with pipe:
    inputs = fn.readers.tfrecord(path="a.tfrecord", features={"i": tfrecord.FixedLenFeature([], tfrecord.int64, 0)})
    pipe.set_outputs(inputs["i"])
with pipe:
    assert pipe.run()[0].as_array().tolist() == [7]
""",
    "audio": """
import io
import numpy as np, soundfile
from dali_like import fn, pipeline_def

file = io.BytesIO()
soundfile.write(file, np.zeros(160), 16000, format="WAV")

@pipeline_def(batch_size=1, num_threads=1)
def pipeline():
    files = fn.external_source(lambda info: np.frombuffer(file.getvalue(), np.uint8), batch=False)
    return tuple(fn.decoders.audio(files, sample_rate=8000))

with pipeline() as pipe:
    samples, rates = pipe.run()
    assert (samples.as_array().shape, rates.as_array().tolist()) == ((1, 80, 1), [8000])
""",
    "coco": """
import json, pathlib
from dali_like import Pipeline, fn

mask = {"counts": [0, 4], "size": [2, 2]}
annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 4, "iscrowd": 0, "segmentation": mask}
image = {"id": 1, "file_name": "a.jpg", "width": 2, "height": 2}
described = {"images": [image], "categories": [{"id": 1, "name": "cat"}], "annotations": [annotation]}
pathlib.Path("annotations.json").write_text(json.dumps(described))
pathlib.Path("a.jpg").write_bytes(b"content")
pipe = Pipeline(1, 1, None)
with pipe:
    outputs = fn.readers.coco(file_root=".", annotations_file="annotations.json", pixelwise_masks=True, include_iscrowd=True)
    pipe.set_outputs(outputs[-1])
with pipe:
    assert pipe.run()[0].as_array().ravel().tolist() == [1] * 4
""",
    "fits": """
import numpy as np
from astropy.io import fits
from dali_like import Pipeline, fn

fits.writeto("a.fits", np.arange(6, dtype=np.int16).reshape(2, 3))
pipe = Pipeline(1, 1, None)
with pipe:
    pipe.set_outputs(fn.experimental.readers.fits(files=["a.fits"], hdu_indices=[1]))
with pipe:
    assert pipe.run()[0].as_array().tolist() == [[[0, 1, 2], [3, 4, 5]]]
""",
    "testing": """
import hypothesis
from dali_like.testing import check_dataset, composed_datasets

@hypothesis.settings(max_examples=5, deadline=None)
@hypothesis.given(composed_datasets(shards=(4,)))
def check(dataset):
    check_dataset(dataset, start_methods=(), num_steps=2)

check()
""",
    "video": """
import av
import numpy as np
from dali_like import Pipeline, fn

with av.open("a.mp4", "w") as file:
    stream = file.add_stream("mpeg4", rate=10)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    for i in range(4):
        file.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((64, 64, 3), 60 * i, np.uint8))))
    file.mux(stream.encode())
pipe = Pipeline(1, 1, None)
with pipe:
    pipe.set_outputs(fn.experimental.readers.video(filenames=["a.mp4"], sequence_length=2))
with pipe:
    assert pipe.run()[0].as_array().shape == (1, 2, 64, 64, 3)
""",
    "progress": """
import numpy as np
from dali_like import fn, pipeline_def
from dali_like.plugin import DALIGenericIterator

@pipeline_def(batch_size=2, num_threads=1)
def pipeline():
    return fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False)

assert sum(1 for _ in DALIGenericIterator(pipeline(), ["x"], size=4, progress=True)) == 2
""",
    **dict.fromkeys(
        ("plot", "nvtx"),
        """
import importlib.util
import numpy as np
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=2, num_threads=1)
def pipeline():
    return fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False)

with pipeline() as pipe:
    with pipe.trace(nvtx=importlib.util.find_spec("nvtx") is not None):
        pipe.run()
    if importlib.util.find_spec("matplotlib"):
        pipe.plot("run.png")
""",
    ),
    "top": """
from rich.live import Live
from dali_like import cli

assert cli.main(["top"]) == 2  # nothing runs that could be shown
""",
    **dict.fromkeys(
        ("cuda12", "cuda13"),
        """
import warnings
import numpy as np
from dali_like import errors, fn, pipeline_def
from dali_like.device.accelerator import accelerator_is_available

warnings.simplefilter("ignore")  # CuPy looks for what is not needed
import cupy, pynvml
from nvidia import nvimgcodec

@pipeline_def(batch_size=2, num_threads=1, device_id=0)
def pipeline():
    return fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False).gpu()

try:
    with pipeline() as pipe:
        assert pipe.run()[0].as_cpu().as_array().tolist() == [0, 1]
except errors.DeviceError as error:
    assert not accelerator_is_available() and "sees none" in str(error)
""",
    ),
}


#: Packages of this repository that extras need. They are built: no index has them.
OF_REPOSITORY = {"kernels": Path(__file__).resolve().parents[2] / "kernels"}
#: As in kernels/build_library.py.
COMPILER = os.environ.get("CC", "cc").split()[0]


def try_one(
    python: str, package: Path, extra: str, program: str, user: str | None = None, requirements: Sequence[str] = ()
) -> bool:
    """Whether a program runs where nothing but the package, and perhaps an extra, has been installed, by a user."""
    what = f"{python}, {package.name}{f'[{extra}]' if extra else ''}"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as folder:
        environment["HOME"] = folder
        if user is not None:
            shutil.chown(folder, user)
            package = Path(shutil.copy(package, folder))  # the original may be in a folder that the user cannot read
            shutil.chown(package, user)
        of_environment = f"{folder}/bin/python"
        commands = [
            [python, "-m", "venv", folder],
            [of_environment, "-m", "pip", "install", "--quiet", f"{package}{f'[{extra}]' if extra else ''}", *requirements],
            [of_environment, "-c", program],
            [of_environment, "-m", "dali_like", "doctor"],
        ]
        for command in commands:
            done = subprocess.run(
                command, cwd=folder, env=environment, user=user, capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(f"{what}: FAILED\n{done.stdout}{done.stderr}", flush=True)
                return False
    print(f"{what}: ok", flush=True)
    return True


def main() -> int:
    """Try everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, nargs="+", help="a wheel, a source distribution, or both")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters")
    parser.add_argument("--extras", nargs="*", choices=OF_EXTRAS, help="tried with the first of them")
    parser.add_argument("--versions", choices=CHOICES, help="of all dependencies")
    parser.add_argument("--user", help="an unprivileged user, who installs and runs the package; needs root")
    given = parser.parse_args()
    packages = [package.resolve() for package in given.packages]
    extras = given.extras if given.extras is not None else APART if given.versions else OF_EXTRAS

    def is_right(python: str, package: Path, extra: str, program: str) -> bool:
        requirements = requirements_apart(given.versions, extra) if given.versions else []
        if extra in OF_REPOSITORY:
            if shutil.which(COMPILER) is None:
                print(f"{package.name}[{extra}]: skipped: there is no C compiler {COMPILER!r}", flush=True)
                return True
            requirements = [*(each for each in requirements if extra not in each), str(OF_REPOSITORY[extra])]
        return try_one(python, package, extra, program, given.user, requirements)

    results = [is_right(python, package, "", BARE) for python in given.python for package in packages]
    results += [is_right(given.python[0], packages[0], extra, OF_EXTRAS[extra]) for extra in extras]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
