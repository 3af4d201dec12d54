"""Indexes that readers store for later runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dali_like.errors import MissingFileError
from dali_like.readers import StoredFiles
from dali_like.sources.readers.index_cache import cached_index

WITH_URLS = pytest.mark.skipif("not __import__('importlib').util.find_spec('fsspec')", reason="needs fsspec")


class Builder:
    """Builds indexes whose content is the number of the call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return b"%d\n" % self.calls


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dali_like"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "a.tar"
    path.parent.mkdir()
    path.write_bytes(b"content")
    return path


def index_of(path: Path | str, builder: Builder, kind: str = "tar") -> bytes:
    return cached_index(StoredFiles(), str(path), kind, builder, bytes)


def test_index_is_beside_the_file(path: Path, cache: Path) -> None:
    builder = Builder()

    assert [index_of(path, builder), index_of(path, builder)] == [b"1\n", b"1\n"]
    assert sorted(os.listdir(path.parent)) == [".a.tar.index", "a.tar"]
    assert not cache.exists()


def test_a_changed_file_has_a_new_one(path: Path) -> None:
    builder = Builder()
    index_of(path, builder)
    path.write_bytes(b"longer content")
    assert index_of(path, builder) == b"2\n"
    os.utime(path, ns=(0, 0))
    assert index_of(path, builder) == b"3\n"
    assert index_of(path, builder, "records") == b"4\n"


@pytest.mark.parametrize(("length", "end"), [(-2, b""), (-2, b"9\n"), (0, b"")])
def test_a_damaged_one_is_built_again(path: Path, length: int, end: bytes) -> None:
    builder = Builder()
    index_of(path, builder)
    stored = path.with_name(".a.tar.index")
    stored.write_bytes(stored.read_bytes()[:length] + end)

    assert index_of(path, builder) == b"2\n"
    assert index_of(path, builder) == b"2\n"


def test_folders_that_cannot_be_written(path: Path, cache: Path) -> None:
    path.with_name(".a.tar.index").mkdir()  # the tests may run as root, which may write into read-only folders
    builder = Builder()

    assert [index_of(path, builder), index_of(path, builder)] == [b"1\n", b"1\n"]
    assert len(list(cache.iterdir())) == 1
    assert sorted(os.listdir(path.parent)) == [".a.tar.index", "a.tar"]


def test_no_place_at_all(path: Path, cache: Path) -> None:
    path.with_name(".a.tar.index").mkdir()
    cache.parent.mkdir()
    cache.write_bytes(b"a file")
    builder = Builder()

    assert [index_of(path, builder), index_of(path, builder)] == [b"1\n", b"2\n"]


@WITH_URLS
def test_urls(path: Path, cache: Path) -> None:
    builder = Builder()

    assert [index_of(f"file://{path}", builder), index_of(f"file://{path}", builder)] == [b"1\n", b"1\n"]
    assert len(list(cache.iterdir())) == 1
    assert os.listdir(path.parent) == ["a.tar"]


def test_missing_files(path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"b.tar does not exist"):
        index_of(path.with_name("b.tar"), Builder())
