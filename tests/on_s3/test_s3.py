"""`RemoteFiles` and the example, reading from an object store by s3fs; connections and servers fail on the way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.remote import RemoteFiles
from dali_like.sources import remote_files
from tests.http_store import HttpStore
from tests.on_s3.conftest import ACCOUNT, BUCKET, FILES

NAMES = [name.removeprefix("train/") for name in FILES]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "_FIRST_WAIT_S", 0.001)


def files_of(store: HttpStore, **options: Any) -> RemoteFiles:
    """Files without repeated requests of botocore, and without s3fs asking for the size first."""
    once = {"config_kwargs": {"retries": {"max_attempts": 0}}, "max_concurrency": 1, **ACCOUNT}
    return RemoteFiles(f"s3://{BUCKET}/train", storage_options={"endpoint_url": store.url, **once}, **options)


def epoch_of(files: RemoteFiles) -> Any:
    async def source(info: Any) -> Any:
        if info.idx_in_epoch >= len(NAMES):
            raise StopIteration
        return await files.read(NAMES[info.idx_in_epoch])

    return source


def batches_of(pipe: Pipeline) -> list[bytes]:
    return [np.asarray(sample).tobytes() for batch in pipe for sample in batch[0]]


def test_names_are_those_in_the_folder(store: HttpStore) -> None:
    assert files_of(store).names("*.bin") == NAMES


@pytest.mark.parametrize("way", ["serial", "fork", "spawn"])
def test_samples_are_the_files(store: HttpStore, make_pipeline: Callable[..., Pipeline], way: str) -> None:
    pipe = make_pipeline(epoch_of(files_of(store)), way)

    assert batches_of(pipe) == list(FILES.values())


@pytest.mark.parametrize("fault", [503, 500, "reset", "truncate"])
def test_requests_that_fail_are_repeated(store: HttpStore, make_pipeline: Callable[..., Pipeline], fault: int | str) -> None:
    store.faults.extend([200, fault, fault, 200, fault, 200, fault, 200, 200, fault])
    pipe = make_pipeline(epoch_of(files_of(store)), "fork")

    assert batches_of(pipe) == list(FILES.values())
    assert not store.faults


def test_a_store_that_is_down_for_good_is_an_error_of_the_sample(
    store: HttpStore, make_pipeline: Callable[..., Pipeline]
) -> None:
    store.faults.extend([503] * 100)
    pipe = make_pipeline(epoch_of(files_of(store, attempts=3)), "fork", batch_size=1, workers=1)

    with pytest.raises(OSError, match="Service Unavailable") as caught:
        pipe.run()

    assert f"raised by attempt 3 of 3 to read s3://{BUCKET}/train/00.bin" in caught.value.__notes__
    assert store.requests[:3] == ["photographs/train/00.bin"] * 3


def test_no_other_layer_tries_again(store: HttpStore) -> None:
    store.faults.append("truncate")

    with pytest.raises(Exception, match="not completed"):  # raised for the reader of the body
        asyncio.run(files_of(store, attempts=1).read(NAMES[0]))

    assert len(store.requests) == 1


def test_a_file_that_is_not_there_is_asked_for_once(store: HttpStore) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        asyncio.run(files_of(store).read("none.bin"))

    assert f"raised by attempt 1 of 6 to read s3://{BUCKET}/train/none.bin" in caught.value.__notes__
    assert len(store.requests) == 1


def test_parts_of_a_file(store: HttpStore, make_pipeline: Callable[..., Pipeline]) -> None:
    files = files_of(store)

    async def source(info: Any) -> Any:
        start = 10 * info.idx_in_epoch
        return await files.read("07.bin", start, start + 10)

    pipe = make_pipeline(source, "serial")

    assert [np.asarray(sample).tolist() for sample in pipe.run()[0]] == [[7] * 10] * 4


def test_the_second_epoch_comes_from_the_cache_though_workers_are_killed(
    store: HttpStore, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    files = files_of(store, cache_dir=tmp_path, cache_bytes=10 << 20)
    pipe = make_pipeline(epoch_of(files), "fork", py_worker_restarts=None)

    assert batches_of(pipe) == list(FILES.values())
    store.faults.extend([500] * 1000)
    for pid in pipe.py_worker_pids:
        os.kill(pid, signal.SIGKILL)
    pipe.reset()
    assert batches_of(pipe) == list(FILES.values())
    assert len(store.requests) == len(FILES)
