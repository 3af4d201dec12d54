"""Composed datasets of files: JSON Lines, tar, Parquet, ArrayRecord, Lance, iterables."""

from __future__ import annotations

import bz2
import collections
import gzip
import importlib.util
import io
import json
import lzma
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    BrokenFileError,
    MissingExtraError,
    MissingFileError,
)
from dali_like.sources.composed import chunked_files
from dali_like.sources.composed.from_files import expanded
from dali_like.sources.readers.stored_files import StoredFiles


def jsonl(path: Path, numbers: Any) -> str:
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    return str(path)


def tar_bytes(numbers: Any, size: int = 10) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for n in numbers:
            for ext, data in (("txt", b"%d" % n), ("left.bin", bytes([n % 251]) * size)):
                header = tarfile.TarInfo(f"train/{n:05}.{ext}")
                header.size = len(data)
                archive.addfile(header, io.BytesIO(data))
    return file.getvalue()


def numbers_of(dataset: Any) -> list[int]:
    return [record["n"] for record in dataset]


class CountedReads(chunked_files.ChunkedFiles):
    """Records are their numbers; remembers which have been read together."""

    is_remote = False
    mean_chunk_bytes = 1

    def __init__(self, sizes: list[int], has_single_records: bool = True) -> None:
        self.chunk_ends = np.cumsum(sizes)
        self.has_single_records = has_single_records
        self.reads: list[tuple[int, int]] = []

    async def read(self, first: int, last: int) -> range:
        self.reads.append((first, last))
        return range(first, last)

    def decode(self, record: Any, index: int) -> Any:
        return record


class TestChunkReader:
    def test_neighbors_are_read_as_chunks(self) -> None:
        source = CountedReads([4, 4, 2])
        reader = source.reader()

        assert [reader[i] for i in range(10)] == list(range(10))
        assert source.reads == [(0, 1), (0, 4), (4, 8), (8, 10)]

    def test_distant_records_are_read_alone(self) -> None:
        source = CountedReads([4] * 10)
        reader = source.reader()

        assert [reader[i] for i in (0, 39, 12, 30)] == [0, 39, 12, 30]
        assert source.reads == [(0, 1), (39, 40), (12, 13), (30, 31)]

    def test_formats_without_single_records(self) -> None:
        source = CountedReads([4] * 10, has_single_records=False)

        assert source[17] == 17
        assert source.reads == [(16, 20)]

    def test_few_chunks_are_kept(self) -> None:
        source = CountedReads([2] * 10, has_single_records=False)
        reader = source.reader(keep=2)
        for i in (0, 2, 1, 4, 1, 3):
            reader[i]

        assert source.reads == [(0, 2), (2, 4), (4, 6), (2, 4)]


class TestChunkShuffle:
    @pytest.mark.parametrize("sizes", [[5, 1, 7, 3, 0, 4], [1], [3] * 20], ids=str)
    @pytest.mark.parametrize("together", [1, 2, 50])
    def test_each_epoch_has_each_record_once_and_reads_each_chunk_once(self, sizes: list[int], together: int) -> None:
        source = CountedReads(sizes)
        length = len(source)
        dataset = ComposedDataset.source(source).shuffle(together=together).repeat(2)
        order = list(dataset)

        assert sorted(order[:length]) == sorted(order[length:]) == list(range(length))
        assert len(source.reads) <= 2 * len(sizes)
        assert length == 1 or order[:length] != order[length:]

    def test_groups_of_chunks_stay_together(self) -> None:
        dataset = ComposedDataset.source(CountedReads([4] * 6)).shuffle(together=2)
        chunks = [[record // 4 for record in list(dataset)[i : i + 8]] for i in (0, 8, 16)]

        assert all(len(set(group)) == 2 for group in chunks)
        assert list(dataset) == [dataset[i] for i in range(24)]
        assert list(dataset) == [dataset[i] for i in reversed(range(24))][::-1]
        assert dataset.description[0] == "shuffle(together=2, seed=None) of 6 chunks"

    @pytest.mark.parametrize("sizes", [[5, 1, 7, 3, 0, 4], [1], [3] * 20], ids=str)
    @pytest.mark.parametrize("together", [1, 2, 50])
    def test_whole_chunks_belong_to_one_shard_each_and_are_read_once(self, sizes: list[int], together: int) -> None:
        source = CountedReads(sizes)
        dataset = ComposedDataset.source(source).shuffle(together=together, whole=True).with_options(shards=3)
        chunk_of = np.repeat(np.arange(len(sizes)), sizes)
        epochs = []
        for epoch in range(2):
            source.reads.clear()
            elements, counts = dataset.elements(), dataset.count_outputs(epoch)
            shards = [[elements.at(epoch, 3 * k + shard) for k in range(count)] for shard, count in enumerate(counts)]
            epochs.append(shards)
            chunks = [{int(chunk_of[record]) for record in shard} for shard in shards]

            assert sorted(record for shard in shards for record in shard) == list(range(len(source)))
            assert sum(map(len, chunks)) == len(set().union(*chunks))
            assert len(source.reads) == len(set(source.reads)) == sum(size > 0 for size in sizes)
        assert len(source) == 1 or epochs[0] != epochs[1]

    def test_whole_chunks_need_chunks(self) -> None:
        with pytest.raises(ArgumentClashError, match="pass together=, too"):
            ComposedDataset.source(CountedReads([4])).shuffle(whole=True)
        text = ComposedDataset.source(CountedReads([4])).shuffle(together=2, whole=True).description[0]
        assert text == "shuffle(together=2, seed=None, whole=True) of 1 chunks"

    def test_other_inputs_are_refused(self) -> None:
        dataset = ComposedDataset.source(range(9))
        with pytest.raises(ArgumentError, match=r"directly behind from_parquet"):
            dataset.shuffle(together=2)
        with pytest.raises(ArgumentClashError, match="not both"):
            dataset.shuffle(together=2, block=3)


class TestJsonLines:
    def test_several_files_and_patterns(self, tmp_path: Path) -> None:
        jsonl(tmp_path / "b.jsonl", range(5, 9))
        jsonl(tmp_path / "a.jsonl", range(5))

        dataset = ComposedDataset.from_jsonl(tmp_path / "*.jsonl", chunk_bytes=20)
        assert numbers_of(dataset) == list(range(9))
        assert [dataset[i]["n"] for i in (8, 0, 4, 5)] == [8, 0, 4, 5]
        assert dataset.description == ["jsonl(2 files)[9]"]
        assert numbers_of(ComposedDataset.from_jsonl([str(tmp_path / "b.jsonl")])) == [5, 6, 7, 8]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (b"", []),
            (b"\n\n", []),
            (b"1\n\n2\r\n\r\n3", [1, 2, 3]),
            (b"\n1\n \n", [1]),
            (b'"\xc3\xa9"\n', ["é"]),
        ],
        ids=str,
    )
    def test_lines(self, tmp_path: Path, text: bytes, expected: list[Any]) -> None:
        path = tmp_path / "x.jsonl"
        path.write_bytes(text.replace(b" \n", b"\n"))
        assert list(ComposedDataset.from_jsonl(path)) == expected

    def test_lines_longer_than_a_block_of_the_scan(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dali_like.sources.composed.span_files._SCAN_BYTES", 3)
        path = jsonl(tmp_path / "x.jsonl", [1, 22, 333])
        assert numbers_of(ComposedDataset.from_jsonl(path)) == [1, 22, 333]

    def test_a_changed_file_has_a_new_index(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path / "x.jsonl", range(3))
        assert numbers_of(ComposedDataset.from_jsonl(path)) == [0, 1, 2]
        assert (tmp_path / ".x.jsonl.index").exists()
        jsonl(tmp_path / "x.jsonl", [10, 11, 12, 13])
        assert numbers_of(ComposedDataset.from_jsonl(path)) == [10, 11, 12, 13]

    def test_the_index_is_made_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = jsonl(tmp_path / "x.jsonl", range(3))
        ComposedDataset.from_jsonl(path)
        monkeypatch.setattr("dali_like.sources.composed.span_files.LineFiles.scan", None)
        assert numbers_of(ComposedDataset.from_jsonl(path)) == [0, 1, 2]

    def test_a_broken_line_names_its_place_and_the_others_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "x.jsonl"
        path.write_text('{"n": 0}\n\n\r\n[0, oops]\n{"n": 2}\n')
        dataset = iter(ComposedDataset.from_jsonl(path))

        assert next(dataset) == {"n": 0}
        message = r"x.jsonl: line 4, record 1 at byte 12 is not JSON: Expecting value at column 5. Correct the line"
        with pytest.raises(BrokenFileError, match=message) as caught:
            next(dataset)
        assert (caught.value.file, caught.value.offset) == (str(path), 12)
        assert next(dataset) == {"n": 2}

    def test_lines_are_not_counted_where_this_would_take_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dali_like.sources.composed.span_files._MOST_COUNTED_BYTES", 1)
        (tmp_path / "x.jsonl").write_text("0\n?\n")
        with pytest.raises(BrokenFileError, match=r"x.jsonl: record 1 at byte 2 is not JSON"):
            ComposedDataset.from_jsonl(tmp_path / "x.jsonl")[1]

    def test_missing_files(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFileError, match="does not exist"):
            ComposedDataset.from_jsonl(tmp_path / "none.jsonl")
        with pytest.raises(MissingFileError, match="no file matches"):
            ComposedDataset.from_jsonl(tmp_path / "*.jsonl")
        with pytest.raises(ArgumentError, match="paths is empty"):
            ComposedDataset.from_jsonl([])

    def test_copies_open_files_by_themselves(self, tmp_path: Path) -> None:
        dataset = ComposedDataset.from_jsonl(jsonl(tmp_path / "x.jsonl", range(50)), chunk_bytes=100)
        assert dataset[3] == {"n": 3}
        assert numbers_of(pickle.loads(pickle.dumps(dataset))) == list(range(50))

    def test_a_forked_process_reads_by_itself(self, tmp_path: Path) -> None:
        dataset = ComposedDataset.from_jsonl(jsonl(tmp_path / "x.jsonl", range(50)), chunk_bytes=100)
        assert dataset[3] == {"n": 3}
        pid = os.fork()
        if not pid:
            os._exit(0 if [dataset[i]["n"] for i in range(50)] == list(range(50)) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert dataset[4] == {"n": 4}

    def test_many_sources_open_few_files(self, tmp_path: Path) -> None:
        paths = [jsonl(tmp_path / f"{i}.jsonl", [i]) for i in range(100)]
        before = len(os.listdir("/proc/self/fd"))
        elements = ComposedDataset.concat(*[ComposedDataset.from_jsonl(path) for path in paths]).elements()
        assert len(os.listdir("/proc/self/fd")) == before
        assert elements.at(0, 50) == {"n": 50}
        assert len(os.listdir("/proc/self/fd")) == before + 1


OPEN: dict[str, Callable[..., Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}


def write_compressed(path: Path, data: bytes) -> str:
    if path.suffix == ".zst":
        path.write_bytes(pytest.importorskip("zstandard").compress(data))
    else:
        with OPEN[path.suffix[1:]](path, "wb") as file:
            file.write(data)
    return str(path)


class TestCompressed:
    @pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
    def test_lines(self, tmp_path: Path, ending: str) -> None:
        paths = [
            write_compressed(tmp_path / f"{i}.jsonl.{ending}", b'{"n": %d}\n\n{"n": %d}\n' % (i, i + 10)) for i in (0, 1)
        ]
        dataset = ComposedDataset.from_jsonl(paths).with_options(shards=2)

        assert numbers_of(dataset) == [0, 1, 10, 11]
        assert dataset.description == ["map(parse_line)", "  jsonl(2 parts)"]

    @pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
    def test_tar(self, tmp_path: Path, ending: str) -> None:
        path = write_compressed(tmp_path / f"x.tar.{ending}", tar_bytes(range(40), size=3000))
        dataset = ComposedDataset.from_tar(path).with_options(shards=1)

        assert [(s["__key__"], s["txt"], s["left.bin"]) for s in dataset] == [
            (f"train/{n:05}", b"%d" % n, bytes([n]) * 3000) for n in range(40)
        ]

    def test_every_state_resumes(self, tmp_path: Path) -> None:
        paths = [write_compressed(tmp_path / f"{i}.jsonl.gz", b'{"n": %d}\n' % i * (i + 1)) for i in range(6)]
        dataset = ComposedDataset.from_jsonl(paths, interleave=2).shuffle(block=3).with_options(shards=2)
        expected = numbers_of(dataset)

        assert sorted(expected) == sorted(i for i in range(6) for _ in range(i + 1))
        iterator = iter(dataset)
        for taken in range(len(expected)):
            again = iter(dataset)
            again.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
            assert numbers_of(again) == expected[taken:]
            next(iterator)

    def test_broken_lines_and_files(self, tmp_path: Path) -> None:
        whole = write_compressed(tmp_path / "1.jsonl.gz", b'{"n": 0}\n\n?\n{"n": 2}\n')
        rng = np.random.default_rng(0)
        cut = Path(
            write_compressed(tmp_path / "0.jsonl.gz", b"".join(b"%d\n" % i for i in rng.integers(1 << 60, size=9999)))
        )
        cut.write_bytes(cut.read_bytes()[:50000])
        iterator = iter(ComposedDataset.from_jsonl([cut, tmp_path / "none.gz", whole]).with_options(shards=1))
        with pytest.raises(BrokenFileError, match=r"0.jsonl.gz cannot be decompressed"):
            collections.deque(iterator, maxlen=0)
        with pytest.raises(MissingFileError, match=r"none.gz does not exist"):
            next(iterator)
        assert next(iterator) == {"n": 0}
        with pytest.raises(
            BrokenFileError, match=r"1.jsonl.gz: line 3, record 1 at byte 10 is not JSON: Expecting value at col"
        ):
            next(iterator)
        assert list(iterator) == [{"n": 2}]

    def test_too_few_files_for_the_shards(self, tmp_path: Path) -> None:
        path = write_compressed(tmp_path / "1.jsonl.gz", b"1\n")
        with pytest.raises(ArgumentError, match="shards=1"):
            next(iter(ComposedDataset.from_jsonl(path)))

    def test_mixed_files_are_refused(self, tmp_path: Path) -> None:
        plain = jsonl(tmp_path / "x.jsonl", [1])
        compressed = write_compressed(tmp_path / "x.jsonl.gz", b"1\n")
        with pytest.raises(ArgumentError, match=r"ComposedDataset\.concat"):
            ComposedDataset.from_jsonl([plain, compressed])

    def test_a_missing_decompressor_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write_compressed(tmp_path / "1.jsonl.zst", b"1\n")
        monkeypatch.setattr("dali_like.sources.composed.decompression.installed", lambda module: None)
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'zstandard"):
            ComposedDataset.from_jsonl(path)


class TestTar:
    def test_samples_have_random_access(self, tmp_path: Path) -> None:
        (tmp_path / "a.tar").write_bytes(tar_bytes(range(20)))
        (tmp_path / "b.tar").write_bytes(tar_bytes(range(20, 25), size=2000))
        dataset = ComposedDataset.from_tar(str(tmp_path / "*.tar"), chunk_bytes=5000)

        assert [sample["txt"] for sample in dataset] == [b"%d" % n for n in range(25)]
        assert dataset[21] == {"__key__": "train/00021", "txt": b"21", "left.bin": bytes([21]) * 2000}
        assert sorted(int(sample["txt"]) for sample in dataset.shuffle(together=2)) == list(range(25))

    def test_a_damaged_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tar"
        path.write_bytes(tar_bytes(range(3)))
        dataset = ComposedDataset.from_tar(path)
        data = bytearray(path.read_bytes())
        data[2048:2060] = b"x" * 12
        path.write_bytes(data)
        with pytest.raises(BrokenFileError, match=r"a.tar: record 1 at byte 2048 is damaged"):
            dataset[1]
        with pytest.raises(BrokenFileError, match="is damaged"):
            ComposedDataset.from_tar(path)


class TestIterables:
    class Numbers:
        def __init__(self, *numbers: int) -> None:
            self.numbers = numbers

        def __iter__(self) -> Iterator[int]:
            for number in self.numbers:
                if number < 0:
                    raise ValueError(number)
                yield number

    def test_parts_are_interleaved(self) -> None:
        parts = [self.Numbers(0, 1, 2), [10], [20, 21], [30, 31, 32]]
        dataset = ComposedDataset.from_iterables(parts, interleave=2).with_options(shards=1)
        assert list(dataset) == [0, 10, 1, 20, 2, 21, 30, 31, 32]
        assert dataset.description == ["iterables(4 parts, interleave=2)"]

    def test_objects_that_open_at_a_record(self) -> None:
        class Openable:
            def open(self, record: int) -> Iterator[int]:
                return iter(range(record, 3))

        dataset = ComposedDataset.from_iterables([Openable(), Openable()]).with_options(shards=2)
        iterator = iter(dataset)
        assert [next(iterator) for _ in range(3)] == [0, 0, 1]
        assert iterator.state_dict()["states"] == {"0": [2, [1, 0, [[0, 2]]]], "1": [1, [1, 0, [[0, 1]]]]}

    def test_an_iterable_that_cannot_go_on_is_given_up(self) -> None:
        iterator = iter(ComposedDataset.from_iterables([self.Numbers(0, -1, 2), [5]]).with_options(shards=1))
        assert next(iterator) == 0
        for _ in range(2):  # the record itself, and the way to the next one
            with pytest.raises(ValueError, match="-1"):
                next(iterator)
        assert list(iterator) == [5]

    def test_iterators_are_refused(self) -> None:
        with pytest.raises(ArgumentTypeError, match="cannot be begun again"):
            ComposedDataset.from_iterables([iter([1])])
        with pytest.raises(ArgumentTypeError, match=r"iterables\[0\] should be an iterable"):
            ComposedDataset.from_iterables([3])


class TestParquet:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pa.table(
            {
                "n": list(range(100)),
                "tokens": [list(range(i % 7)) for i in range(100)],
                "text": [None if i % 10 == 0 else str(i) for i in range(100)],
                "nested": [{"a": i, "b": [i, None]} for i in range(100)],
            }
        )
        pq.write_table(table, tmp_path / "x.parquet", row_group_size=30)
        return str(tmp_path / "x.parquet")

    def test_rows(self, path: str) -> None:
        dataset = ComposedDataset.from_parquet([path, path])
        row = dataset[113]

        assert len(dataset) == 200
        assert (row["n"], row["text"], row["nested"]) == (13, "13", {"a": 13, "b": [13, None]})
        np.testing.assert_array_equal(row["tokens"], np.arange(6))
        assert dataset[0]["text"] is None
        assert numbers_of(dataset) == [*range(100), *range(100)]

    def test_columns(self, path: str) -> None:
        assert ComposedDataset.from_parquet(path, columns=["nested", "n"])[7] == {"nested": {"a": 7, "b": [7, None]}, "n": 7}
        with pytest.raises(ArgumentError, match=r"has no column 'm'. It has the columns n, tokens"):
            ComposedDataset.from_parquet(path, columns=["m"])
        with pytest.raises(ArgumentTypeError, match=r"columns=\['n'\]"):
            ComposedDataset.from_parquet(path, columns="n")

    def test_row_groups_are_the_chunks(self, path: str) -> None:
        dataset = ComposedDataset.from_parquet(path).shuffle(together=1)
        assert [len({n // 30 for n in numbers_of(dataset)[i : i + 10]}) for i in range(0, 30, 10)].count(1) >= 2
        assert sorted(numbers_of(pickle.loads(pickle.dumps(dataset)))) == list(range(100))

    def test_broken_files(self, path: str, tmp_path: Path) -> None:
        (tmp_path / "y.parquet").write_bytes(b"hello")
        with pytest.raises(BrokenFileError, match="not a Parquet file"):
            ComposedDataset.from_parquet(tmp_path / "y.parquet")
        dataset = ComposedDataset.from_parquet(path)
        data = bytearray(Path(path).read_bytes())
        data[4:400] = b"x" * 396
        Path(path).write_bytes(data)
        with pytest.raises(BrokenFileError, match=r"row group 0 at byte 4 is damaged"):
            dataset[1]

    def test_without_pyarrow(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        with pytest.raises(MissingExtraError, match="pip install 'pyarrow"):
            ComposedDataset.from_parquet(path)


class TestArrayRecord:
    def test_records(self, tmp_path: Path) -> None:
        module = pytest.importorskip("array_record.python.array_record_module")
        paths = [tmp_path / f"{i}.array_record" for i in range(2)]
        for k, path in enumerate(paths):
            writer = module.ArrayRecordWriter(str(path), "group_size:4")
            for i in range(300):
                writer.write(b"%d" % (k * 300 + i))
            writer.close()
        dataset = ComposedDataset.from_array_record(paths)

        assert dataset[301] == b"301"
        assert list(dataset) == [b"%d" % i for i in range(600)]
        assert sorted(map(int, pickle.loads(pickle.dumps(dataset)).shuffle(together=2))) == list(range(600))

        (tmp_path / "bad").write_bytes(b"hello")
        with pytest.raises(BrokenFileError, match="not an ArrayRecord file"):
            ComposedDataset.from_array_record(tmp_path / "bad")
        with pytest.raises(MissingFileError):
            ComposedDataset.from_array_record(tmp_path / "none")
        with pytest.raises(ArgumentError, match="local files only"):
            ComposedDataset.from_array_record("http://host/x")


LANCE = """
import pickle
import sys

import lance
import pyarrow as pa
import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import ArgumentError, MissingFileError

path = sys.argv[1]
lance.write_dataset(pa.table({"n": list(range(700)), "m": [[i] for i in range(700)]}), path)
dataset = ComposedDataset.from_lance(path)
lance.write_dataset(pa.table({"n": [1]}), path, mode="overwrite")

assert dataset[650]["n"] == 650
assert dataset[650]["m"].tolist() == [650]
assert [row["n"] for row in pickle.loads(pickle.dumps(dataset))] == list(range(700))
assert len(ComposedDataset.from_lance(path)) == 1
with pytest.raises(ArgumentError, match="has no column 'k'"):
    ComposedDataset.from_lance(path, columns=["k"])
with pytest.raises(MissingFileError, match="is not a Lance table"):
    ComposedDataset.from_lance(path + "x")
"""


def test_lance(tmp_path: Path) -> None:
    """In a process of its own: the threads and descriptors of Lance stay until the process ends."""
    pytest.importorskip("pyarrow")
    if importlib.util.find_spec("lance") is None:
        pytest.skip("Lance is not installed")
    program = [sys.executable, "-c", LANCE, str(tmp_path / "x.lance")]
    subprocess.run(program, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})


def test_patterns(tmp_path: Path) -> None:
    for name in ("b.x", "a.x", "sub/c.x", "[1].x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = StoredFiles()

    assert files.matches(f"{tmp_path}/?.x") == [f"{tmp_path}/a.x", f"{tmp_path}/b.x"]
    assert files.matches(f"{tmp_path}/**/c.x") == [f"{tmp_path}/sub/c.x"]
    assert files.matches(f"{tmp_path}/[1].x") == [f"{tmp_path}/[1].x"]
    assert files.matches("http://host/a.x?b") == ["http://host/a.x?b"]


def test_braces_stand_for_several_names_as_in_webdataset(tmp_path: Path) -> None:
    for number in range(9, 12):
        jsonl(tmp_path / f"a-{number:03}.jsonl", [number])
    jsonl(tmp_path / "b-009.jsonl", [100])
    jsonl(tmp_path / "c{1..2}.jsonl", [7])

    def read(pattern: str) -> list[int]:
        return numbers_of(ComposedDataset.from_jsonl(str(tmp_path / pattern)))

    assert read("a-{009..011}.jsonl") == [9, 10, 11]
    assert read("{b,a}-009.jsonl") == [100, 9]
    assert read("{b-009,a-0*}.jsonl") == [100, 9, 10, 11]
    assert read("c{1..2}.jsonl") == [7]  # the file has this name
    with pytest.raises(MissingFileError, match=r"d1\.jsonl does not exist"):
        read("d{1..2}.jsonl")
    assert expanded("{8..10}/{0..1}") == ["8/0", "8/1", "9/0", "9/1", "10/0", "10/1"]


@pytest.mark.parametrize("kind", ["jsonl", "tar", "parquet"])
def test_files_with_an_index_may_be_read_in_order(kind: str, tmp_path: Path) -> None:
    """Each shard has whole files, and resumes from the index."""
    paths = []
    for number, count in enumerate((5, 0, 7, 4)):
        records = range(100 * number, 100 * number + count)
        path = tmp_path / f"{number}.{kind}"
        if kind == "jsonl":
            jsonl(path, records)
        elif kind == "tar":
            path.write_bytes(tar_bytes(records))
        else:
            pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            pq.write_table(pa.table({"n": pa.array(records, pa.int64())}), path, row_group_size=3)
        paths.append(str(path))
    describe = getattr(ComposedDataset, f"from_{kind}")
    options = {} if kind == "parquet" else {"chunk_bytes": 3000 if kind == "tar" else 30}
    dataset = describe(paths, interleave=1, **options).with_options(shards=2)
    get = (lambda sample: int(sample["txt"])) if kind == "tar" else (lambda record: record["n"])

    iterator = iter(dataset)
    first = [get(next(iterator)) for _ in range(9)]
    resumed = iter(dataset)
    resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))

    assert dataset.description == [f"{kind}(4 parts)"]
    assert sorted(first + list(map(get, resumed))) == [*range(5), *range(200, 207), *range(300, 304)]
    assert first[::2] == [0, 1, 2, 3, 4]
    assert first[1::2] == [300, 301, 302, 303]


def test_generator_functions_are_iterables_that_can_be_begun_again() -> None:
    def even() -> Iterator[int]:
        yield from range(0, 10, 2)

    def odd() -> Iterator[int]:
        yield from range(1, 10, 2)

    dataset = ComposedDataset.from_iterables([even, odd]).with_options(shards=2)
    iterator = iter(dataset)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    resumed = iter(dataset)
    resumed.load_state_dict(iterator.state_dict())
    assert list(resumed) == [3, 4, 5, 6, 7, 8, 9]
    with pytest.raises(ArgumentTypeError, match=r"iterables\[0\] should be an iterable or a generator function.* but is 5"):
        ComposedDataset.from_iterables([5])
