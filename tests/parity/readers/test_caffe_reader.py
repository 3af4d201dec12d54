"""``fn.readers.caffe`` and ``fn.readers.caffe2`` beside the real DALI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nvidia.dali
import pytest

import dali_like
from tests.parity.readers.epochs import delivered
from tests.sources.readers.lmdb_writing import BYTE, FLOAT, INT32, INT64, STRING, datum, field, tensor, write_database

pytestmark = pytest.mark.peers

DATA = {
    "encoded": datum(b"abc", 7, encoded=1),
    "encoding not stated": datum(b"abc", 7),
    "pixels": datum(bytes(range(12)), 5, encoded=0, shape=(2, 2, 3)),
    "negative": datum(b"abc", -3),
    "no data": datum(None, 3),
    "no label": datum(b"abc"),
    "nothing": b"",
    "unknown fields": datum(b"abc", 7) + field(20, b"zz") + field(21, 4),
    "twice": datum(b"abc", 7) + datum(b"de"),
    "large label": datum(b"a", 1 << 33),
}
WRONG_DATA = {
    "few pixels": datum(bytes(10), 5, encoded=0, shape=(2, 2, 3)),
    "many pixels": datum(bytes(12), 5, encoded=0, shape=(2, 2, 1)),
    "damaged": b"\xff\xff\xff",
    "truncated": datum(b"abc" * 100, 1)[:50],
}
IMAGE = tensor(STRING, strings=[b"img"])
LABEL = tensor(INT32, integers=[5])
VECTOR = tensor(INT32, integers=[1, 3])
BOX = tensor(INT32, integers=[1, 2, 3, 4])
OTHERS = tensor(FLOAT, floats=[9, 8]) + tensor(INT64, integers=[7, -6]) + tensor(INT32, integers=[1])
TENSORS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "label": (IMAGE + LABEL, {}),
    "pixels": (tensor(BYTE, dims=(2, 3, 3), image=bytes(range(18))) + LABEL, {}),
    "gray pixels": (tensor(BYTE, dims=(2, 3), image=bytes(range(6))) + LABEL, {}),
    "two strings": (tensor(STRING, strings=[b"ab", b"cd"]) + LABEL, {}),
    "label is a float": (IMAGE + tensor(FLOAT, floats=[2.5]), {}),
    "negative": (IMAGE + tensor(INT32, integers=[-5]), {}),
    "not packed": (IMAGE + tensor(INT32, integers=[5], packed=False), {}),
    "more tensors": (IMAGE + LABEL + BOX + BOX, {}),
    "vector": (IMAGE + VECTOR, {"label_type": 2}),
    "empty vector": (IMAGE + tensor(INT32), {"label_type": 2}),
    "no label": (IMAGE, {"label_type": 4}),
    "no image": (LABEL, {"image_available": False}),
    "box": (IMAGE + LABEL + BOX, {"bbox": True}),
    "only a box": (BOX, {"bbox": True, "label_type": 4, "image_available": False}),
    "others": (IMAGE + LABEL + OTHERS, {"additional_inputs": 3}),
    "empty other": (IMAGE + LABEL + tensor(FLOAT), {"additional_inputs": 1}),
    "others and box": (IMAGE + VECTOR + OTHERS + BOX, {"additional_inputs": 3, "bbox": True, "label_type": 2}),
    "only others": (OTHERS, {"additional_inputs": 3, "label_type": 4, "image_available": False}),
}
WRONG_TENSORS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "two labels": (IMAGE + VECTOR, {}),
    "label of 64 bits": (IMAGE + tensor(INT64, integers=[4]), {}),
    "no image": (tensor(FLOAT, floats=[1]) + LABEL, {}),
    "box of floats": (IMAGE + LABEL + tensor(FLOAT, floats=[1, 2, 3, 4]), {"bbox": True}),
    "short box": (IMAGE + LABEL + tensor(INT32, integers=[1, 2, 3]), {"bbox": True}),
    "no box": (IMAGE + LABEL, {"bbox": True}),
    "other of bytes": (IMAGE + LABEL + tensor(BYTE, image=b"abc"), {"additional_inputs": 1}),
    "label type": (IMAGE + LABEL, {"label_type": 5}),
    "damaged": (b"\xff\xff", {}),
}


@pytest.mark.parametrize("name", DATA)
def test_data(name: str, tmp_path: Path) -> None:
    path = write_database(tmp_path / "a", DATA[name])
    for options in ({}, {"image_available": False}, {"label_available": False}):
        if name == "nothing" and options:
            continue
        assert delivered(dali_like, "caffe", path=path, **options) == delivered(nvidia.dali, "caffe", path=path, **options)


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name: str, tmp_path: Path) -> None:
    record, options = TENSORS[name]
    path = write_database(tmp_path / "a", record)

    assert delivered(dali_like, "caffe2", path=path, **options) == delivered(nvidia.dali, "caffe2", path=path, **options)


@pytest.mark.parametrize(
    ("reader", "record", "options"),
    [
        *(pytest.param("caffe", record, {}, id=name) for name, record in WRONG_DATA.items()),
        *(pytest.param("caffe2", record, options, id=name) for name, (record, options) in WRONG_TENSORS.items()),
    ],
)
def test_wrong_records(reader: str, record: bytes, options: dict[str, Any], tmp_path: Path) -> None:
    path = write_database(tmp_path / "a", record)
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            delivered(dali, reader, path=path, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_shards": 3, "shard_id": 1},
        {"num_shards": 2, "pad_last_batch": True},
        {"num_shards": 2, "stick_to_shard": True},
    ],
    ids=str,
)
def test_databases_and_shards(options: dict[str, Any], tmp_path: Path) -> None:
    first = write_database(tmp_path / "a", *(datum(b"%d" % i, i) for i in range(3)))
    second = write_database(tmp_path / "b", datum(b"z", 8), datum(b"a", 9), keys=[b"z", b"a"])
    empty = write_database(tmp_path / "c")
    options = {"path": [empty, first, second, first], "batch_size": 3, **options}

    assert delivered(dali_like, "caffe", 6, **options) == delivered(nvidia.dali, "caffe", 6, **options)


def test_missing_databases(tmp_path: Path) -> None:
    for path in (str(tmp_path / "missing"), [], write_database(tmp_path / "empty")):
        for dali in (nvidia.dali, dali_like):
            with pytest.raises(RuntimeError):
                delivered(dali, "caffe", path=path)
