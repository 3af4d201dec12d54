"""Indexes with damaged contents, but right checksums: records are read or refused, and nothing else is raised."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dali_like import Pipeline, fn
from dali_like.data import ComposedDataset
from dali_like.errors import DaliLikeError

from .writing import example, integers, recordio, tfrecord, write_records, write_tar

_IS_FULL = os.environ.get("PARITY") == "full"
FEATURES = {"label": [0, 0, [1], []]}


def read_with(make: Callable[[str], Any], path: Path) -> None:
    """Read all records by a pipeline."""
    pipe = Pipeline(2, 1, None, py_num_workers=0)
    with closing(pipe):
        with pipe:
            made = make(str(path))
            pipe.set_outputs(*(made.values() if isinstance(made, dict) else made if isinstance(made, list) else [made]))
        for _ in range(2):
            pipe.run()


def read_lines(path: Path) -> None:
    dataset = ComposedDataset.from_jsonl(path)
    for i in range(dataset.length or 0):
        dataset[i]


def read_samples(path: Path) -> None:
    dataset = ComposedDataset.from_tar(path)
    for i in range(dataset.length or 0):
        dataset[i]


#: For each format, how to write a file of four records, and how to read it.
FORMATS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], None]]] = {
    "a.rec": (
        lambda path: write_records(path, [recordio(float(i), b"abc") for i in range(4)]),
        lambda path: read_with(lambda name: fn.readers.mxnet(path=name), path),
    ),
    "a.tfrecord": (
        lambda path: write_records(path, [tfrecord(example(label=integers(i))) for i in range(4)]),
        lambda path: read_with(lambda name: fn.readers.tfrecord(path=name, features=FEATURES), path),
    ),
    "b.tar": (
        lambda path: write_tar(path, [(f"{i}.txt", b"abc") for i in range(4)]),
        lambda path: read_with(lambda name: fn.readers.webdataset(paths=name, ext=["txt"]), path),
    ),
    "a.tar": (lambda path: write_tar(path, [(f"{i}.txt", b"abc") for i in range(4)]), read_samples),
    "a.jsonl": (lambda path: path.write_bytes(b"".join(b'{"n": %d}\n' % i for i in range(4))), read_lines),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def damaged(draw: Any, content: bytes) -> bytes:
    """A content with some other bytes, numbers, or another length."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        junk = draw(
            st.binary(min_size=1, max_size=8)
            | st.sampled_from([np.int64(n).tobytes() for n in (-1, 0, 1, 2**31, 2**62, -(2**63))])
        )
        place -= place % 8 if draw(st.booleans()) else 0
        data[place : place + len(junk)] = junk
    return bytes(data[: draw(st.none() | st.integers(0, len(data)))])


@pytest.mark.parametrize("name", FORMATS)
def test_records_are_read_or_refused(name: str, tmp_path: Path) -> None:
    write, read = FORMATS[name]
    path = tmp_path / name
    write(path)
    read(path)
    index = tmp_path / f".{name}.index"
    head, _, content = index.read_bytes().partition(b"\n")
    key = head.rpartition(b" ")[0]

    @settings(
        max_examples=10_000 if _IS_FULL else 150 // len(FORMATS),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(choices=st.data())
    def check(choices: st.DataObject) -> None:
        wrong = damaged(choices.draw, content)
        index.write_bytes(key + b" %d\n" % zlib.crc32(wrong) + wrong)

        with contextlib.suppress(DaliLikeError):
            read(path)

    check()
