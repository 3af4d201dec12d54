"""`StoredFiles` and `FileNames`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import ArgumentError, ArgumentTypeError, BrokenFileError, FileReadError, MissingFileError
from dali_like.readers import FileNames, StoredFiles
from dali_like.sources.readers.stored_files import joined
from tests.http_store import HttpStore, http_store

from .reading import make_files, read_all

WITH_URLS = pytest.mark.skipif("not __import__('importlib').util.find_spec('fsspec')", reason="needs fsspec")


@pytest.mark.parametrize(
    ("root", "name", "expected"),
    [
        ("", "a", "a"),
        ("r", "a/b", "r/a/b"),
        ("r/", "a", "r/a"),
        ("/", "a", "/a"),
        ("r", "/a", "/a"),
        ("s3://r", "a", "s3://r/a"),
        ("r", "s3://b/a", "s3://b/a"),
    ],
)
def test_joined(root: str, name: str, expected: str) -> None:
    assert joined(root, name) == expected


def test_parts_of_files(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    Path(path).write_bytes(b"0123456789")
    files = StoredFiles()

    assert bytes(files.read_now(path)) == b"0123456789"
    assert bytes(files.read_now(path, 2, 5)) == b"234"
    assert bytes(files.read_now(path, 7)) == b"789"
    assert files.size(path) == 10
    with files.open(path) as file:
        assert file.read(2) == b"01"
    with pytest.raises(BrokenFileError, match="ends at byte 10, before byte 12") as caught:
        files.read_now(path, 5, 12)
    assert (caught.value.file, caught.value.offset) == (path, 10)


@pytest.mark.parametrize("stop", [2, -(1 << 63)])
def test_a_part_that_ends_before_it_begins_is_an_error_of_the_file(stop: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")

    with pytest.raises(BrokenFileError, match=f"bytes 3 to {stop} are not in it. Its index is damaged"):
        StoredFiles().read_now(str(tmp_path / "a"), 3, stop)


def test_only_some_files_stay_open(tmp_path: Path) -> None:
    names = [f"{i}" for i in range(5)]
    make_files(tmp_path, *names)
    files = StoredFiles(most_open=2)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for name in names:
            assert bytes(files.read_now(str(tmp_path / name), 0, 1)) == name.encode()

    assert len(os.listdir("/proc/self/fd")) == before + 2


def test_stored_files_travel_without_their_descriptors(tmp_path: Path) -> None:
    make_files(tmp_path, "a")
    files = StoredFiles({"attempts": 2})
    files.read_now(str(tmp_path / "a"), 0, 1)

    assert bytes(pickle.loads(pickle.dumps(files)).read_now(str(tmp_path / "a"), 0, 1)) == b"a"


def test_wrong_options() -> None:
    with pytest.raises(ArgumentTypeError, match=r"must be a dict of arguments of .*RemoteFiles"):
        StoredFiles(["attempts"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="has no attempt: it may have storage_options, attempts"):
        StoredFiles({"attempt": 2})


def test_names_in_two_arrays() -> None:
    given = ["a/1.jpg", "", "\xe9", os.fsdecode(b"\xff")]
    names = FileNames(given)

    assert list(names) == given
    assert names[-1] == given[-1]
    assert names[1:3] == given[1:3]
    assert not names.have_urls
    assert FileNames(["a", "s3://b"]).have_urls
    assert list(FileNames("a.bin")) == ["a.bin"]
    with pytest.raises(IndexError):
        names[4]
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(names, protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 2
    assert list(pickle.loads(text, buffers=buffers)) == given


@WITH_URLS
class TestUrls:
    @pytest.fixture
    def store(self) -> Iterator[HttpStore]:
        with http_store() as store:
            store.files.update({f"{i}.bin": bytes([i]) * 10 for i in range(4)})
            yield store

    def test_folders(self, tmp_path: Path) -> None:
        make_files(tmp_path, "b/1.jpg", "a/2.jpg", "a/3.txt", "a/sub/4.jpg", "top.jpg")
        url = f"file://{tmp_path}"

        assert StoredFiles().names_in_folders(url) == {"a": ["2.jpg", "3.txt"], "b": ["1.jpg"]}
        assert StoredFiles().names(f"{url}/a") == ["2.jpg", "3.txt"]
        assert StoredFiles().size(f"{url}/a/2.jpg") == 7
        assert read_all(1, file_root=url) == [b"a/2.jpg", b"b/1.jpg"]

    def test_files_of_a_server_are_read_at_once(self, store: HttpStore) -> None:
        files = [f"{store.url}/{i}.bin" for i in range(4)]

        assert read_all(1, 4, files=files) == [bytes([i]) * 10 for i in range(4)]

    def test_operators_behind_them_run_in_the_workers(self, store: HttpStore) -> None:
        from dali_like import Pipeline

        pipe = Pipeline(4, 1, None)
        with pipe:
            pipe.set_outputs(fn.readers.file(files=[f"{store.url}/{i}.bin" for i in range(4)])[0][:2] + np.uint8(1))
        try:
            batch = pipe.run()[0]
            assert [batch.at(i).tolist() for i in range(4)] == [[i + 1, i + 1] for i in range(4)]
            assert set(pipe.operator_places.values()) == {"workers"}
        finally:
            pipe.close()

    def test_lists_with_urls(self, store: HttpStore, tmp_path: Path) -> None:
        (tmp_path / "list.txt").write_text(f"{store.url}/1.bin 5\n{store.url}/2.bin 6\n")

        assert read_all(1, file_list=tmp_path / "list.txt") == [bytes([1]) * 10, bytes([2]) * 10]

    def test_missing_files(self, store: HttpStore) -> None:
        with pytest.raises(MissingFileError, match=r"5.bin does not exist"):
            read_all(1, 1, files=[f"{store.url}/5.bin"])

    def test_servers_that_refuse(self, store: HttpStore) -> None:
        store.faults.append(403)
        with pytest.raises(FileReadError, match=r"1.bin cannot be read: 403") as caught:
            read_all(1, 1, files=[f"{store.url}/1.bin"])
        assert caught.value.file == f"{store.url}/1.bin"

    def test_reads_are_retried(self, store: HttpStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dali_like.sources.remote_files._FIRST_WAIT_S", 0.001)
        store.faults += [503, "reset"]

        assert read_all(1, 1, files=[f"{store.url}/1.bin"]) == [bytes([1]) * 10]

    def test_the_cache(self, store: HttpStore, tmp_path: Path) -> None:
        options = {"files": [f"{store.url}/1.bin"], "remote_options": {"cache_dir": tmp_path, "cache_bytes": 1 << 20}}
        first = read_all(1, 1, **options)
        del store.files["1.bin"]

        assert read_all(1, 1, **options) == first == [bytes([1]) * 10]
