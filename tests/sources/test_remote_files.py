"""`RemoteFiles`: files of this machine and of an HTTP server that fails at times. For object stores see tests/on_s3."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, get_worker_info
from dali_like.engine.worker.coroutines import EventLoop
from dali_like.errors import ArgumentError, IncompleteReadError, MissingExtraError
from dali_like.remote import RemoteFiles, is_transient
from dali_like.sources import remote_files
from examples import remote_source, slow_storage
from tests.canary import watched
from tests.conftest import in_both_places
from tests.http_store import HttpStore, http_store

for module in ("fsspec", "tenacity", "diskcache", "aiohttp"):
    pytest.importorskip(module)

CONTENTS = {f"{i:02}.bin": bytes([i]) * (1000 + i) for i in range(12)}


@pytest.fixture
def store() -> Iterator[HttpStore]:
    with http_store() as store:
        store.files.update(CONTENTS)
        yield store


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_FIRST_WAIT_S", 0.001)


def read(files: RemoteFiles, name: str, *part: int) -> bytes:
    """A file, read as a source reads it."""
    loop = EventLoop()
    try:
        return bytes(loop.finish(files.read(name, *part)))
    finally:
        loop.close()


def batches_of(pipe: Pipeline, number: int) -> list[bytes]:
    return [np.asarray(sample).tobytes() for _ in range(number) for sample in pipe.run()[0]]


def source_of(files: RemoteFiles) -> Any:
    async def source(info: Any) -> Any:
        if info.idx_in_epoch >= len(CONTENTS):
            raise StopIteration
        return await files.read(f"{info.idx_in_epoch:02}.bin")

    return source


class TestReading:
    def test_files_of_this_machine(self, tmp_path: Path) -> None:
        (tmp_path / "a.bin").write_bytes(b"hello")
        files = RemoteFiles(str(tmp_path))

        assert read(files, "a.bin") == b"hello"
        assert read(files, "a.bin", 1, 3) == b"el"

    def test_files_of_an_http_server(self, store: HttpStore) -> None:
        files = RemoteFiles(store.url)

        assert read(files, "03.bin") == CONTENTS["03.bin"]
        assert read(files, "03.bin", 10, 30) == CONTENTS["03.bin"][10:30]

    def test_names_of_files(self, store: HttpStore, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        for name in ("b.bin", "a.bin", "c.txt", "folder/d.bin"):
            (tmp_path / name).touch()

        assert RemoteFiles(str(tmp_path)).names("*.bin") == ["a.bin", "b.bin"]
        assert RemoteFiles(str(tmp_path)).names("**/*.bin") == ["a.bin", "b.bin", "folder/d.bin"]
        assert RemoteFiles(tmp_path.as_uri()).names("**/*.bin") == ["a.bin", "b.bin", "folder/d.bin"]
        assert RemoteFiles(store.url).names("0*.bin") == [f"{i:02}.bin" for i in range(10)]

    def test_arrays_that_may_not_be_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "a.bin").write_bytes(b"hello")

        array = asyncio.run(RemoteFiles(str(tmp_path)).read("a.bin"))

        assert (array.dtype, array.shape, array.flags.writeable) == (np.uint8, (5,), False)

    @in_both_places
    def test_as_a_source(self, store: HttpStore, make_pipeline: Callable[..., Pipeline], way: str) -> None:
        pipe = make_pipeline(source_of(RemoteFiles(store.url)), way)

        assert batches_of(pipe, 3) == list(CONTENTS.values())

    def test_in_spawned_workers(self, store: HttpStore, make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)
        pipe = make_pipeline(source_of(files), "spawn")

        assert batches_of(pipe, 3) == list(CONTENTS.values())


class TestAttempts:
    @pytest.mark.parametrize("fault", [503, 500, 429, "reset", "truncate"])
    def test_again_where_it_may_help(self, store: HttpStore, fault: int | str) -> None:
        store.faults.extend([fault, fault])

        assert read(RemoteFiles(store.url), "01.bin") == CONTENTS["01.bin"]
        assert store.requests == ["01.bin"] * 3

    @pytest.mark.parametrize("fault", [404, 403, 400])
    def test_once_where_it_does_not(self, store: HttpStore, fault: int) -> None:
        store.faults.append(fault)

        with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever fsspec makes of the status
            read(RemoteFiles(store.url), "01.bin")

        assert caught.value.__notes__ == [f"raised by attempt 1 of 6 to read {store.url}/01.bin"]
        assert store.requests == ["01.bin"]

    def test_end_after_the_given_number(self, store: HttpStore) -> None:
        store.faults.extend([503] * 5)

        with pytest.raises(Exception, match="503") as caught:
            read(RemoteFiles(store.url, attempts=3), "01.bin")

        assert caught.value.__notes__ == [f"raised by attempt 3 of 3 to read {store.url}/01.bin"]
        assert store.requests == ["01.bin"] * 3

    def test_after_a_silence(self, store: HttpStore) -> None:
        store.faults.append("hang")

        assert read(RemoteFiles(store.url, timeout_s=0.2), "01.bin") == CONTENTS["01.bin"]

    def test_waits_are_random_and_get_longer_up_to_a_limit(self, store: HttpStore, monkeypatch: pytest.MonkeyPatch) -> None:
        import tenacity

        monkeypatch.setattr(remote_files, "_LONGEST_WAIT_S", 0.006)
        ranges: list[tuple[float, float]] = []

        def uniform(low: float, high: float) -> float:
            ranges.append((low, high))
            return high

        monkeypatch.setattr(tenacity.wait.random, "uniform", uniform)
        store.faults.extend([503] * 5)

        read(RemoteFiles(store.url), "01.bin")

        assert ranges == [(0, 0.001), (0, 0.002), (0, 0.004), (0, 0.006), (0, 0.006)]

    def test_a_part_of_another_length_is_none(self, store: HttpStore) -> None:
        store.faults.extend(["whole"] * 2)

        with pytest.raises(IncompleteReadError, match="asked for bytes 10 to 30, the store sent 1001 bytes"):
            read(RemoteFiles(store.url, attempts=2), "01.bin", 10, 30)

    def test_is_transient_tells_errors_worth_another_attempt(self) -> None:
        class Refused(Exception):
            status = 403

        class Busy(Exception):
            response = {"ResponseMetadata": {"HTTPStatusCode": 503}}  # noqa: RUF012

        translated = OSError(16, "please reduce your request rate")
        translated.__cause__ = Busy()

        truncated = ConnectionError()
        truncated.__cause__ = Refused()  # as aiohttp says it

        transient = [ConnectionResetError(), TimeoutError(), Busy(), translated, truncated]
        lasting = [Refused(), FileNotFoundError(), PermissionError(), ValueError(), OSError(28, "no space"), KeyError()]

        assert [is_transient(error) for error in transient] == [True] * 5
        assert [is_transient(error) for error in lasting] == [False] * 6


class TestCache:
    def test_is_asked_first(self, store: HttpStore, tmp_path: Path) -> None:
        first, second = (RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20) for _ in range(2))

        assert read(first, "01.bin") == read(second, "01.bin") == CONTENTS["01.bin"]
        assert read(first, "01.bin", 2, 9) == CONTENTS["01.bin"][2:9]
        assert len(store.requests) == 2

    def test_is_no_larger_than_it_may_be(self, store: HttpStore, tmp_path: Path) -> None:
        store.files = {name: data * 100 for name, data in CONTENTS.items()}
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=500_000)

        def epoch() -> int:
            """How many files the server is asked for."""
            before = len(store.requests)
            assert [read(files, name) for name in store.files] == list(store.files.values())
            return len(store.requests) - before

        assert epoch() == 12
        # The cache keeps the first files, so every later epoch in the same order finds them.
        assert [epoch(), epoch()] == [8, 8]
        assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 500_000

    def test_is_shared_by_workers(self, store: HttpStore, make_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)

        pipe = make_pipeline(source_of(files), "fork")

        for _ in range(3):
            assert batches_of(pipe, 3) == list(CONTENTS.values())
            pipe.reset()
        assert sorted(store.requests) == sorted(CONTENTS)

    def test_survives_a_worker_that_is_killed_while_it_writes(
        self, store: HttpStore, make_pipeline: Callable[..., Pipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import diskcache

        written = diskcache.Disk.store
        store.files = {name: data * 100 for name, data in CONTENTS.items()}  # in files, and not in the database

        def store_and_die(self: Any, value: Any, *args: Any, **options: Any) -> Any:
            result = written(self, value, *args, **options)
            if get_worker_info() is not None and value == store.files["05.bin"] and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        monkeypatch.setattr(diskcache.Disk, "store", store_and_die)
        files = RemoteFiles(store.url, cache_dir=tmp_path / "cache", cache_bytes=10 << 20)
        pipe = make_pipeline(source_of(files), "fork")

        assert batches_of(pipe, 3) == list(store.files.values())
        assert (tmp_path / "died").exists()
        store.files.clear()
        pipe.reset()
        assert batches_of(pipe, 3) == [data * 100 for data in CONTENTS.values()]

    def test_reads_a_damaged_entry_again_from_the_store(self, store: HttpStore, tmp_path: Path) -> None:
        store.files["large.bin"] = bytes(100_000)
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)
        read(files, "large.bin")
        (kept,) = tmp_path.rglob("*.val")
        kept.write_bytes(kept.read_bytes()[:-1] + b"\1")

        assert read(files, "large.bin") == bytes(100_000)

    def test_that_is_locked_for_too_long_is_done_without(
        self, store: HttpStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import diskcache

        monkeypatch.setattr("dali_like.sources.remote_cache._TIMEOUT_S", 0.01)
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)

        with diskcache.Cache(str(tmp_path)) as other, other.transact():
            assert read(files, "01.bin") == CONTENTS["01.bin"]

    def test_that_has_no_room_left_on_its_disk_is_done_without(
        self, store: HttpStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        import diskcache

        def refuse(*args: Any, **options: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(diskcache.Disk, "store", refuse)
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)

        assert read(files, "01.bin") == CONTENTS["01.bin"]
        assert f"reading without the cache in {tmp_path}" in caplog.text

    def test_with_a_damaged_database_is_not_used(self, store: HttpStore, tmp_path: Path) -> None:
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)
        read(files, "01.bin")
        (tmp_path / "cache.db").write_bytes(b"no database" * 1000)

        assert read(files, "01.bin") == read(files, "01.bin") == CONTENTS["01.bin"]
        with pytest.raises(ArgumentError, match=r"cannot be opened .*; if it is damaged, delete the folder"):
            RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)


def test_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cv2 = pytest.importorskip("cv2")
    for i in range(4):
        (tmp_path / "data" / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / "data" / f"class{i % 2}" / f"{i}.jpg"), np.full((40, 50, 3), i, np.uint8))

    url, options = (tmp_path / "data").as_uri(), ["--batch-size", "2", "--workers", "1", "--cache", str(tmp_path / "cache")]
    remote_source.main([url, *options])

    assert re.findall(r"epoch (\d): (\d) photographs", capsys.readouterr().out) == [("0", "4"), ("1", "4")]


@pytest.mark.parametrize("reads", [1, 8])
def test_the_example_of_a_loader(reads: int, store: HttpStore, capsys: pytest.CaptureFixture[str]) -> None:
    slow_storage.main([store.url, "--batch-size", "3", "--workers", "1", "--reads", str(reads)])

    sizes = [len(content) for content in CONTENTS.values()]
    assert capsys.readouterr().out.startswith(f"{len(sizes)} files, {sum(sizes)} bytes: ")


class TestArguments:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"attempts": 0}, "attempts must be a positive integer"),
            ({"timeout_s": 0}, "timeout_s must be a positive number"),
            ({"cache_dir": "/tmp"}, "go together"),
            ({"cache_bytes": 1}, "go together"),
        ],
    )
    def test_that_are_none(self, options: dict[str, Any], text: str) -> None:
        with pytest.raises(ArgumentError, match=text):
            RemoteFiles("/tmp", **options)

    def test_unknown_kinds_of_urls_are_refused(self) -> None:
        with pytest.raises(ArgumentError, match="Protocol not known: nonsense"):
            RemoteFiles("nonsense://host")

    def test_urls_without_their_library_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import fsspec

        def refuse(_: str) -> Any:
            raise ImportError("Install s3fs to access S3")

        monkeypatch.setattr(fsspec, "get_filesystem_class", refuse)

        with pytest.raises(MissingExtraError, match="Install s3fs to access S3"):
            RemoteFiles("s3://bucket")

    def test_can_be_pickled_while_they_are_in_use(self, store: HttpStore, tmp_path: Path) -> None:
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)

        async def main() -> bytes:
            await files.read("01.bin")
            return pickle.dumps(files)

        assert read(pickle.loads(asyncio.run(main())), "02.bin") == CONTENTS["02.bin"]


class TestUntrustedCaches:
    def test_pickles_in_it_are_not_read(self, store: HttpStore, tmp_path: Path) -> None:
        import diskcache

        with diskcache.Cache(str(tmp_path)) as other:
            other.set(f"{store.url}/01.bin", Path("/"), tag=0)
        files = RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)

        with watched() as acts:
            assert read(files, "01.bin") == CONTENTS["01.bin"]
        assert [act for act in acts if act.startswith("pickle")] == []

    @pytest.mark.parametrize("value", ["text", 3, 1.5, "long text" * 10_000])
    def test_entries_that_are_not_bytes_count_as_missing(self, value: Any, store: HttpStore, tmp_path: Path) -> None:
        import diskcache

        with diskcache.Cache(str(tmp_path)) as other:
            other.set(f"{store.url}/01.bin", value, tag=0)

        assert read(RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20), "01.bin") == CONTENTS["01.bin"]

    def test_a_folder_that_others_may_enter_is_refused(self, store: HttpStore, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)

        with pytest.raises(
            ArgumentError, match=r"cache_dir='.*' should be a folder of this user that nobody else may enter"
        ):
            RemoteFiles(store.url, cache_dir=tmp_path, cache_bytes=1 << 20)

    def test_a_missing_folder_is_created_for_the_user_alone(self, store: HttpStore, tmp_path: Path) -> None:
        RemoteFiles(store.url, cache_dir=tmp_path / "a" / "b", cache_bytes=1 << 20)

        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
