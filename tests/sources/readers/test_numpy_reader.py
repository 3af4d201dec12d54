"""``fn.readers.numpy``: reading without copies, headers, broken files. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.errors import ArgumentError, BrokenFileError
from dali_like.sources.readers import stored_files
from dali_like.sources.readers.npy_header import NpyHeader
from dali_like.sources.readers.numpy_reader import NumpyReader

from .reading import pipeline_with, samples_of

ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6)


def read(path: Path, number: int = 1, **options: Any) -> list[Any]:
    with pipeline_with(fn.readers.numpy, 1, files=[path], **options) as pipe:
        return samples_of(pipe, number)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "change", [lambda array: array, np.asfortranarray, lambda array: array.astype(">f4")], ids=["C", "F", ">"]
)
def test_versions_orders_and_byte_orders(version: Any, change: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array(file, change(ARRAY), version=version)

    assert read(path) == [ARRAY.tolist()]
    assert read(path, roi_start=[1, 2], roi_end=[3, 4]) == [ARRAY[1:3, 2:4].tolist()]


def test_long_headers(tmp_path: Path) -> None:
    """Longer than the first part that is read."""
    path = tmp_path / "a.npy"
    np.save(path, ARRAY)
    data = path.read_bytes()
    header = data[10:128] + b" " * 600
    path.write_bytes(data[:8] + len(header).to_bytes(2, "little") + header.replace(b"\n", b" ")[:-1] + b"\n" + data[128:])

    assert read(path) == [ARRAY.tolist()]


def test_cached_headers_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npy"
    np.save(path, ARRAY)
    parts: list[int] = []
    # Private: replaced by one that counts
    plain = stored_files.StoredFiles._read_local
    monkeypatch.setattr(
        stored_files.StoredFiles, "_read_local", lambda self, *args: (parts.append(args[1]), plain(self, *args))[1]
    )

    assert read(path, 3, cache_header_information=True) == [ARRAY.tolist()] * 3
    assert parts[:4] == [0, 128, 128, 128]
    assert 0 not in parts[1:]


def test_arrays_are_read_into_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, ARRAY)
    with pipeline_with(fn.readers.numpy, 2, files=[path] * 2) as pipe:
        pipe.run()
        batch = pipe.run()[0]

        assert batch.is_dense_tensor()
        np.testing.assert_array_equal(batch.as_array(), [ARRAY] * 2)


def test_regions_run_in_the_workers_and_differ_from_sample_to_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, ARRAY)
    pipe = Pipeline(2, 1, None)
    with pipe:
        constant = fn.readers.numpy(files=path, roi_start=[1, 1], roi_shape=[2, 2])
        start = fn.external_source(lambda info: np.int32([info.idx_in_epoch, 0]), batch=False)
        pipe.set_outputs(constant, fn.readers.numpy(files=path, roi_start=start, roi_shape=1))
    try:
        first, second = pipe.run()
        np.testing.assert_array_equal(first.as_array(), [ARRAY[1:3, 1:3]] * 2)
        np.testing.assert_array_equal(second.as_array(), [[[0]], [[6]]])
        assert sorted(pipe.operator_places.values()) == ["threads", "workers"]
    finally:
        pipe.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", r"0 bytes is not a numeric array"),
        (lambda data: data[:20], r"20 bytes is not a numeric array"),
        (lambda data: data.replace(b"}", b" "), r"the header cannot be parsed"),
        (lambda data: b"x" * 300, r"300 bytes is not a numeric array"),
        (lambda data: data[:-5], r"is truncated: shape \(4, 6\) of float32 ends at byte 224, the file at byte 219"),
    ],
)
def test_broken_files(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, ARRAY)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(BrokenFileError, match=message) as caught:
        read(path)
    assert caught.value.file == str(path)
    assert caught.value.offset is not None
    with pytest.raises(BrokenFileError):
        read(path, roi_start=0)


def test_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], object))

    with pytest.raises(BrokenFileError, match="not a numeric array"):
        read(tmp_path / "a.npy")


def test_urls(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    np.save(tmp_path / "a.npy", np.asfortranarray(ARRAY))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "b.npy").write_bytes(data[:-1])

    with pipeline_with(fn.readers.numpy, 1, file_root=f"file://{tmp_path}", roi_end=[1, 2]) as pipe:
        assert pipe.run()[0].at(0).tolist() == [[0, 1]]
        with pytest.raises(BrokenFileError, match=r"b.npy is truncated: shape \(4, 6\) of float32 ends at byte 224"):
            pipe.run()


def test_headers_do_not_travel() -> None:
    reader = NumpyReader(files=("a",), cache_header_information=True)
    # Private: headers that no file has
    reader._headers = {0: NpyHeader(128, np.dtype(np.uint8), (1,), fortran_order=False)}

    # Private: headers are not pickled, which nothing else shows
    assert pickle.loads(pickle.dumps(reader))._headers == {}


def test_wrong_regions() -> None:
    with pytest.raises(ArgumentError, match="roi_end and roi_shape are mutually exclusive"):
        fn.readers.numpy(files="a", roi_end=1, roi_shape=2)
    with pytest.raises(ArgumentError, match="out_of_bounds_policy must be one of 'error', 'pad', 'constant', 'trim"):
        fn.readers.numpy(files="a", out_of_bounds_policy="wrap")
    with pytest.raises(ArgumentError, match=r"roi_shape must be .* from 0 on"):
        fn.readers.numpy(files="a", roi_shape=-1)
