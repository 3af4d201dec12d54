"""Readers of videos: order, ranges, open videos, workers, broken files. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops
from dali_like.errors import ArgumentClashError, ArgumentError, BrokenFileError, DecodeError, MissingFileError, NoInputError
from dali_like.images.video import VideoDecoder
from dali_like.sources.readers.video_reader import OpenVideos, VideoReader
from dali_like.types import FLOAT, YCbCr

from .reading import pipeline_with
from .videos import frame_numbers, make_video

pytest.importorskip("av")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("videos")
    make_video(root / "a.mp4", 23)
    make_video(root / "b.mkv", 12, codec="mpeg4")
    make_video(root / "varying.mp4", 20, durations_ms=(60, 20))
    return root


def read(num_batches: int, reader: Any = fn.readers.video, *, batch_size: int = 1, **options: Any) -> list[Any]:
    """The outputs of the batches."""
    with pipeline_with(reader, batch_size, **options) as pipe:
        return [[np.array(output.as_array()) for output in pipe.run()] for _ in range(num_batches)]


def numbers(num_batches: int, reader: Any = fn.readers.video, **options: Any) -> list[list[int]]:
    return [frame_numbers(batch[0][0]) for batch in read(num_batches, reader, **options)]


def test_sequences_of_the_plain_reader(root: Path) -> None:
    """The last frame of a sequence counts, not the stride behind it."""
    found = numbers(4, filenames=root / "a.mp4", sequence_length=4, stride=7, step=1)
    assert found == [[0, 7, 14, 21], [1, 8, 15, 22], [0, 7, 14, 21], [1, 8, 15, 22]]

    found = numbers(3, filenames=[root / "b.mkv"], sequence_length=3, step=5, pad_sequences=True)
    assert found == [[0, 1, 2], [5, 6, 7], [10, 11, -1]]


def test_outputs_of_the_plain_reader(root: Path) -> None:
    options = {
        "filenames": [root / "varying.mp4"],
        "sequence_length": 3,
        "enable_frame_num": True,
        "enable_timestamps": True,
    }
    ((_, label, first, times),) = read(1, labels=[5], **options)
    assert (label.tolist(), first.tolist()) == ([[5]], [[0]])
    np.testing.assert_allclose(times, [[0.0, 0.06, 0.08]])
    plain, scaled = (
        read(1, filenames=[root / "a.mp4"], sequence_length=2, **more)[0][0]
        for more in ({}, {"dtype": FLOAT, "normalized": True})
    )
    np.testing.assert_allclose(scaled, plain / np.float32(255), rtol=1e-6)
    ((gray,),) = read(1, filenames=[root / "a.mp4"], sequence_length=1, image_type=YCbCr)
    assert gray.shape == (1, 1, 32, 48, 3)
    assert abs(int(gray[0, 0, 0, 0, 1]) - 128) < 8


@pytest.mark.parametrize("reader", [fn.readers.video, fn.experimental.readers.video])
def test_numbers_of_all_frames(reader: Any, root: Path) -> None:
    pads = {"pad_sequences": True} if reader is fn.readers.video else {"pad_mode": "constant"}
    options = {"filenames": [root / "b.mkv"], "labels": [1], "sequence_length": 5, "stride": 2, **pads}

    found = read(2, reader, enable_frame_num="sequence", **options)

    assert [numbers.tolist() for _, _, numbers in found] == [[[0, 2, 4, 6, 8]], [[10, -1, -1, -1, -1]]]
    assert [len(read(1, reader, enable_frame_num=what, **options)[0]) for what in ("none", False, "scalar")] == [2, 2, 3]
    with pytest.raises(ArgumentError, match=r"enable_frame_num must be True, False, .*, not 'all'"):
        read(1, reader, enable_frame_num="all", **options)


def test_frames_spread_evenly_over_each_video(root: Path) -> None:
    options = {"filenames": [root / "a.mp4", root / "b.mkv"], "uniform_sample": True, "step": 1, "stride": 9}

    few = numbers(3, fn.experimental.readers.video, sequence_length=3, **options)
    many = numbers(2, fn.experimental.readers.video, sequence_length=15, **options)

    assert few == [[0, 11, 22], [0, 6, 11], [0, 11, 22]]
    assert many[1] == sorted(many[1])
    assert {*many[1]} == {*range(12)}


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ("0.1 0.3", {}, [3, 7]),
        ("0.1 0.3", {"file_list_include_preceding_frame": True}, [2, 8]),
        ("0.12 0.28", {}, [3, 7]),
        ("-0.2", {}, [18, 23]),
        ("3 9", {"file_list_frame_num": True}, [3, 9]),
        ("2.5 9.5", {"file_list_frame_num": True}, [3, 9]),
        ("-4 -1", {"file_list_frame_num": True}, [19, 22]),
        ("", {}, [0, 23]),
    ],
)
def test_ranges_of_the_plain_reader(line: str, options: Any, expected: list[int], root: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{root}/a.mp4 4 {line}\n")
    reader = VideoReader(file_list=str(tmp_path / "list.txt"), sequence_length=1, **options)
    reader.prepare()
    # Private: the order of samples before they are decoded
    assert reader._samples[:, 1].tolist() == list(range(*expected))


def test_scaling(root: Path) -> None:
    options = {"filenames": [root / "a.mp4"], "sequence_length": 2}
    ((scaled,),) = read(1, fn.readers.video_resize, size=(16, 24), **options)
    assert scaled.shape == (1, 2, 16, 24, 3)
    ((plain,),) = read(1, fn.readers.video_resize, **options)
    assert plain.shape == (1, 2, 32, 48, 3)


@pytest.mark.parametrize("name", ["a.mp4", "b.mkv", "varying.mp4"])
def test_frames_in_any_order(name: str, root: Path) -> None:
    """Seeking and going on give the same frames."""
    reader = VideoReader(filenames=(str(root / name),), sequence_length=1)
    reader.prepare()
    with pipeline_with(fn.readers.video, 1, filenames=[root / name], sequence_length=1, random_shuffle=True, labels=[1],
                       enable_frame_num=True) as pipe:  # fmt: skip
        for _ in range(len(reader)):
            frames, _, first = (output.as_array() for output in pipe.run())
            assert frame_numbers(np.array(frames[0])) == [first.item()]


def test_workers_and_pickles(root: Path) -> None:
    reader = pickle.loads(pickle.dumps(VideoReader(filenames=(str(root / "a.mp4"),), sequence_length=2)))
    reader.prepare()
    assert len(reader) == 11
    workers = {"of_pipeline": {"py_num_workers": 2, "py_start_method": "fork"}}
    found = numbers(11, filenames=[root / "a.mp4"], sequence_length=2, **workers)
    assert found[1:] == [[2 * i, 2 * i + 1] for i in range(1, 11)]


class _Video:
    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.closed = nbytes, False

    def close(self) -> None:
        self.closed = True


def test_open_videos_are_bounded() -> None:
    videos, cache = [_Video(40) for _ in range(4)], OpenVideos(100)
    for i, video in enumerate(videos):
        cache.put(str(i), video)  # type: ignore[arg-type]
    assert [video.closed for video in videos] == [True, True, False, False]
    assert cache.take("2") is videos[2]
    assert cache.take("2") is None
    cache.put("large", large := _Video(500))  # type: ignore[arg-type]
    assert videos[3].closed
    assert not large.closed


@pytest.mark.parametrize("name", ["a.mp4", "b.mkv"])
def test_a_closed_decoder_leaves_nothing_to_the_garbage_collector(name: str, root: Path) -> None:
    frames = np.empty((3, 32, 48, 3), np.uint8)
    gc.collect()
    gc.disable()
    try:
        with contextlib.closing(VideoDecoder((root / name).open("rb"))) as video:
            video.decode([9, 4, 0], frames)
        del video
        assert not [each for each in gc.get_objects() if type(each).__module__.startswith("av.container")]
    finally:
        gc.enable()


def test_memory_stays_flat_over_many_files(root: Path, tmp_path: Path) -> None:
    """As many files are open as fit, however many there are. DALI_LIKE_MANY_VIDEOS=5000 reads more of them."""
    count = int(os.environ.get("DALI_LIKE_MANY_VIDEOS", "60"))
    for i in range(count):
        (tmp_path / f"{i}.mkv").symlink_to(root / "b.mkv")
    files = [tmp_path / f"{i}.mkv" for i in range(count)]
    before = len(os.listdir("/proc/self/fd"))
    with pipeline_with(fn.readers.video, 4, filenames=files, sequence_length=12, decoder_cache_bytes=5 << 20) as pipe:
        for _ in range(count // 4):
            pipe.run()
        assert len(os.listdir("/proc/self/fd")) - before < 8


def test_broken_files(root: Path, tmp_path: Path) -> None:
    whole = (root / "a.mp4").read_bytes()
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "text.mp4").write_text("no video" * 20)
    (tmp_path / "no header.mp4").write_bytes(whole[: len(whole) // 2])
    for name in ("empty", "text", "no header"):
        with pytest.raises(BrokenFileError, match=rf"{name}.mp4: this is not a video, or its header is damaged") as caught:
            read(1, filenames=[tmp_path / f"{name}.mp4"], sequence_length=1)
        assert caught.value.file == str(tmp_path / f"{name}.mp4")
    with pytest.raises(MissingFileError, match=r"missing.mp4 does not exist"):
        read(1, filenames=[tmp_path / "missing.mp4"], sequence_length=1)


def test_truncated_files(tmp_path: Path) -> None:
    """The header is at the beginning, and the last frames are missing."""
    import av  # optional

    path = make_video(tmp_path / "a.mp4", 23)
    with av.open(str(path)) as source, av.open(str(tmp_path / "fast.mp4"), "w", options={"movflags": "faststart"}) as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                copy.mux(packet)
    data = (tmp_path / "fast.mp4").read_bytes()
    (tmp_path / "fast.mp4").write_bytes(data[: int(len(data) * 0.6)])
    with pytest.raises(BrokenFileError, match=r"fast.mp4: frame \d+ .*(missing|damaged|cannot be decoded)"):
        numbers(23, filenames=[tmp_path / "fast.mp4"], sequence_length=1)


def test_names_that_are_not_utf8_and_vanished_files(root: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.mp4")
    Path(path).write_bytes((root / "a.mp4").read_bytes())
    with pipeline_with(fn.readers.video, 1, filenames=[path], sequence_length=20, decoder_cache_bytes=0) as pipe:
        assert pipe.reader_meta()
        os.unlink(path)
        with pytest.raises(MissingFileError, match=r"\\xff.mp4 does not exist"):
            pipe.run()


def test_files_in_folders_that_are_no_videos(root: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.mp4").write_bytes((root / "a.mp4").read_bytes())
    (tmp_path / "x" / "notes.txt").write_text("no video")
    with pytest.warns(UserWarning, match=r"notes.txt: this is not a video.* It is skipped"):
        (batch,) = read(1, file_root=tmp_path, sequence_length=23)
    assert batch[1].tolist() == [[0]]


@pytest.mark.parametrize("line", ["a.mp4", "a.mp4 x", "a.mp4 1 2 y", "a.mp4 -1"])
def test_wrong_lists(line: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"\n{line}\n")
    with pytest.raises(BrokenFileError, match=r"list.txt:2 expected file name, label"):
        read(1, file_list=tmp_path / "list.txt", sequence_length=1)


def test_wrong_arguments() -> None:
    for name in ("sequence_length", "stride"):
        with pytest.raises(ArgumentError, match=f"fn.readers.video: {name} must be positive, not 0"):
            fn.readers.video(filenames="a", **{"sequence_length": 1, name: 0})
    with pytest.raises(ArgumentClashError, match="file_root, filenames, file_list; and one is needed"):
        fn.readers.video(sequence_length=1)
    with pytest.raises(ArgumentError, match="channels must be 3, not 1"):
        fn.readers.video(filenames="a", sequence_length=1, channels=1)
    with pytest.raises(ArgumentError, match="Data type must be FLOAT or UINT8, not int32"):
        fn.readers.video(filenames="a", sequence_length=1, dtype=np.int32)


def test_urls(root: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://videos/a.mp4", "wb") as file:
        file.write((root / "a.mp4").read_bytes())
    try:
        assert numbers(2, filenames="memory://videos/a.mp4", sequence_length=3)[1] == [3, 4, 5]
    finally:
        fsspec.filesystem("memory").rm("/videos", recursive=True)


def test_inputs(root: Path) -> None:
    with Pipeline(3, num_threads=1) as pipe:
        pipe.set_outputs(ops.experimental.inputs.Video(sequence_length=10)(name="video"))
    pipe.feed_input("video", [np.fromfile(root / "a.mp4", np.uint8)])
    (output,) = pipe.run()
    assert [len(output.at(i)) for i in range(len(output))] == [10, 10, 3]
    with pytest.raises(NoInputError, match="input 'video' has no batch left"):
        pipe.run()
    pipe.feed_input("video", [np.zeros(99, np.uint8)])
    with pytest.raises(DecodeError, match="this is not a video"):
        pipe.run()
    pipe.close()
