"""``fn.io.file.read``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops
from dali_like.errors import MissingFileError, SampleTypeError
from tests.conftest import in_both_places


def path_of(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


@in_both_places
def test_behind_a_source(way: str, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}").write_bytes(bytes([i]) * (i + 1))
    urls = ["", "file://", ""] if pytest.importorskip("fsspec") else [""] * 3
    paths = [path_of(f"{url}{tmp_path}/{i}") for i, url in enumerate(urls)]
    options = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(3, 1, None, **options)
    with pipe:
        source = fn.external_source(lambda info: paths[info.idx_in_batch], batch=False, parallel=way != "serial")
        pipe.set_outputs(ops.io.file.Read()(source))
    try:
        batch = pipe.run()[0]
        assert [bytes(batch.at(i)) for i in range(3)] == [b"\0", b"\1\1", b"\2\2\2"]
    finally:
        pipe.close()


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (path_of("/nothing/here"), MissingFileError, "/nothing/here does not exist"),
        (path_of("ab").astype(np.int32), SampleTypeError, r"must be one-dimensional arrays of bytes, not of int32"),
        (path_of("ab")[np.newaxis], SampleTypeError, r"shape \(1, 2\)"),
    ],
)
def test_errors(path: np.ndarray, error: type[Exception], message: str) -> None:
    pipe = Pipeline(1, 1, None)
    with pipe:
        pipe.set_outputs(fn.io.file.read(fn.external_source(lambda: [path])))
    with pytest.raises(error, match=message):
        pipe.run()
    pipe.close()
