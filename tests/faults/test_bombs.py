"""Small files that become large, or take long: each decompressor stops at a limit that an argument names."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import json
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
from tests.audio_files import encoded
from tests.sources.readers.videos import make_video

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
        (lambda: archive(("a.txt", 3), ("b.bin", LARGE)), r"the sample of b\.bin"),
        (lambda: archive(("a.txt", 3), *[(f"b.{i}", LIMIT // 2) for i in range(3)]), r"the sample of b\.2"),
        (lambda: archive(("b.bin", 1), pax=b"%d comment=%s\n" % (LARGE, b"x" * (LARGE - 18))), "a header"),
    ],
    ids=["file", "files of a sample", "header"],
)
def test_a_sample_of_an_archive_is_no_larger_than_a_record_may_be(
    content: Callable[[], bytes], what: str, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.tar.{ending}"
    path.write_bytes(COMPRESS[ending](content()))
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


class TestParquet:
    @staticmethod
    def write(path: Path, columns: dict[str, Any], **options: Any) -> None:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq  # optional

        pq.write_table(pa.table(columns), path, compression="zstd", **options)

    @staticmethod
    def refused(path: Path, **options: Any) -> None:
        rows = iter(ComposedDataset.from_parquet(path, max_row_group_bytes=LIMIT, **options).with_options(shards=1))

        with pytest.raises(BrokenFileError, match="row group 0 is larger than max_row_group_bytes=1048576 after decomp"):
            next(rows)

    @pytest.mark.parametrize(
        ("column", "options"),
        [
            (lambda: np.zeros(LARGE // 8), {}),
            (lambda: np.zeros(LARGE // 8), {"use_dictionary": False}),
            (lambda: ["x" * 10_000] * 1000, {}),
            (lambda: ["x" * 10_000] * 1000, {"use_dictionary": False}),
            (lambda: ["x" * 10_000] * 1000, {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}),
            (lambda: [[0.0] * (LARGE // 8)], {}),
        ],
        ids=["numbers", "plain numbers", "texts of a dictionary", "texts", "texts with prefixes", "list"],
    )
    def test_a_row_group_is_no_larger_than_it_may_be(
        self, column: Callable[[], Any], options: dict[str, Any], tmp_path: Path
    ) -> None:
        path = tmp_path / "a.parquet"
        self.write(path, {"bomb": column()}, **options)
        assert path.stat().st_size < LIMIT // 4

        self.refused(path)

    def test_other_columns_do_not_count(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        self.write(path, {"bomb": ["x" * 10_000] * 1000, "small": np.arange(1000)})

        rows = ComposedDataset.from_parquet(path, columns=["small"], max_row_group_bytes=LIMIT).with_options(shards=1)

        assert [row["small"] for row in rows] == list(range(1000))

    def test_texts_below_the_limit_are_read_in_parts(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        texts = [str(i % 50) * 500 for i in range(1000)]
        self.write(path, {"text": texts, "n": [[i] for i in range(1000)]})

        rows = list(ComposedDataset.from_parquet(path, max_row_group_bytes=LIMIT).with_options(shards=1))

        assert [row["text"] for row in rows] == texts
        assert [row["n"].tolist() for row in rows] == [[i] for i in range(1000)]


class TestSoundsAndVideos:
    """Operators have the limit of images, readers have an argument."""

    @staticmethod
    def run(output: Callable[[], Any]) -> None:
        pipe = Pipeline(1, 1, None, py_num_workers=0, max_held_bytes=1 << 28)
        with pipe:
            pipe.set_outputs(output())
        with closing(pipe):
            pipe.run()

    def test_audio_is_no_larger_than_an_image_may_be(self) -> None:
        pytest.importorskip("soundfile")
        data = encoded(np.zeros((120_000, 1), np.float32), 8000, "FLAC")

        with pytest.raises(DecodeError, match=r"take 572 MiB; the limit is 512 MiB.*raise max_held_bytes"):
            self.run(lambda: fn.decoders.audio(data, sample_rate=10_000_000)[0])

    def test_audio_of_a_reader_is_no_larger_than_its_argument_says(self, tmp_path: Path) -> None:
        pytest.importorskip("soundfile")
        (tmp_path / "a.flac").write_bytes(encoded(np.zeros((LARGE // 4, 1), np.float32), 8000, "FLAC").tobytes())
        (tmp_path / "a.json").write_text(json.dumps({"audio_filepath": str(tmp_path / "a.flac")}))
        reader = functools.partial(fn.readers.nemo_asr, manifest_filepaths=[str(tmp_path / "a.json")], read_text=False)

        with pytest.raises(BrokenFileError, match=r"take 16 MiB; the limit is 1 MiB.*larger max_sample_bytes than 1048576"):
            self.run(lambda: reader(max_sample_bytes=LIMIT)[0])
        self.run(lambda: reader(max_sample_bytes=LARGE)[0])

    def test_a_video_is_no_larger_than_an_image_may_be(self, tmp_path: Path) -> None:
        pytest.importorskip("av")
        make_video(tmp_path / "a.mp4", 3)
        data = np.fromfile(tmp_path / "a.mp4", np.uint8)

        with pytest.raises(DecodeError, match=r"1000000 frames of \d+x\d+ pixels take .*the limit is 512 MiB"):
            self.run(lambda: fn.experimental.decoders.video(data, sequence_length=1_000_000, pad_mode="edge"))

    @pytest.mark.parametrize("reader", [fn.readers.video, fn.experimental.readers.video, fn.readers.video_resize])
    def test_a_sequence_is_no_larger_than_the_argument_of_the_reader_says(self, reader: Any, tmp_path: Path) -> None:
        pytest.importorskip("av")
        make_video(tmp_path / "a.mp4", 3)
        options: dict[str, Any] = {"filenames": [str(tmp_path / "a.mp4")], "sequence_length": 3}
        if reader is fn.readers.video_resize:
            options["resize_x"] = 8

        with pytest.raises(BrokenFileError, match=r"3 frames of .* take .*the limit is 1000 bytes.*max_sample_bytes"):
            self.run(lambda: reader(**options, max_sample_bytes=1000))
        self.run(lambda: reader(**options))


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
        from tests.image_files import jpeg_promising  # it imports OpenCV, which makes forks of other tests slower

        file = jpeg_promising(height, width, progressive=True)
        last = file.rindex(b"\xff\xda")
        return file[:last] + file[last:-2] * count + file[-2:]

    def test_are_an_error_before_they_are_decoded(self) -> None:
        file = np.frombuffer(self.with_scans(500, 13000, 13000), np.uint8)

        with pytest.raises(DecodeError, match=r"more than 67 scans of 13000x13000 pixels.*with fewer scans: jpegtran"):
            decode_image(file, RGB)
        assert not may_be_decoded_smaller(file, 2, 512 << 20)

    def test_windows_are_no_way_around(self) -> None:
        pipe = Pipeline(1, 1, None)
        with pipe:
            file = np.frombuffer(self.with_scans(500, 13000, 13000), np.uint8)
            pipe.set_outputs(fn.decoders.image_crop(file, crop=[5, 5]))
        with closing(pipe), pytest.raises(DecodeError, match="more than 67 scans"):
            pipe.run()

    def test_small_images_may_have_many(self) -> None:
        assert most_scans(1000, 1000) > 10_000
        assert most_scans(60000, 60000) == 64

    @pytest.mark.parametrize("behind", [b"", b"\xff\xda" * 1000], ids=["nothing", "another file"])
    def test_are_counted_up_to_the_end_of_the_image(self, behind: bytes) -> None:
        from tests.image_files import image_file  # see above

        scans = 4 + image_file("jpeg_progressive").tobytes().count(b"\xff\xda")
        file = memoryview(self.with_scans(5, 60, 50) + behind)

        assert has_more_scans(file, scans - 1)
        assert not has_more_scans(file, scans)

    def test_are_not_hidden_by_an_end_within_a_segment(self) -> None:
        file = self.with_scans(50, 60, 50)
        last = file.rindex(b"\xff\xda")
        hidden = file[:last] + b"\xff\xfe\x00\x04\xff\xd9" + file[last:-2] * 10 + file[-2:]

        assert has_more_scans(memoryview(hidden), 55)
