"""``fn.readers.mxnet`` beside the real DALI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nvidia.dali
import pytest

import dali_like
from tests.parity.readers.epochs import delivered
from tests.sources.readers.writing import MAGIC, recordio, write_records

pytestmark = pytest.mark.peers

RECORDS = [
    recordio(3.0, b"abc"),
    recordio([1.0, 2.5], b"defg"),
    recordio(5.0, MAGIC + b"xy"),
    recordio([9.0], b"1234" + MAGIC + MAGIC + b"tail"),
    recordio(1.0, b""),
    recordio(-2.0, MAGIC),
    recordio([1.0, 2.0, 3.0], b""),
]
INDEXES = {
    "any order": "5 36\n0 0\n",
    "other separators": "0 0 \n1\t36\n",
    "twice": "0 0\n1 36\n1 36\n",
    "gap": "0 36\n",
}
WRONG = {"empty": "", "words": "a b\n", "inside": "0 2\n", "behind": "0 100000\n"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    write_records(tmp_path / "a.rec", RECORDS)
    for name, text in {**INDEXES, **WRONG}.items():
        (tmp_path / f"{name}.idx").write_text(text)
    return str(tmp_path / "a.rec")


def test_images_and_labels(path: str) -> None:
    options: dict[str, Any] = {"path": [path], "index_path": [f"{path}.idx"]}
    expected = delivered(nvidia.dali, "mxnet", **options)

    assert delivered(dali_like, "mxnet", **options) == expected
    assert delivered(dali_like, "mxnet", path=path) == expected


@pytest.mark.parametrize("name", INDEXES)
def test_indexes(name: str, path: str) -> None:
    options = {"path": path, "index_path": str(Path(path).with_name(f"{name}.idx"))}

    assert delivered(dali_like, "mxnet", **options) == delivered(nvidia.dali, "mxnet", **options)


@pytest.mark.parametrize("name", [*WRONG, "missing"])
def test_errors(name: str, path: str) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            delivered(dali, "mxnet", path=path, index_path=str(Path(path).with_name(f"{name}.idx")))


@pytest.mark.parametrize("options", [{"num_shards": 3, "shard_id": 1}, {"num_shards": 2, "pad_last_batch": True}], ids=str)
def test_shards(options: dict[str, Any], path: str) -> None:
    options = {"path": path, "index_path": f"{path}.idx", "batch_size": 3, **options}

    assert delivered(dali_like, "mxnet", 6, **options) == delivered(nvidia.dali, "mxnet", 6, **options)
