"""Composed datasets of files on an HTTP server: bytes fetched, reads ahead, the thread behind them."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import FileReadError, MissingFileError
from dali_like.sources import remote_files
from dali_like.sources.composed import chunked_files
from tests.conftest import wait_until
from tests.http_store import HttpStore, http_store
from tests.internals import kept_chunks_of, stage_of
from tests.sources.composed.test_files import numbers_of, tar_bytes

for module in ("fsspec", "tenacity", "diskcache", "aiohttp"):
    pytest.importorskip(module)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpStore]:
    monkeypatch.setattr(remote_files, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with http_store() as store:
        yield store


def lines(numbers: Any) -> bytes:
    return "".join(json.dumps({"n": n}) + "\n" for n in numbers).encode()


def parquet_bytes() -> bytes:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    table = pa.table({"n": np.arange(8000), "unused": rng.random(8000), "x": rng.integers(0, 1 << 60, 8000)})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=1000, compression="none", use_dictionary=False)
    return file.getvalue()


def test_json_lines_by_pattern(store: HttpStore) -> None:
    store.files.update({"a.jsonl": lines(range(50)), "b.jsonl": lines(range(50, 60)), "c.txt": b"no"})
    dataset = ComposedDataset.from_jsonl(f"{store.url}/*.jsonl", chunk_bytes=100)

    assert numbers_of(dataset) == list(range(60))
    assert dataset[55] == {"n": 55}
    assert sorted(numbers_of(dataset.shuffle(together=3))) == list(range(60))


def test_compressed_files(store: HttpStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.sources.composed.block_file._BLOCK_BYTES", 64)
    store.files.update({f"{i}.jsonl.gz": gzip.compress(lines(range(i, 100, 2))) for i in range(2)})
    dataset = ComposedDataset.from_jsonl([f"{store.url}/{i}.jsonl.gz" for i in range(2)]).with_options(shards=2)
    assert numbers_of(dataset) == list(range(100))


@pytest.mark.parametrize("together", [None, 1, 3])
def test_tar_fetches_little_more_than_it_uses(store: HttpStore, together: int | None) -> None:
    data = store.files["a.tar"] = tar_bytes(range(400), size=2000)
    url = f"{store.url}/a.tar"
    dataset = ComposedDataset.from_tar(url, chunk_bytes=100_000)
    store.sent_bytes = 0
    shuffled = dataset if together is None else dataset.shuffle(together=together)

    assert sorted(int(sample["txt"]) for sample in shuffled) == list(range(400))
    assert store.sent_bytes <= 1.1 * len(data)


@pytest.mark.parametrize("together", [None, 1, 3])
def test_parquet_fetches_little_more_than_it_uses(store: HttpStore, together: int | None) -> None:
    store.files["a.parquet"] = parquet_bytes()
    dataset = ComposedDataset.from_parquet(f"{store.url}/a.parquet", columns=["n", "x"])
    store.sent_bytes = 0
    shuffled = dataset if together is None else dataset.shuffle(together=together)

    assert sorted(numbers_of(shuffled)) == list(range(8000))
    footer = 64 << 10
    assert store.sent_bytes <= 1.1 * 8000 * 16 + footer


def chunks_of(store: HttpStore, name: str = "a") -> Any:
    """Return a source with a hundred chunks of 100 records."""
    store.files[f"{name}.jsonl"] = "".join(f'{{"n": {n:4}}}\n' for n in range(10_000)).encode()
    dataset: Any = ComposedDataset.from_jsonl(f"{store.url}/{name}.jsonl", chunk_bytes=1200)
    return stage_of(dataset).source


def test_reads_are_the_further_ahead_the_longer_the_access_is_sequential(store: HttpStore) -> None:
    source = chunks_of(store)
    assert len(source.chunk_ends) == 100
    reader = source.reader()
    store.requests.clear()

    for record, num_requests in ((0, 1), (1, 3), (100, 5), (200, 8), (300, 13), (400, 22), (500, 39), (600, 40)):
        assert reader[record]["n"] == record
        wait_until(lambda n=num_requests: len(store.requests) == n, f"the reads for record {record}")  # type: ignore[misc]
        assert len(kept_chunks_of(reader)) <= 2 + chunked_files.MOST_AHEAD
    assert reader[9000] == {"n": 9000}  # elsewhere: earlier requests are forgotten
    assert len(kept_chunks_of(reader)) <= 2


def test_all_sources_share_the_memory_for_reads_ahead(store: HttpStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_files, "_AHEAD_BYTES", 8 * 1200)
    readers = [chunks_of(store, name).reader() for name in "ab"]
    assert readers[0].most_ahead == 8
    assert [reader.most_ahead for reader in reversed(readers)] == [4, 4]
    del readers[1]
    assert readers[0].most_ahead == 8


def test_a_worker_asks_once_for_a_footer(store: HttpStore) -> None:
    store.files["a.parquet"] = parquet_bytes()
    dataset = pickle.loads(pickle.dumps(ComposedDataset.from_parquet(f"{store.url}/a.parquet", columns=["n"])))
    store.requests.clear()

    assert [dataset[i]["n"] for i in (0, 5000)] == [0, 5000]
    assert len(store.requests) == 3  # with two row groups


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_files_in_order_are_fetched_by_one_worker_alone(store: HttpStore, kind: str) -> None:
    data = parquet_bytes() if kind == "parquet" else tar_bytes(range(400), size=2000)
    store.files |= {f"{i}.{kind}": data for i in range(4)}
    urls = f"{store.url}/{{0..3}}.{kind}"
    if kind == "parquet":
        dataset = ComposedDataset.from_parquet(urls, interleave=2).with_options(shards=2)
    else:
        dataset = ComposedDataset.from_tar(urls, interleave=2, chunk_bytes=100_000).with_options(shards=2)
    store.sent_bytes = 0

    batches = DataLoader(dataset.map(lambda element: 1), batch_size=100, num_workers=2, multiprocessing_context="thread")
    assert sum(int(batch.sum()) for batch in batches) == (32_000 if kind == "parquet" else 1600)
    footers = 4 * (64 << 10) if kind == "parquet" else 0
    assert store.sent_bytes <= 1.1 * 4 * len(data) + footers


def test_distant_records_fetch_nothing_else(store: HttpStore) -> None:
    store.files["a.jsonl"] = lines(range(1000))
    dataset = ComposedDataset.from_jsonl(f"{store.url}/a.jsonl", chunk_bytes=1000)
    store.sent_bytes = 0
    assert [dataset[i]["n"] for i in (0, 900, 300)] == [0, 900, 300]
    assert store.sent_bytes == len(lines([0, 900, 300]))


def test_all_sources_share_a_thread(store: HttpStore) -> None:
    store.files.update({f"{i}.jsonl": lines([i]) for i in range(10)})
    before = threading.active_count()
    dataset = ComposedDataset.concat(*[ComposedDataset.from_jsonl(f"{store.url}/{i}.jsonl") for i in range(10)])
    elements = dataset.elements()
    names = lambda: [thread.name for thread in threading.enumerate() if thread.name == "dali_like_reads"]  # noqa: E731
    assert names() == []
    assert [elements.at(0, i)["n"] for i in range(10)] == list(range(10))
    assert names() == ["dali_like_reads"]
    del elements
    wait_until(lambda: not names() and threading.active_count() == before, "the end of the thread")


def test_a_forked_process_has_a_thread_of_its_own(store: HttpStore) -> None:
    store.files["a.jsonl"] = lines(range(50))
    dataset = ComposedDataset.from_jsonl(f"{store.url}/a.jsonl", chunk_bytes=100)
    assert dataset[0] == {"n": 0}
    pid = os.fork()
    if not pid:
        os._exit(0 if [dataset[i]["n"] for i in range(50)] == list(range(50)) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert dataset[40] == {"n": 40}


def test_errors(store: HttpStore) -> None:
    with pytest.raises(MissingFileError):
        ComposedDataset.from_jsonl(f"{store.url}/none.jsonl")
    store.files["a.jsonl"] = lines(range(5))
    dataset = ComposedDataset.from_jsonl(f"{store.url}/a.jsonl", remote_options={"attempts": 2})
    store.faults.extend([500, 500])
    with pytest.raises(FileReadError, match="cannot be read"):
        dataset[1]
    store.faults.append(503)
    assert dataset[1] == {"n": 1}
