"""``fn.readers.mxnet``: indexes, several files, broken input. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops
from dali_like.errors import ArgumentError, BrokenFileError, MissingFileError
from tests.conftest import in_both_places

from .reading import pipeline_with, read_all, samples_of
from .test_index_cache import WITH_URLS
from .writing import MAGIC, recordio, write_records

RECORDS = [
    recordio(3.0, b"abc"),
    recordio([1.0, 2.5], b"x" * 70),
    recordio(0.0, b"12" + MAGIC + b"3456"),
    recordio([5.0], MAGIC),
]
IMAGES = [b"abc", b"x" * 70, b"12" + MAGIC + b"3456", MAGIC]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_records(tmp_path / "a.rec", RECORDS)
    return tmp_path / "a.rec"


def read(path: Any, index_path: Any = None, count: int = 4) -> list[Any]:
    return read_all(count, 1, fn.readers.mxnet, path=path, index_path=index_path)


@pytest.mark.parametrize("indexed", [False, True])
def test_images_and_labels(indexed: bool, path: Path) -> None:
    assert read(path, f"{path}.idx" if indexed else None) == IMAGES
    with pipeline_with(fn.readers.mxnet, 1, path=path) as pipe:
        assert samples_of(pipe, 4, 1) == [[3.0], [1.0, 2.5], [0.0], [5.0]]


@in_both_places
def test_operators_behind_it(path: Path, way: str) -> None:
    options: dict[str, Any] = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(2, 1, None, **options)
    with pipe:
        image, label = ops.readers.MXNet(path=[path], index_path=[f"{path}.idx"])(name="Reader")
        pipe.set_outputs(image[:3], label * 2)
    try:
        assert pipe.epoch_size("Reader") == 4
        image, label = pipe.run()
        assert [bytes(image.at(i)) for i in range(2)] == [b"abc", b"xxx"]
        assert [label.at(i).tolist() for i in range(2)] == [[6.0], [2.0, 5.0]]
        assert label.at(0).dtype == np.float32
    finally:
        pipe.close()


def test_several_files(tmp_path: Path) -> None:
    paths = [tmp_path / "b.rec", tmp_path / "a.rec"]
    first = write_records(paths[0], RECORDS[:1])
    second = write_records(paths[1], RECORDS[1:])
    size = paths[0].stat().st_size
    index = tmp_path / "both.idx"
    index.write_text("".join(f"{i}\t{position}\n" for i, position in enumerate([*(size + each for each in second), *first])))

    assert read(paths) == IMAGES
    assert read(paths, index) == IMAGES


@WITH_URLS
def test_urls(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    assert read(f"file://{path}") == IMAGES
    assert read(f"file://{path}", f"file://{path}.idx") == IMAGES


def test_names_that_are_not_utf8(path: Path) -> None:
    name = os.fsdecode(os.fsencode(path) + b"\xff")
    path.rename(name)

    assert read(name) == IMAGES
    Path(name).unlink()
    with pytest.raises(MissingFileError, match=r"a.rec\\xff does not exist"):
        read(name)


def test_wrong_arguments(path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"fn.readers.mxnet: RecordIOReader supports only a single index file"):
        read(path, [f"{path}.idx"] * 2)
    with pytest.raises(ArgumentError, match="path specified an empty list"):
        read([])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.rec.idx has no records"),
        ("0\t0\n1 x\n", r"a.rec.idx:2 is not a line of an index: expected the numbers number position, not '1 x'"),
        ("0\t0\n1\t1000\n", "has a record at byte 1000, but the files end at byte 2.."),
    ],
)
def test_broken_indexes(text: str, message: str, path: Path) -> None:
    Path(f"{path}.idx").write_text(text)
    with pytest.raises(BrokenFileError, match=message) as caught:
        read(path, f"{path}.idx")
    assert caught.value.file == f"{path}.idx"


def test_an_index_of_another_file(path: Path) -> None:
    Path(f"{path}.idx").write_text("0\t8\n1\t16\n")
    with pytest.raises(
        BrokenFileError, match=r"is not RecordIO: wrong magic number. The index may be of another file"
    ) as caught:
        read(path, f"{path}.idx", 1)
    assert (caught.value.file, caught.value.offset) == (str(path), 8)


@pytest.mark.parametrize("indexed", [False, True])
def test_truncated_files(indexed: bool, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BrokenFileError, match="truncated") as caught:
        read(path, f"{path}.idx" if indexed else None)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (MAGIC + (5).to_bytes(4, "little") + b"12345678", "has 5 bytes of data, less than the 24 bytes of its header"),
        (recordio([1.0], b"")[:8] + b"\xff" + recordio([1.0], b"")[9:], "has 255 labels in 28 bytes of data"),
        (MAGIC + (3 << 29 | 4).to_bytes(4, "little") + b"1234", "has a part of kind 3 as number 1"),
    ],
)
def test_broken_records(record: bytes, message: str, path: Path) -> None:
    write_records(path, [record])
    with pytest.raises(BrokenFileError, match=message):
        read(path, count=1)


def test_a_file_without_records(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(ArgumentError, match=r"fn.readers.mxnet: No files found"):
        read(path)


def test_a_file_that_vanishes(path: Path) -> None:
    with pipeline_with(fn.readers.mxnet, 1, path=path) as pipe:
        pipe.build()
        path.unlink()
        with pytest.raises(MissingFileError, match="another program has removed it") as caught:
            pipe.run()
    assert "sample 0" in "".join(caught.value.__notes__)
