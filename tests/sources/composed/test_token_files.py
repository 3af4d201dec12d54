"""Windows of flat files of tokens: elements, gathered batches, remote files, truncated files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import ArgumentError, BrokenFileError, MissingFileError
from dali_like.sources.composed import token_files


def write(path: Path, count: int, dtype: str = "<u2", header: bytes = b"") -> Path:
    path.write_bytes(header + np.arange(count).astype(dtype).tobytes())
    return path


def windows_of(count: int, window: int, shift: int) -> list[list[int]]:
    return [list(range(begin, begin + window)) for begin in range(0, count - window + 1, shift)]


@pytest.mark.parametrize(("window", "shift"), [(1, None), (10, None), (11, 10), (7, 3), (100, 1), (101, 1)])
def test_elements_are_windows_and_the_rest_is_left_out(tmp_path: Path, window: int, shift: int | None) -> None:
    dataset = ComposedDataset.from_tokens(write(tmp_path / "t.bin", 100), window, shift=shift)
    expected = windows_of(100, window, shift or window)

    assert [element.tolist() for element in dataset] == expected
    assert len(dataset) == len(expected)
    assert dataset.description == [f"tokens(1 file, window={window}, shift={shift or window})[{len(expected)}]"]


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i4", ">i8", "u1"])
def test_elements_have_the_byte_order_of_the_machine(tmp_path: Path, dtype: str) -> None:
    path = write(tmp_path / "t.bin", 20, dtype, header=b"x" * 12)
    dataset = ComposedDataset.from_tokens(path, 5, dtype=dtype, header_bytes=12)
    element = dataset[2]

    assert element.tolist() == [10, 11, 12, 13, 14]
    assert element.dtype == np.dtype(dtype).newbyteorder("=")
    assert element.flags.writeable
    (batch,) = DataLoader(dataset, batch_size=4, num_workers=1)
    assert batch.tolist() == windows_of(20, 5, 5)


def test_arrays_of_numpy_say_their_dtype(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12, dtype=np.uint32))
    np.save(tmp_path / "b.npy", np.arange(12, 24, dtype=np.uint32))

    dataset = ComposedDataset.from_tokens(str(tmp_path / "*.npy"), 4)

    assert [element.tolist() for element in dataset] == windows_of(24, 4, 4)
    assert dataset[0].dtype == np.uint32


def test_no_window_crosses_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{count}.bin", count) for count in (10, 3, 0, 8)]
    dataset = ComposedDataset.from_tokens(paths, 4)

    assert [element.tolist() for element in dataset] == [*windows_of(10, 4, 4), *windows_of(8, 4, 4)]
    assert dataset[-1 + len(dataset)].tolist() == [4, 5, 6, 7]


STREAMS = {
    "in order": lambda parts: parts[0],
    "shuffled": lambda parts: parts[0].shuffle(),
    "repeated": lambda parts: parts[1].shuffle().repeat(3),
    "sliced": lambda parts: parts[0].shuffle().slice(5, 400, 3),
    "concatenated": lambda parts: ComposedDataset.concat([parts[0].shuffle(), parts[1]]).shuffle(),
    "mixed": lambda parts: ComposedDataset.mix([part.shuffle() for part in parts], [3, 1], stop="all", block=16),
    "of an array": lambda parts: ComposedDataset.source(np.arange(3000).reshape(500, 6)).shuffle(),
    "of numbers": lambda parts: ComposedDataset.source(np.arange(500.0)).shuffle().repeat(2),
    "shuffled in blocks": lambda parts: parts[0].shuffle(block=50),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_gathered_batches_have_the_elements_at_their_positions(tmp_path: Path, name: str, num_workers: int) -> None:
    paths = [write(tmp_path / f"{count}.bin", count) for count in (3000, 700, 2100, 600)]
    parts = [ComposedDataset.from_tokens(paths[:2], 6), ComposedDataset.from_tokens(paths[2:], 6, shift=5)]
    dataset: Any = STREAMS[name](parts).with_options(seed=4)
    is_gathered = name != "shuffled in blocks"
    loader = DataLoader(dataset, batch_size=32, num_workers=num_workers)

    for _ in range(2):  # epochs
        position = loader.state_dict()["epoch"] * len(dataset)
        for batch in loader:
            expected = np.stack([dataset[position + row] for row in range(len(batch))])
            assert batch.dtype == expected.dtype
            assert batch.tolist() == expected.tolist()
            position += len(batch)
    assert dataset.has_rows == is_gathered


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_tokens_ask_for_single_elements_once_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    dataset = ComposedDataset.from_tokens(write(tmp_path / "t.bin", 64_000), 10).shuffle()
    asked: list[int] = []
    original = ComposedDataset.__getitem__

    def counted(self: ComposedDataset, position: int) -> Any:
        asked.append(position)
        return original(self, position)

    monkeypatch.setattr(ComposedDataset, "__getitem__", counted)
    loader = DataLoader(
        dataset, batch_size=64, num_workers=num_workers, multiprocessing_context="thread" if num_workers else None
    )

    assert [len(batch) for batch in loader] == [64] * 100
    assert len(asked) <= 4 * 64 * (num_workers > 0)  # workers learn the schema with the batches in flight


def test_an_error_of_a_gathered_batch_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.bin", 64_000)
    dataset = ComposedDataset.from_tokens(path, 10).shuffle()
    assert len(dataset[0]) == 10
    os.truncate(path, 64_000)

    with pytest.raises(BrokenFileError, match=r"t.bin: the file ends at byte 64000, before byte 128000"):
        next(iter(DataLoader(dataset, batch_size=8)))


def test_a_truncated_file_is_an_error_in_each_process(tmp_path: Path) -> None:
    path = write(tmp_path / "t.bin", 64_000)
    dataset = ComposedDataset.from_tokens(path, 10)
    os.truncate(path, 1001)

    with pytest.raises(BrokenFileError, match="ends at byte 1001"):
        list(DataLoader(dataset, batch_size=8, num_workers=1))
    with pytest.raises(BrokenFileError, match="whole number of tokens"):
        ComposedDataset.from_tokens(path, 10)


@pytest.mark.parametrize("start_method", ["fork", "spawn", "thread"])
def test_workers_map_files_by_themselves(tmp_path: Path, start_method: str) -> None:
    dataset = ComposedDataset.from_tokens(write(tmp_path / "t.bin", 1000), 10).shuffle()
    assert len(dataset[0]) == 10  # mapped here
    loader = DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context=start_method)

    assert sorted(int(row[0]) for batch in loader for row in batch) == list(range(0, 1000, 10))


def test_many_files_are_mapped_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "_MOST_MAPPED", 2)
    paths = [write(tmp_path / f"{number}.bin", 20) for number in range(9)]
    before = len(os.listdir("/proc/self/fd"))
    dataset = ComposedDataset.from_tokens(paths, 10).shuffle()

    assert sorted(int(element[0]) for element in dataset) == sorted([0, 10] * 9)
    assert [len(batch) for batch in DataLoader(dataset, batch_size=18)] == [18]
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert len(pickle.dumps(dataset)) < 10_000


def test_remote_files_are_read_in_chunks() -> None:
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("tenacity")
    data = np.arange(500, dtype="<u2").tobytes()
    fsspec.filesystem("memory").pipe("/tokens/t.bin", data)
    try:
        dataset = ComposedDataset.from_tokens("memory://tokens/t.bin", 7, shift=6, chunk_bytes=100)

        assert [element.tolist() for element in dataset] == windows_of(500, 7, 6)
        assert sorted(int(element[0]) for element in dataset.shuffle(together=3)) == list(range(0, 494, 6))
        assert not dataset.has_rows
    finally:
        fsspec.filesystem("memory").rm("/tokens", recursive=True)


def test_chunks_of_local_files_are_shuffled_together_and_files_read_in_order(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{number}.bin", 600) for number in range(2)]
    chunked = ComposedDataset.from_tokens(paths, 6, chunk_bytes=120)
    in_order = ComposedDataset.from_tokens(paths, 6, interleave=1).with_options(shards=2)

    firsts = sorted([*range(0, 600, 6)] * 2)
    assert sorted(int(element[0]) for element in chunked.shuffle(together=2)) == firsts
    assert sorted(int(element[0]) for element in chunked.shuffle(together=2, whole=True)) == firsts
    assert [int(element[0]) for element in in_order] == firsts


def test_wrong_arguments_and_files(tmp_path: Path) -> None:
    path = write(tmp_path / "t.bin", 100)
    np.save(tmp_path / "two.npy", np.zeros((2, 3), np.uint16))
    np.save(tmp_path / "other.npy", np.zeros(9, np.int32))
    (tmp_path / "no.npy").write_bytes(b"x" * 50)
    with pytest.raises(ArgumentError, match="window must be a positive integer"):
        ComposedDataset.from_tokens(path, 0)
    with pytest.raises(ArgumentError, match="is that of numbers"):
        ComposedDataset.from_tokens(path, 5, dtype="U3")
    with pytest.raises(ArgumentError, match=r"dtype must be a dtype of NumPy, such as .*, not 'tokens'"):
        ComposedDataset.from_tokens(path, 5, dtype="tokens")
    with pytest.raises(ArgumentError, match=r"different dtypes: .*t.bin has uint16.*other.npy has int32"):
        ComposedDataset.from_tokens([path, tmp_path / "other.npy"], 5)
    with pytest.raises(BrokenFileError, match="whole number of tokens of dtype uint32"):
        ComposedDataset.from_tokens(path, 5, dtype="uint32", header_bytes=3)
    with pytest.raises(BrokenFileError, match="tokens have one dimension"):
        ComposedDataset.from_tokens(tmp_path / "two.npy", 5)
    with pytest.raises(BrokenFileError, match=r"not a .npy file of numbers"):
        ComposedDataset.from_tokens(tmp_path / "no.npy", 5)
    with pytest.raises(MissingFileError):
        ComposedDataset.from_tokens(tmp_path / "none.bin", 5)
