"""Files that end too early, cut at every place: an error that names the file, never fewer samples without a word.

`make test` cuts at some places of each file, ``PARITY=full`` at all.
"""

from __future__ import annotations

import bz2
import gzip
import inspect
import io
import itertools
import json
import lzma
import os
import tarfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import fn
from dali_like import tfrecord as tfrec
from dali_like.data import ComposedDataset
from dali_like.errors import BrokenFileError, DaliLikeError, DecodeError
from dali_like.sources.readers.fits_reader import FitsReader
from dali_like.sources.readers.mxnet_reader import MXNetReader
from dali_like.sources.readers.numpy_reader import NumpyReader
from dali_like.sources.readers.reader import Reader
from dali_like.sources.readers.tfrecord_reader import TFRecordReader
from dali_like.sources.readers.webdataset_reader import WebdatasetReader
from dali_like.types import SampleInfo
from tests.operators.running import run
from tests.sources.readers.writing import example, integers, recordio, tfrecord, wds_index, write_records

#: Places where `make test` cuts each file, evenly spaced, besides the first and last bytes.
SOME = 9
NUMBERS = range(12)


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        name: of the file.
        write: writes the whole file.
        read: returns the samples of a file.
        ends: places where a file may end, because the format has no end: the samples before are read.
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], list[Any]]
    ends: Callable[[bytes], Iterable[int]] = lambda data: ()


def lines() -> bytes:
    return b"".join(json.dumps({"n": number}).encode() + b"\n" for number in NUMBERS)


def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(3):
            about = tarfile.TarInfo(f"{number}.txt")
            about.size = 600
            tar.addfile(about, io.BytesIO(b"%d" % number * 600))  # 1536 bytes with its header
    return file.getvalue()


def zstd(data: bytes) -> bytes:
    compressor = pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True)
    return bytes(compressor.compress(data))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


def in_two(compress: Callable[[bytes], bytes], data: bytes) -> tuple[bytes, bytes]:
    """Two streams; the first one holds whole lines."""
    middle = data.index(b"\n", len(data) // 2) + 1
    return compress(data[:middle]), compress(data[middle:])


def in_order(dataset: ComposedDataset) -> list[Any]:
    return list(dataset.with_options(shards=1))


def read_with(reader: Reader) -> list[Any]:
    reader.prepare()
    samples = []
    for index in range(len(reader)):
        sample: Any = reader.read(index, SampleInfo(index, index, 0, 0))
        if inspect.iscoroutine(sample):
            with pytest.raises(StopIteration) as ended:
                sample.send(None)
            sample = ended.value.value
        samples.append([np.array(each).tolist() for each in (sample if isinstance(sample, tuple) else (sample,))])
    return samples


def records() -> list[bytes]:
    return [tfrecord(example(n=integers(number))) for number in range(4)]


def tfrecords(path: Path, index: bool = False) -> list[Any]:
    features = {"n": tfrec.FixedLenFeature([1], tfrec.int64, -1)}
    return read_with(TFRecordReader(path=str(path), features=features, index_path=f"{path}.idx" if index else None))


def write_parquet(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"n": list(NUMBERS), "text": list(map(str, NUMBERS))})
    pq.write_table(table, path, row_group_size=5, compression="none")


def write_array_record(path: Path) -> None:
    writer = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter(str(path), "group_size:4")
    for number in NUMBERS:
        writer.write(b"%d" % number)
    writer.close()


def write_fits(path: Path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    file = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(np.arange(999, dtype=np.int32))]).writeto(file)
    path.write_bytes(gzip.compress(file.getvalue()) if path.suffix == ".gz" else file.getvalue())


def write_webdataset(path: Path) -> None:
    path.write_bytes(archive())
    samples = [[("txt", 512 + number * 1536, 600, f"{number}.txt")] for number in range(3)]
    path.with_suffix(".idx").write_text(wds_index(samples))


def ends_of_lines(data: bytes) -> list[int]:
    """Places behind a line, with or without its end."""
    return [place for place in range(len(data)) if data[place : place + 1] == b"\n" or data[:place].endswith(b"\n")] + [0]


FORMATS = {
    "JSON Lines": Format(
        "a.jsonl", lambda path: path.write_bytes(lines()), lambda path: list(ComposedDataset.from_jsonl(path)), ends_of_lines
    ),
    "tar": Format("a.tar", lambda path: path.write_bytes(archive()), lambda path: list(ComposedDataset.from_tar(path))),
    **{
        f"JSON Lines, {ending}": Format(
            f"a.jsonl.{ending}",
            lambda path, compress=compress: path.write_bytes(compress(lines())),
            lambda path: in_order(ComposedDataset.from_jsonl(path)),
        )
        for ending, compress in COMPRESS.items()
    },
    **{
        f"JSON Lines, two streams of {ending}": Format(
            f"b.jsonl.{ending}",
            lambda path, compress=compress: path.write_bytes(b"".join(in_two(compress, lines()))),
            lambda path: in_order(ComposedDataset.from_jsonl(path)),
            lambda _, compress=compress: [len(in_two(compress, lines())[0])],
        )
        for ending, compress in COMPRESS.items()
    },
    **{
        f"tar, {ending}": Format(
            f"a.tar.{ending}",
            lambda path, compress=compress: path.write_bytes(compress(archive())),
            lambda path: in_order(ComposedDataset.from_tar(path)),
        )
        for ending, compress in COMPRESS.items()
    },
    "Parquet": Format("a.parquet", write_parquet, lambda path: list(ComposedDataset.from_parquet(path))),
    "ArrayRecord": Format("a.array_record", write_array_record, lambda path: list(ComposedDataset.from_array_record(path))),
    "TFRecord": Format(
        "a.tfrecord",
        lambda path: write_records(path, records(), sizes=True),
        tfrecords,
        lambda _: itertools.accumulate(map(len, records()), initial=0),
    ),
    "TFRecord with an index": Format(
        "b.tfrecord", lambda path: write_records(path, records(), sizes=True), lambda path: tfrecords(path, index=True)
    ),
    "RecordIO": Format(
        "a.rec",
        lambda path: write_records(path, [recordio(number, b"abc") for number in range(3)]),
        lambda path: read_with(MXNetReader(path=str(path))),
        lambda _: itertools.accumulate([len(recordio(0, b"abc"))] * 3, initial=0),
    ),
    "RecordIO with an index": Format(
        "b.rec",
        lambda path: write_records(path, [recordio(number, b"abc") for number in range(3)]),
        lambda path: read_with(MXNetReader(path=str(path), index_path=f"{path}.idx")),
    ),
    "WebDataset": Format("c.tar", write_webdataset, lambda path: read_with(WebdatasetReader(paths=str(path), ext="txt"))),
    "WebDataset with an index": Format(
        "d.tar",
        write_webdataset,
        lambda path: read_with(WebdatasetReader(paths=str(path), ext="txt", index_paths=str(path.with_suffix(".idx")))),
    ),
    "NumPy": Format(
        "a.npy",
        lambda path: np.save(path, np.arange(30.0)),
        lambda path: read_with(NumpyReader(files=str(path))),
    ),
    "FITS": Format("a.fits", write_fits, lambda path: read_with(FitsReader(files=str(path)))),
    "FITS, gz": Format("b.fits.gz", write_fits, lambda path: read_with(FitsReader(files=str(path)))),
}


def places(whole: bytes) -> list[int]:
    """The sizes to which a file is cut."""
    size = len(whole)
    if os.environ.get("PARITY") == "full":
        return list(range(0, size, max(1, size // 10_000)))  # ArrayRecord fills blocks of 64 KiB
    some = np.linspace(0, size, SOME, endpoint=False).astype(int).tolist()
    return sorted({0, 1, 1536, 3072, 4608, *some, size - 5, size - 1} & set(range(size)))


def is_read_as_well(format: Format, path: Path, expected: list[Any], ends: set[int]) -> bool:
    """Return whether a file that was cut is right, raises an error with its name, or warns with its name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            samples = format.read(path)
        except DaliLikeError as error:
            return str(path) in str(error)
    is_begin = samples == expected[: len(samples)]
    has_warned = any(str(path) in str(each.message) for each in caught)
    return samples == expected or (is_begin and (has_warned or path.stat().st_size in ends))


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS.keys())
def test_a_file_truncated_anywhere_is_complete_or_named_in_an_error(format: Format, tmp_path: Path) -> None:
    path = tmp_path / format.name
    format.write(path)
    whole = path.read_bytes()
    expected = format.read(path)
    ends = set(format.ends(whole))
    wrong = []
    for place in places(whole):
        path.write_bytes(whole[:place])
        if not is_read_as_well(format, path, expected, ends):
            wrong.append(place)
    assert not wrong


@pytest.mark.parametrize("ending", COMPRESS)
def test_other_bytes_behind_a_stream_are_no_end_of_the_file(ending: str, tmp_path: Path) -> None:
    """They may be a damaged stream."""
    first, second = in_two(COMPRESS[ending], lines())
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(first + bytes(8) + second + bytes(4))
    assert in_order(ComposedDataset.from_jsonl(path)) == [{"n": number} for number in NUMBERS]
    path.write_bytes(first + b"x" + second[1:])
    with pytest.raises(BrokenFileError, match=rf"{ending} cannot be decompressed"):
        in_order(ComposedDataset.from_jsonl(path))


def test_frames_of_zstandard_without_data_are_skipped(tmp_path: Path) -> None:
    """As in seekable files, whose last frame is a table of positions."""
    frame = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"table"
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd(b"1\n") + frame + zstd(b"2\n") + frame)
    assert in_order(ComposedDataset.from_jsonl(path)) == [1, 2]
    path.write_bytes(zstd(b"1\n") + frame[:-1])
    with pytest.raises(BrokenFileError, match="zst cannot be decompressed: it ends within a stream"):
        in_order(ComposedDataset.from_jsonl(path))


def test_an_archive_behind_the_end_of_another_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive() * 2)
    with pytest.warns(UserWarning, match=r"a\.tar has an end at byte 4608, and more data behind it, which is left out"):
        assert len(ComposedDataset.from_tar(path)) == 3


def test_lz4_data_that_is_cut_anywhere_is_refused() -> None:
    lz4 = pytest.importorskip("lz4.frame")
    whole = np.frombuffer(lz4.compress(bytes(range(60))), np.uint8)

    for size in places(whole.tobytes()):
        with pytest.raises(DecodeError, match="chunk 0"):
            run(lambda data: fn.experimental.inflate(data, shape=[60]), [whole[:size]])
