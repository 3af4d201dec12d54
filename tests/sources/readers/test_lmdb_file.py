"""Databases of LMDB, as LMDB's own library writes them, and damaged ones."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.errors import BrokenFileError
from dali_like.sources.readers.lmdb_file import find_records

_IS_FULL = os.environ.get("PARITY") == "full"


def write(folder: Path, records: dict[bytes, bytes], *, steps: int = 1, removed: int = 0) -> bytes:
    """Write a database in some transactions, and then remove records; returns the file."""
    items = [*records.items()]
    with lmdb.open(str(folder), map_size=1 << 26) as environment:
        for step in range(steps):
            with environment.begin(write=True) as transaction:
                for key, value in items[step::steps]:
                    transaction.put(key, value)
        with environment.begin(write=True) as transaction:
            for key, _ in items[:removed]:
                transaction.delete(key)
    return (folder / "data.mdb").read_bytes()


def contents(data: bytes) -> list[tuple[bytes, bytes]]:
    keys, spans = find_records("data.mdb", io.BytesIO(data))
    return [(key, data[begin:end]) for key, (begin, end) in zip(keys, spans.tolist(), strict=True)]


@pytest.mark.parametrize(("count", "steps", "removed"), [(0, 1, 0), (1, 1, 0), (3000, 1, 0), (3000, 7, 900), (50, 50, 50)])
def test_records_are_those_of_lmdb(count: int, steps: int, removed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(count)
    sizes = rng.choice([0, 3, 500, 2020, 2030, 4096, 9000], count)
    records = {rng.bytes(int(rng.integers(1, 60))) + b"%d" % i: rng.bytes(int(size)) for i, size in enumerate(sizes)}
    data = write(tmp_path, records, steps=steps, removed=removed)

    kept = dict([*records.items()][removed:])
    assert contents(data) == sorted(kept.items())


def test_named_databases_are_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=1) as environment:
        environment.open_db(b"a")
    with pytest.raises(BrokenFileError, match="something else than single records, such as a named database"):
        contents((tmp_path / "data.mdb").read_bytes())


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    records = {b"%05d" % i: bytes([i % 256]) * (30 if i % 40 else 5000) for i in range(400)}
    return write(tmp_path_factory.mktemp("database"), records)


@settings(max_examples=10_000 if _IS_FULL else 150, deadline=None)
@given(changes=st.data())
def test_a_damaged_database_is_read_or_refused(changes: st.DataObject, database: bytes) -> None:
    data = bytearray(database)
    pages = len(data) // 4096
    for _ in range(changes.draw(st.integers(1, 4))):
        # Headers of pages, and the positions of nodes behind them, are damaged most often.
        page = changes.draw(st.integers(0, pages - 1) | st.sampled_from([0, 1]))
        offset = changes.draw(st.integers(0, 200) | st.integers(0, 4095))
        junk = changes.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\0" * 8, b"\xff" * 8]))
        data[page * 4096 + offset : page * 4096 + offset + len(junk)] = junk
    cut = changes.draw(st.none() | st.integers(0, len(data)))

    with contextlib.suppress(BrokenFileError):
        keys, spans = find_records("data.mdb", io.BytesIO(bytes(data[:cut])))
        assert len(keys) == len(spans)
        assert np.all(spans >= 0)
        assert np.all(spans <= len(data))
