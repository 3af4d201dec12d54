"""Small files that become large, or take long: each decompressor stops at a limit that an argument names."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.data import ComposedDataset
from dali_like.errors import BrokenFileError, DecodeError
from dali_like.images.decode import decode_image, may_be_decoded_smaller
from dali_like.images.header import has_more_scans, most_scans
from dali_like.types import RGB
from tests.image_files import as_file, image_file, jpeg_promising

LARGE = 1 << 24
LIMIT = 1 << 20
#: Memory that decompressing up to the limit may take. The module zstandard takes up to 128 MiB at a time.
MUCH = {"zst": 1 << 27}


def _zstandard(data: bytes) -> bytes:
    compressed: bytes = pytest.importorskip("zstandard").compress(data)
    return compressed


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": functools.partial(bz2.compress, compresslevel=1),
    "xz": functools.partial(lzma.compress, preset=0),
    "zst": _zstandard,
}
ENDINGS = pytest.mark.parametrize("ending", COMPRESS)


def peak_bytes(act: Callable[[], Any]) -> int:
    """The memory of Python that a function takes at most."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def archive(*files: tuple[str, int], pax: bytes = b"") -> bytes:
    """A tar archive of files of zeros; the first one may have an extended header."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        if pax:
            header = tarfile.TarInfo("header")
            header.type, header.size = tarfile.XHDTYPE, len(pax)
            tar.addfile(header, io.BytesIO(pax))
        for name, size in files:
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(bytes(size)))
    return out.getvalue()


@ENDINGS
def test_a_line_is_no_larger_than_a_record_may_be(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(COMPRESS[ending](b'{"n": 1}\n' + bytes(LARGE)))
    records = iter(ComposedDataset.from_jsonl(path, max_record_bytes=LIMIT).with_options(shards=1))

    assert next(records) == {"n": 1}

    def read() -> None:
        with pytest.raises(BrokenFileError, match=r"record 1 at byte 9 is larger than max_record_bytes=1048576") as caught:
            next(records)
        assert caught.value.file == str(path)

    assert peak_bytes(read) < MUCH.get(ending, LARGE // 2)


@ENDINGS
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (archive(("a.txt", 3), ("b.bin", LARGE)), r"the sample of b\.bin"),
        (archive(("a.txt", 3), *[(f"b.{i}", LIMIT // 2) for i in range(3)]), r"the sample of b\.2"),
        (archive(("b.bin", 1), pax=b"%d comment=%s\n" % (LARGE, b"x" * (LARGE - 18))), "a header"),
    ],
    ids=["file", "files of a sample", "header"],
)
def test_a_sample_of_an_archive_is_no_larger_than_a_record_may_be(
    content: bytes, what: str, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.tar.{ending}"
    path.write_bytes(COMPRESS[ending](content))
    samples = ComposedDataset.from_tar(path, max_record_bytes=LIMIT).with_options(shards=1)

    def read() -> None:
        with pytest.raises(BrokenFileError, match=rf"{what} is larger than max_record_bytes=1048576 after decompression"):
            list(samples)

    assert peak_bytes(read) < MUCH.get(ending, LARGE // 2)


def test_records_up_to_the_limit_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'"%s"\n' % (b"x" * 97)))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(archive(("a.x", 50), ("a.y", 50))))

    lines = ComposedDataset.from_jsonl(tmp_path / "a.jsonl.gz", max_record_bytes=100).with_options(shards=1)
    samples = ComposedDataset.from_tar(tmp_path / "a.tar.gz", max_record_bytes=100).with_options(shards=1)

    assert [*lines] == ["x" * 97]
    assert [[*sample] for sample in samples] == [["__key__", "x", "y"]]


class TestFits:
    def run(self, path: Path, **options: Any) -> None:
        pipe = Pipeline(1, 1, None, py_num_workers=0)
        with pipe:
            pipe.set_outputs(fn.experimental.readers.fits(files=str(path), **options))
        with closing(pipe):
            pipe.run()

    def test_a_compressed_file_is_no_larger_than_it_may_be(self, tmp_path: Path) -> None:
        fits = pytest.importorskip("astropy.io.fits")
        path = tmp_path / "a.fits.gz"
        fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(np.zeros((2, 2)))]).writeto(path)
        self.run(path)  # imports modules, which takes memory
        path.write_bytes(gzip.compress(bytes(LARGE)))

        def read() -> None:
            with pytest.raises(BrokenFileError, match="the decompressed file is larger than max_file_bytes=1048576"):
                self.run(path, max_file_bytes=LIMIT)

        assert peak_bytes(read) < LARGE // 2

    def test_a_compressed_image_is_no_larger_than_it_may_be(self, tmp_path: Path) -> None:
        fits = pytest.importorskip("astropy.io.fits")
        path = tmp_path / "a.fits"
        image = fits.CompImageHDU(np.zeros((1500, 1500), np.int16), compression_type="GZIP_1")
        fits.HDUList([fits.PrimaryHDU(), image]).writeto(path)

        with pytest.raises(BrokenFileError, match=r"HDU 2 of shape \(1500, 1500\) is larger than max_file_bytes=1048576"):
            self.run(path, max_file_bytes=LIMIT)
        self.run(path, max_file_bytes=3 * LIMIT // 2 * 3)


class TestInflate:
    def inflate(self, data: bytes, size: int) -> None:
        pipe = Pipeline(1, 1, None)
        with pipe:
            pipe.set_outputs(fn.experimental.inflate(np.frombuffer(data, np.uint8), shape=[size]))
        with closing(pipe):
            pipe.run()

    def test_a_frame_is_decompressed_up_to_the_expected_size(self) -> None:
        frame = pytest.importorskip("lz4.frame")
        data = frame.compress(bytes(LARGE))

        def inflate() -> None:
            with pytest.raises(DecodeError, match="has more than 100 bytes after decompression; shape and dtype say 100"):
                self.inflate(data, 100)

        assert peak_bytes(inflate) < LARGE // 2

    def test_a_truncated_frame_is_an_error(self) -> None:
        frame = pytest.importorskip("lz4.frame")
        data = frame.compress(bytes(100))

        for end in range(8, len(data)):
            with pytest.raises(DecodeError, match="chunk 0"):
                self.inflate(data[:end], 100)


class TestScans:
    """Progressive JPEGs with very many scans."""

    @staticmethod
    def with_scans(count: int, height: int, width: int) -> bytes:
        file = jpeg_promising(height, width, progressive=True)
        last = file.rindex(b"\xff\xda")
        return file[:last] + file[last:-2] * count + file[-2:]

    def test_are_an_error_before_they_are_decoded(self) -> None:
        file = as_file(self.with_scans(500, 13000, 13000))

        with pytest.raises(DecodeError, match=r"more than 67 scans of 13000x13000 pixels.*with fewer scans: jpegtran"):
            decode_image(file, RGB)
        assert not may_be_decoded_smaller(file, 2, 512 << 20)

    def test_windows_are_no_way_around(self) -> None:
        pipe = Pipeline(1, 1, None)
        with pipe:
            file = as_file(self.with_scans(500, 13000, 13000))
            pipe.set_outputs(fn.decoders.image_crop(file, crop=[5, 5]))
        with closing(pipe), pytest.raises(DecodeError, match="more than 67 scans"):
            pipe.run()

    def test_small_images_may_have_many(self) -> None:
        assert most_scans(1000, 1000) > 10_000
        assert most_scans(60000, 60000) == 64

    @pytest.mark.parametrize("behind", [b"", b"\xff\xda" * 1000], ids=["nothing", "another file"])
    def test_are_counted_up_to_the_end_of_the_image(self, behind: bytes) -> None:
        scans = 4 + image_file("jpeg_progressive").tobytes().count(b"\xff\xda")
        file = memoryview(self.with_scans(5, 60, 50) + behind)

        assert has_more_scans(file, scans - 1)
        assert not has_more_scans(file, scans)

    def test_are_not_hidden_by_an_end_within_a_segment(self) -> None:
        file = self.with_scans(50, 60, 50)
        last = file.rindex(b"\xff\xda")
        hidden = file[:last] + b"\xff\xfe\x00\x04\xff\xd9" + file[last:-2] * 10 + file[-2:]

        assert has_more_scans(memoryview(hidden), 55)
