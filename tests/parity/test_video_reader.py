"""``fn.experimental.readers.video``, decoders and inputs of videos beside the real DALI on the CPU: equal to the bit."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import pytest

import dali_like
from tests.sources.readers.videos import make_video

pytestmark = pytest.mark.peers
pytest.importorskip("av")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("videos")
    make_video(root / "plain.mp4", 23)
    make_video(root / "short.mp4", 13, size=(48, 32), gop=100)
    make_video(root / "plain.mkv", 14)
    make_video(root / "varying.mp4", 21, durations_ms=(60, 20, 20))
    make_video(root / "late.mp4", 12, start_ms=400)
    make_video(root / "vp9.webm", 7, codec="libvpx-vp9")
    make_video(root / "motion.avi", 7, codec="mjpeg")
    colors = {"x264-params": "colormatrix=bt709:colorprim=bt709:transfer=bt709"}
    make_video(root / "hd.mp4", 6, options=colors)
    for name in ("b/y.mp4", "a/z.mp4"):
        (root / "classes" / name).parent.mkdir(parents=True)
        (root / "classes" / name).write_bytes((root / "short.mp4").read_bytes())
    return root


def epochs(
    dali: ModuleType, root: Path, *, batch_size: int = 1, num_batches: int | None = None, **options: Any
) -> list[Any]:
    """The samples of all outputs of a reader, and the size of its epoch. By default, one epoch and two more batches."""
    text = options.pop("list", None)
    if text is not None:
        options["file_list"] = str(root / "list.txt")
        (root / "list.txt").write_text(text.format(root=root))
    if "filenames" in options:
        options["filenames"] = [str(root / name) for name in options["filenames"]]
    pipe = dali.Pipeline(batch_size, 1, None, **({"py_num_workers": 0} if dali is dali_like else {}))
    try:
        with pipe:
            made = dali.fn.experimental.readers.video(name="reader", **options)
            pipe.set_outputs(*(made if isinstance(made, (list, tuple)) else [made]))
        pipe.build()
        size = pipe.reader_meta("reader")["epoch_size"]
        samples = []
        for _ in range(num_batches or -(-size // batch_size) + 2):
            outputs = pipe.run()
            samples.append([[np.array(output.at(i)) for i in range(len(output))] for output in outputs])
        return [size, samples, [output.layout() for output in outputs]]
    finally:
        if dali is dali_like:
            pipe.close()


def assert_alike(root: Path, **options: Any) -> None:
    theirs, ours = (epochs(dali, root, **dict(options)) for dali in (nvidia.dali, dali_like))
    assert ours[0] == theirs[0]
    assert ours[2] == theirs[2]
    for their_outputs, our_outputs in zip(theirs[1], ours[1], strict=True):
        for their_output, our_output in zip(their_outputs, our_outputs, strict=True):
            for their, our in zip(their_output, our_output, strict=True):
                assert (our.dtype, our.shape) == (their.dtype, their.shape)
                np.testing.assert_array_equal(our, their)


ALL = {"enable_frame_num": True, "enable_timestamps": True}


@pytest.mark.parametrize(
    "name", ["plain.mp4", "short.mp4", "plain.mkv", "varying.mp4", "late.mp4", "vp9.webm", "motion.avi", "hd.mp4"]
)
def test_formats(name: str, root: Path) -> None:
    assert_alike(root, filenames=[name], labels=[7], sequence_length=3, **ALL)


@pytest.mark.parametrize("frames", [{"sequence_length": 4, "stride": 3}, {"sequence_length": 5, "step": 2}], ids=str)
@pytest.mark.parametrize("pad_mode", ["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101"])
def test_padding(pad_mode: str, frames: dict[str, int], root: Path) -> None:
    assert_alike(root, filenames=["short.mp4", "plain.mkv"], pad_mode=pad_mode, fill_value=[1, 2, 3], **ALL, **frames)


def test_longer_than_the_video(root: Path) -> None:
    for pad_mode in ("reflect", "symmetric", "edge"):
        assert_alike(root, filenames=["short.mp4"], sequence_length=40, pad_mode=pad_mode, **ALL)


@pytest.mark.parametrize("num_shards", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "options",
    [{}, {"stick_to_shard": True}, {"pad_last_batch": True}, {"pad_last_batch": True, "stick_to_shard": True}],
    ids=str,
)
def test_shards(num_shards: int, options: dict[str, bool], root: Path) -> None:
    for shard in range(num_shards):
        assert_alike(
            root, filenames=["plain.mp4", "short.mp4"], labels=[3, 4], sequence_length=4, batch_size=3, num_batches=6,
            shard_id=shard, num_shards=num_shards, enable_frame_num=True, **options,
        )  # fmt: skip


@pytest.mark.parametrize("rounding", ["start_down_end_up", "start_up_end_down", "all_up", "all_down"])
@pytest.mark.parametrize("include_end", [True, False])
def test_ranges(rounding: str, include_end: bool, root: Path) -> None:
    options = {"file_list_rounding": rounding, "file_list_include_end": include_end, "sequence_length": 1, **ALL}
    frames = "{root}/plain.mp4 2 3 6\n\n{root}/plain.mp4 4 3.5 6.5\n{root}/short.mp4 5 -9 -2\n{root}/short.mp4 7\n"
    assert_alike(root, list=frames, file_list_format="frames", **options)
    times = "{root}/plain.mp4 2 0.12 0.28\n{root}/plain.mp4 3 0.13 0.29\n{root}/varying.mp4 4 0.06 0.3\n"
    times += "{root}/late.mp4 1 0.5 0.7\n"
    assert_alike(root, list=times, **options)


def test_padding_in_a_range(root: Path) -> None:
    text = "{root}/plain.mp4 2 5 8\n{root}/varying.mp4 4 3 12\n"
    for pad_mode in ("reflect", "symmetric", "edge", "constant"):
        assert_alike(root, list=text, file_list_format="frames", sequence_length=4, pad_mode=pad_mode, **ALL)


def test_folders(root: Path) -> None:
    assert_alike(root, file_root=str(root / "classes"), sequence_length=5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"filenames": ["plain.mp4"], "file_root": "x"},
        {"filenames": ["plain.mp4"], "labels": []},
        {"filenames": ["plain.mp4"], "labels": [1, 2]},
        {"filenames": ["missing.mp4"]},
        {"filenames": ["plain.mp4"], "sequence_length": 24},
        {"filenames": ["plain.mp4"], "pad_mode": "x"},
        {"filenames": ["plain.mp4"], "pad_mode": "constant", "fill_value": [300], "sequence_length": 24},
        {"filenames": ["plain.mp4"], "pad_mode": "constant", "fill_value": [1, 2], "sequence_length": 24},
        {"filenames": ["plain.mp4"], "image_type": nvidia.dali.types.GRAY},
        {"file_root": "/nowhere"},
        {"list": ""},
        {"list": "{root}/plain.mp4 -1\n"},
        {"list": "{root}/plain.mp4\n"},
        {"list": "{root}/plain.mp4 1", "file_list_format": "x"},
        {"list": "{root}/plain.mp4 1", "file_list_rounding": "x"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_errors(options: dict[str, Any], root: Path) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            epochs(dali, root, **{"sequence_length": 2, **options})


def _constant(samples: tuple[Any, ...]) -> Any:
    return lambda: list(samples)


def decoded(dali: ModuleType, path: Path, **options: Any) -> list[np.ndarray]:
    data = np.fromfile(path, np.uint8)
    pipe = dali.Pipeline(2, 1, None)
    try:
        with pipe:
            encoded = dali.fn.external_source(lambda: [data, data])
            nodes = {
                name: dali.fn.external_source(_constant(value)) if isinstance(value, tuple) else value
                for name, value in options.items()
            }
            pipe.set_outputs(dali.fn.experimental.decoders.video(encoded, **nodes))
        pipe.build()
        output = pipe.run()[0]
        return [np.array(output.at(i)) for i in range(2)]
    finally:
        if dali is dali_like:
            pipe.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"frames": [0, 10, 5, 5]},
        {"frames": [11, 14, 30]},
        {"frames": [11, 14, 30], "pad_mode": "reflect"},
        {"frames": [20], "pad_mode": "edge"},
        {"frames": [-1]},
        {"frames": 3},
        {"start_frame": 8},
        {"start_frame": 8, "stride": 2},
        {"start_frame": 8, "sequence_length": 8, "fill_value": 128},
        {"start_frame": 8, "sequence_length": 8, "pad_mode": "none"},
        {"start_frame": 8, "sequence_length": 9, "stride": 2, "pad_mode": "symmetric"},
        {"start_frame": 8, "end_frame": 17, "fill_value": [1, 2, 3]},
        {"start_frame": 8, "end_frame": 17, "pad_mode": "none"},
        {"end_frame": 10, "stride": 3},
        {"start_frame": -1},
        {"sequence_length": 40, "pad_mode": "reflect_101"},
        {"sequence_length": 0},
        {"build_index": False, "frames": [3, 1]},
        {"start_frame": (np.array(3, np.int32), np.array(7, np.int32)), "sequence_length": 2},
        {"frames": (np.array([3, 4], np.int32), np.array([9], np.int32))},
    ],
    ids=str,
)
def test_decoder(options: dict[str, Any], root: Path) -> None:
    theirs, ours = (decoded(dali, root / "short.mp4", **options) for dali in (nvidia.dali, dali_like))
    for their, our in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(our, their)


@pytest.mark.parametrize(
    "options",
    [
        {"frames": [3, 31], "pad_mode": "none"},
        {"frames": [1], "stride": 2},
        {"end_frame": 10, "sequence_length": 3},
        {"start_frame": 13},
        {"start_frame": 5, "end_frame": 5},
        {"sequence_length": 3, "fill_value": [1, 2]},
        {"sequence_length": 3, "fill_value": 300},
        {"pad_mode": "x"},
    ],
    ids=str,
)
def test_decoder_errors(options: dict[str, Any], root: Path) -> None:
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            decoded(dali, root / "short.mp4", **options)


def sequences(dali: ModuleType, feeds: list[Any], num_batches: int, **options: Any) -> list[Any]:
    pipe = dali.Pipeline(3, 1, None, prefetch_queue_depth=1)
    try:
        with pipe:
            pipe.set_outputs(dali.fn.experimental.inputs.video(name="video", **options))
        pipe.build()
        for feed in feeds:
            pipe.feed_input("video", feed)
        batches = []
        for _ in range(num_batches):
            (output,) = pipe.run()
            assert output.layout() == "FHWC"
            batches.append([np.array(output.at(i)) for i in range(len(output))])
        return batches
    finally:
        if dali is dali_like:
            pipe.close()


@pytest.mark.parametrize("policy", ["partial", "pad"])
def test_inputs(policy: str, root: Path) -> None:
    one, other = (np.fromfile(root / name, np.uint8) for name in ("short.mp4", "plain.mp4"))
    for length in (3, 4, 5, 13):
        feeds = [one[None], [other]]
        count = -(-13 // (3 * length)) + -(-23 // (3 * length))
        theirs, ours = (
            sequences(dali, feeds, count, sequence_length=length, last_sequence_policy=policy)
            for dali in (nvidia.dali, dali_like)
        )
        for their_batch, our_batch in zip(theirs, ours, strict=True):
            for their, our in zip(their_batch, our_batch, strict=True):
                np.testing.assert_array_equal(our, their)


def test_input_errors(root: Path) -> None:
    data = np.fromfile(root / "short.mp4", np.uint8)
    for dali in (nvidia.dali, dali_like):
        for feeds, options in (
            ([], {}),
            ([np.zeros((1, 50), np.uint8)], {}),
            ([data], {}),
            ([data[None]], {"last_sequence_policy": "x"}),
        ):
            with pytest.raises(RuntimeError):
                sequences(dali, feeds, 1, sequence_length=5, **options)
