"""Samples of readers, and clips of videos, as sources of composed datasets."""

from __future__ import annotations

import itertools
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import ArgumentError, ArgumentTypeError, BrokenFileError, MissingFileError
from dali_like.readers import Reader
from dali_like.sources.readers.registered import registered_readers
from dali_like.types import SampleInfo
from tests.conftest import skip_without
from tests.sources.composed.resuming import assert_resumes
from tests.sources.readers.videos import frame_numbers, make_video


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two classes with five files."""
    for name, data in (("cat/1.jpg", b"meow"), ("cat/2.jpg", b"mew"), ("dog/a.jpg", b"woof"), ("dog/b.jpg", b"wuff")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


class Squares(Reader):
    """Numbers and their squares.

    Args:
        count: of them.
    """

    output_names = ("number", "square")
    num_outputs = 2

    def __init__(self, *, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def read(self, index: int, info: SampleInfo) -> Any:
        square = info.empty((1,), np.int64)
        square[:] = index * index
        return np.array([index]), square


# Readers


@pytest.mark.parametrize("name", ["readers.file", "file"])
def test_a_reader_by_name_has_the_samples_of_its_outputs(folder: Path, name: str) -> None:
    dataset = ComposedDataset.from_reader(name, file_root=folder)

    assert [(data.tobytes(), int(label[0])) for data, label in dataset] == [
        (b"meow", 0),
        (b"mew", 0),
        (b"woof", 1),
        (b"wuff", 1),
    ]
    assert dataset.description == ["readers.file[4]"]
    assert sorted(data.tobytes() for data, _ in dataset.shuffle()) == [b"meow", b"mew", b"woof", b"wuff"]


def test_a_class_and_an_instance_of_the_program_are_readers_too() -> None:
    by_class, instance = ComposedDataset.from_reader(Squares, count=7), ComposedDataset.from_reader(Squares(count=7))

    assert by_class[5] == instance[5] == {"number": np.array([5]), "square": np.array([25])}
    batch = next(iter(DataLoader(by_class, batch_size=7, num_workers=1)))
    assert batch["square"][:, 0].tolist() == [0, 1, 4, 9, 16, 25, 36]


def test_memory_of_samples_is_their_own() -> None:
    kept = ComposedDataset.from_reader(Squares, count=6).window(3)

    assert [[int(part["square"][0]) for part in window] for window in kept] == [[0, 1, 4], [9, 16, 25]]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_read(folder: Path, start_method: str) -> None:
    dataset = ComposedDataset.from_reader("file", file_root=folder).map(length_and_label)
    loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=start_method)

    assert [batch.tolist() for batch in loader] == [[[4, 0], [3, 0]], [[4, 1], [4, 1]]]


def length_and_label(sample: Any) -> Any:
    data, label = sample
    return np.array([len(data), label[0]])


def test_origins_are_the_files_of_the_reader(folder: Path) -> None:
    loader = DataLoader(ComposedDataset.from_reader("file", file_root=folder).map(length_and_label), batch_size=4)
    batch = next(iter(loader))

    assert [(origin.index, origin.file) for origin in loader.origins_of(batch)][2:] == [(2, "dog/a.jpg"), (3, "dog/b.jpg")]


def test_urls_are_read_several_at_a_time() -> None:
    skip_without("fsspec", "tenacity")
    import fsspec

    store = fsspec.filesystem("memory")
    names = [f"/several/{number}.jpg" for number in range(9)]
    for number, name in enumerate(names):
        store.pipe(name, bytes([number]))
    try:
        files = [f"memory:/{name}" for name in names]
        one, many = (ComposedDataset.from_reader("file", files=files, concurrency=count) for count in (1, 4))

        assert [int(data[0]) for data, _ in one] == [int(data[0]) for data, _ in many] == list(range(9))
        assert (one.num_reads, many.num_reads) == (1, 4)
    finally:
        store.rm("/several", recursive=True)


def test_all_readers_that_need_one_argument_only_take_it_by_name(folder: Path) -> None:
    for path in registered_readers():
        with pytest.raises(ArgumentTypeError, match=rf"{path} has no argument file_rot"):
            ComposedDataset.from_reader(path, file_rot=folder)


def test_wrong_readers_are_named(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"there is no reader readers.fill \(did you mean readers.file\?\)"):
        ComposedDataset.from_reader("readers.fill", file_root=folder)
    with pytest.raises(ArgumentTypeError, match="a class derived from Reader"):
        ComposedDataset.from_reader(int)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="made already"):
        ComposedDataset.from_reader(Squares(count=3), count=4)
    with pytest.raises(ArgumentError, match="No files found"):
        ComposedDataset.from_reader("file", file_root=folder, file_filters=["*.png"])
    with pytest.raises(ArgumentError, match="No files found"):
        ComposedDataset.from_reader(Squares, count=0)
    with pytest.raises(MissingFileError):
        ComposedDataset.from_reader("file", file_root=folder / "none")
    with pytest.raises(ArgumentTypeError, match="labels must be"):
        ComposedDataset.from_reader("file", files=["a"], labels="x")


# Videos


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos of 23, 12 and 9 frames."""
    skip_without("av")
    root = tmp_path_factory.mktemp("videos")
    for name, count in (("a", 23), ("b", 12), ("c", 9)):
        make_video(root / f"{name}.mp4", count)
    return root


def numbers(dataset: Any) -> list[tuple[int, list[int]]]:
    """Return the episode and the frames of each clip, as the frames themselves tell."""
    found = [(element["episode"], frame_numbers(element["frames"])) for element in dataset]
    assert found == [(element["episode"], element["numbers"].tolist()) for element in dataset]
    return found


def test_clips_are_within_their_videos(videos: Path) -> None:
    dataset = ComposedDataset.from_video(str(videos / "*.mp4"), frames=8)
    element = dataset[1]

    assert numbers(dataset) == [(0, [*range(8)]), (0, [*range(8, 16)]), (1, [*range(8)]), (2, [*range(8)])]
    assert element["frames"].shape == (8, 32, 48, 3)
    assert element["seconds"].tolist() == pytest.approx([0.04 * number for number in range(8, 16)])
    assert dataset.description == ["video(3 files, frames=8, step=8, stride=1)[4]"]


def test_steps_strides_and_padding(videos: Path) -> None:
    path = videos / "c.mp4"

    strided = ComposedDataset.from_video(path, frames=3, stride=3, step=1)
    padded = ComposedDataset.from_video(path, frames=4, pad_mode="edge")

    assert [found for _, found in numbers(strided)] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert [element["numbers"].tolist() for element in padded][-1] == [8, 8, 8, 8]


def test_episodes_are_ranges_of_videos(videos: Path) -> None:
    episodes = [(videos / "a.mp4", 3, 11), (videos / "a.mp4", 11, 23), videos / "b.mp4"]

    clips = ComposedDataset.from_video(episodes, frames=5)
    whole = ComposedDataset.from_video(episodes, frames=None, stride=2)

    begins = [(0, 3), (1, 11), (1, 16), (2, 0), (2, 5)]
    assert numbers(clips) == [(episode, [*range(begin, begin + 5)]) for episode, begin in begins]
    assert numbers(whole) == [(0, [3, 5, 7, 9]), (1, [*range(11, 23, 2)]), (2, [*range(0, 12, 2)])]


def test_clips_shuffled_together_are_of_few_episodes(videos: Path) -> None:
    paths = [videos / name for name in ("a.mp4", "b.mp4", "c.mp4")]
    dataset = ComposedDataset.from_video(paths, frames=2)
    order = [element["episode"] for element in dataset.shuffle(together=1)]

    assert sorted(order) == [0] * 11 + [1] * 6 + [2] * 4
    assert sum(before != after for before, after in itertools.pairwise(order)) == 2
    assert len({tuple(found) for _, found in numbers(dataset.shuffle(together=2))}) == 11


def test_open_videos_are_kept_within_a_number_of_bytes(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, opened = [videos / "a.mp4", videos / "b.mp4"], []
    monkeypatch.setattr(
        "dali_like.sources.readers.video_reader.VideoDecoder",
        _counting(opened),
    )
    for most_bytes, expected in ((1 << 30, 2), (0, 12)):
        dataset = ComposedDataset.from_video(paths, frames=2, decoder_cache_bytes=most_bytes)
        opened.clear()
        for number in range(6):
            assert dataset[number]["episode"] == 0
            assert dataset[11 + number]["episode"] == 1
        assert len(opened) == expected


def _counting(opened: list[Any]) -> Any:
    from dali_like.images.video import VideoDecoder

    class Counted(VideoDecoder):
        def __init__(self, *args: Any, **options: Any) -> None:
            opened.append(args)
            super().__init__(*args, **options)

    return Counted


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_decode(videos: Path, start_method: str) -> None:
    dataset = ComposedDataset.from_video([videos / "a.mp4", videos / "b.mp4"], frames=4).shuffle(together=2)
    assert len(dataset[0]["frames"]) == 4  # decoders are open here
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=start_method)

    clips = [frame_numbers(frames) for batch in loader for frames in batch["frames"]]

    assert sorted(clips) == sorted([*range(begin, begin + 4)] for begin in (0, 4, 8, 12, 16, 0, 4, 8))
    assert len(pickle.dumps(dataset)) < 20_000


def test_every_state_of_episodes_in_order_resumes(videos: Path) -> None:
    paths = [videos / name for name in ("a.mp4", "b.mp4", "c.mp4")]
    dataset = ComposedDataset.from_video(paths, frames=4, interleave=2).with_options(shards=1)

    assert [element["episode"] for element in dataset] == [0, 1, 0, 1, 0, 1, 0, 2, 0, 2]
    assert_resumes(dataset.map(lambda element: element["numbers"]))


def test_origins_of_clips_are_numbers_in_their_episodes(videos: Path) -> None:
    dataset = ComposedDataset.from_video([videos / "a.mp4", videos / "b.mp4"], frames=4)
    loader = DataLoader(dataset, batch_size=8)
    batch = next(iter(loader))

    assert [(os.path.basename(origin.file), origin.index) for origin in loader.origins_of(batch)] == [
        *[("a.mp4", number) for number in range(5)],
        *[("b.mp4", number) for number in range(3)],
    ]


def test_wrong_episodes_and_broken_videos(videos: Path, tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(b"no video")
    with pytest.raises(ArgumentError, match=r"a.mp4: episode 0 is from frame 5 to 24 of a video with 23 frames"):
        ComposedDataset.from_video([(videos / "a.mp4", 5, 24)], frames=2)
    with pytest.raises(ArgumentError, match="from frame 5 to 5"):
        ComposedDataset.from_video([(videos / "a.mp4", 5, 5)], frames=2)
    with pytest.raises(ArgumentError, match="paths is empty"):
        ComposedDataset.from_video([], frames=2)
    with pytest.raises(ArgumentError, match="frames must be a positive integer"):
        ComposedDataset.from_video(videos / "a.mp4", frames=0)
    with pytest.raises(BrokenFileError, match="not a video"):
        ComposedDataset.from_video(tmp_path / "x.mp4", frames=2)
    with pytest.raises(MissingFileError):
        ComposedDataset.from_video(tmp_path / "none.mp4", frames=2)
