"""``fn.readers.caffe`` and ``fn.readers.caffe2``: sparse labels, broken databases; see tests/parity, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import ArgumentError, BrokenFileError, MissingFileError

from .lmdb_writing import FLOAT, INT32, STRING, datum, tensor, write_database
from .reading import pipeline_with, read_all

IMAGE = tensor(STRING, strings=[b"img"])


def labels(record: bytes, folder: Path, **options: Any) -> np.ndarray:
    with pipeline_with(fn.readers.caffe2, 1, path=write_database(folder / "a", record), **options) as pipe:
        return np.array(pipe.run()[1].at(0))


@pytest.mark.parametrize(
    "values", [{"data_type": INT32, "integers": [1, 3]}, {"data_type": FLOAT, "floats": [1, 3]}], ids=str
)
def test_sparse_labels(values: dict[str, Any], tmp_path: Path) -> None:
    """DALI 1.53 refuses them."""
    found = labels(IMAGE + tensor(**values), tmp_path, label_type=1, num_labels=5)

    assert found.dtype == (np.int32 if "integers" in values else np.float32)
    assert found.tolist() == [0, 1, 0, 1, 0]


def test_weighted_labels(tmp_path: Path) -> None:
    record = IMAGE + tensor(INT32, integers=[1, 3]) + tensor(FLOAT, floats=[0.5, 0.25])

    assert labels(record, tmp_path, label_type=3, num_labels=5).tolist() == [0, 0.5, 0, 0.25, 0]


@pytest.mark.parametrize("way", ["fork", "spawn", "thread"])
def test_workers_open_databases_themselves(way: str, tmp_path: Path) -> None:
    path = write_database(tmp_path / "a", *(datum(b"%d" % i, i) for i in range(4)))
    with (
        pipeline_with(fn.readers.caffe, path=path, of_pipeline={"py_num_workers": 1, "py_start_method": way}) as pipe,
        pipeline_with(fn.readers.caffe, path=path) as other,
    ):
        for _ in range(2):
            assert np.array_equal(pipe.run()[1].as_array(), other.run()[1].as_array())


def test_urls(tmp_path: Path) -> None:
    write_database(tmp_path / "a", datum(b"abc", 1), datum(b"de", 2))
    memory = fsspec.filesystem("memory")
    try:
        memory.pipe_file("/lmdb/data.mdb", (tmp_path / "a" / "data.mdb").read_bytes())

        assert read_all(1, reader=fn.readers.caffe, path="memory://lmdb") == [b"abc", b"de"]
    finally:
        memory.rm("/lmdb", recursive=True)


def test_keys_that_are_not_utf_8(tmp_path: Path) -> None:
    path = write_database(tmp_path / "a", datum(b"abc", 1), b"\xff\xff", keys=[b"\xfe", b"\xff"])

    assert read_all(1, 1, reader=fn.readers.caffe, path=path) == [b"abc"]
    with pytest.raises(BrokenFileError, match=r"record with the key \\xff.*does not end"):
        read_all(2, 1, reader=fn.readers.caffe, path=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "of 0 bytes is not a database of LMDB"),
        (lambda data: data[:5000], "of 5000 bytes is not a database of LMDB"),
        (lambda data: b"x" * 10_000, "of 10000 bytes is not a database of LMDB"),
        (lambda data: data[:-4096], r"data\.mdb is truncated: its last page ends at byte \d+"),
    ],
    ids=["empty", "short", "garbage", "truncated"],
)
def test_broken_databases(change: Any, message: str, tmp_path: Path) -> None:
    path = write_database(tmp_path / "a", *(datum(bytes(3000), i) for i in range(8)))
    file = tmp_path / "a" / "data.mdb"
    file.write_bytes(change(file.read_bytes()))

    with pytest.raises(BrokenFileError, match=message) as caught:
        read_all(1, reader=fn.readers.caffe, path=path)
    assert caught.value.file == str(file)
    assert caught.value.offset is not None


def test_vanished_databases(tmp_path: Path) -> None:
    path = write_database(tmp_path / "a", datum(b"abc", 1))
    with pipeline_with(fn.readers.caffe, 1, path=path) as pipe:
        pipe.build()
        os.unlink(tmp_path / "a" / "data.mdb")
        with pytest.raises(MissingFileError, match=r"data\.mdb does not exist"):
            pipe.run()


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        (IMAGE, {}, "too few tensors"),
        (tensor(FLOAT, floats=[1]), {}, "its first tensor is not an image, but of data_type 1: pass image_available=False"),
        (IMAGE + tensor(INT32, integers=[1, 2]), {}, "2 labels instead of one: pass label_type=1, 2 or 3"),
        (IMAGE + tensor(INT32, integers=[9]), {"label_type": 1, "num_labels": 3}, r"\[9\] are not below num_labels=3"),
        (
            IMAGE + tensor(INT32, integers=[1]) + tensor(FLOAT, floats=[1, 2]),
            {"label_type": 3, "num_labels": 3},
            "2 weights for 1 labels",
        ),
        (IMAGE + tensor(INT32, integers=[1]), {"bbox": True}, "too few tensors"),
    ],
)
def test_broken_records(record: bytes, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match=rf"a, record with the key 00000000.*{message}"):
        labels(record, tmp_path, **options)


def test_a_database_that_changes_meanwhile(tmp_path: Path) -> None:
    path = write_database(tmp_path / "a", datum(b"abc", 1))
    with pipeline_with(fn.readers.caffe, 1, path=path) as pipe:
        pipe.build()
        write_database(tmp_path / "a", datum(b"de", 2))
        with pytest.raises(BrokenFileError, match=r"data\.mdb has changed since the pipeline was built"):
            pipe.run()


@pytest.mark.parametrize(
    ("reader", "options", "message"),
    [
        ("caffe", {"image_available": False, "label_available": False}, "there would be no outputs"),
        ("caffe", {"path": []}, "path must name at least one folder"),
        ("caffe2", {"image_available": False, "label_type": 4}, "there would be no outputs"),
        ("caffe2", {"label_type": 5}, "label_type must be from 0 to 4, not 5"),
        ("caffe2", {"num_labels": 0}, "num_labels must be at least 1, not 0"),
        ("caffe2", {"additional_inputs": -1}, "additional_inputs must be at least 0, not -1"),
    ],
)
def test_wrong_arguments(reader: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        getattr(fn.readers, reader)(**{"path": "a", **options})
