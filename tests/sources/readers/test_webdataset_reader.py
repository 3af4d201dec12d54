"""``fn.readers.webdataset``: formats of archives, indexes, broken input. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops, types
from dali_like.errors import ArgumentError, BrokenFileError, MissingFileError
from tests.conftest import in_both_places

from .reading import pipeline_with, samples_of
from .test_index_cache import WITH_URLS
from .writing import wds_index, write_tar

FILES: list[tuple[str, bytes | None]] = [("a.jpg", b"ajpg"), ("a.cls", b"1"), ("b.cls", b"22"), ("b.jpg", b"bj")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tar(tmp_path / "a.tar", FILES)
    return tmp_path / "a.tar"


def read(paths: Any, count: int = 2, ext: Any = ("jpg", "cls"), output: int = 0, **options: Any) -> list[Any]:
    with pipeline_with(fn.readers.webdataset, 1, paths=paths, ext=ext, **options) as pipe:
        return samples_of(pipe, count, output)


@in_both_places
def test_components(path: Path, way: str) -> None:
    options: dict[str, Any] = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(2, 1, None, **options)
    with pipe:
        image, label = ops.readers.Webdataset(paths=[path], ext=["jpg;png", "cls"], name="Reader")()
        pipe.set_outputs(image[:2], label)
    try:
        assert pipe.epoch_size("Reader") == 2
        image, label = pipe.run()
        assert [bytes(image.at(i)) for i in range(2)] == [b"aj", b"bj"]
        assert [bytes(label.at(i)) for i in range(2)] == [b"1", b"22"]
    finally:
        pipe.close()


def test_one_extension_gives_one_node(path: Path) -> None:
    assert read(path, ext="cls") == [b"1", b"22"]


def test_dtypes(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a.x", np.arange(3, dtype=np.float32).tobytes()), ("b.y", b"")])
    options: dict[str, Any] = {"paths": tmp_path / "a.tar", "ext": "x", "dtypes": types.FLOAT}

    assert read(count=2, **options) == [[0.0, 1.0, 2.0], []]
    assert read(count=1, **{**options, "dtypes": [np.int32]}) == [[0, 0x3F800000, 0x40000000]]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_formats(form: int, tmp_path: Path) -> None:
    name = "d" * 60 + "/" + "n" * 60
    files = [(f"{name}.jpg", b"1"), (f"{name}.cls", b"2"), ("\xe9.jpg", b"3"), (os.fsdecode(b"\xff.jpg"), b"4")]
    write_tar(tmp_path / "a.tar", files if form != tarfile.PAX_FORMAT else files[:3], form)

    assert read(tmp_path / "a.tar", 3)[:2] == [b"1", b"3"]
    assert read(tmp_path / "a.tar", 1, output=1) == [b"2"]


def test_hidden_files(tmp_path: Path) -> None:
    files = [
        (".x.jpg", b"0"),
        ("d/.hidden.jpg", b"0"),
        ("d/._a.jpg", b"0"),
        ("d/a.jpg", b"1"),
        ("d", None),
        ("l -> d/a.jpg", None),
    ]
    write_tar(tmp_path / "a.tar", files)
    with pipeline_with(fn.readers.webdataset, 1, paths=tmp_path / "a.tar", ext="jpg", name="r") as pipe:
        assert pipe.epoch_size("r") == 1


def test_several_components_for_an_output(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a.png", b"png"), ("a.jpg", b"jpg")])
    with pytest.warns(UserWarning, match=r"Multiple components matching output 0 in .*a.tar: the first one is used"):
        assert read(tmp_path / "a.tar", 1, ext="jpg;png") == [b"png"]


@WITH_URLS
@pytest.mark.parametrize("indexed", [False, True])
def test_urls(indexed: bool, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index = wds_index([[("jpg", 512, 4), ("cls", 1536, 1)], [("cls", 2560, 2), ("jpg", 3584, 2)]], "v1.1")
    path.with_suffix(".idx").write_text(index)
    options = {"index_paths": f"file://{path.with_suffix('.idx')}"} if indexed else {}

    assert read(f"file://{path}", **options) == [b"ajpg", b"bj"]
    assert read(f"file://{path}", output=2, ext=["cls", "txt", "jpg;jpeg"], **options) == [b"ajpg", b"bj"]
    assert read(f"file://{path}", output=1, ext=["txt", "none"], **options) == [b"", b""]


def test_serialized_pipelines(path: Path) -> None:
    with pipeline_with(fn.readers.webdataset, 2, paths=path, ext=["cls"], dtypes=[types.INT8]) as pipe:
        text = pipe.serialize()
    loaded = Pipeline.deserialize(text, py_num_workers=0)
    try:
        assert [loaded.run()[0].at(i).tolist() for i in range(1)] == [[49]]
    finally:
        loaded.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": []}, "No webdataset archives provided"),
        ({"ext": []}, "ext must have at least one extension"),
        ({"index_paths": ["a", "b"]}, "must match the number of archives in the dataset: paths has 1, index_paths has 2"),
        ({"missing_component_behavior": "foo"}, "'foo'; possible values are: empty, skip, error"),
        ({"dtypes": types.INT8}, "ext has 2, dtypes has 1"),
        ({"dtypes": [types.BOOL, types.INT8]}, "Unsupported output dtype .*BOOL.* Supported types are: uint8"),
        ({"dtypes": ["foo", types.INT8]}, "Unsupported output dtype 'foo'"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str, path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        read(**{"paths": path, **options})


def test_missing_components(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, [("a.jpg", b"1"), ("b.jpg", b"2"), ("b.cls", b"3")])

    assert read(path, output=1) == [b"", b"3"]
    assert read(path, missing_component_behavior="skip") == [b"2", b"2"]
    with pytest.raises(
        BrokenFileError, match=r"the sample at byte 512 has no component for output 1, only jpg. To go on"
    ) as caught:
        read(path, missing_component_behavior="error")
    assert (caught.value.file, caught.value.offset) == (str(path), 512)
    with pytest.raises(BrokenFileError, match="component size and dtype incompatible: output 0 has the dtype int16"):
        read(path, dtypes=[types.INT16, types.UINT8])


@pytest.mark.parametrize(
    ("compress", "program"),
    [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")],
    ids=["gzip", "bzip2", "xz"],
)
def test_compressed_archives(compress: Any, program: str, path: Path) -> None:
    path.write_bytes(compress(path.read_bytes()))
    with pytest.raises(BrokenFileError, match=f"is compressed. Samples need plain tar archives: {program} .*a.tar"):
        read(path)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "is not a tar archive, or is damaged or truncated: empty file"),
        (100, "is not a tar archive, or is damaged or truncated"),
        (512 + 2, "unexpected end of data"),
        (1024 + 100, "there is no header of a file at byte 1024"),
        (1536 + 1, "unexpected end of data"),
    ],
)
def test_truncated_archives(size: int, message: str, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BrokenFileError, match=message) as caught:
        read(path)
    assert caught.value.file == str(path)
    assert caught.value.offset is not None


@pytest.mark.parametrize("place", [0, 2048 + 3])
def test_damaged_headers(place: int, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BrokenFileError, match="damaged") as caught:
        read(path)
    assert caught.value.offset == place // 512 * 512


def test_other_files(path: Path) -> None:
    path.write_bytes(b"hello world" * 200)
    with pytest.raises(BrokenFileError, match="is not a tar archive"):
        read(path)
    path.write_bytes(bytes(10240))
    with pytest.raises(ArgumentError, match=r"No files found in the archive .*a.tar: folders, links"):
        read(path)


def test_extensions_that_no_sample_has_are_named_with_those_that_exist(path: Path) -> None:
    message = (
        r"no sample in the archive .*a.tar has a component for each output of ext: jpeg. The first sample has .* Correct ext"
    )
    with pytest.raises(ArgumentError, match=message):
        read(path, ext="jpeg", missing_component_behavior="skip")


def test_sparse_files(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        about = tarfile.TarInfo("a.jpg")
        about.type = tarfile.GNUTYPE_SPARSE
        archive.addfile(about)
    with pytest.raises(BrokenFileError, match="is a sparse file: write the archive without --sparse"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'index file at ".*a.idx" line 0 - no version signature found. Write the index again with wds2idx, or leave'),
        ("v2 1\n", "line 0 - Unsupported version of the index file .v2.: expected v1.1 or v1.2"),
        ("v1.1\n", "line 0 - sample count must be positive"),
        ("v1.1 2\njpg 512 4\n", "line 2 - no extensions provided for the sample"),
        ("v1.2 1\njpg 512 4\n", "line 1 - Could not find all .* should look like: <ext> <offset> <size> <filename>"),
        ("v1.1 1\njpg 512 -4\n", "line 1 - Could not find all"),
        ("v1.1 1\njpg 4 512\n", "line 1 - tar offset is not a multiple of tar block size"),
    ],
)
def test_broken_indexes(text: str, message: str, path: Path) -> None:
    path.with_suffix(".idx").write_text(text)
    with pytest.raises(BrokenFileError, match=message):
        read(path, index_paths=path.with_suffix(".idx"))


def test_an_index_behind_the_end(path: Path) -> None:
    path.with_suffix(".idx").write_text("v1.1 1\njpg 51200 4\n")
    with pytest.raises(BrokenFileError, match="the file ends at byte 10240") as caught:
        read(path, index_paths=path.with_suffix(".idx"))
    assert "sample 0" in "".join(caught.value.__notes__)


def test_missing_files(path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"missing.idx does not exist"):
        read(path, index_paths=path.with_name("missing.idx"))
    name = os.fsdecode(os.fsencode(path) + b"\xff")
    path.rename(name)
    with pipeline_with(fn.readers.webdataset, 1, paths=name, ext="cls") as pipe:
        pipe.build()
        Path(name).unlink()
        with pytest.raises(MissingFileError, match=r"a.tar\\xff does not exist"):
            pipe.run()


def test_shuffle_after_epoch_shuffles_archives_and_goes_with_random_shuffle(tmp_path: Path) -> None:
    paths = [tmp_path / f"{archive}.tar" for archive in "abcd"]
    for archive, path in zip("abcd", paths, strict=True):
        write_tar(path, [(f"{number}.x", f"{archive}{number}".encode()) for number in range(3)])
    options: dict[str, Any] = {"ext": "x", "count": 60, "shuffle_after_epoch": True}

    samples = read(paths, **options)
    epochs = [samples[begin : begin + 12] for begin in range(0, 60, 12)]
    for epoch in epochs:
        archives = [sample[:1] for sample in epoch[::3]]
        assert epoch == [archive + number for archive in archives for number in (b"0", b"1", b"2")]
        assert sorted(archives) == [b"a", b"b", b"c", b"d"]
    assert len(set(map(tuple, epochs))) > 1
    shuffled = read(paths, random_shuffle=True, **options)
    assert all(sorted(shuffled[begin : begin + 12]) == sorted(epochs[0]) for begin in range(0, 60, 12))
