"""Rows of chunked arrays: HDF5 and Zarr. The tests need h5py and zarr."""

from __future__ import annotations

import gc
import io
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import ArgumentClashError, ArgumentError, BrokenFileError, MissingExtraError, MissingFileError
from dali_like.sources.composed.array_files import ArrayFiles, ArrayLayout
from tests.sources.composed.resuming import assert_resumes

pytestmark = pytest.mark.usefixtures("threads_of_zarr")

ROWS, CHUNK = 1200, 12
VALUES = np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3)
LABELS = np.arange(ROWS) % 7


def write_hdf5(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(CHUNK, 2, 3), compression="gzip")
        file.create_dataset("meta/y", data=LABELS, chunks=(ROWS,))  # one long chunk, as labels often have
    return path


def write_zarr(path: Path) -> Path:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(path, mode="w")
    group.create_array("x", shape=VALUES.shape, chunks=(CHUNK, 1, 3), dtype=VALUES.dtype)[:] = VALUES
    group.create_array("meta/y", shape=LABELS.shape, chunks=LABELS.shape, dtype=LABELS.dtype)[:] = LABELS
    return path


FORMATS: dict[str, tuple[Callable[[Path], Path], Callable[..., Any]]] = {
    "h5": (write_hdf5, ComposedDataset.from_hdf5),
    "zarr": (write_zarr, ComposedDataset.from_zarr),
}


@pytest.fixture(params=sorted(FORMATS))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[..., Any]]:
    """A file or store, and the method that describes it."""
    write, describe = FORMATS[request.param]
    return write(tmp_path / f"data.{request.param}"), describe


Stored = tuple[Path, Callable[..., Any]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of elements that have been read, in this process."""
    found: list[tuple[int, int]] = []
    original = ArrayFiles.read

    async def counted(self: ArrayFiles, first: int, last: int) -> Any:
        found.append((first, last))
        return await original(self, first, last)

    monkeypatch.setattr(ArrayFiles, "read", counted)
    return found


# Elements


def test_several_fields_make_dicts_and_one_field_its_rows(stored: Stored) -> None:
    path, describe = stored
    both, single, top = describe(path, fields=["x", "meta/y"]), describe(path, fields="x"), describe(path)

    assert both[17]["x"].tolist() == VALUES[17].tolist()
    assert both[17]["meta/y"] == LABELS[17]
    assert single[1199].tolist() == VALUES[1199].tolist()
    assert list(top[3]) == ["x"]
    assert len(both) == len(single) == ROWS


@pytest.mark.parametrize(("window", "shift"), [(1, None), (5, 1), (4, 4), (3, 40), (ROWS, 1), (ROWS + 1, 1)])
def test_windows_are_consecutive_rows_across_chunks(stored: Stored, window: int, shift: int | None) -> None:
    path, describe = stored
    dataset = describe(path, fields="x", window=window, shift=shift)
    begins = range(0, ROWS - window + 1, shift or window)

    assert len(dataset) == len(begins)
    assert all((element == VALUES[begin : begin + window]).all() for element, begin in zip(dataset, begins, strict=True))
    for number, begin in list(enumerate(begins))[::-7]:
        assert (dataset[number] == VALUES[begin : begin + window]).all()


def test_elements_do_not_change_with_each_other(stored: Stored) -> None:
    path, describe = stored
    dataset = describe(path, fields="x", window=2, shift=1)

    first = dataset[0]
    first[:] = -1

    assert dataset[1].tolist() == VALUES[1:3].tolist()
    assert first.base is None  # it does not keep its chunk


def test_several_files_follow_each_other(stored: Stored, tmp_path: Path) -> None:
    path, describe = stored
    other = tmp_path / f"other{path.suffix}"
    FORMATS[path.suffix[1:]][0](other)

    dataset = describe([path, other], fields="meta/y", window=5, shift=5)

    assert len(dataset) == 2 * ROWS // 5
    assert dataset[ROWS // 5].tolist() == LABELS[:5].tolist()
    assert sorted(describe(str(tmp_path / f"*{path.suffix}"), fields="meta/y")) == sorted([*LABELS, *LABELS])


def test_descriptions_have_the_arguments_that_make_the_elements(stored: Stored) -> None:
    path, describe = stored
    described = describe(path, fields=["x", "meta/y"], window=3, shift=1).description

    assert described[0].endswith("(1 file, x, meta/y, window=3, shift=1)[1198]")
    assert describe(path).description[0].endswith("(1 file)[1200]")


# Reads


def test_a_pass_in_order_reads_each_chunk_once(stored: Stored, reads: list[tuple[int, int]]) -> None:
    path, describe = stored
    list(describe(path, fields=["x", "meta/y"]))

    assert reads == [(begin, begin + CHUNK) for begin in range(0, ROWS, CHUNK)]


def test_chunks_shuffled_together_are_read_once_where_a_full_shuffle_reads_one_for_each_row(
    stored: Stored, reads: list[tuple[int, int]]
) -> None:
    path, describe = stored
    dataset = describe(path, fields="x")

    list(dataset.shuffle())
    of_full = len(reads)
    reads.clear()
    order = [int(row[0, 0]) // 6 for row in dataset.shuffle(together=80)]

    assert sorted(order) == list(range(ROWS))
    assert len(reads) == ROWS // CHUNK
    assert of_full > 10 * len(reads)
    batches = [order[begin : begin + 256] for begin in range(0, ROWS - 255, 256)]
    assert all(len({row // CHUNK for row in batch}) >= 64 for batch in batches[:3])  # the last group has 20 chunks


def test_whole_chunks_are_read_by_one_shard_alone(stored: Stored, reads: list[tuple[int, int]]) -> None:
    path, describe = stored
    dataset = describe(path, fields="x").shuffle(together=4, whole=True).with_options(shards=20)
    rows: list[list[int]] = [[], []]
    for rank in range(2):
        loader = DataLoader(dataset, batch_size=128, shard_id=rank, num_shards=2, shard_rest="uneven")
        rows[rank] = [int(row) // 6 for batch in loader for row in batch[:, 0, 0]]

    assert sorted(rows[0] + rows[1]) == list(range(ROWS))
    assert len(reads) == len(set(reads)) == ROWS // CHUNK
    assert len({row // CHUNK for row in rows[0][:128] + rows[1][:128]}) >= 64  # the first batch of both ranks together


def test_bytes_of_a_file_are_read_about_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.random.default_rng(0).integers(0, 255, (4096, 1024), np.uint8), chunks=(64, 1024))
    counted, original = _CountedFile(path), h5py.File
    monkeypatch.setattr(h5py, "File", lambda _, mode: original(counted, mode))
    dataset = ComposedDataset.from_hdf5(path, fields="x")
    list(dataset.shuffle(together=4))
    of_chunks = counted.num_bytes
    list(dataset.shuffle().take(640))
    of_rows = counted.num_bytes - of_chunks
    del dataset
    gc.collect()
    counted.close()

    assert of_chunks < 1.1 * os.path.getsize(path)
    assert of_rows > 8 * of_chunks  # one chunk of 64 for almost each of 640 rows


def test_arrays_without_chunks_are_read_by_row(
    tmp_path: Path, reads: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    h5py = pytest.importorskip("h5py")
    monkeypatch.setattr("dali_like.sources.composed.array_files.CHUNK_BYTES", 240)  # ten rows
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["x"] = VALUES
    dataset = ComposedDataset.from_hdf5(tmp_path / "plain.h5", fields="x")

    assert [dataset[i][0, 0] for i in (900, 3, 500)] == [VALUES[i, 0, 0] for i in (900, 3, 500)]
    assert reads == [(900, 901), (3, 4), (500, 501)]


# Processes


@pytest.mark.parametrize("start_method", ["fork", "spawn", "thread"])
def test_workers_read_by_themselves(stored: Stored, start_method: str) -> None:
    path, describe = stored
    dataset = describe(path, fields=["x", "meta/y"]).shuffle(together=3)
    assert dataset[0]["meta/y"] in LABELS  # the file is open here
    loader = DataLoader(dataset, batch_size=100, num_workers=2, multiprocessing_context=start_method)

    batches = list(loader)

    assert sorted(np.concatenate([batch["x"][:, 0, 0] for batch in batches])) == VALUES[:, 0, 0].tolist()
    assert all((batch["x"][:, 0, 0] // 6 % 7 == batch["meta/y"]).all() for batch in batches)


def test_copies_hold_no_open_files(stored: Stored) -> None:
    path, describe = stored
    before = len(os.listdir("/proc/self/fd"))
    dataset = describe(path, fields="x")
    assert len(os.listdir("/proc/self/fd")) == before

    copied = pickle.loads(pickle.dumps(dataset))

    assert copied[5].tolist() == dataset[5].tolist()


def test_every_state_resumes(stored: Stored) -> None:
    path, describe = stored
    dataset = describe(path, fields="meta/y").shuffle(together=4, whole=True).take(40).with_options(shards=4)

    assert_resumes(dataset)


def test_remote_stores_are_read_ahead() -> None:
    zarr = pytest.importorskip("zarr")
    fsspec = pytest.importorskip("fsspec")
    url = "memory://stores/x.zarr"
    array = zarr.create_array(url, shape=(100, 3), chunks=(10, 3), dtype="i4")
    array[:] = np.arange(300).reshape(100, 3)
    try:
        dataset = ComposedDataset.from_zarr(url)

        assert [int(row[0]) for row in dataset] == list(range(0, 300, 3))
        assert sorted(int(row[0]) for row in dataset.shuffle(together=3)) == list(range(0, 300, 3))
    finally:
        fsspec.filesystem("memory").rm("/stores", recursive=True)


# Errors


def test_wrong_fields_are_named(stored: Stored) -> None:
    path, describe = stored
    with pytest.raises(ArgumentError, match=r"has no array 'z'. It has meta/y, x"):
        describe(path, fields=["x", "z"])
    with pytest.raises(ArgumentError, match=r"has no array 'meta'"):
        describe(path, fields="meta")
    with pytest.raises(ArgumentError, match="each once"):
        describe(path, fields=["x", "x"])
    with pytest.raises(ArgumentClashError, match="pass window="):
        describe(path, shift=2)
    with pytest.raises(ArgumentError, match="window must be a positive integer"):
        describe(path, window=0)


def test_arrays_of_different_lengths_are_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = np.zeros(3), np.zeros(4)
    with pytest.raises(ArgumentError, match=r"different numbers of rows: x has 3, y has 4. Name those that belong together"):
        ComposedDataset.from_hdf5(tmp_path / "a.h5")


def test_a_file_without_arrays_at_its_top_names_those_below(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/x"] = np.zeros(3)
    with pytest.raises(ArgumentError, match=r"no arrays at its top.*group/x"):
        ComposedDataset.from_hdf5(tmp_path / "a.h5")


def test_missing_and_broken_files(stored: Stored, tmp_path: Path) -> None:
    path, describe = stored
    with pytest.raises(MissingFileError, match="does not exist"):
        describe(tmp_path / "none")
    with pytest.raises(MissingFileError, match="matches"):
        describe(tmp_path / "none*")
    if path.suffix == ".h5":
        path.write_bytes(b"no HDF5")
        with pytest.raises(BrokenFileError, match="is not an HDF5 file"):
            describe(path)


def test_a_damaged_chunk_names_its_rows_and_the_others_are_read(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "data.zarr")
    dataset = ComposedDataset.from_zarr(path, fields="x")
    (path / "x/c/1/0/0").write_bytes(b"no chunk")

    with pytest.raises(BrokenFileError, match=r"rows 12 to 23 cannot be read"):
        dataset[13]
    assert dataset[24].tolist() == VALUES[24].tolist()


@pytest.mark.parametrize(("describe", "module"), [(ComposedDataset.from_hdf5, "h5py"), (ComposedDataset.from_zarr, "zarr")])
def test_a_missing_library_is_named(
    describe: Callable[..., Any], module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"pip install '{module}"):
        describe(tmp_path / "x")


class _CountedFile(io.FileIO):
    """Counts the bytes that are read."""

    num_bytes = 0

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self.num_bytes += count
        return count


# Arrays of another kind, in the place of a library's


class _Array:
    """An array with chunks, as libraries have it."""

    def __init__(self, values: Any, chunks: tuple[int, ...] | None) -> None:
        self.values, self.chunks = values, chunks
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, rows: slice) -> Any:
        return self.values[rows]


class _Arrays(ArrayFiles):
    is_remote = False

    def _opened_file(self, path: str) -> Any:
        return {
            "x": _Array(VALUES, (CHUNK, 2, 3)),
            "y": _Array(LABELS, (ROWS,)),
            "z": _Array(np.arange(ROWS), (5,)),
        }


@pytest.mark.parametrize("shift", [1, 2, 12, 13, 40])
def test_chunk_ends_count_the_elements_that_begin_in_the_chunks_of_the_largest_array(shift: int) -> None:
    source = _Arrays(["a", "b"], ArrayLayout(None, False, 4, shift))
    num_elements = (ROWS - 4) // shift + 1
    chunks = [number * shift // CHUNK for number in range(num_elements)]
    ends = [
        number + 1 for number in range(num_elements) if number + 1 == num_elements or chunks[number] != chunks[number + 1]
    ]

    assert source.chunk_ends.tolist() == ends + [num_elements + end for end in ends]
    assert source.file_ends.tolist() == [num_elements, 2 * num_elements]
    assert source[num_elements]["z"].tolist() == [0, 1, 2, 3]
